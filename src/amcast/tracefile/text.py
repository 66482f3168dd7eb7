"""Traces as text, small enough for a person to write: JSON lines and CSV.

A line ends with a newline, in CSV too, and says everything about its event. So the Spark engine can read a file from
many places at once and judge lines with the same functions (`event_of_json`, `CsvLines`).
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec

from amcast.core.trace import COLUMNS, REQUIRED_COLUMNS, Event
from amcast.errors import LineFault, TraceError, UsageError
from amcast.places import Place
from amcast.tracefile.columns import Columns, keys_of, name_of, refuse_unknown, renamed
from amcast.tracefile.schema import IN_EVERY_ROW, INT64_MAX, INT64_MIN, fault_of

MARK: Final = b"\xef\xbb\xbf"  # the byte order mark that some programs put at the start of a file
_INTEGER: Final = re.compile(" *[-+]?[0-9]+ *")

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class TsRow(msgspec.Struct):
    time: Int64
    tie: str


class JsonRow(msgspec.Struct):
    """A line of a `.jsonl` trace. A missing key is null, but a deliver row must have `group`, even if it is null."""

    run: str
    kind: str
    process: str
    seq: Int64
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    time: Int64 | None = None
    message: str | None = None
    sender: str | None = None
    dest: tuple[str, ...] | None = None
    ts: TsRow | tuple[Int64, str] | None = None
    peer: str | None = None
    type: str | None = None
    size: Int32 | None = None
    about: tuple[str, ...] | None = None
    detail: str | None = None


_decode: Final = msgspec.json.Decoder(JsonRow).decode


def read_jsonl(path: Place, columns: Columns) -> Iterator[Event]:
    if columns:
        with path.open("rb") as lines:
            refuse_unknown_keys(path, columns, set().union(*map(keys_of, lines)))
    of_line = json_lines(columns)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield from _event_at(path, number, of_line, line.removeprefix(MARK) if number == 1 else line)


def refuse_unknown_keys(path: object, columns: Columns, seen: set[str]) -> None:
    """Raise UsageError if no line has a name that the mapping mentions: JSON has no header to look at."""
    if seen:
        refuse_unknown(path, columns, dict.fromkeys(sorted(seen)))


def json_lines(columns: Columns) -> Callable[[bytes], Event | None]:
    """Return the function that makes an event of a line with these names."""
    return (lambda line: event_of_json(renamed(line, columns))) if columns else event_of_json


def event_of_json(line: bytes) -> Event | None:
    """Return the event of a line; None for a blank line. Raises LineFault."""
    if not line.strip():
        return None
    try:
        row = _decode(line)
    except msgspec.ValidationError as error:
        raise LineFault(f"{_explained(error)}; see trace-format.md for the columns") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LineFault(f"is not JSON ({error}); expected one JSON object per line; correct the line") from None
    if row.group is msgspec.UNSET and row.kind in ("deliver", "optdeliver"):
        raise LineFault(f"column 'group' is missing in a {row.kind} row; expected a group; add it")
    ts = (row.ts.time, row.ts.tie) if isinstance(row.ts, TsRow) else row.ts
    group = None if row.group is msgspec.UNSET else row.group
    event = Event(
        row.run, row.kind, row.process, group, row.seq, row.time, row.message, row.sender, row.dest, ts,
        row.peer, row.type, row.size, row.about, row.detail,
    )  # fmt: skip
    return _checked(event)


def write_jsonl(path: str | Path, events: Iterable[Event]) -> None:
    """Write a small trace. Null columns are left out, except `group`, which is null for a client."""
    with Path(path).open("w", encoding="utf-8") as file:
        for event in events:
            row = {name: getattr(event, name) for name in COLUMNS}
            row = {name: value for name, value in row.items() if value is not None or name == "group"}
            if event.ts is not None:
                row["ts"] = {"time": event.ts[0], "tie": event.ts[1]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _explained(error: msgspec.ValidationError) -> str:
    """Name the column first in what msgspec says: "Expected `int`, got `str` - at `$.seq`"."""
    what, _, where = str(error).partition(" - at `$")
    if what.startswith("Object missing required field"):
        return f"column {what.split('`')[1]!r} is missing; expected it in every line"
    if not where:
        return f"is not an event: {what[0].lower()}{what[1:]}".replace("`", "")
    column = where.rstrip("`").lstrip(".")
    return f"column {column!r} has the wrong type: {what[0].lower()}{what[1:]}".replace("`", "")


def read_csv(path: Place, columns: Columns) -> Iterator[Event]:
    with path.open("rb") as lines:
        header, of_line = csv_lines(path, lines.readline(), columns)
        if header:
            for number, line in enumerate(lines, start=2):
                yield from _event_at(path, number, of_line, line)


def csv_lines(path: object, first: bytes, columns: Columns) -> tuple[list[str], "CsvLines"]:
    """Read the first line of a file: return its names, none if it is empty, and what makes events of the others."""
    try:
        header = header_of(first)
        if header:
            refuse_unknown(path, columns, dict.fromkeys(header))
        return header, CsvLines([name_of(name, columns) for name in header])
    except LineFault as fault:
        _bad_line(path, 1, str(fault))


class CsvLines:
    """Makes events of the lines below a header. Raises LineFault, about the header too."""

    def __init__(self, header: Sequence[str]) -> None:
        if header:
            _check_header(header)
        self._count = len(header)
        known = [(place, name) for place, name in enumerate(header) if name in COLUMNS]
        self._parsers = [(place, _CELL_PARSERS.get(name, str), name) for place, name in known]

    def __call__(self, line: bytes) -> Event | None:
        """Return the event of a line; None for an empty line."""
        cells = _cells_of(line)
        if not cells:
            return None
        if len(cells) != self._count:
            raise LineFault(f"has {len(cells)} cells; expected {self._count} as in the header; correct the line")
        values: dict[str, Any] = {}
        for place, parse, name in self._parsers:
            cell = cells[place]
            if not cell:
                if name in IN_EVERY_ROW:
                    raise LineFault(f"column {name!r} is empty; expected a value in every row; fill it in")
                values[name] = None
                continue
            try:
                values[name] = parse(cell)
            except ValueError as error:
                raise LineFault(f"column {name!r} is {cell!r}; expected {error}; correct the cell") from None
        return _checked(Event(**values))


def header_of(line: bytes) -> list[str]:
    """Return the column names in the first line of a file. Raises LineFault."""
    return [name.strip() for name in _cells_of(line.removeprefix(MARK))]


def _cells_of(line: bytes) -> list[str]:
    """Split a line of CSV into cells. Raises LineFault."""
    try:
        return next(csv.reader((line.removesuffix(b"\n").decode(),), strict=True), [])
    except csv.Error as error:
        raise LineFault(
            f"is not CSV ({error}); expected comma-separated cells without a line break; correct the line"
        ) from None
    except UnicodeDecodeError as error:
        raise LineFault(f"is not UTF-8 ({error.reason}); expected UTF-8 text; convert the file") from None


def write_csv(path: str | Path, events: Iterable[Event]) -> None:
    """Write a small trace. Raises UsageError for a text with a line break, which CSV lines cannot hold."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for event in events:
            writer.writerow(_cell_of(getattr(event, name)) for name in COLUMNS)


def _check_header(header: Sequence[str]) -> None:
    for name in REQUIRED_COLUMNS:
        if name not in header:
            raise LineFault(f"column {name!r} is missing; expected at least {', '.join(REQUIRED_COLUMNS)}; add it")
    for name in COLUMNS:
        if header.count(name) > 1:
            raise LineFault(f"column {name!r} is there twice; expected it once; remove one")


def _integer(low: int, high: int, name: str) -> Callable[[str], int]:
    def parse(cell: str) -> int:
        if not _INTEGER.fullmatch(cell):  # int() takes 1_0 and the digits of all scripts as well
            raise ValueError("an integer")
        value = int(cell)
        if not low <= value <= high:
            raise ValueError(f"an integer that fits in {name}")
        return value

    return parse


_int64: Final = _integer(INT64_MIN, INT64_MAX, "int64")


def _list_of_strings(cell: str) -> tuple[str, ...]:
    if not cell.startswith("["):
        return tuple(cell.split(";"))
    try:
        return msgspec.json.decode(cell, type=tuple[str, ...])
    except msgspec.DecodeError:
        raise ValueError("names separated by ';' or a JSON array of strings") from None


def _timestamp(cell: str) -> tuple[int, str]:
    try:
        if not cell.startswith(("{", "[")):
            time, separator, tie = cell.partition(";")
            if not separator:
                raise ValueError
            return _int64(time), tie
        ts: TsRow | tuple[int, str] = msgspec.json.decode(cell, type=TsRow | tuple[Int64, str])
        return (ts.time, ts.tie) if isinstance(ts, TsRow) else ts
    except (ValueError, msgspec.DecodeError):
        raise ValueError("'time;tie', as 7;m1") from None


_CELL_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "seq": _int64,
    "time": _int64,
    "size": _integer(-(2**31), 2**31 - 1, "int32"),
    "dest": _list_of_strings,
    "about": _list_of_strings,
    "ts": _timestamp,
}


def _cell_of(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, tuple):
        text = str(value)
        if "\n" in text:
            raise UsageError(f"{text!r} has a line break; expected none in a .csv trace; write it as .jsonl")
        return text
    texts = [str(element) for element in value]
    if any(not text or ";" in text or "\n" in text for text in texts) or not texts or texts[0].startswith("["):
        return json.dumps(value, ensure_ascii=False)
    return ";".join(texts)


def _checked(event: Event) -> Event:
    fault = fault_of(event)
    if fault is not None:
        raise LineFault(fault)
    return event


def _event_at(path: Place, number: int, of_line: Callable[[bytes], Event | None], line: bytes) -> tuple[Event, ...]:
    try:
        event = of_line(line)
    except LineFault as fault:
        _bad_line(path, number, str(fault))
    return () if event is None else (event,)


def _bad_line(path: object, number: int, what: str) -> NoReturn:
    raise TraceError(f"{path}: line {number}: {what}")
