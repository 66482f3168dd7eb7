"""The overlay digraphs: examples, connectivity, diameters, and the choice of the degree (AllConcur+, Table II)."""

from itertools import combinations, permutations

import pytest

from amcast.protocols.allconcur.digraphs import (
    Digraph,
    binomial_children,
    complete,
    diameter,
    g_s,
    is_connected,
    least_degree,
    reliable_digraph,
    transpose,
)

# n: degree and connectivity, diameter
TABLE_II = {8: (3, 2), 18: (4, 3), 30: (4, 3), 32: (4, 3), 72: (5, 4), 75: (5, 3), 128: (5, 4), 140: (6, 4),
            225: (6, 4), 242: (7, 4), 450: (8, 4), 455: (8, 4)}  # fmt: skip
FURTHER = {6: (3, 2), 11: (3, 3), 16: (4, 2), 22: (4, 3), 45: (4, 4), 64: (5, 4), 90: (5, 3), 256: (7, 4)}


def reaches(graph: Digraph, start: int, end: int, removed: tuple[int, ...]) -> bool:
    seen = {start, *removed}
    todo = [start]
    while todo:
        for q in graph[todo.pop()]:
            if q == end:
                return True
            if q not in seen:
                seen.add(q)
                todo.append(q)
    return False


def connectivity(graph: Digraph) -> int:
    """By brute force: the least number of vertices whose removal leaves some pair without a path."""
    n = len(graph)
    for k in range(n - 1):
        for removed in combinations(range(n), k):
            left = [v for v in range(n) if v not in removed]
            if any(not reaches(graph, a, b, removed) for a, b in permutations(left, 2)):
                return k
    return n - 1


@pytest.mark.parametrize(("n", "row"), {**TABLE_II, **FURTHER}.items())
def test_degree_and_diameter(n: int, row: tuple[int, int]) -> None:
    d, longest = row
    assert least_degree(n) == d or n < 8
    graph = reliable_digraph(n, d)
    assert [len(set(row)) for row in graph] == [d] * n == [len(row) for row in transpose(graph)]
    assert all(p not in row for p, row in enumerate(graph))
    assert diameter(graph) == longest


@pytest.mark.parametrize("n", [n for n in (*TABLE_II, *FURTHER) if n <= 75])
def test_connectivity(n: int) -> None:
    """The large ones of Table II are measured by `amcast claims`."""
    d = {**TABLE_II, **FURTHER}[n][0]
    assert is_connected(g_s(n, d), d)
    assert not is_connected(g_s(n, d), d + 1)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (7, 3), (8, 3), (9, 3), (10, 3), (8, 4), (11, 4)])
def test_connectivity_by_brute_force(n: int, d: int) -> None:
    assert connectivity(g_s(n, d)) == d


def test_connectivity_test_can_fail() -> None:
    ring: Digraph = [((p + 1) % 6,) for p in range(6)]
    assert is_connected(ring, 1) and not is_connected(ring, 2) and connectivity(ring) == 1
    weak = [row if p != 4 else row[:2] for p, row in enumerate(g_s(8, 3))]
    assert not is_connected(weak, 3) and is_connected(weak, 2)
    one_way: Digraph = [(1,), (2,), (0, 3), (4,), (5,), (3,)]
    assert diameter(one_way) == -1 and not is_connected(one_way, 1)


def test_examples() -> None:
    assert g_s(8, 3) == [(3, 4, 5), (3, 4, 5), (3, 4, 5), (1, 2, 6), (0, 6, 7), (0, 2, 7), (0, 1, 7), (1, 2, 6)]
    assert g_s(9, 3) == [(3, 4, 5), (3, 4, 5), (6, 7, 8), (0, 1, 2), (6, 7, 8), (6, 7, 8), (0, 1, 2), (3, 4, 5),
                         (0, 1, 2)]  # fmt: skip
    assert g_s(7, 3) == [(3, 4, 5), (3, 4, 5), (3, 4, 5), (1, 2, 6), (0, 2, 6), (0, 1, 6), (0, 1, 2)]
    assert reliable_digraph(5) == complete(5) and diameter(complete(5)) == 1


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 455])
def test_trees_reach_everybody_once(n: int) -> None:
    level, seen, steps = [0], [0], 0
    while level := [c for v in level for c in binomial_children(v, n)]:
        seen += level
        steps += 1
    assert sorted(seen) == list(range(n)) and steps == max(v.bit_count() for v in range(n))
    assert [binomial_children(v, 8) for v in range(8)] == [(1, 2, 4), (3, 5), (6,), (7,), (), (), (), ()]
