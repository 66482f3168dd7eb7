"""A replica is started with a cluster.toml that is not that of its data: refused by name, and nothing has changed."""

from typing import Final

from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Absence, later
from amcast.swarm.cluster.world import Seat, World

OTHERS: Final = ("app", "group", "replica", "fewer")


class OtherConfig(Absence, frozen=True, tag=True):
    """A stop, and a start with another application, or another list of replicas; then one with the right file.

    Only where the data is as the replica left it: else the refusal may be about that.
    """

    other: str  # of OTHERS
    in_order: bool

    def act(self, world: World) -> None:
        for seat in self.seats(world):
            self.end(world, seat)
            later(world, self.down, lambda seat=seat: self._start(world, seat))  # type: ignore[misc]

    def end(self, world: World, seat: Seat) -> None:
        if self.in_order:
            world.stop(seat)
            seat.down_until = 2**62  # until the wrong start has ended
        else:
            world.kill(seat)

    def _start(self, world: World, seat: Seat) -> None:
        seat.down_until = 0
        served = any(life.ready for life in seat.lives) and not seat.reasons and not seat.must_rejoin and not seat.joins
        wrong = world.other_config(self.other, seat) if served and not world.calm else None
        world.start(seat, wrong=wrong)

    @classmethod
    def details(cls, drawing: Drawing) -> dict[str, object]:
        return {"other": drawing.one_of(OTHERS), "in_order": drawing.chance(50)}
