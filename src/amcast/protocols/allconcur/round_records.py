"""What a server of AllConcur with eventual accuracy makes durable (`durable_rounds`)."""

from dataclasses import dataclass, field
from typing import Final, final

from librt.strings import BytesWriter

from amcast.core.topology import MOST
from amcast.core.wire import Codec, Message, wired
from amcast.protocols.allconcur.ballots import Content, Rounds
from amcast.protocols.allconcur.rounds import Batch
from amcast.protocols.white_box.records import Idle, Remembered


@final
@dataclass
class Began(Message):
    """An eon began, as in `Welcome`; the one before ended with these rounds, so far as they are kept."""

    eon: int
    e: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    gone: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    past: int
    prefix: bytes
    old: int
    rounds: Rounds = field(metadata=wired(Rounds))


@final
@dataclass
class Whole(Message):
    """Everybody's message of round r is here."""

    r: int
    content: Content = field(metadata=wired(Content))


@final
@dataclass
class Done(Message):
    """Delivered the rounds up to this one."""

    r: int


@final
@dataclass
class Promised(Message):
    ballot: int


@final
@dataclass
class Took(Message):
    """Accepted this proposal."""

    ballot: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    rounds: Rounds = field(metadata=wired(Rounds))


@final
@dataclass
class CaughtUp(Message):
    """Delivered these, as others had."""

    batch: Batch = field(metadata=wired(Batch))


@final
@dataclass
class Outside(Message):
    """Takes no part in eons up to `above`. `lost`: because it lost its disk."""

    above: int
    lost: bool


@final
@dataclass
class Summary(Message):
    """The start of a snapshot: how many messages there were, their hash, and how many of them were delivered."""

    past: int
    prefix: bytes
    position: int


@final
@dataclass
class Recent(Message):
    """In a snapshot: the rounds that were delivered last, up to this one, and what members agreed upon in one."""

    last: int
    rounds: Rounds = field(metadata=wired(Rounds))
    agreed: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    agreed_in: int


RECORDS: Final = Codec((Began, Whole, Done, Promised, Took, CaughtUp, Outside, Summary, Recent, Remembered, Idle), MOST)


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()
