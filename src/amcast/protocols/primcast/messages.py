"""The messages of PrimCast. What recovery needs besides is White-Box's."""

from dataclasses import dataclass
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, Background, Message, Reader, pack_app, pack_long, pack_mid, pack_short
from amcast.protocols.parts.collection import Floor
from amcast.protocols.parts.leader_candidate import Heartbeat, Nack, NewLeader
from amcast.protocols.white_box.messages import Fetch, Handover, Hello, Marks, Outcome, StatePart, Tail, Welcome


@final
@mypyc_attr(acyclic=True)
class Proposal(Message):
    """From the primary of group g in epoch e: m has this local timestamp, as the n-th proposal of the epoch.

    It is the primary's ACK as well, unless `mark` is BOTTOM: then its disk does not have it yet, and the ACK follows.
    """

    wire: ClassVar[dict[str, object]] = {"m": AppMessage, "g": int, "e": int, "lts": int, "n": int, "mark": int}

    def __init__(self, m: AppMessage, g: int, e: int, lts: int, n: int, mark: int) -> None:
        self.m = m
        self.g = g
        self.e = e
        self.lts = lts
        self.n = n
        self.mark = mark

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)
        pack_short(w, self.g)
        pack_long(w, self.e)
        pack_long(w, self.lts)
        pack_long(w, self.n)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        return Proposal(r.app(), r.group(), r.long(), r.long(), r.long(), r.long())


@final
@mypyc_attr(acyclic=True)
class Ack(Message):
    """The sender, of group g, has this message with this local timestamp in its log of epoch e; for `mark` see `Marks`.

    So its clock was not below that timestamp while it had promised no higher epoch.
    """

    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "e": int, "lts": int, "mark": int}

    def __init__(self, mid: Mid, g: int, e: int, lts: int, mark: int) -> None:
        self.mid = mid
        self.g = g
        self.e = e
        self.lts = lts
        self.mark = mark

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_long(w, self.e)
        pack_long(w, self.lts)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        return Ack(r.mid(), r.group(), r.long(), r.long(), r.long())


@final
@mypyc_attr(acyclic=True)
class Bump(Message):
    """To the own group: the sender's clock has reached c while it had promised no epoch above e.

    From the primary of e it says also that its proposals so far are n, and that all further ones are above c.
    """

    wire: ClassVar[dict[str, object]] = {"e": int, "c": int, "n": int, "mark": int}

    def __init__(self, e: int, c: int, n: int, mark: int) -> None:
        self.e = e
        self.c = c
        self.n = n
        self.mark = mark

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.e)
        pack_long(w, self.c)
        pack_long(w, self.n)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        return Bump(r.long(), r.long(), r.long(), r.long())


@final
@dataclass
class Report(Background):
    """What a Bump says, again with every heartbeat: a link may have lost it."""

    e: int
    c: int
    n: int
    mark: int


@final
@mypyc_attr(acyclic=True)
@dataclass
class Gap(Message):
    """To the primary of epoch e: the sender has the first n of its proposals, and missed one; -1 if it cannot say."""

    e: int
    n: int


@final
@mypyc_attr(acyclic=True)
class Probe(Message):
    """To the destinations of a message that is not delivered here: what do you know of it?"""

    wire: ClassVar[dict[str, object]] = {"mid": int}

    def __init__(self, mid: Mid) -> None:
        self.mid = mid

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)

    def unpack(self, r: Reader) -> Message:
        return Probe(r.mid())


@final
@mypyc_attr(acyclic=True)
@dataclass
class Promise(StatePart):
    """A vote for epoch b: what the sender has, in the log of epoch `cballot`."""


@final
@mypyc_attr(acyclic=True)
@dataclass
class EpochState(StatePart):
    """The state with which epoch b begins, or what has become of it after n proposals."""

    n: int = 0


MESSAGES: Final[tuple[type[Message], ...]] = (
    Multicast,
    Proposal,
    Ack,
    Bump,
    Reply,
    Hint,
    NewLeader,
    Promise,
    EpochState,
    Nack,
    Gap,
    Probe,
    Report,
    Floor,
    Heartbeat,
    Outcome,
    Fetch,
    Tail,
    Handover,
    Marks,
    Hello,
    Welcome,
)
