"""The members of a group change: somebody comes, in the place of one that goes, or for nobody's; or one goes."""

from typing import Self

from amcast.swarm.cluster.faults.drawing import Drawing
from amcast.swarm.cluster.faults.shapes import Fault, seat_of
from amcast.swarm.cluster.world import World


class ChangeMembers(Fault, frozen=True, tag=True):
    """An operator changes the members of the group of this replica, and insists until that is done."""

    node: str
    goes: bool  # this replica
    comes: bool  # a new one

    def act(self, world: World) -> None:
        world.change_members(seat_of(world, self.node), self.goes, self.comes)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        goes = drawing.chance(80)
        return cls(drawing.time(), drawing.node(), goes, not goes or drawing.chance(80))
