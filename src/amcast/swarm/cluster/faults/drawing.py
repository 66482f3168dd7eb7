"""Chance for a plan: whom, when and for how long."""

from random import Random
from typing import Final, TypeVar

LEADER: Final = "leader of "  # and a group: whoever leads it when the fault comes
T = TypeVar("T")


class Drawing:
    """Draws what faults are about."""

    def __init__(
        self, random: Random, groups: list[list[str]], hosts: list[str], gateways: list[str], calm_at: int
    ) -> None:
        self.random = random
        self.groups = groups
        self.gateways = gateways
        self.hosts = hosts + gateways
        self.calm_at = calm_at
        self.nodes = [name for group in groups for name in group]
        # One disk of a group may break the promises that it made: who comes back without one needs all the others.
        self.breakable = [random.choice(group) for group in groups if len(group) > 1]

    def lost(self) -> tuple[str, ...]:
        """Draw who stays away for ever: of those whose disks may fail, so that a quorum of the others is left."""
        return tuple([name for name in self.breakable if self.random.random() < 0.7])

    def time(self, before: int = 0) -> int:
        """Draw when something begins that takes so long."""
        return self.random.randrange(200, max(201, self.calm_at - before))

    def length(self) -> int:
        """Draw a time: mostly short, sometimes most of the run."""
        random = self.random
        longest = random.choice((100, 500, 1000, 2000, self.calm_at * 3 // 4))
        return random.randrange(10, max(11, min(longest, self.calm_at * 3 // 4)))

    def node(self) -> str:
        if self.random.random() < 0.25:
            return self.leader()
        return self.random.choice(self.nodes)

    def leader(self) -> str:
        return LEADER + f"g{self.random.randrange(len(self.groups))}"

    def one_of(self, choices: "tuple[T, ...] | list[T]") -> T:
        return self.random.choice(choices)

    def two_hosts(self) -> list[str]:
        return self.random.sample(self.hosts, 2)

    def call(self, mean: int) -> int:
        """Draw a system call, counted from now: 1 is the next."""
        return 1 + int(self.random.expovariate(1 / mean))

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent
