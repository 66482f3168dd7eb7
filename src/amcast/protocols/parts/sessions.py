"""What a process remembers of the messages it delivered, so that a late copy is not taken for a new message.

For each sender: the highest seq below which the sender itself knows everything to be delivered, and the delivered
seqs above it. Every message carries that watermark (`AppMessage.done`), so memory is bounded by what a sender has
under way, however many messages it sent to other groups in between.

Most senders are gone for good, but nobody knows which. What is known of one that has been idle is kept in a table of
some six bytes each (`IdleSenders`): exactly, for a copy of one of its messages may come at any time, and nothing else
tells a late copy from a new message (docs/decisions/0027-idle-sessions.md).
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Container
from typing import Final, final

from amcast.core.process import Memory
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage

MOST_OPEN: Final = 1024  # sessions that are not looked at: the idle ones among them cost little
IN_BLOCK: Final = 64  # idle senders; a block is read and written as a whole
BYTES_OF_A_BLOCK: Final = 49  # besides what it says: an object, its place in a list, its first sender


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
    """For each sender, the number below which all is delivered and above which nothing is. Six bytes for most.

    The rows stand in blocks, in the order of the senders: of each its distance to the one before, then its number. An
    entry stays when its sender comes back: whoever looks up a sender asks for its session first.
    """

    def __init__(self) -> None:
        self._firsts = array("q")  # the sender that each block begins with
        self._blocks: list[bytes] = []

    def get(self, sender: int) -> int:
        """Return the number of a sender; 0 if nothing is known of it."""
        at = bisect_right(self._firsts, sender) - 1
        if at >= 0:
            for other, number in read(self._firsts[at], self._blocks[at]):
                if other == sender:
                    return number
        return 0

    def put(self, rows: list[tuple[int, int]]) -> None:
        """Take note of senders and their numbers, which stand in the order of the senders."""
        firsts, blocks = self._firsts, self._blocks
        if not blocks and rows:
            firsts.append(rows[0][0])
            blocks.append(b"")
        begin = 0
        while begin < len(rows):
            at = max(0, bisect_right(firsts, rows[begin][0]) - 1)
            end = len(rows) if at + 1 == len(firsts) else bisect_left(rows, (firsts[at + 1], 0), begin + 1)
            known = dict(read(firsts[at], blocks[at]))
            known.update(rows[begin:end])
            merged = sorted(known.items())
            begin = end
            pieces = -(-len(merged) // IN_BLOCK)
            size = -(-len(merged) // pieces)  # of about one length
            parts = [merged[i : i + size] for i in range(0, len(merged), size)]
            if len(parts) == 1:
                firsts[at], blocks[at] = merged[0][0], written(merged)
            else:
                firsts[at : at + 1] = array("q", [part[0][0] for part in parts])
                blocks[at : at + 1] = [written(part) for part in parts]

    def rows(self) -> list[tuple[int, int]]:
        """Return senders and numbers, in the order of the senders."""
        found: list[tuple[int, int]] = []
        for i, block in enumerate(self._blocks):
            found += read(self._firsts[i], block)
        return found

    def size(self) -> int:
        """Return how many bytes it takes."""
        return sum([BYTES_OF_A_BLOCK + len(block) for block in self._blocks])


def written(rows: list[tuple[int, int]]) -> bytes:
    """Return a block with these rows, seven bits to a byte: all bytes of a number but its last have the eighth."""
    block = bytearray()
    before = rows[0][0]
    for sender, number in rows:
        for n in (sender - before, number):
            while n > 127:
                block.append(n & 127 | 128)
                n >>= 7
            block.append(n)
        before = sender
    return bytes(block)


def read(first: int, block: bytes) -> list[tuple[int, int]]:
    """Return the rows of a block that begins with this sender."""
    rows: list[tuple[int, int]] = []
    sender, i = first, 0
    while i < len(block):
        gap, i = number_at(block, i)
        number, i = number_at(block, i)
        sender += gap
        rows.append((sender, number))
    return rows


def number_at(block: bytes, i: int) -> tuple[int, int]:
    """Return the number that begins at this byte, and where the next one begins."""
    n = shift = 0
    while block[i] > 127:
        n |= (block[i] & 127) << shift
        shift += 7
        i += 1
    return n | block[i] << shift, i + 1


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
        idle: list[tuple[int, int]] = []
        for sender, session in self._sessions.items():
            if session.used or sender in under_way or not session.gapless():
                session.used = False
            else:
                idle.append((sender, session.done + len(session.above)))
        for sender, _ in idle:
            del self._sessions[sender]
        self._idle.put(sorted(idle))
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
        self._idle.put(sorted(rows))

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
