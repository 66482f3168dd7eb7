"""What travels between a gateway and the groups: msgpack arrays.

A request is [now in ms, units]; a unit is executed as a whole, and the units of a request in their order. A group gives
one answer per unit: what came out, a ticket for a unit that waits behind a lock, or that it knows no such ticket.
"""

from typing import Annotated, Any, Final

import msgspec


class Execute(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """Execute commands if the watched keys still have these versions. Answer: the results, or None if they have not."""

    commands: list[list[bytes]]
    watched: list[tuple[bytes, int]] = []


class Versions(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Answer: the versions of those of these keys that the group has, in order."""

    keys: list[bytes]


class Prepare(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Lock all keys named here, if the conditions hold in this group.

    Answer: whether they do; None if that no longer matters, because an abort was here first."""

    txn: bytes
    dest: list[int]
    commands: list[list[bytes]]
    watched: list[tuple[bytes, int]]
    absent: list[bytes]


class Decide(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Execute or drop what was prepared. Answer: what was decided first (None if forgotten), and the results if now."""

    txn: bytes
    commit: bool


class Fetch(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """Ask for the answer to a unit that had to wait."""

    ticket: int


Work = Execute | Versions | Prepare
Unit = Work | Decide | Fetch


class StoreRequest(msgspec.Struct, array_like=True, frozen=True):
    """What one multicast asks of the store."""

    now: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    units: list[Unit]


class Done(msgspec.Struct, array_like=True, tag=0, frozen=True):
    value: Any


class Waits(msgspec.Struct, array_like=True, tag=1, frozen=True):
    ticket: int
    txn: bytes  # the oldest lock of the group, and the groups that share it
    dest: list[int]


class Lost(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """The ticket is not known: its answer was fetched before, or dropped to make room."""


Answer = Done | Waits | Lost


def fits(unit: Unit, value: object) -> bool:
    """Return whether this can be the value of a unit: replicas of another version may say something else."""
    if isinstance(unit, Execute):
        return (value is None and bool(unit.watched)) or (isinstance(value, list) and len(value) == len(unit.commands))
    if isinstance(unit, Prepare):
        return value is None or isinstance(value, bool)
    return isinstance(value, list) and (not isinstance(unit, Decide) or len(value) == 2)


MALFORMED: Final = b"-ERR malformed request"
encode: Final = msgspec.msgpack.Encoder().encode
decode_stamp: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
decode_request: Final = msgspec.msgpack.Decoder(StoreRequest).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode


def array_head(length: int) -> bytes:
    """Return what stands before the items of a list of this length, as `encode` writes it."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2) if length < 2**16 else b"\xdd" + length.to_bytes(4)
