"""The numbered invariants of the White-Box paper (Figure 6 and Appendix A), asserted while a run goes on.

Those with an I are ours: I1 one message per position; I6 one list of members per epoch; I7 nothing is delivered in an
epoch behind what ends it; I8 who leads has a majority of its epoch's list behind it, and an epoch that is not
established begins with a majority of the list before it as well; I9 acknowledgements are counted by the list of the
ballot's epoch; I10 who is in no list does not vote, acknowledge or lead.

One `Monitor` watches all replicas of a run: they report what they send and what they hold, and the first report that
contradicts an invariant raises `InvariantViolation`. It sees more than any process may, so it is for simulations and
tests only. Rows are (mid, Phase, LocalTS, GlobalTS).
"""

from typing import Final, final

from amcast.core.order import epoch_of, time_of
from amcast.core.topology import Mid, Topology
from amcast.errors import InvariantViolation

COMMITTED: Final = 3

Row = tuple[Mid, int, int, int]


@final
class Fact:
    """A quorum of a group acknowledged m with a vector of ballots, of which b is its own: what follows from that."""

    def __init__(self, bal: tuple[int, ...], b: int, mid: Mid, lts: int, gts: int) -> None:
        self.bal = bal
        self.b = b
        self.mid = mid
        self.lts = lts
        self.gts = gts
        self.below: dict[Mid, int] | None = None  # what the leader knew with a local timestamp below gts


@final
class Monitor:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._accepts: dict[tuple[Mid, int, int], int] = {}
        self._acks: dict[tuple[Mid, int, tuple[int, ...]], int] = {}
        self._acked: dict[tuple[Mid, int, tuple[int, ...]], tuple[int, int]] = {}  # own ballot, local timestamp
        self._below: dict[tuple[Mid, int, tuple[int, ...]], dict[Mid, int]] = {}
        self._facts: list[list[Fact]] = [[] for _ in topology.groups]
        self._lts_of: dict[tuple[Mid, int], int] = {}
        self._gts_of: dict[Mid, int] = {}
        self._mid_of: dict[int, Mid] = {}
        self._joined: dict[int, tuple[int, int]] = {}  # cballot and ballot before a restart
        self._seen: dict[int, tuple[int, int, int, dict[Mid, Row]]] = {}
        self._order: list[dict[int, Mid]] = [{} for _ in topology.groups]  # what each group delivered, by position
        self._positions: list[dict[Mid, int]] = [{} for _ in topology.groups]
        self._delivered: list[dict[Mid, bool]] = [{} for _ in range(topology.replicas)]
        self._lists: list[dict[int, tuple[int, ...]]] = [{} for _ in topology.groups]  # seats by epoch; none: all
        self._ends: dict[tuple[int, int], int] = {}  # of a group's epoch: the position of what ends it
        self._established = [0] * len(topology.groups)

    def fail(self, number: str, text: str) -> None:
        raise InvariantViolation(f"White-Box invariant {number}: {text}")

    def name(self, mid: Mid) -> str:
        return self.topology.message_name(mid)

    def accept_sent(self, g: int, b: int, mid: Mid, lts: int) -> None:
        known = self._accepts.setdefault((mid, g, b), lts)
        if known != lts:
            self.fail("1", f"ACCEPT of {self.name(mid)} in g{g}, ballot {b}, with {known} and with {lts}")

    def accepted(self, pid: int, mid: Mid, b: int, lts: int, gts: int, bal: tuple[int, ...], rows: list[Row]) -> None:
        """Check a member that is about to acknowledge this vector: `b` is its own component, `rows` what it holds."""
        g = self.topology.group_of[pid]
        rank = self.topology.rank_of[pid]
        key = (mid, g, bal)
        before = self._acks.get(key, 0)
        after = before | 1 << rank
        if after == before:
            return
        self._acks[key] = after
        self._acked[key] = (b, lts)
        if rank == b & 0xFFFF:
            delivered = {mid: self._lts_of[(mid, g)] for mid in self._delivered[pid] if (mid, g) in self._lts_of}
            self._below[key] = delivered | {row[0]: row[2] for row in rows if row[2] < gts}
        if rank not in self.seats(g, epoch_of(b)):
            self.fail("I10", f"{self.topology.name(pid)} acknowledges in ballot {b}, and is no member there")
        quorum = len(self.seats(g, epoch_of(b))) // 2 + 1
        if after.bit_count() < quorum:
            return
        if before.bit_count() < quorum:
            for known in self._facts[g]:
                if known.mid == mid and known.lts != lts:
                    self.fail("19", f"quorums of g{g} accepted {self.name(mid)} with {known.lts} and with {lts}")
            self._facts[g].append(Fact(bal, b, mid, lts, gts))
        below = self._below.get(key)
        if below is not None:
            for fact in self._facts[g]:
                if fact.mid == mid and fact.bal == bal:
                    fact.below = below

    def deliver_sent(self, g: int, mid: Mid, lts: int, gts: int) -> None:
        if self._lts_of.setdefault((mid, g), lts) != lts:
            self.fail("3a", f"g{g} delivers {self.name(mid)} with local timestamps {self._lts_of[(mid, g)]} and {lts}")
        if self._gts_of.setdefault(mid, gts) != gts:
            self.fail("3b", f"{self.name(mid)} delivered with final timestamps {self._gts_of[mid]} and {gts}")
        if self._mid_of.setdefault(gts, mid) != mid:
            self.fail("4", f"{self.name(mid)} and {self.name(self._mid_of[gts])} share final timestamp {gts}")

    def delivered(self, pid: int, position: int, mid: Mid) -> None:
        """Check that a group has one message at a position, and one position for a message."""
        g = self.topology.group_of[pid]
        self._delivered[pid][mid] = True
        at = self._order[g].setdefault(position, mid)
        if at != mid:
            self.fail("I1", f"g{g} has {self.name(at)} and {self.name(mid)} up to position {position}")
        if self._positions[g].setdefault(mid, position) != position:
            self.fail("I1", f"g{g} has {self.name(mid)} at positions {self._positions[g][mid]} and {position}")

    def installed(self, pid: int, done: list[Mid]) -> None:
        """Take note of what a process has taken over as delivered."""
        for mid in done:
            self._delivered[pid][mid] = True

    def adopted(self, pid: int, cballot: int, clock: int, rows: list[Row], done: list[Mid]) -> None:
        """Check a process that entered a ballot; `done` are the messages that it delivered and forgot."""
        g = self.topology.group_of[pid]
        held = {row[0]: row for row in rows}
        forgotten = dict.fromkeys(done, True)
        for fact in self._facts[g]:
            if fact.b >= cballot:
                continue
            who = f"{self.topology.name(pid)} in ballot {cballot}"
            row = held.get(fact.mid)
            if row is None:
                if fact.mid not in forgotten:
                    self.fail("2a", f"{who} lost {self.name(fact.mid)}, which a quorum accepted in ballot {fact.b}")
            elif row[2] != fact.lts:
                self.fail("2b", f"{who} has {self.name(fact.mid)} with {row[2]}, a quorum accepted {fact.lts}")
            if clock < time_of(fact.gts):
                self.fail("2c", f"{who} has clock {clock}, below the timestamp {fact.gts} of {self.name(fact.mid)}")
            if fact.below is not None:
                for mid, _, lts, _ in rows:
                    if lts < fact.gts and fact.below.get(mid) != lts and mid not in forgotten:
                        self.fail("5", f"{who} has {self.name(mid)} at {lts}, unknown when {fact.gts} was accepted")

    def restarted(self, pid: int, cballot: int, rows: list[Row], done: list[Mid]) -> None:
        """Check a process that came back from its disk: what it acknowledged must be there."""
        before = self._seen.pop(pid, None)
        if before is not None:
            self._joined[pid] = (before[0], before[1])
        g = self.topology.group_of[pid]
        bit = 1 << self.topology.rank_of[pid]
        held = {row[0]: row[2] for row in rows}
        forgotten = dict.fromkeys(done, True)
        for key, members in self._acks.items():
            mid, group, _ = key
            b, lts = self._acked[key]
            if group == g and members & bit and b == cballot and mid not in forgotten and held.get(mid) != lts:
                self.fail("2b", f"{self.topology.name(pid)} restarted without {self.name(mid)}, which it had accepted")

    def replaced(self, pid: int) -> None:
        """Forget a process that came back without what it knew, and answers for nothing of that."""
        self._seen.pop(pid, None)
        self._joined.pop(pid, None)
        g = self.topology.group_of[pid]
        bit = 1 << self.topology.rank_of[pid]
        for key, members in self._acks.items():
            if key[1] == g:
                self._acks[key] = members & ~bit

    def rolled_back(self, pid: int) -> None:
        """Forget what a process said and nobody heard: it came back without some of it."""
        self.replaced(pid)
        g = self.topology.group_of[pid]
        heard = []
        for fact in self._facts[g]:
            quorum = len(self.seats(g, epoch_of(fact.b))) // 2 + 1
            if self._acks[(fact.mid, g, fact.bal)].bit_count() >= quorum:
                heard.append(fact)
        self._facts[g] = heard

    # Members

    def seats(self, g: int, epoch: int) -> tuple[int, ...]:
        return self._lists[g].get(epoch) or tuple(range(len(self.topology.groups[g])))

    def begins(self, g: int, epoch: int, seats: tuple[int, ...]) -> None:
        """Check that an epoch has one list, whoever delivers its beginning."""
        if self._lists[g].setdefault(epoch, seats) != seats:
            self.fail("I6", f"g{g} has members {self._lists[g][epoch]} and {seats} in epoch {epoch}")

    def delivers_in(self, g: int, epoch: int, position: int, ends: bool) -> None:
        """Check what a leader delivers in an epoch; `ends` says that it ends it."""
        end = self._ends.setdefault((g, epoch), position) if ends else self._ends.get((g, epoch), position)
        if position > end or (ends and position != end):
            self.fail("I7", f"g{g} delivers at {position} in epoch {epoch}, which ended at {end}")

    def formed(self, g: int, b: int, ranks: list[int], established: int) -> None:
        """Check with whose votes a ballot begins; `established` is the epoch up to which its leader needs one list."""
        epoch = epoch_of(b)
        if established > self._established[g]:
            self.fail("I8", f"a candidate of g{g} takes epoch {established} for established, and nobody led in it")
        lists = [self.seats(g, epoch)] + ([self.seats(g, epoch - 1)] if epoch > self._established[g] else [])
        for seats in lists:
            if 2 * len([rank for rank in ranks if rank in seats]) <= len(seats):
                self.fail("I8", f"g{g} begins ballot {b} with votes of {ranks}: no majority of {seats}")

    def leads(self, g: int, b: int, ranks: list[int]) -> None:
        """Check who follows one that leads from now on, itself included."""
        seats = self.seats(g, epoch_of(b))
        if 2 * len([rank for rank in ranks if rank in seats]) <= len(seats) or b & 0xFFFF not in seats:
            self.fail("I8", f"g{g}/{b & 0xFFFF} leads in ballot {b} with {ranks}: no majority of {seats}")
        self._established[g] = max(self._established[g], epoch_of(b))

    def counted(self, dest: tuple[int, ...], bal: tuple[int, ...], members: list[int], complete: bool) -> None:
        """Check whose acknowledgements a leader counts; without `complete`, another group's outcome stands for some."""
        for g, b, bits in zip(dest, bal, members, strict=True):
            seats = self.seats(g, epoch_of(b))
            found = [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
            if not all(rank in seats for rank in found) or (complete and 2 * len(found) <= len(seats)):
                self.fail("I9", f"acknowledgements of {found} count for g{g} in ballot {b}, whose members are {seats}")

    def removed(self, pid: int) -> None:
        """Forget what a process held that others took over from."""
        self._seen.pop(pid, None)

    def check_process(self, pid: int, cballot: int, ballot: int, clock: int, rows: list[Row]) -> None:
        """Check after every step what holds at one process, alone and compared with its previous step."""
        who = self.topology.name(pid)
        if cballot > ballot:
            self.fail("9", f"{who} has cballot {cballot} above ballot {ballot}")
        held: dict[Mid, Row] = {}
        lts_seen: dict[int, Mid] = {}
        for row in rows:
            mid, phase, lts, gts = row
            held[mid] = row
            if lts_seen.setdefault(lts, mid) != mid:
                self.fail("20", f"{who} has {self.name(mid)} and {self.name(lts_seen[lts])} both at {lts}")
            if phase == COMMITTED:
                if lts > gts:
                    self.fail("13", f"{who} has {self.name(mid)} with local {lts} above final {gts}")
                if clock < time_of(gts):
                    self.fail("14", f"{who} has clock {clock} and {self.name(mid)} committed at {gts}")
        joined = self._joined.pop(pid, None)
        if joined is not None and (cballot < joined[0] or ballot < joined[1]):
            self.fail("8", f"{who} restarted from ballots {joined[0]}, {joined[1]} with {cballot}, {ballot}")
        before = self._seen.get(pid)
        if before is not None:
            if cballot < before[0] or ballot < before[1]:
                self.fail("8", f"{who} went from ballots {before[0]}, {before[1]} to {cballot}, {ballot}")
            if cballot == before[0]:
                self._check_same_ballot(who, clock, held, before, self._delivered[pid])
        self._seen[pid] = (cballot, ballot, clock, held)

    def _check_same_ballot(
        self,
        who: str,
        clock: int,
        held: dict[Mid, Row],
        before: tuple[int, int, int, dict[Mid, Row]],
        delivered: dict[Mid, bool],
    ) -> None:
        if clock < before[2]:
            self.fail("11", f"{who} moved its clock from {before[2]} back to {clock} within a ballot")
        for mid, old in before[3].items():
            row = held.get(mid)
            if row is None:
                if mid not in delivered:
                    self.fail("10", f"{who} forgot {self.name(mid)} before it was delivered")
            elif row[1] < old[1]:
                self.fail("10", f"{who} moved {self.name(mid)} from phase {old[1]} back to {row[1]} within a ballot")
            elif row[2] != old[2]:
                self.fail("12", f"{who} moved {self.name(mid)} from {old[2]} to {row[2]} within a ballot")
