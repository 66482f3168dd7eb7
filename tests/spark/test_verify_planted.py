"""Violations planted in a run of thousands of messages are found by both engines, and nothing else is.

`bench/verify_bench.py --planted` does the same in six million deliveries.
"""

from pathlib import Path

import pytest
from bench.verify_bench import PROPERTIES, planted
from pyspark.sql import SparkSession

from amcast.spark.verify import Division, verify_trace
from amcast.verify import verify_trace as verify_here

MESSAGES = 3_000


@pytest.mark.parametrize("number", [0, 1], ids=["duplicate, cycle, causal chain, stranger", "gap, late fifo"])
def test_what_is_planted_is_found_and_nothing_else(spark: SparkSession, tmp_path: Path, number: int) -> None:
    trace, expected = planted(MESSAGES)[number]
    trace.write(tmp_path / "trace")
    path = str(tmp_path / "trace")
    finely = Division(in_a_task=0, rows_per_bucket=5_000, rows_per_part=7_000)
    verdicts = verify_trace(spark, path, PROPERTIES, trust_nothing=True, division=finely)
    here = verify_here(path, PROPERTIES)
    assert [(v.property, v.status, v.evidence) for v in here] == [(v.property, v.status, v.evidence) for v in verdicts]
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
