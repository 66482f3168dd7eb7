"""The members of a group change: somebody comes, in the place of one that goes, or for nobody's; or one goes.

And slots of the store go from one group to another.
"""

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


class MoveSlots(Fault, frozen=True, tag=True):
    """An operator moves slots, stands still for a while in the middle, and goes on until their keys are there."""

    source: int
    target: int
    part: int  # of what the source owns: one slot in so many
    pause: int  # milliseconds, as if whoever moved them had died

    def act(self, world: World) -> None:
        world.move_slots(self.source, self.target, self.part, self.pause)

    @classmethod
    def draw(cls, drawing: Drawing) -> Self | None:
        if len(drawing.groups) == 1:
            return None
        source, target = drawing.random.sample(range(len(drawing.groups)), 2)
        return cls(drawing.time(), source, target, drawing.one_of((1, 1, 2, 3)), drawing.one_of((0, 0, 100, 3000)))
