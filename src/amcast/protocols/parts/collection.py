"""When a message may be forgotten: enough members of all its destination groups have delivered it.

Every member tells in its heartbeats what it has delivered. The leader of a group so finds the floor up to which enough
members have delivered, and tells the groups that share messages with it as the floor rises. Enough are all of them, or
a quorum where whoever lacks a message learns it from a member that has it.
"""

from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM
from amcast.core.process import Process
from amcast.core.topology import Mid
from amcast.core.wire import Background

ANNOUNCE_TICKS: Final = 16  # heartbeats after which floors are announced again


@final
@dataclass
class Floor(Background):
    """Enough members of group g have delivered what they have to deliver up to this timestamp."""

    g: int
    gts: int


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Collectable:
    """What a process knows of a message, and forgets in the end."""

    def __init__(self, mid: Mid, dest: tuple[int, ...], gts: int = BOTTOM) -> None:
        self.mid = mid
        self.dest = dest
        self.gts = gts


@final
class Collection:
    """What one member knows of the deliveries of others, and the delivered messages that it has not forgotten.

    `enough` members of a group count as the group. With `in_order`, messages are forgotten in the order of delivery, as
    the places of a log must be.
    """

    def __init__(self, process: Process, enough: int, in_order: bool = False) -> None:
        topology = process.topology
        groups = len(topology.groups)
        self.process = process
        self.enough = enough
        self.in_order = in_order
        self.g0 = topology.group_of[process.pid]
        self.seats: tuple[int, ...] = tuple(range(len(topology.groups[self.g0])))  # the members that count
        self.members = list(topology.groups)  # of each group: who is told
        self.delivered_by = [BOTTOM] * len(topology.groups[self.g0])  # the last delivery of each member
        self.floors = [BOTTOM] * groups  # enough members of each group have delivered up to this
        self.floor_sent = [BOTTOM] * groups
        self.shared_with = [BOTTOM] * groups  # the last delivery shared with each group
        self.waiting: dict[int, list[Collectable]] = {self.g0: []}  # until the floor of this group rises
        self.ticks = 0

    def delivered(self, entry: Collectable) -> None:
        """Keep a message that is delivered here until all others have delivered it."""
        self.shared(entry.dest, entry.gts)
        self.keep(entry)

    def shared(self, dest: tuple[int, ...], gts: int) -> None:
        """Take note of the last delivery that concerns these groups."""
        for g in dest:
            self.shared_with[g] = gts

    def keep(self, entry: Collectable) -> None:
        self.waiting[self.g0].append(entry)

    def on_floor(self, msg: Floor) -> None:
        self.floors[msg.g] = max(self.floors[msg.g], msg.gts)

    def heard(self, rank: int, delivered: int) -> None:
        """Take note of how far another member of this group has delivered."""
        self.delivered_by[rank] = max(self.delivered_by[rank], delivered)

    def announce_again(self) -> None:
        self.floor_sent = [BOTTOM] * len(self.floor_sent)

    def tick(self, leads: bool, rank: int, delivered: int) -> list[Mid]:
        """Return the messages to forget now; a leader first announces how far its group has delivered."""
        self.ticks += 1
        if leads:
            if self.ticks % ANNOUNCE_TICKS == 0:
                self.announce_again()
            self.delivered_by[rank] = delivered
            self.announce(sorted([self.delivered_by[rank] for rank in self.seats])[-self.enough])
        return self.forget()

    def announce(self, floor: int) -> None:
        """Tell the groups that have not heard of this floor and share a message that matters."""
        for g in range(len(self.floors)):
            if self.floor_sent[g] < min(floor, self.shared_with[g]):
                self.floor_sent[g] = floor
                self.process.send(self.members[g], Floor(self.g0, floor))

    def forget(self) -> list[Mid]:
        """Drop what enough members of all its destination groups have delivered.

        Unless the order matters, an entry waits for one group at a time, its own first: so a group that stands still
        holds up only what is addressed to it, and nothing is looked at twice in vain.
        """
        forgotten: list[Mid] = []
        for g in list(self.waiting):
            queue = self.waiting[g]
            n = 0
            while n < len(queue) and queue[n].gts <= self.floors[g]:
                blocked_by = self.first_below(queue[n])
                if blocked_by < 0:
                    forgotten.append(queue[n].mid)
                elif self.in_order:
                    break
                else:
                    self.waiting.setdefault(blocked_by, []).append(queue[n])
                n += 1
            del queue[:n]
        return forgotten

    def first_below(self, entry: Collectable) -> int:
        """Return a destination group that has not delivered this message, -1 if there is none."""
        return next((g for g in entry.dest if self.floors[g] < entry.gts), -1)
