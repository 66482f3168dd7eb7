"""Which group has a key: Redis' hash slots, and the map that says which group owns each.

A cluster begins with one run of slots per group. From then on slots may move, and every change of the map is a message
to all groups: at every place of the order they all have the same one. Maps have versions, counted from 0. A request
says by which one it was routed, and is out of date if a slot that it touches has changed since. All groups that it
reaches find the same, so it is executed in all of them or in none.
"""

from binascii import crc_hqx
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final

SLOTS: Final = 16384
UNKNOWN: Final = -1  # the version of a map that is only a guess

Run = tuple[int, int, int, int]  # the first slot, how many, whose they are, and in which version they became so


def slot_of(key: bytes) -> int:
    """Return the CRC16 (XMODEM) mod 16384 of a key, or of what its first braces hold, if that is not empty."""
    if (start := key.find(b"{")) >= 0 and (end := key.find(b"}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


class SlotMap:
    """Whose each slot is. It never changes: a move makes another one."""

    __slots__ = ("_runs", "changed", "groups", "owners", "regrouped", "version")

    def __init__(
        self, version: int, groups: tuple[int, ...], owners: list[int], changed: list[int], regrouped: int = 0
    ) -> None:
        self.version = version
        self.groups = groups  # all there are, also those without slots, in order
        self.owners = owners  # by slot
        self.changed = changed  # by slot: in which version it got this owner
        self.regrouped = regrouped  # in which version there came to be these groups
        self._runs: list[Run] = []

    def of_slot(self, slot: int) -> int:
        return self.owners[min(slot, SLOTS - 1)]

    def of_key(self, key: bytes) -> int:
        return self.owners[slot_of(key)]

    def moved(self, slots: Iterable[int], target: int) -> "SlotMap":
        """Return the next map, in which these slots are those of another group."""
        owners, changed = self.owners.copy(), self.changed.copy()
        for slot in slots:
            owners[slot], changed[slot] = target, self.version + 1
        return SlotMap(self.version + 1, self.groups, owners, changed, self.regrouped)

    def regroup(self, groups: tuple[int, ...]) -> "SlotMap":
        """Return the next map, in which there are other groups."""
        version = self.version + 1
        return SlotMap(version, groups, self.owners, self.changed, version)

    def outdated(self, version: int, slots: Iterable[int], everywhere: bool) -> bool:
        """Return whether what was routed by another version of the map cannot go by it any more, or not yet."""
        if version > self.version or (everywhere and self.regrouped > version):
            return True
        return any(self.changed[slot] > version for slot in slots)

    def runs(self, since: int = UNKNOWN) -> list[Run]:
        """Return what has changed since a version, in runs of slots."""
        if not self._runs:
            first = 0
            for (owner, changed), some in groupby(zip(self.owners, self.changed, strict=True)):
                count = sum(1 for _ in some)
                self._runs.append((first, count, owner, changed))
                first += count
        return [run for run in self._runs if run[3] > since]

    def updated(self, version: int, groups: tuple[int, ...], regrouped: int, runs: Iterable[Run]) -> "SlotMap":
        """Return a later map, from what has changed since this one."""
        owners, changed = self.owners.copy(), self.changed.copy()
        for first, count, owner, when in runs:
            owners[first : first + count] = [owner] * count
            changed[first : first + count] = [when] * count
        return SlotMap(version, groups, owners, changed, regrouped)


@lru_cache(maxsize=8)
def even(groups: int, version: int = 0) -> SlotMap:
    """Return the map with which a cluster of so many groups begins."""
    owners = [slot * groups // SLOTS for slot in range(SLOTS)]
    return SlotMap(version, tuple(range(groups)), owners, [max(0, version)] * SLOTS, max(0, version))


def unknown(group: int) -> SlotMap:
    """Return what a group knows that has come later, before anybody has told it."""
    return SlotMap(UNKNOWN, (group,), [UNKNOWN] * SLOTS, [UNKNOWN] * SLOTS, UNKNOWN)
