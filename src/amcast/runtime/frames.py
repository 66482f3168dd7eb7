"""What travels on a connection: frames, each with its length, a checksum, a kind and a number.

A frame is refused by its header alone when it is too long, so that nobody makes us allocate more than the limit.

Members and clients of different releases read each other's frames: a frame gets a new field at its end only, with a
default, and a frame of a new kind is sent only to who knows the format in which it came (`Spoken`, `formats.py`).
"""

from typing import Final, TypeVar

import msgspec

from amcast.errors import WireError
from amcast.runtime.identity import FORMAT, OLDEST, ClusterIdentity

VERSION: Final = OLDEST  # what a greeting begins with; the rest of what is spoken is in `Spoken`
LARGEST_HELLO: Final = 4096
LARGEST_PEER: Final = 2**30  # of protocols that cannot ask again: the state of a group in a recovery is one message
ROOM: Final = 4 * 2**20  # of all others: no batch is longer, but for one message of a client in it

# Kinds. Between members: HELLO and START from who dials, WELCOME back, then BATCHes one way and ACKs the other.
# Between a client and a member: HELLO, WELCOME, then REQUESTS, READs and ASKs one way, ANSWERS, ROWS and CONDITIONs the
# other.
HELLO: Final = 1
WELCOME: Final = 2
REFUSED: Final = 3
START: Final = 4
BATCH: Final = 5
ACK: Final = 6
REQUESTS: Final = 7
ANSWERS: Final = 8
READ: Final = 9
ROWS: Final = 10
FAILED: Final = 11
# Between members, on a connection of its own (`Hello.pulls`): PULL one way and OFFER or FAILED back, then WANTs one way
# and PARTs the other; or READs and ROWS.
PULL: Final = 12  # a snapshot that is ahead of a position
OFFER: Final = 13  # this one
MAKING: Final = 21  # one, which takes a while; so that whoever waits can tell that from a machine that is gone
WANT: Final = 18  # the part of this number
PART: Final = 19
ASK: Final = 14  # how are you; a CONDITION with the same number is the answer
CONDITION: Final = 15  # also without being asked, when it changes
QUERY: Final = 24  # between a client and a member: ask the application, without a place in the order
QUERIED: Final = 25  # what came out, with the same number
# A backup: CUT and MARK one way, CUTs back, then WANTs and PARTs as above (`cuts.py`).
CUT: Final = 22  # be ready to give out the state at the mark of this number; and back, where it is
MARK: Final = 23  # have the mark of this number ordered
STATEMENT: Final = 16  # among BATCHes, to members of the same group: what the sender has applied (`comparison.py`)
LEAD: Final = 20  # among BATCHes, to members of the same group: the sender was told to lead (`leading.py`)
MEMBERS: Final = 30  # to a client: the lists of members that groups have agreed on, when there are newer ones
CHANGE: Final = 31  # from a client: let these be the members of a group; a CHANGED or FAILED is the answer
CHANGED: Final = 32  # it is under way, or what was asked for is so already
PULSE: Final = 17  # among BATCHes, to all members: how the sender is (`pulse.py`); neither numbered nor sent again

# Why a request is refused
FORBIDDEN: Final = 0  # for good, by everybody
UNAVAILABLE: Final = 1  # by this replica, which has not taken it: one of its groups does not serve
BUSY: Final = 2  # by this replica, which has not taken it: try later
GONE: Final = 3  # it was delivered, and its answer is no longer kept; of rows: they are no longer kept


class Refusal(msgspec.Struct, array_like=True):
    """Message number `seq` of this session is refused. Or, with id, these rows cannot be had."""

    seq: int
    reason: str
    id: int = -1
    kind: int = FORBIDDEN


class AppVersions(msgspec.Struct, array_like=True, frozen=True):
    """The newest version of the application that a member knows, the one in force there, and that it began with."""

    newest: int = 1
    active: int = 1
    began: int = 0


class Spoken(msgspec.Struct, array_like=True, frozen=True):
    """The formats that a process knows, and the one that is in use, so far as it knows: 0 if it does not."""

    oldest: int
    newest: int
    used: int = 0


OURS: Final = Spoken(OLDEST, FORMAT)


class Hello(msgspec.Struct, array_like=True):
    """Who dials whom. `boot` is drawn at each start of a member; `session` is drawn by a client.

    What follows the first field differed until 0.2: who speaks another version must be told so.
    """

    version: int
    cluster: str
    name: str
    boot: int
    session: int = 0
    to: str = ""
    identity: ClusterIdentity | None = None
    versions: AppVersions = AppVersions()  # of a member
    pulls: bool = False  # of a member: this is no channel; it wants a snapshot, or rows
    at: str = ""  # of a member: where it listens for others, which may not know it yet
    formats: Spoken | None = None


class Welcome(msgspec.Struct, array_like=True):
    """Who answers, and the number of the next batch that it expects from this boot.

    A client is told why requests to each group are refused, as in a Condition.
    """

    name: str
    boot: int
    expects: int
    refusals: tuple[str, ...] = ()
    formats: Spoken | None = None


class Pulse(msgspec.Struct, array_like=True):
    """Why a member refuses all requests to its group, and why it takes no more just now; empty if it does not.

    `position` says how much it has delivered: of one that learns, so that it can become a member.
    """

    refuses: str
    busy: str
    position: int = -1


class Change(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Let the members of a group be these from the end of this epoch on; `about` says where they are."""

    id: int
    group: int
    from_epoch: int
    seats: tuple[int, ...]
    about: bytes


class Pull(msgspec.Struct, array_like=True):
    """A member needs a snapshot that is ahead of this position; that of an earlier Offer, if it is still there."""

    position: int
    known: "Offer | None" = None


class Offer(msgspec.Struct, array_like=True, frozen=True):
    """A snapshot that can be had: its number at its source, and how many rows are in it."""

    number: int
    position: int


class Made(msgspec.Struct, array_like=True):
    """The state at a mark, when it is on disk: its position, and how many parts it has; before that -1 and 0."""

    position: int = -1
    parts: int = 0


class Condition(msgspec.Struct, array_like=True):
    """How a member is: the time by its own clock, and why it is of no use to clients, if it is not.

    `refusals` says why requests to each group are refused; empty if they are not. Who hears a condition notes when that
    is, by its own monotonic clock.
    """

    wall_ms: int
    unready: str | None
    heard_ns: int = 0
    refusals: tuple[str, ...] = ()


class Read(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Rows from a position on, at most so many bytes; waits a while for the first one."""

    id: int
    position: int
    most_bytes: int
    wait_ms: int


class Rows(msgspec.Struct, array_like=True):
    """Rows `first` to `next` - 1. `earliest` is the first position that is still kept, `end` the next to be written."""

    id: int
    first: int
    next: int
    earliest: int
    end: int
    rows: bytes


encode = msgspec.msgpack.Encoder().encode
hello_decoder: Final = msgspec.msgpack.Decoder(Hello)
welcome_decoder: Final = msgspec.msgpack.Decoder(Welcome)
pulse_decoder: Final = msgspec.msgpack.Decoder(Pulse)
change_decoder: Final = msgspec.msgpack.Decoder(Change)
read_decoder: Final = msgspec.msgpack.Decoder(Read)
refusal_decoder: Final = msgspec.msgpack.Decoder(Refusal)
pull_decoder: Final = msgspec.msgpack.Decoder(Pull)
offer_decoder: Final = msgspec.msgpack.Decoder(Offer)
made_decoder: Final = msgspec.msgpack.Decoder(Made)
condition_decoder: Final = msgspec.msgpack.Decoder(Condition)
rows_decoder: Final = msgspec.msgpack.Decoder(Rows)

T = TypeVar("T")


def decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    """Return what the body of a frame says. Raises WireError."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"malformed frame of {len(body)} bytes: {error}") from None
