"""Traces as text, small enough for a person to write: JSON lines and CSV. Read line by line."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec

from amcast.core.errors import TraceError
from amcast.core.trace import COLUMNS, REQUIRED_COLUMNS, Event
from amcast.tracefile.schema import INT64_MAX, INT64_MIN, fault_of

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class TsRow(msgspec.Struct):
    time: Int64
    tie: str


class JsonRow(msgspec.Struct):
    """A line of a `.jsonl` trace. A key that is left out is null, but a deliver row must say `group`, be it null."""

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


def read_jsonl(path: Path) -> Iterator[Event]:
    decode = msgspec.json.Decoder(JsonRow).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = decode(line)
            except msgspec.ValidationError as error:
                _bad_line(path, number, f"{_explained(error)}; see trace-format.md for the columns")
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                _bad_line(path, number, f"is not JSON ({error}); expected one JSON object per line; correct the line")
            if row.group is msgspec.UNSET and row.kind in ("deliver", "optdeliver"):
                _bad_line(path, number, f"column 'group' is missing in a {row.kind} row; expected a group; add it")
            yield _checked(path, number, _event_of(row))


def write_jsonl(path: str | Path, events: Iterable[Event]) -> None:
    """Write a small trace; null columns are left out, except `group`: null is what it says of a client."""
    with Path(path).open("w", encoding="utf-8") as file:
        for event in events:
            row = {name: getattr(event, name) for name in COLUMNS}
            row = {name: value for name, value in row.items() if value is not None or name == "group"}
            if event.ts is not None:
                row["ts"] = {"time": event.ts[0], "tie": event.ts[1]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _event_of(row: JsonRow) -> Event:
    ts = (row.ts.time, row.ts.tie) if isinstance(row.ts, TsRow) else row.ts
    group = None if row.group is msgspec.UNSET else row.group
    return Event(
        row.run, row.kind, row.process, group, row.seq, row.time, row.message, row.sender, row.dest, ts,
        row.peer, row.type, row.size, row.about, row.detail,
    )  # fmt: skip


def _explained(error: msgspec.ValidationError) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.seq`"; we say which column first."""
    what, _, where = str(error).partition(" - at `$")
    if what.startswith("Object missing required field"):
        return f"column {what.split('`')[1]!r} is missing; expected it in every line"
    if not where:
        return f"is not an event: {what[0].lower()}{what[1:]}".replace("`", "")
    column = where.rstrip("`").lstrip(".")
    return f"column {column!r} has the wrong type: {what[0].lower()}{what[1:]}".replace("`", "")


def read_csv(path: Path) -> Iterator[Event]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(rows, [])]
            if not header:
                return
            _check_header(path, header)
            known = [(index, name) for index, name in enumerate(header) if name in COLUMNS]
            parsers = [(index, _CELL_PARSERS.get(name, str), name) for index, name in known]
            for cells in rows:
                if cells:
                    yield _event_of_cells(path, rows.line_num, header, parsers, cells)
        except csv.Error as error:
            _bad_line(path, rows.line_num, f"is not CSV ({error}); expected comma-separated cells; correct the line")
        except UnicodeDecodeError as error:
            _bad_line(path, rows.line_num + 1, f"is not UTF-8 ({error.reason}); expected UTF-8 text; convert the file")


def write_csv(path: str | Path, events: Iterable[Event]) -> None:
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for event in events:
            writer.writerow(_cell_of(getattr(event, name)) for name in COLUMNS)


def _check_header(path: Path, header: list[str]) -> None:
    for name in REQUIRED_COLUMNS:
        if name not in header:
            raise TraceError(
                f"{path}: line 1: column {name!r} is missing; expected at least {', '.join(REQUIRED_COLUMNS)}; add it"
            )
    for name in COLUMNS:
        if header.count(name) > 1:
            raise TraceError(f"{path}: line 1: column {name!r} is there twice; expected it once; remove one")


def _event_of_cells(
    path: Path, number: int, header: list[str], parsers: list[tuple[int, Callable[[str], Any], str]], cells: list[str]
) -> Event:
    if len(cells) != len(header):
        _bad_line(path, number, f"has {len(cells)} cells; expected {len(header)} as in the header; correct the line")
    values: dict[str, Any] = {}
    for index, parse, name in parsers:
        cell = cells[index]
        if not cell:
            if name in ("run", "kind", "process", "seq"):
                _bad_line(path, number, f"column {name!r} is empty; expected a value in every row; fill it in")
            values[name] = None
            continue
        try:
            values[name] = parse(cell)
        except ValueError as error:
            _bad_line(path, number, f"column {name!r} is {cell!r}; expected {error}; correct the cell")
    return _checked(path, number, Event(**values))


def _integer(low: int, high: int, name: str) -> Callable[[str], int]:
    def parse(cell: str) -> int:
        try:
            value = int(cell)
        except ValueError:
            raise ValueError("an integer") from None
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
        return str(value)
    texts = [str(element) for element in value]
    if any(not text or ";" in text for text in texts) or not texts or texts[0].startswith("["):
        return json.dumps(value, ensure_ascii=False)
    return ";".join(texts)


def _checked(path: Path, number: int, event: Event) -> Event:
    fault = fault_of(event)
    if fault is not None:
        _bad_line(path, number, fault)
    return event


def _bad_line(path: Path, number: int, what: str) -> NoReturn:
    raise TraceError(f"{path}: line {number}: {what}")
