"""Replicas that come back: all that an adversary knows of the verbs of `Durable`.

Whoever changes those verbs changes this file and nothing else of the adversary.
"""

from typing import TYPE_CHECKING, final

from amcast.core.capabilities import Durable, Dynamic
from amcast.core.wire import AppMessage, Message

if TYPE_CHECKING:
    from amcast.swarm.adversary.machine import Machine


@final
class Snapshot(Message):
    """What a member had delivered when another one asked for it. It travels on their channel, like all else."""

    def __init__(self, records: list[bytes], delivered: list[tuple[AppMessage, int]]) -> None:
        self.records = records
        self.delivered = delivered


class Recovery:
    """Takes replicas down and brings them back from their disks, from an older copy of them, or without any."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self.copies: dict[int, tuple[list[bytes], int]] = {}  # of a disk: its records, after how many starts
        self.doubtful: dict[int, bool] = {}  # whose disk was put back, until the others have judged it

    def replica(self, pid: int) -> Durable:
        process = self.machine.processes[pid]
        assert isinstance(process, Durable), f"{type(process).__name__} cannot come back"
        return process

    # While a replica is up

    def snapshot(self, pid: int) -> None:
        """Let a snapshot take the place of the records so far."""
        self.machine.sync(pid)
        self.machine.disks[pid].durable = self.replica(pid).snapshot()

    def copy(self, pid: int) -> None:
        """Keep a copy of what is durable, to put it back later."""
        disk = self.machine.disks[pid]
        self.copies[pid] = (list(disk.durable), disk.starts)

    def may_crash(self) -> bool:
        """Return whether nobody's disk is in doubt: those who can tell what it forgot must be up."""
        return not self.doubtful

    def crashed(self, pid: int) -> None:
        """Forget the copies of all others: what this replica remembers of them in memory is gone."""
        self.copies = {p: copy for p, copy in self.copies.items() if p == pid}

    def after_step(self, pid: int) -> None:
        """Do what a step of this replica asks a driver for besides the usual effects."""
        machine = self.machine
        pulls, machine.out.pulls = machine.out.pulls, []
        for source in pulls:
            if machine.up[source]:
                machine.sync(source)
                disk = machine.disks[source]
                msg = Snapshot(self.replica(source).snapshot(), disk.delivered[: disk.place])
                machine.enqueue(source, pid, msg)
        if machine.out.forgot:
            machine.out.forgot = ""
            machine.crash(pid)
            self.lose_disk(pid)
        elif pid in self.doubtful and not self.replica(pid).rejoining():
            del self.doubtful[pid]

    def install(self, pid: int, msg: Snapshot) -> None:
        machine = self.machine
        machine.sync(pid)
        process = self.replica(pid)
        before = process.position()
        process.install(machine.clock[pid], msg.records)
        for m, ts in msg.delivered[before : process.position()]:
            machine.on_delivery(pid, m, ts)
        if process.position() > before:
            machine.disks[pid].durable = process.snapshot()
            machine.out.records.clear()

    def may_pull(self, pid: int) -> bool:
        """Return whether this replica waits for another member's snapshot: nobody does today."""
        return False

    def pull(self, pid: int, draw: int) -> None:
        raise NotImplementedError

    # While it is down

    def may_lose_disk(self, pid: int) -> bool:
        """Return whether the group survives that: all its members are up, and none is coming back without its disk."""
        group = self.group(pid)
        return not self.doubtful and all(map(self.is_full_member, group)) and self.may_be_lost(pid)

    def may_be_lost(self, pid: int) -> bool:
        """Return whether more than half of the members are others, as everybody counts them."""
        if self.machine.setup.members_change:
            return self.machine.seating.may_be_lost(pid)
        group = self.group(pid)
        for other in group:
            process: object = self.machine.processes[other]
            if isinstance(process, Dynamic) and pid in process.members and len(process.members) < 3:
                return False
        return len(group) >= 3

    def lose_disk(self, pid: int) -> None:
        """Lose all that this crashed replica ever wrote."""
        self.machine.disks[pid].lost = True
        self.copies.pop(pid, None)
        self.doubtful.pop(pid, None)

    def may_roll_back(self, pid: int) -> bool:
        """Return whether the disk of a replica may be put back: all others are up, and remember it."""
        machine = self.machine
        ready = pid in self.copies and machine.falters[pid] < 0 and not machine.disks[pid].lost
        if not ready or len(self.group(pid)) < 3 or not self.may_be_lost(pid):
            return False
        if machine.setup.members_change:
            if self.doubtful or pid in machine.seating.over:
                return False
            others = [p for g in machine.seating.there() for p in machine.seating.needed(g) if p != pid]
        else:
            others = [p for p in range(machine.topology.replicas) if p != pid]
        return all(map(self.is_full_member, others))

    def roll_back(self, pid: int) -> None:
        """Put the disk of a replica, which crashes if it is up, back to the copy."""
        if self.machine.up[pid]:
            self.machine.crash(pid)
        disk = self.machine.disks[pid]
        disk.durable = list(self.copies[pid][0])
        disk.starts = self.copies.pop(pid)[1]
        disk.clean = False
        self.doubtful[pid] = True

    def may_restart(self, pid: int) -> bool:
        machine = self.machine
        return not machine.up[pid] and not machine.disks[pid].lost and pid not in machine.seating.over

    def may_rejoin(self, pid: int) -> bool:
        """Return whether this replica may come back without its disk: where members change, another takes its place."""
        return not self.machine.up[pid] and self.machine.disks[pid].lost and not self.machine.setup.members_change

    # Coming back. The process is new, and up.

    def restart(self, pid: int) -> None:
        disk = self.machine.disks[pid]
        disk.starts += 1
        process = self.replica(pid)
        process.recover(self.machine.clock[pid], list(disk.durable), disk.starts, disk.clean)
        # Most of what it delivers again was recorded in an earlier life, but for what it died before it had delivered.
        disk.place = process.position() - len(self.machine.out.deliveries)
        disk.clean = True

    def rejoin(self, pid: int) -> None:
        """Come back with nothing."""
        disk = self.machine.disks[pid]
        disk.starts += 1
        disk.replace([])
        self.replica(pid).rejoin(self.machine.clock[pid], disk.starts)

    def group(self, pid: int) -> tuple[int, ...]:
        machine = self.machine
        g = machine.topology.group_of[pid]
        return machine.seating.needed(g) if machine.setup.members_change else machine.topology.groups[g]

    def is_full_member(self, pid: int) -> bool:
        return self.machine.up[pid] and not self.replica(pid).rejoining()
