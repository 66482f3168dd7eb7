"""The deliveries that a replica keeps for members who missed some, and the digest that names all of them.

Only the newest are kept: those that some member is not known to have, up to a number of bytes. Whoever lacks older ones
takes a snapshot. So what a member costs that is away for long is bounded.
"""

from bisect import bisect_left
from typing import Final, final

from amcast.core.requests import NOTHING
from amcast.core.topology import Mid, sender_of, seq_of
from amcast.core.wire import AppMessage
from amcast.protocols.white_box.messages import TailRows

ROW_BYTES: Final = 128  # that a delivery costs besides its payload, roughly
DROPPED: Final = (NOTHING, 0, 0)
PRIME: Final = 2**61 - 1
FACTOR: Final = 1_000_003 * 2**30 + 7


def digest_of(digest: int, mid: Mid, gts: int) -> int:
    """Return the digest of a sequence of deliveries with one more behind it."""
    return (((digest * FACTOR + sender_of(mid)) * FACTOR + seq_of(mid)) * FACTOR + gts) % PRIME


@final
class Recent:
    """A stretch of a group's deliveries that ends with the last one of this replica."""

    def __init__(self, most_bytes: int, position: int = 0) -> None:
        self.begin = position  # how many deliveries come before the first row
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: list[tuple[AppMessage, int, int]] = []
        self._ends: list[int] = []  # the position behind each row
        self._first = 0  # of the rows that are not dropped

    def add(self, m: AppMessage, lts: int, gts: int, end: int) -> None:
        self._rows.append((m, lts, gts))
        self._ends.append(end)
        self._bytes += len(m.payload) + ROW_BYTES
        while self._bytes > self._most_bytes and self._first < len(self._rows):
            self._drop_one()

    def drop_before(self, position: int) -> None:
        """Drop what everybody has."""
        while self._first < len(self._rows) and self._ends[self._first] <= position:
            self._drop_one()

    def _drop_one(self) -> None:
        first = self._first
        self._bytes -= len(self._rows[first][0].payload) + ROW_BYTES
        self._rows[first] = DROPPED
        self.begin = self._ends[first]
        first += 1
        if first > 64 and first * 2 > len(self._rows):
            del self._rows[:first]
            del self._ends[:first]
            first = 0
        self._first = first

    def from_position(self, position: int, most_bytes: int) -> TailRows:
        """Return the first deliveries from this position on, at least one and about so many bytes of them."""
        found: list[tuple[AppMessage, int, int]] = []
        size = 0
        at = self._first if position == self.begin else bisect_left(self._ends, position, self._first) + 1
        while at < len(self._rows) and (not found or size + len(self._rows[at][0].payload) <= most_bytes):
            row = self._rows[at]
            found.append(row)
            size += len(row[0].payload) + ROW_BYTES
            at += 1
        return tuple(found)

    def size(self) -> int:
        """Return how many deliveries are kept."""
        return len(self._rows) - self._first
