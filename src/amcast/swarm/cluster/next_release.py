"""A release that there is not yet: in its format every message and every record has one field more.

With it upgrades are tried, in simulations and with processes of their own: nodes of both releases together, and what is
written in either format. A release that comes to be changes fewer classes, in the same way: see `Layout`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from librt.strings import BytesWriter

from amcast.core.protocol import Protocol
from amcast.core.requests import replica_codec
from amcast.core.wire import Codec, Layout, Message, Reader, pack_short
from amcast.errors import WireError
from amcast.runtime.frames import Spoken
from amcast.runtime.identity import FORMAT

NEXT: Final = Spoken(FORMAT, FORMAT + 1)
FIELD: Final = 4711


def next_release(row: Protocol) -> Protocol:
    """Return a protocol as that release has it."""
    messages = (*row.messages, *with_a_field(replica_codec(row.messages, 0)))
    records = row.records
    if records is not None:
        records = Codec((*records.table, *with_a_field(records)), records.groups)
    return replace(row, messages=messages, records=records)


def with_a_field(codec: Codec) -> list[Layout]:
    """Return newer layouts of all classes of a table."""
    return [
        Layout(cls, packing(codec), unpacking(codec), since=NEXT.newest)
        for cls in codec.table
        if not isinstance(cls, Layout)
    ]


def packing(codec: Codec) -> Callable[[Message, BytesWriter], None]:
    def pack(msg: Message, w: BytesWriter) -> None:
        codec.write(w, msg)
        pack_short(w, FIELD)

    return pack


def unpacking(codec: Codec) -> Callable[[Reader], Message]:
    def unpack(r: Reader) -> Message:
        msg = codec.read_one(r)
        if (found := r.short()) != FIELD:
            raise WireError(f"{type(msg).__name__} ends in {found}, expected {FIELD}")
        return msg

    return unpack
