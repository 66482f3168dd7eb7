"""A streaming query that checks deliveries while they come: order, integrity, validity, gaps, and how fast they spread.

One stateful task merges the histories of all processes of a run, as columns (`amcast.verify.online`). Its state is
bounded by how far one process is behind another. Spark's state store (RocksDB) keeps it, so a query that is started
again continues.
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
import pyarrow as pa
import pyarrow.compute as pc

from amcast.checks.history import stated_members
from amcast.errors import UsageError
from amcast.spark.shipping import first_line
from amcast.verify.arrays import ints, one_array
from amcast.verify.online import DELIVERIES, MULTICASTS, ColumnWatcher, as_text, packed, unpacked

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
NUMBERS: Final = ("seq", "time")
ARROW_STREAM: Final = b"\xff\xff\xff\xff"  # how its bytes begin
MOST_SENT: Final = 100_000  # multicasts that are remembered, and deliveries without one
TRACES: Final = (".jsonl", ".json", ".ndjson", ".parquet", ".csv")  # what looks like a trace
Sent = dict[str, tuple[int, tuple[str, ...]]]  # as older checkpoints have it: when it was multicast, to which groups


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
    rows: "DataFrame", judge: "Judge", checkpoint: str | Path, seconds: float, report: Callable[[Report], None]
) -> "StreamingQuery":
    """Judge these rows; `report` gets what each micro-batch finds."""
    from pyspark.sql import functions as F

    rows = rows.withColumn("dest", F.to_json("dest"))  # a list would be an object for each row
    judged = rows.groupBy("run").applyInPandasWithState(judge, OUTPUT, STATE, "append", "NoTimeout")

    def tell(frame: "DataFrame", batch: int) -> None:
        report(Report(batch, frame.collect()))

    writer = judged.writeStream.foreachBatch(tell).option("checkpointLocation", str(checkpoint)).outputMode("append")
    trigger = writer.trigger(availableNow=True) if judge.once else writer.trigger(processingTime=f"{seconds} seconds")
    return trigger.start()


def refuse_unreachable(spark: "SparkSession", checkpoint: str) -> None:
    """Raise UsageError for a checkpoint in a storage that Spark, which writes it, has no file system for."""
    from py4j.protocol import Py4JError

    java = spark.sparkContext._jvm
    assert java is not None
    try:
        path = java.org.apache.hadoop.fs.Path(checkpoint)
        path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path)
    except Py4JError as error:
        raise UsageError(
            f"checkpoint {checkpoint}: Spark itself writes it, and cannot reach it ({first_line(error)}); expected a "
            f"folder, or a Spark with the jars and settings for it (--spark-conf spark.jars.packages=…)"
        ) from error


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

        watcher = ColumnWatcher(gapless=self._gapless)
        sent = MULTICASTS.empty_table()
        if state.exists:
            data, kept = (bytes(part) for part in state.get)
            watcher.load(data)
            sent = multicasts_of(kept)
        for process, group in self._members.items():
            watcher.expect(process, group)
        rows = table_of(frames)
        counts = {kind: int(pc.sum(pc.equal(rows["kind"], kind)).as_py() or 0) for kind in ("multicast", "end")}
        latencies: dict[str, list[int]] = {}
        sent, problems = take(watcher, rows, sent, latencies, wait=not self.once)
        if self._gapless:
            watcher.state.unsent.clear()  # a cluster's replicas tell only of deliveries
        sent = sent.slice(max(0, sent.num_rows - MOST_SENT))
        forgotten = forget(watcher.state.unsent)
        state.update((watcher.save(), packed(sent)))
        more = {"multicasts": counts["multicast"], "guessed": watcher.guessed, "end": int(counts["end"] > 0)} | problems
        more |= {"unsent": forgotten if sent.num_rows else 0}
        found = said(key[0], watcher, latencies, more, sent.num_rows > 0)
        yield pd.DataFrame(found, columns=list(NAMES))


def table_of(frames: "Iterator[pd.DataFrame]") -> pa.Table:
    """Return all rows of COLUMNS but the run."""
    schema = pa.schema([(name, pa.int64() if name in NUMBERS else pa.string()) for name in COLUMNS[1:]])
    pieces = [
        pa.table(
            [
                pa.array(frame[name], field.type, from_pandas=True, safe=False)
                if name in frame
                else pa.nulls(len(frame), field.type)
                for name, field in zip(schema.names, schema, strict=True)
            ],
            schema=schema,
        )
        for frame in frames
    ]
    return pa.concat_tables(pieces).combine_chunks()


def multicasts_of(kept: bytes) -> pa.Table:
    """Return what a checkpoint knows of multicasts. Older ones have it in another form."""
    if kept.startswith(ARROW_STREAM):
        return unpacked(kept)
    sent = msgspec.msgpack.decode(kept, type=Sent)
    columns = [list(sent), [time for time, _ in sent.values()], [as_text(dest) for _, dest in sent.values()]]
    return pa.table(columns, schema=MULTICASTS)


def forget(known: dict[str, Any]) -> int:
    """Drop the oldest of what is remembered, and return how many were dropped."""
    many = max(0, len(known) - MOST_SENT)
    for name in list(known)[:many]:
        del known[name]
    return many


def take(
    watcher: ColumnWatcher, rows: pa.Table, sent: pa.Table, latencies: dict[str, list[int]], wait: bool = True
) -> tuple[pa.Table, dict[str, int]]:
    """Have rows judged. Return the multicasts that are known by now, and how many rows cannot be used, by their fault.

    In a trace the multicast says the destinations. It may come in a later micro-batch than the deliveries.
    """
    rows = rows.set_column(rows.schema.get_field_index("time"), "time", pc.fill_null(rows["time"], 0))
    kind = rows["kind"]
    told = only(rows, pc.equal(kind, "multicast"), pc.is_valid(rows["message"]), pc.is_valid(rows["dest"]))
    told = the_last(told.select(MULTICASTS.names))
    sent = the_last(pa.concat_tables([sent, told]))
    named = pc.and_(pc.is_valid(kind), pc.is_valid(rows["process"]))
    delivery = pc.fill_null(pc.equal(kind, "deliver"), False)
    whole = pc.and_(pc.is_valid(rows["group"]), pc.and_(pc.is_valid(rows["message"]), pc.is_valid(rows["seq"])))
    usable = pc.and_(named, pc.or_(pc.invert(delivery), whole))
    unreadable = rows.num_rows - int(pc.sum(usable).as_py() or 0)
    mine = only(rows, usable, pc.is_valid(rows["group"]))
    expect(watcher, mine)
    new = only(mine, pc.is_in(mine["kind"], value_set=pa.array(["deliver", "lost"])))
    process = one_array(new["process"]).dictionary_encode()
    numbers = watcher.numbers()
    chain = np.array([numbers[name] for name in process.dictionary.to_pylist()], np.int64)[ints(process.indices)]
    groups = pa.array([chain.group for chain in watcher.state.chains.values()], pa.string())
    moved = pc.not_equal(one_array(new["group"]), groups.take(pa.array(chain)))
    stays = np.flatnonzero(~moved.to_numpy(zero_copy_only=False))
    order = stays[np.lexsort((ints(new["seq"])[stays], chain[stays]))]
    new, chain = new.take(pa.array(order)), chain[order]
    message = pc.if_else(pc.equal(new["kind"], "lost"), None, new["message"])
    found = one_array(pc.index_in(message, value_set=one_array(sent["message"])))
    own = pc.if_else(pc.equal(new["dest"], "[]"), None, new["dest"])
    dest = pc.coalesce(one_array(sent["dest"]).take(found), one_array(own))
    passed_time = pc.subtract(one_array(new["time"]), one_array(sent["time"]).take(found))
    for group in pc.unique(new["group"]).to_pylist():
        times = passed_time.filter(pc.and_(pc.is_valid(passed_time), one_array(pc.equal(new["group"], group))))
        if len(times):
            latencies[group] = times.to_pylist()
    unsent = watcher.state.unsent
    for name in unsent.keys() & set(told["message"].to_pylist()) if unsent else ():
        del unsent[name]
    nobody = pc.and_(pc.is_null(found), pc.is_valid(one_array(message)))
    unsent.update(zip(message.filter(nobody).to_pylist(), pc.is_valid(dest.filter(nobody)).to_pylist(), strict=True))
    columns = [pa.array(chain), new["seq"], new["time"], message, dest, dest]
    watcher.judge(pa.table(columns, schema=DELIVERIES), told, wait)
    return sent, {"unreadable": unreadable, "moved": len(moved) - len(stays)}


def only(rows: pa.Table, *conditions: Any) -> pa.Table:
    for condition in conditions[1:]:
        conditions = (pc.and_(conditions[0], condition),)
    return rows.filter(conditions[0])


def the_last(rows: pa.Table) -> pa.Table:
    """Return the last row of each message."""
    codes = ints(one_array(rows["message"]).dictionary_encode().indices)
    _, back = np.unique(codes[::-1], return_index=True)
    return rows if len(back) == len(codes) else rows.take(pa.array(np.sort(len(codes) - 1 - back)))


def expect(watcher: ColumnWatcher, rows: pa.Table) -> None:
    """Note who takes part: each process of these rows, and the sizes of groups that `start` rows state."""
    pairs = rows.group_by(["process", "group"]).aggregate([("seq", "min")])
    for pair in sorted(pairs.to_pylist(), key=lambda pair: (pair["process"], pair["seq_min"] or 0)):
        watcher.expect(pair["process"], pair["group"])
    for row in rows.filter(pc.equal(rows["kind"], "start")).select(["process", "group", "detail"]).to_pylist():
        watcher.expect(row["process"], row["group"], stated_members(row["detail"]))


def said(
    run: str, watcher: ColumnWatcher, latencies: dict[str, list[int]], counts: Mapping[str, int], multicast: bool
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
