"""How large a trace is, without reading it, and where it is best verified."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from amcast.places import Place, is_uri, place_of
from amcast.tracefile.reader import parquet_file

LARGE_TRACE_ROWS: Final = 2_000_000  # more are not drawn
# Measured on two cores (bench/verify_bench.py): memory and CPU time of an event in one process, and those of Spark.
BYTES_PER_ROW: Final = 250
SECONDS_PER_ROW: Final = 1.5e-6
SECONDS_PER_ROW_ON_SPARK: Final = 2e-6
SECONDS_TO_START_SPARK: Final = 15.0


def is_large(trace: str) -> bool:
    """Tell whether a trace has too many events to look at each again."""
    return only_for_spark(trace) or count_rows(trace) > LARGE_TRACE_ROWS


def only_for_spark(trace: str) -> bool:
    """Tell whether only Spark can read it: a pattern."""
    return not is_uri(trace) and not Path(trace).exists() and any(sign in trace for sign in "*?[{")


def spark_pays(trace: str, cores: int | None = None, free: int | None = None) -> bool:
    """Tell whether a trace is better verified on Spark: it does not fit in free memory, or is done sooner there."""
    if only_for_spark(trace):
        return True
    rows = count_rows(trace)
    if rows * BYTES_PER_ROW > (free_memory() if free is None else free) / 2:
        return True
    cores = cores or os.cpu_count() or 1
    return rows * (SECONDS_PER_ROW - SECONDS_PER_ROW_ON_SPARK / cores) > SECONDS_TO_START_SPARK


def free_memory() -> int:
    """Return how many bytes programs can still use; if the system does not say, those of a small machine."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return 4 << 30


def count_rows(trace: str) -> int:
    """Return how many events a trace has; of text only as far as LARGE_TRACE_ROWS."""
    path = place_of(trace)
    if path.is_dir():
        return sum(rows_of_parquet(file) for file in path.rglob("*.parquet"))
    return (rows_of_parquet if path.suffix == ".parquet" else lines_of)(path)


def rows_of_parquet(file: Place) -> int:
    """Return what its footer says; 0 for a broken file, about which the engine complains."""
    try:
        with parquet_file(file) as opened:
            return int(opened.metadata.num_rows)
    except (OSError, pa.ArrowException):
        return 0


def lines_of(file: Place) -> int:
    """Count lines as far as needed; 0 for a file that cannot be read, about which the engine complains."""
    lines = 0
    with suppress(OSError), file.open("rb") as stream:
        while lines <= LARGE_TRACE_ROWS and (chunk := stream.read(1 << 20)):
            lines += chunk.count(b"\n")
    return lines
