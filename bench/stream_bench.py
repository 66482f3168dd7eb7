"""`make bench`: rows per second of the Spark source, as Arrow batches and as tuples, beside Parquet with the same rows.

    python bench/stream_bench.py [--rows 1000000] [--rounds 3]

One group of one durable replica, local[2]. The query adds up the lengths of all payloads, so every row is looked at.
CPU seconds are those of Spark and its workers; those of the replica, which sends the rows, are not among them.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from verify_bench import cpu_of

from amcast.local.trial import Trial
from amcast.service import connect_sync
from amcast.spark.session import open_session
from amcast.spark.stream.source import AmcastSource, BatchReader, wanted

PAYLOAD = b"twenty bytes of load"
PARTS = {"min_partitions": "2"}


class TupleReader(BatchReader):
    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:  # type: ignore[override]
        for batch in super().read(partition):
            for row in zip(*[column.to_pylist() for column in batch.columns], strict=True):
                ts = row[2]
                yield (*row[:2], (ts["time"], ts["tie"]), *row[3:])


class Tuples(AmcastSource):
    @classmethod
    def name(cls) -> str:
        return "amcast_tuples"

    def reader(self, schema: Any) -> TupleReader:
        return TupleReader(wanted(self.options))


def seconds(rows: DataFrame, expected: int, rounds: int) -> tuple[float, float]:
    """The least time of a round, and the least CPU time."""
    best = least = float("inf")
    for _ in range(rounds):
        began, used = time.perf_counter(), spark_cpu()
        found = rows.agg(F.count("*"), F.sum(F.length("payload")), F.max("position"), F.max("time")).first()
        best, least = min(best, time.perf_counter() - began), min(least, spark_cpu() - used)
        assert found is not None and found[0] == expected and found[1] == expected * len(PAYLOAD)
    return best, least


def spark_cpu() -> float:
    """CPU seconds of this program, of the JVM below it and of the JVM's workers."""
    context = SparkContext._active_spark_context
    assert context is not None
    own = os.times()
    return own.user + own.system + cpu_of(context._gateway.proc.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description="the Spark source beside Parquet")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    count, rounds = asked.rows // 1000 * 1000, asked.rounds
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as name:
        folder = Path(name)
        with Trial(folder / "c", groups=1, replicas=1, app="log", secure=False, traced=False) as trial:
            config = str(trial.config.path)
            began = time.perf_counter()
            with connect_sync(config, deadline=120) as client:
                client.multicast_batches(((0,), [PAYLOAD] * 1000) for _ in range(count // 1000))
            console.print(f"{count:,} rows multicast at {count / (time.perf_counter() - began):,.0f}/s")
            with open_session("stream bench", master="local[2]") as spark:
                spark.dataSource.register(Tuples)
                log = spark.read.format("amcast").options(config=config, **PARTS).load()
                log.write.parquet(str(folder / "rows"))
                found = {
                    "amcast, Arrow batches": seconds(log, count, rounds),
                    "amcast, in one partition": seconds(
                        spark.read.format("amcast").option("config", config).load(), count, rounds
                    ),
                    "amcast, row tuples": seconds(
                        spark.read.format("amcast_tuples").options(config=config, **PARTS).load(), count, rounds
                    ),
                    "Parquet": seconds(spark.read.parquet(str(folder / "rows")), count, rounds),
                }
    table = Table(title=f"reading {count:,} rows of one group, local[2], the best of {rounds}, 2 partitions")
    for column in ("source", "rows/s", "to Arrow batches", "rows per CPU s", "aim"):
        table.add_column(column, justify="left" if column == "source" else "right")
    arrow, _ = found["amcast, Arrow batches"]
    for source, (taken, cpu) in found.items():
        met = "met" if count / taken >= 200_000 else "MISSED"
        aim = f"200,000: {met}" if source.endswith("batches") else ""
        table.add_row(source, f"{count / taken:,.0f}", f"{arrow / taken:.2f}×", f"{count / cpu:,.0f}", aim)
    console.print(table)


if __name__ == "__main__":
    main()
