"""How large a trace is, without reading it."""

from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

LARGE_TRACE_ROWS: Final = 2_000_000


def is_large(trace: str) -> bool:
    """Tell whether a trace is better checked on Spark; what only Spark can read is, whatever its size."""
    path = Path(trace)
    if not path.exists():
        return "://" in trace or any(sign in trace for sign in "*?[{")
    if path.is_dir():
        return sum(rows_of_parquet(file) for file in path.rglob("*.parquet")) > LARGE_TRACE_ROWS
    return (rows_of_parquet if path.suffix == ".parquet" else lines_of)(path) > LARGE_TRACE_ROWS


def rows_of_parquet(file: Path) -> int:
    """Return what its footer says; 0 for a broken file, about which the engine complains."""
    try:
        return int(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowException):
        return 0


def lines_of(file: Path) -> int:
    """Count lines as far as needed; 0 for a file that cannot be read, about which the engine complains."""
    lines = 0
    with suppress(OSError), file.open("rb") as stream:
        while lines <= LARGE_TRACE_ROWS and (chunk := stream.read(1 << 20)):
            lines += chunk.count(b"\n")
    return lines
