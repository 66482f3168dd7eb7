"""A crashed process comes back."""

from typing import TYPE_CHECKING

from amcast.core.capabilities import Durable
from amcast.sim.states import CRASHED, DYING, UP

if TYPE_CHECKING:
    from amcast.sim.world import World


def restart(world: "World", pid: int, peer: int) -> None:
    """From its disk; or, while all others are up, from what a peer knows."""
    if world.state[pid] == DYING:
        world.state[pid] = UP
    if world.state[pid] != CRASHED or (world.disks[pid].lost and peer < 0):
        return
    world.state[pid] = UP
    world.incarnation[pid] += 1
    world.restarted = True
    world.last_progress = world.now
    world.cuts.pop(pid, None)
    if world.tracer is not None:
        world.tracer.record(int(world.now), pid, "restart")
    world.obligations.restarted(pid)
    world.processes[pid] = world.make_process(pid)
    if peer >= 0:
        copy_from(world, pid, peer)
    else:
        durable(world, pid).recover(int(world.now + world.skew[pid]), list(world.disks[pid].durable))
    world.out.deliveries.clear()  # made before the crash, and recorded then
    world.flush(pid)


def durable(world: "World", pid: int) -> Durable:
    process = world.processes[pid]
    assert isinstance(process, Durable), f"{type(process).__name__} cannot come back"
    return process


def copy_from(world: "World", pid: int, peer: int) -> None:
    world.sync(peer)
    others = [p for p in world.topology.groups[world.topology.group_of[pid]] if p != pid]
    floor = max([durable(world, p).absent(int(world.now + world.skew[p]), pid) for p in others])
    process = durable(world, pid)
    process.rejoin(int(world.now + world.skew[pid]), durable(world, peer).snapshot(), floor)
    world.disks[pid].replace(process.snapshot())
    for m, ts in world.disks[peer].delivered[: world.disks[peer].place]:
        world.on_delivery(pid, m, ts)
