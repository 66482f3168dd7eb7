"""Reads a trace in any of its forms as a stream of events, batch by batch, and says clearly what is wrong with it."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.core.trace import KINDS, REQUIRED_COLUMNS, Event
from amcast.errors import TraceError
from amcast.places import Place, Remote, one_line, place_of
from amcast.tracefile.columns import Columns, name_of, refuse_unknown, their_name
from amcast.tracefile.commits import parts_that_count, sweep_of
from amcast.tracefile.out import RUN_FILES
from amcast.tracefile.schema import (
    COLUMN_TYPES,
    IN_EVERY_ROW,
    KINDS_WITH_MESSAGE,
    fault_of,
    null_in_list,
    null_value,
    unknown_kind,
)
from amcast.tracefile.text import read_csv, read_jsonl

# What `amcast` itself writes into the folder of a trace.
BESIDE_A_TRACE: Final = RUN_FILES | {"verdicts.json", "verdicts.parquet", "counterexamples.parquet", "violation.svg"}
_ROWS_PER_BATCH: Final = 32_768
_TEXT_READERS: Final[dict[str, Callable[[Place, Columns], Iterator[Event]]]] = {".jsonl": read_jsonl, ".csv": read_csv}


def read_events(path: str | Place, columns: Columns | None = None) -> Iterator[Event]:
    """Read the events of a trace: a Parquet folder, or one `.parquet`, `.jsonl` or `.csv` file.

    `columns` maps the names of another system. Raises TraceError, and UsageError for a name that is not there.
    """
    trace = place_of(path)
    columns = columns or {}
    try:
        files = files_of_trace(trace, columns)
        if files is not None:
            return _not_empty(trace, _read_parquet(files, columns))
        return _not_empty(trace, _TEXT_READERS[trace.suffix](trace, columns))
    except OSError as error:
        cannot_be_read(trace, error)


def files_of_trace(trace: Place, columns: Columns) -> list[tuple[Place, str | None]] | None:
    """Return each Parquet file of a trace with the kind that its folder gives it; None for a file of text."""
    kind_column = their_name("kind", columns)
    if trace.is_dir():
        return files_of_folder(trace, kind_column)
    if not trace.exists():
        raise TraceError(
            f"{trace}: does not exist; expected a trace (a Parquet folder or a .parquet, .jsonl or .csv file); "
            f"check the path"
        )
    if trace.suffix == ".parquet":
        column, _, kind = trace.parent.name.partition("=")
        return [(trace, kind if column == kind_column else None)]
    if trace.suffix in _TEXT_READERS:
        return None
    raise TraceError(
        f"{trace}: has the suffix {trace.suffix!r}; expected a Parquet folder or a .parquet, .jsonl or .csv file; "
        f"rename or convert it"
    )


def _not_empty(trace: Place, events: Iterator[Event]) -> Iterator[Event]:
    try:
        first = next(events, None)
        if first is None:
            raise TraceError(f"{trace}: is empty; expected at least one event; record the run again")
        yield first
        yield from events
    except OSError as error:
        cannot_be_read(trace, error)


def files_of_folder(folder: Place, kind_column: str = "kind") -> list[tuple[Place, str | None]]:
    """Return each file with the kind that its folder gives it, multicasts before what refers to them.

    Anything else in the folder is refused: it may be a part of the trace, and engines differ in what they skip.
    """
    by_kind: dict[str | None, list[Place]] = {}
    for entry in _visible(folder):
        column, _, kind = entry.name.partition("=")
        if entry.is_dir() and column == kind_column:
            if kind not in KINDS:
                raise TraceError(f"{entry}: {unknown_kind(kind)}")
            by_kind[kind] = _visible(entry)
        elif entry.name not in BESIDE_A_TRACE:
            by_kind.setdefault(None, []).append(entry)
    sweep = sweep_of(folder.absolute())
    counts = None if sweep is None else set(parts_that_count(sweep))
    files = [
        (file, kind)
        for kind in (None, *KINDS)
        for file in by_kind.get(kind, ())
        if counts is None or file.suffix != ".parquet" or file.stem in counts
    ]
    for file, of_folder in files:
        if file.suffix != ".parquet" or file.is_dir() or (of_folder is None and len(by_kind) > 1):
            raise TraceError(
                f"{file}: does not belong to a trace; expected only {kind_column}=<kind>/*.parquet, or only *.parquet; "
                f"move it out of the folder"
            )
    if files:
        return files
    if any(file.name.endswith(".parquet.tmp") for file in folder.rglob("*.tmp")):
        raise TraceError(
            f"{folder}: holds only unfinished files (.parquet.tmp): its writer is still running or was killed; "
            f"expected finished .parquet files; wait for it or record the run again"
        )
    raise TraceError(
        f"{folder}: is not a trace or an empty one: there is no .parquet file in it; "
        f"expected kind=<kind>/*.parquet; check the path"
    )


def _visible(folder: Place) -> list[Place]:
    """Return what Spark reads: no names that begin with a dot, nor with an underscore unless there is a `=`."""
    names: list[Any] = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return [entry for entry in names if not entry.name.startswith("_") or "=" in entry.name]


def _read_parquet(files: Iterable[tuple[Place, str | None]], columns: Columns) -> Iterator[Event]:
    for path, kind in files:
        for batch in _batches(path, kind, columns):
            yield from batch


def _batches(path: Place, kind: str | None, columns: Columns) -> Iterator[list[Event]]:
    try:
        with parquet_file(path) as file:
            in_folders = () if kind is None else (their_name("kind", columns),)
            theirs = parquet_columns(path, file.schema_arrow, columns, in_folders)
            if kind is not None:
                theirs.pop("kind", None)
            first_row = 1
            for batch in file.iter_batches(_ROWS_PER_BATCH, columns=list(theirs.values())):
                yield _events_of_batch(path, batch, theirs, kind, first_row)
                first_row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        cannot_be_read(path, error)


def parquet_file(path: Place, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file, wherever it is."""
    if isinstance(path, Remote):
        return pq.ParquetFile(path.path, filesystem=path.filesystem, **options)
    return pq.ParquetFile(path, **options)


def parquet_columns(
    path: object, schema: pa.Schema, columns: Columns, in_folders: Iterable[str] = ()
) -> dict[str, str]:
    """Return their name of each of our columns that a file has. Raises TraceError if it cannot stand for a trace.

    `in_folders` are columns whose values are in the names of folders, as in `kind=deliver`.
    """
    refuse_unknown(path, columns, dict.fromkeys((*schema.names, *in_folders)))
    ours = {name_of(theirs, columns): theirs for theirs in (*schema.names, *in_folders)}
    found = {}
    for name, expected in COLUMN_TYPES.items():
        theirs = ours.get(name, "")
        index = schema.get_field_index(theirs)
        if index >= 0:
            if not _is_readable_as(schema.field(index).type, expected):
                raise TraceError(
                    f"{path}: column {name!r} has the type {schema.field(index).type}; expected {expected}; "
                    f"write it with that type"
                )
            found[name] = theirs
        elif theirs in schema.names:
            raise TraceError(f"{path}: column {name!r} is there twice; expected it once; remove one")
        elif name in REQUIRED_COLUMNS and not theirs:
            raise TraceError(
                f"{path}: column {name!r} is missing; expected at least {', '.join(REQUIRED_COLUMNS)}; add it"
            )
    return found


def _is_readable_as(seen: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a column can stand for the expected one: the same type in another width or encoding."""
    if pa.types.is_dictionary(seen):
        seen = seen.value_type
    if pa.types.is_null(seen):
        return True
    if pa.types.is_string(expected):
        return bool(pa.types.is_string(seen) or pa.types.is_large_string(seen))
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(seen))
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(seen) or pa.types.is_large_list(seen)
        return is_list and _is_readable_as(seen.value_type, expected.value_type)
    names = {field.name: field.type for field in seen} if pa.types.is_struct(seen) else {}
    return all(field.name in names and _is_readable_as(names[field.name], field.type) for field in expected)


def _events_of_batch(
    path: Place, batch: pa.RecordBatch, theirs: Mapping[str, str], kind: str | None, first_row: int
) -> list[Event]:
    columns: list[Iterable[Any]] = []
    for name, expected in COLUMN_TYPES.items():
        if name == "kind" and kind is not None:
            columns.append([kind] * len(batch))
        elif name in theirs:
            columns.append(_values(path, name, batch.column(theirs[name]), expected, first_row))
        else:
            columns.append(repeat(None))
    events = list(map(Event, *columns))
    if _may_have_faults(batch, theirs, kind):
        for row, event in enumerate(events, start=first_row):
            fault = fault_of(event)
            if fault is not None:
                raise TraceError(f"{path}: row {row}: {fault}")
    return events


def _may_have_faults(batch: pa.RecordBatch, theirs: Mapping[str, str], kind: str | None) -> bool:
    """Return whether the rows must be looked at one by one. Deliveries, most of a trace, need not be."""
    if kind not in KINDS_WITH_MESSAGE:
        return kind is None
    return kind == "multicast" or batch.column(theirs["message"]).null_count > 0


def _values(path: Place, name: str, column: pa.Array, expected: pa.DataType, first_row: int) -> Iterable[Any]:
    if column.null_count and name in IN_EVERY_ROW:
        row = first_row + column.is_null().index(True).as_py()
        raise TraceError(f"{path}: row {row}: {null_value(name)}")
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_struct(column.type):
        times, ties = _integers(column.field("time")), _strings(column.field("tie"))
        absent = column.is_null().to_pylist() if column.null_count else repeat(False)
        return [
            None if none or time is None else (time, tie or "")
            for time, tie, none in zip(times, ties, absent, strict=False)
        ]
    if pa.types.is_list(expected):
        if column.flatten().null_count:
            row = next(row for row, value in enumerate(column.to_pylist(), first_row) if value and None in value)
            raise TraceError(f"{path}: row {row}: {null_in_list(name)}")
        return [None if value is None else tuple(value) for value in column.to_pylist()]
    if pa.types.is_string(expected):
        return _strings(column)
    try:
        return _integers(column.cast(expected))
    except pa.ArrowInvalid as error:
        raise TraceError(f"{path}: column {name!r} does not fit ({error}); expected {expected}; correct it") from error


def _integers(column: pa.Array) -> Sequence[int | None]:
    """Do what to_pylist does, several times faster where there is no null."""
    column = column.cast(pa.int64())
    if column.null_count:
        values: list[int | None] = column.to_pylist()
        return values
    numbers = array("q")
    numbers.frombytes(memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))])
    return numbers.tolist()


def _strings(column: pa.Array) -> Iterable[str | None]:
    """Do what to_pylist does, faster and with one object for equal strings."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words: list[str | None] = [*column.dictionary.to_pylist(), None]
    places = column.indices.fill_null(len(words) - 1) if column.null_count else column.indices
    return map(words.__getitem__, _integers(places))  # type: ignore[arg-type]


def cannot_be_read(path: object, error: Exception) -> NoReturn:
    raise TraceError(
        f"{path}: cannot be read ({one_line(error)}); expected a complete trace; check the file or record the run again"
    ) from error
