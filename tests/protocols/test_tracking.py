"""Tracking by its definition gives what Algorithm 6 of the AllConcur+ paper gives, notification by notification."""

import random

import pytest

from amcast.protocols.allconcur.digraphs import Digraph, complete, g_s
from amcast.protocols.allconcur.overlay import tracking


class Algorithm6:
    """UpdateTrackingDigraph, line by line, for one message."""

    def __init__(self, graph: Digraph, origin: int) -> None:
        self.graph = graph
        self.origin = origin
        self.vertices = {origin}
        self.edges: set[tuple[int, int]] = set()
        self.known: set[tuple[int, int]] = set()

    def update(self, j: int, k: int) -> None:
        known = self.known
        known.add((j, k))  # l.91
        if j not in self.vertices:  # l.92
            return
        failed = {target for target, _ in known}
        after = {q for p, q in self.edges if p == j}
        if not after:  # l.93
            queue = [(j, p) for p in self.graph[j] if p != k]  # l.94
            while queue:  # l.95
                before, p = queue.pop(0)
                if p not in self.vertices:  # l.97
                    self.vertices.add(p)
                    if p in failed:  # l.99
                        queue += [(p, q) for q in self.graph[p] if (p, q) not in known]
                self.edges.add((before, p))  # l.100
        elif k in after:  # l.101
            self.edges.remove((j, k))
            reached, todo = {self.origin}, [self.origin]
            while todo:
                p = todo.pop()
                new = [q for a, q in self.edges if a == p and q not in reached]
                reached.update(new)
                todo += new
            self.vertices &= reached  # l.103
            self.edges = {(p, q) for p, q in self.edges if p in reached and q in reached}
        if self.vertices <= failed:  # l.104
            self.vertices = set()  # l.105
            self.edges = set()


@pytest.mark.parametrize("graph", [complete(4), complete(6), g_s(6, 3), g_s(8, 3), g_s(9, 3), g_s(11, 4)], ids=len)
def test_definition_and_algorithm_agree(graph: Digraph) -> None:
    chance = random.Random(len(graph))
    masks = [sum(1 << q for q in row) for row in graph]
    empty = 0
    for _ in range(150):
        origin = chance.randrange(len(graph))
        reference = Algorithm6(graph, origin)
        failed = chance.sample(range(len(graph)), min(len(graph) - 1, 1 + chance.randrange(4)))
        pairs = [(j, k) for j in failed for k in graph[j]]
        chance.shuffle(pairs)
        notices: dict[int, int] = {}
        for j, k in pairs:
            reference.update(j, k)
            notices[j] = notices.get(j, 0) | 1 << k
            found = tracking(origin, masks, notices)
            assert {p for p in range(len(graph)) if found >> p & 1} == reference.vertices
            if not reference.vertices:
                empty += 1
                break
    assert empty > 10
