"""What must still be delivered in a run, so that it is known when nothing more has to happen.

A multicast obliges every member of its destination groups that is up. A crash releases a replica (until it restarts),
and releases everybody from a message of a crashed sender that nobody has delivered: it may be lost.
"""

from typing import final

from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage


@final
class Pending:
    """A multicast that not everybody has delivered."""

    def __init__(self, m: AppMessage, left: int) -> None:
        self.m = m
        self.left = left  # members of its destinations that are up and have not delivered it
        self.delivered_by: list[int] = []
        self.excused = False  # its sender crashed and nobody delivered it so far
        self.counted = False


@final
class Obligations:
    def __init__(self, topology: Topology, uniform: bool = True) -> None:
        self.topology = topology
        self.uniform = uniform  # what a process delivers before it crashes obliges the others
        self.down: dict[int, bool] = {}
        self.open = 0  # messages that somebody who is up must deliver
        self.pending: dict[Mid, Pending] = {}
        self.missed: dict[int, list[Pending]] = {}  # replica that may restart -> what it may have to deliver then

    def update(self, pending: Pending) -> None:
        """Count a message while it obliges somebody; let go of it when everybody who is up has delivered it."""
        obliges = pending.left > 0 and not pending.excused
        if obliges != pending.counted:
            pending.counted = obliges
            self.open += 1 if obliges else -1
        if pending.left == 0 and pending.delivered_by:
            self.pending.pop(pending.m.mid, None)

    def multicast(self, m: AppMessage, up: int) -> None:
        """Note a multicast of which so many destinations are up."""
        pending = self.pending[m.mid] = Pending(m, up)
        self.update(pending)
        for pid, missed in self.missed.items():
            if self.topology.group_of[pid] in m.dest:
                missed.append(pending)

    def delivered(self, pid: int, mid: Mid) -> None:
        pending = self.pending.get(mid)
        if pending is not None:
            pending.delivered_by.append(pid)
            pending.excused = False
            pending.left -= 1
            if pending.left == 0 or not pending.counted:
                self.update(pending)

    def refused(self, mid: Mid) -> None:
        """Note that nobody will deliver it."""
        pending = self.pending.pop(mid, None)
        if pending is not None and pending.counted:
            self.open -= 1

    def crashed(self, pid: int, may_restart: bool) -> None:
        g = self.topology.group_of[pid]
        self.down[pid] = True
        if may_restart and g >= 0:
            self.missed[pid] = []
        for pending in list(self.pending.values()):
            delivered = pid in pending.delivered_by
            if delivered and not self.uniform:
                pending.delivered_by.remove(pid)
            if sender_of(pending.m.mid) in self.down and not pending.delivered_by:
                pending.excused = True
            if g in pending.m.dest and not delivered:
                pending.left -= 1
                if may_restart:
                    self.missed[pid].append(pending)
            self.update(pending)

    def restarted(self, pid: int) -> None:
        self.down.pop(pid, None)
        for pending in self.missed.pop(pid, []):
            pending.left += 1
            self.pending[pending.m.mid] = pending
            self.update(pending)
