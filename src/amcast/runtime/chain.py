"""A hash over all that a replica has applied, delivery by delivery: equal at equal positions, or replicas differ.

Each link of the chain hashes the one before with a message, its place in the order and the application's answer. What
travelled as one is one link. The newest links are kept, so that two replicas that are not at the same position can be
compared where both have been.

The chain of a group begins with its first delivery, at position 0, and is part of a node's snapshots. Data that was
written without a chain has one from its position on. Such chains begin at different positions and cannot be compared:
so they all begin again, at the first link behind each multiple of `ANEW`.
"""

from array import array
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

from amcast.core.topology import sender_of, seq_of
from amcast.core.wire import AppMessage

ANEW: Final = 2**16  # positions
KEPT: Final = 2**16  # links
MASK: Final = 2**64 - 1
LINK: Final = Struct("<QQQQIQ")  # the link before, sender, number, timestamp, messages, length of their payload


class Link(msgspec.Struct, array_like=True, frozen=True):
    """The chain up to a position: where it begins, and its hash. `value` 0 says that no link ends there."""

    position: int
    since: int
    value: int


class Chain:
    """The chain of one replica. Its position is that of the next delivery."""

    def __init__(self, position: int = 0, since: int | None = None, value: int = 0) -> None:
        """Go on with a chain; with a new one where only the position is known."""
        self.position = position
        self.since = position if since is None else since
        self.value = value
        self._positions = array("q", [position])
        self._values = array("Q", [value])
        self._beginnings = [(position, self.since)]  # where `since` changed

    def add(self, m: AppMessage, ts: int, answer: bytes) -> None:
        """Add what was applied next, and what came out."""
        if self.since and self.position // ANEW > self.since // ANEW:
            self.since = self.position
            self.value = 0
            self._beginnings.append((self.position + 1, self.since))
        head = LINK.pack(self.value, sender_of(m.mid), seq_of(m.mid), ts & MASK, m.count, len(m.payload))
        found = blake2b(head, digest_size=8)
        found.update(m.payload)
        found.update(answer)
        self.value = int.from_bytes(found.digest()) or 1
        self.position += m.count
        self._positions.append(self.position)
        self._values.append(self.value)
        if len(self._positions) > 2 * KEPT:
            del self._positions[:KEPT], self._values[:KEPT]
            while len(self._beginnings) > 1 and self._beginnings[1][0] <= self.earliest:
                del self._beginnings[0]

    @property
    def end(self) -> Link:
        """Return the chain up to now."""
        return Link(self.position, self.since, self.value)

    @property
    def earliest(self) -> int:
        """Return the first position at which it can be compared."""
        return self._positions[0]

    def up_to(self, position: int) -> Link | None:
        """Return the newest link that ends at this position or before; None if it is not reached or no longer kept."""
        if not self._positions[0] <= position <= self.position:
            return None
        return self.at(self._positions[bisect_right(self._positions, position) - 1])

    def at(self, position: int) -> Link | None:
        """Return the chain up to a position, where nothing need end; None if it is not reached or no longer kept."""
        if not self._positions[0] <= position <= self.position:
            return None
        since = next(since for first, since in reversed(self._beginnings) if first <= position)
        place = bisect_left(self._positions, position)
        return Link(position, since, self._values[place] if self._positions[place] == position else 0)
