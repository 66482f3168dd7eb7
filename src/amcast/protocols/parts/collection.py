"""When a message may be forgotten: enough members of all its destination groups have delivered it.

Every member tells in its heartbeats what it has delivered. The leader of a group so finds the floor up to which enough
members have delivered, and tells the groups that share messages with it as the floor rises. Enough are all of them, or
a quorum where whoever lacks a message learns it from a member that has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM
from amcast.core.process import Process
from amcast.core.topology import Mid
from amcast.core.wire import Background

ANNOUNCE_TICKS: Final = 16  # heartbeats after which a floor is announced again
LONGEST_SILENCE: Final = 1024  # … at the latest, if nothing new is shared


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

    `enough` members of a group count as the group. There may be a thousand groups, so nothing here visits all of them:
    only those that a delivery or a floor has just concerned.
    """

    def __init__(self, process: Process, enough: int) -> None:
        topology = process.topology
        self.process = process
        self.enough = enough
        self.g0 = topology.group_of[process.pid]
        self.seats: tuple[int, ...] = tuple(range(len(topology.groups[self.g0])))  # the members that count
        self.members: Sequence[tuple[int, ...]] = topology.groups  # of each group: who is told
        self.delivered_by = [BOTTOM] * len(topology.groups[self.g0])  # the last delivery of each member
        self.floors: dict[int, int] = {}  # enough members of each group have delivered up to this
        self.shared_with: dict[int, int] = {}  # the last delivery shared with each group
        self.waiting: dict[int, list[Collectable]] = {}  # until the floor of this group rises
        self.risen: dict[int, bool] = {}  # groups of which something that waits may be forgotten
        self.ticks = 0
        # At the leader.
        self.leads = False
        self.floor_sent: dict[int, int] = {}
        self.untold: dict[int, bool] = {}  # groups that share a delivery above the floor that they were told
        self.plans: dict[int, tuple[int, int]] = {}  # of each group: the tick at which it is told again, after how many
        self.again: dict[int, list[int]] = {}  # by tick: groups that may be told again then

    def delivered(self, entry: Collectable) -> None:
        """Keep a message that is delivered here until all others have delivered it."""
        self.shared(entry.dest, entry.gts)
        self.keep(entry)

    def shared(self, dest: tuple[int, ...], gts: int) -> None:
        """Take note of the last delivery that concerns these groups."""
        for g in dest:
            self.shared_with[g] = gts
            if self.leads:
                self.untold[g] = True

    def keep(self, entry: Collectable) -> None:
        self.wait_for(self.g0, entry)
        self.risen[self.g0] = True

    def wait_for(self, g: int, entry: Collectable) -> None:
        queue = self.waiting.get(g)
        if queue is None:
            self.waiting[g] = [entry]
        else:
            queue.append(entry)

    def on_floor(self, msg: Floor) -> None:
        self.raise_floor(msg.g, msg.gts)

    def raise_floor(self, g: int, gts: int) -> None:
        if gts > self.floors.get(g, BOTTOM):
            self.floors[g] = gts
            if g in self.waiting:
                self.risen[g] = True

    def heard(self, rank: int, delivered: int) -> None:
        """Take note of how far another member of this group has delivered."""
        self.delivered_by[rank] = max(self.delivered_by[rank], delivered)

    def announce_again(self) -> None:
        """Tell all groups anew: the members that were told may be others, or have lost it."""
        self.floor_sent = {}
        self.untold = dict.fromkeys(self.shared_with, True)
        self.plans = {}
        self.again = {}

    def tick(self, leads: bool, rank: int, delivered: int) -> list[Mid]:
        """Return the messages to forget now; a leader first announces how far its group has delivered."""
        self.ticks += 1
        if leads:
            if not self.leads:
                self.announce_again()
            self.delivered_by[rank] = delivered
            self.announce(sorted([self.delivered_by[rank] for rank in self.seats])[-self.enough])
        self.leads = leads
        return self.forget()

    def announce(self, floor: int) -> None:
        """Tell the groups that have not heard of this floor and share a message that matters.

        What was told may be lost, so it is told again: after so many ticks, then after twice as many, as long as
        nothing new is shared.
        """
        for g in self.again.pop(self.ticks, ()):
            due, ticks = self.plans[g]
            if due == self.ticks:
                self.tell(g, floor, min(2 * ticks, LONGEST_SILENCE))
        for g in sorted(self.untold):
            shared = self.shared_with[g]
            if self.floor_sent.get(g, BOTTOM) < min(floor, shared):
                self.tell(g, floor, ANNOUNCE_TICKS)
            if shared <= floor:
                del self.untold[g]

    def tell(self, g: int, floor: int, ticks: int) -> None:
        """Tell a group, and plan to do so again, unless it is told something else until then."""
        self.floor_sent[g] = floor
        self.process.send(self.members[g], Floor(self.g0, floor))
        due = self.ticks + ticks
        self.plans[g] = (due, ticks)
        self.again.setdefault(due, []).append(g)

    def forget(self) -> list[Mid]:
        """Drop what enough members of all its destination groups have delivered.

        An entry waits for one group at a time, its own first: so a group that stands still holds up only what is
        addressed to it, and nothing is looked at twice in vain.
        """
        forgotten: list[Mid] = []
        risen, self.risen = self.risen, {}
        for g in risen:
            queue = self.waiting.get(g, [])
            floor = self.floors.get(g, BOTTOM)
            n = 0
            while n < len(queue) and queue[n].gts <= floor:
                blocked_by = self.first_below(queue[n])
                if blocked_by < 0:
                    forgotten.append(queue[n].mid)
                else:
                    self.wait_for(blocked_by, queue[n])
                n += 1
            del queue[:n]
            if not queue:
                self.waiting.pop(g, None)
        return forgotten

    def first_below(self, entry: Collectable) -> int:
        """Return a destination group that has not delivered this message, -1 if there is none."""
        for g in entry.dest:
            if self.floors.get(g, BOTTOM) < entry.gts:
                return g
        return -1
