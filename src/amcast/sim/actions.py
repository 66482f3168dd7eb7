"""What a fault plan, a workload or a scenario does in a world."""

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import mypyc_attr

from amcast.core.topology import Mid

if TYPE_CHECKING:
    from amcast.sim.world import World


@mypyc_attr(allow_interpreted_subclasses=True)
class Action:
    """Something that a fault plan, a workload or a scenario does at a moment."""

    def act(self, world: "World") -> None:
        raise NotImplementedError


@final
class Call(Action):
    """Calls a function: how tests and scenarios script a run."""

    def __init__(self, function: "Callable[[World], None]") -> None:
        self.function = function

    def act(self, world: "World") -> None:
        self.function(world)


@mypyc_attr(allow_interpreted_subclasses=True)
class Workload:
    """Who multicasts what and when. This one does nothing."""

    def begin(self, world: "World") -> None:
        pass

    def completed(self, world: "World", client: int, mid: Mid) -> None:
        """A client knows that its multicast is delivered."""

    def finished(self, world: "World") -> bool:
        return True
