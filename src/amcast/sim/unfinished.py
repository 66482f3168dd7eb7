"""What a run leaves undone, and why it had to be expected."""

from collections.abc import Iterator

from amcast.protocols import PROTOCOLS
from amcast.sim.simulation import Simulation
from amcast.sim.world import World


def is_done(world: World) -> bool:
    """Tell whether a run that is over delivered all that had to be."""
    return not world.stalled and not world.pending and world.workload.finished(world)


def restless(world: World) -> list[str]:
    """Return the processes that are up and know of unfinished work."""
    return [world.topology.name(p) for p, process in enumerate(world.processes) if world.up(p) and not process.idle()]


def missing(world: World) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each message that somebody who is up has not delivered: its name, its groups, those processes."""
    for mid, pending in world.pending.items():
        members = world.topology.members_of(pending.m.dest)
        yield (
            world.topology.message_name(mid),
            [world.topology.group_name(g) for g in pending.m.dest],
            [world.topology.name(p) for p in members if world.up(p) and p not in pending.delivered_by],
        )


def too_many_crashes(simulation: Simulation) -> Iterator[str]:
    """Warn of each group that loses more than a minority."""
    if PROTOCOLS[simulation.protocol].detector:
        return
    tolerated = (simulation.replicas - 1) // 2
    for g in range(simulation.groups):
        crashed = {crash.process for crash in simulation.crashes if crash.process.startswith(f"g{g}/")}
        if len(crashed) > tolerated:
            yield (
                f"warning: {len(crashed)} of {simulation.replicas} processes of g{g} crash, it tolerates {tolerated}: "
                f"the run may never deliver everything"
            )
