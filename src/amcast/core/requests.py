"""What clients and replicas say to each other: the same in all protocols that have clients."""

from dataclasses import dataclass
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, Codec, Layout, Message, Reader, pack_app, pack_long, pack_mid, pack_short

CHANGE: Final = b"\x00amcast members\x00"  # how a payload begins that changes the members of its group
FOUND: Final = b"\x00amcast group\x00"  # … and how one does that adds a group, …
REGISTRAR: Final = 0  # … in the order of this group


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
@dataclass
class Request(Message):
    """What a client asks a replica for, about a message of its own."""

    m: AppMessage

    def sound(self, groups: int) -> bool:
        """Return True if this can be taken from a stranger."""
        return True

    def wants_delivery(self) -> bool:
        """Return False if m is not to be delivered: its sender has given it up."""
        return True


@final
@mypyc_attr(acyclic=True)
class Multicast(Request):
    """Order this message, and deliver it."""

    def __init__(self, m: AppMessage) -> None:
        self.m = m

    def sound(self, groups: int) -> bool:
        return not self.m.payload.startswith((CHANGE, FOUND))  # clients of a cluster do not change it

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)

    def unpack(self, r: Reader) -> Message:
        return Multicast(r.app())


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Answer(Message):
    """What a replica of group g tells a client about one of its messages, and who leads the group in which ballot.

    Answers may overtake each other where they come from several replicas: of two leaders, that of the higher ballot
    leads. Where there are no ballots all answers have the same one.
    """

    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "leader": int, "ballot": int}

    def __init__(self, mid: Mid, g: int, leader: int, ballot: int = 0) -> None:
        self.mid = mid
        self.g = g
        self.leader = leader
        self.ballot = ballot

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_long(w, self.leader)
        pack_long(w, self.ballot)


@final
@mypyc_attr(acyclic=True)
class Reply(Answer):
    """Group g, now led by `leader`, has delivered the message."""

    def unpack(self, r: Reader) -> Message:
        return Reply(r.mid(), r.group(), r.long(), r.long())


@final
@mypyc_attr(acyclic=True)
class Hint(Answer):
    """The process that was asked does not lead, and has not taken the message: try this one.

    About NOBODY: this process has begun to lead, and every client that has something open there should try it.
    """

    def about(self) -> tuple[Mid, ...]:
        return (self.mid,) if self.mid != NOBODY else ()

    def unpack(self, r: Reader) -> Message:
        return Hint(r.mid(), r.group(), r.long(), r.long())


NOBODY: Final = Mid(0)
NOTHING: Final = AppMessage(NOBODY, (0,), b"")

REQUESTS: Final[tuple[type[Message], ...]] = (Multicast,)  # what a replica takes from a client
ANSWERS: Final[tuple[type[Message], ...]] = (Reply, Hint)  # what a client takes from a replica


def replica_codec(messages: tuple[type[Message] | Layout, ...], groups: int) -> Codec:
    """Return the codec between replicas, where answers are rare and travel as msgpack."""
    return Codec(messages, groups, ANSWERS)
