"""Who multicasts what, and when."""

from typing import final

from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Rounds
from amcast.core.process import Supply
from amcast.core.topology import Mid
from amcast.core.wire import AppMessage
from amcast.errors import TopologyError, UsageError
from amcast.sim.network import SECOND
from amcast.sim.world import Workload, World


@mypyc_attr(allow_interpreted_subclasses=True)
class Destinations:
    """How a client chooses the groups of a message: a random set of a given size."""

    def __init__(self, groups: int, count: int) -> None:
        if not 1 <= count <= groups:
            raise TopologyError(f"{count} destination groups of {groups}: expected from 1 to {groups}")
        self.groups = groups
        self.count = count

    def choose_for(self, world: World, client: int) -> tuple[int, ...]:
        return self.choose(world)

    def choose(self, world: World) -> tuple[int, ...]:
        if self.count == self.groups:
            return tuple(range(self.groups))
        return world.choices.sample(self.groups, self.count)


class Clients(Workload):
    """Clients that multicast until so many messages are sent, or so much time has passed."""

    def __init__(
        self, destinations: Destinations, messages: int | None, duration: int | None = None, payload: bytes = b"x" * 20
    ) -> None:
        self.destinations = destinations
        self.left = messages
        self.duration = duration
        self.payload = payload

    def issue(self, world: World, client: int) -> bool:
        """Let the client multicast its next message, if it may."""
        if self.finished(world) or not world.up(client):
            return False
        if self.left is not None:
            self.left -= 1
        world.multicast(client, self.destinations.choose_for(world, client), self.payload)
        return True

    def finished(self, world: World) -> bool:
        if self.left == 0 or (self.duration is not None and world.now >= self.duration):
            return True
        return world.senders_up == 0


@final
class ClosedLoop(Clients):
    """Every client has one multicast under way and starts the next when it completes."""

    def begin(self, world: World) -> None:
        for client in world.senders:
            self.issue(world, client)

    def completed(self, world: World, client: int, mid: Mid) -> None:
        self.issue(world, client)


@final
class OpenLoop(Clients):
    """All clients together multicast `rate` messages per second, whatever happens to them."""

    def __init__(
        self,
        destinations: Destinations,
        rate: float,
        messages: int | None,
        duration: int | None = None,
        payload: bytes = b"x" * 20,
    ) -> None:
        super().__init__(destinations, messages, duration, payload)
        if not 0 < rate <= SECOND:
            raise UsageError(f"{rate} messages per second: expected a positive number of at most {SECOND}")
        self.gap = int(SECOND / rate)

    def begin(self, world: World) -> None:
        for client in world.senders:
            self.plan(world, client)

    def plan(self, world: World, client: int) -> None:
        mean = self.gap * len(world.senders)
        at = int(world.now) + world.choices.between(0, 2 * mean)
        if self.duration is not None:  # the run need not last until a message that will not be sent
            at = min(at, max(self.duration, int(world.now)))
        world.call(at, lambda world: self.next(world, client))

    def next(self, world: World, client: int) -> None:
        if self.issue(world, client):
            self.plan(world, client)


@final
class Servers(Workload):
    """Every server of a broadcast has one message under way: a new one in every round, or when the last is delivered.

    Until each has sent so many of them, or for so long.
    """

    def __init__(self, each: int, payload: bytes, duration: int | None = None) -> None:
        self.each = each
        self.payload = payload
        self.duration = duration
        self.left: list[int] = []
        self.under_way: list[int] = []

    def begin(self, world: World) -> None:
        servers = world.topology.replicas
        self.left = [self.each] * servers
        self.under_way = [0] * servers
        supply = RoundSupply(self, world)
        for server in range(servers):
            process = world.processes[server]
            if isinstance(process, Rounds):
                process.on_supply(supply)
        for server in range(servers):
            self.issue(world, server)

    def may(self, world: World, server: int) -> bool:
        return self.left[server] > 0 and world.up(server) and (self.duration is None or world.now < self.duration)

    def issue(self, world: World, server: int) -> None:
        if self.may(world, server) and self.under_way[server] == 0:
            self.count(server)
            world.multicast(server, (0,), self.payload)

    def count(self, server: int) -> None:
        self.left[server] -= 1
        self.under_way[server] += 1

    def completed(self, world: World, client: int, mid: Mid) -> None:
        self.under_way[client] -= 1
        self.issue(world, client)

    def finished(self, world: World) -> bool:
        return not any(self.may(world, server) for server in range(world.topology.replicas))


@final
class RoundSupply(Supply):
    """A server that begins a round takes its message from here, so that none of its rounds is empty."""

    def __init__(self, servers: Servers, world: World) -> None:
        self.servers = servers
        self.world = world

    def next(self, pid: int) -> AppMessage | None:
        if not self.servers.may(self.world, pid):
            return None
        self.servers.count(pid)
        return self.world.new_message(pid, (0,), self.servers.payload)
