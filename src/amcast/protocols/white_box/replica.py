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

from amcast.core.order import BOTTOM, DeliveryQueue, Slot, ballot, leader_of, round_of, time_of, timestamp
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, sender_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.parts.collection import ANNOUNCE_TICKS, groups_to_tell
from amcast.protocols.parts.leader_election import Heartbeat, LeaderElection
from amcast.protocols.white_box.messages import (
    Accept,
    AcceptAck,
    Deliver,
    Floor,
    Nack,
    NewLeader,
    NewLeaderAck,
    NewState,
    NewStateAck,
)
from amcast.protocols.white_box.records import Accepted, Delivered, Promised
from amcast.protocols.white_box.state import (
    ACCEPTED,
    COMMITTED,
    FOLLOWER,
    LEADER,
    PROPOSED,
    RECOVERING,
    RETRY_AFTER,
    START,
    Entry,
    Replica,
    Route,
    Vote,
    by_gts,
    by_lts,
    place,
)

BEHIND_TICKS: Final = 4  # heartbeats without progress after which a leader helps a member


@final
class WhiteBox(Replica):
    """A member of group g0."""

    def on_start(self) -> None:
        self.election = LeaderElection(self.rank, len(self.group), self.params, self.now)
        self.schedule_tick()
        if self.status == LEADER:
            self.note_leader()

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
            self.floors[msg.g] = max(self.floors[msg.g], msg.gts)
        elif isinstance(msg, NewLeader):
            self.on_new_leader(sender, msg.b)
        elif isinstance(msg, NewLeaderAck):
            self.on_new_leader_ack(sender, msg)
        elif isinstance(msg, NewState):
            self.on_new_state(sender, msg)
        elif isinstance(msg, NewStateAck):
            self.on_new_state_ack(sender, msg.b)
        elif isinstance(msg, Nack):
            self.on_nack(sender, msg.b)
        if self.monitor is not None:
            self.monitor.check_process(self.pid, self.cballot, self.ballot, self.clock, self.rows())

    # Normal operation

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:  # l.3
        if self.status != LEADER:  # l.4
            if sender >= self.topology.replicas:
                self.send_one(sender, Hint(m.mid, self.g0, self.group[leader_of(self.cballot)]))
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
            self.monitor.accept_sent(self.g0, self.cballot, m.mid, entry.lts)
        self.send(self.topology.members_of(m.dest), Accept(entry.m, self.g0, self.cballot, entry.lts))  # l.9

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

    def try_accept(self, entry: Entry) -> None:
        m = entry.m
        i = place(m.dest, self.g0)
        if self.status == RECOVERING or entry.bal[i] != self.cballot:  # l.11
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
            self.monitor.accepted(self.pid, m.mid, self.cballot, entry.lts, gts, bal, self.rows())
        if entry.phase != COMMITTED and self.status == LEADER:
            entry.vote(bal).gts = gts
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
        route = Route(tuple(bal), leaders)
        self.routes[dest] = route
        return route

    def on_accept_ack(self, sender: int, msg: AcceptAck) -> None:  # l.17
        entry = self.entries.get(msg.mid)
        if entry is None or entry.phase == COMMITTED:
            return
        vote = entry.vote(msg.bal)
        i = place(entry.m.dest, msg.g)
        bit = 1 << self.topology.rank_of[sender]
        if vote.members[i] & bit:
            return
        vote.members[i] |= bit
        vote.counts[i] += 1
        if vote.counts[i] == self.quorum[msg.g]:
            vote.quorums += 1
        if sender == self.pid:
            vote.mine = True
        if vote.mine and vote.quorums == len(msg.bal):
            self.try_commit(entry, vote)

    def try_commit(self, entry: Entry, vote: Vote) -> None:
        if self.status != LEADER or vote.bal[place(entry.m.dest, self.g0)] != self.cballot:  # l.18
            return
        entry.gts = vote.gts  # l.19
        entry.phase = COMMITTED  # l.20
        entry.votes = None
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
                msg = Deliver(entry.m, self.cballot, entry.lts, entry.gts, self.prev_gts)
                self.send(self.group, msg)  # l.23, l.68
                self.prev_gts = entry.gts
            mid = self.queue.pop()

    def on_deliver(self, sender: int, msg: Deliver) -> None:  # l.24
        if self.status == RECOVERING or self.cballot != msg.b or msg.gts <= self.max_delivered_gts:  # l.25
            return
        if msg.prev_gts > self.max_delivered_gts:
            if self.nacked < msg.b:
                self.nacked = msg.b
                self.send_one(sender, Nack(msg.b))
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
        if self.status == LEADER:
            self.reply(m.mid)

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid))

    # Message recovery

    def retry(self, entry: Entry) -> None:  # l.32
        self.send(self.topology.members_of(entry.m.dest), Multicast(entry.m))  # l.34

    def retry_what_is_due(self) -> None:
        waiting = [self.entries[mid] for mid in self.queue.uncommitted()]  # l.33
        for entry in waiting + list(self.orphans.values()):
            if entry.retry_at <= self.now:
                self.retry(entry)
                self.retry_later(entry, entry.retry_delay)

    # Leader recovery

    def start_recovery(self) -> None:  # l.35
        self.election.tried(self.now)
        self.must_recover = False
        b = ballot(round_of(max(self.ballot, self.seen_ballot)) + 1, self.rank)
        self.send(self.group, NewLeader(b))  # l.36

    def recover_if_nominated(self) -> None:
        leads = self.status == LEADER and not self.must_recover and self.seen_ballot <= self.cballot
        if not leads and not self.joining and self.election.may_try(self.now):
            self.start_recovery()

    def on_new_leader(self, sender: int, b: int) -> None:  # l.37
        if self.joining:
            return
        if b <= self.ballot:  # l.38
            self.send_one(sender, Nack(self.ballot))
            return
        self.status = RECOVERING  # l.39
        self.ballot = b  # l.40
        if self.params.durable:
            self.save(Promised(b))
        self.seen_ballot = max(self.seen_ballot, b)
        self.new_leader_acks = {}
        self.new_state_acks = {}
        state = tuple([(e.m, e.phase, e.lts, e.gts) for e in self.entries.values() if e.phase >= ACCEPTED])
        self.send_one(sender, NewLeaderAck(b, self.cballot, self.clock, state))  # l.41

    def on_new_leader_ack(self, sender: int, msg: NewLeaderAck) -> None:  # l.42
        if self.status != RECOVERING or self.ballot != msg.b or self.cballot == msg.b:  # l.43, once per ballot
            return
        acks = self.new_leader_acks
        acks[sender] = msg
        if len(acks) < self.quorum[self.g0] or self.pid not in acks:
            return
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
        self.send(self.others, NewState(msg.b, clock, state))  # l.56
        self.lead_if_followed()

    def on_new_state(self, sender: int, msg: NewState) -> None:  # l.57
        if self.joining and msg.b > self.join_above:
            self.ballot = msg.b
        elif self.joining or self.status != RECOVERING or self.ballot != msg.b:  # l.58
            return
        self.status = FOLLOWER  # l.59
        self.adopt(msg.b, msg.clock, msg.state)  # l.60, l.61
        self.send_one(sender, NewStateAck(msg.b))  # l.62

    def on_new_state_ack(self, sender: int, b: int) -> None:  # l.63
        recovers = self.pid in self.new_leader_acks  # or it restarted: then ballot b is over for it
        if self.status == RECOVERING and self.ballot == b and self.cballot == b and recovers:  # l.64
            self.new_state_acks[sender] = True
            self.lead_if_followed()

    def lead_if_followed(self) -> None:
        if len(self.new_state_acks) + 1 < self.quorum[self.g0]:
            return
        self.status = LEADER  # l.65
        self.election.succeeded()
        self.note_leader()
        self.prev_gts = BOTTOM
        self.floor_sent = [BOTTOM] * len(self.floor_sent)
        self.behind = [0] * len(self.group)
        self.queue = DeliveryQueue()
        self.orphans = {e.m.mid: e for e in self.entries.values() if e.phase == START}
        interrupted = [e for e in self.entries.values() if e.phase == ACCEPTED]
        interrupted.sort(key=by_lts)
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
        self.seen_ballot = max(self.seen_ballot, b)
        if b >= self.cballot:
            self.must_recover = True
        elif self.status == LEADER:
            self.count_behind(self.topology.rank_of[sender])  # it waits for this ballot: its NEW_STATE may be lost
        self.recover_if_nominated()

    def count_behind(self, rank: int) -> None:
        self.behind[rank] += 1
        if self.behind[rank] == BEHIND_TICKS:
            self.behind[rank] = 0
            self.must_recover = True

    def on_suspect(self) -> None:
        if self.joining:
            return
        for rank in range(self.rank):
            self.election.suspect(rank)
        self.start_recovery()

    # Heartbeats and collection

    def schedule_tick(self) -> None:
        self.set_timer("tick", self.params.heartbeat, self.params.heartbeat + self.params.heartbeat // 8)

    def on_timer(self, name: str) -> None:
        self.schedule_tick()
        self.ticks += 1
        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered
        if self.joining:
            self.send(self.others, Nack(self.join_above))  # whoever leads, begin a higher ballot; not this process
        else:
            self.send(self.others, Heartbeat(self.ballot, self.cballot, self.max_delivered_gts))
        for rank in self.election.newly_suspected(self.now):
            self.note("suspect", f'{{"process": "{self.topology.name(self.group[rank])}"}}')
        self.recover_if_nominated()
        if self.status == LEADER:
            self.retry_what_is_due()
            self.publish_floor()
        self.forget()
        if self.monitor is not None:
            self.monitor.check_process(self.pid, self.cballot, self.ballot, self.clock, self.rows())

    def on_heartbeat(self, sender: int, msg: Heartbeat) -> None:
        rank = self.topology.rank_of[sender]
        if self.election.heard(rank, self.now):
            self.note("trust", f'{{"process": "{self.topology.name(sender)}"}}')
        self.seen_ballot = max(self.seen_ballot, msg.ballot)
        if self.status == LEADER:
            self.watch(rank, msg)
        self.delivered_by[rank] = max(self.delivered_by[rank], msg.delivered)

    def watch(self, rank: int, msg: Heartbeat) -> None:
        """A member that restarted may have missed what no channel brings again: notice it, and help."""
        stuck = msg.cballot < self.cballot or (
            msg.delivered < self.max_delivered_gts and msg.delivered == self.delivered_by[rank]
        )
        self.behind[rank] = self.behind[rank] + 1 if stuck else 0
        if self.behind[rank] < BEHIND_TICKS:
            return
        self.behind[rank] = 0
        if msg.cballot < self.cballot:
            self.must_recover = True
        else:
            self.bring_up(self.group[rank], msg.delivered)

    def bring_up(self, member: int, delivered: int) -> None:
        """Send a member again what it has not delivered; nothing of that is forgotten before it has."""
        missed = [e for e in self.entries.values() if e.delivered and e.gts > delivered]
        missed.sort(key=by_gts)
        prev_gts = delivered
        for entry in missed:
            self.send_one(member, Deliver(entry.m, self.cballot, entry.lts, entry.gts, prev_gts))
            prev_gts = entry.gts

    def publish_floor(self) -> None:
        if self.ticks % ANNOUNCE_TICKS == 0:
            self.floor_sent = [BOTTOM] * len(self.floor_sent)
        self.delivered_by[self.rank] = self.max_delivered_gts
        floor = min(self.delivered_by)
        for g in groups_to_tell(floor, self.shared_with, self.floor_sent):
            self.send(self.topology.groups[g], Floor(self.g0, floor))

    def note_leader(self) -> None:
        self.note("leader", f'{{"ballot": [{round_of(self.cballot)}, {self.rank}]}}')
