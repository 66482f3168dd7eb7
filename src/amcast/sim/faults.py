"""What can go wrong, as actions that a schedule names or that chance draws.

`storm` draws a plan: until a moment of calm (the papers' GST) processes crash, pause and suspect each other, links
slow down and partitions come and go; at that moment the network heals for good.
"""

from dataclasses import dataclass
from typing import final

from amcast.core.capabilities import Detecting, Durable, Electing, Reconfigurable
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.sim.choices import Choices
from amcast.sim.network import Network
from amcast.sim.world import UP, Action, World


class AtProcess(Action):
    """Something that happens to one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.pid}"


@final
class Crash(AtProcess):
    """A process stops; in the middle of a broadcast if `mid_step`."""

    def __init__(self, pid: int, mid_step: bool = False) -> None:
        super().__init__(pid)
        self.mid_step = mid_step

    def act(self, world: World) -> None:
        if self.mid_step:
            world.crash_mid_step(self.pid)
        else:
            world.crash(self.pid)

    def __repr__(self) -> str:
        return f"crash {self.pid}{' mid-step' if self.mid_step else ''}"


@final
class Restart(AtProcess):
    """A crashed process comes back with what it made durable."""

    def act(self, world: World) -> None:
        world.restart(self.pid)


@final
class LoseDisk(Action):
    """A process crashes, loses what it made durable, and comes back with what the others know.

    Only while all members are up and none is coming back so: more than that no group survives.
    """

    def __init__(self, pid: int, after: int) -> None:
        self.pid = pid
        self.after = after

    def act(self, world: World) -> None:
        if all_full_members(world, self.pid):
            world.crash(self.pid)
            world.disks[self.pid].lost = True
            world.at(int(world.now) + self.after, Restart(self.pid))

    def __repr__(self) -> str:
        return f"lose the disk of {self.pid}"


@final
class CopyDisk(AtProcess):
    """Somebody makes a copy of what a process has on disk."""

    def act(self, world: World) -> None:
        disk = world.disks[self.pid]
        disk.copy = list(disk.durable)
        disk.starts_of_copy = disk.starts


@final
class RollBack(Action):
    """A process crashes, and its disk is put back to the last copy of it; the others are up and remember more."""

    def __init__(self, pid: int, after: int) -> None:
        self.pid = pid
        self.after = after

    def act(self, world: World) -> None:
        disk = world.disks[self.pid]
        if disk.copy is not None and all_full_members(world, self.pid):
            world.crash(self.pid)
            disk.durable = list(disk.copy)
            disk.starts = disk.starts_of_copy
            disk.clean = False
            world.at(int(world.now) + self.after, Restart(self.pid))

    def __repr__(self) -> str:
        return f"put back the disk of {self.pid}"


def all_full_members(world: World, pid: int) -> bool:
    """Return whether the group of a process is one that survives the loss of a disk just now."""
    group = world.topology.groups[world.topology.group_of[pid]]
    return len(group) >= 3 and all(is_full_member(world, p) for p in group)


def is_full_member(world: World, pid: int) -> bool:
    process = world.processes[pid]
    return world.state[pid] == UP and isinstance(process, Durable) and not process.rejoining()


@final
class Snapshot(AtProcess):
    """A process cuts its log short."""

    def act(self, world: World) -> None:
        process = world.processes[self.pid]
        if world.state[self.pid] == UP and world.params.durable and isinstance(process, Durable):
            world.sync(self.pid)
            world.disks[self.pid].durable = process.snapshot()


@final
class Reconfigure(Action):
    """The group of a process begins, or ends, to send to group h."""

    def __init__(self, pid: int, join: bool, h: int) -> None:
        self.pid = pid
        self.join = join
        self.h = h

    def act(self, world: World) -> None:
        world.tell(self.pid, Reconfigurable, lambda process, now: process.reconfigure(now, self.join, self.h))


@final
class Pause(AtProcess):
    """A process does nothing for a while; what arrives waits."""

    def __init__(self, pid: int, duration: int) -> None:
        super().__init__(pid)
        self.duration = duration

    def act(self, world: World) -> None:
        world.pause(self.pid)
        world.at(int(world.now) + self.duration, Resume(self.pid))


@final
class Resume(AtProcess):
    def act(self, world: World) -> None:
        world.resume(self.pid)


@final
class Partition(Action):
    """Nothing passes from one side to the other, nor back unless `one_way`, until the next heal."""

    def __init__(self, side: tuple[int, ...], one_way: bool = False) -> None:
        self.side = side
        self.one_way = one_way

    def act(self, world: World) -> None:
        for p in self.side:
            for q in range(world.topology.size):
                if q not in self.side:
                    world.block(p, q)
                    if not self.one_way:
                        world.block(q, p)

    def __repr__(self) -> str:
        return f"cut off {list(self.side)}{' one way' if self.one_way else ''}"


@final
class SlowLink(Action):
    """Every message on one channel takes longer, until the next heal."""

    def __init__(self, sender: int, dest: int, extra: int) -> None:
        self.sender = sender
        self.dest = dest
        self.extra = extra

    def act(self, world: World) -> None:
        world.slow(self.sender, self.dest, self.extra)

    def __repr__(self) -> str:
        return f"slow {self.sender}→{self.dest}"


@final
class Heal(Action):
    """All channels work again."""

    def act(self, world: World) -> None:
        world.heal()

    def __repr__(self) -> str:
        return "heal"


@final
class Suspect(AtProcess):
    """A process suspects its leader for no reason and tries to lead."""

    def act(self, world: World) -> None:
        world.suspect(self.pid)


@final
class Refuse(Action):
    """A process finds that nobody listens where another one did; or somebody else refused it in its place."""

    def __init__(self, pid: int, target: int) -> None:
        self.pid = pid
        self.target = target

    def act(self, world: World) -> None:
        world.tell(self.pid, Electing, lambda process, now: process.gone(now, self.target))

    def __repr__(self) -> str:
        return f"{self.pid} is refused by {self.target}"


@final
class Detect(Action):
    """A failure detector suspects a process, or trusts it, for no reason of its own."""

    def __init__(self, pid: int, target: int, suspected: bool) -> None:
        self.pid = pid
        self.target = target
        self.suspected = suspected

    def act(self, world: World) -> None:
        world.tell(self.pid, Detecting, lambda process, now: process.detect(now, self.target, self.suspected))

    def __repr__(self) -> str:
        return f"{self.pid} {'suspects' if self.suspected else 'trusts'} {self.target}"


@final
class Unstable(Network):
    """Delays up to `worst` times δ until it calms down, at most δ from then on."""

    def __init__(self, delta: int, worst: int) -> None:
        super().__init__(delta)
        self.worst = worst

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        if self.worst > 1 and choices.below(4) == 0:
            return 1 + choices.below(self.worst * self.delta)
        return 1 + choices.below(self.delta)


@final
class CalmDown(Action):
    """The network behaves from now on."""

    def act(self, world: World) -> None:
        network = world.network
        if isinstance(network, Unstable):
            network.worst = 1
        world.heal()

    def __repr__(self) -> str:
        return "calm"


@final
@dataclass
class Storm:
    """How hard a plan drawn by chance may be."""

    replicas_crash: bool
    clients_crash: bool
    elections: bool
    disturbances: bool
    restarts: bool


def storm(topology: Topology, choices: Choices, calm_at: int, delta: int, kinds: Storm) -> list[tuple[int, Action]]:
    """Draw a random fault plan: when, and what."""
    plan: list[tuple[int, Action]] = []
    if kinds.replicas_crash:
        for members in topology.groups:
            doomed = choices.below((len(members) - 1) // 2 + 1)
            for i in choices.sample(len(members), doomed):
                plan.append((choices.below(calm_at), Crash(members[i], choices.chance(60))))
    if kinds.clients_crash:
        for client in topology.clients:
            if choices.chance(25):
                plan.append((choices.below(calm_at), Crash(client, choices.chance(80))))
    if kinds.elections:
        for members in topology.groups:
            for _ in range(choices.below(13) if choices.chance(50) else 0):
                at, pid = choices.below(calm_at), choices.pick(members)
                plan.append((at, Refuse(pid, choices.pick(members)) if choices.chance(40) else Suspect(pid)))
    if kinds.restarts:
        plan += restarts(topology, choices, calm_at)
    if kinds.disturbances:
        plan += disturbances(topology, choices, calm_at, delta)
    plan.append((calm_at, CalmDown()))
    return plan


def restarts(topology: Topology, choices: Choices, calm_at: int) -> list[tuple[int, Action]]:
    """Draw crashes of any number of replicas that come back, now and then of all at once; some take snapshots."""
    plan: list[tuple[int, Action]] = []
    for _ in range(choices.below(6)):
        crash_at = choices.below(calm_at)
        everybody = choices.chance(15)
        for pid in range(topology.replicas):
            if everybody or choices.chance(20):
                plan.append((crash_at, Crash(pid, choices.chance(50))))
                plan.append((choices.between(crash_at, calm_at), Restart(pid)))
    for _ in range(choices.below(5)):
        plan.append((choices.below(calm_at), Snapshot(choices.below(topology.replicas))))
    for _ in range(choices.below(4)):
        at = choices.below(calm_at)
        plan.append((at, LoseDisk(choices.below(topology.replicas), choices.below(calm_at - at))))
    for _ in range(choices.below(4)):
        at = choices.below(calm_at)
        pid = choices.below(topology.replicas)
        plan.append((choices.below(at + 1), CopyDisk(pid)))
        plan.append((at, RollBack(pid, choices.below(calm_at - at))))
    return plan


def disturbances(topology: Topology, choices: Choices, calm_at: int, delta: int) -> list[tuple[int, Action]]:
    """Draw pauses, partitions and slow links."""
    plan: list[tuple[int, Action]] = []
    for _ in range(choices.below(4)):
        pid = choices.below(topology.replicas)
        plan.append((choices.below(calm_at), Pause(pid, 1 + choices.below(60 * delta))))
    for _ in range(choices.below(3)):
        start = choices.below(calm_at)
        side = choices.sample(topology.replicas, 1 + choices.below(max(1, topology.replicas // 2)))
        plan.append((start, Partition(side, choices.chance(30))))
        plan.append((start + 1 + choices.below(60 * delta), Heal()))
    for _ in range(choices.below(4)):
        sender = choices.below(topology.size)
        dest = choices.below(topology.size)
        plan.append((choices.below(calm_at), SlowLink(sender, dest, choices.below(40 * delta))))
    return plan
