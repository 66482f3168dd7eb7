"""What a White-Box replica makes durable, and how it comes back from it.

A replica that restarts from its records is the same member as before, only that it missed some messages: the promise
of a ballot, an accepted timestamp and a delivery are on disk before any replica hears of them. What it proposed as
leader is not, so it never goes on leading in the ballot in which it crashed.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from librt.strings import BytesWriter

from amcast.core.topology import MOST, Mid
from amcast.core.wire import AppMessage, Codec, Message, Reader, pack_app, pack_long, pack_mid, wired
from amcast.protocols.white_box.messages import ListRows, StateRows

OutcomeRows = tuple[tuple[int, int, tuple[int, ...], int], ...]


@final
@dataclass
class Promised(Message):
    """l.40: joined this ballot."""

    b: int


@final
@dataclass
class Adopted(Message):
    """l.55, l.60: entered this ballot with this state."""

    b: int
    clock: int
    state: StateRows = field(metadata=wired(StateRows))


@final
class Accepted(Message):
    """l.12 to l.14: accepted this local timestamp, and raised the clock."""

    wire: ClassVar[dict[str, object]] = {"m": AppMessage, "lts": int, "clock": int}

    def __init__(self, m: AppMessage, lts: int, clock: int) -> None:
        self.m = m
        self.lts = lts
        self.clock = clock

    def pack(self, w: BytesWriter) -> None:
        pack_app(w, self.m)
        pack_long(w, self.lts)
        pack_long(w, self.clock)

    def unpack(self, r: Reader) -> Message:
        return Accepted(r.app(), r.long(), r.long())


@final
class Delivered(Message):
    """l.26 to l.31: delivered an accepted message."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "lts": int, "gts": int}

    def __init__(self, mid: Mid, lts: int, gts: int) -> None:
        self.mid = mid
        self.lts = lts
        self.gts = gts

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_long(w, self.lts)
        pack_long(w, self.gts)

    def unpack(self, r: Reader) -> Message:
        return Delivered(r.mid(), r.long(), r.long())


@final
@dataclass
class Heard(Message):
    """What this replica remembers of all: their lives, and their records. See `Marks`."""

    starts: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    marks: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))


@final
@dataclass
class Rejoining(Message):
    """This replica lost its disk: it takes no part until it enters a ballot above `b`, BOTTOM while that is unknown."""

    b: int
    starts: int
    mark: int


@final
@dataclass
class Summary(Message):
    """The start of a snapshot: what is not said by the rows that follow."""

    ballot: int
    cballot: int
    clock: int
    max_delivered_gts: int
    position: int
    digest: int
    starts: int
    mark: int  # how many records there were
    rejoining: bool
    rejoin_above: int
    floors: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    shared_with: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    known_starts: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    known_marks: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    epoch: int  # of its group, at that position
    lists: tuple[tuple[int, int, tuple[int, ...], bool, bytes], ...] = field(metadata=wired(ListRows))


@final
@dataclass
class Held(Message):
    """In a snapshot: a message that is accepted and not delivered."""

    m: AppMessage
    phase: int
    lts: int
    gts: int


@final
@dataclass
class Remembered(Message):
    """In a snapshot: what is delivered of one sender."""

    sender: int
    done: int
    above: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))


@final
@dataclass
class Idle(Message):
    """In a snapshot: senders of which all messages below a number are delivered, and none above."""

    rows: tuple[tuple[int, int], ...] = field(metadata=wired(tuple[tuple[int, int], ...]))


@final
@dataclass
class Outcomes(Message):
    """In a snapshot: delivered messages that another group may still ask for.

    Each is sender and seq of the id, destinations, final timestamp.
    """

    rows: tuple[tuple[int, int, tuple[int, ...], int], ...] = field(metadata=wired(OutcomeRows))


@final
@dataclass
class Listed(Message):
    """What is known of the members of all groups, beyond the beginning."""

    lists: tuple[tuple[int, int, tuple[int, ...], bool, bytes], ...] = field(metadata=wired(ListRows))


RECORDS: Final = Codec(
    (Promised, Adopted, Accepted, Delivered, Heard, Rejoining, Summary, Held, Remembered, Idle, Outcomes, Listed), MOST
)


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()
