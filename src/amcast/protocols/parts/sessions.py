"""What a process remembers of the messages it delivered, so that a late copy is not taken for a new message.

For each sender: the highest seq below which the sender itself knows everything to be delivered, and the delivered
seqs above it. Every message carries that watermark (`AppMessage.done`), so memory is bounded by what a sender has
under way, however many messages it sent to other groups in between.
"""

from bisect import bisect_left, insort
from typing import final

from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage


@final
class Session:
    def __init__(self) -> None:
        self.done = 0
        self.above: list[int] = []  # delivered seqs from `done` on, in increasing order

    def contains(self, seq: int) -> bool:
        if seq < self.done:
            return True
        above = self.above
        if not above or above[-1] < seq:
            return False
        return above[bisect_left(above, seq)] == seq

    def add(self, seq: int, done: int) -> None:
        """Add a delivered message with this seq, which says that all below `done` are delivered."""
        above = self.above
        if not above or above[-1] < seq:
            above.append(seq)
        else:
            insort(above, seq)
        if done > self.done:
            self.done = done
            del above[: bisect_left(above, done)]


@final
class DeliveredMessages:
    """The set of delivered message ids, in memory bounded by the senders' open messages."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    def session(self, mid: Mid) -> Session:
        """Return the session that this message belongs to."""
        sender = sender_of(mid)
        session = self._sessions.get(sender)
        if session is None:
            session = self._sessions[sender] = Session()
        return session

    def add(self, m: AppMessage) -> None:
        self.session(m.mid).add(seq_of(m.mid), m.done)

    def contains(self, mid: Mid) -> bool:
        session = self._sessions.get(sender_of(mid))
        return session is not None and session.contains(seq_of(mid))

    def restore(self, sender: int, done: int, above: tuple[int, ...]) -> None:
        session = self.session(message_id(sender, 0))
        session.done = done
        session.above = list(above)

    def rows(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return sender, watermark and the seqs above it, for a snapshot."""
        return [(sender, session.done, tuple(session.above)) for sender, session in self._sessions.items()]

    def mids(self) -> list[Mid]:
        """Return every id in the set, spelt out: for checks."""
        found: list[Mid] = []
        for sender, session in self._sessions.items():
            found += [message_id(sender, seq) for seq in range(session.done)]
            found += [message_id(sender, seq) for seq in session.above]
        return found

    def size(self) -> int:
        """Return how many seqs are remembered one by one."""
        return sum([len(session.above) for session in self._sessions.values()])
