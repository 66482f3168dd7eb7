"""A sweep of CPU-bound simulations on Spark, `local[2]`, beside the processes that run it without Spark.

Both run the same function on the same rows, which writes the same lines. Spark and its workers are up before the clock
starts: what is compared is what Spark adds to a row. They take turns, and the table shows medians. The time that Spark
needs to start, once per command, is shown beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amcast
from amcast.spark.processes import run_in_processes
from amcast.spark.row import Output
from amcast.spark.session import open_session
from amcast.spark.spec import Row, spec_of
from amcast.spark.sweep import batches_of, configs_of, read_runs, run_rows

CORES = 2
MOST = 1.15  # times what the pool takes


def rows_of(count: int, messages: int) -> list[Row]:
    """Rows of unequal length, as those of a sweep are."""
    document = {
        "protocol": "white_box",
        "groups": 10,
        "clients": 50,
        "dest_groups": [1, 2, 4],
        "network": "uniform:1ms,9ms",
        "messages": messages,
        "seeds": max(1, count // 3),
    }
    return spec_of(document, "bench", "bench").rows()


def timed(work: Callable[[], None], rows: list[Row], out: Path) -> float:
    started = time.monotonic()
    work()
    taken = time.monotonic() - started
    assert read_runs(out)["run"].to_pylist() == sorted(row.run for row in rows)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="a sweep on Spark beside processes")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--messages", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    rows = rows_of(asked.rows, asked.messages if amcast.compiled() else asked.messages // 8)
    times: dict[str, list[float]] = {"pool": [], "Spark": []}
    batches = batches_of(rows)
    configs = {name: configs_of(of) for name, of in batches.items()}
    with tempfile.TemporaryDirectory() as scratch:
        started = time.monotonic()
        settings = {"spark.driver.memory": "1g"}
        with open_session("bench", master=f"local[{CORES},3]", settings=settings, brief=True) as session:
            first = rows_of(3 * CORES, 20)
            run_rows(session, batches_of(first), Output(Path(scratch, "first"), "none"), lambda: None)
            start_up = time.monotonic() - started
            for number in range(asked.rounds):
                here = Output(Path(scratch, f"pool {number}"), "none")
                there = Output(Path(scratch, f"spark {number}"), "none")
                times["pool"].append(timed(partial(run_in_processes, configs, here, int), rows, here.out))
                times["Spark"].append(timed(partial(run_rows, session, batches, there, int), rows, there.out))
    pool_s, spark_s = (statistics.median(times[name]) for name in ("pool", "Spark"))
    table = Table(title=f"{len(rows)} CPU-bound simulations on {CORES} cores, seconds (median of {asked.rounds})")
    for column in ("processes", "Spark", "ratio", "wanted", "Spark's start"):
        table.add_column(column, justify="right")
    ratio = spark_s / pool_s
    table.add_row(f"{pool_s:.2f}", f"{spark_s:.2f}", f"{ratio:.2f}", f"at most {MOST}", f"{start_up:.1f}")
    Console(width=120 if "COLUMNS" not in os.environ else None).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
