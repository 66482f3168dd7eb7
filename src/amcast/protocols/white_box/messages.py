"""The messages of White-Box atomic multicast: names and fields of the paper's Figure 4, and what recovery needs."""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid
from amcast.core.wire import (
    AppMessage,
    Message,
    Reader,
    pack_app,
    pack_long,
    pack_mid,
    pack_short,
    wired,
)
from amcast.protocols.parts.collection import Floor
from amcast.protocols.parts.leader_candidate import Heartbeat, Nack, NewLeader, NewStateAck

StateRows = tuple[tuple[AppMessage, int, int, int], ...]  # m, Phase, LocalTS, GlobalTS


@final
@mypyc_attr(acyclic=True)
class Accept(Message):
    wire: ClassVar[dict[str, object]] = {"m": AppMessage, "g": int, "b": int, "lts": int}

    def __init__(self, m: AppMessage, g: int, b: int, lts: int) -> None:
        self.m = m
        self.g = g
        self.b = b
        self.lts = lts

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)
        pack_short(w, self.g)
        pack_long(w, self.b)
        pack_long(w, self.lts)

    def unpack(self, r: Reader) -> Message:
        return Accept(r.app(), r.group(), r.long(), r.long())


@final
@mypyc_attr(acyclic=True)
class AcceptAck(Message):
    """The sender has accepted m. `bal` is the vector of ballots, in the order of dest(m)."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "bal": tuple[int, ...]}

    def __init__(self, mid: Mid, g: int, bal: tuple[int, ...]) -> None:
        self.mid = mid
        self.g = g
        self.bal = bal

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_short(w, len(self.bal))
        for b in self.bal:
            pack_long(w, b)

    def unpack(self, r: Reader) -> Message:
        mid = r.mid()
        g = r.group()
        count = r.short()
        if count == 1:
            return AcceptAck(mid, g, (r.long(),))
        return AcceptAck(mid, g, tuple([r.long() for _ in range(count)]))


@final
@mypyc_attr(acyclic=True)
class Deliver(Message):
    """Deliver m. `prev_gts` is the delivery sent just before this one in ballot b, BOTTOM for the first."""

    wire: ClassVar[dict[str, object]] = {"m": AppMessage, "b": int, "lts": int, "gts": int, "prev_gts": int}

    def __init__(self, m: AppMessage, b: int, lts: int, gts: int, prev_gts: int) -> None:
        self.m = m
        self.b = b
        self.lts = lts
        self.gts = gts
        self.prev_gts = prev_gts

    def may_wait(self) -> bool:
        return True  # the client has its answer from the leader

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)
        pack_long(w, self.b)
        pack_long(w, self.lts)
        pack_long(w, self.gts)
        pack_long(w, self.prev_gts)

    def unpack(self, r: Reader) -> Message:
        return Deliver(r.app(), r.long(), r.long(), r.long(), r.long())


@final
@dataclass
class NewLeaderAck(Message):
    b: int
    cballot: int
    clock: int
    state: StateRows = field(metadata=wired(StateRows))

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m, _, _, _ in self.state])


@final
@dataclass
class NewState(Message):
    b: int
    clock: int
    state: StateRows = field(metadata=wired(StateRows))

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m, _, _, _ in self.state])


MESSAGES: Final[tuple[type[Message], ...]] = (
    Multicast,
    Accept,
    AcceptAck,
    Deliver,
    Reply,
    Hint,
    NewLeader,
    NewLeaderAck,
    NewState,
    NewStateAck,
    Nack,
    Floor,
    Heartbeat,
)
