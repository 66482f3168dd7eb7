"""What travels between a gateway and the groups: msgpack arrays.

A request is [now in ms, units]; a unit is executed as a whole, and the units of a request in their order. A group gives
one answer per unit: what came out, a ticket for a unit that waits behind a lock, or that it knows no such ticket.
"""

from typing import Annotated, Any, Final

import msgspec

from amcast.apps.kv.slots import SLOTS, Run


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


class Move(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """Make slots those of another group; to all groups. Answer: the version of the map from here on, 0 if refused."""

    base: Annotated[int, msgspec.Meta(ge=0)]  # the version of the map on which this rests
    source: int
    target: int
    slots: list[Annotated[int, msgspec.Meta(ge=0, lt=SLOTS)]]
    part_bytes: Annotated[int, msgspec.Meta(ge=1)]  # in how large parts the keys travel


class Look(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """Ask for the map, and for what moves. Answer: a `View`, also outside of the order."""


class Export(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """Ask the group that gave slots away for a part of their keys. Answer: how many parts there are, and this one.

    Nothing if they are not known, or not any more. It has to wait while a transaction of before has locks on them."""

    version: int  # of the map, from the move on
    part: Annotated[int, msgspec.Meta(ge=0)]


class Import(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Give a part to the group that has got the slots. Answer: whether it has all of them now."""

    version: int
    part: Annotated[int, msgspec.Meta(ge=0)]
    parts: Annotated[int, msgspec.Meta(ge=1)]
    data: bytes


class Moved(msgspec.Struct, array_like=True, tag=9, frozen=True):
    """Have the group that gave slots away forget their keys: the other one has them all. Answer: True."""

    version: int


class Regroup(msgspec.Struct, array_like=True, tag=10, frozen=True):
    """Say which groups there are from here on; to these and those of before. Answer: the version of the map, or 0.

    Who has no slots may go. Who comes has learnt the map that this makes."""

    base: Annotated[int, msgspec.Meta(ge=0)]
    groups: list[int]


class Learn(msgspec.Struct, array_like=True, tag=11, frozen=True):
    """Tell a group that is to come the map that there will be, if the others agree to `Regroup`. Answer: True."""

    version: int
    groups: list[int]
    regrouped: int
    runs: list[Run]


Work = Execute | Versions | Prepare
OfTheMap = Move | Look | Export | Import | Moved | Regroup | Learn
Unit = Work | Decide | Fetch | OfTheMap


class StoreRequest(msgspec.Struct, array_like=True, frozen=True):
    """What one multicast asks of the store."""

    now: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    units: list[Unit]
    version: int = 0  # of the map by which it was routed


class Stamp(msgspec.Struct, array_like=True, frozen=True):
    """The beginning of a StoreRequest, or of what arrives."""

    now: int


class Done(msgspec.Struct, array_like=True, tag=0, frozen=True):
    value: Any


class Waits(msgspec.Struct, array_like=True, tag=1, frozen=True):
    ticket: int
    txn: bytes  # the oldest lock of the group, and the groups that share it; empty if there is none
    dest: list[int]


class WaitsForSlots(Waits, array_like=True, tag=4, frozen=True):
    """The same, and keys of slots that have moved here are still to come."""


class Lost(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """The ticket is not known: its answer was fetched before, or dropped to make room."""


class Stale(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """The one answer to a whole request that was routed by another version of the map; nothing was executed.

    It has what changed since that version. If this one is older, the group has not come to the newer one yet."""

    version: int
    groups: list[int]
    regrouped: int
    runs: list[Run]


Answer = Done | Waits | WaitsForSlots | Lost | Stale


class View(msgspec.Struct, array_like=True, frozen=True):
    """What a group knows of slots."""

    version: int  # UNKNOWN: it has come later, and nobody has told it
    groups: list[int]
    regrouped: int
    runs: list[Run]
    arriving: list[tuple[int, int, int]]  # versions of moves to it that lack keys, from whom, and how many slots
    leaving: list[int]  # versions of moves from it whose keys it still has


def fits(unit: Unit, value: object) -> bool:
    """Return whether this can be the value of a unit: replicas of another version may say something else."""
    if isinstance(unit, Execute):
        return (value is None and bool(unit.watched)) or (isinstance(value, list) and len(value) == len(unit.commands))
    if isinstance(unit, Prepare):
        return value is None or isinstance(value, bool)
    if isinstance(unit, OfTheMap):
        return True  # whoever asks looks
    return isinstance(value, list) and (not isinstance(unit, Decide) or len(value) == 2)


MALFORMED: Final = b"-ERR malformed request"
encode: Final = msgspec.msgpack.Encoder().encode
decode_stamp: Final = msgspec.msgpack.Decoder(Stamp).decode
decode_request: Final = msgspec.msgpack.Decoder(StoreRequest).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode
Arrived = tuple[int, int, list[tuple[bytes, tuple[bytes, int, int]]]]  # of moved slots: the clock, changes, the keys
decode_arrived: Final = msgspec.msgpack.Decoder(Arrived).decode


def array_head(length: int) -> bytes:
    """Return what stands before the items of a list of this length, as `encode` writes it."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2) if length < 2**16 else b"\xdd" + length.to_bytes(4)
