"""The run that a seed of a swarm stands for, and what all such runs draw alike."""

from dataclasses import dataclass

from amcast.sim.choices import Choices
from amcast.sim.faults import Unstable
from amcast.sim.network import MILLISECOND, Constant, ExponentialTail, Network, Uniform
from amcast.sim.world import World

DELTA = MILLISECOND
LONGEST = 30  # δ: no message of a drawn network takes longer


@dataclass(frozen=True)
class Trial:
    world: World
    calm_at: int
    config: str
    properties: tuple[str, ...]
    correct_only: bool = False  # what a process delivered that crashed later does not count


def draw_network(choices: Choices) -> Network:
    kind = choices.below(6)
    if kind == 0:
        return Constant(DELTA)
    if kind == 1:
        return Uniform(DELTA // 10, DELTA)
    if kind == 2:
        return ExponentialTail(DELTA // 2, DELTA // 14)
    return Unstable(DELTA, 2 + choices.below(24))
