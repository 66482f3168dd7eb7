"""What the servers of AllConcur+ say to each other, and what can be read from the messages of a round."""

from dataclasses import dataclass
from typing import Final, final

from amcast.core.requests import Multicast, Reply
from amcast.core.wire import Message
from amcast.protocols.allconcur.membership import Ask, Past, Welcome
from amcast.protocols.allconcur.overlay import Fail, Removed
from amcast.protocols.allconcur.rounds import Reliable, RoundMessage, Unreliable
from amcast.protocols.parts.failure_detectors import Alive

Round = list[RoundMessage | None]  # by origin

REVOKE: Final = 0  # target, owner, seq: a notification that was wrong
RECONFIGURE: Final = 1  # eon, members...
STARTED: Final = 2  # the highest round that the origin had begun


@final
@dataclass
class Eon(Message):
    """In round r0 another membership was agreed upon: the eon must end with a reliable round."""

    eon: int
    r0: int


MESSAGES: Final[tuple[type[Message], ...]] = (
    Multicast, Reply, Unreliable, Reliable, Fail, Eon, Welcome, Ask, Past, Removed, Alive,
)  # fmt: skip


def loaded(messages: Round | None) -> bool:
    """Return True if somebody said something in this round."""
    return messages is not None and any(msg is not None and (msg.batch or msg.control) for msg in messages)


def number_of(messages: Round) -> int:
    return next((msg.r for msg in messages if msg is not None), 0)


def highest_started(messages: Round) -> int:
    """Return the highest round that somebody had begun: all agree on it with the messages of a reliable round."""
    orders = [order for msg in messages if msg is not None for order in msg.control]
    return max([order[1] for order in orders if order[0] == STARTED], default=0)


def holds_reliable(stash: dict[int, RoundMessage]) -> bool:
    return next((isinstance(msg, Reliable) for msg in stash.values()), False)
