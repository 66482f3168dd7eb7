"""Timestamps, ballots, and the delivery rule that the whole Skeen family shares.

A timestamp (t, g) and a ballot (e, n, p) are kept as one integer, the first part in the high bits: comparing integers
is comparing the tuples lexicographically, and BOTTOM is below them all.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.topology import Mid

LOW_BITS: Final = 16
EPOCH_SHIFT: Final = 48
BOTTOM: Final = -1


def timestamp(t: int, g: int) -> int:
    """Return (t, g), issued by group g at its clock value t."""
    return t << LOW_BITS | g


def time_of(ts: int) -> int:
    return ts >> LOW_BITS


def group_of(ts: int) -> int:
    return ts & 0xFFFF


def ballot(n: int, seat: int, epoch: int = 0) -> int:
    """Return (e, n, p), round n of the member with this seat in the epoch's list: its rank, in the first epoch."""
    return epoch << EPOCH_SHIFT | n << LOW_BITS | seat


def round_of(b: int) -> int:
    return b >> LOW_BITS & 0xFFFFFFFF


def epoch_of(b: int) -> int:
    """Return the epoch of a ballot: each has one list of members, whose majorities are the ballot's quorums."""
    return b >> EPOCH_SHIFT


def leader_of(b: int) -> int:
    """Return the rank, within its group, of the member that leads ballot b."""
    return b & 0xFFFF


@final
@mypyc_attr(acyclic=True)
class Slot:
    """The place of one message in a `DeliveryQueue`."""

    def __init__(self, mid: Mid, lts: int) -> None:
        self.mid = mid
        self.lts = lts
        self.gts = BOTTOM  # until committed


@final
class DeliveryQueue:
    """Delivers committed messages in the order of gts, as long as gts is below the least lts of the uncommitted ones.

    Proposals come with increasing lts (the clock of whoever issues them only grows), so the uncommitted messages are a
    queue; the committed ones that must wait are few and stay sorted.
    """

    def __init__(self) -> None:
        self._proposed: list[Slot] = []
        self._first = 0  # of _proposed that may be uncommitted
        self._committed: list[Slot] = []  # by falling gts, so that the next one is last

    def propose(self, mid: Mid, lts: int) -> Slot:
        """Add a message that has this local timestamp and is not committed."""
        slot = Slot(mid, lts)
        self._proposed.append(slot)
        return slot

    def commit(self, slot: Slot, gts: int) -> None:
        """Give a message its final timestamp. A slot made elsewhere counts as proposed and committed at once."""
        slot.gts = gts
        waiting = self._committed
        low = 0
        high = len(waiting)
        while low < high:
            middle = (low + high) >> 1
            if waiting[middle].gts > gts:
                low = middle + 1
            else:
                high = middle
        waiting.insert(low, slot)

    def pop(self) -> Mid | None:
        """Return the message to deliver next, if there is one."""
        slot = self.pop_slot()
        return slot.mid if slot is not None else None

    def pop_slot(self) -> Slot | None:
        if not self._committed:
            return None
        proposed = self._proposed
        first = self._first
        while first < len(proposed) and proposed[first].gts != BOTTOM:
            first += 1
        if first > 64 and first * 2 > len(proposed):
            del proposed[:first]
            first = 0
        self._first = first
        if first < len(proposed) and proposed[first].lts < self._committed[-1].gts:
            return None
        return self._committed.pop()

    def pop_up_to(self, most: int) -> Slot | None:
        """Return the message to deliver next, if there is one and its gts is not above this."""
        if not self._committed or self._committed[-1].gts > most:
            return None
        return self.pop_slot()

    def uncommitted(self) -> list[Mid]:
        """Return the messages that wait for their final timestamp, by lts."""
        return [slot.mid for slot in self._proposed[self._first :] if slot.gts == BOTTOM]
