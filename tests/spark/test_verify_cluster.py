"""Executors in processes of their own give what those inside the driver's JVM give: nothing is shared by accident."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amcast.checks import PROPERTIES
from amcast.spark.metrics import collect_from
from amcast.spark.session import MASTER_VARIABLE, SETTINGS_VARIABLE, open_session
from amcast.spark.spec import spec_of
from amcast.spark.sweep import read_runs, sweep
from amcast.spark.tables import read_rows
from amcast.spark.verify import Division, verify_rows, verify_trace
from amcast.tracefile import write_jsonl
from amcast.verify import Plan
from tests.verify.random_runs import random_runs

ROOT = Path(__file__).parent.parent.parent
CLUSTER = "local-cluster[2,1,1024]"
SPEC = """
    protocol = ["skeen", "white_box"]
    groups = 2
    clients = 3
    messages = 40
    network = "uniform:1ms,9ms"
    trace = "full"
    seeds = 2
"""
PROGRAM = "import json, tests.spark.test_verify_cluster as test; print(json.dumps(test.results('.'), default=str))"
QUICK = "-XX:TieredStopAtLevel=1"


def results(folder: str) -> dict[str, Any]:
    """What a sweep, both tiers of the verification (of broken runs as well) and the metrics say."""
    made = f"{folder}/made.jsonl"
    write_jsonl(made, [event for run in random_runs(8, 11) for event in run.events()])
    with open_session("cluster test") as spark:
        done = sweep(spec_of(tomllib.loads(SPEC), "small", "small.toml"), Path(folder) / "sweep")
        found: dict[str, Any] = {"master": spark.sparkContext.master, "statuses": dict(done.statuses)}
        found["runs"] = read_runs(done.out).drop_columns(["wall_s"]).to_pylist()
        plan = Plan(list(PROPERTIES), trust_nothing=True, places_per_block=50)
        for tier, rows in (("large", 0), ("small", 10**9)):
            division = Division(in_a_task=rows, rows_per_bucket=500, rows_per_part=300)
            by_spark = verify_rows(read_rows(spark, made), "made", plan, division)
            by_tasks = verify_trace(spark, f"{folder}/sweep/trace", list(PROPERTIES), division=division)
            found[tier] = [verdict.as_dict() for verdict in (*by_spark, *by_tasks)]
        measured = collect_from(f"{folder}/sweep/trace")
        found["metrics"] = {name: table.to_pylist() for name, table in measured.tables.items()}
    return found


@pytest.mark.slow
def test_separate_executors_sweep_verify_and_measure_the_same(spark: SparkSession, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    options = "".join(f"spark.{who}.extraJavaOptions={QUICK};" for who in ("driver", "executor"))
    environment = os.environ | {
        MASTER_VARIABLE: CLUSTER,
        SETTINGS_VARIABLE: f"{options}spark.driver.memory=1g;spark.sql.shuffle.partitions=2",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, cwd=there, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    on_cluster = json.loads(done.stdout)
    alone = json.loads(json.dumps(results(str(here)), default=str))
    assert (on_cluster.pop("master"), alone.pop("master")) == (CLUSTER, "local[2,3]")
    assert on_cluster["statuses"] == {"ok": 4}
    assert {verdict["status"] for verdict in on_cluster["large"]} == {"ok", "violated", "unknown"}
    for part in alone:
        assert on_cluster[part] == alone[part], part
    assert not list(tmp_path.glob("amcast-spark-*"))
