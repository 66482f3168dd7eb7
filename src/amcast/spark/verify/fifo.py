"""FIFO on Spark: the messages of one sender have increasing places at each process that they are addressed to.

A message that a process never delivers has its place at the tail, so once one is missing all later ones must be. It is
enough to compare neighbours. Messages are put in the order of their multicasts over the whole cluster. A sender whose
messages are in several partitions is put together from the first and last of each.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from amcast.spark.verify.arrays import Bools, Ints, Lists, ends_of, ints, one_array, places_in_stretches, stretches
from amcast.spark.verify.blocks import Batches, spread, whole
from amcast.spark.verify.participants import NONE, Chains

_FOUND: Final = (
    "part int, run int, sender int, process int, first string, first_place long, last string, last_place long, "
    "broken boolean"
)


def overtaken(
    messages: DataFrame, senders: Chains, chains: Chains, partitions: int, guesses: bool = False
) -> dict[int, list[str]]:
    """Return for each run two messages of one sender, if a process delivered the later without the earlier one.

    `senders` are the chains of multicasts. `chains` are those of deliveries or, if asked for, of `guesses`.
    """
    borders = _borders(senders, partitions)

    def bucket_of(piece: pa.RecordBatch) -> Ints:
        sender = ints(piece.column("sender"))
        place = senders.place(sender, ints(piece.column("sent")))
        return np.where(sender == NONE, 0, np.searchsorted(borders, place, side="right"))

    def compare(batches: Batches) -> Batches:
        table = whole(batches)
        if table is not None:
            context = TaskContext.get()
            assert context is not None
            yield _compared(table, senders, chains, guesses, context.partitionId())

    lines = spread(messages, partitions, bucket_of).mapInArrow(compare, _FOUND).toArrow().to_pylist()
    found = _between_partitions([line for line in lines if not line["broken"]])
    for line in sorted((line for line in lines if line["broken"]), key=lambda line: (line["first"], line["last"])):
        found.setdefault(line["run"], [line["first"], line["last"]])
    return found


def _borders(senders: Chains, partitions: int) -> Ints:
    """Return places that divide all multicasts into about equal parts, if each sender's `seq` are evenly spread."""
    total = np.cumsum(senders.counts)
    wanted = np.arange(1, partitions) * (int(total[-1]) if len(total) else 0) // partitions
    sender = np.minimum(np.searchsorted(total, wanted, side="right"), len(total) - 1)
    counts = np.maximum(senders.counts[sender], 1)
    into = (wanted - (total[sender] - senders.counts[sender])) / counts
    width = (senders.tail[sender] - senders.base[sender]).astype(np.float64)
    return np.asarray(senders.base[sender] + (into * width).astype(np.int64))


def _between_partitions(lines: list[dict[str, Any]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    before: dict[tuple[int, int], dict[str, Any]] = {}
    for line in sorted(lines, key=lambda line: int(line["part"])):
        key = (line["sender"], line["process"])
        if key in before and before[key]["last_place"] > line["first_place"]:
            found.setdefault(line["run"], [before[key]["last"], line["first"]])
        before[key] = line
    return found


def _compared(table: pa.Table, senders: Chains, chains: Chains, guesses: bool, part: int) -> pa.RecordBatch:
    sender, sent = ints(table["sender"]), ints(table["sent"])
    owner, place = _due(table, guesses)
    known = sender[owner] != NONE
    owner, place = owner[known], place[known]
    process, turn = chains.process_at(place), senders.place(sender[owner], sent[owner])
    order = np.lexsort((turn, process, sender[owner]))
    owner, place, process = owner[order], place[order], process[order]
    starts = stretches(process, sender[owner])
    ends = ends_of(starts, len(owner)) - 1
    same = np.ones(len(owner), dtype=np.bool_)
    same[starts] = False
    broken = 1 + np.flatnonzero(same[1:] & (place[:-1] > place[1:]))
    run = ints(table["run"])
    broken = broken[np.unique(run[owner[broken]], return_index=True)[1]]
    at_border = _at_border(sender[owner[starts]])
    first, last = np.concatenate([broken - 1, starts[at_border]]), np.concatenate([broken, ends[at_border]])
    names = one_array(table["message"])
    columns = [
        pa.array(np.full(len(first), part, dtype=np.int32)),
        pa.array(run[owner[first]].astype(np.int32)),
        pa.array(sender[owner[first]].astype(np.int32)),
        pa.array(process[first].astype(np.int32)),
        names.take(pa.array(owner[first])),
        pa.array(place[first]),
        names.take(pa.array(owner[last])),
        pa.array(place[last]),
        pa.array(np.arange(len(first)) < len(broken)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[name.split()[0] for name in _FOUND.split(", ")])


def _due(table: pa.Table, guesses: bool) -> tuple[Ints, Ints]:
    """Return the places of messages at the processes that they are addressed to, tails included."""
    names = ("guesses", "guess_strays", "guess_tails") if guesses else ("places", "strays", "tails")
    places, strays, tails = (one_array(table[name]) for name in names)
    here, waiting = Lists.of(places), Lists.of(tails)
    lengths = here.lengths()
    addressed = places_in_stretches(lengths) < (lengths - ints(strays))[here.owner]
    return (
        np.concatenate([here.owner[addressed], waiting.owner]),
        np.concatenate([here.values[addressed], waiting.values]),
    )


def _at_border(senders: Ints) -> Bools:
    """Return who may be in another partition as well: only its first and its last sender."""
    if not len(senders):
        return np.zeros(0, dtype=np.bool_)
    return np.asarray((senders == senders[0]) | (senders == senders[-1]))
