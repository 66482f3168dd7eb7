"""Looks for cycles in a relation over messages: in each block by itself, or from a message that is known to be on one.

What comes back for a run is the names of a few messages, from which the counter-example is made.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from amcast.verify.arrays import Ints, Lists, ints, is_in
from amcast.verify.cuts import Cuts, levels_of
from amcast.verify.graph import (
    Line,
    Relation,
    components,
    cycle_through,
    reached_from,
    relation_of,
    shortest_cycles,
)  # fmt: skip
from amcast.verify.pieces import Batches, Pieces, whole

SOURCES_PER_COMPONENT: Final = 8
COMPONENTS_PER_RUN: Final = 3

# What to make of a strongly connected part: the messages that break the property, or nothing.
JudgePart = Callable[[Relation, pa.Table, Line], Sequence[int]]


def find_in_blocks(
    messages: Pieces, line: Line, cuts: Cuts, partitions: int, judge: JudgePart, all_components: bool
) -> dict[int, list[str]]:
    """Return the names of as few messages as possible for each run in which `judge` finds something.

    With `all_components`, every strongly connected part is looked at until one is found.
    """

    def bucket_of(piece: pa.RecordBatch) -> Ints:
        return (ints(piece.column("run")) + levels_of(relation_of(piece, line), cuts.steps)) % partitions

    def search(batches: Batches) -> Batches:
        table = whole(batches)
        best = {} if table is None else _found_in(table, line, judge, all_components)
        if best:
            yield pa.record_batch({"run": pa.array(list(best), pa.int32()), "messages": list(best.values())})

    found = messages.spread(partitions, bucket_of).each(search).collect()
    best: dict[int, list[str]] = {}
    for row in sorted(
        [] if found is None else found.to_pylist(), key=lambda row: (len(row["messages"]), row["messages"])
    ):
        best.setdefault(row["run"], row["messages"])
    return best


def _found_in(table: pa.Table, line: Line, judge: JudgePart, all_components: bool) -> dict[int, list[str]]:
    relation = relation_of(table, line)
    best: dict[int, list[str]] = {}
    tried: dict[int, int] = {}
    for part in components(relation, line):
        run = int(relation.run[part[0]])
        if run in best and (all_components or len(best[run]) == 2 or tried[run] >= COMPONENTS_PER_RUN):
            continue
        tried[run] = tried.get(run, 0) + 1
        chosen = np.zeros(len(relation), dtype=np.bool_)
        chosen[part] = True
        few = relation.only(chosen)
        guilty = judge(few, table.filter(pa.array(chosen)), line)
        names = few.names.take(pa.array(list(guilty), pa.int64())).to_pylist()
        if names and (run not in best or len(names) < len(best[run])):
            best[run] = names
    return best


def shortest_cycle(part: Relation, rows: pa.Table, line: Line) -> Sequence[int]:
    """Return the shortest of the cycles through some of the messages of a strongly connected part."""
    best: list[int] = []
    lengths = part.places.lengths()
    for source in np.argsort(-lengths, kind="stable")[:SOURCES_PER_COMPONENT]:
        cycle = cycle_through(part, line, int(source))
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
        if len(best) == 2:
            break
    assert best, "a strongly connected part has no cycle"
    return best


def cycles_through(messages: Pieces, line: Line, places: Ints) -> dict[int, list[str]]:
    """Return for each run a shortest cycle through the message at its place, from the whole table at once.

    Each level of the search reads the table of messages once.
    """
    there = messages.each(partial(_at, places)).collect()
    assert there is not None, "no message is at the place of one that is on a cycle"
    sources = relation_of(there, line)

    def reach(lowest: Ints) -> Iterator[tuple[int, int, str, int]]:
        found = messages.each(partial(_reached, line, lowest)).collect()
        for row in () if found is None else found.to_pylist():
            yield row["chain"], row["place"], row["message"], row["via"]

    found = shortest_cycles(sources, line, reach)
    assert len(found) == len(sources), "a message that is on a cycle is not"
    names = sources.names.to_pylist()
    return {int(sources.run[source]): [names[source], *others] for source, others in found.items()}


def _at(places: Ints, batches: Batches) -> Batches:
    for piece in batches:
        lists = Lists.of(piece.column("places"))
        here = np.unique(lists.owner[is_in(lists.values, places)])
        if len(here):
            yield piece.take(pa.array(here))


def _reached(line: Line, lowest: Ints, batches: Batches) -> Batches:
    for piece in batches:
        relation = relation_of(piece, line)
        found = reached_from(relation, line, lowest)
        if len(found.chain):
            yield pa.record_batch({**vars(found), "message": relation.names.take(pa.array(found.message))})
