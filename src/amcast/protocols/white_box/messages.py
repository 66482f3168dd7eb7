"""The messages of White-Box atomic multicast: names and fields of the paper's Figure 4, and what recovery needs."""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid
from amcast.core.wire import (
    AppMessage,
    Background,
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
# Of the list of members of an epoch: group, epoch, seats, whether it is established, and what drivers need to know.
ListRows = tuple[tuple[int, int, tuple[int, ...], bool, bytes], ...]
TailRows = tuple[tuple[AppMessage, int, int], ...]  # m, LocalTS, GlobalTS


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
    """The sender has accepted m. `bal` is the vector of ballots, in the order of dest(m); for `mark` see `Marks`."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "bal": tuple[int, ...], "mark": int}

    def __init__(self, mid: Mid, g: int, bal: tuple[int, ...], mark: int) -> None:
        self.mid = mid
        self.g = g
        self.bal = bal
        self.mark = mark

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_short(w, len(self.bal))
        for b in self.bal:
            pack_long(w, b)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        mid = r.mid()
        g = r.group()
        count = r.short()
        if count == 1:
            return AcceptAck(mid, g, (r.long(),), r.long())
        return AcceptAck(mid, g, tuple([r.long() for _ in range(count)]), r.long())


@final
@mypyc_attr(acyclic=True)
class Deliver(Message):
    """Deliver m, as what follows after `position` deliveries of this group."""

    wire: ClassVar[dict[str, object]] = {"m": AppMessage, "lts": int, "gts": int, "position": int}

    def __init__(self, m: AppMessage, lts: int, gts: int, position: int) -> None:
        self.m = m
        self.lts = lts
        self.gts = gts
        self.position = position

    def may_wait(self) -> bool:
        return True  # the client has its answer from the leader

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)
        pack_long(w, self.lts)
        pack_long(w, self.gts)
        pack_long(w, self.position)

    def unpack(self, r: Reader) -> Message:
        return Deliver(r.app(), r.long(), r.long(), r.long())


@mypyc_attr(acyclic=True, allow_interpreted_subclasses=True)
@dataclass
class StatePart(Message):
    """One of the parts in which a state travels: messages that are accepted and not delivered.

    All parts of one state have the same fields but for `part`, of `parts`, and the rows.
    """

    b: int
    cballot: int
    clock: int
    position: int  # how many deliveries the sender has …
    digest: int  # … and which: see `digest_of`
    part: int
    parts: int
    rows: StateRows = field(metadata=wired(StateRows))

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m, _, _, _ in self.rows])


@final
@mypyc_attr(acyclic=True)
@dataclass
class NewLeaderAck(StatePart):
    """A vote for ballot b."""


@final
@mypyc_attr(acyclic=True)
@dataclass
class NewState(StatePart):
    """The state with which ballot b begins, or what has become of it: whoever enters it needs the deliveries, too."""


@final
@mypyc_attr(acyclic=True)
@dataclass
class Handover(Message):
    """To a follower: let it stand for leader at once, above ballot b."""

    b: int


@final
@mypyc_attr(acyclic=True)
class Outcome(Message):
    """To the leader of another group: this message was delivered with this final timestamp."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "gts": int}

    def __init__(self, mid: Mid, gts: int) -> None:
        self.mid = mid
        self.gts = gts

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_long(w, self.gts)

    def unpack(self, r: Reader) -> Message:
        return Outcome(r.mid(), r.long())


@final
@mypyc_attr(acyclic=True)
class Confirm(Message):
    """To the own group: is ballot b still the highest that you joined? Asked, and answered, because of an Outcome."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "b": int, "answer": bool}

    def __init__(self, mid: Mid, b: int, answer: bool) -> None:
        self.mid = mid
        self.b = b
        self.answer = answer

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_long(w, self.b)
        pack_short(w, 1 if self.answer else 0)

    def unpack(self, r: Reader) -> Message:
        return Confirm(r.mid(), r.long(), r.short() == 1)


@final
@mypyc_attr(acyclic=True)
@dataclass
class Fetch(Message):
    """The sender has delivered so much, and asks for what follows."""

    position: int


@final
@mypyc_attr(acyclic=True)
@dataclass
class Tail(Message):
    """What follows after `position` deliveries: message, LocalTS, GlobalTS; the sender has `end` of them.

    Where `position` is above what was asked for, the deliveries before it are no longer kept one by one.
    """

    position: int
    end: int
    rows: TailRows = field(metadata=wired(TailRows))

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m, _, _ in self.rows])


@final
@dataclass
class Marks(Background):
    """How much some replicas had on disk when they were last heard: pid, which life it was, number of its records.

    Whoever counts on what a replica said remembers this of it, so that one whose disk has less is found out.
    """

    marks: tuple[tuple[int, int, int], ...] = field(metadata=wired(tuple[tuple[int, int, int], ...]))


@final
@mypyc_attr(acyclic=True)
@dataclass
class Hello(Message):
    """To all replicas: the sender is back for another life, with so many records. What do you remember of it?

    With `void` it lost its disk: the others of its group count on nothing that it said before.
    """

    starts: int
    mark: int
    void: bool


@final
@mypyc_attr(acyclic=True)
@dataclass
class Welcome(StatePart):
    """The answer to the Hello of this life: how many lives and records the sender remembers; BOTTOM if it forgot, too.

    `b` is the highest ballot that it has seen. To a member of its group, the rows are what it accepted in `cballot`:
    who works in the same ballot may have accepted that, too, and forgotten it.
    """

    starts: int = 0
    known_starts: int = 0
    known_mark: int = 0


@final
@dataclass
class Lists(Background):
    """What the sender knows of the members of all groups: see `Configurations`. Without rows, how much that is.

    Who knows more answers with it; who is told something answers without rows.
    """

    known: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    rows: tuple[tuple[int, int, tuple[int, ...], bool, bytes], ...] = field(metadata=wired(ListRows))


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
    Outcome,
    Fetch,
    Tail,
    Handover,
    Marks,
    Hello,
    Welcome,
    Confirm,
    Lists,
)
