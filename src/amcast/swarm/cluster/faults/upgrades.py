"""Replicas get another release: the one to come, one after the other, or this one again while that is possible."""

from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Absence
from amcast.swarm.cluster.world import Seat, World


class Upgrade(Absence, frozen=True, tag=True):
    """A replica ends, in order or not, and starts as the release to come."""

    in_order: bool

    def end(self, world: World, seat: Seat) -> None:
        change_release(world, seat, self.in_order, self.down, coming=True)


class GoBack(Absence, frozen=True, tag=True):
    """A replica ends and starts as this release again, if another one has never been anything else.

    Then the format has not been raised, and cannot be under way.
    """

    in_order: bool

    def end(self, world: World, seat: Seat) -> None:
        if any(other is not seat and not other.was_coming for other in world.seats.values()):
            change_release(world, seat, self.in_order, self.down, coming=False)


def change_release(world: World, seat: Seat, in_order: bool, down: int, *, coming: bool) -> None:
    """Have a replica start as another release the next time, and end now."""
    world.write_down(seat.name, f"gets {'the release to come' if coming else 'this release again'}")
    seat.coming = coming
    seat.was_coming = seat.was_coming or coming
    if in_order:
        world.stop(seat)
        seat.down_until = world.calendar.now + down * MILLISECOND
    else:
        world.kill(seat)


def draw_upgrades(drawing: Drawing, back: bool) -> list[Absence]:
    """Draw upgrades for a part of the seeds: of some replicas, or of all, one after the other.

    With `back`, some may go back.
    """
    random = drawing.random
    if random.random() < 0.6:
        return []
    nodes = random.sample(drawing.nodes, len(drawing.nodes))
    if random.random() < 0.4:
        nodes = nodes[: random.randrange(1, len(nodes) + 1)]
    gap = random.choice((50, 300, 1000))
    began = drawing.time(min(gap * len(nodes), drawing.calm_at * 3 // 4))
    found: list[Absence] = [
        Upgrade(began + gap * n, node, random.choice((10, 200, 1000)), drawing.chance(70))
        for n, node in enumerate(nodes)
        if began + gap * n < drawing.calm_at
    ]
    if back and random.random() < 0.5:
        found += [
            GoBack(drawing.time(500), drawing.node(), drawing.one_of((10, 500)), drawing.chance(70))
            for _ in range(random.choice((1, 1, 3)))
        ]
    return found
