"""Judges each run in one task by the in-memory engine.

The rows of a run are brought together (one shuffle) and fed to the engine batch by batch, so that a task needs the
memory of one run. What is wrong with a run comes back as text: Spark would retry and wrap an exception.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amcast.checks import Verdict, check
from amcast.checks.evidence import Evidence
from amcast.checks.verdict import Status
from amcast.core.trace import COLUMNS, Event
from amcast.errors import TraceError
from amcast.spark.verify.blocks import Batches
from amcast.spark.verify.examples import event_of

ROWS_PER_TASK: Final = 500_000
_ANSWER: Final = "run string, verdicts string, error string"


def judge_in_tasks(rows: DataFrame, properties: Sequence[str] | None, partitions: int, path: str) -> list[Verdict]:
    """Judge all runs in these rows, in the order of their names. Raises TraceError."""
    if properties is not None and "genuine" not in properties:
        rows = _without_traffic(rows)
    together = rows.select(*COLUMNS).repartition(partitions, "run").sortWithinPartitions("run")
    answers = together.mapInArrow(partial(_judge, properties), _ANSWER).toArrow().to_pylist()
    verdicts: list[Verdict] = []
    for answer in sorted(answers, key=lambda answer: str(answer["run"])):
        if answer["error"] is not None:
            raise TraceError(f"{path}: {answer['error']}")
        verdicts += [_verdict(found) for found in msgspec.json.decode(answer["verdicts"])]
    return verdicts


def _without_traffic(rows: DataFrame) -> DataFrame:
    """Keep one send or receive row per process: only genuineness needs more than who is in which group."""
    is_traffic = F.col("kind").isin("send", "receive")
    others = rows.where(~is_traffic).select(*COLUMNS)
    who = rows.where(is_traffic).select("run", "process", "group").distinct()
    seen = {"kind": F.lit("receive"), "seq": F.lit(0).cast("long")}
    columns = [
        F.col(name)
        if name in ("run", "process", "group")
        else seen.get(name, F.lit(None)).cast(others.schema[name].dataType).alias(name)
        for name in COLUMNS
    ]
    return others.unionByName(who.select(*columns))


def _judge(properties: Sequence[str] | None, batches: Batches) -> Batches:
    for run, events in groupby(_events(batches), key=lambda event: event.run):
        verdicts, error = None, None
        try:
            verdicts = msgspec.json.encode([found.as_dict() for found in check(events, properties)]).decode()
        except TraceError as refused:
            error = str(refused)
        columns = [pa.array([value], pa.string()) for value in (run, verdicts, error)]
        yield pa.RecordBatch.from_arrays(columns, names=["run", "verdicts", "error"])


def _events(batches: Batches) -> Iterator[Event]:
    for batch in batches:
        columns = [_values(name, batch.column(name)) for name in COLUMNS]
        yield from map(Event, *columns)


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[Any] = column.to_pylist()
    if name in ("dest", "about"):
        return [None if value is None else tuple(value) for value in values]
    if name == "ts":
        return [
            None if value is None or value["time"] is None else (value["time"], value["tie"] or "") for value in values
        ]
    return values


def _verdict(found: dict[str, Any]) -> Verdict:
    nothing = dict.fromkeys(COLUMNS)
    rows = tuple(event_of({**nothing, **row}) for row in found["counterexample"])
    status: Status = found["status"]
    evidence = Evidence(**found["evidence"])
    return Verdict(found["property"], found["run"], status, found["reason"], rows, found["figure"], evidence)
