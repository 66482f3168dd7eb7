"""The engine on Spark against `amcast.checks`, on random runs that are good or broken in every way we know.

Runs are judged in both ways: by messages, cut as finely as can be, and each run by one task; from Parquet files with a
few rows in a row group, and from rows that Spark reads.
"""

import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bench.verify_bench import MadeTrace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from amcast.checks import PROPERTIES, check
from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.spark.tables import BAD_LINE
from amcast.spark.verify import Division, verify_rows, verify_trace
from amcast.tracefile import read_events
from amcast.tracefile.parts import rows_of
from amcast.verify import Plan, Verdict
from tests.tools import FULL
from tests.verify.random_runs import events_of
from tests.verify.test_kernel import CONTRADICTIONS, MULTICAST, differences, judged

TRACES = Path(__file__).parent.parent / "traces"
ALL = list(PROPERTIES)
BY_MESSAGE = Division(in_a_task=0, rows_per_bucket=20_000, rows_per_part=20_000)
BY_RUN = Division(in_a_task=10**9, rows_per_part=20_000)
LESS = 1 if FULL else 12  # so many times fewer runs
DIVISIONS = pytest.mark.parametrize("division", [BY_MESSAGE, BY_RUN], ids=["by message", "by run"])


def folder_of(events: list[Event], folder: Path, rows: int = 1_000) -> str:
    """Write events into Parquet files by kind, with so many rows in a row group."""
    for kind in dict.fromkeys(event.kind for event in events):
        table = rows_of(event for event in events if event.kind == kind).drop_columns(["kind"])
        (folder / f"kind={kind}").mkdir(parents=True)
        pq.write_table(table, folder / f"kind={kind}" / "part-0.parquet", row_group_size=rows)
    return str(folder)


def judged_rows(spark: SparkSession, events: list[Event], plan: Plan, division: Division) -> list[Verdict]:
    rows = spark.createDataFrame(rows_of(events)).withColumn(BAD_LINE, F.lit(None).cast("string"))
    return verify_rows(rows, "made", plan, division)


@pytest.mark.parametrize(
    ("runs", "seed", "division", "trust_nothing"),
    [
        pytest.param(1200 // LESS, 7, BY_MESSAGE, False, id="by message"),
        pytest.param(400 // LESS, 8, BY_MESSAGE, True, id="by message, black box", marks=pytest.mark.slow),
        pytest.param(1200 // LESS, 9, BY_RUN, False, id="by run"),
    ],
)
def test_both_engines_give_the_same_verdicts(
    spark: SparkSession, tmp_path: Path, runs: int, seed: int, division: Division, trust_nothing: bool
) -> None:
    events = events_of(runs, seed)
    random.Random(seed).shuffle(events)  # no verdict depends on the order of rows
    path = folder_of(events, tmp_path / "trace")
    found = verify_trace(spark, path, ALL, trust_nothing=trust_nothing, division=division)
    assert differences(judged(check(events, ALL)), judged(found)) == {}
    assert len(found) > 0.9 * runs * len(ALL)  # some runs lost all rows


def test_large_and_small_runs_in_one_trace(spark: SparkSession, tmp_path: Path) -> None:
    events = events_of(60, 21)
    path = folder_of(events, tmp_path / "trace")
    found = verify_trace(spark, path, ALL, division=replace(BY_MESSAGE, in_a_task=40))
    assert differences(judged(check(events, ALL)), judged(found)) == {}


@DIVISIONS
def test_the_properties_by_default_are_those_of_the_other_engine(spark: SparkSession, division: Division) -> None:
    events = events_of(40, 3)
    found = judged_rows(spark, events, Plan(), division)
    expected = sorted(check(events), key=lambda verdict: verdict.run)
    assert [(v.run, v.property, v.status) for v in found] == [(v.run, v.property, v.status) for v in expected]


@pytest.mark.parametrize("name", ["duplicate", "unsent", "cycle3", "crashed_gap", "fifo", "causal", "good"])
def test_hand_written_traces(spark: SparkSession, name: str) -> None:
    path = str(TRACES / f"{name}.jsonl")
    expected = {v.property: (v.status, v.reason, v.counterexample) for v in check(read_events(path), ALL)}
    found = {v.property: (v.status, v.reason, v.counterexample) for v in verify_trace(spark, path, ALL)}
    assert found == expected


@DIVISIONS
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictions_are_refused_in_the_words_of_the_other_engine(
    spark: SparkSession, division: Division, what: str
) -> None:
    events = [*CONTRADICTIONS[what], Event("r", "end", "driver", None, 1)]
    with pytest.raises(TraceError) as expected:
        check(events)
    with pytest.raises(TraceError) as found:
        judged_rows(spark, events, Plan(), division)
    assert str(found.value) == f"made: {expected.value}"


@DIVISIONS
def test_the_same_multicast_again_is_a_resend(spark: SparkSession, division: Division) -> None:
    again = Event("r", "multicast", "p", "g0", 8, None, "a", "p", ("g0", "g0"))
    late = Event("r", "deliver", "p", "g0", 8, None, "a")  # the seq of a resend is nobody's
    (verdict,) = judged_rows(spark, [MULTICAST, again, late], Plan(["integrity"]), division)
    assert verdict.status == "ok"


def test_a_verdict_takes_at_most_five_jobs(spark: SparkSession, tmp_path: Path) -> None:
    MadeTrace(100).write(tmp_path / "trace")
    spark.sparkContext.setJobGroup("counted", "counted")
    try:
        verdicts = verify_trace(spark, str(tmp_path / "trace"), division=BY_MESSAGE)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("counted")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert {verdict.status for verdict in verdicts} == {"ok"}
    assert 1 <= len(jobs) <= 5
