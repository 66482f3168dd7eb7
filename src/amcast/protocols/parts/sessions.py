"""What a process remembers of the messages it delivered, so that a late copy is not taken for a new message.

For each sender: the highest seq below which the sender itself knows everything to be delivered, and the delivered
seqs above it. Every message carries that watermark (`AppMessage.done`), so memory is bounded by what a sender has
under way, however many messages it sent to other groups in between.

Most senders are gone for good, but nobody knows which. What is known of one that has been idle is kept in a table of
some 30 bytes each (`IdleSenders`): exactly, for a copy of one of its messages may come at any time, and nothing else
tells a late copy from a new message (docs/decisions/0027-idle-sessions.md).
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Container
from typing import Final, final

from amcast.core.process import Memory
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage

MOST_OPEN: Final = 1024  # sessions that are not looked at: the idle ones among them cost little


@final
class Session:
    def __init__(self, done: int = 0) -> None:
        self.done = done
        self.above: list[int] = []  # delivered seqs from `done` on, in increasing order
        self.used = True  # since somebody looked for idle ones

    def contains(self, seq: int) -> bool:
        if seq < self.done:
            return True
        above = self.above
        if not above or above[-1] < seq:
            return False
        return above[bisect_left(above, seq)] == seq

    def add(self, seq: int, done: int) -> None:
        """Add a delivered message with this seq, which says that all below `done` are delivered."""
        self.used = True
        above = self.above
        if not above or above[-1] < seq:
            above.append(seq)
        else:
            insort(above, seq)
        if done > self.done:
            self.done = done
            del above[: bisect_left(above, done)]

    def gapless(self) -> bool:
        """Return True if all below some number is delivered, and nothing above it."""
        return not self.above or self.above[-1] - self.done + 1 == len(self.above)


@final
class IdleSenders:
    """For each sender, the number below which all is delivered and above which nothing is. A table in one array.

    An entry stays when its sender comes back: whoever looks up a sender asks for its session first.
    """

    def __init__(self) -> None:
        self.count = 0
        self._slots = array("q", bytes(8 * 2 * 64))  # pairs of sender + 1, or 0 in a free one, and number

    def _place(self, slots: "array[int]", sender: int) -> int:
        mask = len(slots) // 2 - 1
        at = sender & mask  # the numbers of clients are drawn at random
        while slots[2 * at] not in (0, sender + 1):
            at = (at + 1) & mask
        return 2 * at

    def get(self, sender: int) -> int:
        """Return the number of a sender; 0 if nothing is known of it."""
        return self._slots[self._place(self._slots, sender) + 1]

    def put(self, sender: int, done: int) -> None:
        slots = self._slots
        at = self._place(slots, sender)
        if slots[at] == 0:
            self.count += 1
            if 3 * self.count > len(slots):  # two thirds of the pairs
                self._grow()
                slots = self._slots
                at = self._place(slots, sender)
            slots[at] = sender + 1
        slots[at + 1] = done

    def _grow(self) -> None:
        old = self._slots
        slots = array("q", bytes(16 * len(old)))
        for at in range(0, len(old), 2):
            if old[at]:
                place = self._place(slots, old[at] - 1)
                slots[place] = old[at]
                slots[place + 1] = old[at + 1]
        self._slots = slots

    def rows(self) -> list[tuple[int, int]]:
        """Return senders and numbers, in the order of the senders."""
        slots = self._slots
        return sorted([(slots[at] - 1, slots[at + 1]) for at in range(0, len(slots), 2) if slots[at]])


@final
class DeliveredMessages:
    """The set of delivered message ids, in memory bounded by the senders' open messages."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._idle = IdleSenders()
        self._look_above = MOST_OPEN

    def session(self, mid: Mid) -> Session:
        """Return the session that this message belongs to."""
        sender = sender_of(mid)
        session = self._sessions.get(sender)
        if session is None:
            session = self._sessions[sender] = Session(self._idle.get(sender))
        return session

    def crowded(self) -> bool:
        """Return True if there are so many sessions that the idle ones are worth looking for."""
        return len(self._sessions) > self._look_above

    def shelve(self, under_way: Container[int]) -> None:
        """Keep what is known of idle senders in little space; not of those that somebody holds the session of."""
        for sender, session in list(self._sessions.items()):
            if session.used or sender in under_way or not session.gapless():
                session.used = False
            else:
                self._idle.put(sender, session.done + len(session.above))
                del self._sessions[sender]
        self._look_above = max(MOST_OPEN, 2 * len(self._sessions))

    def add(self, m: AppMessage) -> None:
        self.session(m.mid).add(seq_of(m.mid), m.done)

    def contains(self, mid: Mid) -> bool:
        session = self._sessions.get(sender_of(mid))
        return session.contains(seq_of(mid)) if session is not None else seq_of(mid) < self._idle.get(sender_of(mid))

    def restore(self, sender: int, done: int, above: tuple[int, ...]) -> None:
        session = self.session(message_id(sender, 0))
        session.done = done
        session.above = list(above)

    def rows(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return sender, watermark and the seqs above it, for a snapshot."""
        return [(sender, session.done, tuple(session.above)) for sender, session in self._sessions.items()]

    def idle_rows(self) -> list[tuple[int, int]]:
        """Return the other senders, each with the number below which all is delivered."""
        return [row for row in self._idle.rows() if row[0] not in self._sessions]

    def restore_idle(self, rows: tuple[tuple[int, int], ...]) -> None:
        for sender, done in rows:
            self._idle.put(sender, done)

    def memory(self) -> Memory:
        """Return all of it."""
        return self.rows(), self.idle_rows()

    def recall(self, memory: Memory) -> None:
        """Begin with this."""
        for sender, done, above in memory[0]:
            self.restore(sender, done, above)
        self.restore_idle(tuple(memory[1]))

    def mids(self) -> list[Mid]:
        """Return every id in the set, spelt out: for checks."""
        found: list[Mid] = []
        for sender, session in self._sessions.items():
            found += [message_id(sender, seq) for seq in range(session.done)]
            found += [message_id(sender, seq) for seq in session.above]
        for sender, done in self.idle_rows():
            found += [message_id(sender, seq) for seq in range(done)]
        return found

    def size(self) -> int:
        """Return how many seqs are remembered one by one."""
        return sum([len(session.above) for session in self._sessions.values()])
