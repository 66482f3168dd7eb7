"""One simulation from one description: what `amcast sim` and every row of a sweep run."""

import json
from dataclasses import dataclass
from typing import Any, Final

from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Recorder
from amcast.errors import TopologyError, UsageError
from amcast.protocols import protocol
from amcast.protocols.optimistic.options import Options
from amcast.sim.choices import Choices, Seeded
from amcast.sim.datacentres import DataCentres
from amcast.sim.network import MILLISECOND, SECOND, Costs, Network, nanoseconds, parse_network
from amcast.sim.relation import Relation, configured
from amcast.sim.settings import MESSAGES, SETTINGS, Settings, refuse_exclusive
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
    """Return the network with this name."""
    if text in ("allconcur-sdc", "allconcur-mdc"):
        return DataCentres(topology.replicas, 1 if text == "allconcur-sdc" else 5), None
    return parse_network(text, topology)


@dataclass(frozen=True)
class Simulation(Settings):
    """The description of a run, and how to make its world."""

    def describe(self, delta: int) -> str:
        """Return the run as JSON, for its trace: how the numbers of a trace get their context, δ above all."""
        values = {name: setting.as_json(getattr(self, name)) for name, setting in SETTINGS.items()}
        return json.dumps({**values, "delta": delta}, sort_keys=True)

    def columns(self) -> dict[str, Any]:
        """Return the values, as they are written in tables and in JSON."""
        return {setting.column: setting.as_json(getattr(self, name)) for name, setting in SETTINGS.items()}

    def world(self, recorder: Recorder | None = None, choices: Choices | None = None, run: str | None = None) -> World:
        """Return the world of this run, ready to `run()`; raises UsageError for what cannot be."""
        table = protocol(self.protocol)
        self.refuse_impossible(table)
        relation = None
        if self.senders_to:
            relation = Relation(self.groups, self.replicas, self.senders_to, self.dest_groups or self.senders_to)
        members_send = relation is not None and table.reconfigures  # else a client beside each member does
        topology, senders = self.topology(members_send)
        network, costs = set_up(self.network, topology)
        source = choices if choices is not None else Seeded(self.seed)
        world = World(
            self.variant(table, relation if members_send else None),
            topology,
            network,
            source,
            params=self.params(network, costs),
            costs=costs,
            workload=self.workload(relation or Destinations(self.groups, self.dest_groups or min(2, self.groups))),
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

    def refuse_impossible(self, table: Protocol) -> None:
        """Raise UsageError for values outside their limits, or that contradict the protocol or each other."""
        for name, setting in SETTINGS.items():
            try:
                setting.check(getattr(self, name))
            except UsageError as error:
                raise UsageError(f"{name} {error}") from error
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
        if majorities and self.replicas % 2 == 0:
            raise TopologyError(
                f"{self.replicas} replicas per group: expected an odd number, for an even one tolerates no more crashes"
            )
        if self.senders_to >= self.groups:
            raise TopologyError(f"{self.senders_to} groups that send to each: expected 0 to {self.groups - 1}")
        if self.window >= 0 and not table.guesses:
            raise UsageError(f"a wait window of {self.window} ns: {table.name} has none; expected optimistic")

    def topology(self, members_send: bool) -> tuple[Topology, tuple[int, ...] | None]:
        """Return who takes part, and those that multicast if these are not the clients."""
        if members_send or self.rounds:
            topology = Topology((self.replicas,) * self.groups)
            return topology, tuple(range(topology.replicas))
        clients = self.replicas * self.groups if self.senders_to else self.clients
        return Topology((self.replicas,) * self.groups, clients), None

    def variant(self, table: Protocol, relation: Relation | None) -> Protocol:
        """Return the protocol as the settings want it."""
        if relation is not None:
            return configured(table, Options(senders_to=relation.senders_to(), window=self.window))
        return configured(table, Options(window=self.window)) if self.window >= 0 else table

    def workload(self, destinations: Destinations) -> Workload:
        payload = b"x" * (self.payload * self.batch)
        if self.rounds:
            return Servers(self.rounds, payload, self.duration)
        messages = self.messages if self.messages is not None or self.duration is not None else MESSAGES
        if self.rate is None:
            return ClosedLoop(destinations, messages, self.duration, payload)
        return OpenLoop(destinations, self.rate, messages, self.duration, payload)

    def params(self, network: Network, costs: Costs | None) -> Params:
        if isinstance(network, DataCentres):
            # Heartbeats as in the AllConcur+ paper, §V-B, where somebody fails; none where nobody does.
            heartbeat, silence = (MILLISECOND, 10 * MILLISECOND) if self.crashes else (NEVER, NEVER)
            return Params(network.delta, heartbeat, silence, checked=self.checked)
        # On machines that queue, a message takes much longer than the wire: time-outs must not count on δ alone.
        delta = max(network.delta, 10 * MILLISECOND) if costs is not None else network.delta
        return Params(delta, checked=self.checked)


def simulation_with(fields: dict[str, Any]) -> Simulation:
    """Return the simulation with these settings; what they leave open is as the protocol demands."""
    refuse_exclusive({name for name, value in fields.items() if value is not None})
    table = protocol(fields["protocol"])
    smallest = {"groups": table.single_group, "replicas": table.single_replica}
    return Simulation(**{**{name: 1 for name, single in smallest.items() if single}, **fields})
