"""Members that change by messages of administrators: all that an adversary knows of the verbs of `Seated`.

A replica that lost its disk, or was stopped after it was removed, never comes back: its seat is over. An administrator
asks for nothing that would leave a group without a majority, and stops nobody before all others know who took over.
Clients that are connected to a replica hear from it who the members are as soon as it knows that itself.
"""

from typing import TYPE_CHECKING

from amcast.core.capabilities import Listing, Seated

if TYPE_CHECKING:
    from amcast.swarm.adversary.machine import Machine


class Seating:
    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self.over: dict[int, bool] = {}  # replicas that were stopped for good
        self.proposed: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in machine.topology.groups]  # epoch, seats

        self.told: dict[int, list[tuple[tuple[int, ...], bool]]] = {}  # what each replica told the clients last

    def after_step(self, pid: int) -> None:
        """Tell the clients what a replica has learnt of the members."""
        process: object = self.machine.processes[pid]
        if not isinstance(process, Seated) or not self.machine.up[pid]:
            return
        known = [(process.seats(g), process.is_settled(g)) for g in self.there()]
        if self.told.setdefault(pid, known) != known:
            self.told[pid] = known
            for client in self.machine.topology.clients:
                if self.machine.up[client]:
                    self.machine.enqueue(pid, client, process.table())

    def there(self) -> list[int]:
        """Return the groups that there are: those that somebody knows of who is none of their founders."""
        topology = self.machine.topology
        found = len(topology.sizes)
        for pid in range(topology.replicas_at_first if self.machine.setup.groups_come else 0):
            process: object = self.machine.processes[pid]
            if isinstance(process, Listing):
                found = max(found, len(process.known()))
        return list(range(found))

    def newest(self, g: int) -> tuple[int, tuple[int, ...]]:
        """Return the last epoch of a group that anybody has delivered, and its seats."""
        members = [self.machine.processes[pid] for pid in self.machine.topology.groups[g]]
        seated = [process for process in members if isinstance(process, Seated)]
        epoch = max([process.epoch() for process in seated])
        return epoch, next(process.seats_in(epoch) for process in seated if process.epoch() == epoch)

    def lists(self, g: int) -> list[tuple[int, ...]]:
        """Return the lists whose majorities may be needed: the newest, the one before it, and those asked for."""
        epoch, newest = self.newest(g)
        members: list[object] = [self.machine.processes[pid] for pid in self.machine.topology.groups[g]]
        seated = [process for process in members if isinstance(process, Seated)]
        lists = [newest, *[seats for from_epoch, seats in self.proposed[g] if from_epoch >= epoch]]
        if epoch > 0 and not all(p.is_settled(g) for p in seated if p.epoch() == epoch):
            lists.append(next(p.seats_in(epoch - 1) for p in seated if p.epoch() == epoch))
        return lists

    def needed(self, g: int) -> tuple[int, ...]:
        """Return the processes in these lists."""
        group = self.machine.topology.groups[g]
        return tuple(sorted({group[seat] for seats in self.lists(g) for seat in seats}))

    def is_lost(self, pid: int) -> bool:
        return pid in self.over or self.machine.disks[pid].lost

    def may_be_lost(self, pid: int) -> bool:
        """Return whether every list keeps a majority without this replica."""
        g = self.machine.topology.group_of[pid]
        return all(self.keeps_majority(g, seats, pid) for seats in self.lists(g))

    def keeps_majority(self, g: int, seats: tuple[int, ...], without: int = -1) -> bool:
        group = self.machine.topology.groups[g]
        left = [seat for seat in seats if group[seat] != without and not self.is_lost(group[seat])]
        return 2 * len(left) > len(seats)

    def may_propose(self, g: int, seats: tuple[int, ...]) -> bool:
        return bool(seats) and not self.machine.recovery.doubtful and self.keeps_majority(g, seats)

    def propose(self, g: int, epoch: int, seats: tuple[int, ...]) -> None:
        self.proposed[g].append((epoch, seats))

    def may_stop(self, pid: int, process: Seated) -> bool:
        """Return whether everybody who may need to know knows who took over from a replica that was removed."""
        g = self.machine.topology.group_of[pid]
        if not process.is_removed() or self.machine.recovery.doubtful:
            return False
        for h in self.there():
            for other in self.needed(h):
                replica: object = self.machine.processes[other]
                knows = isinstance(replica, Seated) and replica.has_established(g, process.epoch())
                if not self.is_lost(other) and not (self.machine.up[other] and knows):
                    return False
        return True
