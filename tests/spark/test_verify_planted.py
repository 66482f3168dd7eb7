"""Violations planted in a run of thousands of messages are found by the huge tier, and nothing else is.

`bench/verify_bench.py --planted` does the same in six million deliveries.
"""

from pathlib import Path

import pytest
from bench.verify_bench import PROPERTIES, planted
from pyspark.sql import SparkSession

from amcast.spark.tables import read_rows
from amcast.spark.verify import Plan, verify_rows

MESSAGES = 3_000


@pytest.mark.parametrize("number", [0, 1], ids=["duplicate, cycle, causal chain, stranger", "gap, late fifo"])
def test_what_is_planted_is_found_and_nothing_else(spark: SparkSession, tmp_path: Path, number: int) -> None:
    trace, expected = planted(MESSAGES)[number]
    trace.write(tmp_path / "trace")
    plan = Plan("planted", PROPERTIES, trust_nothing=True, rows_per_bucket=20_000, places_per_block=100)
    verdicts = verify_rows(read_rows(spark, str(tmp_path / "trace")), plan, small=0)
    assert [verdict.property for verdict in verdicts] == PROPERTIES
    found = {
        verdict.property: {row.message for row in verdict.counterexample if row.message is not None}
        for verdict in verdicts
        if verdict.status != "ok"
    }
    after = {"order": 1} if "termination" in expected else {}  # a gap is one because of what was delivered after it
    assert set(found) == set(expected)
    assert all(expected[name] <= found[name] for name in expected)
    assert {name: len(found[name] - expected[name]) for name in found if found[name] != expected[name]} == after
