"""What a replicated log makes durable, besides the promise of a ballot.

A stored place, the log of a new ballot, and which places are forgotten.
"""

from dataclasses import dataclass, field
from typing import ClassVar, final

from librt.strings import BytesWriter

from amcast.core.wire import AppMessage, Message, Reader, pack_app, pack_long, pack_short, wired
from amcast.protocols.white_box.messages import StateRows


@final
class Stored(Message):
    """Stored this at place i, in the ballot that was entered last."""

    wire: ClassVar[dict[str, object]] = {"i": int, "kind": int, "ts": int, "m": AppMessage}

    def __init__(self, i: int, kind: int, ts: int, m: AppMessage) -> None:
        self.i = i
        self.kind = kind
        self.ts = ts
        self.m = m

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.i)
        pack_short(w, self.kind)
        pack_long(w, self.ts)
        pack_app(w, self.m)

    def unpack(self, r: Reader) -> Message:
        return Stored(r.long(), r.short(), r.long(), r.app())


@final
@dataclass
class LogEntered(Message):
    """Entered ballot b with this log: message, kind, timestamp, place."""

    b: int
    base: int
    rows: StateRows = field(metadata=wired(StateRows))


@final
@dataclass
class Forgotten(Message):
    """Forgot the places before this one."""

    base: int
