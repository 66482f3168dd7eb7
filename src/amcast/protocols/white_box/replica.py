"""White-Box atomic multicast: Skeen's protocol and Paxos woven into one.

Paper: Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", extended version, Figures 3 to 6; `# l.N` is a line of
Figure 4 (l.12 raises Phase, l.13 sets LocalTS, l.14 raises the clock).

Latency in message delays, leader / follower: 3 / 4 with no conflicting message under way, 5 / 6 at worst without
failures. A message that a leader crash interrupted commits 6 after `recover()`.

How it works. The leader of each destination group gives m a local timestamp and sends it, in ACCEPT, to every member
of every destination group. Who has the ACCEPTs of all groups stores them, raises its clock past their maximum, and
acknowledges them to all those leaders. A leader with quorums of equal acknowledgements from every group knows the
final timestamp, and delivers in its order what no uncommitted message can precede. A new leader collects the state
of a quorum, brings a quorum in step with the result, and only then goes on.

Departures from the figure, each for a reason that a scenario of the tests shows:
- Delivered is cleared at a new leader (l.44, l.61), else a follower never gets what was sent in an older ballot; a
  new state never makes a process forget that a message is COMMITTED.
- l.42 fires once per ballot and counts the leader's own state.
- DELIVER names the previous delivery: a follower that missed it refuses and asks for a recovery (Nack).
- A process asked to follow a ballot lower than the one it joined says so (Nack, and `ballot` in heartbeats), so that
  a follower convinced by a candidate that died comes back.
- The highest ACCEPT per group is kept in every status, and acknowledged again when it comes again.
- Leaders retry what is not committed: at once after a recovery, then by timer.
- With `Params.durable` a replica records promises, acceptances and deliveries before any replica hears of them and can
  restart. (A client hears of a delivery before: a quorum of each group has the message on disk.) It missed messages
  meanwhile: the leader sees from its heartbeats what it lacks and sends that again.
- A replica that lost its disk comes back with the state of another member, and takes part from the next ballot on.
- A message is forgotten when every member of all its destination groups has delivered it (Floor); a late copy of it
  is answered, not delivered again.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Durable, Electing, Observed
from amcast.core.order import BOTTOM, DeliveryQueue, Slot, leader_of, time_of, timestamp
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.parts.collection import Collectable, Collection, Floor
from amcast.protocols.parts.leader_candidate import (
    LEADER,
    RECOVERING,
    Heartbeat,
    LeaderCandidate,
    Nack,
    NewLeader,
    NewStateAck,
)
from amcast.protocols.parts.sessions import DeliveredMessages, Session
from amcast.protocols.skeen import PAPER_NAMES
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.protocols.white_box.invariants import Monitor
from amcast.protocols.white_box.messages import (
    MESSAGES,
    Accept,
    AcceptAck,
    Deliver,
    NewLeaderAck,
    NewState,
    StateRows,
)
from amcast.protocols.white_box.records import (
    RECORDS,
    Accepted,
    Adopted,
    Delivered,
    Held,
    Idle,
    Promised,
    Rejoining,
    Remembered,
    Summary,
)

START: Final = 0
PROPOSED: Final = 1
ACCEPTED: Final = 2
COMMITTED: Final = 3

RETRY_AFTER: Final = 10  # in δ: a failure-free message is through long before
IDLE_IN_RECORD: Final = 4096  # senders
LONGEST_RETRY: Final = 80  # bounds the time to finish once the network behaves


@final
@mypyc_attr(acyclic=True)
class VectorAcks:
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
class MessageState(Collectable):
    """What a process knows of one application message."""

    def __init__(self, m: AppMessage, session: Session) -> None:
        k = len(m.dest)
        super().__init__(m)
        self.session = session
        self.phase = START
        self.lts = BOTTOM
        self.delivered = False
        self.bal = [BOTTOM] * k  # the highest ACCEPT of each destination group: its ballot …
        self.proposals = [BOTTOM] * k  # … and its local timestamp
        self.missing = k
        self.vectors: list[VectorAcks] | None = None
        self.slot: Slot | None = None  # its place in the leader's queue
        self.retry_at = 0
        self.retry_delay = 0
        self.recorded = False  # its content is on disk

    def acks_of(self, bal: tuple[int, ...]) -> VectorAcks:
        vectors = self.vectors
        if vectors is None:
            vectors = self.vectors = []
        for acks in vectors:
            if acks.bal is bal or acks.bal == bal:
                return acks
        acks = VectorAcks(bal)
        vectors.append(acks)
        return acks


@final
class Route:
    """Where acknowledgements of a vector of ballots go. It is kept because it hardly ever changes."""

    def __init__(self, bal: tuple[int, ...], leaders: tuple[int, ...]) -> None:
        self.bal = bal
        self.leaders = leaders


def place(dest: tuple[int, ...], g: int) -> int:
    """Return where g stands in dest."""
    i = 0
    while dest[i] != g:
        i += 1
    return i


@final
class WhiteBox(Process, Durable, Electing, Observed):
    """A member of group g0."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.group = topology.groups[self.g0]
        self.quorum = [topology.quorum(g) for g in range(len(topology.groups))]
        self.clock = 0
        self.entries: dict[Mid, MessageState] = {}  # Phase, LocalTS, GlobalTS, Delivered
        self.candidate: LeaderCandidate[NewLeaderAck] = LeaderCandidate(self, self.group)  # status, cballot, ballot
        self.max_delivered_gts = BOTTOM
        self.queue = DeliveryQueue()
        self.prev_gts = BOTTOM
        self.done = DeliveredMessages()
        self.collection = Collection(self)
        self.orphans: dict[Mid, MessageState] = {}  # at the leader: known from other groups only, not proposed here
        self.routes: dict[tuple[int, ...], Route] = {}
        self.monitor: Monitor | None = None

    def on_observe(self, monitor: object) -> None:
        assert isinstance(monitor, Monitor)
        self.monitor = monitor

    def entry_of(self, m: AppMessage) -> MessageState | None:
        """Return what is known of m, which is something from now on; None if m was delivered and forgotten."""
        entry = self.entries.get(m.mid)
        if entry is None:
            session = self.done.session(m.mid)
            if session.contains(seq_of(m.mid)):
                return None
            entry = self.entries[m.mid] = MessageState(m, session)
            self.retry_later(entry, RETRY_AFTER * self.params.delta)
            if self.candidate.status == LEADER:
                self.orphans[m.mid] = entry
        return entry

    def retry_later(self, entry: MessageState, delay: int) -> None:
        entry.retry_at = self.now + delay
        entry.retry_delay = min(2 * delay, LONGEST_RETRY * self.params.delta)

    def adopt(self, b: int, clock: int, state: StateRows) -> None:
        """Enter ballot b with this state. The ACCEPTs at hand stay: the new leader's own will complete them."""
        for entry in self.entries.values():
            entry.delivered = False
            entry.vectors = None
            if entry.phase != COMMITTED:
                entry.phase = START
        for m, phase, lts, gts in state:
            known = self.entry_of(m)
            if known is not None and known.phase != COMMITTED:
                known.phase = phase
                known.lts = lts
                known.gts = gts
        self.clock = clock
        self.candidate.enter(b)
        if self.params.durable:
            self.save(Adopted(b, clock, state))
        if self.monitor is not None:
            self.monitor.adopted(self.pid, b, clock, self.rows(), self.done.mids())

    def on_start(self) -> None:
        self.candidate.start()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Accept):
            self.on_accept(msg)
        elif isinstance(msg, AcceptAck):
            self.on_accept_ack(sender, msg)
        elif isinstance(msg, Deliver):
            self.on_deliver(sender, msg)
        elif isinstance(msg, Multicast):
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Heartbeat):
            self.on_heartbeat(sender, msg)
        elif isinstance(msg, Floor):
            self.collection.on_floor(msg)
        elif isinstance(msg, NewLeader):
            self.on_new_leader(sender, msg.b)
        elif isinstance(msg, NewLeaderAck):
            self.on_new_leader_ack(sender, msg)
        elif isinstance(msg, NewState):
            self.on_new_state(sender, msg)
        elif isinstance(msg, NewStateAck):
            if self.candidate.has_follower(sender, msg.b):
                self.lead()
        elif isinstance(msg, Nack):
            self.on_nack(sender, msg.b)
        if self.monitor is not None:
            self.monitor.check_process(self.pid, self.candidate.cballot, self.candidate.ballot, self.clock, self.rows())

    # Normal operation

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:  # l.3
        if self.candidate.status != LEADER:  # l.4
            if sender >= self.topology.replicas:
                self.send_one(sender, Hint(m.mid, self.g0, self.candidate.leader()))
            return
        entry = self.entry_of(m)
        if entry is None:
            self.reply(m.mid)
            return
        if entry.phase == START:  # l.5
            self.clock += 1  # l.6
            entry.lts = timestamp(self.clock, self.g0)  # l.7
            entry.phase = PROPOSED  # l.8
            entry.slot = self.queue.propose(m.mid, entry.lts)
            self.orphans.pop(m.mid, None)
        elif entry.delivered:
            self.reply(m.mid)
        if self.monitor is not None:
            self.monitor.accept_sent(self.g0, self.candidate.cballot, m.mid, entry.lts)
        self.send(self.topology.members_of(m.dest), Accept(entry.m, self.g0, self.candidate.cballot, entry.lts))  # l.9

    def on_accept(self, msg: Accept) -> None:  # l.10
        m = msg.m
        entry = self.entry_of(m)
        if entry is None:
            return
        i = place(m.dest, msg.g)
        known = entry.bal[i]
        if msg.b < known:
            return
        if known == BOTTOM:
            entry.missing -= 1
        entry.bal[i] = msg.b
        entry.proposals[i] = msg.lts
        if entry.missing == 0:
            self.try_accept(entry)

    def try_accept(self, entry: MessageState) -> None:
        m = entry.m
        i = place(m.dest, self.g0)
        if self.candidate.status == RECOVERING or entry.bal[i] != self.candidate.cballot:  # l.11
            return
        if entry.phase < ACCEPTED:
            entry.phase = ACCEPTED  # l.12
        entry.lts = entry.proposals[i]  # l.13
        gts = BOTTOM
        for lts in entry.proposals:
            if lts > gts:
                gts = lts
        if time_of(gts) > self.clock:
            self.clock = time_of(gts)  # l.14
        if self.params.durable:
            entry.recorded = True
            self.save(Accepted(m, entry.lts, self.clock))
        route = self.route(m.dest, entry.bal)
        bal = route.bal
        if self.monitor is not None:
            self.monitor.accepted(self.pid, m.mid, self.candidate.cballot, entry.lts, gts, bal, self.rows())
        if entry.phase != COMMITTED and self.candidate.status == LEADER:
            entry.acks_of(bal).gts = gts
        self.send(route.leaders, AcceptAck(m.mid, self.g0, bal))  # l.15, l.16

    def route(self, dest: tuple[int, ...], bal: list[int]) -> Route:
        route = self.routes.get(dest)
        if route is not None:
            i = 0
            while i < len(bal) and route.bal[i] == bal[i]:
                i += 1
            if i == len(bal):
                return route
        groups = self.topology.groups
        leaders = tuple([groups[g][leader_of(b)] for g, b in zip(dest, bal, strict=True)])
        route = self.routes[dest] = Route(tuple(bal), leaders)
        return route

    def on_accept_ack(self, sender: int, msg: AcceptAck) -> None:  # l.17
        entry = self.entries.get(msg.mid)
        if entry is None or entry.phase == COMMITTED:
            return
        acks = entry.acks_of(msg.bal)
        i = place(entry.m.dest, msg.g)
        bit = 1 << self.topology.rank_of[sender]
        if acks.members[i] & bit:
            return
        acks.members[i] |= bit
        acks.counts[i] += 1
        if acks.counts[i] == self.quorum[msg.g]:
            acks.quorums += 1
        if sender == self.pid:
            acks.mine = True
        if acks.mine and acks.quorums == len(msg.bal):
            self.try_commit(entry, acks)

    def try_commit(self, entry: MessageState, acks: VectorAcks) -> None:
        if self.candidate.status != LEADER or acks.bal[place(entry.m.dest, self.g0)] != self.candidate.cballot:  # l.18
            return
        entry.gts = acks.gts  # l.19
        entry.phase = COMMITTED  # l.20
        entry.vectors = None
        assert entry.slot is not None
        self.queue.commit(entry.slot, entry.gts)
        self.deliver_committed()

    def deliver_committed(self) -> None:  # l.21, l.66
        mid = self.queue.pop()
        while mid is not None:
            entry = self.entries.get(mid)
            if entry is not None:  # else everybody delivered it in an earlier ballot, and it is forgotten
                entry.delivered = True  # l.22, l.67
                if self.monitor is not None:
                    self.monitor.deliver_sent(self.g0, mid, entry.lts, entry.gts)
                msg = Deliver(entry.m, self.candidate.cballot, entry.lts, entry.gts, self.prev_gts)
                self.send(self.group, msg)  # l.23, l.68
                self.prev_gts = entry.gts
            mid = self.queue.pop()

    def on_deliver(self, sender: int, msg: Deliver) -> None:  # l.24
        candidate = self.candidate
        if candidate.status == RECOVERING or candidate.cballot != msg.b or msg.gts <= self.max_delivered_gts:  # l.25
            return
        if msg.prev_gts > self.max_delivered_gts:
            candidate.refuse(sender, msg.b)
            return
        m = msg.m
        entry = self.entry_of(m)
        assert entry is not None, "a message above max_delivered_gts was delivered before"
        entry.phase = COMMITTED  # l.26
        entry.lts = msg.lts  # l.27
        entry.gts = msg.gts  # l.28
        if time_of(msg.gts) > self.clock:
            self.clock = time_of(msg.gts)  # l.29
        self.max_delivered_gts = msg.gts  # l.30
        if self.params.durable:
            if not entry.recorded:
                entry.recorded = True
                self.save_later(Accepted(m, msg.lts, self.clock))
            self.save_later(Delivered(m.mid, msg.lts, msg.gts))
        self.deliver(m, msg.gts)  # l.31
        self.remember(entry)
        if candidate.status == LEADER:
            self.reply(m.mid)

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid))

    def remember(self, entry: MessageState) -> None:
        entry.session.add(seq_of(entry.m.mid), entry.m.done)
        self.collection.delivered(entry)

    # Message recovery

    def retry(self, entry: MessageState) -> None:  # l.32
        self.send(self.topology.members_of(entry.m.dest), Multicast(entry.m))  # l.34

    def retry_what_is_due(self) -> None:
        waiting = [self.entries[mid] for mid in self.queue.uncommitted()]  # l.33
        for entry in waiting + list(self.orphans.values()):
            if entry.retry_at <= self.now:
                self.retry(entry)
                self.retry_later(entry, entry.retry_delay)

    # Leader recovery

    def on_suspect(self) -> None:
        self.candidate.suspect_leader()

    def on_new_leader(self, sender: int, b: int) -> None:  # l.37
        candidate = self.candidate
        if candidate.promises(sender, b):
            if self.params.durable:
                self.save(Promised(b))
            state = tuple([(e.m, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase >= ACCEPTED])
            self.send_one(sender, NewLeaderAck(b, candidate.cballot, self.clock, state))  # l.41

    def on_new_leader_ack(self, sender: int, msg: NewLeaderAck) -> None:  # l.42
        if not self.candidate.has_votes(sender, msg.b, msg):  # l.43
            return
        acks = self.candidate.votes
        newest = max([ack.cballot for ack in acks.values()])  # l.45
        merged: dict[Mid, tuple[AppMessage, int, int, int]] = {}
        for ack in acks.values():  # l.46
            for m, phase, lts, gts in ack.state:
                if phase == COMMITTED:  # l.47
                    merged[m.mid] = (m, COMMITTED, lts, gts)  # l.48, l.49, l.50
                elif ack.cballot == newest and m.mid not in merged:  # l.51
                    merged[m.mid] = (m, ACCEPTED, lts, BOTTOM)  # l.52, l.53
        clock = max([ack.clock for ack in acks.values()])  # l.54
        state = tuple(merged.values())
        self.adopt(msg.b, clock, state)  # l.44, l.55
        self.send(self.candidate.others, NewState(msg.b, clock, state))  # l.56
        if self.candidate.leads_now():
            self.lead()

    def on_new_state(self, sender: int, msg: NewState) -> None:  # l.57
        if self.candidate.may_follow(msg.b):  # l.58, l.59
            self.adopt(msg.b, msg.clock, msg.state)  # l.60, l.61
            self.send_one(sender, NewStateAck(msg.b))  # l.62

    def lead(self) -> None:
        """Go on from the state with which this ballot begins: a quorum follows (l.63 to l.65)."""
        self.prev_gts = BOTTOM
        self.collection.announce_again()
        self.queue = DeliveryQueue()
        self.orphans = {e.m.mid: e for e in self.entries.values() if e.phase == START}
        interrupted = sorted([e for e in self.entries.values() if e.phase == ACCEPTED], key=lambda e: e.lts)
        for entry in interrupted:
            entry.slot = self.queue.propose(entry.m.mid, entry.lts)
        for entry in self.entries.values():
            if entry.phase == COMMITTED:
                self.queue.commit(Slot(entry.m.mid, entry.lts), entry.gts)
        self.deliver_committed()
        for entry in interrupted:
            self.retry(entry)
            self.retry_later(entry, RETRY_AFTER * self.params.delta)

    def on_nack(self, sender: int, b: int) -> None:
        candidate = self.candidate
        if candidate.status == LEADER and b < candidate.cballot:
            if candidate.lagged(self.topology.rank_of[sender]):  # it waits for this ballot: its NEW_STATE may be lost
                candidate.must_recover = True
        candidate.on_nack(b)

    # Heartbeats and collection

    def on_timer(self, name: str) -> None:
        candidate = self.candidate
        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered
        candidate.tick(self.max_delivered_gts)
        leads = candidate.status == LEADER
        if leads:
            self.retry_what_is_due()
        for mid in self.collection.tick(leads, candidate.rank, self.max_delivered_gts):
            del self.entries[mid]
        if self.done.crowded():
            self.done.shelve({sender_of(mid): True for mid in self.entries})
        if self.monitor is not None:
            self.monitor.check_process(self.pid, candidate.cballot, candidate.ballot, self.clock, self.rows())

    def on_heartbeat(self, sender: int, msg: Heartbeat) -> None:
        """Notice a member that restarted and missed what no channel brings again, and help it."""
        rank = self.topology.rank_of[sender]
        lags = msg.delivered < self.max_delivered_gts and msg.delivered == self.collection.delivered_by[rank]
        if self.candidate.is_behind(sender, msg, lags):
            self.bring_up(sender, msg.delivered)
        self.collection.heard(rank, msg.delivered)

    def bring_up(self, member: int, delivered: int) -> None:
        """Send a member again what it has not delivered; nothing of that is forgotten before it has."""
        missed = [e for e in self.entries.values() if e.delivered and e.gts > delivered]
        missed.sort(key=lambda e: e.gts)
        prev_gts = delivered
        for entry in missed:
            self.send_one(member, Deliver(entry.m, self.candidate.cballot, entry.lts, entry.gts, prev_gts))
            prev_gts = entry.gts

    # Durability

    def save(self, record: Message) -> None:
        """Make a record durable before anybody hears of this step."""
        self.out.records.append(encoded(record))
        self.out.urgent = True

    def save_later(self, record: Message) -> None:
        """Make a record durable before anybody hears that this process delivered: a quorum has the message on disk."""
        self.out.records.append(encoded(record))

    def snapshot(self) -> list[bytes]:
        floors = tuple(self.collection.floors)
        shared_with = tuple(self.collection.shared_with)
        candidate = self.candidate
        records: list[Message] = [
            Summary(candidate.ballot, candidate.cballot, self.clock, self.max_delivered_gts, floors, shared_with)
        ]
        for sender, done, above in self.done.rows():
            records.append(Remembered(sender, done, above))
        idle = self.done.idle_rows()
        for i in range(0, len(idle), IDLE_IN_RECORD):
            records.append(Idle(tuple(idle[i : i + IDLE_IN_RECORD])))
        for entry in self.entries.values():
            entry.recorded = entry.phase >= ACCEPTED
        kept = sorted([e for e in self.entries.values() if e.recorded], key=lambda e: e.gts)
        for entry in kept:
            records.append(Held(entry.m, entry.phase, entry.lts, entry.gts))
        if candidate.rejoining:
            records.append(Rejoining(candidate.rejoin_above))
        return [encoded(record) for record in records]

    def on_recover(self, records: list[bytes]) -> None:
        monitor = self.monitor
        self.monitor = None  # the past was checked when it happened
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.monitor = monitor
        self.candidate.restart()
        if monitor is not None:
            cballot = self.candidate.cballot
            monitor.restarted(self.pid, cballot, self.rows(), self.done.mids())
            monitor.adopted(self.pid, cballot, self.clock, self.rows(), self.done.mids())
        self.out.records.clear()
        self.out.urgent = False
        self.on_start()

    def on_absent(self, pid: int) -> int:
        self.collection.delivered_by[self.topology.rank_of[pid]] = BOTTOM
        return self.candidate.forget_member(pid)

    def on_rejoin(self, records: list[bytes], floor: int) -> None:
        """Start without what this process knew, from another member's snapshot.

        This is safe: it answers nothing before it enters a ballot that began after all other members dropped whatever
        it had said, so the state of that ballot comes from a quorum without it. And nothing that it lacks is forgotten.
        """
        monitor = self.monitor
        self.monitor = None  # which knows what this process was before
        self.candidate.rejoin(floor)
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
            self.candidate.ballot = record.b
        elif isinstance(record, Adopted):
            self.candidate.ballot = record.b
            self.adopt(record.b, record.clock, record.state)
        elif isinstance(record, Summary):
            self.candidate.ballot = record.ballot
            self.candidate.cballot = record.cballot
            self.clock = record.clock
            self.max_delivered_gts = record.max_delivered_gts
            self.collection.floors = list(record.floors)
            self.collection.shared_with = list(record.shared_with)
        elif isinstance(record, Remembered):
            self.done.restore(record.sender, record.done, record.above)
        elif isinstance(record, Idle):
            self.done.restore_idle(record.rows)
        elif isinstance(record, Held):
            self.hold(record)
        elif isinstance(record, Rejoining):
            self.candidate.rejoin(record.b)

    def hold(self, record: Held) -> None:
        entry = MessageState(record.m, self.done.session(record.m.mid))
        entry.phase = record.phase
        entry.lts = record.lts
        entry.gts = record.gts
        entry.recorded = True
        self.entries[record.m.mid] = entry
        if record.phase == COMMITTED and record.gts <= self.max_delivered_gts:
            self.collection.keep(entry)

    # What drivers and people look at

    def rows(self) -> list[tuple[Mid, int, int, int]]:
        """Return Phase, LocalTS and GlobalTS of every message that is not in START."""
        return [(e.m.mid, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase != START]

    def idle(self) -> bool:
        if self.candidate.status == RECOVERING:
            return False
        for entry in self.entries.values():
            if entry.phase == COMMITTED:
                if entry.gts > self.max_delivered_gts:
                    return False
            elif entry.phase != START or self.candidate.status == LEADER:
                return False
        return True

    def leads(self) -> bool:
        return self.candidate.status == LEADER

    def rejoining(self) -> bool:
        return self.candidate.rejoining

    def has_delivered(self, mid: Mid) -> bool:
        return self.done.contains(mid)

    def unready(self) -> str:
        return self.candidate.unready()

    def condition(self) -> dict[str, object]:
        delivered = time_of(self.max_delivered_gts)
        return {**self.candidate.condition(), "clock": self.clock, "delivered": delivered}

    def footprint(self) -> int:
        return len(self.entries) + self.done.size()


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()


ROW: Final[Protocol] = Protocol(
    name="white_box",
    title="White-Box atomic multicast",
    replica=WhiteBox,
    client=WhiteBoxClient,
    tolerates="crash of a minority in each group, any client",
    latency="3δ / 4δ, worst 5δ / 6δ",
    messages=MESSAGES,
    monitor=Monitor,
    least_delivered=94,
    paper_names=PAPER_NAMES,
)
