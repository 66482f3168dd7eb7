"""The one interface between protocols and drivers: a `Process` takes events in and puts `Effects` out.

A protocol is a subclass that overrides the `on_…` hooks. It does no I/O, has no clock of its own and draws no random
number; what it wants done it appends to `out`, an `Effects` that the driver owns and empties when it likes. A driver
acts on effects in this order: make `records` durable, transmit `sends`, start `timers`, hand over `deliveries`. Records
that are not `urgent` may become durable later, in order: nobody would notice their loss but the process itself.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM
from amcast.core.requests import REQUESTS
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage, Message


@final
class Params:
    """The time scale of a run, in nanoseconds. `delta` bounds the delay of a message once the network behaves."""

    def __init__(
        self,
        delta: int,
        heartbeat: int = 0,
        suspect_after: int = 0,
        checked: bool = False,
        durable: bool = False,
        spare: int = 0,
        clock_offset: int = 0,
        clock_tick: int = 1,
        grace: int = 0,
    ) -> None:
        self.delta = delta
        self.heartbeat = heartbeat or max(5 * delta, 1_000_000)
        self.suspect_after = suspect_after or 4 * self.heartbeat
        self.checked = checked  # assert the paper's invariants at run time
        self.durable = durable  # emit records, so that a crashed process can come back
        self.spare = spare  # how many of the last replicas are no members at first and may join
        self.clock_offset = clock_offset  # from the driver's clock to one that all processes share, roughly
        self.clock_tick = clock_tick  # nanoseconds per unit of timestamps that are taken from it
        self.grace = grace  # more patience with a process that was never heard: it may not have started yet

    def stamp(self, now: int) -> int:
        """The time as it stands in timestamps."""
        return (now + self.clock_offset) // self.clock_tick


@final
class Effects:
    """What a step wants done, in the order in which a driver must act on it."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.urgent = False  # what is sent depends on the records so far; else they may be made durable later
        self.sends: list[tuple[tuple[int, ...], Message]] = []
        self.timers: list[tuple[str, int, int]] = []  # name, earliest and latest, from now
        self.optimistic: list[AppMessage] = []
        self.deliveries: list[tuple[AppMessage, int]] = []  # with the final timestamp, or BOTTOM
        self.completed: list[Mid] = []  # at a client: this multicast is known to be delivered
        self.refused: list[Mid] = []  # this multicast will never be delivered
        self.notes: list[tuple[str, str]] = []  # facts for the trace: kind, detail as JSON
        self.halted = False  # this process must stop for good: the others went on without it

    def clear(self) -> None:
        self.records.clear()
        self.urgent = False
        self.sends.clear()
        self.timers.clear()
        self.optimistic.clear()
        self.deliveries.clear()
        self.completed.clear()
        self.refused.clear()
        self.notes.clear()
        self.halted = False

    def parts(self) -> tuple[object, ...]:
        return (
            self.records,
            self.urgent,
            self.sends,
            self.timers,
            self.optimistic,
            self.deliveries,
            self.completed,
            self.refused,
            self.notes,
            self.halted,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effects) and self.parts() == other.parts()

    def __repr__(self) -> str:
        return f"Effects{self.parts()!r}"


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

    def recover(self, now: int, records: list[bytes]) -> None:
        self.now = now
        self.on_recover(records)

    def absent(self, now: int, pid: int) -> int:
        """A member of this group lost what it knew: count on nothing that it said. What it must be told to `rejoin`."""
        self.now = now
        return self.on_absent(pid)

    def rejoin(self, now: int, records: list[bytes], floor: int) -> None:
        """Start without what this process knew, from a snapshot that another member of its group took after all of them
        were told that this one is `absent`; `floor` is the highest of what they said."""
        self.now = now
        self.on_rejoin(records, floor)

    def abandon(self, now: int, mid: Mid) -> None:
        """At a client: this multicast was refused, and nobody will deliver it."""
        self.now = now
        self.on_abandon(mid)

    def reconfigure(self, now: int, join: bool, h: int) -> None:
        """The group of this process wants to send to group h, or not any more."""
        self.now = now
        self.on_reconfigure(join, h)

    def suspect(self, now: int) -> None:
        """A suspicion of the current leader: spurious in a replica (fault injection), a lost connection in a client."""
        self.now = now
        self.on_suspect()

    def detect(self, now: int, pid: int, suspected: bool) -> None:
        """What a failure detector says of another process, besides what the protocol's own one finds out."""
        self.now = now
        self.on_detect(pid, suspected)

    def change_members(self, now: int, members: tuple[int, ...]) -> None:
        """Let these processes be the members from some moment on, which all agree on."""
        self.now = now
        self.on_change_members(members)

    def join_group(self, now: int) -> None:
        """Become a member: for a process that is none yet."""
        self.now = now
        self.on_join_group()

    def leave_group(self, now: int) -> None:
        """Let the others go on without this process, and stop when they agree."""
        self.now = now
        self.on_leave_group()

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

    def on_recover(self, records: list[bytes]) -> None:
        pass

    def on_absent(self, pid: int) -> int:
        return BOTTOM

    def on_rejoin(self, records: list[bytes], floor: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} cannot come back without what it knew")

    def on_reconfigure(self, join: bool, h: int) -> None:
        raise NotImplementedError(f"in {type(self).__name__} everybody sends to everybody")

    def on_suspect(self) -> None:
        pass

    def on_detect(self, pid: int, suspected: bool) -> None:
        pass

    def on_change_members(self, members: tuple[int, ...]) -> None:
        raise NotImplementedError(f"{type(self).__name__} has fixed members")

    def on_join_group(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has fixed members")

    def on_leave_group(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has fixed members")

    def on_observe(self, monitor: object) -> None:
        """Report to the observer of a checked run, made by `Protocol.monitor`."""

    def on_supply(self, supply: Supply) -> None:
        """Broadcast in every round as long as there is a supply of messages. Only for protocols with rounds."""

    def snapshot(self) -> list[bytes]:
        """Records from which `recover` rebuilds what this process must not forget, instead of all so far."""
        return []

    def idle(self) -> bool:
        """Nothing is unfinished here, so far as this process knows."""
        return True

    def condition(self) -> dict[str, object]:
        """Facts for people who look at a running process."""
        return {}

    def footprint(self) -> int:
        """How many messages this process remembers: what garbage collection must bound."""
        return 0

    # What protocols say.

    def send(self, to: tuple[int, ...], msg: Message) -> None:
        self.out.sends.append((to, msg))

    def send_one(self, to: int, msg: Message) -> None:
        self.out.sends.append(((to,), msg))

    def set_timer(self, name: str, earliest: int, latest: int) -> None:
        self.out.timers.append((name, earliest, latest))

    def deliver(self, m: AppMessage, ts: int = BOTTOM) -> None:
        self.out.deliveries.append((m, ts))

    def note(self, kind: str, detail: str = "") -> None:
        self.out.notes.append((kind, detail))


Factory = Callable[[int, Topology, Params, Effects], Process]


@final
class Protocol:
    """A row of the table of protocols."""

    def __init__(
        self,
        name: str,
        title: str,
        replica: Factory,
        client: Factory,
        order: str,
        tolerates: str,
        latency: str,
        messages: tuple[type[Message], ...],
        packed: tuple[Message, ...] = (),
        elects: bool = False,
        single_replica: bool = False,
        single_group: bool = False,
        genuine: bool = True,
        durable: bool = False,
        guesses: bool = False,
        monitor: Callable[[Topology], object] | None = None,
        broadcast: bool = False,
        detector: str = "",
        reliable_links: bool = False,
        uniform: bool = True,
        joins: bool = False,
        requests: tuple[type[Message], ...] = (),
    ) -> None:
        self.name = name
        self.title = title
        self.replica = replica
        self.client = client
        self.order = order
        self.tolerates = tolerates
        self.latency = latency
        self.messages = messages
        self.packed = packed  # one message of each class that packs itself
        self.elects = elects  # has leaders, so that crashes and spurious suspicions mean something
        self.single_replica = single_replica  # groups are single reliable processes
        self.single_group = single_group  # atomic broadcast: there is one group
        self.genuine = genuine  # only senders and destinations of a message have work with it
        self.durable = durable  # replicas can come back from their records
        self.guesses = guesses  # delivers optimistically, before the order is known
        self.monitor = monitor  # makes the observer of a run's global invariants
        self.broadcast = broadcast  # one group, of any size, whose members multicast
        self.detector = detector  # the failure detector that it needs: "P", "◇P" or "Θ"
        self.reliable_links = reliable_links  # counts on it that what was sent before a crash arrives
        self.uniform = uniform  # what a process delivers before it crashes counts for the others
        self.requests = requests or REQUESTS  # what a replica takes from a client of a cluster
        self.joins = joins  # processes may become members, and leave, while it runs
