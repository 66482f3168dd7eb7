"""What a PrimCast replica makes durable: White-Box's records, and how far its clock may have been reported."""

from dataclasses import dataclass
from typing import Final, final

from librt.strings import BytesWriter

from amcast.core.topology import MOST
from amcast.core.wire import Codec, Message
from amcast.protocols.white_box.records import (
    Accepted,
    Adopted,
    Delivered,
    Heard,
    Held,
    Idle,
    Outcomes,
    Promised,
    Rejoining,
    Remembered,
    Summary,
)


@final
@dataclass
class Ceiling(Message):
    """No clock above this has been reported. A replica that restarts goes on from here."""

    clock: int


RECORDS: Final = Codec(
    (Promised, Adopted, Accepted, Delivered, Heard, Rejoining, Summary, Held, Remembered, Idle, Outcomes, Ceiling),
    MOST,
)


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()
