"""Column names of other systems: `theirs=ours,…` says which of their columns is which of ours.

A column that is not mentioned keeps its name. `theirs=` drops a column that has one of our names but another meaning.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from amcast.core.trace import COLUMNS
from amcast.errors import UsageError

OPTION: Final = "--columns"

Columns = Mapping[str, str]  # their name -> ours, or "" for a column that is dropped


def parse_columns(text: str) -> dict[str, str]:
    """Read `node=process,msg=message,time=` as {"node": "process", "msg": "message", "time": ""}. Raises UsageError."""
    columns: dict[str, str] = {}
    for pair in text.split(","):
        theirs, equals, ours = (part.strip() for part in pair.partition("="))
        if not equals or not theirs:
            raise UsageError(f"{OPTION} {pair.strip()!r}: expected theirs=ours, such as node=process")
        if ours and ours not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise UsageError(f"{OPTION} {pair.strip()!r}: {ours!r} is no column of a trace; expected one of {known}")
        if theirs in columns:
            raise UsageError(f"{OPTION}: their column {theirs!r} is named twice; expected it once")
        if ours and ours in columns.values():
            raise UsageError(f"{OPTION}: our column {ours!r} is named twice; expected it once")
        columns[theirs] = ours
    return columns


def name_of(theirs: str, columns: Columns) -> str:
    """Return our name of a column of theirs. It is "" if the column is dropped or a renamed one takes its name."""
    if theirs in columns:
        return columns[theirs]
    return "" if theirs in columns.values() else theirs


def their_name(ours: str, columns: Columns) -> str:
    """Return their name of a column of ours; "" if it is dropped."""
    return next((theirs for theirs in (*columns, ours) if name_of(theirs, columns) == ours), "")


def refuse_unknown(trace: object, columns: Columns, theirs: Mapping[str, object]) -> None:
    """Raise UsageError if the mapping names a column that the trace does not have: it is misspelt."""
    for name in columns:
        if name not in theirs:
            known = ", ".join(theirs)
            raise UsageError(
                f"{OPTION}: {trace} has no column {name!r}; it has {known}; correct the name or leave it out"
            )


def keys_of(line: bytes) -> set[str]:
    """Return the names in a line of JSON; none if it is no object."""
    return set(_object_of(line) or ())


def renamed(line: bytes, columns: Columns) -> bytes:
    """Return a line of JSON with our names. One that is no object stays as it is, for the reader to complain."""
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
