"""A protocol's row: what commands, drivers and checks know about it. It stands at the end of the protocol's file."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from amcast.core.capabilities import (
    Confirming,
    Detecting,
    Durable,
    Dynamic,
    Electing,
    Observed,
    Reconfigurable,
    Rounds,
    Seated,
    Speculative,
)
from amcast.core.process import Effects, Params, Process
from amcast.core.requests import REQUESTS
from amcast.core.topology import Mid, Topology
from amcast.core.wire import Codec, Layout, Message
from amcast.errors import UsageError

Order = Literal["total", "fifo", "causal"]
Detector = Literal["", "P", "◇P", "Θ"]


def minority(members: int) -> int:
    return (members - 1) // 2


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Flags follow from what the replica inherits; a row that contradicts its class raises UsageError."""

    name: str
    title: str
    replica: type[Process]
    client: type[Process]
    messages: tuple[type[Message] | Layout, ...]
    records: Codec | None = None  # of what its replicas keep on disk, for those with other layouts before (`Layout`)
    orders: tuple[Order, ...] = ("total",)  # what it promises of the order of deliveries
    tolerates: str = ""  # for people, as is …
    latency: str = ""  # … this one, in message delays
    requests: tuple[type[Message], ...] = REQUESTS  # what a replica takes from a client of a cluster
    single_replica: bool = False  # groups are single reliable processes
    single_group: bool = False  # atomic broadcast: there is one group
    genuine: bool = True  # only senders and destinations of a message have work with it
    uniform: bool = True  # what a process delivers before it crashes counts for the others
    reliable_links: bool = False  # counts on it that what was sent before a crash arrives
    blocks: bool = False  # a message that is lost with its sender may hold up others for ever
    detector: Detector = ""  # the failure detector that it needs
    bears: Callable[[int], int] = minority  # how many of so many members of a group may crash
    monitor: Callable[[Topology], object] | None = None  # makes the observer of a run's global invariants
    # What share of the multicasts of any 50 seeds of a swarm somebody delivers at least, in percent: for ours five or
    # more below the least of 600 seeds. The rest was lost with its sender, refused, or multicast in wild weather.
    least_delivered: int = 50
    more_scopes: tuple[str, ...] = ()  # of the explorer: those that not all of its kind can bear
    paper_names: Mapping[str, str] = field(default_factory=dict)  # of variables that the paper calls otherwise
    # Makes records of what version 0.1 recorded: those of a snapshot, whose position is said, and those behind it. What
    # these delivered is delivered again by a process that recovers from the result. Third: id and timestamp of what was
    # delivered before the snapshot, from a position on that is the same for all members of the group.
    convert: Callable[[list[bytes], int, Iterable[tuple[Mid, int]], Topology], list[bytes]] | None = None
    # Makes the payload of a message that changes the members of its group: the epoch that it ends, the new seats,
    # and what drivers say of them.
    change: Callable[..., bytes] | None = None
    # Makes the payload of a message that adds a group: its number, how many members it begins with, and what drivers
    # say of them. It goes to the first group alone.
    found: Callable[..., bytes] | None = None
    options: object = None  # the variant: a fifth argument of replica and client, if they take one

    def __post_init__(self) -> None:
        if contradiction := self.contradiction():
            raise UsageError(f"the row of {self.name}: {contradiction}")

    def contradiction(self) -> str:
        """Say what in this row cannot be true of its classes; empty if all can."""
        roles: tuple[object, ...] = (self.replica, self.client)
        for role in roles:
            if not (isinstance(role, type) and issubclass(role, Process)):
                return f"{role!r} is not a class derived from Process"
        replica = self.replica.__name__
        if bool(self.detector) != issubclass(self.replica, Detecting):
            return (
                f"it needs the detector {self.detector}, but {replica} does not inherit Detecting"
                if self.detector
                else f"{replica} inherits Detecting, but the row does not say which detector it needs"
            )
        if (self.monitor is not None) != issubclass(self.replica, Observed):
            return (
                f"{replica} inherits Observed, but the row has no monitor"
                if self.monitor is None
                else f"the row has a monitor, but {replica} does not inherit Observed"
            )
        if (self.change is not None) != issubclass(self.replica, Seated):
            return f"change and {replica} disagree on whether members can change: expected both, by Seated, or neither"
        if self.broadcast and not self.single_group:
            return f"{replica} inherits Rounds, but single_group is not set: rounds are of one group"
        if not self.orders:
            return "it promises no order; expected total, fifo or causal"
        if not self.messages:
            return "it has no messages"
        return ""

    def make(self, pid: int, topology: Topology, params: Params, out: Effects) -> Process:
        """Make this process: replicas have the first numbers."""
        role: Any = self.replica if pid < topology.replicas else self.client
        made: Process = role(pid, topology, params, out, *([] if self.options is None else [self.options]))
        return made

    @property
    def order(self) -> str:
        """Say what order it gives, for people."""
        return ", ".join((*self.orders, "one group") if self.single_group and not self.broadcast else self.orders)

    @property
    def elects(self) -> bool:
        return issubclass(self.replica, Electing)

    @property
    def durable(self) -> bool:
        """Return whether replicas can come back from their records."""
        return issubclass(self.replica, Durable)

    @property
    def confirms(self) -> bool:
        """Return whether leaders answer reads without a message in the order."""
        return issubclass(self.replica, Confirming)

    @property
    def guesses(self) -> bool:
        """Return whether it delivers optimistically, before the order is known."""
        return issubclass(self.replica, Speculative)

    @property
    def broadcast(self) -> bool:
        """Return whether it has one group, of any size, whose members multicast."""
        return issubclass(self.replica, Rounds)

    @property
    def joins(self) -> bool:
        """Return whether processes may become members, and leave, while it runs."""
        return issubclass(self.replica, Dynamic)

    @property
    def reconfigures(self) -> bool:
        """Return whether groups begin and end to send to others; only then may a message be refused."""
        return issubclass(self.replica, Reconfigurable)
