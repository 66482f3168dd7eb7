"""What a crash does to throughput and latency over time, from the rows of a trace.

In a group a message counts when it is first delivered there (by the leader, as a rule). At the clients it counts when
it was first delivered in every one of its groups. Both are put in the bin of that moment, with the time since the
multicast.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amcast.spark.metric_tables import MILLISECOND, SECOND

CLIENTS: Final = "clients"
LAST: Final = 7  # bins at the end of a run that show whether and where it has settled
STEADY: Final = 1.5  # times that latency is still steady
OTHER: Final = 3.0  # times the latency before the crash is too much to have settled

Rows = Sequence[Mapping[str, Any]]


def delivery_bins(trace: DataFrame, bin_ns: int) -> DataFrame:
    """Return rate and mean latency per run, place (a group, or all clients) and bin with a delivery."""
    sent = trace.where("kind = 'multicast'").select(
        *("run", "message"), F.col("time").alias("sent"), F.size("dest").alias("k")
    )
    firsts = trace.where("kind = 'deliver'").groupBy("run", "message", "group").agg(F.min("time").alias("at"))
    in_groups = firsts.join(sent, ["run", "message"])
    whole = (
        in_groups.groupBy("run", "message", "sent", "k")
        .agg(F.max("at").alias("at"), F.count("*").alias("reached"))
        .where("reached = k")
        .withColumn("place", F.lit(CLIENTS))
    )
    places = in_groups.withColumnRenamed("group", "place")
    columns = ("run", "place", "sent", "at")
    return (
        places.select(*columns)
        .unionByName(whole.select(*columns))
        .groupBy("run", "place", F.floor(F.col("at") / bin_ns).alias("bin"))
        .agg(F.count("*").alias("messages"), (F.avg(F.col("at") - F.col("sent")) / MILLISECOND).alias("latency_ms"))
        .select(
            *("run", "place", "bin"),
            (F.col("bin") * bin_ns / SECOND).alias("start_s"),
            (F.col("messages") * SECOND / bin_ns).alias("messages_per_second"),
            "latency_ms",
        )
        .orderBy("run", "place", "bin")
    )


def deliveries_at(trace: DataFrame, process: str) -> DataFrame:
    """Count the deliveries of this process at each moment, with the pause before it."""
    here = trace.where((F.col("kind") == "deliver") & (F.col("process") == process))
    before = F.lag("time", 1, 0).over(Window.partitionBy("run").orderBy("time"))
    return (
        here.groupBy("run", "time")
        .agg(F.count("*").alias("deliveries"))
        .withColumn("pause", F.col("time") - before)
        .orderBy("run", "time")
    )


def with_empty_bins(bins: Rows, bin_ns: int) -> list[dict[str, Any]]:
    """Add the bins in between, in which nothing was delivered."""
    found = {(row["run"], row["place"], row["bin"]): row for row in bins}
    places = dict.fromkeys((row["run"], row["place"]) for row in bins)
    last = {run: max(row["bin"] for row in bins if row["run"] == run) for run, _ in places}
    nothing = {"messages_per_second": 0.0, "latency_ms": None}
    return [
        {"run": run, "place": place, "bin": n, "start_s": n * bin_ns / SECOND, **nothing}
        | dict(found.get((run, place, n), {}))
        for run, place in places
        for n in range(last[run] + 1)
    ]


def crashes(trace: DataFrame) -> DataFrame:
    """Describe each crash of a replica, in seconds.

    `crash_s` is when it was, `leader_s` how long its group had no other leader, and `pause_s` the longest time since
    without a new delivery. `cleared_s` is from the new leader until all that was multicast before it was delivered.
    """
    crashed = trace.where("kind = 'crash' and `group` is not null").select(
        *("run", "group", "process", F.col("time").alias("crash"))
    )
    keys = ["run", "group", "process", "crash"]
    leaders = trace.where("kind = 'leader'").select("run", "group", F.col("time").alias("leader"))
    later = crashed.join(leaders, ["run", "group"]).where("leader > crash")
    led = crashed.join(later.groupBy(*keys).agg(F.min("leader").alias("leader")), keys, "left")
    sent = trace.where("kind = 'multicast'").select("run", "message", F.col("time").alias("sent"))
    firsts = trace.where("kind = 'deliver'").groupBy("run", "message", "group").agg(F.min("time").alias("at"))
    since = firsts.join(F.broadcast(crashed), ["run", "group"]).where("at > crash")
    one_before = F.coalesce(F.lag("at").over(Window.partitionBy(*keys).orderBy("at")), "crash")
    pauses = since.withColumn("pause", F.col("at") - one_before).groupBy(*keys).agg(F.max("pause").alias("pause"))
    old = firsts.drop("group").join(sent, ["run", "message"]).join(F.broadcast(led), "run").where("sent <= leader")
    return (
        led.join(pauses, keys, "left")
        .join(old.groupBy(*keys).agg(F.max("at").alias("cleared")), keys, "left")
        .select(
            *("run", "group", "process"),
            (F.col("crash") / SECOND).alias("crash_s"),
            ((F.col("leader") - F.col("crash")) / SECOND).alias("leader_s"),
            (F.col("pause") / SECOND).alias("pause_s"),
            ((F.col("cleared") - F.col("leader")) / SECOND).alias("cleared_s"),
        )
        .orderBy("run", "crash_s", "process")
    )


def settled_s(bins: Rows, bin_s: float, crash_s: float, led_s: float, end_s: float) -> float | None:
    """Return the time from the new leader until the latency at clients is steady; None if it is not by the end.

    The steady latency may differ from the one before, because the new leader may be elsewhere. It is that of the last
    bins, if this is at most a few times what it was before. `bins` are those of one run at the clients, including empty
    ones. Only whole bins count, while clients still multicast, and not the first one, in which all start at once.
    """
    whole = [row for row in bins if bin_s <= row["start_s"] <= end_s - bin_s]
    before = sorted(row["latency_ms"] or inf for row in whole if row["start_s"] <= crash_s - bin_s)
    after = [row for row in whole if row["start_s"] >= led_s]
    last = sorted(row["latency_ms"] or inf for row in after[-LAST:])
    if not before or len(last) < LAST or last[LAST // 2] > OTHER * before[len(before) // 2]:
        return None
    unsteady = [row["start_s"] for row in after if (row["latency_ms"] or inf) > STEADY * last[LAST // 2]]
    settled = max(unsteady, default=led_s - bin_s) + bin_s
    return float(settled - led_s) if settled <= after[-LAST]["start_s"] else None
