"""What must still be delivered in a run, so that it is known when nothing more has to happen.

A multicast obliges every member of its destination groups that is up. A crash releases a replica (until it restarts),
and releases everybody from a message of a crashed client that nobody has delivered: it may be lost.
"""

from typing import final

from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage


@final
class Pending:
    """A multicast that some process that is up has not delivered."""

    def __init__(self, m: AppMessage, left: int) -> None:
        self.m = m
        self.left = left
        self.delivered_by: list[int] = []


@final
class Obligations:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.pending: dict[Mid, Pending] = {}
        self.missed: dict[int, list[Pending]] = {}  # replica that may restart -> what it may have to deliver then

    def multicast(self, m: AppMessage, up: int) -> None:
        """m is multicast, `up` members of its destinations are up."""
        pending = Pending(m, up)
        self.pending[m.mid] = pending
        for pid, missed in self.missed.items():
            if self.topology.group_of[pid] in m.dest:
                missed.append(pending)

    def delivered(self, pid: int, mid: Mid) -> None:
        pending = self.pending.get(mid)
        if pending is None:
            return
        pending.delivered_by.append(pid)
        pending.left -= 1
        if pending.left == 0:
            del self.pending[mid]

    def crashed(self, pid: int, may_restart: bool) -> None:
        g = self.topology.group_of[pid]
        if may_restart and g >= 0:
            self.missed[pid] = []
        for mid in list(self.pending):
            pending = self.pending[mid]
            if g < 0:
                if sender_of(mid) == pid and not pending.delivered_by:
                    pending.left = 0
            elif g in pending.m.dest and pid not in pending.delivered_by:
                pending.left -= 1
                if may_restart:
                    self.missed[pid].append(pending)
            if pending.left == 0:
                del self.pending[mid]

    def restarted(self, pid: int) -> None:
        for pending in self.missed.pop(pid, []):
            mid = pending.m.mid
            if mid in self.pending or pending.delivered_by:
                pending.left += 1
                self.pending[mid] = pending
