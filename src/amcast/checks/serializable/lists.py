"""Are transactions over lists strictly serializable? Reads show the order of appends, so there is nothing to search.

A read of a list shows its elements in the order in which they were appended. So all reads of a key are beginnings of
the longest one, and each call depends on others in known ways: ww, it appends behind an element; wr, it finds an
element; rw, it does not find an element that came later; rt, it began when the other had ended. The calls can be put
into one order that explains every answer if and only if these dependencies have no cycle. (Kingsbury and Alvaro, Elle,
VLDB 2020, section 4; real time as there.)

What nobody found comes behind all that somebody found, in any order. A call whose outcome is unknown happened if
somebody found something of it, and else it is as if it had not been made. There is one limit: where an append answered
a length beyond all that was found, some of the unknown ones must have come before it. That they are enough is checked,
that each could have come there is not. A read at the end leaves nothing beyond.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from amcast.checks.serializable.calls import Append, Call, Get, Unheard, from_nowhere, shown, written
from amcast.errors import Anomaly


class Dependency(NamedTuple):
    """`later` comes after the call that has this. `kind` is ww, wr, rw or rt."""

    later: int
    kind: str
    key: str = ""


class Seen(NamedTuple):
    """What a call found in a list before its own appends."""

    call: int
    key: str
    elements: tuple[str, ...]


class Graph:
    """Nodes are calls, by their index, and marks behind them: moments, and the ends of lists that were found."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.after: list[list[Dependency]] = [[] for _ in range(calls)]

    def mark(self) -> int:
        self.after.append([])
        return len(self.after) - 1

    def add(self, earlier: int, later: int, kind: str, key: str = "") -> None:
        if earlier != later:
            self.after[earlier].append(Dependency(later, kind, key))


def check_lists(calls: Sequence[Call], by_group: bool = False) -> None:
    """Raise Anomaly if these calls of `Get` and `Append` steps cannot have happened one after the other."""
    writers = writers_of(calls)
    seen = [found for index, call in enumerate(calls) if call.heard for found in seen_by(calls, index, writers)]
    orders = orders_of(calls, seen)
    happened = {index for index, call in enumerate(calls) if call.heard}
    happened |= {writers[key, value] for key, order in orders.items() for value in order}
    graph = Graph(len(calls))
    _add_lists(graph, calls, writers, orders, seen, happened)
    _add_real_time(graph, calls, happened, by_group)
    cycle = shortest_cycle(graph)
    if cycle:
        raise _told(calls, cycle, orders)


def writers_of(calls: Sequence[Call]) -> dict[tuple[str, str], int]:
    """Return by key and element which call appends it, of those that may have happened."""
    writers: dict[tuple[str, str], int] = {}
    for index, call in enumerate(calls):
        if call.may_happen:
            writers.update(dict.fromkeys(written(call), index))
    return writers


def seen_by(calls: Sequence[Call], index: int, writers: dict[tuple[str, str], int]) -> list[Seen]:
    """Return what a call found of others' appends; raise Anomaly where it did not find its own as it made them."""
    call = calls[index]
    own: dict[str, list[str]] = {}
    seen = []
    for step in call.steps:
        if isinstance(step, Append):
            own.setdefault(step.key, []).append(step.value)
        elif isinstance(step, Get) and not isinstance(step.found, Unheard):
            found = () if step.found is None else step.found
            if not isinstance(found, tuple):
                raise Anomaly("value from nowhere", f"{step.key} is no list", [call])
            for value in found:
                if (step.key, value) not in writers:
                    raise from_nowhere(calls, step.key, value, call)
            if len(set(found)) < len(found):
                twice = next(value for value in found if found.count(value) > 1)
                writer = calls[writers[step.key, twice]]
                raise Anomaly("duplicate append", f"{twice} is in {step.key} more than once", [writer, call])
            mine = tuple(own.get(step.key, ()))
            before = found[: len(found) - len(mine)]
            if found[len(before) :] != mine or any(writers[step.key, value] == index for value in before):
                raise Anomaly("own append", f"a call did not find its own appends at the end of {step.key}", [call])
            seen.append(Seen(index, step.key, before))
            if mine:  # these are found, too
                seen.append(Seen(index, step.key, found))
    return seen


def orders_of(calls: Sequence[Call], seen: list[Seen]) -> dict[str, tuple[str, ...]]:
    """Return by key the longest list that was found; raise Anomaly if another one is not how it begins."""
    longest: dict[str, Seen] = {}
    for found in seen:
        if found.key not in longest or len(found.elements) > len(longest[found.key].elements):
            longest[found.key] = found
    for found in seen:
        most = longest[found.key]
        if most.elements[: len(found.elements)] != found.elements:
            pairs = zip(found.elements, most.elements, strict=False)
            place = next(place for place, (one, other) in enumerate(pairs) if one != other)
            text = f"{found.key} has {found.elements[place]} in place {place + 1} and also {most.elements[place]}"
            raise Anomaly("orders differ", text, [calls[found.call], calls[most.call]])
    return {key: found.elements for key, found in longest.items()}


def _add_lists(
    graph: Graph,
    calls: Sequence[Call],
    writers: dict[tuple[str, str], int],
    orders: dict[str, tuple[str, ...]],
    seen: list[Seen],
    happened: set[int],
) -> None:
    unfound: dict[str, list[int]] = {}  # by key, who appended what nobody found: all of it is behind what was found
    places = {(key, value): place for key, order in orders.items() for place, value in enumerate(order, 1)}
    answered: dict[tuple[str, int], int] = {}
    for index in sorted(happened):
        reached: dict[str, int] = {}
        for step in calls[index].steps:
            if isinstance(step, Append):
                place = places.get((step.key, step.value), len(places) + 1)
                if place < reached.get(step.key, 0):
                    text = f"{step.value} was appended to {step.key} behind what is behind it there, or missing"
                    raise Anomaly("orders differ", text, [calls[index]])
                reached[step.key] = place
                _check_length(calls, index, step, orders.get(step.key, ()), places, answered)
                if (step.key, step.value) not in places:
                    unfound.setdefault(step.key, []).append(index)
    behind = {key: graph.mark() for key in unfound}
    for key, appending in unfound.items():
        for index in dict.fromkeys(appending):
            graph.add(behind[key], index, "ww", key)

    def add_behind(index: int, kind: str, key: str) -> None:
        if index not in unfound.get(key, ()):
            if key in behind:
                graph.add(index, behind[key], kind, key)
        else:  # not by the mark: it would lead back
            for other in unfound[key]:
                graph.add(index, other, kind, key)

    for key in unfound:
        beyond = sorted((length, index) for (k, length), index in answered.items() if k == key)
        beyond = [(length, index) for length, index in beyond if length > len(orders.get(key, ()))]
        for (_, earlier), (_, later) in pairwise(beyond):
            graph.add(earlier, later, "ww", key)
        _check_fillers(calls, key, len(orders.get(key, ())), beyond)
    for key, order in orders.items():
        chain = [writers[key, value] for value in order]
        for earlier, later in pairwise(chain):
            graph.add(earlier, later, "ww", key)
        if chain:
            add_behind(chain[-1], "ww", key)
    for found in seen:
        order = orders[found.key]
        length = len(found.elements)
        if length:
            graph.add(writers[found.key, order[length - 1]], found.call, "wr", found.key)
        if length < len(order):
            graph.add(found.call, writers[found.key, order[length]], "rw", found.key)
        else:
            add_behind(found.call, "rw", found.key)


def _check_fillers(calls: Sequence[Call], key: str, found: int, beyond: list[tuple[int, int]]) -> None:
    """Raise Anomaly if too few appends of unknown length began in time for the lengths that others answered."""
    if not beyond:
        return
    last, index = beyond[-1]
    fillers = sum(
        isinstance(step, Append) and step.key == key and step.length is None
        for i, call in enumerate(calls)
        if call.may_happen and call.began <= calls[index].ended
        for step in call.steps
    )
    if last - found - len(beyond) > fillers:
        text = f"{key} became {last} long, and there are not so many appends"
        raise Anomaly("duplicate append", text, [calls[index]])


def _check_length(
    calls: Sequence[Call],
    index: int,
    step: Append,
    order: tuple[str, ...],
    places: dict[tuple[str, str], int],
    answered: dict[tuple[str, int], int],
) -> None:
    """Raise Anomaly if an append answered another length than that up to it."""
    if step.length is None:
        return
    place = places.get((step.key, step.value))
    if place is not None and place != step.length:
        text = f"{step.value} is in place {place} of {step.key}, but its append answered length {step.length}"
        raise Anomaly("orders differ", text, [calls[index]])
    if place is None and step.length <= len(order):
        text = (
            f"the append of {step.value} to {step.key} answered length {step.length}; {order[step.length - 1]} is there"
        )
        raise Anomaly("lost append", text, [calls[index]])
    other = answered.setdefault((step.key, step.length), index)
    if other != index:
        text = f"two appends to {step.key} answered length {step.length}"
        raise Anomaly("lost append", text, [calls[other], calls[index]])


def _add_real_time(graph: Graph, calls: Sequence[Call], happened: set[int], by_group: bool) -> None:
    """Put who ended before another began before it: by marks, one for each end, so that few edges say it."""
    domains: dict[int, list[int]] = {}
    for index in happened:
        for group in calls[index].groups if by_group else (0,):
            domains.setdefault(group, []).append(index)
    for members in domains.values():
        ends = sorted((calls[index].ended, index) for index in members if calls[index].heard)
        begins = sorted((calls[index].began, index) for index in members)
        at, mark = 0, -1
        for began, index in begins:
            while at < len(ends) and ends[at][0] < began:
                following = graph.mark()
                if mark >= 0:
                    graph.add(mark, following, "rt")
                graph.add(ends[at][1], following, "rt")
                mark = following
                at += 1
            if mark >= 0:
                graph.add(mark, index, "rt")


# Cycles


def shortest_cycle(graph: Graph) -> list[tuple[int, Dependency]]:
    """Return a shortest cycle as calls, each with its dependency to the next; empty if there is none."""
    best: list[tuple[int, Dependency]] = []
    for component in _knots(graph):
        inside = set(component)
        for start in sorted(node for node in component if node < graph.calls)[:100]:
            cycle = _cycle_from(graph, start, inside)
            if cycle and (not best or len(cycle) < len(best)):
                best = cycle
            if len(best) == 2:
                return best
    return best


def _knots(graph: Graph) -> Iterable[list[int]]:
    """Yield the strongly connected components of more than one node (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(graph.after)):
        if root in number:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            after = graph.after[node]
            while at < len(after):
                following = after[at].later
                at += 1
                if following not in number:
                    work += [(node, at), (following, 0)]
                    break
                if following in on_stack:
                    low[node] = min(low[node], number[following])
            else:
                if low[node] == number[node]:
                    knot: list[int] = []
                    while not knot or knot[-1] != node:
                        knot.append(stack.pop())
                        on_stack.discard(knot[-1])
                    if len(knot) > 1:
                        yield knot
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])


def _cycle_from(graph: Graph, start: int, inside: set[int]) -> list[tuple[int, Dependency]]:
    """Return a cycle through this call with as few calls as possible: steps over marks cost nothing."""
    came: dict[int, tuple[int, Dependency]] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for edge in graph.after[node]:
            if edge.later == start:
                return _path(graph, start, came, node, edge)
            if edge.later in inside and edge.later not in came:
                came[edge.later] = node, edge
                if edge.later < graph.calls:
                    queue.append(edge.later)
                else:
                    queue.appendleft(edge.later)
    return []


def _path(
    graph: Graph, start: int, came: dict[int, tuple[int, Dependency]], node: int, edge: Dependency
) -> list[tuple[int, Dependency]]:
    steps = [(node, edge)]
    while node != start:
        node, edge = came[node]
        steps.append((node, edge))
    steps.reverse()
    return [(call, dependency) for call, dependency in steps if call < graph.calls]


SAID = {"ww": "was in {} before", "wr": "was found in {} by", "rw": "did not find in {}", "rt": "ended before"}


def _told(calls: Sequence[Call], cycle: list[tuple[int, Dependency]], orders: dict[str, tuple[str, ...]]) -> Anomaly:
    kinds = [edge.kind for _, edge in cycle]
    names = {call: f"T{n}" for n, call in enumerate(dict.fromkeys(call for call, _ in cycle), 1)}
    following = [call for call, _ in cycle[1:]] + [cycle[0][0]]
    parts = [
        f"{names[call]} {SAID[edge.kind].format(edge.key)} {names[after]}"
        for (call, edge), after in zip(cycle, following, strict=True)
    ]
    appended = [step for call in names for step in calls[call].steps if isinstance(step, Append)]
    lost = any(step.value not in orders.get(step.key, ()) for step in appended)
    kind = _kind_of(kinds, lost, len({edge.key for _, edge in cycle}) == 1)
    reason = f"{', '.join(parts)}: a cycle"
    keys = sorted({edge.key for _, edge in cycle if edge.key})
    reason += "".join(f"; {key} is {shown(orders[key])}" for key in keys if key in orders)
    return Anomaly(kind, reason, [calls[call] for call in names])


def _kind_of(kinds: list[str], lost: bool, one_key: bool) -> str:
    """Return the usual name of a cycle with these dependencies."""
    if sorted(kinds) == ["rt", "rw"]:
        return "lost append" if lost else "stale read"
    if "rt" in kinds:
        return "real time"
    if "rw" not in kinds:
        return "dirty write" if set(kinds) == {"ww"} else "circular information"
    if len(kinds) == 2 and one_key:
        return "lost update" if "ww" in kinds else "intermediate read"
    return "fractured read" if kinds.count("rw") == 1 else "write skew"
