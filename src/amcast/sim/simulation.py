"""One simulation from one description: what `amcast sim` and every row of a sweep run."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Final

from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.core.trace import Recorder
from amcast.errors import TopologyError, UsageError
from amcast.protocols import protocol
from amcast.protocols.optimistic.baseline import Options
from amcast.sim.choices import Choices, Seeded
from amcast.sim.datacentres import DataCentres
from amcast.sim.network import MILLISECOND, SECOND, Costs, Network, nanoseconds, parse_network
from amcast.sim.relation import Relation, configured
from amcast.sim.workload import ClosedLoop, Destinations, OpenLoop, Servers
from amcast.sim.world import Workload, World

NEVER: Final = 1_000_000 * SECOND


@dataclass(frozen=True)
class Crash:
    """`g0/0@50ms`: this process crashes at that time."""

    process: str
    time: int

    @classmethod
    def parse(cls, text: str) -> "Crash":
        process, at, time = text.partition("@")
        if not at or not process or not time:
            raise UsageError(f"crash {text!r}: expected PROCESS@TIME, such as g0/0@50ms")
        return cls(process, nanoseconds(time))


def set_up(text: str, topology: Topology) -> tuple[Network, Costs | None]:
    """The network with this name."""
    if text in ("allconcur-sdc", "allconcur-mdc"):
        return DataCentres(topology.replicas, 1 if text == "allconcur-sdc" else 5), None
    return parse_network(text, topology)


@dataclass(frozen=True)
class Simulation:
    """The description of a run. Times are in nanoseconds."""

    protocol: str
    groups: int = 3
    replicas: int = 3
    clients: int = 10
    messages: int | None = None
    duration: int | None = None
    dest_groups: int | None = None
    rate: float | None = None  # messages per second of an open loop; None: closed loop
    network: str = "constant:1ms"
    crashes: tuple[Crash, ...] = field(default=())
    skew: int = 0  # clocks differ by up to this much
    seed: int = 1
    payload: int = 20
    checked: bool = False
    senders_to: int = 0  # members multicast, and so many other groups send to each group; 0: clients multicast
    window: int = -1  # of Optimistic, if it is fixed
    rounds: int = 0  # the servers of a broadcast multicast, each so many messages at most; 0: clients multicast
    batch: int = 1  # transactions of `payload` bytes in a message

    def describe(self, delta: int) -> str:
        """The run as JSON, for its trace: how the numbers of a trace get their context, δ above all."""
        crashes = [f"{crash.process}@{crash.time}ns" for crash in self.crashes]
        return json.dumps({**dataclasses.asdict(self), "crashes": crashes, "delta": delta}, sort_keys=True)

    def world(self, recorder: Recorder | None = None, choices: Choices | None = None, run: str | None = None) -> World:
        """The world of this run, ready to `run()`; raises UsageError for what cannot be."""
        table = protocol(self.protocol)
        if table.single_replica and self.replicas != 1:
            raise TopologyError(f"{self.replicas} replicas: {table.name} has groups of one process; use --replicas 1")
        if table.single_group and self.groups != 1:
            raise TopologyError(f"{self.groups} groups: {table.name} broadcasts in one group; use --groups 1")
        if self.rounds and not table.single_group:
            raise UsageError(f"{self.rounds} rounds: {table.name} has none; expected a protocol of one group")
        if self.rounds and self.messages is not None:
            both = f"{self.messages} messages and {self.rounds} rounds"
            raise UsageError(f"{both} exclude each other: expected one of them")
        majorities = not table.broadcast and not table.detector and not self.senders_to and not self.rounds
        if self.replicas < 1 or (majorities and self.replicas % 2 == 0):
            raise TopologyError(
                f"{self.replicas} replicas per group: expected an odd number, for an even one tolerates no more crashes"
            )
        if self.clients < 1:
            raise TopologyError(f"{self.clients} clients: expected at least one")
        for number, what in ((self.messages, "messages"), (self.duration, "duration"), (self.batch, "batch")):
            if number is not None and number < 1:
                raise UsageError(f"{what} {number}: expected a positive number")
        if not 0 <= self.senders_to < self.groups:
            raise TopologyError(f"{self.senders_to} groups that send to each: expected 0 to {self.groups - 1}")
        if self.window >= 0 and not table.guesses:
            raise UsageError(f"a wait window of {self.window} ns: {table.name} has none; expected optimistic")
        topology = Topology((self.replicas,) * self.groups, self.clients)
        destinations: Destinations
        senders: tuple[int, ...] | None = None
        if self.senders_to:
            relation = Relation(self.groups, self.replicas, self.senders_to, self.dest_groups or self.senders_to)
            if "fifo" in table.order:  # its members multicast; else a client beside each member does
                table = configured(table, Options(senders_to=relation.senders_to(), window=self.window))
                topology = Topology((self.replicas,) * self.groups)
                senders = tuple(range(topology.replicas))
            else:
                topology = Topology((self.replicas,) * self.groups, self.replicas * self.groups)
        elif self.window >= 0:
            table = configured(table, Options(window=self.window))
        if self.rounds:
            topology = Topology((self.replicas,))
            senders = tuple(range(self.replicas))
        network, costs = set_up(self.network, topology)
        dest_groups = self.dest_groups if self.dest_groups is not None else min(2, self.groups)
        destinations = relation if self.senders_to else Destinations(self.groups, dest_groups)
        source = choices if choices is not None else Seeded(self.seed)
        world = World(
            table,
            topology,
            network,
            source,
            params=self.params(network, costs),
            costs=costs,
            workload=self.workload(destinations),
            recorder=recorder,
            run=run or f"{self.protocol}-{self.seed}",
            config=self.describe(network.delta),
            skew=[source.below(2 * self.skew + 1) for _ in range(topology.size)] if self.skew else None,
            senders=senders,
        )
        for crash in self.crashes:
            pid = topology.pid(crash.process)
            world.call(crash.time, lambda world, pid=pid: world.crash(pid))  # type: ignore[misc]
        return world

    def workload(self, destinations: Destinations) -> Workload:
        payload = b"x" * (self.payload * self.batch)
        if self.rounds:
            return Servers(self.rounds, payload, self.duration)
        messages = self.messages if self.messages is not None or self.duration is not None else 1000
        if self.rate is None:
            return ClosedLoop(destinations, messages, self.duration, payload)
        return OpenLoop(destinations, self.rate, messages, self.duration, payload)

    def params(self, network: Network, costs: Costs | None) -> Params:
        if isinstance(network, DataCentres):
            # Heartbeats as in the AllConcur+ paper, §V-B, where somebody fails; none where nobody does.
            heartbeat, patience = (MILLISECOND, 10 * MILLISECOND) if self.crashes else (NEVER, NEVER)
            return Params(network.delta, heartbeat, patience, checked=self.checked)
        # On machines that queue, a message takes much longer than the wire: time-outs must not count on δ alone.
        patience = max(network.delta, 10 * MILLISECOND) if costs is not None else network.delta
        return Params(patience, checked=self.checked)
