"""What holds in every run of PrimCast, asserted while a run goes on.

One `Monitor` watches all replicas of a run: they report what they say and what they hold, and the first report that
contradicts an invariant raises `InvariantViolation`. It sees more than any process may, so it is for simulations and
tests only. The letters are those of the argument in `replica.py`; P stands for what that rests on.
"""

from typing import final

from amcast.core.order import BOTTOM, time_of
from amcast.core.topology import Mid, Topology
from amcast.errors import InvariantViolation

Row = tuple[Mid, int]  # id, local timestamp


@final
class Monitor:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._proposals: dict[tuple[int, int, int], Row] = {}  # group, epoch, number
        self._timestamps: dict[tuple[int, int, Mid], int] = {}  # group, epoch, message
        self._votes: dict[tuple[int, int, Mid], int] = {}  # group, epoch, message: a bit for each member
        self._decided: list[dict[Mid, tuple[int, int]]] = [{} for _ in topology.groups]  # first epoch, local timestamp
        self._reports: dict[tuple[int, int], list[int]] = {}  # group, epoch: the clock of each member
        self._promised: list[int] = [0] * topology.replicas
        self._clocks: list[tuple[int, int]] = [(0, 0)] * topology.replicas  # epoch, clock
        self._last: list[int] = [BOTTOM] * topology.replicas
        self._order: list[dict[int, Mid]] = [{} for _ in topology.groups]  # what each group delivered, by position
        self._gts_of: dict[Mid, int] = {}
        self._mid_of: dict[int, Mid] = {}

    def fail(self, which: str, text: str) -> None:
        raise InvariantViolation(f"PrimCast invariant {which}: {text}")

    def name(self, mid: Mid) -> str:
        return self.topology.message_name(mid)

    # What is said

    def proposed(self, pid: int, e: int, n: int, mid: Mid, lts: int) -> None:
        """Check the n-th proposal of an epoch, where it is made and where it is appended to a log."""
        g = self.topology.group_of[pid]
        known = self._proposals.setdefault((g, e, n), (mid, lts))
        if known != (mid, lts):
            both = f"{self.name(known[0])} at {known[1]} and {self.name(mid)} at {lts}"
            self.fail("P1", f"proposal {n} of g{g} in epoch {e} is {both}")
        for (group, epoch), clocks in self._reports.items():
            if group == g and epoch < e and time_of(lts) <= self.quorum_clock(g, clocks):
                who = f"g{g} proposes {self.name(mid)} at {lts} in epoch {e}"
                self.fail("a", f"{who}, and a quorum reported clock {self.quorum_clock(g, clocks)} in {epoch}")

    def quorum_clock(self, g: int, clocks: list[int]) -> int:
        return sorted(clocks)[-self.topology.quorum(g)]

    def voted(self, pid: int, e: int, mid: Mid, lts: int) -> None:
        """Check a member that acknowledges a message in epoch e."""
        g = self.topology.group_of[pid]
        if e < self._promised[pid]:
            self.fail("P2", f"{self.topology.name(pid)} acknowledges in epoch {e}, and promised {self._promised[pid]}")
        key = (g, e, mid)
        known = self._timestamps.setdefault(key, lts)
        if known != lts:
            self.fail("P1", f"g{g} has {self.name(mid)} at {known} and at {lts} in epoch {e}")
        self._votes[key] = self._votes.get(key, 0) | 1 << self.topology.rank_of[pid]
        if self._votes[key].bit_count() >= self.topology.quorum(g):
            first = self._decided[g].setdefault(mid, (e, lts))
            if first[1] != lts:
                self.fail("d", f"g{g} decided {self.name(mid)} at {first[1]} in {first[0]}, and at {lts} in {e}")

    def reported(self, pid: int, e: int, c: int) -> None:
        """Check a member that says how far its clock has got."""
        g = self.topology.group_of[pid]
        if e < self._promised[pid]:
            self.fail("P2", f"{self.topology.name(pid)} reports in epoch {e}, and promised {self._promised[pid]}")
        clocks = self._reports.setdefault((g, e), [0] * len(self.topology.groups[g]))
        rank = self.topology.rank_of[pid]
        clocks[rank] = max(clocks[rank], c)

    def promised(self, pid: int, e: int) -> None:
        self._promised[pid] = max(self._promised[pid], e)

    # What is held

    def entered(self, pid: int, e: int, clock: int, rows: list[Row], done: list[Mid]) -> None:
        """Check a process that entered an epoch; `done` are the messages that it delivered and forgot."""
        g = self.topology.group_of[pid]
        who = f"{self.topology.name(pid)} in epoch {e}"
        self.promised(pid, e)
        held = dict(rows)
        forgotten = dict.fromkeys(done, True)
        for mid, (first, lts) in self._decided[g].items():
            if first >= e or mid in forgotten:
                continue
            if mid not in held:
                self.fail("d", f"{who} lost {self.name(mid)}, which was decided in epoch {first}")
            if held[mid] != lts:
                self.fail("d", f"{who} has {self.name(mid)} at {held[mid]}, it was decided at {lts}")
        for (group, epoch), clocks in self._reports.items():
            if group == g and epoch < e and clock < self.quorum_clock(g, clocks):
                self.fail("a", f"{who} has clock {clock}, a quorum reported {self.quorum_clock(g, clocks)} in {epoch}")
        for mid, lts in rows:
            if self._timestamps.setdefault((g, e, mid), lts) != lts:
                self.fail("P1", f"{who} has {self.name(mid)} at {lts}, not at {self._timestamps[(g, e, mid)]}")

    def delivered(self, pid: int, position: int, mid: Mid, gts: int) -> None:
        """Check that final timestamps rise and are one per message, and that a group has one order."""
        g = self.topology.group_of[pid]
        who = self.topology.name(pid)
        if gts <= self._last[pid]:
            self.fail("c", f"{who} delivers {self.name(mid)} at {gts} behind {self._last[pid]}")
        self._last[pid] = gts
        if self._gts_of.setdefault(mid, gts) != gts:
            self.fail("d", f"{self.name(mid)} delivered with final timestamps {self._gts_of[mid]} and {gts}")
        if self._mid_of.setdefault(gts, mid) != mid:
            self.fail("d", f"{self.name(mid)} and {self.name(self._mid_of[gts])} share final timestamp {gts}")
        at = self._order[g].setdefault(position, mid)
        if at != mid:
            self.fail("c", f"g{g} has {self.name(at)} and {self.name(mid)} up to position {position}")

    def check_process(self, pid: int, epoch: int, promised: int, clock: int) -> None:
        """Check after every step what holds at one process, compared with its previous step."""
        who = self.topology.name(pid)
        if epoch > promised:
            self.fail("P3", f"{who} is in epoch {epoch}, and promised {promised}")
        if (epoch, clock) < self._clocks[pid] or clock < self._clocks[pid][1]:
            self.fail("P3", f"{who} went from epoch and clock {self._clocks[pid]} to {(epoch, clock)}")
        self._clocks[pid] = (epoch, clock)

    # Restarts

    def back(self, pid: int, last: int) -> None:
        """Take note of a process that came back from its disk, on which its last deliveries may be missing."""
        self._clocks[pid] = (0, 0)
        self._last[pid] = last

    def restarted(self, pid: int, epoch: int, promised: int, clock: int, rows: list[Row], done: list[Mid]) -> None:
        """Check a process that takes part again: what it promised, acknowledged and reported must be there."""
        if promised < self._promised[pid]:
            self.fail("P4", f"{self.topology.name(pid)} restarted with {promised}, and promised {self._promised[pid]}")
        g = self.topology.group_of[pid]
        rank = self.topology.rank_of[pid]
        who = self.topology.name(pid)
        held = dict(rows)
        forgotten = dict.fromkeys(done, True)
        for (group, e, mid), members in self._votes.items():
            mine = group == g and e == epoch and members & 1 << rank
            if mine and mid not in forgotten and held.get(mid) != self._timestamps[(g, e, mid)]:
                self.fail("P4", f"{who} restarted without {self.name(mid)}, which it had acknowledged")
        for (group, _), clocks in self._reports.items():
            if group == g and clocks[rank] > clock:
                self.fail("P4", f"{who} restarted with clock {clock}, and had reported {clocks[rank]}")

    def installed(self, pid: int, last: int) -> None:
        """Take note of how far a process has taken over what others delivered."""
        self._last[pid] = max(self._last[pid], last)

    def replaced(self, pid: int) -> None:
        """Forget a process that came back without what it knew, and answers for nothing of that."""
        g = self.topology.group_of[pid]
        rank = self.topology.rank_of[pid]
        self._promised[pid] = 0
        self._clocks[pid] = (0, 0)
        for key in self._votes:
            if key[0] == g:
                self._votes[key] &= ~(1 << rank)

    def rolled_back(self, pid: int) -> None:
        """Forget what a process said and nobody heard: it came back without some of it."""
        self.replaced(pid)
        g = self.topology.group_of[pid]
        rank = self.topology.rank_of[pid]
        quorum = self.topology.quorum(g)
        counts = [
            (key[2], lts, self._votes.get(key, 0).bit_count()) for key, lts in self._timestamps.items() if key[0] == g
        ]
        still = {(mid, lts) for mid, lts, count in counts if count >= quorum}
        self._decided[g] = {mid: fact for mid, fact in self._decided[g].items() if (mid, fact[1]) in still}
        for (group, _), clocks in self._reports.items():
            if group == g:
                clocks[rank] = 0
