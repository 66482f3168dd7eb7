"""What a node keeps of its past besides the log: snapshots, and the answers that clients may ask for again."""

from collections import deque

import msgspec

from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage


class Saved(msgspec.Struct, array_like=True):
    """A snapshot of a node."""

    position: int
    protocol: list[bytes]
    app: bytes
    results: list[tuple[int, int, bytes]]  # sender, seq, answer


class Results:
    """The answers of the application, kept for as long as a client may ask for them again."""

    def __init__(self) -> None:
        self.by_mid: dict[Mid, bytes] = {}
        self._sessions: dict[int, deque[Mid]] = {}

    def add(self, m: AppMessage, result: bytes) -> None:
        mids = self._sessions.setdefault(sender_of(m.mid), deque())
        while mids and seq_of(mids[0]) < m.done:
            self.by_mid.pop(mids.popleft(), None)
        mids.append(m.mid)
        self.by_mid[m.mid] = result

    def rows(self) -> list[tuple[int, int, bytes]]:
        return [(sender_of(mid), seq_of(mid), result) for mid, result in self.by_mid.items()]

    def restore(self, rows: list[tuple[int, int, bytes]]) -> None:
        for sender, seq, result in rows:
            mid = message_id(sender, seq)
            self._sessions.setdefault(sender, deque()).append(mid)
            self.by_mid[mid] = result
