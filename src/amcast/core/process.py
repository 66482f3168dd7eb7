"""The one interface between protocols and drivers: a `Process` takes events in and puts `Effects` out.

A protocol is a subclass that overrides the `on_…` hooks. What only some protocols can do, such as coming back from a
disk, is a class of `core/capabilities.py` that they inherit besides. A process does no I/O, has no clock of its own and
draws no random number; what it wants done it appends to `out`, an `Effects` that the driver owns and empties when it
likes. A driver acts on effects in this order: make `records` durable, transmit `sends`, start `timers`, hand over
`deliveries`. Records that are not `urgent` may become durable later, in order: nobody would notice their loss but the
process itself.
"""

from dataclasses import dataclass, field
from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.notes import Note
from amcast.core.order import BOTTOM
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage, Message

TAIL_BYTES: Final = 8 * 2**20  # a laggard that missed more takes a snapshot instead

# What is delivered of each sender: the number below which it knows all to be delivered, and the delivered ones above;
# and of those that have been idle, the number below which all is delivered.
Memory = tuple[list[tuple[int, int, tuple[int, ...]]], list[tuple[int, int]]]


@final
@dataclass
class Params:
    """The time scale of a run, in nanoseconds. `delta` bounds the delay of a message once the network behaves."""

    delta: int
    heartbeat: int = 0  # 0: as follows from delta
    suspect_after: int = 0  # 0: as follows from the heartbeat
    checked: bool = False  # assert the paper's invariants at run time
    durable: bool = False  # emit records, so that a crashed process can come back
    spare: int = 0  # how many of the last replicas of each group are no members at first and may join
    founders: int = 0  # how many members the group of a process begins with that is none of the first groups
    clock_offset: int = 0  # from the driver's clock to one that all processes share, roughly
    clock_tick: int = 1  # nanoseconds per unit of timestamps that are taken from it
    grace: int = 0  # extra time for a process never heard: it may not have started yet
    part_bytes: int = 2**20  # of what recovery sends in one message
    tail_bytes: int = 0  # of delivered messages that are kept for laggards; 0: without a limit, unless durable

    def __post_init__(self) -> None:
        self.heartbeat = self.heartbeat or max(5 * self.delta, 1_000_000)
        self.suspect_after = self.suspect_after or 4 * self.heartbeat
        self.tail_bytes = self.tail_bytes or (TAIL_BYTES if self.durable else 1 << 62)

    def stamp(self, now: int) -> int:
        """The time as it stands in timestamps."""
        return (now + self.clock_offset) // self.clock_tick


@final
@dataclass
class Effects:
    """What a step wants done, in the order in which a driver must act on it."""

    records: list[bytes] = field(default_factory=list)
    urgent: bool = False  # what is sent depends on the records so far; else they may be made durable later
    sends: list[tuple[tuple[int, ...], Message]] = field(default_factory=list)
    timers: list[tuple[str, int, int]] = field(default_factory=list)  # name, earliest and latest, from now
    optimistic: list[AppMessage] = field(default_factory=list)
    undone: list[Mid] = field(default_factory=list)  # delivered optimistically before, and taken back
    deliveries: list[tuple[AppMessage, int]] = field(default_factory=list)  # with the final timestamp, or BOTTOM
    completed: list[Mid] = field(
        default_factory=list
    )  # at a client: this multicast is known to be delivered, or refused
    refused: list[Mid] = field(default_factory=list)  # this multicast will never be delivered
    confirmed: list[int] = field(default_factory=list)  # questions that are answered (`Confirming`)
    notes: list[Note] = field(default_factory=list)  # facts for the trace
    news: list[Message] = field(default_factory=list)  # for every client that is connected, and not worth keeping
    halted: bool = False  # this process must stop for good: the others went on without it
    pulls: list[int] = field(default_factory=list)  # members whose snapshot it needs, by `Durable.install`; best effort
    forgot: str = ""  # why this process must stop: others remember more of it than its disk. It may only `rejoin`
    marks: set[Mid] = field(default_factory=set)  # said by the driver: at these messages it wants to know …
    memories: dict[Mid, Memory] = field(default_factory=dict)  # … what was delivered before them

    def clear(self) -> None:
        self.records.clear()
        self.urgent = False
        self.sends.clear()
        self.timers.clear()
        self.optimistic.clear()
        self.undone.clear()
        self.deliveries.clear()
        self.completed.clear()
        self.refused.clear()
        self.confirmed.clear()
        self.notes.clear()
        self.news.clear()
        self.halted = False
        self.pulls.clear()
        self.forgot = ""
        self.memories.clear()


@mypyc_attr(allow_interpreted_subclasses=True)
class Supply:
    """Whom a server asks for a message when a round begins and it has none to broadcast."""

    def next(self, pid: int) -> AppMessage | None:
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class Process:
    """One process of a protocol. Drivers call the verbs, protocols override the hooks."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        self.pid = pid
        self.topology = topology
        self.params = params
        self.out = out
        self.now = 0  # the driver's clock at this step; protocols may use it for timeouts, never for safety

    # What drivers call.

    def start(self, now: int) -> None:
        self.now = now
        self.on_start()

    def receive(self, now: int, sender: int, msg: Message) -> None:
        self.now = now
        self.on_message(sender, msg)

    def timer(self, now: int, name: str) -> None:
        self.now = now
        self.on_timer(name)

    def multicast(self, now: int, m: AppMessage) -> None:
        self.now = now
        self.on_multicast(m)

    def abandon(self, now: int, mid: Mid) -> None:
        """At a client: this multicast was refused, and nobody will deliver it."""
        self.now = now
        self.on_abandon(mid)

    def disconnect(self, now: int) -> None:
        """At a client: a connection broke, and what was asked through it may be lost."""
        self.now = now
        self.on_disconnect()

    # What protocols override.

    def on_start(self) -> None:
        pass

    def on_message(self, sender: int, msg: Message) -> None:
        pass

    def on_timer(self, name: str) -> None:
        pass

    def on_multicast(self, m: AppMessage) -> None:
        pass

    def on_abandon(self, mid: Mid) -> None:
        pass

    def on_disconnect(self) -> None:
        pass

    def idle(self) -> bool:
        """Nothing is unfinished here, so far as this process knows."""
        return True

    def has_delivered(self, mid: Mid) -> bool:
        """Return True if this process has delivered this message, and remembers that."""
        return False

    def remembered(self) -> Memory:
        """Return what is delivered of each sender, so that a late copy is not taken for a new message."""
        return [], []

    def unready(self) -> str:
        """Say why this process cannot serve yet; empty if it can."""
        return ""

    def condition(self) -> dict[str, object]:
        """Facts for people who look at a running process."""
        return {}

    def footprint(self) -> int:
        """How many messages this process remembers: what garbage collection must bound."""
        return 0

    def backlog(self) -> int:
        """Return how many bytes of messages are under way here: known, and not delivered."""
        return 0

    # What protocols say.

    def send(self, to: tuple[int, ...], msg: Message) -> None:
        self.out.sends.append((to, msg))

    def send_one(self, to: int, msg: Message) -> None:
        self.out.sends.append(((to,), msg))

    def set_timer(self, name: str, earliest: int, latest: int) -> None:
        self.out.timers.append((name, earliest, latest))

    def deliver(self, m: AppMessage, ts: int = BOTTOM) -> None:
        if self.out.marks and m.mid in self.out.marks:  # what is delivered in the same step comes later
            self.out.memories[m.mid] = self.remembered()
        self.out.deliveries.append((m, ts))

    def note(self, note: Note) -> None:
        self.out.notes.append(note)
