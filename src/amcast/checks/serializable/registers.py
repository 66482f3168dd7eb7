"""Is one register linearizable? With unique values there is nothing to search.

A value with its write and all its reads is a zone of time. Let f be the end of the first of these calls to end and s
the beginning of the last to begin. If f < s, the register held this value from f to s: no two such zones may overlap.
If not, all of them can happen at one moment between s and f, and some such moment must be outside of the zones of the
first kind. (Gibbons and Korach, Testing shared memories, 1997, section 4.)
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from amcast.checks.serializable.calls import Call, Get, Put, Unheard, Value, from_nowhere
from amcast.errors import Anomaly

BEFORE_ALL = float("-inf")


class Zone(NamedTuple):
    """All calls about one value."""

    first_end: float
    last_beginning: float
    calls: list[Call]


def check_register(key: str, calls: Sequence[Call]) -> None:
    """Raise Anomaly if these calls of one `Get` or `Put` each cannot have happened one after the other."""
    zones = sorted((zone_of(*cluster) for cluster in clusters(key, calls)), key=lambda zone: zone.first_end)
    held = [zone for zone in zones if zone.first_end < zone.last_beginning]
    for earlier, later in pairwise(held):
        if later.first_end < earlier.last_beginning:
            raise _stale(key, earlier, later)
    starts = [zone.first_end for zone in held]
    for zone in zones:
        at = bisect_left(starts, zone.last_beginning) - 1  # one that starts at that moment may come behind
        if at >= 0 and zone.last_beginning <= zone.first_end < held[at].last_beginning:
            raise _stale(key, held[at], zone)


def clusters(key: str, calls: Sequence[Call]) -> list[tuple[Value, Call | None, list[Call]]]:
    """Return each value that was written or found, with its write (none for that of the beginning) and its reads."""
    writes: dict[Value, Call] = {}
    reads: dict[Value, list[Call]] = {}
    for call in calls:
        step = call.steps[0]
        if isinstance(step, Put) and call.may_happen:
            writes[step.value] = call
        elif isinstance(step, Get) and not isinstance(step.found, Unheard):
            reads.setdefault(step.found, []).append(call)
    for value, found in reads.items():
        if value is not None and value not in writes:
            raise from_nowhere(calls, key, value, found[0])
    values = [value for value in writes if writes[value].heard or value in reads]  # else it may not have happened
    return [(None, None, reads.get(None, [])), *((value, writes[value], reads.get(value, [])) for value in values)]


def zone_of(value: Value, write: Call | None, reads: list[Call]) -> Zone:
    early = next((read for read in reads if write is not None and read.ended < write.began), None)
    if early is not None and write is not None:
        raise Anomaly("read before write", f"{value} was found before it was written", [early, write])
    if write is None:
        return Zone(BEFORE_ALL, max((read.began for read in reads), default=BEFORE_ALL), reads)
    all_calls = [write, *reads]
    return Zone(min(call.last_moment for call in all_calls), max(call.began for call in all_calls), all_calls)


def _stale(key: str, held: Zone, other: Zone) -> Anomaly:
    """Return the calls between which one value must have been there without a gap, and those of the other value."""
    shown = [min(held.calls, key=lambda call: call.last_moment), max(held.calls, key=lambda call: call.began)]
    shown += [min(other.calls, key=lambda call: call.last_moment), max(other.calls, key=lambda call: call.began)]
    shown = sorted(dict.fromkeys(shown), key=lambda call: call.began)
    return Anomaly("stale read", f"{key} cannot have held both values in turn, each without a gap", shown)
