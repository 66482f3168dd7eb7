"""Are transactions strictly serializable? Where the answers do not show the order of the writes, search for one.

Calls are put into an order one by one: next may come whoever began before any that is left had ended. What was tried
is remembered as the set of calls that are in and the state after them. Few calls are open at any time, so there is
little to try, unless many outcomes are unknown: hence a budget, and a third verdict. (Wing and Gong, 1993; Lowe,
Testing for linearizability, 2017; here with transactions in place of operations.)
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from amcast.checks.serializable.calls import (
    Append,
    Call,
    Get,
    Increment,
    Put,
    Step,
    Unheard,
    Value,
    from_nowhere,
    shown,
    written,
)
from amcast.errors import Anomaly, SearchTooLong

BUDGET: Final = 200_000  # states
State = tuple[Value, ...]
NEVER: Final = float("inf")


def check_by_search(calls: Sequence[Call], by_group: bool = False, budget: int = BUDGET) -> int:
    """Return how many states were looked at until an order was found that explains these calls.

    Raises Anomaly if there is none, and SearchTooLong if the budget does not suffice.
    """
    known = set(chain.from_iterable(written(call) for call in calls if call.may_happen))
    for call in calls:
        for key, value in observed(call):
            if isinstance(value, str) and (key, value) not in known:
                raise from_nowhere(calls, key, value, call)
    kept = noticed(calls)
    search = Search(kept, by_group, budget)
    if search.run():
        return search.examined
    kept = shrunk(kept, by_group, budget // 10)
    search = Search(kept, by_group, budget)
    search.run()
    raise Anomaly("not serializable", search.explanation(), kept)


def observed(call: Call) -> Iterator[tuple[str, Value]]:
    """Yield the keys with the values that a call found in them, the elements of lists one by one."""
    for step in call.steps if call.heard else ():
        if isinstance(step, Get) and not isinstance(step.found, Unheard):
            for value in step.found if isinstance(step.found, tuple) else (step.found,):
                yield step.key, value
        elif isinstance(step, Put) and not isinstance(step.before, Unheard):
            yield step.key, step.before


def noticed(calls: Sequence[Call]) -> list[Call]:
    """Return the calls, in order of their beginning, without those that make no difference to any other.

    These were refused, or their outcome is unknown and nobody found what they wrote.
    """
    found = set(chain.from_iterable(map(observed, calls)))
    kept = [call for call in calls if call.heard or (call.may_happen and _shows(call, found))]
    return sorted(kept, key=lambda call: call.began)


def _shows(call: Call, found: set[tuple[str, Value]]) -> bool:
    """Return whether a call counts (answers of others may depend on how many did), or wrote what was found."""
    counts = any(isinstance(step, Increment | Append) for step in call.steps)
    return counts or not found.isdisjoint(written(call))


class Search:
    """A search for an order of these calls, which are given in the order of their beginnings."""

    def __init__(self, calls: Sequence[Call], by_group: bool, budget: int) -> None:
        self.calls = calls
        self.budget = budget
        self.examined = 0
        self._place = {key: at for at, key in enumerate(sorted({step.key for call in calls for step in call.steps}))}
        self._groups = [call.groups if by_group else (0,) for call in calls]
        self._domains = len(set(chain.from_iterable(self._groups)))
        self._must = sum(1 << index for index, call in enumerate(calls) if call.heard)
        self._best: tuple[int, State] = (0, ())  # with as many calls as ever fitted
        self._most = -1

    def run(self) -> bool:
        """Return whether there is an order that explains every answer."""
        start: State = (None,) * len(self._place)
        tried = {(0, start)}
        stack = [(0, start, iter(self._candidates(0)))]
        while stack:
            done, state, candidates = stack[-1]
            if done & self._must == self._must:
                return True
            if done.bit_count() > self._most:
                self._most, self._best = done.bit_count(), (done, state)
            for index in candidates:
                after = self._execute(state, self.calls[index])
                reached = (done | 1 << index, after)
                if after is not None and reached not in tried:
                    tried.add((done | 1 << index, after))
                    self.examined += 1
                    if self.examined > self.budget:
                        raise SearchTooLong(f"more than {self.budget} states")
                    stack.append((done | 1 << index, after, iter(self._candidates(done | 1 << index))))
                    break
            else:
                stack.pop()
        return False

    def _candidates(self, done: int) -> list[int]:
        """Return who may come next, first those that have to come soon."""
        limits: dict[int, float] = {}  # by group, when the first one ended of those that are left
        left = []
        first = (~done & (done + 1)).bit_length() - 1  # all before are in
        for index in range(first, len(self.calls)):
            if done >> index & 1:
                continue
            call = self.calls[index]
            left.append(index)
            for group in self._groups[index]:
                limits[group] = min(limits.get(group, NEVER), call.last_moment)
            if call.began > max(limits.values()) and len(limits) == self._domains:
                break  # nobody who begins later can come next, nor keep others from it
        fit = [i for i in left if all(self.calls[i].began <= limits[group] for group in self._groups[i])]
        return sorted(fit, key=lambda i: self.calls[i].last_moment)

    def _execute(self, state: State, call: Call) -> State | None:
        """Return the state after a call; None if it answered something else than it would from this state."""
        values = list(state)
        for step in call.steps:
            at = self._place[step.key]
            if not _step_fits(values[at], step):
                return None
            values[at] = _after(values[at], step)
        return tuple(values)

    def explanation(self) -> str:
        """Return what stands in the way where most calls had found a place."""
        done, state = self._best
        fitted = sum(1 for index in range(len(self.calls)) if done >> index & 1)
        held = ", ".join(f"{key} = {shown(state[at])}" for key, at in self._place.items()) if state else ""
        stuck = " or ".join(f"‘{self.calls[index]}’" for index in self._candidates(done)[:3])
        return (
            f"no order explains these calls; after {fitted} of {len(self.calls)} there is {held}, and then not {stuck}"
        )


def _step_fits(value: Value, step: Step) -> bool:
    match step:
        case Get():
            return isinstance(step.found, Unheard) or (step.found or None) == (value or None)
        case Put():
            return isinstance(step.before, Unheard) or step.before == value
        case Append():
            return step.length is None or step.length == 1 + (len(value) if isinstance(value, tuple) else 0)
        case Increment():
            return step.total is None or step.total == 1 + (value if isinstance(value, int) else 0)


def _after(value: Value, step: Step) -> Value:
    match step:
        case Get():
            return value
        case Put():
            return step.value
        case Append():
            return (*(value if isinstance(value, tuple) else ()), step.value)
        case Increment():
            return 1 + (value if isinstance(value, int) else 0)


def shrunk(calls: Sequence[Call], by_group: bool, budget: int) -> list[Call]:
    """Return fewer calls that have no order either: without reads, and without writes that nobody found."""
    kept = list(calls)
    size = len(kept) // 2
    while size:
        at = 0
        while at < len(kept):
            fewer = _without(kept, set(range(at, min(at + size, len(kept)))))
            if len(fewer) < len(kept) and not _has_order(fewer, by_group, budget):
                kept = fewer
            else:
                at += size
        size //= 2
    return kept


def _without(calls: list[Call], dropped: set[int]) -> list[Call]:
    """Return the calls but for these; of these, keep what others need: who counts, or wrote what was found."""
    while True:
        found = set(chain.from_iterable(observed(call) for at, call in enumerate(calls) if at not in dropped))
        needed = {at for at in dropped if _shows(calls[at], found)}
        if not needed:
            return [call for at, call in enumerate(calls) if at not in dropped]
        dropped -= needed


def _has_order(calls: list[Call], by_group: bool, budget: int) -> bool:
    """Return False only if there is certainly none."""
    try:
        return Search(calls, by_group, budget).run()
    except SearchTooLong:
        return True
