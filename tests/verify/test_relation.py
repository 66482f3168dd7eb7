"""The relation over messages and its cuts, against networkx on the edges written out: no Spark, many small cases."""

from collections.abc import Iterator
from itertools import pairwise

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from amcast.verify.arrays import Lists
from amcast.verify.cuts import Steps, _divided, _moved, _raised_by, _whole_chains, levels_of, no_steps
from amcast.verify.fifo import _borders
from amcast.verify.graph import Line, Relation, components, cycle_through, line_of
from amcast.verify.participants import Chains

CASES = 600


class Case:
    """Some messages on some chains: mostly in one order, sometimes not, some hanging on chains."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.chains, self.messages = int(chance.integers(1, 6)), int(chance.integers(1, 14))
        self.places: list[tuple[int, int, int]] = []  # message, chain, seq
        self.after: list[tuple[int, int, int]] = []
        for chain in range(self.chains):
            chosen = np.flatnonzero(chance.random(self.messages) < 0.5)
            if chance.random() < 0.3:
                chosen = chance.permutation(chosen)
            elif len(chosen) > 1 and chance.random() < 0.5:
                at = int(chance.integers(0, len(chosen) - 1))
                chosen[[at, at + 1]] = chosen[[at + 1, at]]
            seqs = np.cumsum(chance.integers(1, 4, len(chosen)))
            self.places += [(int(m), chain, int(seq)) for m, seq in zip(chosen, seqs, strict=True)]
            for message in np.flatnonzero(chance.random(self.messages) < 0.1):
                self.after.append((int(message), chain, int(chance.integers(0, 3 * self.messages))))
        extent = [[seq for _, at, seq in self.places if at == chain] for chain in range(self.chains)]
        first, last = ([pick(seqs, default=d) for seqs in extent] for pick, d in ((min, 0), (max, -1)))
        widths = np.array(last) - np.array(first) + 3
        base = np.cumsum(widths) - widths
        self.of = Chains(np.array(first), np.array(last), base, base + widths - 1, np.array([len(s) for s in extent]))
        self.line = line_of(np.zeros(self.chains, dtype=np.int64), self.of)

    def relation(self) -> Relation:
        return Relation(
            pa.array([f"m{message}" for message in range(self.messages)]),
            np.zeros(self.messages, dtype=np.int64),
            self._lists(sorted(self.places), self.of.place),
            self._lists(sorted(self.after), lambda chain, seq: self.of.last_place_before(chain, seq + 1)),
        )

    def _lists(self, entries: list[tuple[int, int, int]], place) -> Lists:  # type: ignore[no-untyped-def]
        owner, chain, seq = (np.array([entry[part] for entry in entries], dtype=np.int64) for part in range(3))
        return Lists(self.messages, owner, place(chain, seq))

    def graph(self) -> nx.DiGraph:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.messages))
        for one, chain, seq in self.places:
            graph.add_edges_from((one, other) for other, at, later in self.places if at == chain and later > seq)
            graph.add_edges_from((one, other) for other, at, up_to in self.after if at == chain and up_to >= seq)
        graph.remove_edges_from(nx.selfloop_edges(graph))
        return graph


@pytest.fixture
def cases() -> list[Case]:
    return [Case(seed) for seed in range(CASES)]


def knots(graph: nx.DiGraph) -> set[frozenset[int]]:
    return {frozenset(part) for part in nx.strongly_connected_components(graph) if len(part) > 1}


def test_components_are_the_strongly_connected_parts(cases: list[Case]) -> None:
    sizes = set()
    for case in cases:
        found = components(case.relation(), case.line)
        assert {frozenset(part.tolist()) for part in found} == knots(case.graph())
        assert [len(part) for part in found] == sorted(len(part) for part in found)
        sizes |= {len(part) for part in found}
    assert {2, 3, 4} <= sizes


def test_a_cycle_through_a_message_is_a_shortest_one(cases: list[Case]) -> None:
    lengths = set()
    for case in cases[: CASES // 3]:
        case.after = [entry for entry in case.after if entry[:2] not in _on(case)]  # as in a gap
        relation, graph = case.relation(), case.graph()
        for source in range(case.messages):
            cycle = cycle_through(relation, case.line, source)
            back = [
                nx.shortest_path_length(graph, follower, source) + 1
                for follower in graph.successors(source)
                if nx.has_path(graph, follower, source)
            ]
            assert len(cycle) == min(back, default=0)
            assert all(graph.has_edge(one, other) for one, other in pairwise([*cycle, *cycle[:1]]))
            lengths.add(len(cycle))
    assert {0, 2, 3} <= lengths


def settled(case: Case, steps: Steps) -> Steps:
    return _raised_by(case.relation(), case.line, steps)


def divisions(case: Case) -> Iterator[tuple[Line, Steps, Steps]]:
    """The longest chain divided as finely as it can be."""
    divided = _divided(case.line, no_steps(case.line), _whole_chains(case.line), 2, set())
    if divided is not None:
        yield case.line, settled(case, divided[0]), divided[1]


def test_levels_never_fall_along_an_edge_and_no_cycle_leaves_its_level(cases: list[Case]) -> None:
    several = 0
    for case in cases:
        for _, steps, _ in divisions(case):
            levels = levels_of(case.relation(), steps)
            graph = case.graph()
            assert all(levels[one] <= levels[other] for one, other in graph.edges)
            assert all(len({int(levels[message]) for message in knot}) == 1 for knot in knots(graph))
            several += len(set(levels.tolist())) > 1
    assert several > CASES // 3


def test_a_step_that_moved_names_a_message_on_a_cycle(cases: list[Case]) -> None:
    """What hangs in the middle of a chain can move a step as well, so only cases without that are proofs."""
    moved = 0
    for case in cases:
        case.after = [(m, chain, 10**6) for m, chain, _ in case.after if (m, chain) not in _on(case)]
        for line, steps, new in divisions(case):
            for place in _moved(line, steps, new).values():
                moved += 1
                (message,) = {
                    m for m, chain, seq in case.places if int(case.of.place(*_arrays(chain, seq))[0]) == place
                }
                assert any(message in knot for knot in knots(case.graph()))
    assert moved > CASES // 50


def _on(case: Case) -> set[tuple[int, int]]:
    return {(message, chain) for message, chain, _ in case.places}


def _arrays(chain: int, seq: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([chain]), np.array([seq])


def test_borders_divide_multicasts_evenly() -> None:
    counts = np.array([0, 1000, 10, 0, 500])
    widths = counts + 2
    base = np.cumsum(widths) - widths
    chains = Chains(np.ones(5, dtype=np.int64), counts, base, base + widths - 1, counts)
    borders = _borders(chains, 4)
    places = np.concatenate([base[process] + 1 + np.arange(counts[process]) for process in range(5)])
    shares = np.bincount(np.searchsorted(borders, places, side="right"), minlength=4)
    assert shares.sum() == counts.sum() and shares.max() < 1.1 * counts.sum() / 4
