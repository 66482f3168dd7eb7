"""A streaming query that checks deliveries while they come: order, integrity, validity, gaps, and how fast they spread.

One stateful task merges the histories of all processes of a run (`amcast.check.online`); its state, which is bounded by
how far one process is behind another, is in Spark's state store (RocksDB), so a query that is started again goes on.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from amcast.check.online import Row, Watcher
from amcast.core.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "1",
}
OUTPUT: Final = (
    "run string, kind string, name string, deliveries bigint, behind bigint, p50 double, p99 double, "
    "newest bigint, text string, rows string"
)
STATE: Final = "data binary, sent binary"
TRACE: Final = (
    "run string, kind string, process string, group string, seq bigint, time bigint, message string, sender string, "
    "dest array<string>"
)
COLUMNS: Final = ["run", "kind", "process", "group", "seq", "time", "message", "dest"]
MOST_SENT: Final = 100_000  # multicasts that are remembered
Sent = dict[str, tuple[int, tuple[str, ...]]]  # message -> when it was multicast, to which groups


@dataclass(frozen=True)
class Report:
    """What one micro-batch said."""

    batch: int
    rows: list[Any]  # of OUTPUT


def from_cluster(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    from amcast.pipeline.stream.replicas import AmcastReplicas

    spark.dataSource.register(AmcastReplicas)
    return spark.readStream.format("amcast_replicas").options(**options).load()


def from_files(spark: "SparkSession", folder: Path) -> "DataFrame":
    """Traces that keep arriving in a folder: .jsonl files, or Parquet as `kind=…/*.parquet`."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder in which traces arrive")
    reader = spark.readStream.schema(TRACE).option("maxFilesPerTrigger", 1000)
    if any(folder.glob("kind=*")):
        found = reader.option("recursiveFileLookup", "false").parquet(str(folder))
    else:
        found = reader.option("pathGlobFilter", "*.jsonl").json(str(folder))
    return found.select(*COLUMNS)


def start(
    deliveries: "DataFrame",
    checkpoint: Path,
    seconds: float,
    gapless: bool,
    once: bool,
    report: Callable[[Report], None],
) -> "StreamingQuery":
    """Judge these rows; `report` gets what each micro-batch finds."""
    check = Judge(gapless)
    judged = deliveries.groupBy("run").applyInPandasWithState(check, OUTPUT, STATE, "append", "NoTimeout")

    def tell(frame: "DataFrame", batch: int) -> None:
        report(Report(batch, frame.collect()))

    writer = judged.writeStream.foreachBatch(tell).option("checkpointLocation", str(checkpoint)).outputMode("append")
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
    return trigger.start()


class Judge:
    """The stateful function: rows of one run in, what is to be said about them out."""

    def __init__(self, gapless: bool) -> None:
        self._gapless = gapless

    def __call__(self, key: tuple[str], frames: "Iterator[pd.DataFrame]", state: Any) -> "Iterator[pd.DataFrame]":
        import pandas as pd

        watcher = Watcher(gapless=self._gapless)
        sent: Sent = {}
        if state.exists:
            data, times = state.get
            watcher.load(bytes(data))
            sent = msgspec.msgpack.decode(bytes(times), type=Sent)
        latencies: dict[str, list[int]] = {}
        rows = pd.concat(list(frames)).sort_values(["process", "seq"], kind="stable")
        take(watcher, rows, sent, latencies)
        watcher.settle()
        while len(sent) > MOST_SENT:
            del sent[next(iter(sent))]
        state.update((watcher.save(), msgspec.msgpack.encode(sent)))
        names = [part.split()[0] for part in OUTPUT.split(", ")]
        yield pd.DataFrame(said(key[0], watcher, latencies, rows), columns=names)


def take(watcher: Watcher, rows: "pd.DataFrame", sent: Sent, latencies: dict[str, list[int]]) -> None:
    """In a trace the destinations are with the multicast. Where that is not known each group is judged by itself."""
    columns = [rows[name].tolist() for name in COLUMNS[1:]]
    for kind, _, _, _, time, message, dest in zip(*columns, strict=True):
        if kind == "multicast":
            sent[message] = number(time), tuple(dest)
    for kind, process, group, seq, time, message, dest in zip(*columns, strict=True):
        if group is None:
            continue
        watcher.expect(process, group)
        when = number(time)
        if kind == "deliver":
            asked, groups = sent.get(message, (None, None if dest is None else tuple(dest)))
            name = message if groups is not None else f"{message} ({group})"
            watcher.take([Row(process, group, int(seq), name, groups, when)])
            if asked is not None:
                latencies.setdefault(group, []).append(when - asked)
        elif kind == "lost":
            watcher.take([Row(process, group, int(seq), None, None, when)])


def number(time: float) -> int:
    return int(time) if time == time else 0  # not a number: no time


def said(run: str, watcher: Watcher, latencies: dict[str, list[int]], rows: "pd.DataFrame") -> list[tuple[Any, ...]]:
    newest = int(rows["time"].max()) if len(rows) else 0
    found: list[tuple[Any, ...]] = []
    behind = watcher.behind()
    for process in sorted(behind):
        count = watcher.delivered.get(process, 0)
        found.append((run, "process", process, count, behind[process], None, None, newest, None, None))
    for kind, values in (("latency", latencies), ("spread", watcher.spreads)):
        for group, times in sorted(values.items()):
            p50, p99 = (float(np.percentile(times, part)) / 1e6 for part in (50, 99))
            found.append((run, kind, group, len(times), 0, p50, p99, newest, None, None))
    for violation in watcher.violations:
        text = json.dumps([msgspec.structs.asdict(row) for row in violation.rows])
        found.append((run, "violation", violation.property, 0, 0, None, None, newest, violation.text, text))
    if watcher.unchecked:
        found.append((run, "unchecked", "", watcher.unchecked, 0, None, None, newest, None, None))
    return found
