"""The Spark engine against the in-memory one, on random runs that are good or broken in every way we know.

Both tiers of the Spark engine are made to judge all runs: `small=0` sends every run to the tables of the huge tier, cut
as finely as they can be, and `small=10**9` judges each run in a task of its own.
"""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amcast.checks import PROPERTIES, Verdict, check
from amcast.checks.agreement import NOBODY_UP
from amcast.checks.history import CUT_OFF, NOTHING_DELIVERED, NOTHING_KNOWN, NOTHING_MULTICAST, SOLITARY
from amcast.checks.termination import NOTHING_DUE
from amcast.core.trace import COLUMNS, Event
from amcast.errors import TraceError
from amcast.spark.tables import BAD_LINE
from amcast.spark.verify import Plan, verify_rows, verify_trace
from amcast.tracefile import read_events
from amcast.tracefile.schema import COLUMN_TYPES
from tests.spark.random_runs import random_runs
from tests.tools import FULL

TRACES = Path(__file__).parent.parent / "traces"
ALL = list(PROPERTIES)
FINELY = Plan("made", ALL, rows_per_bucket=20_000, places_per_block=3)
HUGE, SMALL = 0, 10**9
LESS = 1 if FULL else 12  # so many times fewer runs
TIERS = pytest.mark.parametrize("small", [HUGE, SMALL], ids=["huge", "small"])


def events_of(runs: int, seed: int) -> list[Event]:
    return [event for run in random_runs(runs, seed) for event in run.events()]


def rows_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    columns = {}
    for name in COLUMNS:
        values = [getattr(event, name) for event in events]
        if name == "ts":
            values = [None if value is None else {"time": value[0], "tie": value[1]} for value in values]
        columns[name] = pa.array(values, COLUMN_TYPES[name])
    return spark.createDataFrame(pa.table(columns)).withColumn(BAD_LINE, F.lit(None).cast("string"))


Judged = dict[tuple[str, str], tuple[object, ...]]


def judged(verdicts: list[Verdict]) -> Judged:
    """Counter-examples may differ, all else is the same: also what a verdict rests on, and why there is none."""
    return {
        (v.run, v.property): (v.status, v.figure, v.evidence, v.reason if v.status == "unknown" else "")
        for v in verdicts
    }


def differences(expected: Judged, found: Judged) -> dict[tuple[str, str], object]:
    return {
        key: (expected.get(key), found.get(key)) for key in {*expected, *found} if expected.get(key) != found.get(key)
    }


@pytest.mark.parametrize(
    ("runs", "seed", "small", "trust_nothing"),
    [
        pytest.param(1200 // LESS, 7, HUGE, False, id="huge"),
        pytest.param(400 // LESS, 8, HUGE, True, id="huge-black-box", marks=pytest.mark.slow),
        pytest.param(1200 // LESS, 9, SMALL, False, id="small"),
    ],
)
def test_both_engines_give_the_same_verdicts(
    spark: SparkSession, runs: int, seed: int, small: int, trust_nothing: bool
) -> None:
    events = events_of(runs, seed)
    found = verify_rows(rows_of(spark, events), replace(FINELY, trust_nothing=trust_nothing), small)
    random.Random(seed).shuffle(events)  # no verdict depends on the order of rows
    assert differences(judged(check(events, ALL)), judged(found)) == {}
    assert len(found) > 0.9 * runs * len(ALL)  # some runs lost all rows
    for verdict in found:  # what the huge tier shows is by itself a trace that breaks the property
        assert bool(verdict.counterexample) == bool(verdict.reason) == (verdict.status == "violated") or (
            verdict.status == "unknown" and verdict.reason and not verdict.counterexample
        )


def test_the_random_runs_reach_every_answer_and_what_sets_the_properties_apart() -> None:
    """Else the comparisons above would compare nothing."""
    reached: Counter[str] = Counter()
    verdicts = check(events_of(2000, 7), ALL)
    for verdict in verdicts:
        reached[f"{verdict.property} {verdict.status}"] += 1
        if verdict.property == "order":
            reached["a cycle of three or more"] += len(verdict.counterexample) >= 6
            reached["a gap in a cycle"] += any(row.kind == "multicast" for row in verdict.counterexample)
            reached["a gap of a crashed process"] += (
                "(crashed) delivered" in verdict.reason and "never" in verdict.reason
            )
    by_run = {(verdict.run, verdict.property): verdict.status for verdict in verdicts}
    for run in {run for run, _ in by_run}:
        reached["fifo kept, causal order broken"] += (by_run[run, "fifo"], by_run[run, "causal"]) == ("ok", "violated")
        statuses = (by_run[run, "agreement"], by_run[run, "agreement-nonuniform"])
        reached["only uniform agreement broken"] += statuses == ("violated", "ok")
    expected = {f"{name} {status}" for name in ALL for status in ("ok", "violated", "unknown")}
    reasons = (
        NOTHING_DELIVERED, NOTHING_MULTICAST, NOTHING_KNOWN, CUT_OFF, SOLITARY, NOBODY_UP, NOTHING_DUE,
        "of which no process is", "members are in the trace",
    )  # fmt: skip
    for reason in reasons:
        reached[reason] = sum(verdict.status == "unknown" and reason in verdict.reason for verdict in verdicts)
    assert expected <= set(reached)
    assert min(reached.values()) >= 5, reached


@TIERS
def test_the_properties_by_default_are_those_of_the_other_engine(spark: SparkSession, small: int) -> None:
    events = events_of(40, 3)
    found = verify_rows(rows_of(spark, events), replace(FINELY, properties=None), small)
    expected = sorted(check(events), key=lambda verdict: verdict.run)
    assert [(v.run, v.property, v.status) for v in found] == [(v.run, v.property, v.status) for v in expected]


@pytest.mark.parametrize("name", ["duplicate", "unsent", "cycle3", "crashed_gap", "fifo", "causal", "good"])
def test_hand_written_traces(spark: SparkSession, name: str) -> None:
    path = str(TRACES / f"{name}.jsonl")
    expected = {v.property: (v.status, v.reason, v.counterexample) for v in check(read_events(path), ALL)}
    found = {v.property: (v.status, v.reason, v.counterexample) for v in verify_trace(spark, path, ALL)}
    assert found == expected


@pytest.mark.slow
def test_seqs_that_fill_the_whole_range_of_int64(spark: SparkSession) -> None:
    """They do not fit on one line, and are numbered again."""
    events = events_of(12, 5)
    for event in events:
        event.seq = (event.seq - 20) * 2**57 if event.kind not in ("start", "end") else 0
    found = verify_rows(rows_of(spark, events), FINELY, HUGE)
    assert differences(judged(check(events, ALL)), judged(found)) == {}


# ---------------------------------------------------------------- rows that contradict each other

MULTICAST = Event("r", "multicast", "p", "g0", 7, None, "a", "p", ("g0",))
CONTRADICTIONS = {
    "two deliveries with one seq": [Event("r", "deliver", "q", "g0", 1, None, m) for m in "ab"],
    "two kinds with one seq": [MULTICAST, Event("r", "deliver", "p", "g0", 7, None, "a")],
    "a crash with the seq of a delivery": [
        Event("r", "deliver", "q", "g0", 1, None, "a"),
        Event("r", "crash", "q", None, 1),
    ],
    "two groups": [MULTICAST, Event("r", "start", "p", "g1", 1)],
    "two senders": [MULTICAST, Event("r", "multicast", "q", None, 1, None, "a", "q", ("g0",))],
    "two destinations": [MULTICAST, Event("r", "multicast", "p", "g0", 9, None, "a", "p", ("g0", "nowhere"))],
}


@TIERS
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictions_are_refused_in_the_words_of_the_other_engine(
    spark: SparkSession, small: int, what: str
) -> None:
    events = [*CONTRADICTIONS[what], Event("r", "end", "driver", None, 1)]
    with pytest.raises(TraceError) as expected:
        check(events)
    with pytest.raises(TraceError) as found:
        verify_rows(rows_of(spark, events), replace(FINELY, path="made", properties=None), small)
    assert str(found.value) == f"made: {expected.value}"


@TIERS
def test_the_same_multicast_again_is_a_resend(spark: SparkSession, small: int) -> None:
    again = Event("r", "multicast", "p", "g0", 8, None, "a", "p", ("g0", "g0"))
    late = Event("r", "deliver", "p", "g0", 8, None, "a")  # the seq of a resend is nobody's
    (verdict,) = verify_rows(rows_of(spark, [MULTICAST, again, late]), replace(FINELY, properties=["integrity"]), small)
    assert verdict.status == "ok"
