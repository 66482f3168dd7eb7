"""The Spark engine against the in-memory one, on random runs that are good or broken in every way we know."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from amcast.check import PROPERTIES, check
from amcast.core.errors import TraceError, UsageError
from amcast.core.trace import COLUMNS, Event
from amcast.pipeline.tables import BAD_LINE
from amcast.pipeline.verify import Plan, verify_rows, verify_trace
from amcast.tracefile.schema import COLUMN_TYPES
from tests.pipeline.random_runs import random_runs

TRACES = Path(__file__).parent.parent / "traces"
ALL = list(PROPERTIES)


def table_of(events: list[Event]) -> pa.Table:
    columns = {}
    for name in COLUMNS:
        values = [getattr(event, name) for event in events]
        if name == "ts":
            values = [None if value is None else {"time": value[0], "tie": value[1]} for value in values]
        columns[name] = pa.array(values, COLUMN_TYPES[name])
    return pa.table(columns)


@pytest.mark.parametrize(
    ("small", "trust_nothing"), [(0, False), (0, True), (10**9, False)], ids=["huge", "huge-black-box", "small"]
)
def test_both_engines_give_the_same_verdicts(spark: SparkSession, small: int, trust_nothing: bool) -> None:
    """Each of the two tiers of the Spark engine is made to judge all runs, with and without timestamps."""
    events = [event for run in random_runs(400, seed=7) for event in run.events()]
    expected = {(v.run, v.property): (v.status, v.figure) for v in check(events, ALL)}
    rows = spark.createDataFrame(table_of(events)).withColumn(BAD_LINE, F.lit(None).cast("string"))
    found = {(v.run, v.property): (v.status, v.figure) for v in verify_rows(rows, Plan("x", ALL, trust_nothing), small)}
    assert {key: (expected[key], found.get(key)) for key in expected if expected[key] != found.get(key)} == {}
    assert {status for status, _ in expected.values()} == {"ok", "violated", "unknown"}


@pytest.mark.parametrize("name", ["duplicate", "unsent", "cycle3", "crashed_gap", "fifo", "causal", "good"])
def test_hand_written_traces(spark: SparkSession, name: str) -> None:
    from amcast.tracefile import read_events

    path = str(TRACES / f"{name}.jsonl")
    expected = {v.property: (v.status, v.reason) for v in check(read_events(path), ALL)}
    found = {v.property: (v.status, v.reason) for v in verify_trace(spark, path, ALL)}
    assert found == expected


def test_bad_input_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as missing:
        verify_trace(spark, str(tmp_path / "nothing"))
    assert "\n" not in str(missing.value)
    with pytest.raises(UsageError, match="colour"):
        verify_trace(spark, str(TRACES / "good.jsonl"), ["colour"])
