"""Standing for leader of a group: ballots, promises and votes, and heartbeats that tell who should try (Ω).

White-Box and the replicated log share this part. Its owner decides what a vote says and with what a ballot begins.

Paper: Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", extended version, Figure 4; `# l.N` is a line there.

How it works. Every member sends heartbeats to the others. A member that stays silent for too long is suspected, and
trusted again when it is heard. The nominee is whoever led last, while it is not suspected, else the first member that
is neither suspected nor far behind: so once the network behaves all correct members agree on it, and a member that
comes back changes nothing. It asks everybody for a vote in a ballot higher than any it has seen (NEW_LEADER). Whoever
promises to join that ballot follows no lower one any more. With the votes of a quorum, its own among them, the
candidate enters the ballot and sends the others the state with which it begins; with a quorum that follows, it leads.
A candidate that does not get through tries again with back-off. A leader that hears no quorum sends no heartbeats, so
that those who hear it look for another one.

Members may change: every epoch has a list of them, and a ballot belongs to an epoch (`configure`). Until it is known
that somebody led in an epoch, a majority of the list before it must vote as well, so that nothing is lost in between.
Who hears of ballots of a later epoch than its own learns first what ended its own; it counts none of them before.

A member that restarts from its disk never leads on in its old ballot. One that lost its disk is rejoining: it neither
votes nor stands until a ballot begins that is higher than any it may have had a part in.
"""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar, final

from amcast.core.notes import Leads, Suspicion
from amcast.core.order import BOTTOM, ballot, epoch_of, leader_of, round_of
from amcast.core.process import Process
from amcast.core.requests import NOBODY, Hint
from amcast.core.wire import Background, Message
from amcast.protocols.parts.failure_detectors import FailureDetector

FOLLOWER: Final = 0
LEADER: Final = 1
RECOVERING: Final = 2

FIRST_BACKOFF: Final = 8  # in δ
LONGEST_BACKOFF: Final = 64  # bounds the time to converge after a long disturbance
BEHIND_TICKS: Final = 4  # heartbeats without progress after which a leader helps a member
NEAR: Final = 10_000  # deliveries: a member that lacks more is not nominated while another one has them

AnyVote = TypeVar("AnyVote")


@final
@dataclass
class NewLeader(Message):
    """To the whole group: the sender asks for votes in ballot b."""

    b: int


@final
@dataclass
class NewStateAck(Message):
    """To the candidate of ballot b: the sender has entered it, and follows."""

    b: int


@final
@dataclass
class Nack(Message):
    """The sender cannot follow in ballot b or below: whoever should lead must recover above it."""

    b: int


@final
@dataclass
class Heartbeat(Background):
    """The sender joined `ballot`, works in `cballot`, and has delivered so much.

    `delivered` is the timestamp of its last delivery and `position` the number of its deliveries, where they count.
    """

    ballot: int
    cballot: int
    delivered: int
    position: int


class LeaderCandidate(Generic[AnyVote]):
    """The part that one member has in choosing the leader of its group."""

    def __init__(self, process: Process, members: tuple[int, ...]) -> None:
        self.process = process
        self.members = members
        self.rank = members.index(process.pid)
        self.epoch = 0
        self.seats: tuple[int, ...] = tuple(range(len(members)))  # the list of this epoch: ranks of its members
        self.before: tuple[int, ...] = ()  # the list before it, as long as its majority must vote as well
        self.listed = True  # this process is in the list
        self.others: tuple[int, ...] = tuple([p for p in members if p != process.pid])
        self.majority = len(members) // 2 + 1
        self.status = LEADER if self.rank == 0 else FOLLOWER
        self.cballot = ballot(0, 0)  # the one in which this process works
        self.ballot = ballot(0, 0)  # the one that it promised to join
        self.seen_ballot = self.ballot  # the highest one that anybody in the group is known to have joined …
        self.works_in = [self.cballot] * len(members)  # … and those that each is known to work in
        self.positions = [0] * len(members)  # how many deliveries each member is known to have
        self.must_recover = False  # the current ballot is of no use to some member
        self.refused = BOTTOM  # the last ballot in which this process missed something
        self.votes: dict[int, AnyVote] = {}
        self.followers: dict[int, bool] = {}
        self.behind = [0] * len(members)  # at the leader: for how many heartbeats each member has not kept up
        self.rejoining = False  # it came back without what it knew, and takes no part until it enters a ballot …
        self.rejoin_above = BOTTOM  # … above this one: it may have had a part in the others
        self.trust_all()

    def trust_all(self) -> None:
        """Begin to watch the other members."""
        self.detector = FailureDetector(self.watched(), len(self.members), self.process.params, self.process.now)
        self.backoff = FIRST_BACKOFF * self.process.params.delta
        self.not_before = 0  # the time of the next attempt

    def watched(self) -> tuple[int, ...]:
        return tuple([rank for rank in self.seats if rank != self.rank])

    def configure(self, epoch: int, seats: tuple[int, ...], before: tuple[int, ...]) -> None:
        """Let these be the members from now on; `before` are those whose majority must vote as well."""
        self.epoch = epoch
        self.seats = seats
        self.before = before
        self.listed = self.rank in seats
        self.others = tuple([self.members[rank] for rank in seats if rank != self.rank])
        self.majority = len(seats) // 2 + 1
        self.detector.watch(self.watched(), self.process.now)

    def start(self) -> None:
        self.trust_all()
        self.schedule_tick()
        if self.status == LEADER:
            self.note_leader()

    def restart(self) -> None:
        """Go on from the ballots that were on disk."""
        self.seen_ballot = max(self.seen_ballot, self.ballot)
        self.works_in[self.rank] = self.cballot
        leads = leader_of(self.cballot) == self.rank  # not any more: its proposals were not on disk
        self.status = RECOVERING if leads or self.rejoining or self.ballot != self.cballot else FOLLOWER

    def rejoin(self, above: int) -> None:
        self.rejoining = True
        self.rejoin_above = above

    def forget_member(self, pid: int) -> None:
        """Drop whatever a member said that lost its disk."""
        self.votes.pop(pid, None)
        self.followers.pop(pid, None)
        self.positions[self.members.index(pid)] = 0
        self.works_in[self.members.index(pid)] = BOTTOM

    def leader(self) -> int:
        """Return who leads the ballot in which this process works."""
        return self.members[leader_of(self.cballot)]

    # A new leader

    def stand(self) -> None:  # l.35
        params = self.process.params
        self.not_before = self.process.now + self.backoff
        self.backoff = min(2 * self.backoff, LONGEST_BACKOFF * params.delta)
        self.must_recover = False
        b = ballot(round_of(max(self.ballot, self.seen_ballot)) + 1, self.rank, self.epoch)
        voters = self.seats + tuple([rank for rank in self.before if rank not in self.seats])
        self.process.send(tuple([self.members[rank] for rank in voters]), NewLeader(b))  # l.36

    def stand_if_nominated(self) -> None:
        leads = self.status == LEADER and not self.must_recover and self.seen_ballot <= self.cballot
        if leads or self.rejoining or not self.listed or self.process.now < self.not_before:
            return
        if self.nominee() == self.rank:
            self.stand()

    def step_back(self) -> None:
        """Give another member time to become leader, before this one stands again as the incumbent."""
        self.not_before = self.process.now + self.process.params.suspect_after

    def nominee(self) -> int:
        """Return the rank of who should lead: who led last, or else the first, of those not suspected here.

        Only the ballots of these count. All of them come to know these, and so to nominate the same. One that crashed
        may have told some of a ballot of which the others never hear: each would wait for another one, for ever.
        """
        trusted = [rank for rank in self.seats if not self.detector.suspected[rank]]
        if not trusted:
            return -1
        incumbent = leader_of(max([self.works_in[rank] for rank in trusted]))
        if incumbent in trusted:
            return incumbent
        furthest = max([self.positions[rank] for rank in trusted])
        return next(rank for rank in trusted if self.positions[rank] + NEAR >= furthest)

    def suspect_leader(self) -> None:
        """Stand for no reason, and take whoever would be nominated before this process for dead."""
        if self.rejoining or not self.listed:
            return
        while self.nominee() != self.rank:
            self.detector.suspected[self.nominee()] = True
        self.stand()

    def lost(self, pid: int) -> None:
        """Suspect a member at which nobody listens, and stand at once if that makes this process the nominee."""
        if pid not in self.others:
            return
        rank = self.members.index(pid)
        if not self.detector.suspected[rank]:
            self.detector.suspected[rank] = True
            self.process.note(Suspicion(self.process.topology.name(pid), True))
        self.stand_if_nominated()

    def promises(self, candidate: int, b: int) -> bool:  # l.37
        """Join ballot b, if it is above all that this process joined; True asks the owner to vote."""
        if self.rejoining:
            return False
        if b <= self.ballot:  # l.38
            if self.listed:
                self.process.send_one(candidate, Nack(self.ballot))
            return False
        self.status = RECOVERING  # l.39
        self.ballot = b  # l.40
        self.seen_ballot = max(self.seen_ballot, b)
        self.votes = {}
        self.followers = {}
        return True

    def has_votes(self, sender: int, b: int, vote: AnyVote) -> bool:  # l.42
        """Count a vote; True asks the owner to merge the votes and to enter the ballot."""
        if self.status != RECOVERING or self.ballot != b or self.cballot == b:  # l.43, once per ballot
            return False
        self.votes[sender] = vote
        return self.may_form()

    def may_form(self) -> bool:
        """Return whether a quorum, this process included, has voted for the ballot of which it is the candidate."""
        standing = self.status == RECOVERING and self.cballot < self.ballot and epoch_of(self.ballot) == self.epoch
        if not standing or self.process.pid not in self.votes:
            return False
        return self.is_majority(self.seats) and (not self.before or self.is_majority(self.before))

    def is_majority(self, seats: tuple[int, ...]) -> bool:
        return len([rank for rank in seats if self.members[rank] in self.votes]) > len(seats) // 2

    def enter(self, b: int) -> None:
        """Work in ballot b: its state is at hand."""
        self.cballot = b
        self.works_in[self.rank] = b
        self.must_recover = False
        self.rejoining = False

    def may_follow(self, b: int) -> bool:
        """Follow in ballot b, if this process joined it; True asks the owner to take over the leader's state."""
        if self.rejoining and b > self.rejoin_above:
            self.ballot = b
        elif self.rejoining or self.status != RECOVERING or self.ballot != b:  # l.58
            return False
        self.status = FOLLOWER  # l.59
        return True

    def joins(self, b: int) -> bool:
        """Join ballot b, whose state is at hand, also without having voted for it; False if it is over here."""
        if b < self.ballot or b <= self.cballot or (self.rejoining and b <= self.rejoin_above):
            return False
        if b > self.ballot:
            self.votes = {}
            self.followers = {}
        self.status = RECOVERING
        self.ballot = b
        self.seen_ballot = max(self.seen_ballot, b)
        return True

    def has_follower(self, sender: int, b: int) -> bool:  # l.63
        """Count a member that follows; True asks the owner to lead."""
        recovers = self.process.pid in self.votes  # or it restarted: then ballot b is over for it
        counts = recovers and epoch_of(b) == self.epoch
        if self.status == RECOVERING and self.ballot == b and self.cballot == b and counts:  # l.64
            self.followers[sender] = True
            return self.leads_now()
        return False

    def leads_now(self) -> bool:
        """Lead if a quorum follows."""
        if len(self.followers) + 1 < self.majority:
            return False
        self.begin_to_lead()
        return True

    def begin_to_lead(self) -> None:
        self.status = LEADER  # l.65
        self.backoff = FIRST_BACKOFF * self.process.params.delta
        self.behind = [0] * len(self.members)
        self.note_leader()
        process = self.process  # clients need not wait until they ask again
        process.out.news.append(Hint(NOBODY, process.topology.group_of[process.pid], process.pid, self.cballot))

    def refuse(self, leader: int, b: int) -> None:
        """Tell the leader of ballot b, once, that this process missed something and needs another ballot."""
        if self.refused < b:
            self.refused = b
            self.process.send_one(leader, Nack(b))

    def saw(self, b: int) -> None:
        """Take note of a ballot that somebody joined, unless its epoch has not begun here."""
        if epoch_of(b) <= self.epoch:
            self.seen_ballot = max(self.seen_ballot, b)

    def on_nack(self, b: int) -> None:
        self.saw(b)
        if b >= self.cballot:
            self.must_recover = True
        self.stand_if_nominated()

    # Heartbeats

    def schedule_tick(self) -> None:
        heartbeat = self.process.params.heartbeat
        self.process.set_timer("tick", heartbeat, heartbeat + heartbeat // 8)

    def tick(self, delivered: int, position: int = 0) -> None:
        self.schedule_tick()
        process = self.process
        self.positions[self.rank] = position
        if self.rejoining:
            process.send(self.others, Nack(self.rejoin_above))  # whoever leads, begin a higher ballot; not this process
        elif self.status != LEADER or self.hears_a_quorum():
            process.send(self.others, Heartbeat(self.ballot, self.cballot, delivered, position))
        self.watch()
        self.stand_if_nominated()

    def watch(self) -> None:
        """Suspect who has been silent for too long, unless it was this process that stood still."""
        process = self.process
        self.detector.look(process.now)
        for rank in self.detector.newly_suspected(process.now):
            process.note(Suspicion(process.topology.name(self.members[rank]), True))

    def hears_a_quorum(self) -> bool:
        return len([rank for rank in self.seats if not self.detector.suspected[rank]]) >= self.majority

    def is_behind(self, sender: int, msg: Heartbeat) -> bool:
        """Take a heartbeat; True if its sender has worked in an older ballot for so long that the leader must help."""
        process = self.process
        rank = self.members.index(sender)
        if self.detector.heard(rank, process.now):
            process.note(Suspicion(process.topology.name(sender), False))
        self.saw(msg.ballot)
        self.works_in[rank] = msg.cballot
        self.positions[rank] = msg.position
        if self.status != LEADER or rank not in self.seats:
            return False
        if msg.cballot >= self.cballot:
            self.behind[rank] = 0
            return False
        return self.lagged(rank)

    def lagged(self, rank: int) -> bool:
        """Count once more that a member has not kept up; True if that is often enough."""
        self.behind[rank] = (self.behind[rank] + 1) % BEHIND_TICKS
        return self.behind[rank] == 0

    def unready(self) -> str:
        """Say why this member sees no leader at work; empty if it does, or leads."""
        if self.rejoining:
            return "rejoining: it takes part from the next ballot on"
        if self.status == RECOVERING:
            return "no leader: an election is under way"
        if self.status == FOLLOWER and self.detector.suspected[leader_of(self.cballot)]:
            return f"no leader: {self.process.topology.name(self.leader())} is silent"
        return ""

    def awaits_leader(self) -> bool:
        """Return whether requests had better wait here: an election is under way, or about to begin."""
        lost = self.status == FOLLOWER and self.detector.suspected[leader_of(self.cballot)]
        return lost or self.status == RECOVERING

    def note_leader(self) -> None:
        self.process.note(Leads(self.cballot, self.rank))

    def condition(self) -> dict[str, object]:
        return {
            "role": "joining" if self.rejoining else ("follower", "leader", "recovering")[self.status],
            "leader": self.process.topology.name(self.leader()),
            "ballot": round_of(self.cballot),
        }
