"""Faults that aim: not at a time, but at a state of the world in which something is likely to go wrong.

They look at the simulated machines, not into nodes: what a node calls things may change.
"""

from typing import Self

from amcast.swarm.cluster.faults.drawing import LEADER, Drawing
from amcast.swarm.cluster.faults.shapes import Aimed, Fault, end_hard, later, restart, seat_of, seats_of
from amcast.swarm.cluster.world import Seat, World


class BeforeTheSync(Aimed, frozen=True, tag=True):
    """A machine loses its power when its disk has something that is not synced, and others get something from it.

    Whoever speaks of what is not durable yet is forgetful after that.
    """

    node: str
    down: int

    def target(self, world: World) -> Seat | None:
        for seat in seats_of(world, self.node):
            if seat.host.disk.unsynced and seat.life is not None and seat is seat_of(world, self.node):
                return seat if world.network.sends(seat.host.address) else None
        return None

    def strike(self, world: World, seat: Seat) -> None:
        end_hard(world, seat, power=True)
        restart(world, seat, self.down)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        node = drawing.leader() if drawing.chance(70) else drawing.node()
        return cls(drawing.time(500), drawing.one_of((1, 2, 5)), node, drawing.one_of((10, 200, 1000)))


class WhilePulling(Aimed, frozen=True, tag=True):
    """A replica dies in the middle of getting a state, or of writing one down."""

    received: int  # bytes since it started, if it has not served yet
    power: bool
    down: int

    def target(self, world: World) -> Seat | None:
        for seat, life in world.starting.items():
            if life.process.received >= self.received and not life.process.dead:
                return seat
        for seat in world.seats.values():
            if seat.host.disk.replacing.startswith("snapshot-") and seat.life is not None:
                return seat
        return None

    def strike(self, world: World, seat: Seat) -> None:
        end_hard(world, seat, self.power)
        restart(world, seat, self.down)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        received = drawing.one_of((100, 1000, 10_000))
        down = drawing.one_of((10, 200, 1000))
        return cls(drawing.time(500), drawing.one_of((1, 2, 3)), received, drawing.chance(50), down)


class AgainAtOnce(Aimed, frozen=True, tag=True):
    """A replica is killed, and ends again a few turns of its loop after its start."""

    node: str
    turns: int
    in_order: bool
    down: int

    def act(self, world: World) -> None:
        seat = world.seats[self.node]
        world.kill(seat)
        restart(world, seat, self.down)
        super().act(world)

    def target(self, world: World) -> Seat | None:
        seat = world.seats[self.node]
        life = seat.life
        just_now = life is not None and len(seat.lives) > 1 and self.turns <= life.process.turns < self.turns + 20
        return seat if just_now else None

    def strike(self, world: World, seat: Seat) -> None:
        if self.in_order:
            world.stop(seat)
        else:
            world.kill(seat)
        restart(world, seat, self.down)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        turns, down = drawing.one_of((2, 10, 40, 150)), drawing.one_of((10, 50, 300))
        node = drawing.one_of(drawing.nodes)
        return cls(drawing.time(500), drawing.one_of((1, 2, 4)), node, turns, drawing.chance(30), down)


class LongAbsence(Fault, frozen=True, tag=True):
    """A replica misses most of what is written in a run; when it is back, or before, the leader of its group dies."""

    node: str
    down: int
    then: int  # ms after its start
    leader_down: int

    def act(self, world: World) -> None:
        seat = seat_of(world, self.node)
        world.kill(seat)
        restart(world, seat, self.down)
        later(world, self.down + self.then, lambda: self._depose(world, seat))

    def _depose(self, world: World, seat: Seat) -> None:
        leader = seat_of(world, LEADER + seat.name.partition("/")[0])
        if leader is not seat:
            world.kill(leader)
            restart(world, leader, self.leader_down)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        down = drawing.calm_at * 6 // 10
        then = drawing.one_of((0, 20, 200, 1000))
        return cls(drawing.random.randrange(200, 600), drawing.node(), down, then, drawing.one_of((100, 1000)))
