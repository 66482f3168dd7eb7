"""The Arrow types of the columns of a trace, as trace-format.md gives them, and what a row of a kind must have."""

from typing import Any, Final

import pyarrow as pa

from amcast.core.trace import COLUMNS, KINDS

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

COLUMN_TYPES: Final[dict[str, pa.DataType]] = {
    "run": pa.string(),
    "kind": pa.string(),
    "process": pa.string(),
    "group": pa.string(),
    "seq": pa.int64(),
    "time": pa.int64(),
    "message": pa.string(),
    "sender": pa.string(),
    "dest": pa.list_(pa.string()),
    "ts": pa.struct([("time", pa.int64()), ("tie", pa.string())]),
    "peer": pa.string(),
    "type": pa.string(),
    "size": pa.int32(),
    "about": pa.list_(pa.string()),
    "detail": pa.string(),
}
assert tuple(COLUMN_TYPES) == COLUMNS

# `kind` is in the name of the folder, so it is not in the files.
FILE_SCHEMA: Final = pa.schema([(name, of) for name, of in COLUMN_TYPES.items() if name != "kind"])

IN_EVERY_ROW: Final = ("run", "kind", "process", "seq")
KINDS_WITH_MESSAGE: Final = frozenset(("multicast", "withdraw", "deliver", "optdeliver"))
_KNOWN_KINDS: Final = frozenset(KINDS)


def fault_of(event: Any) -> str | None:
    """Say what makes a row unusable, beyond the types of its columns; None when nothing does.

    The row is an Event, or anything else whose attributes are the columns.
    """
    kind = event.kind
    if kind in KINDS_WITH_MESSAGE:
        if event.message is None:
            return f"column 'message' is null in a {kind} row; expected the id of the message; fill it in"
        if kind == "multicast":
            if event.dest is None:
                return "column 'dest' is null in a multicast row; expected the destination groups; fill it in"
            if event.sender != event.process:
                seen = "null" if event.sender is None else repr(event.sender)
                return (
                    f"column 'sender' is {seen} in a multicast row of process {event.process!r}; "
                    f"expected the same process; correct one of the two"
                )
    elif kind not in _KNOWN_KINDS:
        return unknown_kind(kind)
    return None


def null_value(column: str) -> str:
    return f"column {column!r} is null; expected a value in every row; fill it in"


def unknown_kind(kind: str) -> str:
    return f"kind {kind!r} is unknown; expected one of {', '.join(KINDS)}; correct the kind or leave the row out"


def null_in_list(column: str) -> str:
    return f"column {column!r} has a null in its list; expected names only; correct the list"
