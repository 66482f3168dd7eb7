"""`make bench`: rows per second of the Spark source, as Arrow batches and as tuples, beside Parquet with the same rows.

    python bench/stream_bench.py [--rows 1000000]

One group of one durable replica, local[2]. The query adds up the lengths of all payloads, so every row is looked at.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from amcast.local.trial import Trial
from amcast.service import connect_sync
from amcast.spark.session import open_session
from amcast.spark.stream.source import AmcastSource, BatchReader, wanted

PAYLOAD = b"twenty bytes of load"
ROUNDS = 3


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


def seconds(rows: DataFrame, expected: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        found = rows.agg(F.count("*"), F.sum(F.length("payload")), F.max("position"), F.max("time")).first()
        best = min(best, time.perf_counter() - began)
        assert found is not None and found[0] == expected and found[1] == expected * len(PAYLOAD)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="the Spark source beside Parquet")
    parser.add_argument("--rows", type=int, default=1_000_000)
    count = parser.parse_args().rows // 1000 * 1000
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
                log = spark.read.format("amcast").option("config", config).load()
                log.write.parquet(str(folder / "rows"))
                found = {
                    "amcast, Arrow batches": seconds(log, count),
                    "amcast, row tuples": seconds(
                        spark.read.format("amcast_tuples").option("config", config).load(), count
                    ),
                    "Parquet": seconds(spark.read.parquet(str(folder / "rows")), count),
                }
    table = Table(title=f"reading {count:,} rows of one group, local[2], the best of {ROUNDS}")
    for column in ("source", "rows/s", "to Arrow batches", "aim"):
        table.add_column(column, justify="left" if column == "source" else "right")
    arrow = found["amcast, Arrow batches"]
    for source, taken in found.items():
        met = "met" if count / taken >= 200_000 else "MISSED"
        aim = f"200,000: {met}" if source.endswith("batches") else ""
        table.add_row(source, f"{count / taken:,.0f}", f"{arrow / taken:.2f}×", aim)
    console.print(table)


if __name__ == "__main__":
    main()
