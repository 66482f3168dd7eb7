"""Overlay networks of the AllConcur family: trees without redundancy, and digraphs that survive failures.

Vertices are 0..n-1; a digraph is a list of tuples of successors. G_S(n, d) is d-regular with vertex connectivity d and
a diameter near the least possible.

Papers: Poke, Glass, "A Dual Digraph Approach for Leaderless Atomic Broadcast"; Soneoka, Imase, Manabe, "Design of a
d-connected digraph with a minimum number of edges and a quasiminimal diameter II" (G_S).
"""

from math import exp
from typing import Final

Digraph = list[tuple[int, ...]]

MTTF_HOURS: Final = 18_304  # of a server: about two years
PERIOD_HOURS: Final = 24
NINES: Final = 6


def binomial_children(v: int, n: int) -> tuple[int, ...]:
    """Return whom v passes a message of 0 on to in the binomial tree, the largest subtree first."""
    children: list[int] = []
    power = 1
    while v + power < n:
        if power > v:
            children.append(v + power)
        power *= 2
    return tuple(children)


def complete(n: int) -> Digraph:
    return [tuple([q for q in range(n) if q != p]) for p in range(n)]


def transpose(graph: Digraph) -> Digraph:
    predecessors: list[list[int]] = [[] for _ in graph]
    for p, successors in enumerate(graph):
        for q in successors:
            predecessors[q].append(p)
    return [tuple(row) for row in predecessors]


def least_degree(n: int, mttf_hours: int = MTTF_HOURS, period_hours: int = PERIOD_HOURS, nines: int = NINES) -> int:
    """Return the connectivity that n servers need: with this reliability fewer of them fail within the period."""
    p = 1 - exp(-period_hours / mttf_hours)
    term = (1 - p) ** n
    within = term  # the probability of at most f failures
    f = 0
    while f < n - 1 and 1 - within >= 10.0**-nines:
        f += 1
        term *= (n - f + 1) / f * p / (1 - p)
        within += term
    return f + 1


def reliable_digraph(n: int, d: int = 0) -> Digraph:
    """Return G_S(n, d), with d as the reliability target asks; the complete digraph if n is too small for one."""
    d = max(3, d or least_degree(n))
    return g_s(n, d) if n >= 2 * d else complete(n)


def g_s(n: int, d: int) -> Digraph:
    assert d >= 3 and n >= 2 * d, f"G_S({n}, {d}): expected d >= 3 and n >= 2d"
    m, t = divmod(n, d)
    heads = without_loops([j % m for j in range(m * d)], d)
    line = [[heads[j] * d + i for i in range(d)] for j in range(m * d)]  # arcs of the base are vertices now
    if t > 0:
        entering = [j for j in range(m * d) if heads[j] == 0]
        line += [[m * d + k for k in range(t) if k != i] for i in range(t)]  # a clique of new vertices
        for i in range(t):
            for c in range(d - t + 1):
                x = entering[i + c]
                line[x].append(m * d + i)
                line[m * d + i].append(i + c)
                line[x].remove(i + (i + c) % (d - t + 1))
    return [tuple(sorted(row)) for row in line]


def without_loops(heads: list[int], d: int) -> list[int]:
    """Redirect the k-th loop of each vertex to the next vertex that has a k-th loop."""
    classes: list[list[int]] = []
    seen: dict[int, int] = {}
    for j, head in enumerate(heads):
        if head == j // d:
            k = seen.get(head, 0)
            seen[head] = k + 1
            if k == len(classes):
                classes.append([])
            classes[k].append(j)
    redirected = list(heads)
    for loops in classes:
        for i, j in enumerate(loops):
            redirected[j] = loops[(i + 1) % len(loops)] // d
    return redirected


def diameter(graph: Digraph) -> int:
    """Return the longest of the shortest paths, -1 if some vertex does not reach another."""
    successors = [mask(row) for row in graph]
    everybody = (1 << len(graph)) - 1
    longest = 0
    for start in range(len(graph)):
        reached = frontier = 1 << start
        steps = 0
        while reached != everybody:
            grown = reached
            while frontier:
                low = frontier & -frontier
                grown |= successors[low.bit_length() - 1]
                frontier ^= low
            frontier = grown & ~reached
            if not frontier:
                return -1
            reached = grown
            steps += 1
        longest = max(longest, steps)
    return longest


def mask(vertices: tuple[int, ...]) -> int:
    bits = 0
    for v in vertices:
        bits |= 1 << v
    return bits


def is_connected(graph: Digraph, k: int) -> bool:
    """Return True if the digraph stays strongly connected when any k - 1 vertices are removed.

    Even's test: k disjoint paths between the first k vertices, and between every later vertex and those before it.
    """
    backwards = transpose(graph)
    for j in range(1, len(graph)):
        if j < k:
            for i in range(j):
                if disjoint_paths(graph, (i,), j, k) < k or disjoint_paths(backwards, (i,), j, k) < k:
                    return False
        else:
            before = tuple(range(j))
            if disjoint_paths(graph, before, j, k) < k or disjoint_paths(backwards, before, j, k) < k:
                return False
    return len(graph) > k


def disjoint_paths(graph: Digraph, sources: tuple[int, ...], sink: int, most: int) -> int:
    """Return how many paths, up to `most`, lead from these sources to the sink and share no other vertex.

    A maximum flow through vertices split in two, 2v the entry and 2v + 1 the exit. One source may start many paths,
    of several each starts one.
    """
    start = 2 * len(graph)
    residual: list[dict[int, bool]] = []
    for v, successors in enumerate(graph):
        residual.append({2 * v + 1: True})
        residual.append({2 * w: True for w in successors})
    residual.append({2 * v: True for v in sources})
    if len(sources) == 1:
        start = 2 * sources[0] + 1
    count = 0
    while count < most and augment(residual, start, 2 * sink):
        count += 1
    return count


def augment(residual: list[dict[int, bool]], start: int, goal: int) -> bool:
    """Find one more path and reverse its arcs."""
    came = [-1] * len(residual)
    came[start] = start
    queue = [start]
    at = 0
    while at < len(queue) and came[goal] < 0:
        node = queue[at]
        at += 1
        for after in residual[node]:
            if came[after] < 0:
                came[after] = node
                queue.append(after)
    if came[goal] < 0:
        return False
    node = goal
    while node != start:
        before = came[node]
        del residual[before][node]
        residual[node][before] = True
        node = before
    return True


def bears(n: int) -> int:
    """Return how many of n servers may crash: one less than the degree of their reliable digraph."""
    return max(0, len(reliable_digraph(n)[0]) - 1)


def bears_uniformly(n: int) -> int:
    """Return how many of n servers may crash where a majority must agree."""
    return min(bears(n), (n - 1) // 2)
