"""The adversary of the reduction: what a search with sleep sets leaves out is compared with a search without them."""

from collections.abc import Iterator
from dataclasses import dataclass

from amcast.core.protocol import Protocol
from amcast.errors import PropertyViolation
from amcast.explorer.actor import Setting
from amcast.explorer.model import Model, State
from amcast.explorer.properties import Properties
from amcast.explorer.run import spell
from amcast.explorer.scope import Scope
from amcast.explorer.search import Limits, Search, key_of


@dataclass
class Compared:
    """A reduced and an unreduced search of one scope. Both number states alike, so that these can be compared."""

    reduced: Search
    every: Search
    reduced_violates: set[str]  # the properties that do not hold in states without messages under way, in calm
    every_violates: set[str]
    missed: frozenset[bytes]  # states that only the unreduced search saw
    kinds: frozenset[str]  # of the moves that were made; "halt" if a process stopped of its own accord

    @property
    def counts(self) -> tuple[int, int]:
        return self.reduced.states, self.every.states


def compare(table: Protocol, scope: Scope, limits: Limits | None = None) -> Compared:
    """Search a scope with and without sleep sets. A violation of liveness does not end a search here."""
    properties = Properties(Setting.of(table, scope))
    at_rest = properties.at_rest
    violates: dict[bool, set[str]] = {False: set(), True: set()}
    search = {sleeping: Search(properties, sleeping) for sleeping in (False, True)}
    for sleeping in search:

        def judge(state: State, sleeping: bool = sleeping) -> None:
            try:
                at_rest(state)
            except PropertyViolation as violation:
                violates[sleeping].add(violation.property)

        properties.at_rest = judge  # type: ignore[method-assign]
        search[sleeping].run(limits)
    model = properties.model
    kinds = {str(model.moves[move][0]) for move in search[False].by if move >= 0} | (
        {"halt"} if model.halting else set()
    )
    missed = frozenset(search[False].index.keys() - search[True].index.keys())
    return Compared(search[True], search[False], violates[True], violates[False], missed, frozenset(kinds))


def bits(moves: int) -> Iterator[int]:
    while moves:
        yield (moves & -moves).bit_length() - 1
        moves &= moves - 1


def wrongly_independent(table: Protocol, scope: Scope, most: int) -> list[str]:
    """Return the pairs of moves that count as independent, but disable each other or lead to two different states.

    Every pair of moves that are possible in one of the first so many states is tried in both orders.
    """
    setting = Setting.of(table, scope)
    model = Model(setting)
    seen = {key_of(model.initial)}
    queue: list[State] = [model.initial]
    found: dict[str, None] = {}
    for state in queue:
        enabled = model.enabled(state)
        after = {move: model.after(state, move)[0] for move in bits(enabled)}
        for a, at in after.items():
            for b in bits(model.enabled(state) & ~model.clashes(state, a, at)):
                if b > a and model.clashes(state, b, after[b]) & 1 << a == 0 and not commute(model, after, a, b):
                    found[f"{spell(setting, model.moves[a])} and {spell(setting, model.moves[b])}"] = None
            key = key_of(at)
            if key not in seen and len(seen) < most:
                seen.add(key)
                queue.append(at)
    return list(found)


def commute(model: Model, after: dict[int, State], a: int, b: int) -> bool:
    if not model.enabled(after[a]) >> b & 1 or not model.enabled(after[b]) >> a & 1:
        return False
    return model.after(after[a], b)[0] == model.after(after[b], a)[0]
