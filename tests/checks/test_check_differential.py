"""The checkers against the definitions, taken word by word, on random small traces.

Also: the rows of a counter-example are by themselves a trace that breaks the property, and a cycle is a shortest one.
"""

from collections import Counter
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_rows import Trace, group_of

from amcast.checks import Verdict, check
from amcast.core.trace import Event

GROUPS = ("g0", "g1", "g2")
REPLICAS = ("g0/0", "g0/1", "g1/0", "g1/1", "g2/0")
QUICK = settings(max_examples=300, deadline=None, derandomize=True)


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    """Up to five messages; each replica delivers some, mostly its own, in the order of their names or in any."""
    any_groups = st.lists(st.sets(st.sampled_from(GROUPS), min_size=1), min_size=1, max_size=5)
    ring_of_groups = st.just([{"g0", "g1"}, {"g1", "g2"}, {"g2", "g0"}])
    dests = draw(st.one_of(any_groups, ring_of_groups))
    replicas = draw(st.sampled_from((REPLICAS, REPLICAS[::2])))
    todo: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {process: [] for process in ("c1", *replicas)}
    for index, dest in enumerate(dests):
        sender = draw(st.sampled_from(("c1", *replicas)))
        todo[sender].append(("multicast", f"m{index}", tuple(sorted(dest))))
    messages = [(f"m{index}", dest) for index, dest in enumerate(dests)]
    if draw(st.integers(0, 9)) == 9:
        messages.append(("ghost", set(GROUPS)))
    is_odd = draw(st.sampled_from((st.just(False), st.integers(0, 9).map(lambda odds: odds == 9))))
    for process in replicas:
        for message, dest in messages:
            if (group_of(process) in dest) != draw(is_odd):
                todo[process].append(("deliver", message, ()))
        if draw(st.booleans()):
            todo[process] = draw(st.permutations(todo[process]))
        else:
            todo[process].sort(key=lambda step: (step[1], step[0] == "deliver"))
    trace = Trace()
    for process, steps in todo.items():
        for kind, message, groups in steps:
            if kind == "multicast":
                trace.multicast(process, message, *groups)
            else:
                trace.deliver(process, message)
    return draw(st.permutations(trace.events))


class Facts:
    """The same trace, in the words of the definitions."""

    def __init__(self, events: list[Event]) -> None:
        ordered = sorted(events, key=lambda event: event.seq)
        self.dest = {e.message: e.dest for e in events if e.kind == "multicast"}
        self.messages = sorted({str(e.message) for e in events})
        self.delivered: dict[str, list[str | None]] = {}
        self.steps: dict[str, list[tuple[str, str | None]]] = {}
        for event in ordered:
            self.steps.setdefault(event.process, []).append((event.kind, event.message))
            if event.kind == "deliver":
                self.delivered.setdefault(event.process, []).append(event.message)

    def addressed(self, process: str, message: str) -> bool:
        return group_of(process) in (self.dest.get(message) or ())

    def bound(self, process: str, message: str) -> bool:
        """The order binds a process on what is addressed to it and on whatever it delivered all the same."""
        return self.addressed(process, message) or message in self.delivered[process]

    def is_explained_by(self, order: tuple[str, ...]) -> bool:
        for process, sequence in self.delivered.items():
            for place, message in enumerate(sequence):
                for before in order[: order.index(str(message))]:
                    if self.bound(process, before) and before not in sequence[:place]:
                        return False
        return True

    def follows(self, first: str, second: str) -> bool:
        for process, sequence in self.delivered.items():
            if first in sequence:
                if second in sequence[sequence.index(first) + 1 :]:
                    return True
                if second not in sequence and self.addressed(process, second):
                    return True
        return False

    def shortest_cycle(self) -> int | None:
        for length in range(2, len(self.messages) + 1):
            for ring in permutations(self.messages, length):
                if all(self.follows(ring[i - 1], ring[i]) for i in range(length)):
                    return length
        return None

    def happened_before(self, same_sender_only: bool) -> set[tuple[str, str]]:
        pairs = set()
        for steps in self.steps.values():
            for place, (kind, message) in enumerate(steps):
                if kind == "multicast":
                    for earlier_kind, earlier in steps[:place]:
                        if earlier_kind == "multicast" or not same_sender_only:
                            pairs.add((str(earlier), str(message)))
        if same_sender_only:
            return pairs
        while True:
            longer = {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs
            if not longer:
                return pairs
            pairs |= longer

    def overtakes(self, same_sender_only: bool) -> bool:
        for first, second in self.happened_before(same_sender_only):
            for process, sequence in self.delivered.items():
                if first != second and self.addressed(process, first) and self.addressed(process, second):
                    if second in sequence and first not in sequence[: sequence.index(second)]:
                        return True
        return False


def judged(events: list[Event], name: str) -> Verdict:
    (verdict,) = check(events, [name])
    if verdict.status == "violated":
        (again,) = check(_distinct(verdict), [name])
        assert again.status == "violated", "the counter-example alone does not break the property"
    return verdict


def _distinct(verdict: Verdict) -> list[Event]:
    rows: list[Event] = []
    for row in verdict.counterexample:
        if row not in rows:
            rows.append(row)
    return rows


@given(traces())
@QUICK
def test_order_is_the_existence_of_a_total_order(events: list[Event]) -> None:
    facts = Facts(events)
    explained = any(facts.is_explained_by(order) for order in permutations(facts.messages))
    verdict = judged(events, "order")
    assert (verdict.status == "ok") == explained
    if not explained:
        assert len(verdict.counterexample) == 2 * (facts.shortest_cycle() or 0)


@given(traces())
@QUICK
def test_fifo_is_its_definition(events: list[Event]) -> None:
    assert (judged(events, "fifo").status == "violated") == Facts(events).overtakes(same_sender_only=True)


@given(traces())
@QUICK
def test_causal_is_the_closure_of_its_definition(events: list[Event]) -> None:
    assert (judged(events, "causal").status == "violated") == Facts(events).overtakes(same_sender_only=False)


def test_the_random_traces_reach_both_answers_and_what_sets_the_properties_apart() -> None:
    """Else the comparisons above would compare nothing."""
    reached: Counter[str] = Counter()

    @given(traces())
    @QUICK
    def look_at(events: list[Event]) -> None:
        order, fifo, causal = check(events, ["order", "fifo", "causal"])
        deliveries = [event for event in events if event.kind == "deliver"]
        reached["a ring of three or more"] += len(order.counterexample) >= 6
        reached["a gap in a ring"] += any(row.kind == "multicast" for row in order.counterexample)
        reached["causal order broken, fifo kept"] += (fifo.status, causal.status) == ("ok", "violated")
        reached["fifo broken"] += fifo.status == "violated"
        reached["all is well"] += len(deliveries) > 6 and {order.status, fifo.status, causal.status} == {"ok"}

    look_at()
    assert min(reached.values()) > 0, reached
