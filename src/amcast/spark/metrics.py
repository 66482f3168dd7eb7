"""The numbers of a trace, as tables: `metrics` gives DataFrames, `collect` runs them, `save` writes Parquet and CSV.

Everything is computed from the rows of the trace, by DataFrame operations. The definitions are those of
`amcast.sim.summary`, so that both give the same numbers for the same run:

- The latency of a message in a destination group is from its multicast to the first delivery there (role `leader`),
  to the last one (`follower`), and to the first optimistic one (`optimistic`).
- A process has to deliver a message if it was up at the multicast and has not crashed since. A group is through with a
  message when all such processes have delivered it; only then is there a last delivery. A message is delivered when all
  its groups are through and somebody has delivered it. If a whole group is down at the multicast or crashes before it
  delivers, that group has no latency, also when a process that restarts delivers the message after all.
- A percentile is the least sample that so many percent of the samples do not exceed. Percentiles are exact up to
  `EXACT_ROWS` deliveries, from a histogram that Spark sorts. Beyond that percentile_approx is used, and a note says so.
- The collision-free latency for messages to k groups is the least latency to a first delivery of such a message in the
  run. Later first deliveries are *delayed*: they waited for another message (the convoy effect), or for a network whose
  delays vary. So those that are late by more than δ are counted as well.
- Recovery is from the crash of the process that last became leader of a group to the next first delivery there.
- A mistake of optimistic delivery is a delivery that is not the next undelivered one in the optimistic order of the
  same process. It is a rollback if, at that moment, the process had optimistically delivered another message that it
  has not delivered yet: what it did for that one has to be undone.

Columns: `_ms` is milliseconds and `_delta` multiples of δ (null if the run does not say δ). A null `group` means all
groups together, a null `type` all types. A trace does not hold the memory use of processes.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from amcast.core.trace import REQUIRED_COLUMNS
from amcast.errors import TraceError, UsageError
from amcast.places import Place, one_line, place_of
from amcast.sim.settings import CONFIGURATION, Kind, Setting
from amcast.spark.metric_tables import (
    ACCURACY,
    LATEST,
    LOAD,
    MILLISECOND,
    TABLES,
    Facts,
    histogram_of,
    samples_of,
)  # fmt: skip
from amcast.tracefile.columns import Columns
from amcast.tracefile.commits import SUCCESS
from amcast.tracefile.out import usable_folder, whole_folder

EXACT_ROWS: Final = 50_000_000
BINS: Final = 100  # of a run, where the width is not given
MOST_BINS: Final = 100_000  # of a run
SMALL_ROWS: Final = 500_000  # of a trace that is not worth a shuffle: all of it is one partition
SMALL_BYTES: Final = 8 << 20  # of a trace that is measured before the JVM has become fast
JOBS_AT_ONCE: Final = 4  # they wait for Spark to plan them more than for the cores
EARLIEST: Final = -(2**63)

TIMED: Final = ("latency", "latency_by_load", "latency_cdf", "timeline", "convoy", "recovery")
TYPES: Final = {Kind.COUNT: "int", Kind.RATE: "double", Kind.TIME: "bigint", Kind.CRASHES: "array<string>"}
CONFIG: Final = ", ".join(
    [*(f"{each.name} {TYPES.get(each.kind, 'string')}" for each in CONFIGURATION), "seed bigint, delta bigint"]
)
# How many members a start row says that its group has: see amcast.checks.history.stated_members.
STATED: Final = "try_cast(get_json_object(detail, '$.members') as bigint)"
OPTIONAL_COLUMNS: Final = {
    "time": "bigint",
    "peer": "string",
    "type": "string",
    "size": "int",
    "about": "array<string>",
    "detail": "string",
    "fault": "string",
}

MakeTable = Callable[[], DataFrame]


@dataclass(frozen=True)
class Collected:
    """The tables, and notes for their reader, a line each."""

    tables: dict[str, pa.Table]
    notes: tuple[str, ...]


def metrics(
    spark: SparkSession, trace: DataFrame, *, bin_ns: int | None = None, exact_rows: int = EXACT_ROWS
) -> dict[str, DataFrame]:
    """Return the tables of `TABLES`, lazily. What they share is computed at once and kept while they are in use.

    `trace` has the columns of trace-format.md; those without a * may be missing. Time is cut into bins of `bin_ns`, by
    default a hundredth of each run. Raises UsageError for a trace without rows and for bins that are too narrow.
    """
    plans, _ = _measure(spark, trace, bin_ns, exact_rows)
    return {name: plan() for name, plan in plans.items()}


def collect(
    spark: SparkSession,
    trace: DataFrame,
    *,
    bin_ns: int | None = None,
    exact_rows: int = EXACT_ROWS,
    name: str = "the trace",
) -> Collected:
    """Compute the tables of `metrics`. They are small: their size depends on runs, groups and bins alone.

    Complaints begin with `name`. A row with a `fault`, as `tables.read_rows` gives it, is an error.
    """
    plans, notes = _measure(spark, trace, bin_ns, exact_rows, name)
    pool = ThreadPoolExecutor(JOBS_AT_ONCE)
    try:
        found = dict(zip(plans, pool.map(lambda name: _collected(name, plans[name]), plans), strict=True))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        spark.sparkContext.cancelAllJobs()
        raise
    finally:
        pool.shutdown()
    return Collected(found, (*notes, *_clock_notes(found["latency_cdf"])))


def _collected(name: str, plan: MakeTable) -> pa.Table:
    table = plan().toArrow()
    keys = [(column, "ascending", "at_start") for column in TABLES[name].sorted_by]
    return table.take(pc.sort_indices(table, sort_keys=keys))  # Spark would run it twice


def collect_from(
    path: str,
    *,
    columns: Columns | None = None,
    bin_ns: int | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Collected:
    """Compute the tables of the trace at `path`, in a session of its own unless one is open. Raises UsageError."""
    from amcast.spark.session import open_session
    from amcast.spark.tables import read_rows, refuse_what_is_no_trace, spark_errors

    refuse_what_is_no_trace(path, columns)
    brief = _is_small(path)
    with open_session("amcast metrics", master=master, settings=settings, brief=brief) as spark, spark_errors(path):
        return collect(spark, read_rows(spark, path, columns), bin_ns=bin_ns, name=path)


def _is_small(path: str) -> bool:
    """Return whether Spark reads a local trace faster than its compiler warms up."""
    trace = place_of(path)
    if not isinstance(trace, Path):
        return False
    files = [file for file in ([trace] if trace.is_file() else trace.rglob("*")) if file.is_file()]
    return bool(files) and sum(file.stat().st_size for file in files) <= SMALL_BYTES


def save(tables: Mapping[str, pa.Table], folder: Place, force: bool = False) -> None:
    """Write each table as `<name>.parquet` and `<name>.csv`. If something goes wrong, none is written."""
    check_out(folder, force)
    try:
        with whole_folder(folder) as unfinished:
            for name, table in tables.items():
                pyarrow.parquet.write_table(table, unfinished / f"{name}.parquet", compression="zstd")
                pyarrow.csv.write_csv(table, unfinished / f"{name}.csv")
    except OSError as error:
        raise UsageError(
            f"{folder}: the tables cannot be written ({one_line(error)}); "
            f"expected a folder that can be written, with space left; choose another --out"
        ) from error


def check_out(folder: Place, force: bool) -> None:
    """Raise UsageError unless `folder` is new or empty or, with `force`, holds nothing but older tables."""
    with usable_folder(folder, "the tables") as entries:
        pass
    ours = {f"{name}.{suffix}" for name in TABLES for suffix in ("parquet", "csv")}
    ours.add(SUCCESS)
    stranger = next((entry for entry in entries if entry.is_symlink() or entry.name not in ours), None)
    if stranger is not None:
        raise UsageError(
            f"{folder}: holds {stranger.name}, which is no table of metrics; expected a new or empty folder; "
            f"choose another --out"
        )
    if entries and not force:
        raise UsageError(f"{folder}: holds older tables; use --force to replace them or choose another --out")


def _measure(
    spark: SparkSession, trace: DataFrame, bin_ns: int | None, exact_rows: int, name: str = "the trace"
) -> tuple[dict[str, MakeTable], Sequence[str]]:
    """Compute what the tables share. Return how to make each table, and the notes."""
    trace = _with_all_columns(trace, name)
    census = _kept(spark, _census(trace))
    overview = _overview(census)
    runs = _runs(trace, census, bin_ns).toArrow()
    _refuse(overview, runs, bin_ns, name)
    in_one = overview.rows <= SMALL_ROWS
    approximate = overview.deliveries > exact_rows

    def kept(frame: DataFrame) -> DataFrame:
        return _kept(spark, frame.coalesce(1)).coalesce(1) if in_one else _kept(spark, frame)

    if in_one:
        trace, census = kept(trace), kept(census)
    through = kept(_through(trace, census, in_one))
    messages = kept(_messages_delivered(through))
    samples = samples_of(through) if approximate else kept(histogram_of(samples_of(through)))
    facts = Facts(trace, census, spark.createDataFrame(runs), through, messages, samples, approximate, in_one)

    def plan(name: str) -> DataFrame:
        table = TABLES[name].make(facts)
        needs = TABLES[name].needs
        return table.limit(0) if needs and needs not in overview.kinds else table  # for which Spark does nothing

    plans: dict[str, MakeTable] = {name: partial(plan, name) for name in TABLES}
    return plans, _notes(overview, approximate)


def _kept(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Compute a frame now and let the executors keep it.

    A cached frame would drag its plan along, which Spark looks through again and again. On a cluster that may lose
    executors, set a checkpoint directory.
    """
    return frame.localCheckpoint() if spark.sparkContext.getCheckpointDir() is None else frame.checkpoint()


def _with_all_columns(trace: DataFrame, name: str) -> DataFrame:
    missing = [name for name in REQUIRED_COLUMNS if name not in trace.columns]
    if missing:
        raise TraceError(
            f"{name}: has no column {missing[0]!r}; expected at least {', '.join(REQUIRED_COLUMNS)}; "
            f"add it, or map it with --columns"
        )
    absent = {name: of for name, of in OPTIONAL_COLUMNS.items() if name not in trace.columns}
    return trace.withColumns({name: F.lit(None).cast(of) for name, of in absent.items()})


def _census(trace: DataFrame) -> DataFrame:
    """Count the rows of each kind at each process, with their first and last time."""
    return trace.groupBy("run", "kind", "group", "process").agg(
        F.count("*").alias("rows"),
        F.count("time").alias("timed"),
        F.min("time").alias("first_ns"),
        F.max("time").alias("last_ns"),
        F.sum(F.col("size").cast("bigint")).alias("bytes"),
        F.min("fault").alias("fault"),
        F.max(F.when(F.col("kind") == "start", F.expr(STATED))).alias("stated"),
    )


def _runs(trace: DataFrame, census: DataFrame, bin_ns: int | None) -> DataFrame:
    """Return a row per run: its configuration, when it began, how many bins it has and how wide they are."""
    times = census.groupBy("run").agg(F.min("first_ns").alias("origin"), F.max("last_ns").alias("end"))
    width = F.lit(bin_ns) if bin_ns is not None else F.expr(f"(end - origin) div {BINS} + 1")
    cut = times.withColumn("width", width.cast("bigint")).withColumn("bins", F.expr("(end - origin) div width + 1"))
    described = cut.drop("end").join(F.broadcast(_config(trace)), "run", "left")
    return described.withColumn("load", F.dense_rank().over(Window.orderBy(*LOAD, "delta")))


def _overview(census: DataFrame) -> Row:
    """Return the facts that decide whether and how the tables can be computed, by name."""
    deliveries = F.sum(F.when(F.col("kind") == "deliver", F.col("rows")))
    row = census.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("rows", "timed")),
        F.coalesce(deliveries, F.lit(0)).alias("deliveries"),
        F.collect_set("kind").alias("kinds"),
        F.min("fault").alias("fault"),
    ).first()
    assert row is not None
    return row


def _refuse(overview: Row, runs: pa.Table, bin_ns: int | None, name: str) -> None:
    if overview.fault is not None:
        raise TraceError(f"{name}: {overview.fault}")
    if overview.rows == 0:
        raise TraceError(f"{name}: is empty; expected at least one event; record the run again")
    bins = pc.max(runs.column("bins")).as_py() or 0
    if bins > MOST_BINS:
        raise UsageError(
            f"bins of {bin_ns:,} ns: a run of this trace would have {bins:,} of them; "
            f"expected at most {MOST_BINS:,}; use a wider --bin"
        )


def _notes(overview: Row, approximate: bool) -> Sequence[str]:
    notes = []
    if overview.timed == 0:
        notes.append(f"the trace has no time column: the tables {', '.join(TIMED)} are empty")
    elif overview.timed < overview.rows:
        untimed = overview.rows - overview.timed
        notes.append(f"{untimed:,} of {overview.rows:,} rows have no time: they are left out of the latencies")
    if approximate:
        notes.append(
            f"percentiles are approximate (at most one rank in {ACCURACY:,} off), "
            f"for there are {overview.deliveries:,} deliveries"
        )
    return notes


def _clock_notes(cdf: pa.Table) -> Sequence[str]:
    """Note that clocks disagree by more than a message takes, if latencies show it."""
    shown = [value for value in cdf.column("ms").to_pylist() if value is not None and value < 0]
    return ["some latencies are negative: the clocks of the processes differ"] if shown else []


def _config(trace: DataFrame) -> DataFrame:
    """Return the configuration of each run, from the `start` row of its driver."""
    described = (F.col("kind") == "start") & F.col("group").isNull() & F.col("detail").startswith("{")
    found = trace.where(described).groupBy("run").agg(F.max("detail").alias("detail"))
    config = found.select("run", F.from_json("detail", CONFIG).alias("c")).select("run", "c.*")
    config = config.withColumn("dest_groups", F.coalesce("dest_groups", F.least(F.lit(2), "groups")))
    return config.select(
        "run",
        *(_value_of(setting).alias(setting.measure) for setting in CONFIGURATION),
        "seed",
        F.when(F.col("delta") > 0, F.col("delta")).alias("delta"),
    )


def _value_of(setting: Setting) -> Column:
    """Return the value of a setting as it stands in the tables; a time that is not given is null."""
    value = F.col(setting.name)
    if setting.kind is Kind.TIME:
        return F.when(value >= 0, value / MILLISECOND)
    return F.array_join(value, ";") if setting.kind is Kind.CRASHES else value


def _through(trace: DataFrame, census: DataFrame, in_one: bool) -> DataFrame:
    """Return one row per message and destination group: its multicast, its first and its last delivery there."""
    uptimes, members = _uptimes(trace, census)
    addressed = (
        trace.where("kind = 'multicast' and message is not null and dest is not null")
        .groupBy("run", "message")
        .agg(F.min("time").alias("multicast_ns"), F.min_by("dest", F.coalesce("time", "seq")).alias("dest"))
        .withColumn("dest", F.array_distinct("dest"))
        .select("run", "message", F.explode("dest").alias("group"), F.size("dest").alias("k"), "multicast_ns")
    )
    delivered = trace.where("kind in ('deliver', 'optdeliver') and message is not null and `group` is not null").select(
        *("run", "message", "group", "process"),
        (F.col("kind") == "deliver").alias("final"),
        F.when(F.col("kind") == "deliver", F.col("time")).alias("delivered_ns"),
        F.when(F.col("kind") == "optdeliver", F.col("time")).alias("guessed_ns"),
    )
    rows = addressed.unionByName(delivered, allowMissingColumns=True)
    of_group = Window.partitionBy("run", "message", "group")
    each = (
        (rows.coalesce(1) if in_one else rows.repartition("run", "message"))  # which all later steps make use of
        .groupBy("run", "message", "group", "process")
        .agg(
            F.max("k").alias("k"),
            F.min("multicast_ns").alias("multicast_ns"),
            F.coalesce(F.bool_or("final"), F.lit(False)).alias("final"),
            F.min("delivered_ns").alias("delivered_ns"),
            F.min("guessed_ns").alias("guessed_ns"),
        )
        .withColumn("multicast_ns", F.min("multicast_ns").over(of_group))
        .join(F.broadcast(uptimes), ["run", "group", "process"], "left")
    )
    multicast = f"coalesce(multicast_ns, {LATEST - 1})"
    stays = F.expr(f"exists(uptimes, u -> u.open and u.since <= {multicast})")
    unbroken = F.expr("exists(uptimes, u -> u.since <= multicast_ns and delivered_ns <= u.until)")
    groups = (
        each.groupBy("run", "message", "group")
        .agg(
            F.max("k").alias("k"),
            F.min("multicast_ns").alias("multicast_ns"),
            F.min("delivered_ns").alias("first_ns"),
            F.max(F.when(unbroken, F.col("delivered_ns"))).alias("last_ns"),
            F.min("guessed_ns").alias("guessed_ns"),
            F.count_if("final").alias("delivered"),
            F.count_if(F.col("final") & F.coalesce(stays, F.lit(False))).alias("delivered_by_stayers"),
        )
        .where("k is not null")
    )
    up_then = f"filter(members, u -> u.since <= {multicast} and {multicast} < u.until)"
    return (
        groups.join(F.broadcast(members), ["run", "group"], "left")
        .withColumn("up", F.expr(f"coalesce({up_then}, array())"))
        .withColumn("through", F.expr("delivered_by_stayers >= size(filter(up, u -> u.open))"))
        .withColumn("forgotten_ns", F.expr("array_max(transform(up, u -> u.until))"))
        .withColumn("late_ns", F.expr("if(multicast_ns is null or first_ns <= forgotten_ns, null, first_ns)"))
        .withColumn("first_ns", F.expr("if(first_ns <= forgotten_ns, first_ns, null)"))
        .select(
            *("run", "message", "group", "k", "multicast_ns", "first_ns", "guessed_ns", "through"),
            F.expr("if(through, last_ns, null)").alias("last_ns"),
            F.expr("if(through, coalesce(last_ns, late_ns), null)").alias("through_ns"),
            F.expr("delivered > 0").alias("seen"),
        )
    )


def _uptimes(trace: DataFrame, census: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the times at which each process was up, as a list: by process, and for a whole group."""
    moves = trace.where("kind in ('start', 'restart', 'crash') and `group` is not null")
    later = Window.partitionBy("run", "process").orderBy("seq").rowsBetween(1, Window.unboundedFollowing)
    is_crash = F.col("kind") == "crash"
    begun = (
        moves.withColumn("until", F.min(F.when(is_crash, F.col("time"))).over(later))
        .withColumn("open", ~F.coalesce(F.bool_or(is_crash).over(later), F.lit(False)))
        .where(~is_crash)
        .select("run", "group", "process", F.col("time").alias("since"), "until", "open")
    )
    members = census.where("`group` is not null").groupBy("run", "group", "process")
    always = (  # whoever never started is there from the beginning
        members.agg(
            F.min(F.when(is_crash, F.col("first_ns"))).alias("until"),
            (~F.bool_or(is_crash)).alias("open"),
            F.bool_or(F.col("kind") == "start").alias("started"),
        )
        .where("not started")
        .select("run", "group", "process", F.lit(None).cast("bigint").alias("since"), "until", "open")
    )
    times = begun.unionByName(always).select(
        *("run", "group", "process", "open"),
        F.coalesce("since", F.lit(EARLIEST)).alias("since"),
        F.coalesce("until", F.lit(LATEST)).alias("until"),
    )
    uptime = F.struct("since", "until", "open")
    uptimes = times.groupBy("run", "group", "process").agg(F.collect_list(uptime).alias("uptimes"))
    return uptimes, times.groupBy("run", "group").agg(F.collect_list(uptime).alias("members"))


def _messages_delivered(through: DataFrame) -> DataFrame:
    """Return one row per message. `done_ns` is null if it was not delivered everywhere."""
    return (
        through.groupBy("run", "message")
        .agg(
            F.min("multicast_ns").alias("multicast_ns"),
            F.bool_or("seen").alias("seen"),
            (F.bool_and("through") & F.bool_or("seen")).alias("done"),
            F.max("through_ns").alias("done_ns"),
        )
        .withColumn("done_ns", F.when(F.col("done"), F.col("done_ns")))
    )
