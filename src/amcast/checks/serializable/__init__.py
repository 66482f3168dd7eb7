"""Histories of clients: is there one order of all calls that explains every answer and agrees with real time?

`check_history` judges it (strict serializability; for calls of one step, linearizability). It knows no server and no
protocol: what it judges is what clients did, heard and when. Keys that no call has in common are judged apart, which
changes nothing. What can be decided by the answers alone is (`registers`, `counters`, `lists`: near-linear time), the
rest is searched (`search`).
"""

from collections.abc import Iterable, Sequence

from amcast.checks.serializable.calls import (
    UNHEARD,
    Append,
    Call,
    Get,
    Increment,
    Judgement,
    Outcome,
    Put,
    written,
)
from amcast.checks.serializable.counters import check_counter
from amcast.checks.serializable.lists import check_lists
from amcast.checks.serializable.registers import check_register
from amcast.checks.serializable.search import BUDGET, check_by_search
from amcast.errors import Anomaly, SearchTooLong, UsageError

__all__ = ["UNHEARD", "Append", "Call", "Get", "Increment", "Judgement", "Outcome", "Put", "check_history"]


def check_history(calls: Iterable[Call], *, by_group: bool = False, budget: int = BUDGET) -> Judgement:
    """Judge whether these calls are strictly serializable.

    `by_group`: real time binds only calls that were sent to a group in common, which is what atomic multicast
    promises by itself. Raises UsageError if two calls write the same value to a key, or if groups are missing then.
    """
    history = list(calls)
    _refuse_repeated_values(history)
    nowhere = next((call for call in history if by_group and call.steps and not call.groups), None)
    if nowhere is not None:
        raise UsageError(f"‘{nowhere}’ names no groups; expected those that it was sent to; add them")
    undecided = ""
    examined = 0
    for keys, part in _parts(history):
        try:
            examined += _check_part(keys, part, by_group, budget)
        except Anomaly as found:
            return Judgement("violated", found.kind, found.reason, found.calls)
        except SearchTooLong:
            undecided = (
                undecided or f"{len(part)} calls on {', '.join(sorted(keys)[:5])} took more than {budget} states"
            )
    judged = sum(call.heard for call in history)
    if undecided or not judged:
        return Judgement(
            "unknown", "undecided" if undecided else "nothing to judge", undecided or "no call was answered"
        )
    return Judgement("ok", judged=judged, examined=examined)


def _check_part(keys: set[str], calls: list[Call], by_group: bool, budget: int) -> int:
    steps = {type(step) for call in calls for step in call.steps}
    alone = len(keys) == 1 and all(len(call.steps) == 1 for call in calls)
    swaps = any(isinstance(step, Put) and step.before is not UNHEARD for call in calls for step in call.steps)
    if alone and steps <= {Get, Put} and not swaps:
        check_register(next(iter(keys)), calls)
    elif alone and steps <= {Get, Increment}:
        check_counter(next(iter(keys)), calls)
    elif steps <= {Get, Append}:
        check_lists(calls, by_group)
    else:
        return check_by_search(calls, by_group, budget)
    return 0


def _parts(calls: Sequence[Call]) -> list[tuple[set[str], list[Call]]]:
    """Return sets of keys that calls connect, each with its calls."""
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = key = leader[leader[key]]
        return key

    for call in calls:
        for step in call.steps:
            leader[find(step.key)] = find(call.steps[0].key)
    parts: dict[str, tuple[set[str], list[Call]]] = {}
    for call in calls:
        for key in {find(step.key) for step in call.steps}:
            keys, members = parts.setdefault(key, (set(), []))
            keys.update(step.key for step in call.steps)
            members.append(call)
    return list(parts.values())


def _refuse_repeated_values(calls: Sequence[Call]) -> None:
    seen: set[tuple[str, str]] = set()
    for call in calls:
        for key, value in written(call):
            if (key, value) in seen:
                raise UsageError(
                    f"{value} is written to {key} by two calls; expected values that are unique; "
                    f"make another one for every attempt"
                )
            seen.add((key, value))
