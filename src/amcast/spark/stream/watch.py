"""A streaming query that checks deliveries while they come: order, integrity, validity, gaps, and how fast they spread.

One stateful task merges the histories of all processes of a run (`amcast.checks.online`). Its state is bounded by how
far one process is behind another. Spark's state store (RocksDB) keeps it, so a query that is started again continues.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from amcast.checks.history import stated_members
from amcast.checks.online import Row, Watcher
from amcast.errors import UsageError

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
# What is in `name`, `amount` and `text` depends on the kind: see `said`
OUTPUT: Final = (
    "run string, kind string, name string, amount bigint, behind bigint, place bigint, head bigint, since bigint, "
    "p50 double, p99 double, text string, rows string"
)
NAMES: Final = tuple(part.split()[0] for part in OUTPUT.split(", "))
STATE: Final = "data binary, sent binary"
TRACE: Final = (
    "run string, kind string, process string, group string, seq bigint, time bigint, message string, sender string, "
    "dest array<string>, detail string"
)
COLUMNS: Final = ["run", "kind", "process", "group", "seq", "time", "message", "dest", "detail"]
MOST_SENT: Final = 100_000  # multicasts that are remembered, and deliveries without one
TRACES: Final = (".jsonl", ".json", ".ndjson", ".parquet", ".csv")  # what looks like a trace
Sent = dict[str, tuple[int, tuple[str, ...]]]  # message -> when it was multicast, to which groups


@dataclass(frozen=True)
class Report:
    """What one micro-batch said."""

    batch: int
    rows: list[Any]  # of OUTPUT


def from_cluster(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    from amcast.spark.stream.replicas import AmcastReplicas

    spark.dataSource.register(AmcastReplicas)
    return spark.readStream.format("amcast_replicas").options(**options).load()


def from_files(spark: "SparkSession", folder: Path) -> "DataFrame":
    """Read traces that keep arriving in a folder: .jsonl files, or Parquet as `kind=…/*.parquet`."""
    reader = spark.readStream.schema(TRACE).option("maxFilesPerTrigger", 1000)
    if is_parquet(folder):
        found = reader.option("recursiveFileLookup", "false").parquet(str(folder))
    else:
        found = reader.option("pathGlobFilter", "*.jsonl").json(str(folder))
    return found.select(*COLUMNS)


def is_parquet(folder: Path) -> bool:
    return any(folder.glob("kind=*"))


def unread(folder: Path, parquet: bool) -> str:
    """Name the files that look like traces and are not read from this folder; empty if there are none."""
    wanted = set(folder.glob("kind=*/*.parquet" if parquet else "*.jsonl"))
    others = []
    for path in sorted(Path(at, file) for at, _, files in os.walk(folder) for file in files):
        hidden = path.name.startswith(("_", "."))  # Spark passes over these
        if {part.lower() for part in path.suffixes} & {*TRACES} and (hidden or path not in wanted):
            others.append(str(path.relative_to(folder)))
    if not others:
        return ""
    return f"{others[0]}{f' and {len(others) - 1:,} more' * (len(others) > 1)}"


def no_traces(folder: Path) -> str:
    """Say what a folder without a trace holds; empty if it holds one. Raises UsageError if it holds something else."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected a cluster, or a folder in which traces arrive")
    strays = unread(folder, is_parquet(folder))
    if strays:
        raise UsageError(
            f"{folder}: {strays} would not be read; expected only .jsonl files directly in the folder, "
            "or only kind=…/*.parquet; move the rest elsewhere"
        )
    if any(any(folder.glob(pattern)) for pattern in ("*.jsonl", "kind=*/*.parquet")):
        return ""
    others = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    seen = f"there is {others[0]}{f' and {len(others) - 1} more' * (len(others) > 1)}" if others else "it is empty"
    return f"{folder}: holds no trace, {seen}; expected .jsonl files or kind=…/*.parquet"


def start(
    rows: "DataFrame", judge: "Judge", checkpoint: Path, seconds: float, report: Callable[[Report], None]
) -> "StreamingQuery":
    """Judge these rows; `report` gets what each micro-batch finds."""
    judged = rows.groupBy("run").applyInPandasWithState(judge, OUTPUT, STATE, "append", "NoTimeout")

    def tell(frame: "DataFrame", batch: int) -> None:
        report(Report(batch, frame.collect()))

    writer = judged.writeStream.foreachBatch(tell).option("checkpointLocation", str(checkpoint)).outputMode("append")
    trigger = writer.trigger(availableNow=True) if judge.once else writer.trigger(processingTime=f"{seconds} seconds")
    return trigger.start()


def judge_of_cluster(members: Mapping[str, str], once: bool) -> "Judge":
    """Return the judge of a cluster's replicas, given with their groups. Their places have no gaps."""
    return Judge(gapless=True, members=members, once=once)


class Judge:
    """The stateful function of the query. It takes rows of one run and returns what is to be said about them."""

    def __init__(self, gapless: bool = False, members: Mapping[str, str] | None = None, once: bool = False) -> None:
        """Create a judge. `members`: who is there from the start. `once`: wait for nothing that is not there now."""
        self._gapless = gapless
        self._members = dict(members or {})
        self.once = once

    def __call__(self, key: tuple[str], frames: "Iterator[pd.DataFrame]", state: Any) -> "Iterator[pd.DataFrame]":
        import pandas as pd

        watcher = Watcher(gapless=self._gapless)
        sent: Sent = {}
        if state.exists:
            data, times = state.get
            watcher.load(bytes(data))
            sent = msgspec.msgpack.decode(bytes(times), type=Sent)
        for process, group in self._members.items():
            watcher.expect(process, group)
        latencies: dict[str, list[int]] = {}
        rows = pd.concat(list(frames)).sort_values(["process", "seq"], kind="stable")
        unreadable = take(watcher, rows, sent, latencies)
        if self._gapless:
            watcher.state.unsent.clear()  # a cluster's replicas tell only of deliveries
        watcher.settle(wait=not self.once)
        forget(sent)
        forgotten = forget(watcher.state.unsent)
        state.update((watcher.save(), msgspec.msgpack.encode(sent)))
        multicasts = int((rows["kind"] == "multicast").sum())
        counts = {"multicasts": multicasts, "unreadable": unreadable, "guessed": watcher.guessed}
        counts |= {"end": int((rows["kind"] == "end").any()), "unsent": forgotten if sent else 0}
        found = said(key[0], watcher, latencies, counts, bool(sent))
        yield pd.DataFrame(found, columns=list(NAMES))


def forget(known: dict[str, Any]) -> int:
    """Drop the oldest of what is remembered, and return how many were dropped."""
    many = max(0, len(known) - MOST_SENT)
    for name in list(known)[:many]:
        del known[name]
    return many


def take(watcher: Watcher, rows: "pd.DataFrame", sent: Sent, latencies: dict[str, list[int]]) -> int:
    """Give rows to the watcher, and return how many say too little to be used.

    In a trace the multicast says the destinations. It may come in a later micro-batch than the deliveries.
    """
    columns = [rows[name].tolist() if name in rows else [None] * len(rows) for name in COLUMNS[1:]]
    unreadable = 0
    for kind, _, _, _, time, message, dest, _ in zip(*columns, strict=True):
        if kind == "multicast" and isinstance(message, str) and dest is not None:
            sent[message] = number(time), tuple(dest)
            watcher.tell(message, tuple(dest))
    for kind, process, group, seq, time, message, dest, detail in zip(*columns, strict=True):
        if not isinstance(kind, str) or not isinstance(process, str):
            unreadable += 1
            continue
        if kind == "deliver" and not (isinstance(group, str) and isinstance(message, str) and seq == seq):
            unreadable += 1
            continue
        if group is None:
            continue
        watcher.expect(process, group, stated_members(detail) if kind == "start" else 0)
        when = number(time)
        if kind == "deliver":
            asked, groups = sent.get(message, (None, None if dest is None else tuple(dest) or None))
            watcher.take([Row(process, group, int(seq), message, groups, when)])
            if asked is not None:
                latencies.setdefault(group, []).append(when - asked)
            else:
                watcher.state.unsent[message] = groups is not None
        elif kind == "lost":
            watcher.take([Row(process, group, int(seq), None, None, when)])
    return unreadable


def number(time: float | None) -> int:
    return int(time) if time is not None and time == time else 0  # not a number: no time


def said(
    run: str, watcher: Watcher, latencies: dict[str, list[int]], counts: Mapping[str, int], multicast: bool
) -> list[tuple[Any, ...]]:
    """Return rows of OUTPUT: what this micro-batch adds, and how far every known process is.

    `multicast`: there are rows of multicasts, so every message is expected to have one.
    """
    behind, heads = watcher.behind(), watcher.heads()
    found: list[tuple[Any, ...]] = []

    def say(kind: str, name: str = "", amount: int = 0, text: str | None = None, **more: Any) -> None:
        row = {"run": run, "kind": kind, "name": name, "amount": amount, "text": text}
        row |= {"behind": 0, "place": -1, "head": -1, "since": 0}
        found.append(tuple((row | more).get(column) for column in NAMES))

    for process, group, place in sorted(watcher.processes()):
        more = {"behind": behind[process], "place": place}
        if process in heads:
            more |= {"head": heads[process].place, "since": heads[process].time}
        say("process", process, watcher.delivered.get(process, 0), group, **more)
    for group, size in sorted(watcher.state.sizes.items()):
        say("members", group, size)
    say("absent", text=json.dumps(watcher.absent()))
    for kind, names in (
        ("unresolved", watcher.unresolved()),
        ("unsent", [name for name, told in watcher.state.unsent.items() if multicast or not told]),
    ):
        say(kind, names[0] if names else "", len(names), "multicasts" if multicast else None)
    for kind, values in (("latency", latencies), ("spread", watcher.spreads)):
        for group, times in sorted(values.items()):
            p50, p99 = (float(np.percentile(times, part)) / 1e6 for part in (50, 99))
            say(kind, group, len(times), p50=p50, p99=p99)
    for violation in watcher.violations:
        rows = json.dumps([msgspec.structs.asdict(row) for row in violation.rows])
        say("violation", violation.property, 1, violation.text, rows=rows)
    for process in watcher.lost:
        say("lost", process, 1)
    for name, amount in {"pairs": watcher.pairs, "unchecked": watcher.unchecked, **counts}.items():
        if amount:
            say("count", name, amount)
    if watcher.state.apart:
        say("apart")
    if watcher.state.broken:
        say("broken")
    return found


def why_ended(once: bool, ran_on: bool, error: str | None) -> str:
    """Say what is wrong with the end of the query; empty if it ended as it should.

    A query of --once ends by itself, any other one is ended by the user or by --seconds.
    """
    if error is not None:
        return f"the query ended: {cause(error)}"
    if once and ran_on:
        return "stopped before all that is there was read"
    if not once and not ran_on:
        return "the query ended by itself, before it was told to"
    return ""


def cause(problem: str) -> str:
    """Return the line that says what was wrong, in what Spark says: the last that begins with an exception, if any."""
    said = [line for line in problem.partition("SQLSTATE")[0].strip().splitlines() if line.strip()]
    named = [line for line in said if re.match(r"[\w.]*[A-Z]\w+: ", line)]
    return (named or said or [problem])[-1].strip()
