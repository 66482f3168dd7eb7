"""Other systems name their columns otherwise: `theirs=ours,…` says which of their columns is which of ours.

A column that is not named keeps its name, and `theirs=` leaves one out that has our name but another meaning. The
in-memory engine reads such a trace through a renamed copy in a temporary folder, so that there is one reader and one
set of complaints; the Spark engine renames as it reads (`pipeline.tables`).
"""

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.core.trace import COLUMNS, Event
from amcast.errors import TraceError, UsageError
from amcast.tracefile import read_events
from amcast.tracefile.reader import files_of_folder
from amcast.tracefile.text import LineFault, header_of

OPTION: Final = "--columns"

Columns = Mapping[str, str]  # their name -> ours, or "" for a column that is left out


def parse_columns(text: str) -> dict[str, str]:
    """`node=process,msg=message,time=` as {"node": "process", "msg": "message", "time": ""}. Raises UsageError."""
    columns: dict[str, str] = {}
    for pair in text.split(","):
        theirs, equals, ours = (part.strip() for part in pair.partition("="))
        if not equals or not theirs:
            raise UsageError(f"{OPTION} {pair.strip()!r}: expected theirs=ours, such as node=process")
        if ours and ours not in COLUMNS:
            raise UsageError(f"{OPTION} {pair.strip()!r}: {ours!r} is no column of a trace; expected one of {_ours()}")
        if theirs in columns:
            raise UsageError(f"{OPTION}: their column {theirs!r} is named twice; expected it once")
        if ours and ours in columns.values():
            raise UsageError(f"{OPTION}: our column {ours!r} is named twice; expected it once")
        columns[theirs] = ours
    return columns


def name_of(theirs: str, columns: Columns) -> str:
    """What a column of theirs is called here; one whose name is taken by a renamed column is left out."""
    if theirs in columns:
        return columns[theirs]
    return "" if theirs in columns.values() else theirs


def their_name(ours: str, columns: Columns) -> str:
    """What they call a column of ours; "" if it is left out."""
    return next((theirs for theirs in (*columns, ours) if name_of(theirs, columns) == ours), "")


def refuse_unknown(trace: object, columns: Columns, known: object, theirs: set[str]) -> None:
    """A mapping that names a column that is not there is a misspelt one."""
    for name in columns:
        if name not in theirs:
            raise UsageError(
                f"{OPTION}: {trace} has no column {name!r}; it has {known}; correct the name or leave it out"
            )


def read_renamed_events(path: str | Path, columns: Columns) -> Iterator[Event]:
    """What `read_events` gives, of a trace whose columns have other names."""
    trace = Path(path)
    if not columns or not trace.exists():
        yield from read_events(trace)
        return
    with tempfile.TemporaryDirectory(prefix="amcast-columns-") as folder:
        copy = Path(folder) / trace.name
        try:
            _copy(trace, copy, columns)
            yield from read_events(copy)
        except TraceError as error:
            raise TraceError(str(error).replace(str(copy), str(trace))) from error
        except OSError as error:
            raise TraceError(
                f"{trace}: cannot be copied with other column names ({error.strerror or error}); "
                f"expected a readable trace and room in {tempfile.gettempdir()}; free some space"
            ) from error


def _copy(trace: Path, copy: Path, columns: Columns) -> None:
    renamers: dict[str, Callable[[Path, Path, Columns], None]] = {
        ".csv": _copy_csv,
        ".jsonl": _copy_jsonl,
        ".parquet": _copy_parquet,
    }
    if trace.is_dir():
        _copy_folder(trace, copy, columns)
    elif trace.suffix in renamers:
        renamers[trace.suffix](trace, copy, columns)
    else:
        copy.touch()  # read_events says what is wrong with the suffix


def _copy_csv(trace: Path, copy: Path, columns: Columns) -> None:
    with trace.open("rb") as source, copy.open("wb") as target:
        line = source.readline()
        try:
            header = header_of(line)
        except LineFault:
            header = []  # read_events says what is wrong with it
        if header:
            refuse_unknown(trace, columns, ", ".join(header), set(header))
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerow([name_of(name, columns) for name in header])
            line = text.getvalue().encode()
        target.write(line)
        shutil.copyfileobj(source, target)


def _copy_jsonl(trace: Path, copy: Path, columns: Columns) -> None:
    seen: set[str] = set()
    with trace.open("rb") as source, copy.open("wb") as target:
        for line in source:
            seen.update(keys_of(line))
            target.write(renamed(line, columns))
    if seen:
        refuse_unknown(trace, columns, ", ".join(sorted(seen)), seen)


def keys_of(line: bytes) -> set[str]:
    """The names in a JSON line; none if it is no object."""
    return set(_object_of(line) or ())


def renamed(line: bytes, columns: Columns) -> bytes:
    """A JSON line with our names; one that is no object stays as it is, for the reader to complain."""
    row = _object_of(line)
    if row is None:
        return line
    ours = {name_of(theirs, columns): value for theirs, value in row.items()}
    ours.pop("", None)
    return json.dumps(ours).encode() + b"\n"


def _object_of(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _copy_folder(trace: Path, copy: Path, columns: Columns) -> None:
    """Their folders may be named after their columns, as `event=deliver`."""
    theirs = their_name("kind", columns)
    for file, kind in files_of_folder(trace, theirs):
        folder = copy if kind is None else copy / f"kind={kind}"
        folder.mkdir(parents=True, exist_ok=True)
        _copy_parquet(file, folder / file.name, columns, folders=set() if kind is None else {theirs})


def _copy_parquet(trace: Path, copy: Path, columns: Columns, folders: set[str] | None = None) -> None:
    try:
        with pq.ParquetFile(trace) as source:
            theirs = source.schema_arrow.names
            refuse_unknown(trace, columns, ", ".join(theirs), {*theirs, *(folders or ())})
            ours = {name: name_of(name, columns) for name in theirs if name_of(name, columns)}
            fields = [source.schema_arrow.field(name).with_name(our) for name, our in ours.items()]
            with pq.ParquetWriter(copy, pa.schema(fields), compression="zstd", compression_level=1) as target:
                for batch in source.iter_batches(columns=list(ours)):
                    arrays = [batch.column(name) for name in ours]
                    target.write_batch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
    except pa.ArrowException as error:
        raise TraceError(
            f"{trace}: cannot be read ({' '.join(str(error).split())}); expected a complete trace; "
            f"check the file or record the run again"
        ) from error


def _ours() -> str:
    return ", ".join(COLUMNS)
