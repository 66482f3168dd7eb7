"""The tables of `amcast.spark.metrics`, a function each, from the facts that they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amcast.sim.settings import CONFIGURATION

CDF_STEPS: Final = 200  # a point every half percent
PERCENTS: Final = (50, 95, 99)
ACCURACY: Final = 10_000  # of percentile_approx: off by at most one rank in so many
QUANTITIES: Final = ("p50", "p95", "p99", "max", "mean")
MILLISECOND: Final = 1e6
SECOND: Final = 1e9
LATEST: Final = 2**63 - 1
LOAD: Final = tuple(setting.measure for setting in CONFIGURATION)


@dataclass(frozen=True)
class Facts:
    """What is computed once.

    - `census`: how many rows of each kind each process has, and from when to when
    - `runs`: the configuration of each run, when it began, and the bins that its time is cut in
    - `through`: a row per message and destination group; `messages`: a row per message
    - `samples`: a histogram of latencies or, where percentiles are `approximate`, the latencies themselves
    """

    trace: DataFrame
    census: DataFrame
    runs: DataFrame
    through: DataFrame
    messages: DataFrame
    samples: DataFrame
    approximate: bool
    in_one: bool  # all rows are in one partition, so that nothing needs a shuffle

    def union(self, *frames: DataFrame) -> DataFrame:
        found = reduce(DataFrame.unionByName, frames)
        return found.coalesce(1) if self.in_one else found


def runs_table(facts: Facts) -> DataFrame:
    def rows(kind: str) -> Column:
        return F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col("rows"))), F.lit(0))

    is_member = F.col("group").isNotNull()
    is_leader = (F.col("kind") == "leader") & is_member
    counted = facts.census.groupBy("run").agg(
        F.sum("rows").alias("rows"),
        rows("deliver").alias("deliveries"),
        F.count_distinct(F.when((F.col("kind") == "deliver") & is_member, F.col("process"))).alias("replicas_seen"),
        rows("optdeliver").alias("optimistic_deliveries"),
        rows("send").alias("sends"),
        F.sum(F.when(F.col("kind") == "send", F.col("bytes"))).alias("bytes"),
        rows("crash").alias("crashes"),
        rows("restart").alias("restarts"),
        (F.coalesce(F.sum(F.when(is_leader, F.col("rows"))), F.lit(0))
         - F.count_distinct(F.when(is_leader, F.col("group")))).alias("leader_changes"),
        (F.max("last_ns") - F.min("first_ns")).alias("duration"),
        F.min(F.when(F.col("kind") == "multicast", F.col("first_ns"))).alias("from"),
        F.max(F.when(F.col("kind") == "deliver", F.col("last_ns"))).alias("to"),
    )  # fmt: skip
    groups = (
        facts.census.where(is_member)
        .groupBy("run", "group")
        .agg(F.count_distinct("process").alias("found"), F.max("stated").alias("stated"))
    )
    expected = groups.groupBy("run").agg(F.sum(F.greatest("found", "stated")).alias("replicas_expected"))
    of_messages = facts.messages.groupBy("run").agg(
        F.count("*").alias("multicasts"),
        F.count_if("done").alias("delivered_messages"),
        F.count_if("seen").alias("delivered_somewhere"),
    )
    stalled = F.bool_or(F.coalesce(F.get_json_object("detail", "$.stalled") == "true", F.lit(False)))
    ends = (
        facts.trace.where("kind = 'end'")
        .groupBy("run")
        .agg(F.when(stalled, F.lit("stalled")).otherwise("quiescent").alias("outcome"))
    )
    span = F.col("to") - F.col("from")
    return (
        counted.join(of_messages, "run", "left")
        .join(expected, "run", "left")
        .join(F.broadcast(ends), "run", "left")
        .join(F.broadcast(facts.runs), "run", "left")
        .fillna(0, ["multicasts", "delivered_messages", "delivered_somewhere", "replicas_expected"])
        .select(
            *("run", *LOAD, "seed"),
            (F.col("delta") / MILLISECOND).alias("delta_ms"),
            F.coalesce("outcome", F.lit("cut off")).alias("outcome"),
            *("rows", "multicasts", "delivered_messages", "delivered_somewhere"),
            *("deliveries", "optimistic_deliveries"),
            *("replicas_seen", "replicas_expected"),
            *("sends", "bytes", "crashes", "restarts", "leader_changes"),
            (F.col("duration") / MILLISECOND).alias("duration_ms"),
            F.when(span > 0, F.col("delivered_messages") * SECOND / span).alias("messages_per_second"),
        )
    )


def samples_of(through: DataFrame) -> DataFrame:
    kinds = F.array(
        F.struct(F.lit("leader").alias("role"), F.col("first_ns").alias("at")),
        F.struct(F.lit("follower").alias("role"), F.col("last_ns").alias("at")),
        F.struct(F.lit("optimistic").alias("role"), F.col("guessed_ns").alias("at")),
    )
    found = through.select("run", "group", "multicast_ns", F.explode(kinds).alias("sample"))
    return found.select(
        *("run", "group", "sample.role"),
        (F.col("sample.at") - F.col("multicast_ns")).alias("latency"),
        F.lit(1).cast("bigint").alias("samples"),
    ).where("latency is not null")


def histogram_of(samples: DataFrame) -> DataFrame:
    return samples.groupBy("run", "group", "role", "latency").agg(F.sum("samples").alias("samples"))


def latency_table(facts: Facts) -> DataFrame:
    with_whole_runs = facts.samples.withColumn("group", F.explode(F.array("group", F.lit(None))))
    found = _percentiles(with_whole_runs, ["run", "role", "group"], facts.approximate)
    described = found.join(F.broadcast(facts.runs), "run")
    return described.select("run", "protocol", "clients", "rate", "role", "group", *_in_units())


def latency_by_load_table(facts: Facts) -> DataFrame:
    """Take together the runs that differ in the seed alone."""
    found = _percentiles(_by_load(facts), ["load", "role"], facts.approximate)
    return found.join(F.broadcast(_loads(facts)), "load").select(*LOAD, "role", *_in_units())


def latency_cdf_table(facts: Facts) -> DataFrame:
    """Give for each half percent the least sample that so many percent do not exceed, and the least of all."""
    points_of = _approximate_points if facts.approximate else _exact_points
    points = points_of(_by_load(facts), ["load", "role"])
    return points.join(F.broadcast(_loads(facts)), "load").select(
        *(*LOAD, "role"),
        (F.col("step") * 100 / CDF_STEPS).alias("percent"),
        (F.col("latency") / MILLISECOND).alias("ms"),
        (F.col("latency") / F.col("delta")).alias("in_delta"),
    )


def _by_load(facts: Facts) -> DataFrame:
    return facts.samples.join(F.broadcast(facts.runs.select("run", "load")), "run")


def _loads(facts: Facts) -> DataFrame:
    """Return the configurations without their seeds, by number."""
    return facts.runs.select("load", *LOAD, "delta").distinct()


def _percentiles(samples: DataFrame, keys: list[str], approximate: bool) -> DataFrame:
    """Compute percentiles by these keys, in nanoseconds."""
    if approximate:
        values = {percent: F.percentile_approx("latency", percent / 100, ACCURACY) for percent in PERCENTS}
    else:
        samples = _cumulated(samples, keys)
        reached = F.col("up_to") * 100
        values = {p: F.min(F.when(reached >= F.col("total") * p, F.col("latency"))) for p in PERCENTS}
    total = F.sum((F.col("latency") * F.col("samples")).cast("decimal(38,0)")).cast("double")
    return samples.groupBy(*keys).agg(
        F.sum("samples").alias("samples"),
        *(value.alias(f"p{percent}") for percent, value in values.items()),
        F.max("latency").alias("max"),
        (total / F.sum("samples")).alias("mean"),
    )


def _in_units() -> list[Column]:
    return [
        F.col("samples"),
        *((F.col(name) / MILLISECOND).alias(f"{name}_ms") for name in QUANTITIES),
        *((F.col(name) / F.col("delta")).alias(f"{name}_delta") for name in QUANTITIES),
    ]


def _cumulated(samples: DataFrame, keys: list[str]) -> DataFrame:
    """Return the histogram by these keys: how many samples are `up_to` each value, and how many there are."""
    merged = samples.groupBy(*keys, "latency").agg(F.sum("samples").alias("samples"))
    of_keys = Window.partitionBy(*keys)
    return merged.withColumn("up_to", F.sum("samples").over(of_keys.orderBy("latency"))).withColumn(
        "total", F.sum("samples").over(of_keys)
    )


def _exact_points(samples: DataFrame, keys: list[str]) -> DataFrame:
    first = f"(up_to - samples) * {CDF_STEPS} div total + 1"
    last = f"up_to * {CDF_STEPS} div total"
    steps = F.expr(f"if({first} <= {last}, sequence({first}, {last}), array())")
    least = F.expr("if(up_to = samples, array(0L), array())")
    return _cumulated(samples, keys).withColumn("step", F.explode(F.concat(least, steps)))


def _approximate_points(samples: DataFrame, keys: list[str]) -> DataFrame:
    points = F.percentile_approx("latency", [step / CDF_STEPS for step in range(CDF_STEPS + 1)], ACCURACY)
    return (
        samples.groupBy(*keys)
        .agg(points.alias("points"))
        .select(*keys, F.posexplode("points").alias("step", "latency"))
    )


def convoy_table(facts: Facts) -> DataFrame:
    latencies = facts.through.select("run", "k", (F.col("first_ns") - F.col("multicast_ns")).alias("latency"))
    latencies = latencies.where("latency is not null")
    least = latencies.groupBy("run", "k").agg(F.min("latency").alias("least"))
    deltas = facts.runs.select("run", "delta")
    extra = F.col("latency") - F.col("least")
    found = (
        latencies.join(F.broadcast(least), ["run", "k"])
        .join(F.broadcast(deltas), "run", "left")
        .groupBy("run", F.col("k").alias("dest_groups"))
        .agg(
            F.count("*").alias("samples"),
            (F.first("least") / MILLISECOND).alias("collision_free_ms"),
            (F.first("least") / F.first("delta")).alias("collision_free_delta"),
            F.count_if(extra > 0).alias("delayed"),
            F.when(F.first("delta").isNotNull(), F.count_if(extra > F.col("delta"))).alias("delayed_over_delta"),
            (F.avg(extra) / MILLISECOND).alias("mean_extra_ms"),
        )
    )
    return found.select(
        *("run", "dest_groups", "samples", "collision_free_ms", "collision_free_delta", "delayed"),
        (F.col("delayed") / F.col("samples")).alias("share"),
        "delayed_over_delta",
        (F.col("delayed_over_delta") / F.col("samples")).alias("share_over_delta"),
        "mean_extra_ms",
    )


_COUNTS: Final = ("multicasts", "messages", "deliveries", "waiting")


def timeline_table(facts: Facts) -> DataFrame:
    """Give a row for each bin of each run and group, even if nothing happened in it."""
    entered = F.when(~F.col("through") | F.col("last_ns").isNotNull(), F.col("multicast_ns"))  # else nobody is up
    in_groups = facts.through.select(
        *("run", "group"),
        _marks(
            _mark("multicast_ns", multicasts=1),
            _mark("first_ns", messages=1),
            _mark(entered, waiting=1),
            _mark("last_ns", waiting=-1),
        ),
    )
    entered = F.when(~F.col("done") | F.col("done_ns").isNotNull(), F.col("multicast_ns"))
    in_all = facts.messages.select(
        *("run", _all_groups()),
        _marks(
            _mark("multicast_ns", multicasts=1),
            _mark(entered, waiting=1),
            _mark("done_ns", messages=1, waiting=-1),
        ),
    )
    deliveries = facts.trace.where("kind = 'deliver'").select(
        *("run", F.explode(F.array("group", F.lit(None))).alias("group")), _marks(_mark("time", deliveries=1))
    )
    places = facts.census.where("`group` is not null").select("run", "group").distinct()
    grid = facts.union(places, facts.runs.select("run", _all_groups())).join(F.broadcast(facts.runs), "run")
    nothing = [F.lit(0).cast("bigint").alias(name) for name in _COUNTS]
    empty = grid.select("run", "group", F.explode(F.expr("sequence(0, bins - 1)")).alias("bin"), *nothing)
    marks = facts.union(in_groups, in_all, deliveries).where("mark.at is not null")
    in_bins = marks.join(F.broadcast(facts.runs), "run").select(
        *("run", "group", F.expr("(mark.at - origin) div width").alias("bin")), *(f"mark.{name}" for name in _COUNTS)
    )
    so_far = Window.partitionBy("run", "group").orderBy("bin")
    return (
        facts.union(in_bins, empty)
        .groupBy("run", "group", "bin")
        .agg(*(F.sum(name).alias(name) for name in _COUNTS))
        .join(F.broadcast(facts.runs), "run")
        .select(
            *("run", "group", "bin"),
            (F.col("bin") * F.col("width") / MILLISECOND).alias("start_ms"),
            ((F.col("bin") + 1) * F.col("width") / MILLISECOND).alias("end_ms"),
            *("multicasts", "messages", "deliveries"),
            (F.col("messages") * SECOND / F.col("width")).alias("messages_per_second"),
            F.sum("waiting").over(so_far).alias("queue_depth"),
        )
    )


def _marks(*marks: Column) -> Column:
    return F.explode(F.array(*marks)).alias("mark")


def _mark(at: Column | str, **counts: int) -> Column:
    """Return something to be counted that happened `at` some time."""
    numbers = [F.lit(counts.get(name, 0)).cast("bigint").alias(name) for name in _COUNTS]
    return F.struct((F.col(at) if isinstance(at, str) else at).alias("at"), *numbers)


def _all_groups() -> Column:
    return F.lit(None).cast("string").alias("group")


def incidents_table(facts: Facts) -> DataFrame:
    """List crashes, restarts and changes of leader, with times from the beginning of the run."""
    found = facts.trace.where("kind in ('crash', 'restart', 'leader')").join(F.broadcast(facts.runs), "run", "left")
    return found.select(
        "run", ((F.col("time") - F.col("origin")) / MILLISECOND).alias("time_ms"), "kind", "process", "group"
    )


def recovery_table(facts: Facts) -> DataFrame:
    moves = facts.trace.where("kind in ('leader', 'crash') and `group` is not null and time is not null")
    before = Window.partitionBy("run", "group").orderBy("time", F.desc("kind"), "seq")  # `leader`, then `crash`
    leader = F.last(F.when(F.col("kind") == "leader", F.col("process")), ignorenulls=True).over(before)
    crashes = (
        moves.withColumn("leader", leader)
        .where("kind = 'crash' and leader = process")
        .select("run", "group", "process", F.col("time").alias("crash_ns"))
    )
    firsts = facts.through.select("run", "group", "first_ns").join(F.broadcast(crashes), ["run", "group"])
    again = firsts.where("first_ns > crash_ns").groupBy("run", "group", "process", "crash_ns")
    recovered = again.agg(F.min("first_ns").alias("again_ns"))
    pause = F.col("again_ns") - F.col("crash_ns")
    return (
        crashes.join(recovered, ["run", "group", "process", "crash_ns"], "left")
        .join(F.broadcast(facts.runs), "run")
        .select(
            *("run", "protocol", "process", "group"),
            ((F.col("crash_ns") - F.col("origin")) / MILLISECOND).alias("crash_ms"),
            (pause / MILLISECOND).alias("recovery_ms"),
            (pause / F.col("delta")).alias("recovery_delta"),
        )
    )


def optimistic_table(facts: Facts) -> DataFrame:
    """Count mistakes by running maxima: a message guessed before this one is delivered after it, or never."""
    both = facts.trace.where("kind in ('deliver', 'optdeliver') and message is not null")
    each = both.groupBy("run", "process", "group", "message").agg(
        F.min(F.when(F.col("kind") == "deliver", F.col("seq"))).alias("delivered"),
        F.min(F.when(F.col("kind") == "optdeliver", F.col("seq"))).alias("guessed"),
    )
    of_process = Window.partitionBy("run", "process")
    earlier_guesses = of_process.orderBy("guessed").rowsBetween(Window.unboundedPreceding, -1)
    final = F.when(F.col("guessed").isNotNull(), F.coalesce("delivered", F.lit(LATEST)))
    wrong = F.coalesce(F.max(final).over(earlier_guesses) > F.col("delivered"), F.lit(False))
    judged = (
        each.withColumn("guesses", F.count("guessed").over(of_process))
        .where("guesses > 0")
        .withColumn("mistake", F.col("delivered").isNotNull() & (F.col("guessed").isNull() | wrong))
    )
    at_risk = _outstanding(judged).groupBy("run", "process", "group").agg(F.count_if("rollback").alias("rollbacks"))
    found = judged.groupBy("run", "process", "group").agg(
        F.count("guessed").alias("optimistic_deliveries"),
        F.count("delivered").alias("deliveries"),
        F.count_if("mistake").alias("mistakes"),
    )
    return (
        found.join(at_risk, ["run", "process", "group"], "left")
        .withColumn("rollbacks", F.coalesce("rollbacks", F.lit(0)))
        .withColumn("share", F.when(F.col("deliveries") > 0, F.col("mistakes") / F.col("deliveries")))
    )


def _outstanding(judged: DataFrame) -> DataFrame:
    """Return the deliveries, each with whether it undoes something: another message is guessed but not delivered."""
    steps = F.array(
        F.struct(F.col("guessed").alias("at"), F.lit(1).alias("change"), F.lit(False).alias("is_delivery")),
        F.struct(
            F.greatest("guessed", "delivered").alias("at"), F.lit(-1).alias("change"), F.lit(False).alias("is_delivery")
        ),
        F.struct(F.col("delivered").alias("at"), F.lit(0).alias("change"), F.lit(True).alias("is_delivery")),
    )
    # greatest() ignores nulls: what was never guessed or never delivered must not be taken back
    taken_back = F.filter(
        steps,
        lambda step: (
            step["at"].isNotNull()
            & ((step["change"] >= 0) | (F.col("guessed").isNotNull() & F.col("delivered").isNotNull()))
        ),
    )
    in_time = F.coalesce(F.col("guessed") < F.col("delivered"), F.lit(False)).cast("int")
    moves = judged.withColumn("step", F.explode(taken_back)).withColumn("own", in_time)
    # a message is taken back after its own delivery: -1 sorts after it
    order = Window.partitionBy("run", "process").orderBy("step.at", F.desc("step.is_delivery"), F.desc("step.change"))
    so_far = F.sum("step.change").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return (
        moves.withColumn("waiting", so_far - F.col("own"))
        .where("step.is_delivery")
        .withColumn("rollback", F.col("mistake") & (F.col("waiting") > 0))
    )


def messages_sent_table(facts: Facts) -> DataFrame:
    """Count protocol messages by type. The table is empty unless the trace has send rows."""
    multicasts = facts.messages.groupBy("run").agg(F.count("*").alias("multicasts"))
    by_type = (
        facts.trace.where("kind = 'send'")
        .groupBy("run", "type")
        .agg(F.count("*").alias("sends"), F.sum(F.col("size").cast("bigint")).alias("bytes"))
        .withColumn("type", F.coalesce("type", F.lit("(none)")))
    )
    in_all = (
        facts.census.where("kind = 'send'")
        .groupBy("run")
        .agg(F.sum("rows").alias("sends"), F.sum("bytes").alias("bytes"))
        .withColumn("type", F.lit(None).cast("string"))
    )
    return (
        facts.union(by_type, in_all)
        .join(F.broadcast(multicasts), "run", "left")
        .select(
            *("run", "type", "sends", "bytes"),
            (F.col("sends") / F.col("multicasts")).alias("sends_per_multicast"),
            (F.col("bytes") / F.col("multicasts")).alias("bytes_per_multicast"),
        )
    )


class Table(NamedTuple):
    """The recipe of a table: how it is made, what sorts its collected rows, and the kind of row that it needs."""

    make: Callable[[Facts], DataFrame]
    sorted_by: tuple[str, ...]
    needs: str = ""


TABLES: Final[Mapping[str, Table]] = {
    "runs": Table(runs_table, ("run",)),
    "latency": Table(latency_table, ("run", "role", "group")),
    "latency_by_load": Table(latency_by_load_table, (*LOAD, "role")),
    "latency_cdf": Table(latency_cdf_table, (*LOAD, "role", "percent")),
    "timeline": Table(timeline_table, ("run", "group", "bin")),
    "convoy": Table(convoy_table, ("run", "dest_groups")),
    "optimistic": Table(optimistic_table, ("run", "process"), needs="optdeliver"),
    "messages": Table(messages_sent_table, ("run", "type"), needs="send"),
    "recovery": Table(recovery_table, ("run", "crash_ms", "process"), needs="crash"),
    "incidents": Table(incidents_table, ("run", "time_ms", "process")),
}
