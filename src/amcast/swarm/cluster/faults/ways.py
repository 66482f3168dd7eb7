"""Faults of the network: ways between machines are cut, slow, or reset what is connected by them."""

from collections.abc import Callable
from typing import Self

from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Fault, Spell
from amcast.swarm.cluster.world import World


class Cut(Spell, frozen=True, tag=True):
    """Nothing passes from one machine to another, or to all others, or both ways."""

    source: str
    target: str  # empty: all others
    one_way: bool

    def begin(self, world: World) -> Callable[[], None]:
        source = world.hosts[self.source]
        targets = [world.hosts[self.target]] if self.target else [h for h in world.hosts.values() if h is not source]
        pairs = [(source.address, target.address) for target in targets]
        if not self.one_way:
            pairs += [(target, source) for source, target in pairs]
        elif not self.target and self.length % 2:  # deaf instead of mute
            pairs = [(target, source) for source, target in pairs]
        world.write_down(self.source, f"cut off: {', '.join(map(' to '.join, pairs))}")
        for pair in pairs:
            world.network.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                world.network.heal(*pair)

        return heal

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        source = drawing.one_of(drawing.hosts)
        others = [host for host in drawing.hosts if host != source]
        target = "" if drawing.chance(40) else drawing.one_of(others)
        return {"source": source, "target": target, "one_way": drawing.chance(40)}


class SlowWay(Spell, frozen=True, tag=True):
    """Everything takes much longer between two machines."""

    one: str
    other: str
    factor: int

    def begin(self, world: World) -> Callable[[], None]:
        one, other = world.hosts[self.one].address, world.hosts[self.other].address
        ways = [world.network.way(one, other), world.network.way(other, one)]
        for way in ways:
            way.slower = self.factor

        def end() -> None:
            for way in ways:
                way.slower = 1

        return end

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        one, other = drawing.two_hosts()
        return {"one": one, "other": other, "factor": drawing.one_of((10, 100, 1000))}


class Reset(Fault, frozen=True, tag=True):
    """Connections between two machines break; who dials may do so again."""

    one: str
    other: str

    def act(self, world: World) -> None:
        for endpoint in world.network.connections(world.hosts[self.one].address, world.hosts[self.other].address):
            world.network.reset(endpoint)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        return cls(drawing.time(), *drawing.two_hosts())
