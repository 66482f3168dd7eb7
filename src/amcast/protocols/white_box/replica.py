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
- Deliveries of a group are numbered. What a replica has delivered, its prefix, is named by its length (the position)
  and a digest: DELIVER carries the position, and a vote and a new state carry the position and what is not delivered
  yet, never the prefix (l.41, l.56). A prefix is a decided fact, so it is delivered in any status and ballot (l.25),
  and who lacks a part asks any member for it (Fetch, Tail; a snapshot where nobody keeps the messages any more).
- Nobody enters a ballot without the longest prefix among its votes: a candidate fetches it before it goes on from l.44,
  a follower before it acknowledges (l.62). So nothing is delivered again at a new leader (l.66).
- l.42 fires once per ballot and counts the leader's own state. A new state never makes a process forget that a message
  is COMMITTED. A member that did not vote may follow as well (l.58), and one that missed a new state gets it again.
- A process asked to follow a ballot lower than the one it joined says so (Nack, and `ballot` in heartbeats), so that
  a follower convinced by a candidate that died comes back.
- The highest ACCEPT per group is kept in every status, and acknowledged again when it comes again.
- Leaders retry what is not committed: at once after a recovery, then by timer. Requests that come during an election
  wait for its end, and a leader that was replaced passes on what it had only proposed.
- A message is forgotten when it is delivered, but for its final timestamp if it has other destinations. That stays
  until a quorum of each of them has delivered it (Floor), for the leader that still works on it (Outcome). It
  stands for the acknowledgements of all other groups, at a leader whose own has accepted a vector with that maximum.
  If nobody sends the ACCEPTs of such a vector any more, a quorum must say that the leader still leads (Confirm).
- Members change while the group runs (`configurations.py`). Ballots begin with an epoch, and their quorums are
  majorities of the list of that epoch, for everybody. A change is a message to its own group: delivering it ends the
  epoch. The leader delivers nothing behind it, and the next epoch begins by a recovery in which majorities of the old
  list and of the new one vote, and a majority of the new one follows. Nobody votes in an epoch whose beginning it has
  not delivered. Who is in no list yet learns the prefix; who was removed votes until the next epoch is established.
- With `Params.durable` a replica records promises, acceptances and deliveries before any replica hears of them and can
  restart. (A client hears of a delivery before: a quorum of each group has the message on disk.) It takes no part
  before the others have said that it forgot nothing; one that did comes back as one without a disk: `probation.py`.
"""

from typing import Final, final

from amcast.core.capabilities import Confirming, Durable, Electing, Listing, MemberLists, Observed, Seated
from amcast.core.notes import EpochBegins
from amcast.core.order import BOTTOM, DeliveryQueue, Slot, ballot, epoch_of, leader_of, time_of, timestamp
from amcast.core.process import Effects, Memory, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.errors import InvariantViolation
from amcast.protocols.parts.collection import Floor
from amcast.protocols.parts.kept import Kept
from amcast.protocols.parts.leader_candidate import (
    FOLLOWER,
    LEADER,
    RECOVERING,
    Heartbeat,
    LeaderCandidate,
    Nack,
    NewLeader,
    NewStateAck,
)
from amcast.protocols.parts.sparse import dense
from amcast.protocols.skeen import PAPER_NAMES
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.protocols.white_box.configurations import (
    Change,
    Configurations,
    change_of,
    change_payload,
    founding_of,
    founding_payload,
)
from amcast.protocols.white_box.conversion import converted
from amcast.protocols.white_box.invariants import Monitor
from amcast.protocols.white_box.message_state import (
    ACCEPTED,
    COMMITTED,
    PROPOSED,
    START,
    MessageState,
    VectorAcks,
    place,
)
from amcast.protocols.white_box.messages import (
    MESSAGES,
    Accept,
    AcceptAck,
    Confirm,
    Deliver,
    Fetch,
    Handover,
    Hello,
    Lists,
    Marks,
    NewLeaderAck,
    NewState,
    Outcome,
    StatePart,
    StateRows,
    Tail,
    Welcome,
)
from amcast.protocols.white_box.prefix import Prefix
from amcast.protocols.white_box.probation import Probation
from amcast.protocols.white_box.reads import ASKER, Reads
from amcast.protocols.white_box.records import (
    RECORDS,
    Accepted,
    Adopted,
    Delivered,
    Held,
    Listed,
    Promised,
    Rejoining,
    Summary,
    encoded,
)
from amcast.protocols.white_box.state_parts import IncomingStates, in_parts

RETRY_AFTER: Final = 10  # in δ: a failure-free message is through long before
RETRIED_PARTS: Final = 2  # as many bytes as so many parts of a state, per heartbeat
LONGEST_RETRY: Final = 80  # bounds the time to finish once the network behaves


@final
class Route:
    """Where acknowledgements of a vector of ballots go. It is kept, for it hardly ever changes."""

    def __init__(self, bal: tuple[int, ...], leaders: tuple[int, ...]) -> None:
        self.bal = bal
        self.leaders = leaders


@final
class WhiteBox(Process, Confirming, Durable, Electing, Observed, Listing, Seated):
    """A member of group g0, or one that will be or was a member."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.configurations = Configurations(topology, params)
        if not self.configurations.has(self.g0):  # it is of those who found the group
            self.configurations.add(self.g0, 0, tuple(range(params.founders)), b"")
        self.list = self.configurations.lists[self.g0][0]  # the members in the ballot in which this process works
        self.clock = 0
        self.entries: dict[Mid, MessageState] = {}  # Phase, LocalTS, GlobalTS of what is not delivered
        self.under_way = 0  # bytes of their payloads
        self.candidate: LeaderCandidate[StatePart] = LeaderCandidate(
            self, topology.groups[self.g0]
        )  # status, cballot, ballot
        self.probation = Probation(self)
        self.queue = DeliveryQueue()
        self.orphans: dict[Mid, MessageState] = {}  # at the leader: known from other groups only, not proposed here
        self.kept = Kept(params.tail_bytes)  # requests that came during an election
        self.routes: dict[tuple[int, ...], Route] = {}
        self.monitor: Monitor | None = None
        self.prefix = Prefix(self)  # what is delivered
        self.next_position = 0  # at the leader: of what it sends next in DELIVER
        self.states = IncomingStates()
        self.reads = Reads(self)
        self.pending: NewState | None = None  # the state of a ballot that it cannot enter before it has the prefix, …
        self.pending_from = self.pid  # … and whose it is
        self.sealed = False  # at the leader: it has sent what ends the epoch
        self.replaying = False
        self.retired = False  # removed, and not needed any more
        self.belongs = self.g0 < len(topology.sizes)  # others say that this group is part of the cluster
        self.teacher = 0  # of a learner: whom it asks next
        self.use_lists()

    def on_observe(self, monitor: object) -> None:
        assert isinstance(monitor, Monitor)
        self.monitor = monitor
        for g, lists in enumerate(self.configurations.lists):
            if lists:
                monitor.begins(g, 0, lists[0].seats)

    def entry_of(self, m: AppMessage) -> MessageState | None:
        """Return what is known of m, which is something from now on; None if m was delivered."""
        entry = self.entries.get(m.mid)
        if entry is None:
            session = self.prefix.done.session(m.mid)
            if session.contains(seq_of(m.mid)):
                return None
            entry = self.entries[m.mid] = MessageState(m, session)
            self.under_way += len(m.payload)
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
            entry.vectors = None
            entry.outcome = BOTTOM
            entry.confirmed = 0
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
        self.list = self.configurations.lists[self.g0][epoch_of(b)]
        if self.params.durable:
            self.save(Adopted(b, clock, state))
        if self.monitor is not None:
            self.monitor.adopted(self.pid, b, clock, self.rows(), self.prefix.done.mids())

    def on_start(self) -> None:
        self.candidate.start()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Deliver):
            self.on_deliver(sender, msg)
        elif isinstance(msg, Accept) and not self.probation.active:
            self.on_accept(sender, msg)
        elif isinstance(msg, AcceptAck) and not self.probation.active:
            self.on_accept_ack(sender, msg)
        elif isinstance(msg, Multicast) and not self.probation.active:
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Heartbeat):
            self.on_heartbeat(sender, msg)
        elif isinstance(msg, Marks):
            self.on_marks(msg)
        elif isinstance(msg, Lists):
            self.on_lists(sender, msg)
        elif isinstance(msg, Floor):
            self.prefix.collection.on_floor(msg)
        elif isinstance(msg, Fetch):
            self.prefix.on_fetch(sender, msg)
        elif isinstance(msg, Tail):
            self.on_tail(sender, msg)
        elif isinstance(msg, Hello):
            self.on_hello(sender, msg)
        elif isinstance(msg, Welcome):
            self.on_welcome(sender, msg)
        elif not self.probation.active:
            self.on_election(sender, msg)
        if self.monitor is not None and not self.probation.active:
            self.monitor.check_process(self.pid, self.candidate.cballot, self.candidate.ballot, self.clock, self.rows())

    def on_election(self, sender: int, msg: Message) -> None:
        if isinstance(msg, NewLeader):
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
        elif isinstance(msg, Outcome):
            self.on_outcome(msg)
        elif isinstance(msg, Confirm):
            self.on_confirm(sender, msg)
        elif isinstance(msg, Handover):
            self.on_handover(msg.b)

    # Normal operation

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:  # l.3
        candidate = self.candidate
        if not self.takes_part(sender):
            return
        if candidate.status != LEADER or self.sealed:  # l.4
            takes_part = candidate.listed or not self.retired
            if self.prefix.done.contains(m.mid):
                self.tell_outcome(sender, m.mid)
            elif takes_part and (candidate.status == LEADER or candidate.awaits_leader()) and self.kept.has_room(m):
                self.kept.add(m)
            else:
                self.tell_leader(sender, m.mid)
            return
        entry = self.entry_of(m)
        if entry is None:
            self.tell_outcome(sender, m.mid)
            return
        if entry.phase == START:  # l.5
            self.clock += 1  # l.6
            entry.lts = timestamp(self.clock, self.g0)  # l.7
            entry.phase = PROPOSED  # l.8
            entry.slot = self.queue.propose(m.mid, entry.lts)
            self.orphans.pop(m.mid, None)
        if self.monitor is not None:
            self.monitor.accept_sent(self.g0, candidate.cballot, m.mid, entry.lts)
        accept = Accept(entry.m, self.g0, candidate.cballot, entry.lts)
        self.send(self.configurations.members_of(m.dest), accept)  # l.9

    def takes_part(self, sender: int) -> bool:
        """Return whether this group is part of the cluster: of two that are founded with one number only one will be.

        Messages to other groups would block these. Who sends something from another group knows that this one is there.
        """
        if not self.belongs:
            others = sender < self.topology.replicas and self.topology.group_of[sender] != self.g0
            self.belongs = others or self.prefix.position > 0
        return self.belongs

    def tell_outcome(self, asker: int, mid: Mid) -> None:
        """Answer who asks for a message that is delivered here: its client, or a leader that still works on it."""
        if asker >= self.topology.replicas:
            if self.candidate.status == LEADER:
                self.reply(mid)
            else:
                self.tell_leader(asker, mid)
        elif self.topology.group_of[asker] != self.g0:
            outcome = self.prefix.outcomes.get(mid)
            if outcome is not None:  # else a quorum of its group has delivered it, and it will learn that there
                self.send_one(asker, Outcome(mid, outcome.gts))

    def tell_leader(self, asker: int, mid: Mid) -> None:
        """Tell who asked for a message that another process leads, and who the members are, if these have changed."""
        if asker >= self.topology.replicas:
            leader = self.candidate.leader()
            newest = self.configurations.newest(self.g0)
            if leader not in newest.pids:
                leader = newest.pids[0]
            self.send_one(asker, Hint(mid, self.g0, leader, self.candidate.cballot))
        if self.configurations.changed:
            self.send_one(asker, self.configurations.message())

    def on_accept(self, sender: int, msg: Accept) -> None:  # l.10
        m = msg.m
        if self.retired:
            return
        entry = self.entry_of(m)
        if entry is None:
            self.tell_outcome(sender, m.mid)
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
        self.send(route.leaders, AcceptAck(m.mid, self.g0, bal, self.probation.mark))  # l.15, l.16

    def route(self, dest: tuple[int, ...], bal: list[int]) -> Route:
        if max(bal) == ballot(0, 0):  # nobody was replaced: then it is the same for all processes
            return Route(tuple(bal), self.topology.leaders_of(dest))
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
        self.probation.heard(sender, msg.mark)
        entry = self.entries.get(msg.mid)
        if entry is None or entry.phase == COMMITTED:
            return
        acks = entry.acks_of(msg.bal)
        i = place(entry.m.dest, msg.g)
        members = self.configurations.of(msg.g, epoch_of(msg.bal[i]))
        bit = 1 << self.topology.rank_of[sender]
        if acks.members[i] & bit:
            return
        acks.members[i] |= bit
        if members is None:  # it counts when that list is known
            self.send_one(sender, Lists(self.configurations.known, ()))
            return
        acks.counts[i] += 1
        if acks.counts[i] == members.quorum:
            acks.quorums += 1
        if sender == self.pid:
            acks.mine = True
        if acks.quorums == len(msg.bal) or entry.outcome != BOTTOM:
            self.try_commit(entry, acks)

    def try_commit(self, entry: MessageState, acks: VectorAcks) -> None:
        """Commit a message that quorums of all groups accepted, or of this one if another group has delivered it."""
        i = place(entry.m.dest, self.g0)
        if not acks.mine or self.candidate.status != LEADER or acks.bal[i] != self.candidate.cballot:  # l.18
            return
        if acks.quorums < len(acks.bal):
            if acks.counts[i] < self.list.quorum or acks.gts != entry.outcome:  # see `on_outcome`
                return
        if self.monitor is not None:
            self.monitor.counted(entry.m.dest, acks.bal, acks.members, entry.outcome == BOTTOM)
        self.commit(entry, acks.gts)

    def commit(self, entry: MessageState, gts: int) -> None:
        entry.gts = gts  # l.19
        entry.phase = COMMITTED  # l.20
        entry.vectors = None
        assert entry.slot is not None
        self.queue.commit(entry.slot, entry.gts)
        self.deliver_committed()

    def on_outcome(self, msg: Outcome) -> None:
        """Hear that another group has delivered a message: a quorum of this one accepted it with that timestamp.

        If that was in this ballot or before, this leader may commit it, even if it is only PROPOSED here, for that
        quorum need not have the leader in it. But another ballot may have begun: the quorum may have accepted it there,
        with another local timestamp and behind messages of which this leader knows nothing. Two things rule that out.

        First, acknowledgements of this ballot: a quorum of this group, the leader in it, accepted a vector whose
        maximum is that very timestamp. That is all that a commit needs from its own group. Every higher ballot has the
        message with the same local timestamp (Inv. 2a, 2b), a clock that is not below the final one (2c), and no
        message below that which this leader did not know when it accepted (5). What the other groups would say, namely
        that the timestamp is final, the Outcome says: one that has delivered it heard from quorums of all of them. It
        does not matter in which ballots of theirs, nor which local timestamps their part of this vector has, as long as
        the maximum is the same. With a lower maximum a higher ballot may have begun with a lower clock, and put others
        before the message.

        Second, where that quorum does not come (who restarted has lost the ACCEPTs of a group that sends no more):
        a quorum says that this leader still leads, now that the Outcome is here. Whoever voted for a higher ballot in
        which anything was accepted by then would say no.
        """
        entry = self.entries.get(msg.mid)
        if self.candidate.status == LEADER and entry is not None and PROPOSED <= entry.phase <= ACCEPTED:
            entry.outcome = msg.gts
            for acks in entry.vectors or ():
                if entry.phase != COMMITTED:
                    self.try_commit(entry, acks)
            if entry.phase != COMMITTED:
                self.send(self.list.pids, Confirm(msg.mid, self.candidate.cballot, answer=False))

    def on_confirm(self, sender: int, msg: Confirm) -> None:
        candidate = self.candidate
        if not msg.answer:
            if msg.b == candidate.ballot and not candidate.rejoining:
                self.send_one(sender, Confirm(msg.mid, msg.b, answer=True))
            return
        if sender_of(msg.mid) == ASKER:
            self.reads.on_answer(sender, msg)
            return
        entry = self.entries.get(msg.mid)
        if candidate.status != LEADER or msg.b != candidate.cballot or entry is None or entry.outcome == BOTTOM:
            return
        entry.confirmed |= 1 << self.topology.rank_of[sender]
        if PROPOSED <= entry.phase <= ACCEPTED and entry.confirmed.bit_count() >= self.list.quorum:
            if time_of(entry.outcome) > self.clock:
                self.clock = time_of(entry.outcome)
            self.commit(entry, entry.outcome)

    def deliver_committed(self) -> None:  # l.21
        mid = self.queue.pop() if not self.sealed else None
        while mid is not None:
            entry = self.entries.get(mid)
            if entry is not None:  # else this leader has learnt of its delivery in an earlier ballot
                to = self.list.pids
                change = self.change_by(entry.m)
                if change is not None:  # what is behind it waits for the next epoch
                    self.sealed = True
                    seats = change.seats + tuple([seat for seat in self.list.seats if seat not in change.seats])
                    to = tuple([self.candidate.members[seat] for seat in seats])
                if self.monitor is not None:
                    self.monitor.deliver_sent(self.g0, mid, entry.lts, entry.gts)
                    self.monitor.delivers_in(self.g0, self.candidate.epoch, self.next_position, change is not None)
                self.send(to, Deliver(entry.m, entry.lts, entry.gts, self.next_position))  # l.23
                self.next_position += entry.m.count  # l.22
            mid = self.queue.pop() if not self.sealed else None

    def on_deliver(self, sender: int, msg: Deliver) -> None:  # l.24
        if msg.position != self.prefix.position:  # l.25
            if msg.position > self.prefix.position:
                self.prefix.hold_back(msg)
                self.prefix.fetch(sender)
            return
        self.take(msg.m, msg.lts, msg.gts)
        learnt = sender != self.pid
        if self.prefix.ahead:
            self.take_ahead()
            learnt = True
        if learnt and self.candidate.status == LEADER:  # something may have waited for what others have delivered
            self.deliver_committed()
        self.grown()

    def take(self, m: AppMessage, lts: int, gts: int) -> None:
        """Deliver what follows next in the order of this group."""
        entry = self.entry_of(m)
        assert entry is not None, "a message was delivered before, at another position"
        if time_of(gts) > self.clock:
            self.clock = time_of(gts)  # l.29
        self.prefix.append(m, lts, gts)  # l.26, l.27, l.28, l.30
        if self.params.durable:
            if not entry.recorded:
                self.save_later(Accepted(m, lts, self.clock))
            self.save_later(Delivered(m.mid, lts, gts))
        if self.monitor is not None:
            self.monitor.delivered(self.pid, self.prefix.position, m.mid)
        self.deliver(m, gts)  # l.31
        entry.session.add(seq_of(m.mid), m.done)
        self.drop(entry)
        if self.next_position < self.prefix.position:
            self.next_position = self.prefix.position
        if self.candidate.status == LEADER:
            self.reply(m.mid)
        change = self.change_by(m)
        if change is not None:
            epoch = self.candidate.epoch + 1
            self.configurations.add(self.g0, epoch, change.seats, change.about)
            self.begin_epoch(epoch)
        founding = founding_of(m)
        if founding is not None and self.configurations.may_be_founded(founding):
            if self.monitor is not None:
                self.monitor.begins(founding.group, 0, founding.seats)
            self.configurations.add(founding.group, 0, founding.seats, founding.about)
            self.lists_changed()

    def drop(self, entry: MessageState) -> None:
        """Forget a message that is delivered."""
        mid = entry.m.mid
        del self.entries[mid]
        self.orphans.pop(mid, None)
        self.under_way -= len(entry.m.payload)
        slot = entry.slot
        if slot is not None and slot.gts == BOTTOM:  # at a leader that learnt this from others: it blocks nothing
            self.queue.commit(slot, slot.lts)

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid, self.candidate.cballot))

    # The prefix

    def take_ahead(self) -> None:
        """Deliver what came too early and follows now."""
        prefix = self.prefix
        msg = prefix.next_ahead()
        while msg is not None:
            self.take(msg.m, msg.lts, msg.gts)
            msg = prefix.next_ahead()
        prefix.forget_ahead()

    def on_tail(self, sender: int, msg: Tail) -> None:
        prefix = self.prefix
        if not prefix.reaches(sender, msg):
            return
        position = msg.position
        for m, lts, gts in msg.rows:
            if position == prefix.position:
                self.take(m, lts, gts)
            position += m.count
        self.take_ahead()
        if msg.end > prefix.position:
            prefix.fetch(sender)
        if self.candidate.status == LEADER:
            self.deliver_committed()
        self.grown()

    def grown(self) -> None:
        """Go on with what waits for a longer prefix: the entry into a ballot, its beginning, or taking part at all."""
        if self.reads.held:
            self.reads.release()
        if self.probation.active:
            self.end_probation()
        elif self.pending is not None:
            self.enter_pending()
        elif self.candidate.status == RECOVERING and self.candidate.may_form():
            self.form()

    # Message recovery

    def retry(self, entry: MessageState) -> None:  # l.32
        self.send(self.configurations.members_of(entry.m.dest), Multicast(entry.m))  # l.34

    def retry_what_is_due(self) -> None:
        waiting = [self.entries[mid] for mid in self.queue.uncommitted()]  # l.33
        left = RETRIED_PARTS * self.params.part_bytes  # all at once would be too much for a link that was given up
        for entry in waiting + list(self.orphans.values()):
            if entry.retry_at <= self.now and left > 0:
                left -= len(entry.m.payload)
                self.retry(entry)
                self.retry_later(entry, entry.retry_delay)

    # Leader recovery

    def on_confirm_lead(self, number: int) -> None:
        self.reads.ask(number)

    def on_suspect(self) -> None:
        if not self.probation.active:
            self.candidate.suspect_leader()

    def on_gone(self, pid: int) -> None:
        if not self.probation.active:
            self.candidate.lost(pid)

    def on_hand_over(self, to: int) -> None:
        candidate = self.candidate
        if candidate.status != LEADER or to == self.pid:
            return
        if to < 0:
            trusted = [p for p in candidate.others if not candidate.detector.suspected[self.topology.rank_of[p]]]
            if not trusted:
                return
            to = max(trusted, key=lambda p: candidate.positions[self.topology.rank_of[p]])
        candidate.step_back()
        self.send_one(to, Handover(candidate.cballot))

    def on_handover(self, b: int) -> None:
        candidate = self.candidate
        if b == candidate.cballot and candidate.status == FOLLOWER:
            candidate.stand()

    def on_new_leader(self, sender: int, b: int) -> None:  # l.37
        candidate = self.candidate
        if epoch_of(b) > candidate.epoch:  # it votes when it has delivered the beginning of that epoch, and not before
            self.prefix.fetch(sender)
            return
        if epoch_of(b) < candidate.epoch or self.retired:
            self.send_one(sender, self.configurations.message())
            return
        if candidate.promises(sender, b):
            self.pending = None
            if self.params.durable:
                self.save(Promised(b))
                self.send_one(sender, self.probation.own())
            for part in self.state_in_parts():
                vote = NewLeaderAck(b, candidate.cballot, self.clock, self.prefix.position, self.prefix.digest, *part)
                self.send_one(sender, vote)  # l.41

    def state_in_parts(self) -> list[tuple[int, int, StateRows]]:
        """Return what is accepted and not delivered: number of a part, of how many, rows."""
        rows = [(e.m, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase >= ACCEPTED]
        return in_parts(rows, self.params.part_bytes)

    def on_new_leader_ack(self, sender: int, msg: NewLeaderAck) -> None:  # l.42
        rows = self.states.rows_of(sender, msg)
        if rows is None:
            return
        vote = NewLeaderAck(msg.b, msg.cballot, msg.clock, msg.position, msg.digest, 0, 1, rows)
        if self.candidate.has_votes(sender, msg.b, vote):  # l.43
            self.form()

    def form(self) -> None:
        """Begin the ballot for which a quorum has voted, as soon as the longest prefix of the votes is here."""
        votes = self.candidate.votes
        furthest = max(votes, key=lambda pid: votes[pid].position)
        if votes[furthest].position > self.prefix.position:
            self.prefix.fetch(furthest)
            return
        digests: dict[int, int] = {self.prefix.position: self.prefix.digest}
        for pid, vote in votes.items():
            if digests.setdefault(vote.position, vote.digest) != vote.digest:
                self.differ(pid, vote.position)
        newest = max([vote.cballot for vote in votes.values()])  # l.45
        merged: dict[Mid, tuple[AppMessage, int, int, int]] = {}
        for vote in votes.values():  # l.46
            for m, phase, lts, gts in vote.rows:
                if self.prefix.done.contains(m.mid):
                    continue
                if phase == COMMITTED:  # l.47
                    merged[m.mid] = (m, COMMITTED, lts, gts)  # l.48, l.49, l.50
                elif vote.cballot == newest and m.mid not in merged:  # l.51
                    merged[m.mid] = (m, ACCEPTED, lts, BOTTOM)  # l.52, l.53
        clock = max([vote.clock for vote in votes.values()])  # l.54
        clock = max(clock, time_of(self.prefix.max_delivered_gts))
        if self.monitor is not None:
            ranks = [self.topology.rank_of[pid] for pid in votes]
            self.monitor.formed(self.g0, self.candidate.ballot, ranks, self.configurations.established[self.g0])
        self.save_what_was_heard()
        self.adopt(self.candidate.ballot, clock, tuple(merged.values()))  # l.44, l.55
        self.send_state(self.candidate.others)  # l.56
        if self.candidate.leads_now():
            self.lead()

    def differ(self, pid: int, position: int) -> None:
        raise InvariantViolation(
            f"{self.topology.name(self.pid)} and {self.topology.name(pid)} have delivered other messages "
            f"up to position {position}: compare them with `amcast cluster verify`"
        )

    def send_state(self, to: tuple[int, ...]) -> None:
        """Send the state of the ballot in which this process works, as it is now."""
        b = self.candidate.cballot
        if self.params.durable:
            self.send(to, self.probation.own())
        for part in self.state_in_parts():
            self.send(to, NewState(b, b, self.clock, self.prefix.position, self.prefix.digest, *part))

    def on_new_state(self, sender: int, msg: NewState) -> None:  # l.57
        rows = self.states.rows_of(sender, msg)
        if rows is None or epoch_of(msg.b) < self.candidate.epoch:
            return
        if epoch_of(msg.b) > self.candidate.epoch or self.candidate.joins(msg.b):  # l.58
            self.pending = NewState(msg.b, msg.cballot, msg.clock, msg.position, msg.digest, 0, 1, rows)
            self.pending_from = sender
            self.enter_pending()

    def enter_pending(self) -> None:
        """Follow in a ballot as soon as the prefix with which it begins is here."""
        pending = self.pending
        assert pending is not None
        if pending.position > self.prefix.position:
            self.prefix.fetch(self.pending_from)
            return
        if pending.position == self.prefix.position and pending.digest != self.prefix.digest:
            self.differ(self.pending_from, self.prefix.position)
        self.pending = None
        if epoch_of(pending.b) != self.candidate.epoch or not self.candidate.joins(pending.b):
            return
        proposed = [e.m for e in self.entries.values() if e.phase == PROPOSED]
        self.candidate.status = FOLLOWER  # l.59
        self.adopt(pending.b, max(pending.clock, time_of(self.prefix.max_delivered_gts)), pending.rows)  # l.60, l.61
        if self.params.durable:
            self.send_one(self.pending_from, self.probation.own())
        self.send_one(self.pending_from, NewStateAck(pending.b))  # l.62
        for m in proposed + self.kept.take():
            entry = self.entries.get(m.mid)
            if not self.prefix.done.contains(m.mid) and (entry is None or entry.phase == START):
                self.send_one(self.pending_from, Multicast(m))

    def lead(self) -> None:
        """Go on from the state with which this ballot begins: a quorum follows (l.63 to l.65)."""
        if self.monitor is not None:
            followers = [self.topology.rank_of[pid] for pid in self.candidate.followers]
            self.monitor.leads(self.g0, self.candidate.cballot, [self.candidate.rank, *followers])
        if self.configurations.establish(self.g0, self.candidate.epoch):
            self.lists_changed()
        self.sealed = False
        self.save_what_was_heard()
        self.next_position = self.prefix.position
        self.prefix.collection.announce_again()
        self.queue = DeliveryQueue()
        self.orphans = {e.m.mid: e for e in self.entries.values() if e.phase == START}
        interrupted = sorted([e for e in self.entries.values() if e.phase == ACCEPTED], key=lambda e: e.lts)
        for entry in interrupted:
            entry.slot = self.queue.propose(entry.m.mid, entry.lts)
        for entry in self.entries.values():
            if entry.phase == COMMITTED:
                entry.slot = Slot(entry.m.mid, entry.lts)
                self.queue.commit(entry.slot, entry.gts)
        self.deliver_committed()  # l.66, l.67, l.68
        for entry in interrupted:
            self.retry(entry)
            self.retry_later(entry, RETRY_AFTER * self.params.delta)
        self.tell_lists()
        for m in self.kept.take():
            self.on_multicast_request(sender_of(m.mid), m)

    def on_nack(self, sender: int, b: int) -> None:
        candidate = self.candidate
        if candidate.status == LEADER and b < candidate.cballot and candidate.lagged(self.topology.rank_of[sender]):
            self.send_state((sender,))  # it waits for this ballot: what was sent to it may be lost
        if epoch_of(b) > candidate.epoch:
            self.prefix.fetch(sender)
        candidate.on_nack(b)

    # Members

    def change_by(self, m: AppMessage) -> Change | None:
        """Return what takes effect if this message is delivered next; None if it changes nothing."""
        change = change_of(m)
        epoch = self.candidate.epoch
        if change is None or change.from_epoch != epoch:
            return None
        return change if self.configurations.is_possible(self.g0, epoch, change.seats) else None

    def begin_epoch(self, epoch: int) -> None:
        """Take part by the list of this epoch from now on: what ended the one before it is delivered."""
        candidate = self.candidate
        members = self.configurations.lists[self.g0][epoch]
        self.note(EpochBegins(epoch, [self.topology.name(pid) for pid in members.pids]))
        if self.monitor is not None:
            self.monitor.begins(self.g0, epoch, members.seats)
        led = candidate.status == LEADER
        candidate.epoch = epoch
        self.use_lists()
        self.sealed = False
        if self.replaying:
            return
        candidate.must_recover = True
        if led:
            candidate.status = RECOVERING
            if candidate.listed:
                candidate.stand()
            else:
                heir = max(candidate.nominee(), members.seats[0])
                self.send_one(candidate.members[heir], Handover(candidate.cballot))

    def use_lists(self) -> None:
        """Go by what is known of the members of all groups."""
        candidate = self.candidate
        configurations = self.configurations
        epoch = candidate.epoch
        lists = configurations.lists[self.g0]
        before = lists[epoch - 1].seats if epoch > configurations.established[self.g0] else ()
        candidate.configure(epoch, lists[epoch].seats, before)
        collection = self.prefix.collection
        collection.seats = candidate.seats
        collection.enough = candidate.majority
        collection.members = configurations.reach
        groups = tuple(range(len(configurations.lists)))
        counted = [members.pids for members in lists[configurations.established[self.g0] :]]
        self.probation.count_on(counted, configurations.reach[self.g0], configurations.members_of(groups))
        removed = not candidate.listed and any(candidate.rank in members.seats for members in lists[:epoch])
        if removed and not before and not self.retired:
            self.retire()

    def retire(self) -> None:
        """Leave everything to those who took over: nobody counts on this process any more."""
        self.retired = True
        self.candidate.status = RECOVERING
        waiting = self.kept.take() + [entry.m for entry in self.entries.values() if entry.phase == PROPOSED]
        for entry in list(self.entries.values()):
            self.drop(entry)
        self.pending = None
        self.queue = DeliveryQueue()
        if self.monitor is not None:
            self.monitor.removed(self.pid)
        if self.probation.active:
            self.probation.end()
        for m in waiting if not self.replaying else ():
            self.send(self.configurations.newest(self.g0).pids, Multicast(m))

    def keep_lists(self) -> None:
        """Go by new lists, which are on disk before what rests on them."""
        if self.params.durable and not self.replaying:
            self.out.records.append(encoded(Listed(self.configurations.rows())))
        self.use_lists()

    def lists_changed(self) -> None:
        """Act on news about members: some acknowledgements may count now."""
        self.keep_lists()
        for entry in list(self.entries.values()):
            for acks in entry.vectors or ():
                if entry.phase != COMMITTED:
                    self.recount(entry, acks)

    def recount(self, entry: MessageState, acks: VectorAcks) -> None:
        acks.quorums = 0
        for i, g in enumerate(entry.m.dest):
            members = self.configurations.of(g, epoch_of(acks.bal[i]))
            if members is not None:
                acks.counts[i] = acks.members[i].bit_count()
                acks.quorums += acks.counts[i] >= members.quorum
        if acks.quorums == len(acks.bal):
            self.try_commit(entry, acks)

    def on_lists(self, sender: int, msg: Lists) -> None:
        """Learn who the members of all groups are, and tell who knows less."""
        configurations = self.configurations
        group = self.topology.group_of[sender]
        if not configurations.has(group):  # it may be founded twice, and it is not known yet which of them counts
            return
        if configurations.merge(msg.rows):
            self.lists_changed()
        configurations.told[sender] = msg.known
        if group != self.g0 and self.g0 < len(msg.known):
            self.belongs = True
        ahead = group == self.g0 and msg.known[self.g0] // 2 > self.candidate.epoch
        if ahead and not self.retired:
            self.prefix.fetch(sender)
        if configurations.knows_less(sender):
            self.send_one(sender, configurations.message())
        elif msg.rows:
            self.send_one(sender, Lists(configurations.known, ()))

    def tell_lists(self) -> None:
        """Tell the own group who the members of all groups are; a leader tells the others, too, and who was removed."""
        configurations = self.configurations
        if not configurations.changed:
            return
        whom = list(configurations.reach[self.g0])
        if self.candidate.status == LEADER:
            for g, reached in enumerate(configurations.reach):
                whom += reached if g != self.g0 else ()
            if self.candidate.epoch > 0:
                whom += configurations.lists[self.g0][self.candidate.epoch - 1].pids
        for pid in whom:
            if pid != self.pid and configurations.knows_less(pid):
                self.send_one(pid, configurations.message())

    def learn(self) -> None:
        """Ask one member after the other for what follows: nobody sends it to one that is in no list."""
        pids = [pid for pid in self.configurations.reach[self.g0] if pid != self.pid]
        if pids and self.prefix.may_fetch():
            self.teacher = (self.teacher + 1) % len(pids)
            self.prefix.fetch(pids[self.teacher])

    # Heartbeats and collection

    def on_timer(self, name: str) -> None:
        candidate = self.candidate
        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered
        if self.probation.active:
            candidate.schedule_tick()
            candidate.watch()
            self.end_probation()
            if self.probation.active:
                self.probation.ask()
            return
        if not candidate.listed:
            candidate.schedule_tick()
            if not self.retired:
                self.learn()
                self.tell_lists()
            return
        candidate.tick(self.prefix.max_delivered_gts, self.prefix.position)
        if self.params.durable:
            self.tell_marks()
        self.tell_lists()
        leads = candidate.status == LEADER
        if leads:
            self.retry_what_is_due()
        for mid in self.prefix.collection.tick(leads, candidate.rank, self.prefix.max_delivered_gts):
            del self.prefix.outcomes[mid]
        self.prefix.forget([candidate.positions[rank] for rank in self.kept_for()])
        if self.prefix.done.crowded():
            self.prefix.done.shelve({sender_of(mid): True for mid in self.entries})
        if self.monitor is not None:
            self.monitor.check_process(self.pid, candidate.cballot, candidate.ballot, self.clock, self.rows())

    def kept_for(self) -> list[int]:
        """Return the ranks of those for whom deliveries are kept one by one; with disks, others copy a snapshot."""
        candidate = self.candidate
        if self.params.durable:
            return list(candidate.seats)
        highest = max([members.seats[-1] for members in self.configurations.lists[self.g0]])
        return [*candidate.seats, *range(highest + 1, len(candidate.members))]

    def save_what_was_heard(self) -> None:
        """Make durable how many records the members had on whose votes, or entries, a ballot is founded.

        Nobody counts on that record, so it is not counted: else each would make others record that they heard of it.
        """
        if self.params.durable:
            self.out.records.append(encoded(self.probation.record()))
            self.out.urgent = True

    def tell_marks(self) -> None:
        """Record what was heard of the marks of others, and tell the group."""
        probation = self.probation
        if probation.changed:
            self.out.records.append(encoded(probation.record()))
        news = probation.news()
        if news is not None:
            self.send(self.candidate.others, news)

    def on_heartbeat(self, sender: int, msg: Heartbeat) -> None:
        """Notice who is ahead, and help who works in an older ballot."""
        if self.retired:
            return
        behind = self.candidate.is_behind(sender, msg)
        self.prefix.collection.heard(self.topology.rank_of[sender], msg.delivered)
        self.prefix.heard(sender, msg.position)
        if self.kept.waiting and self.candidate.status == FOLLOWER and not self.candidate.awaits_leader():
            for m in self.kept.take():  # it was suspected, and is there after all
                self.send_one(self.candidate.leader(), Multicast(m))
        if self.topology.rank_of[sender] not in self.candidate.seats and self.configurations.knows_less(sender):
            self.send_one(sender, self.configurations.message())
        if behind and not self.probation.active:
            self.send_state((sender,))

    # Coming back

    def on_marks(self, msg: Marks) -> None:
        reason = self.probation.on_marks(msg)
        if reason:
            self.forget_all(reason)

    def on_hello(self, sender: int, msg: Hello) -> None:
        """Say what is remembered of a replica that came back, before anything else of it is heard."""
        probation = self.probation
        candidate = self.candidate
        probation.is_back(sender)
        starts = probation.known_starts.get(sender, 0)
        mark = probation.known_marks.get(sender, 0)
        rows: list[tuple[AppMessage, int, int, int]] = []
        if self.topology.group_of[sender] == self.g0:
            rank = self.topology.rank_of[sender]
            candidate.detector.restarted(rank)
            if msg.void:
                candidate.forget_member(sender)
                self.states.forget(sender)
                self.prefix.collection.delivered_by[rank] = BOTTOM
            else:
                rows = [(e.m, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase >= ACCEPTED]
        if candidate.rejoining:
            starts = BOTTOM
        b = max(candidate.ballot, candidate.seen_ballot)
        if self.configurations.changed:
            self.send_one(sender, self.configurations.message())
        for part in in_parts(rows, self.params.part_bytes):
            state = (b, candidate.cballot, self.clock, self.prefix.position, self.prefix.digest, *part)
            self.send_one(sender, Welcome(*state, msg.starts, starts, mark))

    def on_welcome(self, sender: int, msg: Welcome) -> None:
        rows = self.states.rows_of(sender, msg)
        probation = self.probation
        if rows is None or not probation.active:
            return
        reason = probation.answered(sender, msg)
        if reason:
            self.forget_all(reason)
            return
        candidate = self.candidate
        if self.topology.group_of[sender] == self.g0:
            candidate.saw(msg.b)
            candidate.works_in[self.topology.rank_of[sender]] = msg.cballot
            candidate.positions[self.topology.rank_of[sender]] = msg.position
            if msg.cballot == candidate.cballot and not probation.void:
                self.take_back(rows, msg.clock)
        self.end_probation()

    def take_back(self, rows: StateRows, clock: int) -> None:
        """Accept again what another member accepted in the same ballot: this one may have, and forgotten it.

        A leader counts on itself and tells nobody, and who counted on a follower may have restarted before it wrote
        down what it had heard. Whoever accepts late does what it might have done before.
        """
        for m, phase, lts, gts in rows:
            entry = self.entry_of(m)
            if entry is not None and entry.phase < phase:
                entry.phase = phase
                entry.lts = lts
                entry.gts = gts
                entry.recorded = True
                self.clock = max(self.clock, clock)
                self.save(Accepted(m, lts, self.clock))

    def forget_all(self, reason: str) -> None:
        """Stop: this replica may come back as one that lost its disk, and not otherwise."""
        self.out.forgot = reason
        self.probation.active = True  # nothing more is said

    def end_probation(self) -> None:
        """Take part again if enough others have answered."""
        probation = self.probation
        if self.out.forgot or not probation.is_over(self.now) or self.lacks_deliveries():
            return
        candidate = self.candidate
        void = probation.void
        probation.end()
        if void:
            candidate.rejoin(candidate.seen_ballot)
            self.save(Rejoining(candidate.rejoin_above, probation.starts, probation.mark))
            self.prefix.fetch(max(candidate.others, key=lambda pid: candidate.positions[self.topology.rank_of[pid]]))
        elif self.monitor is not None and not probation.clean:
            self.monitor.rolled_back(self.pid)
        elif self.monitor is not None:
            cballot = candidate.cballot
            self.monitor.restarted(self.pid, cballot, self.rows(), self.prefix.done.mids())
            self.monitor.adopted(self.pid, cballot, self.clock, self.rows(), self.prefix.done.mids())

    def lacks_deliveries(self) -> bool:
        """Return whether some member that answered and is up has delivered more, and fetch that.

        What is delivered is in no vote, so a replica that forgot it would be of no use to a quorum. One that lost its
        disk gets it with the ballot that it enters.
        """
        probation = self.probation
        suspected = self.candidate.detector.suspected
        for pid, position in probation.positions.items():
            if position > self.prefix.position and not suspected[self.topology.rank_of[pid]] and not probation.void:
                self.prefix.fetch(pid)
                return True
        return False

    def on_trust(self) -> None:
        self.probation.end()
        self.candidate.rejoining = False

    # Durability

    def save(self, record: Message) -> None:
        """Make a record durable before anybody hears of this step."""
        self.save_later(record)
        self.out.urgent = True

    def save_later(self, record: Message) -> None:
        """Make a record durable before anybody hears that this process delivered: a quorum has the message on disk."""
        if self.params.durable:
            self.probation.mark += 1
            self.out.records.append(encoded(record))

    def snapshot(self) -> list[bytes]:
        candidate = self.candidate
        probation = self.probation
        records: list[Message] = [
            Summary(
                candidate.ballot,
                candidate.cballot,
                self.clock,
                self.prefix.max_delivered_gts,
                self.prefix.position,
                self.prefix.digest,
                probation.starts,
                probation.mark,
                candidate.rejoining,
                candidate.rejoin_above,
                dense(self.prefix.collection.floors, len(self.configurations.known), BOTTOM),
                dense(self.prefix.collection.shared_with, self.groups(), BOTTOM),
                probation.starts_of_all(),
                probation.marks_of_all(),
                candidate.epoch,
                self.configurations.rows(),
            )
        ]
        records += self.prefix.records()
        for entry in self.entries.values():
            entry.recorded = entry.phase >= ACCEPTED
            if entry.recorded:
                records.append(Held(entry.m, entry.phase, entry.lts, entry.gts))
        return [encoded(record) for record in records]

    def remembered(self) -> Memory:
        return self.prefix.done.memory()

    def recall(self, memory: Memory) -> None:
        self.prefix.done.recall(memory)

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        monitor = self.monitor
        self.monitor = None  # the past was checked when it happened
        self.replaying = True
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.monitor = monitor
        self.replaying = False
        probation = self.probation
        if records or starts > 1:
            probation.starts = max(starts, probation.starts + 1, probation.known_starts.get(self.pid, 0) + 1)
        self.candidate.restart()
        self.out.records.clear()
        self.out.urgent = False
        if probation.starts > starts:  # it lost its disk once: its driver counts from there, so it counts itself
            probation.known_starts[self.pid] = probation.starts
            self.out.records.append(encoded(probation.record()))
        self.on_start()
        if monitor is not None and self.candidate.rejoining:
            monitor.replaced(self.pid)
        if not self.retired:
            probation.begin(self.now, clean, self.candidate.rejoining)
            self.end_probation()

    def on_rejoin(self, starts: int) -> None:
        """Start without what this process knew.

        This is safe: it answers nothing before it enters a ballot that began after all other members dropped whatever
        it had said, so the state of that ballot comes from a quorum without it. And it has the prefix by then.
        """
        if self.monitor is not None:
            self.monitor.replaced(self.pid)
        self.probation.starts = starts
        self.candidate.rejoin(BOTTOM)
        self.candidate.restart()
        self.save(Rejoining(BOTTOM, starts, self.probation.mark))
        self.on_start()
        self.probation.begin(self.now, clean=False, void=True)
        self.end_probation()

    def on_install(self, records: list[bytes]) -> None:
        found = [record for data in records for record in RECORDS.read(data)]
        summary = found[0]
        assert isinstance(summary, Summary), "a snapshot begins with its summary"
        if summary.position <= self.prefix.position:
            return
        self.clock = max(self.clock, time_of(summary.max_delivered_gts))
        if self.configurations.merge(summary.lists):
            self.keep_lists()  # the snapshot comes behind the records of this step
        self.prefix.begin(summary)
        for record in found:
            self.prefix.replay(record)
        if self.monitor is not None:
            self.monitor.installed(self.pid, self.prefix.done.mids())
        for entry in list(self.entries.values()):
            entry.session = self.prefix.done.session(entry.m.mid)
            if entry.session.contains(seq_of(entry.m.mid)):
                self.drop(entry)
        self.next_position = max(self.next_position, self.prefix.position)
        self.prefix.forget_ahead()
        if summary.epoch > self.candidate.epoch:
            self.begin_epoch(summary.epoch)
        if self.candidate.status == LEADER:
            self.deliver_committed()
        self.grown()

    def replay(self, record: Message) -> None:
        candidate = self.candidate
        probation = self.probation
        probation.replay(record)
        if isinstance(record, Accepted):
            entry = self.entry_of(record.m)
            if entry is not None:
                entry.phase = max(entry.phase, ACCEPTED)
                entry.lts = record.lts
                entry.recorded = True
            self.clock = max(self.clock, record.clock)
        elif isinstance(record, Delivered):
            mark = probation.mark
            self.take(self.entries[record.mid].m, record.lts, record.gts)
            probation.mark = mark  # it was counted
        elif isinstance(record, Promised):
            candidate.ballot = record.b
        elif isinstance(record, Adopted):
            mark = probation.mark
            candidate.ballot = record.b
            self.adopt(record.b, record.clock, record.state)
            probation.mark = mark
        elif isinstance(record, Rejoining):
            candidate.rejoin(record.b)
        elif isinstance(record, Listed):
            if self.configurations.merge(record.lists):
                self.use_lists()
        elif isinstance(record, Summary):
            candidate.ballot = record.ballot
            candidate.cballot = record.cballot
            self.clock = record.clock
            self.configurations.merge(record.lists)
            candidate.epoch = record.epoch
            self.list = self.configurations.lists[self.g0][epoch_of(record.cballot)]
            self.use_lists()
            self.prefix.begin(record)
            if record.rejoining:
                candidate.rejoin(record.rejoin_above)
        elif isinstance(record, Held):
            entry = self.entry_of(record.m)
            assert entry is not None, "a snapshot holds a message that it says is delivered"
            entry.phase = record.phase
            entry.lts = record.lts
            entry.gts = record.gts
            entry.recorded = True
        else:
            self.prefix.replay(record)

    # What drivers and people look at

    def rows(self) -> list[tuple[Mid, int, int, int]]:
        """Return Phase, LocalTS and GlobalTS of every message that is not in START."""
        return [(e.m.mid, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase != START]

    def epoch(self) -> int:
        return self.candidate.epoch

    def seats(self, g: int) -> tuple[int, ...]:
        return self.configurations.newest(g).seats if self.configurations.has(g) else ()

    def seats_in(self, epoch: int) -> tuple[int, ...]:
        return self.configurations.lists[self.g0][epoch].seats

    def has_established(self, g: int, epoch: int) -> bool:
        return self.configurations.established[g] >= epoch

    def is_settled(self, g: int) -> bool:
        known = self.configurations.known
        return g < len(known) and known[g] % 2 == 1

    def known(self) -> tuple[int, ...]:
        return self.configurations.known

    def lists(self) -> MemberLists:
        return self.configurations.rows()

    def on_lists_learnt(self, lists: MemberLists) -> None:
        if self.configurations.merge(lists):
            self.lists_changed()

    def groups(self) -> int:
        return max(len(self.configurations.known), *[g + 1 for g in self.prefix.collection.shared_with], 0)

    def table(self) -> Message:
        return self.configurations.message()

    def is_removed(self) -> bool:
        return self.retired

    def idle(self) -> bool:
        if not self.candidate.listed:
            return not self.prefix.ahead
        if self.candidate.status == RECOVERING or self.probation.active or self.prefix.ahead:
            return False
        for entry in self.entries.values():
            if entry.phase != START or self.candidate.status == LEADER:
                return False
        return True

    def leads(self) -> bool:
        return self.candidate.status == LEADER

    def rejoining(self) -> bool:
        return self.candidate.rejoining or self.probation.active

    def has_delivered(self, mid: Mid) -> bool:
        return self.prefix.done.contains(mid)

    def position(self) -> int:
        return self.prefix.position

    def backlog(self) -> int:
        return self.under_way

    def unready(self) -> str:
        if self.retired:
            took_over = [self.topology.name(pid) for pid in self.configurations.newest(self.g0).pids]
            return f"removed: its group is {', '.join(took_over)} now"
        if not self.candidate.listed:
            return "no member: learns what its group delivered"
        return self.probation.unready() or self.candidate.unready()

    def condition(self) -> dict[str, object]:
        delivered = time_of(self.prefix.max_delivered_gts)
        return {**self.candidate.condition(), "clock": self.clock, "delivered": delivered}

    def footprint(self) -> int:
        return len(self.entries) + self.prefix.done.size() + len(self.prefix.outcomes) + self.prefix.recent.size()


ROW: Final[Protocol] = Protocol(
    name="white_box",
    title="White-Box atomic multicast",
    replica=WhiteBox,
    client=WhiteBoxClient,
    tolerates="crash of a minority in each group, any client",
    latency="3δ / 4δ, worst 5δ / 6δ",
    messages=MESSAGES,
    records=RECORDS,
    monitor=Monitor,
    change=change_payload,
    found=founding_payload,
    least_delivered=94,
    convert=converted,
    paper_names=PAPER_NAMES,
)
