"""What a replica knows of one message that it has not delivered: its phase, timestamps and acknowledgements."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM, Slot
from amcast.core.wire import AppMessage
from amcast.protocols.parts.sessions import Session

START: Final = 0
PROPOSED: Final = 1
ACCEPTED: Final = 2
COMMITTED: Final = 3


@final
@mypyc_attr(acyclic=True)
class VectorAcks:
    """The acknowledgements of one vector of ballots."""

    def __init__(self, bal: tuple[int, ...]) -> None:
        self.bal = bal
        self.members = [0] * len(bal)  # per destination group, a bit for each member that acknowledged
        self.counts = [0] * len(bal)
        self.quorums = 0
        self.mine = False
        self.gts = BOTTOM  # known once this process itself accepted the vector


@final
@mypyc_attr(acyclic=True)
class MessageState:
    """What a process knows of an application message that it has not delivered."""

    def __init__(self, m: AppMessage, session: Session) -> None:
        k = len(m.dest)
        self.m = m
        self.session = session
        self.phase = START
        self.lts = BOTTOM
        self.gts = BOTTOM
        self.outcome = BOTTOM  # at the leader: with what another group has delivered it, …
        self.confirmed = 0  # … and a bit for each member that has joined no higher ballot since that was heard
        self.bal = [BOTTOM] * k  # the highest ACCEPT of each destination group: its ballot …
        self.proposals = [BOTTOM] * k  # … and its local timestamp
        self.missing = k
        self.vectors: list[VectorAcks] | None = None
        self.slot: Slot | None = None  # its place in the leader's queue
        self.retry_at = 0
        self.retry_delay = 0
        self.recorded = False  # its content is on disk

    def acks_of(self, bal: tuple[int, ...]) -> VectorAcks:
        vectors = self.vectors
        if vectors is None:
            vectors = self.vectors = []
        for acks in vectors:
            if acks.bal is bal or acks.bal == bal:
                return acks
        acks = VectorAcks(bal)
        vectors.append(acks)
        return acks


def place(dest: tuple[int, ...], g: int) -> int:
    """Return where g stands in dest."""
    i = 0
    while dest[i] != g:
        i += 1
    return i
