"""A trace in parts that can be read one by one, anywhere: row groups of Parquet files, or a file of text.

A part is read as tables with our columns, whatever their names and types in the file are. Names that repeat (`run`,
`kind`, `process`, `group`, `peer`, `sender`) are dictionary columns, and only the columns that verification needs are
read. Rows that cannot be used are refused in the words of `reader`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amcast.core.trace import COLUMNS, KINDS, Event
from amcast.errors import TraceError
from amcast.places import Place, stamp
from amcast.tracefile.columns import Columns, their_name
from amcast.tracefile.reader import cannot_be_read, files_of_trace, parquet_columns, parquet_file, read_events
from amcast.tracefile.schema import (
    COLUMN_TYPES,
    IN_EVERY_ROW,
    KINDS_WITH_MESSAGE,
    fault_of,
    null_in_list,
    null_value,
)

ROWS_AT_A_TIME: Final = 262_144
WORD: Final = pa.dictionary(pa.int32(), pa.string())
WORDS: Final = ("run", "kind", "process", "group", "peer", "sender")
LISTS: Final = ("dest", "about")
# What rows of a kind are asked for. A null in a list is refused in any row.
_OF_EVERY_KIND: Final = ("run", "kind", "process", "group", "seq", *LISTS)
_OF_KIND: Final[Mapping[str | None, tuple[str, ...]]] = {
    "multicast": ("message", "sender"),
    "withdraw": ("message",),
    "deliver": ("message", "ts"),
    "optdeliver": ("message",),
    "send": ("peer",),
    "receive": ("peer",),
    "start": ("detail",),
    None: ("message", "sender", "ts", "peer", "detail"),
}
NEEDED: Final = (*_OF_EVERY_KIND, *_OF_KIND[None])


@dataclass(frozen=True)
class Part:
    """A piece of a trace: a row group of a Parquet file or, without a number, a whole file of text."""

    path: Place
    kind: str | None  # that its folder gives it
    row_group: int | None
    rows: int  # 0 if that is not known
    first_row: int = 1  # its number in the file
    size: int = 0  # of what is read of it, in bytes
    run: str | None = None  # the one run that all its rows are of, if the file says so
    stamp: tuple[int, int] | None = None  # of the file, see `places.stamp`: it must not change while it is read


def parts_of(trace: Place, columns: Columns) -> list[Part]:
    """List the parts of a trace, after a look at every footer. Raises TraceError, and UsageError for unknown names."""
    files = files_of_trace(trace, columns)
    if files is None:
        return [Part(trace, None, None, 0)]
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda file: _row_groups(file[0], file[1], columns), files)
        parts = [part for of_file in found for part in of_file]
    if not parts:
        raise TraceError(f"{trace}: is empty; expected at least one event; record the run again")
    return parts


def _row_groups(path: Place, kind: str | None, columns: Columns) -> list[Part]:
    with _file(path) as file:
        theirs = _columns_of(path, file.schema_arrow, kind, columns)
        parts, first_row, file_stamp = [], 1, stamp(path)
        place = {file.metadata.schema.column(i).path: i for i in range(file.metadata.num_columns)}.get(theirs["run"])
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            said = None if place is None else group.column(place).statistics
            run = None
            if said is not None and said.has_min_max and said.min == said.max and not said.null_count:
                run = said.min if isinstance(said.min, str) else None
            if group.num_rows:
                parts.append(
                    Part(path, kind, number, group.num_rows, first_row, group.total_byte_size, run, file_stamp)
                )
            first_row += group.num_rows
    return parts


class _file:
    """A Parquet file that is open for the time of a block; what is wrong with it becomes a TraceError."""

    def __init__(self, path: Place, expected: tuple[int, int] | None = None, **options: Any) -> None:
        self._path, self._expected, self._options = path, expected, options

    def __enter__(self) -> pq.ParquetFile:
        try:
            if self._expected not in (None, stamp(self._path)):
                self._changed()
            self._open = parquet_file(self._path, **self._options)
        except (pa.ArrowException, OSError) as error:
            cannot_be_read(self._path, error)
        return self._open

    def __exit__(self, of: object, error: BaseException | None, trace: object) -> None:
        self._open.close()
        if isinstance(error, pa.ArrowException | OSError):
            cannot_be_read(self._path, error)
        if error is None and self._expected not in (None, stamp(self._path)):
            self._changed()

    def _changed(self) -> NoReturn:
        raise TraceError(
            f"{self._path}: was changed while the trace was read; expected one that is complete; "
            f"wait for who writes it, then read it again"
        )


def _columns_of(path: Place, schema: pa.Schema, kind: str | None, columns: Columns) -> dict[str, str]:
    """Return their names of the columns that are to be read, by ours."""
    in_folders = () if kind is None else (their_name("kind", columns),)
    theirs = parquet_columns(path, schema, columns, in_folders)
    if kind is not None:
        theirs.pop("kind", None)
    wanted = (*_OF_EVERY_KIND, *_OF_KIND.get(kind, ()))
    return {name: theirs[name] for name in wanted if name in theirs}


def read_part(part: Part, columns: Columns) -> Iterator[pa.Table]:
    """Read a part as tables of at most ROWS_AT_A_TIME rows with the columns NEEDED. Raises TraceError."""
    if part.row_group is None:
        yield from tables_of(read_events(part.path, columns))
        return
    with _file(part.path, part.stamp) as file:
        theirs = _columns_of(part.path, file.schema_arrow, part.kind, columns)
    words = [theirs[name] for name in WORDS if name in theirs]
    first_row = part.first_row
    with _file(part.path, part.stamp, read_dictionary=words) as file:
        for batch in file.iter_batches(ROWS_AT_A_TIME, row_groups=[part.row_group], columns=list(theirs.values())):
            given = {name: batch.column(column) for name, column in theirs.items()}
            if part.kind is not None:
                given["kind"] = pa.DictionaryArray.from_arrays(pa.array([0] * len(batch), pa.int32()), [part.kind])
            table = _table(part.path, given, len(batch))
            fault = fault_in(table)
            if fault is not None:
                raise TraceError(f"{part.path}: row {first_row + fault[0]}: {fault[1]}")
            first_row += len(batch)
            yield table


def rows_where(part: Part, columns: Columns, choose: Callable[[pa.Table], Any]) -> Iterator[pa.Table]:
    """Read some rows of a part with all columns of a trace. `choose` gets tables as `read_part` reads them."""
    if part.row_group is None:
        events = list(read_events(part.path, columns))
        for start, table in zip(range(0, len(events), ROWS_AT_A_TIME), tables_of(events), strict=True):
            yield rows_of([events[start + place] for place in choose(table).nonzero()[0].tolist()])
        return
    chosen = [choose(table) for table in read_part(part, columns)]
    if not any(of_table.any() for of_table in chosen):
        return
    with _file(part.path, part.stamp) as file:
        in_folders = () if part.kind is None else (their_name("kind", columns),)
        theirs = parquet_columns(part.path, file.schema_arrow, columns, in_folders)
        if part.kind is not None:
            theirs.pop("kind", None)
        batches = file.iter_batches(ROWS_AT_A_TIME, row_groups=[part.row_group], columns=list(theirs.values()))
        for batch, of_batch in zip(batches, chosen, strict=True):
            some = batch.filter(pa.array(of_batch))
            given = {name: some.column(column) for name, column in theirs.items()}
            if part.kind is not None:
                given["kind"] = pa.array([part.kind] * len(some))
            yield _table(part.path, given, len(some), tuple(COLUMNS), words=())


def rows_of(events: Iterable[Event]) -> pa.Table:
    """Turn events into a table with all columns of a trace."""
    events = list(events)
    given = {}
    for name in COLUMNS:
        values = [getattr(event, name) for event in events]
        if name == "ts":
            values = [None if ts is None else {"time": ts[0], "tie": ts[1]} for ts in values]
        given[name] = pa.array(values, COLUMN_TYPES[name])
    return pa.table(given)


def event_of(row: dict[str, Any]) -> Event:
    """Turn a row of a table with all columns of a trace back into an event."""
    for name in LISTS:
        if row[name] is not None:
            row[name] = tuple(row[name])
    if row["ts"] is not None:
        row["ts"] = None if row["ts"]["time"] is None else (row["ts"]["time"], row["ts"]["tie"] or "")
    return Event(**row)


def tables_of(events: Iterable[Event], rows_at_a_time: int = ROWS_AT_A_TIME) -> Iterator[pa.Table]:
    """Turn events into tables like those of `read_part`."""
    events = iter(events)
    while some := list(islice(events, rows_at_a_time)):
        yield table_of_rows(rows_of(some))


def table_of_rows(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Turn rows with all columns of a trace into a table like those of `read_part`."""
    return _table("the trace", {name: one_array(rows.column(name)) for name in NEEDED}, rows.num_rows)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _table(
    path: object,
    given: Mapping[str, pa.Array],
    rows: int,
    names: tuple[str, ...] = NEEDED,
    words: Sequence[str] = WORDS,
) -> pa.Table:
    columns = []
    for name in names:
        expected = WORD if name in words else COLUMN_TYPES[name]
        column = given.get(name)
        if column is None or pa.types.is_null(column.type):
            columns.append(pa.nulls(rows, expected))
        elif column.type == expected:
            columns.append(column)
        elif expected is WORD:
            columns.append(_cast(path, name, column, pa.string()).dictionary_encode())
        else:
            columns.append(_cast(path, name, column, expected))
    return pa.table(columns, names=list(names))


def _cast(path: object, name: str, column: pa.Array, expected: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_struct(expected):
            parts = [_cast(path, name, pc.struct_field(column, of.name), of.type) for of in expected]
            return pa.StructArray.from_arrays(parts, fields=list(expected))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return column.cast(expected)
    except pa.ArrowInvalid as error:
        raise TraceError(f"{path}: column {name!r} does not fit ({error}); expected {expected}; correct it") from error


def fault_in(table: pa.Table) -> tuple[int, str] | None:
    """Return the number of the first row that cannot be used, and what is wrong with it."""
    faulty = [_is_null(table[name]) for name in IN_EVERY_ROW if table[name].null_count]
    faulty += [_has_null(table[name]) for name in LISTS if pc.list_flatten(table[name]).null_count]
    kinds = _words(table["kind"])
    if not kinds <= set(KINDS):
        faulty.append(pc.invert(pc.is_in(_plain(table["kind"]), value_set=pa.array(KINDS))))
    if kinds & KINDS_WITH_MESSAGE and table["message"].null_count:
        needs = pc.is_in(_plain(table["kind"]), value_set=pa.array(sorted(KINDS_WITH_MESSAGE)))
        faulty.append(pc.and_(needs, _is_null(table["message"])))
    if "multicast" in kinds:
        sent = pc.equal(_plain(table["kind"]), "multicast")
        same = pc.fill_null(pc.equal(_plain(table["sender"]), _plain(table["process"])), False)
        faulty.append(pc.and_(sent, pc.or_(_is_null(table["dest"]), pc.invert(same))))
    rows = [place for of in faulty if (place := pc.index(pc.fill_null(of, True), True).as_py()) >= 0]
    if not rows:
        return None
    (row,) = table.slice(min(rows), 1).to_pylist()
    nulls = (null_value(name) for name in IN_EVERY_ROW if row[name] is None)
    in_lists = (null_in_list(name) for name in LISTS if None in (row[name] or ()))
    return min(rows), next(nulls, None) or next(in_lists, None) or fault_of(Row(row)) or "cannot be used"


class Row:
    """A row whose columns are attributes."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.__dict__.update(columns)


def _words(column: pa.ChunkedArray) -> set[str]:
    return {word for chunk in column.chunks for word in chunk.dictionary.to_pylist()}


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _is_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_null(column)


def _has_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.array([value is not None and None in value for value in column.to_pylist()])


def runs_in(part: Part, columns: Columns) -> pa.RecordBatch:
    """Count the rows of each run in a row group. A null has no run: whoever reads the part refuses it."""
    with _file(part.path, part.stamp) as file:
        theirs = _columns_of(part.path, file.schema_arrow, part.kind, columns)["run"]
        column = file.read_row_group(part.row_group, columns=[theirs])[theirs]
    counts = _cast(part.path, "run", one_array(column), pa.string()).drop_null().value_counts()
    return pa.record_batch({"run": counts.field("values"), "rows": counts.field("counts")})


def sizes_of_runs(parts: Sequence[Part]) -> dict[str, int] | None:
    """Return how many rows each run has, if the footers of all files say so."""
    sizes: dict[str, int] = {}
    for part in parts:
        if part.run is None:
            return None
        sizes[part.run] = sizes.get(part.run, 0) + part.rows
    return sizes
