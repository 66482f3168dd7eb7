"""The state of a White-Box replica: the variables of Figure 3, what it may forget, and how it comes back from disk.

The steps that change it, the paper's Figure 4, are in `white_box`.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM, DeliveryQueue, Slot, ballot, leader_of, round_of, time_of
from amcast.core.process import Effects, Params, Process
from amcast.core.topology import Mid, Topology, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.parts.leader_election import LeaderElection
from amcast.protocols.parts.sessions import DeliveredMessages, Session
from amcast.protocols.white_box.invariants import Monitor
from amcast.protocols.white_box.messages import NewLeaderAck, State
from amcast.protocols.white_box.records import (
    RECORDS,
    Accepted,
    Adopted,
    Delivered,
    Held,
    Joining,
    Promised,
    Remembered,
    Summary,
)

START: Final = 0
PROPOSED: Final = 1
ACCEPTED: Final = 2
COMMITTED: Final = 3

FOLLOWER: Final = 0
LEADER: Final = 1
RECOVERING: Final = 2

RETRY_AFTER: Final = 10  # in δ: a failure-free message is through long before
LONGEST_RETRY: Final = 80  # bounds the time to finish once the network behaves


@final
@mypyc_attr(acyclic=True)
class Vote:
    """The acknowledgements of one vector of ballots."""

    def __init__(self, bal: tuple[int, ...]) -> None:
        self.bal = bal
        self.members = [0] * len(bal)  # per destination group, a bit for each member that acknowledged
        self.counts = [0] * len(bal)
        self.quorums = 0
        self.mine = False
        self.gts = BOTTOM  # known once this process itself accepted the vector


@final
@mypyc_attr(acyclic=True)
class Entry:
    """What a process knows of one application message."""

    def __init__(self, m: AppMessage, session: Session) -> None:
        k = len(m.dest)
        self.m = m
        self.session = session
        self.phase = START
        self.lts = BOTTOM
        self.gts = BOTTOM
        self.delivered = False
        self.bal = [BOTTOM] * k  # the highest ACCEPT of each destination group: its ballot …
        self.proposals = [BOTTOM] * k  # … and its local timestamp
        self.missing = k
        self.votes: list[Vote] | None = None
        self.slot: Slot | None = None  # its place in the leader's queue
        self.retry_at = 0
        self.retry_delay = 0
        self.recorded = False  # its content is on disk

    def vote(self, bal: tuple[int, ...]) -> Vote:
        votes = self.votes
        if votes is None:
            votes = []
            self.votes = votes
        for vote in votes:
            if vote.bal is bal or vote.bal == bal:
                return vote
        vote = Vote(bal)
        votes.append(vote)
        return vote


@final
class Route:
    """Where acknowledgements of a vector of ballots go: kept, since it hardly ever changes."""

    def __init__(self, bal: tuple[int, ...], leaders: tuple[int, ...]) -> None:
        self.bal = bal
        self.leaders = leaders


def place(dest: tuple[int, ...], g: int) -> int:
    """Where g stands in dest."""
    i = 0
    while dest[i] != g:
        i += 1
    return i


class Replica(Process):
    """A member of group g0: what it knows."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.rank = topology.rank_of[pid]
        self.group = topology.groups[self.g0]
        self.others: tuple[int, ...] = tuple([p for p in self.group if p != pid])
        self.quorum = [topology.quorum(g) for g in range(len(topology.groups))]
        self.clock = 0
        self.entries: dict[Mid, Entry] = {}  # Phase, LocalTS, GlobalTS, Delivered
        self.status = LEADER if self.rank == 0 else FOLLOWER
        self.cballot = ballot(0, 0)
        self.ballot = ballot(0, 0)
        self.max_delivered_gts = BOTTOM
        self.queue = DeliveryQueue()
        self.prev_gts = BOTTOM
        self.done = DeliveredMessages()
        self.election = LeaderElection(self.rank, len(self.group), params, 0)
        self.seen_ballot = self.ballot  # the highest one that anybody in the group is known to have joined
        self.must_recover = False
        self.nacked = BOTTOM
        self.new_leader_acks: dict[int, NewLeaderAck] = {}
        self.new_state_acks: dict[int, bool] = {}
        self.orphans: dict[Mid, Entry] = {}  # at the leader: known from other groups only, not proposed here
        self.routes: dict[tuple[int, ...], Route] = {}
        self.delivered_by = [BOTTOM] * len(self.group)  # max_delivered_gts of each member
        self.floors = [BOTTOM] * len(topology.groups)
        self.shared_with = [BOTTOM] * len(topology.groups)  # the last delivery shared with each group
        self.floor_sent = [BOTTOM] * len(topology.groups)
        self.behind = [0] * len(self.group)  # at the leader: for how many ticks each member has not kept up
        self.ticks = 0
        self.waiting: dict[int, list[Entry]] = {self.g0: []}  # delivered, to be forgotten when this group's floor rises
        self.joining = False  # came back without what it knew: it takes no part until it enters a ballot
        self.join_above = BOTTOM  # only a ballot above this one: it may have had a part in the others
        self.monitor: Monitor | None = None

    def on_observe(self, monitor: object) -> None:
        assert isinstance(monitor, Monitor)
        self.monitor = monitor

    def entry_of(self, m: AppMessage) -> Entry | None:
        """What is known of m, from now on something; None if it was delivered and forgotten."""
        entry = self.entries.get(m.mid)
        if entry is None:
            session = self.done.session(m.mid)
            if session.contains(seq_of(m.mid)):
                return None
            entry = Entry(m, session)
            self.entries[m.mid] = entry
            self.retry_later(entry, RETRY_AFTER * self.params.delta)
            if self.status == LEADER:
                self.orphans[m.mid] = entry
        return entry

    def retry_later(self, entry: Entry, delay: int) -> None:
        entry.retry_at = self.now + delay
        entry.retry_delay = min(2 * delay, LONGEST_RETRY * self.params.delta)

    def adopt(self, b: int, clock: int, state: State) -> None:
        """Enter ballot b with this state. The ACCEPTs at hand stay: the new leader's own will complete them."""
        for entry in self.entries.values():
            entry.delivered = False
            entry.votes = None
            if entry.phase != COMMITTED:
                entry.phase = START
        for m, phase, lts, gts in state:
            known = self.entry_of(m)
            if known is not None and known.phase != COMMITTED:
                known.phase = phase
                known.lts = lts
                known.gts = gts
        self.clock = clock
        self.cballot = b
        self.must_recover = False
        self.joining = False
        if self.params.durable:
            self.save(Adopted(b, clock, state))
        if self.monitor is not None:
            self.monitor.adopted(self.pid, b, clock, self.rows(), self.done.mids())

    # Collection

    def remember(self, entry: Entry) -> None:
        entry.session.add(seq_of(entry.m.mid), entry.m.done)
        for g in entry.m.dest:
            self.shared_with[g] = entry.gts
        self.waiting[self.g0].append(entry)

    def forget(self) -> None:
        """Drop what every member of all its destination groups has delivered.

        An entry waits for one group at a time, its own first: so a group that stands still holds up only what is
        addressed to it, and nothing is looked at twice in vain.
        """
        for g in list(self.waiting):
            queue = self.waiting[g]
            n = 0
            while n < len(queue) and queue[n].gts <= self.floors[g]:
                self.forget_or_wait(queue[n])
                n += 1
            del queue[:n]

    def forget_or_wait(self, entry: Entry) -> None:
        for g in entry.m.dest:
            if self.floors[g] < entry.gts:
                if g not in self.waiting:
                    self.waiting[g] = []
                self.waiting[g].append(entry)
                return
        del self.entries[entry.m.mid]

    # Durability

    def save(self, record: Message) -> None:
        """Durable before anybody hears of this step."""
        self.out.records.append(encoded(record))
        self.out.urgent = True

    def save_later(self, record: Message) -> None:
        """Durable before anybody hears that this process delivered the message; a quorum has it durable anyway."""
        self.out.records.append(encoded(record))

    def snapshot(self) -> list[bytes]:
        floors = tuple(self.floors)
        records: list[Message] = [
            Summary(self.ballot, self.cballot, self.clock, self.max_delivered_gts, floors, tuple(self.shared_with))
        ]
        for sender, done, above in self.done.rows():
            records.append(Remembered(sender, done, above))
        for entry in self.entries.values():
            entry.recorded = entry.phase >= ACCEPTED
        kept = [e for e in self.entries.values() if e.recorded]
        kept.sort(key=by_gts)
        for entry in kept:
            records.append(Held(entry.m, entry.phase, entry.lts, entry.gts))
        if self.joining:
            records.append(Joining(self.join_above))
        return [encoded(record) for record in records]

    def on_recover(self, records: list[bytes]) -> None:
        monitor = self.monitor
        self.monitor = None  # the past was checked when it happened
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.monitor = monitor
        self.seen_ballot = self.ballot
        leads = leader_of(self.cballot) == self.rank  # not any more: its proposals were not on disk
        self.status = RECOVERING if leads or self.joining or self.ballot != self.cballot else FOLLOWER
        if monitor is not None:
            monitor.restarted(self.pid, self.cballot, self.rows(), self.done.mids())
            monitor.adopted(self.pid, self.cballot, self.clock, self.rows(), self.done.mids())
        self.out.records.clear()
        self.out.urgent = False
        self.on_start()

    def on_absent(self, pid: int) -> int:
        self.new_leader_acks.pop(pid, None)
        self.new_state_acks.pop(pid, None)
        self.delivered_by[self.topology.rank_of[pid]] = BOTTOM
        return max(self.ballot, self.seen_ballot)

    def on_rejoin(self, records: list[bytes], floor: int) -> None:
        """Safe because it answers nothing before it enters a ballot that began after all other members dropped whatever
        it had said: the state of that ballot comes from a quorum without it. And nothing that it lacks is forgotten.
        """
        monitor = self.monitor
        self.monitor = None  # which knows what this process was before
        self.joining = True
        self.join_above = floor
        self.on_recover(records)
        self.monitor = monitor
        if monitor is not None:
            monitor.replaced(self.pid)

    def replay(self, record: Message) -> None:
        if isinstance(record, Accepted):
            entry = self.entry_of(record.m)
            if entry is not None:
                entry.phase = max(entry.phase, ACCEPTED)
                entry.lts = record.lts
                entry.recorded = True
            self.clock = max(self.clock, record.clock)
        elif isinstance(record, Delivered):
            entry = self.entries[record.mid]
            entry.phase = COMMITTED
            entry.lts = record.lts
            entry.gts = record.gts
            self.clock = max(self.clock, time_of(record.gts))
            self.max_delivered_gts = record.gts
            self.deliver(entry.m, record.gts)
            self.remember(entry)
        elif isinstance(record, Promised):
            self.ballot = record.b
        elif isinstance(record, Adopted):
            self.ballot = record.b
            self.adopt(record.b, record.clock, record.state)
        elif isinstance(record, Summary):
            self.ballot = record.ballot
            self.cballot = record.cballot
            self.clock = record.clock
            self.max_delivered_gts = record.max_delivered_gts
            self.floors = list(record.floors)
            self.shared_with = list(record.shared_with)
        elif isinstance(record, Remembered):
            self.done.restore(record.sender, record.done, record.above)
        elif isinstance(record, Held):
            self.hold(record)
        elif isinstance(record, Joining):
            self.joining = True
            self.join_above = record.b

    def hold(self, record: Held) -> None:
        entry = Entry(record.m, self.done.session(record.m.mid))
        entry.phase = record.phase
        entry.lts = record.lts
        entry.gts = record.gts
        entry.recorded = True
        self.entries[record.m.mid] = entry
        if record.phase == COMMITTED and record.gts <= self.max_delivered_gts:
            self.waiting[self.g0].append(entry)

    # What drivers and people look at

    def rows(self) -> list[tuple[Mid, int, int, int]]:
        """Phase, LocalTS and GlobalTS of every message that is not in START."""
        return [(e.m.mid, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase != START]

    def idle(self) -> bool:
        if self.status == RECOVERING:
            return False
        for entry in self.entries.values():
            if entry.phase == COMMITTED:
                if entry.gts > self.max_delivered_gts:
                    return False
            elif entry.phase != START or self.status == LEADER:
                return False
        return True

    def condition(self) -> dict[str, object]:
        return {
            "role": "joining" if self.joining else ("follower", "leader", "recovering")[self.status],
            "leader": self.topology.name(self.group[leader_of(self.cballot)]),
            "ballot": round_of(self.cballot),
            "clock": self.clock,
            "delivered": time_of(self.max_delivered_gts),
        }

    def footprint(self) -> int:
        return len(self.entries) + self.done.size()


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()


def by_lts(entry: Entry) -> int:
    return entry.lts


def by_gts(entry: Entry) -> int:
    return entry.gts
