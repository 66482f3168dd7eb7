"""Checks that no two events of a process have one `seq`, and whether the timestamps of its deliveries increase.

Files nearly always hold the rows of a process in the order of `seq`. So the summaries of batches are put side by side,
and nothing is sorted or shuffled. Only processes whose summaries overlap are looked at again, row by row.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amcast.errors import TraceError
from amcast.spark.verify.arrays import Bools, Ints, ends_of, ints, one_array, stretches
from amcast.spark.verify.gather import NEVER
from amcast.spark.verify.participants import Participants

SEQUENCED: Final = ("multicast", "deliver", "optdeliver", "crash", "restart")
MOST_ROWS_TO_SEND_AROUND: Final = 3_000_000


@dataclass(frozen=True)
class Timestamps:
    """Whether the `ts` of each process strictly increase from delivery to delivery, and the time of the last."""

    increase: Bools
    last_time: Ints
    ties: bool  # whether some times are equal, so that the ties had to be compared


def judge_histories(facts: pa.Table, rows: DataFrame, participants: Participants, path: str) -> Timestamps:
    """Judge the timestamps of each process. Raises TraceError if two of its events are in one place."""
    segments = facts.filter(pc.is_in(facts["kind"], pa.array(SEQUENCED))).combine_chunks()
    process = _process_numbers(segments, participants)
    kind = ints(pc.index_in(segments["kind"], pa.array(SEQUENCED)))
    first, last = ints(segments["first"]), ints(segments["last"])
    order = np.lexsort((last, first, kind, process))
    same = (process[order[1:]] == process[order[:-1]]) & (kind[order[1:]] == kind[order[:-1]])
    overlap = same & (last[order[:-1]] >= first[order[1:]])
    unordered = np.zeros(len(participants.processes), dtype=np.bool_)
    unordered[process[order[1:][overlap]]] = True
    unordered[process[~one_array(segments["increasing"]).to_numpy(zero_copy_only=False)]] = True
    _look_again(
        rows, participants, path, unordered, _mixed(process, first, last, len(participants.processes)) & ~unordered
    )
    return _timestamps(segments.take(pa.array(order)), process[order], kind[order], unordered)


def _process_numbers(segments: pa.Table, participants: Participants) -> Ints:
    numbers = participants.processes.numbers
    pairs = zip(segments["run"].to_pylist(), segments["process"].to_pylist(), strict=True)
    return np.array([numbers[pair] for pair in pairs], dtype=np.int64)


def _mixed(process: Ints, first: Ints, last: Ints, count: int) -> Bools:
    """Return the processes whose summaries overlap, whatever the kinds."""
    order = np.lexsort((last, first, process))
    mixed = np.zeros(count, dtype=np.bool_)
    process, first, last = process[order], first[order], last[order]
    starts = stretches(process)
    for start, end in zip(starts, ends_of(starts, len(process)), strict=True):
        highest = np.maximum.accumulate(last[start:end])
        mixed[process[start]] = bool((highest[:-1] >= first[start + 1 : end]).any())
    return mixed


def _timestamps(segments: pa.Table, process: Ints, kind: Ints, unordered: Bools) -> Timestamps:
    """Judge the timestamps. `segments` are ordered by process, kind and first `seq`."""
    increase = ~unordered
    last_time = np.full(len(unordered), NEVER, dtype=np.int64)
    chosen = np.flatnonzero(kind == SEQUENCED.index("deliver"))
    segments, process = segments.take(pa.array(chosen)), process[chosen]
    increase[process[~one_array(segments["ts_increasing"]).to_numpy(zero_copy_only=False)]] = False
    ties = bool(pc.any(segments["ties"]).as_py())
    first, last = (ints(segments[name].fill_null(NEVER)) for name in ("first_time", "last_time"))
    same = process[1:] == process[:-1]
    ties |= bool((same & (last[:-1] == first[1:])).any())
    tie_rises = pc.less(one_array(segments["last_tie"])[:-1], one_array(segments["first_tie"])[1:]).fill_null(False)
    rises = (last[:-1] < first[1:]) | ((last[:-1] == first[1:]) & tie_rises.to_numpy(zero_copy_only=False))
    increase[process[1:][same & ~rises]] = False
    np.maximum.at(last_time, process, last)
    return Timestamps(increase, last_time, ties)


def _look_again(rows: DataFrame, participants: Participants, path: str, unordered: Bools, mixed: Bools) -> None:
    others = sum(int(participants.chains[kind].counts[mixed].sum()) for kind in ("multicast", "optdeliver"))
    if others > MOST_ROWS_TO_SEND_AROUND:
        unordered, mixed = unordered | mixed, np.zeros(len(mixed), dtype=np.bool_)
    if unordered.any():
        events = _first_events(rows, participants, unordered)
        _refuse(events.groupBy("run", "process", "seq").count().where("count > 1").head(1), path)
    if mixed.any():
        events = _first_events(rows, participants, mixed)
        few = events.where("kind != 'deliver'").select("run", "process", "seq")
        _refuse(few.groupBy("run", "process", "seq").count().where("count > 1").head(1), path)
        delivered = events.where("kind = 'deliver'").select("run", "process", "seq")
        _refuse(delivered.join(F.broadcast(few), ["run", "process", "seq"]).head(1), path)


def _first_events(rows: DataFrame, participants: Participants, chosen: Bools) -> DataFrame:
    """Return what counts as an event of these processes. Of a repeated multicast only the first counts."""
    rows = rows.where(F.col("kind").isin(*SEQUENCED)).select("run", "process", "kind", "seq", "message")
    if not chosen.all():
        names = [
            (participants.runs[participants.processes.run[p]], participants.processes.names[int(p)])
            for p in np.flatnonzero(chosen)
        ]
        table = pa.table({"run": [run for run, _ in names], "process": [name for _, name in names]})
        rows = rows.join(F.broadcast(rows.sparkSession.createDataFrame(table)), ["run", "process"])
    multicasts = rows.where("kind = 'multicast'").groupBy("run", "process", "message").agg(F.min("seq").alias("seq"))
    others = rows.where("kind != 'multicast'").select("run", "process", "kind", "seq")
    return others.unionByName(multicasts.select("run", "process", F.lit("multicast").alias("kind"), "seq"))


def _refuse(found: list[Any], path: str) -> None:
    for row in found:
        raise TraceError(
            f"{path}: run {row.run!r}: process {row.process!r} has two events with seq {row.seq}; "
            f"expected seq to increase strictly at each process; number its events again"
        )
