"""Variants of Baseline and Optimistic Atomic Multicast, and who sends to whom in their experiments."""

from dataclasses import replace

from amcast.core.protocol import Protocol
from amcast.protocols.optimistic.options import Options
from amcast.sim.workload import Destinations
from amcast.sim.world import World


def configured(table: Protocol, options: Options) -> Protocol:
    """Return the protocol in this variant."""
    return replace(table, options=options)


class Relation(Destinations):
    """Each group sends to the next ones, so that as many send to each; a message goes to `count` of them."""

    def __init__(self, groups: int, replicas: int, senders: int, count: int) -> None:
        super().__init__(senders, count)
        self.all_groups = groups
        self.replicas = replicas

    def senders_to(self) -> tuple[tuple[int, ...], ...]:
        n = self.all_groups
        return tuple([tuple(sorted([(h - i) % n for i in range(1, self.groups + 1)])) for h in range(n)])

    def choose_for(self, world: World, client: int) -> tuple[int, ...]:
        n = self.all_groups
        g = client % (n * self.replicas) // self.replicas  # clients, if any, are numbered like the members
        return tuple(sorted([(g + 1 + i) % n for i in self.choose(world)]))
