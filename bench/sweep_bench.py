"""A sweep of CPU-bound simulations on Spark, `local[2]`, beside `multiprocessing.Pool(2)` with the same rows.

Both run the same function on the same rows, which writes the same lines, and both have their two processes up before
the clock starts: what is compared is what Spark adds to a row. They take turns, and the table shows medians. The time
that Spark needs to start, once per command, is shown beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amcast
from amcast.spark.row import Place, run_row
from amcast.spark.session import open_session
from amcast.spark.spec import Row, spec_of
from amcast.spark.sweep import done_runs, run_rows

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


def run_pair(pair: tuple[str, str], place: Place) -> str:
    return run_row(*pair, place)[0]


def timed_pool(pool: Pool, rows: list[Row], out: Path) -> float:
    started = time.monotonic()
    work = partial(run_pair, place=Place(str(out), "none"))
    for _ in pool.imap_unordered(work, [(row.run, row.config) for row in rows]):
        pass
    return time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="a sweep on Spark beside a pool of processes")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--messages", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    rows = rows_of(asked.rows, asked.messages if amcast.compiled() else asked.messages // 8)
    times: dict[str, list[float]] = {"pool": [], "Spark": []}
    with tempfile.TemporaryDirectory() as scratch, get_context("spawn").Pool(CORES) as pool:
        started = time.monotonic()
        settings = {"spark.driver.memory": "1g"}
        with open_session("bench", master=f"local[{CORES},3]", settings=settings, brief=True) as session:
            first = rows_of(3 * CORES, 20)
            run_rows(session, first, Place(f"{scratch}/first", "none"), lambda: None)
            start_up = time.monotonic() - started
            timed_pool(pool, first, Path(scratch, "first pool"))
            for number in range(asked.rounds):
                times["pool"].append(timed_pool(pool, rows, Path(scratch, f"pool {number}")))
                out = Path(scratch, f"spark {number}")
                (out / "runs").mkdir(parents=True)
                started = time.monotonic()
                run_rows(session, rows, Place(str(out), "none"), lambda: None)
                times["Spark"].append(time.monotonic() - started)
                assert done_runs(out) == {row.run for row in rows} == done_runs(Path(scratch, f"pool {number}"))
    pool_s, spark_s = (statistics.median(times[name]) for name in ("pool", "Spark"))
    table = Table(title=f"{len(rows)} CPU-bound simulations on {CORES} cores, seconds (median of {asked.rounds})")
    for column in ("multiprocessing.Pool", "Spark", "ratio", "wanted", "Spark's start"):
        table.add_column(column, justify="right")
    ratio = spark_s / pool_s
    table.add_row(f"{pool_s:.2f}", f"{spark_s:.2f}", f"{ratio:.2f}", f"at most {MOST}", f"{start_up:.1f}")
    Console(width=120 if "COLUMNS" not in os.environ else None).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
