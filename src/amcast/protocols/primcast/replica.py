"""PrimCast: atomic multicast in which every replica of every destination finds the order by itself.

Paper: Pacheco, Dotti, Pedone, "PrimCast: A Latency-Efficient Atomic Multicast", Middleware 2023, and the authors'
prototype (github.com/pacheco/primcast), which the normal case follows. The change of a primary is ours: what was at
hand of the paper does not say how it is done.

Latency in message delays, at every replica: 3 with no conflicting message under way (2 at the followers of one group of
three, who are a quorum with its primary), 5 at worst without failures. With hybrid clocks (`primcast_hybrid`) 4 at
worst, and up to one more by how much the clock of another group is ahead. A message that a crash of a primary
interrupted is delivered 4 after `recover()` at the latest; one whose proposals left before may need no recovery at all.

How it works. The primary of each destination group gives m a local timestamp and sends it to every member of every
destination group (Proposal). Who gets that of its own primary appends it to its log, raises its clock to it, and tells
the same processes (Ack). What comes from another group raises the clock at once, and who so raised its clock tells its
own group (Bump). Every replica delivers by itself, from three facts:
1. decided: a quorum of each destination group acknowledged one local timestamp, all in one epoch. The largest of these
   is the final timestamp;
2. the primary of its epoch has reported a clock that is not below the final timestamp, and all that it proposed before
   is here;
3. a quorum of its group has reported such clocks in that epoch.
It delivers the message with the least final timestamp, if no message of its log is undecided with a lower local one.

A new primary asks for promises (NewLeader). A promise has the member's clock, position and digest of what it delivered,
and what of its log is not delivered. With a quorum of them the primary takes the log of the newest epoch among them and
the highest clock, and goes on at once: who gets that state (EpochState) enters the epoch, acknowledges all of it again,
and reports its clock.

Why it is safe. Let p, of group g, deliver m with final timestamp F by facts of epoch E.
(a) Each of a quorum Q of g reported a clock >= F in E before it promised more than E. The promises on which a later
    epoch is founded meet Q in some q, whose clock was >= F and whose log was of E or later. So later primaries propose
    above F, and each begins with a log of E or of an epoch that is itself founded in this way.
(b) A log is what its owner delivered, in the order of final timestamps, and behind that the rest by local timestamps.
    Nobody enters an epoch without the longest prefix among the promises on which it is founded: the primary fetches it
    before it goes on from the promises, a follower before it acknowledges the state. So what a voter left out of its
    promise, because it had delivered it, is in the prefix of all who are in the epoch, and the rest of the newest log
    and that prefix are together what the whole of that log would be. Logs of one epoch are prefixes of each other, up
    to what is delivered, so the rest of all promises of the newest epoch together is the rest of the longest of them.
(c) p has all that the primary of E proposed up to F, so each entry of the log of E with a local timestamp up to F is in
    its log or delivered. By (a) and (b) no later log has another one. Those in its log are delivered before m, or their
    final timestamp is known and above F, or they block m.
(d) What is decided of m in g stays: a quorum has it in the log of one epoch, so all later logs have it, or have it in
    the prefix (as in (a) and (b)). So a final timestamp is a fact, whoever tells it: a replica that has delivered m
    answers for all groups (Outcome).
Hence whatever p has to deliver later has a final timestamp above F, the members of a group deliver prefixes of one
sequence, and a prefix may be copied from anybody, in any status and epoch (Fetch, Tail, snapshots).

Departures, each for a reason that a scenario of the tests shows:
- Timestamps are pairs of time and group, as in the whole family. A Proposal carries the content, so a client sends to
  primaries only.
- Proposals of an epoch are numbered. A follower that missed one, or was restarted, counts no clock of its primary until
  it has the state again (Gap, EpochState).
- What is not delivered after a while is asked for: a primary sends it to all destinations again, others ask for the
  acknowledgements (Probe). Clocks are reported again with each heartbeat.
- A message is forgotten when it is delivered, but for its final timestamp if it has other destinations. That stays
  until a quorum of each of them has delivered it (Floor).
- Every replica answers the client when it delivers, and the client takes the first answer of each group: one that is
  near saves it the way to the primary.
- With `Params.durable` promises, acceptances and entered epochs are on disk before anybody hears of them. So are clocks
  that are reported, by a ceiling ahead of them from which a restarted replica goes on. A Proposal waits for no disk: it
  counts as the primary's acknowledgement only where there is none, and else that follows. A replica that comes back is
  on probation as in White-Box (`white_box/probation.py`).
- Members do not change.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.capabilities import Durable, Electing, Observed
from amcast.core.order import BOTTOM, DeliveryQueue, leader_of, time_of, timestamp
from amcast.core.process import Effects, Memory, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of
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
)
from amcast.protocols.parts.sparse import dense
from amcast.protocols.primcast.invariants import Monitor
from amcast.protocols.primcast.messages import (
    MESSAGES,
    Ack,
    Bump,
    EpochState,
    Gap,
    Probe,
    Promise,
    Proposal,
    Report,
)
from amcast.protocols.primcast.records import RECORDS, Ceiling, encoded
from amcast.protocols.primcast.undelivered import Undelivered
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.protocols.white_box.messages import (
    Fetch,
    Handover,
    Hello,
    Marks,
    Outcome,
    StatePart,
    StateRows,
    Tail,
    Welcome,
)
from amcast.protocols.white_box.prefix import Prefix
from amcast.protocols.white_box.probation import Probation
from amcast.protocols.white_box.records import Accepted, Adopted, Delivered, Held, Promised, Rejoining, Summary
from amcast.protocols.white_box.state_parts import IncomingStates, in_parts

RETRY_AFTER: Final = 10  # in δ: a failure-free message is through long before
LONGEST_RETRY: Final = 80  # bounds the time to finish once the network behaves
RETRIED_PARTS: Final = 2  # as many bytes as so many parts of a state, per heartbeat
GAP_AGAIN: Final = 10  # in δ, after which a primary is asked again for what was missed
LOGICAL_AHEAD: Final = 1 << 16  # by how much the ceiling on disk is above the clock: a sync per so many ticks, …
HYBRID_AHEAD: Final = 10_000_000  # … or nanoseconds, where ticks are of time


class PrimCast(Process, Durable, Electing, Observed):
    """A member of group g0."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.group = topology.groups[self.g0]
        self.clock = 0
        self.ceiling = 0  # on disk: no clock above it was reported
        self.mark = 0  # on disk, before anybody hears of this step: so many records
        self.entries: dict[Mid, Undelivered] = {}  # those with a local timestamp are the log
        self.under_way = 0  # bytes of their payloads
        self.candidate: LeaderCandidate[StatePart] = LeaderCandidate(self, self.group)  # status, epoch, promised epoch
        self.probation = Probation(self)
        self.queue = DeliveryQueue()  # of the log
        self.n = 0  # how many proposals of this epoch are here, -1 after a restart
        self.primary_clock = 0  # up to here, all proposals of this epoch are here
        self.quorum_clock = 0  # a quorum has reported as much in this epoch
        self.reports = [0] * len(self.group)  # the highest clock that each member reported in this epoch, …
        self.later = [BOTTOM] * len(self.group)  # … or what is heard of a later one: which, …
        self.later_clocks = [0] * len(self.group)  # … and the clock
        self.early: dict[int, Proposal] = {}  # by number: proposals that cannot be appended yet, …
        self.early_epoch = BOTTOM  # … and their epoch
        self.early_bytes = 0
        self.gap_after = 0  # when the primary may be asked again for what was missed
        self.kept = Kept(params.tail_bytes)  # requests that came during an election
        self.monitor: Monitor | None = None
        self.prefix = Prefix(self)  # what is delivered
        self.states = IncomingStates()
        self.pending: EpochState | None = None  # a state that it cannot enter before it has the prefix, …
        self.pending_from = self.pid  # … and whose it is

    def on_observe(self, monitor: object) -> None:
        assert isinstance(monitor, Monitor)
        self.monitor = monitor

    def on_start(self) -> None:
        self.candidate.start()

    def entry_of(self, mid: Mid) -> Undelivered | None:
        """Return what is known of a message, which is something from now on; None if it was delivered."""
        entry = self.entries.get(mid)
        if entry is None:
            if self.prefix.done.contains(mid):
                return None
            entry = self.entries[mid] = Undelivered(mid)
            self.retry_later(entry, RETRY_AFTER * self.params.delta)
        return entry

    def entry_with(self, m: AppMessage) -> Undelivered | None:
        """Return what is known of m, its content included."""
        entry = self.entry_of(m.mid)
        if entry is not None and entry.m is None:
            entry.m = m
            self.under_way += len(m.payload)
        return entry

    def retry_later(self, entry: Undelivered, delay: int) -> None:
        entry.retry_at = self.now + delay
        entry.retry_delay = min(2 * delay, LONGEST_RETRY * self.params.delta)

    def on_message(self, sender: int, msg: Message) -> None:
        active = not self.probation.active
        if isinstance(msg, Ack) and active:
            self.on_ack(sender, msg)
        elif isinstance(msg, Proposal) and active:
            self.on_proposal(sender, msg)
        elif isinstance(msg, Bump) and active:
            self.on_report(sender, msg.e, msg.c, msg.n, msg.mark)
        elif isinstance(msg, Multicast) and active:
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Report) and active:
            self.on_report(sender, msg.e, msg.c, msg.n, msg.mark)
        elif isinstance(msg, Heartbeat):
            self.on_heartbeat(sender, msg)
        elif isinstance(msg, Marks):
            self.on_marks(msg)
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
        elif active:
            self.on_election(sender, msg)
        if self.monitor is not None and not self.probation.active:
            self.monitor.check_process(self.pid, self.candidate.cballot, self.candidate.ballot, self.clock)

    def on_election(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Probe):
            self.on_probe(sender, msg.mid)
        elif isinstance(msg, Outcome):
            self.on_outcome(msg)
        elif isinstance(msg, Gap):
            self.on_gap(sender, msg)
        elif isinstance(msg, NewLeader):
            self.on_new_leader(sender, msg.b)
        elif isinstance(msg, Promise):
            self.on_promise(sender, msg)
        elif isinstance(msg, EpochState):
            self.on_epoch_state(sender, msg)
        elif isinstance(msg, Nack):
            self.on_nack(sender, msg.b)
        elif isinstance(msg, Handover):
            if msg.b == self.candidate.cballot and self.candidate.status == FOLLOWER:
                self.candidate.stand()

    # Normal operation

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:
        """Take START(m): of its client, or of a primary to which it takes too long."""
        status = self.candidate.status
        if self.prefix.done.contains(m.mid):
            self.tell_outcome(sender, m.mid)
        elif sender < self.topology.replicas and self.is_in_log(m.mid):
            self.acknowledge_again(sender, m.mid)
        elif status == LEADER:
            self.propose(m)
        elif sender < self.topology.replicas:
            self.entry_with(m)
        elif self.candidate.awaits_leader() and self.kept.has_room(m):
            self.kept.add(m)
        else:
            self.send_one(sender, Hint(m.mid, self.g0, self.candidate.leader(), self.candidate.cballot))

    def is_in_log(self, mid: Mid) -> bool:
        entry = self.entries.get(mid)
        return entry is not None and entry.lts != BOTTOM

    def next_time(self) -> int:
        """Return the time of the next proposal."""
        return self.clock + 1

    def propose(self, m: AppMessage) -> None:
        """At the primary: give m a local timestamp, if it has none."""
        entry = self.entry_with(m)
        if entry is None or entry.lts != BOTTOM:
            return
        self.clock = self.primary_clock = self.next_time()
        lts = timestamp(self.clock, self.g0)
        self.n += 1
        self.append(entry, lts)
        mark = BOTTOM
        if not self.params.durable:
            mark = 0
            entry.voted = self.candidate.cballot
            self.watch_vote(m.mid, lts)
        if self.monitor is not None:
            self.monitor.proposed(self.pid, self.candidate.cballot, self.n, m.mid, lts)
        proposal = Proposal(m, self.g0, self.candidate.cballot, lts, self.n, mark)
        self.send(self.topology.members_of(m.dest), proposal)

    def append(self, entry: Undelivered, lts: int) -> None:
        """Put a message into the log, which grows by rising timestamps."""
        entry.lts = lts
        entry.slot = self.queue.propose(entry.mid, lts)
        if entry.gts != BOTTOM:
            self.queue.commit(entry.slot, entry.gts)

    def on_proposal(self, sender: int, msg: Proposal) -> None:
        candidate = self.candidate
        if msg.g != self.g0:
            self.raise_clock(time_of(msg.lts))
            if self.entry_with(msg.m) is not None and candidate.status == LEADER:
                self.propose(msg.m)
        elif sender == self.pid:
            self.on_own_proposal(msg)
        elif msg.e == candidate.cballot and candidate.status == FOLLOWER and 0 <= self.n == msg.n - 1:
            self.accept(msg)
            self.deliver_what_is_due()
        elif msg.e > candidate.cballot or (msg.e == candidate.cballot and msg.n > self.n + 1):
            self.hold_back(sender, msg)
        if msg.mark != BOTTOM:
            self.count(sender, msg.m.mid, msg.g, msg.e, msg.lts)

    def on_own_proposal(self, msg: Proposal) -> None:
        """At a primary with a disk: acknowledge what it proposed, now that the others have it."""
        entry = self.entries.get(msg.m.mid)
        if msg.mark != BOTTOM or self.candidate.status != LEADER or msg.e != self.candidate.cballot or entry is None:
            return
        self.acknowledge(msg.m, msg.lts, entry)

    def accept(self, msg: Proposal) -> None:
        """Append the next proposal of the primary to the log, and acknowledge it."""
        self.n = msg.n
        self.primary_clock = time_of(msg.lts)
        if self.clock < self.primary_clock:
            self.clock = self.primary_clock
        entry = self.entry_with(msg.m)
        if entry is not None:  # else it was delivered elsewhere, and this process has heard of that
            self.append(entry, msg.lts)
        if self.monitor is not None:
            self.monitor.proposed(self.pid, msg.e, msg.n, msg.m.mid, msg.lts)
        self.acknowledge(msg.m, msg.lts, entry)

    def acknowledge(self, m: AppMessage, lts: int, entry: Undelivered | None) -> None:
        if entry is None:
            self.cover_clock()
        else:
            entry.voted = self.candidate.cballot
            if self.params.durable:
                entry.recorded = True
                self.ceiling = max(self.ceiling, self.clock)
                self.save(Accepted(m, lts, self.clock))
        self.say_ack(m, lts)

    def say_ack(self, m: AppMessage, lts: int) -> None:
        self.watch_vote(m.mid, lts)
        ack = Ack(m.mid, self.g0, self.candidate.cballot, lts, self.mark)
        self.send(self.topology.members_of(m.dest), ack)

    def watch_vote(self, mid: Mid, lts: int) -> None:
        if self.monitor is not None:
            self.monitor.voted(self.pid, self.candidate.cballot, mid, lts)
            self.monitor.reported(self.pid, self.candidate.cballot, time_of(lts))

    def on_ack(self, sender: int, msg: Ack) -> None:
        self.probation.heard(sender, msg.mark)
        self.count(sender, msg.mid, msg.g, msg.e, msg.lts)
        if msg.g != self.g0:
            self.raise_clock(time_of(msg.lts))

    def count(self, sender: int, mid: Mid, g: int, e: int, lts: int) -> None:
        """Count an acknowledgement."""
        entry = self.entry_of(mid)
        if entry is not None:
            votes = entry.votes_of(g)
            if e > votes.e:
                votes.e = e
                votes.lts = lts
                votes.members = 0
            if e == votes.e:
                votes.members |= 1 << self.topology.rank_of[sender]
                if votes.decided == BOTTOM and votes.members.bit_count() >= self.topology.quorum(g):
                    votes.decided = lts
                    self.settle(entry, entry.final_timestamp())
        if g == self.g0:
            self.reported(sender, e, time_of(lts))

    def settle(self, entry: Undelivered, gts: int) -> None:
        """Take note of a final timestamp, if it is one."""
        if gts == BOTTOM or entry.gts != BOTTOM:
            return
        entry.gts = gts
        if entry.slot is not None:
            self.queue.commit(entry.slot, gts)
            self.deliver_what_is_due()

    # Clocks

    def raise_clock(self, c: int) -> None:
        """Raise the clock and tell the group, who cannot deliver up to c before."""
        if c <= self.clock:
            return
        self.clock = c
        if self.candidate.status != RECOVERING:
            if self.candidate.status == LEADER:
                self.primary_clock = c
            self.send(self.group, self.bump())

    def bump(self) -> Bump:
        """Return a report of the clock."""
        self.cover_clock()
        return Bump(self.candidate.cballot, self.clock, self.n, self.mark)

    def cover_clock(self) -> None:
        """Have on disk that the clock got so far, and a bit further, before anybody hears of it."""
        if self.params.durable and self.clock > self.ceiling:
            self.ceiling = self.clock + self.ahead()
            self.save(Ceiling(self.ceiling))
        if self.monitor is not None:
            self.monitor.reported(self.pid, self.candidate.cballot, self.clock)

    def ahead(self) -> int:
        return LOGICAL_AHEAD

    def on_report(self, sender: int, e: int, c: int, n: int, mark: int) -> None:
        """Take note of the clock of a member of this group."""
        candidate = self.candidate
        self.probation.heard(sender, mark)
        if sender == self.group[leader_of(e)] and sender != self.pid:
            if e == candidate.cballot and n == self.n and candidate.status == FOLLOWER:
                self.primary_clock = max(self.primary_clock, c)
            elif e > candidate.cballot or (e == candidate.cballot and n > self.n):
                self.ask_for_the_rest(sender, e)
        self.reported(sender, e, c)
        self.raise_clock(c)

    def reported(self, sender: int, e: int, c: int) -> None:
        """Take note of a clock that a member of this group reported in epoch e."""
        rank = self.topology.rank_of[sender]
        if e == self.candidate.cballot:
            if c > self.reports[rank]:
                self.reports[rank] = c
                self.quorum_clock = sorted(self.reports)[-self.topology.quorum(self.g0)]
            self.deliver_what_is_due()
        elif e > self.candidate.cballot and e >= self.later[rank]:
            if e > self.later[rank]:
                self.later_clocks[rank] = 0
            self.later[rank] = e
            self.later_clocks[rank] = max(self.later_clocks[rank], c)

    def deliver_what_is_due(self) -> None:
        most = timestamp(min(self.primary_clock, self.quorum_clock), 0xFFFF)
        slot = self.queue.pop_up_to(most)
        while slot is not None:
            entry = self.entries.get(slot.mid)
            if entry is not None and entry.m is not None:  # else this process has learnt of its delivery from others
                self.take(entry.m, entry.lts, entry.gts)
                self.reply(slot.mid)
            slot = self.queue.pop_up_to(most)

    def take(self, m: AppMessage, lts: int, gts: int) -> None:
        """Deliver what follows next in the order of this group."""
        entry = self.entry_with(m)
        assert entry is not None, "a message was delivered before, at another position"
        self.prefix.append(m, lts, gts)
        if self.params.durable:
            if not entry.recorded:
                self.save_later(Accepted(m, BOTTOM, 0))  # the content alone: it may be in no log of this process
            self.save_later(Delivered(m.mid, lts, gts))
        if self.monitor is not None:
            self.monitor.delivered(self.pid, self.prefix.position, m.mid, gts)
        self.deliver(m, gts)
        self.prefix.done.add(m)
        self.drop(entry)

    def drop(self, entry: Undelivered) -> None:
        """Forget a message that is delivered."""
        del self.entries[entry.mid]
        if entry.m is not None:
            self.under_way -= len(entry.m.payload)
        slot = entry.slot
        if slot is not None and slot.gts == BOTTOM:  # learnt from others: it blocks nothing
            self.queue.commit(slot, slot.lts)

    def reply_to(self, mid: Mid) -> Reply:
        return Reply(mid, self.g0, self.candidate.leader(), self.candidate.cballot)

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), self.reply_to(mid))

    # What was missed

    def hold_back(self, sender: int, msg: Proposal) -> None:
        """Keep a proposal behind a gap, or of an epoch to come, within bounds; ask for what is missing."""
        if msg.e > self.early_epoch:
            self.forget_early()
            self.early_epoch = msg.e
        size = len(msg.m.payload)
        fits = self.early_bytes + size <= self.params.tail_bytes
        if msg.e == self.early_epoch and msg.n not in self.early and fits:
            self.early[msg.n] = msg
            self.early_bytes += size
        self.ask_for_the_rest(sender, msg.e)

    def forget_early(self) -> None:
        self.early = {}
        self.early_bytes = 0

    def accept_early(self) -> None:
        """Append what came too early and follows now."""
        if self.early_epoch == self.candidate.cballot:
            msg = self.early.get(self.n + 1)
            while msg is not None:
                self.accept(msg)
                msg = self.early.get(self.n + 1)
        if self.early_epoch <= self.candidate.cballot and not any(n > self.n for n in self.early):
            self.forget_early()

    def ask_for_the_rest(self, primary: int, e: int) -> None:
        """Ask the primary of epoch e for its state, unless that is here or was asked for just now."""
        if self.now < self.gap_after or e < self.candidate.ballot:
            return
        if self.pending is None or self.pending.b < e:
            self.gap_after = self.now + GAP_AGAIN * self.params.delta
            self.send_one(primary, Gap(e, self.n if e == self.candidate.cballot else -1))

    def on_gap(self, sender: int, msg: Gap) -> None:
        if self.candidate.status == LEADER and msg.e == self.candidate.cballot and msg.n < self.n:
            self.send_state((sender,))

    def on_probe(self, sender: int, mid: Mid) -> None:
        if self.prefix.done.contains(mid):
            self.tell_outcome(sender, mid)
        else:
            self.acknowledge_again(sender, mid)

    def acknowledge_again(self, to: int, mid: Mid) -> None:
        """Repeat what this process said of a message. It was true then, so it may be said in any status."""
        entry = self.entries.get(mid)
        e = self.candidate.cballot
        if entry is not None and entry.lts != BOTTOM and entry.voted == e:  # a primary votes when its disk has it
            self.send_one(to, Ack(mid, self.g0, e, entry.lts, self.mark))

    def tell_outcome(self, asker: int, mid: Mid) -> None:
        """Answer who asks for a message that is delivered here: its client, or a replica that still works on it."""
        if asker >= self.topology.replicas:
            self.send_one(asker, self.reply_to(mid))
        else:
            outcome = self.prefix.outcomes.get(mid)
            if outcome is not None:  # else a quorum of its group has delivered it, and it will learn that there
                self.send_one(asker, Outcome(mid, outcome.gts))

    def on_outcome(self, msg: Outcome) -> None:
        """Hear that a message was delivered with this final timestamp: all groups have decided."""
        entry = self.entries.get(msg.mid)
        if entry is not None:
            self.raise_clock(time_of(msg.gts))
            self.settle(entry, msg.gts)

    def retry_what_is_due(self) -> None:
        left = RETRIED_PARTS * self.params.part_bytes  # all at once would be too much for a link that was given up
        for entry in list(self.entries.values()):
            m = entry.m
            if m is None or entry.lts == BOTTOM or entry.retry_at > self.now or left <= 0:
                continue
            self.retry_later(entry, entry.retry_delay)
            if self.candidate.status == LEADER:
                left -= len(m.payload)
                self.send(self.others_of(m.dest), Multicast(m))
            else:
                self.send(self.others_of(m.dest), Probe(entry.mid))

    def others_of(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([p for p in self.topology.members_of(dest) if p != self.pid])

    # The prefix

    def on_tail(self, sender: int, msg: Tail) -> None:
        prefix = self.prefix
        if not prefix.reaches(sender, msg):
            return
        position = msg.position
        for m, lts, gts in msg.rows:
            if position == prefix.position:
                self.take(m, lts, gts)
            position += m.count
        if msg.end > prefix.position:
            prefix.fetch(sender)
        self.grown()

    def grown(self) -> None:
        """Go on with what waits for a longer prefix: deliveries, the entry into an epoch, or taking part at all."""
        if self.probation.active:
            self.clock = max(self.clock, time_of(self.prefix.max_delivered_gts))
            self.end_probation()
            return
        self.raise_clock(time_of(self.prefix.max_delivered_gts))
        if self.pending is not None:
            self.enter_pending()
        elif self.candidate.status == RECOVERING and self.candidate.may_form():
            self.form()
        self.deliver_what_is_due()

    # A new primary

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

    def on_new_leader(self, sender: int, b: int) -> None:
        candidate = self.candidate
        if candidate.promises(sender, b):
            self.pending = None
            if self.monitor is not None:
                self.monitor.promised(self.pid, b)
            if self.params.durable:
                self.save(Promised(b))
                self.send_one(sender, self.probation.own())
            for part in self.log_in_parts():
                vote = Promise(b, candidate.cballot, self.clock, self.prefix.position, self.prefix.digest, *part)
                self.send_one(sender, vote)

    def log_rows(self) -> list[tuple[AppMessage, int, int, int]]:
        """Return what is in the log and not delivered: content, 0, LocalTS, GlobalTS."""
        return [(e.m, 0, e.lts, e.gts) for e in self.entries.values() if e.m is not None and e.lts != BOTTOM]

    def log_in_parts(self) -> list[tuple[int, int, StateRows]]:
        return in_parts(self.log_rows(), self.params.part_bytes)

    def on_promise(self, sender: int, msg: Promise) -> None:
        rows = self.states.rows_of(sender, msg)
        if rows is None:
            return
        vote = Promise(msg.b, msg.cballot, msg.clock, msg.position, msg.digest, 0, 1, rows)
        if self.candidate.has_votes(sender, msg.b, vote):
            self.form()

    def form(self) -> None:
        """Begin the epoch for which a quorum has promised, as soon as the longest prefix of the promises is here."""
        votes = self.candidate.votes
        furthest = max(votes, key=lambda pid: votes[pid].position)
        if votes[furthest].position > self.prefix.position:
            self.prefix.fetch(furthest)
            return
        digests: dict[int, int] = {self.prefix.position: self.prefix.digest}
        for pid, vote in votes.items():
            if digests.setdefault(vote.position, vote.digest) != vote.digest:
                self.differ(pid, vote.position)
        newest = max([vote.cballot for vote in votes.values()])
        merged: dict[Mid, tuple[AppMessage, int, int, int]] = {}
        for vote in votes.values():
            for row in vote.rows:
                if vote.cballot == newest and not self.prefix.done.contains(row[0].mid):
                    merged[row[0].mid] = row
        clock = max([vote.clock for vote in votes.values()])
        clock = max(clock, self.clock, time_of(self.prefix.max_delivered_gts))
        self.save_what_was_heard()
        rows = tuple(merged.values())
        self.adopt(self.candidate.ballot, clock, rows, 0)
        self.candidate.begin_to_lead()
        self.prefix.collection.announce_again()
        self.send_state(self.candidate.others)
        self.send(self.group, self.bump())
        self.acknowledge_log(rows)
        for entry in list(self.entries.values()):
            if entry.m is not None and entry.lts == BOTTOM:
                self.propose(entry.m)
        for m in self.kept.take():
            self.on_multicast_request(sender_of(m.mid), m)

    def differ(self, pid: int, position: int) -> None:
        raise InvariantViolation(
            f"{self.topology.name(self.pid)} and {self.topology.name(pid)} have delivered other messages "
            f"up to position {position}: compare them with `amcast cluster verify`"
        )

    def adopt(self, e: int, clock: int, rows: StateRows, n: int) -> None:
        """Enter epoch e with this log after n proposals, or go on in it. Votes and decisions at hand stay."""
        candidate = self.candidate
        if e != candidate.cballot:
            self.primary_clock = clock
            heard = zip(self.later, self.later_clocks, strict=True)
            self.reports = [c if later == e else 0 for later, c in heard]
            self.quorum_clock = sorted(self.reports)[-self.topology.quorum(self.g0)]
        self.primary_clock = max(self.primary_clock, clock)
        self.clock = max(self.clock, clock)
        self.n = n
        candidate.enter(e)
        for entry in self.entries.values():
            entry.lts = BOTTOM
        for m, _, lts, gts in rows:
            known = self.entry_with(m)
            if known is not None:
                known.lts = lts
                known.gts = max(known.gts, gts)
                known.recorded = True
        self.order_log()
        if self.params.durable:
            self.ceiling = max(self.ceiling, self.clock)
            self.save(Adopted(e, self.clock, rows))
        if self.monitor is not None:
            self.monitor.entered(self.pid, e, self.clock, self.rows(), self.prefix.done.mids())

    def order_log(self) -> None:
        """Make the queue of the log anew."""
        self.queue = DeliveryQueue()
        for entry in self.entries.values():
            entry.slot = None
        for entry in sorted([entry for entry in self.entries.values() if entry.lts != BOTTOM], key=lambda e: e.lts):
            self.append(entry, entry.lts)

    def acknowledge_log(self, rows: StateRows) -> None:
        """Acknowledge a log in the epoch that was entered with it; not what was acknowledged in this epoch before."""
        for m, _, lts, _ in sorted(rows, key=lambda row: row[2]):
            entry = self.entries.get(m.mid)
            if entry is None or entry.voted != self.candidate.cballot:
                if entry is not None:
                    entry.voted = self.candidate.cballot
                self.say_ack(m, lts)

    def send_state(self, to: tuple[int, ...]) -> None:
        """Send the state of the epoch of which this process is the primary, as it is now."""
        b = self.candidate.cballot
        if self.params.durable:
            self.save_now()
            self.send(to, self.probation.own())
        for part in self.log_in_parts():
            state = EpochState(b, b, self.clock, self.prefix.position, self.prefix.digest, *part, self.n)
            self.send(to, state)

    def on_epoch_state(self, sender: int, msg: EpochState) -> None:
        rows = self.states.rows_of(sender, msg)
        if rows is None:
            return
        candidate = self.candidate
        missed = msg.b == candidate.cballot and candidate.status == FOLLOWER and msg.n > self.n
        if missed or candidate.joins(msg.b):
            self.pending = EpochState(msg.b, msg.cballot, msg.clock, msg.position, msg.digest, 0, 1, rows, msg.n)
            self.pending_from = sender
            self.enter_pending()

    def enter_pending(self) -> None:
        """Follow in an epoch as soon as the prefix with which it begins, or goes on, is here."""
        pending = self.pending
        assert pending is not None
        if pending.position > self.prefix.position:
            self.prefix.fetch(self.pending_from)
            return
        if pending.position == self.prefix.position and pending.digest != self.prefix.digest:
            self.differ(self.pending_from, self.prefix.position)
        self.pending = None
        self.gap_after = 0
        before = [entry for entry in self.entries.values() if entry.lts != BOTTOM]
        self.candidate.status = FOLLOWER
        self.adopt(pending.b, max(pending.clock, time_of(self.prefix.max_delivered_gts)), pending.rows, pending.n)
        if self.params.durable:
            self.send_one(self.pending_from, self.probation.own())
        self.acknowledge_log(pending.rows)
        self.send(self.group, self.bump())
        left_out = [entry.m for entry in before if entry.lts == BOTTOM and entry.m is not None]
        for m in left_out + self.kept.take():
            if not self.prefix.done.contains(m.mid):
                self.send_one(self.pending_from, Multicast(m))
        self.accept_early()
        self.deliver_what_is_due()

    def on_nack(self, sender: int, b: int) -> None:
        candidate = self.candidate
        if candidate.status == LEADER and b < candidate.cballot and candidate.lagged(self.topology.rank_of[sender]):
            self.send_state((sender,))  # it waits for this epoch: what was sent to it may be lost
        candidate.on_nack(b)

    # Heartbeats and collection

    def on_timer(self, name: str) -> None:
        candidate = self.candidate
        self.save_now()  # a heartbeat tells what is delivered
        if self.probation.active:
            candidate.schedule_tick()
            candidate.watch()
            self.end_probation()
            if self.probation.active:
                self.probation.ask()
            return
        candidate.tick(self.prefix.max_delivered_gts, self.prefix.position)
        if candidate.status != RECOVERING:
            self.cover_clock()
            self.send(candidate.others, Report(candidate.cballot, self.clock, self.n, self.mark))
        if self.params.durable:
            self.tell_marks()
        self.retry_what_is_due()
        for mid in self.prefix.collection.tick(self.leads(), candidate.rank, self.prefix.max_delivered_gts):
            del self.prefix.outcomes[mid]
        self.prefix.forget(candidate.positions)
        if self.prefix.done.crowded():
            self.prefix.done.shelve({})

    def save_what_was_heard(self) -> None:
        """Make durable how many records the members had on whose promises an epoch is founded.

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
        """Notice who is ahead, and help who works in an older epoch."""
        behind = self.candidate.is_behind(sender, msg)
        self.prefix.collection.heard(self.topology.rank_of[sender], msg.delivered)
        self.prefix.heard(sender, msg.position)
        if self.kept.waiting and self.candidate.status == FOLLOWER and not self.candidate.awaits_leader():
            for m in self.kept.take():  # it was suspected, and is there after all
                self.send_one(self.candidate.leader(), Multicast(m))
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
                self.forget_words(sender)
            else:
                rows = self.log_rows()
        if candidate.rejoining:
            starts = BOTTOM
        b = max(candidate.ballot, candidate.seen_ballot)
        clock = max(self.clock, max(self.reports))
        for part in in_parts(rows, self.params.part_bytes):
            state = (b, candidate.cballot, clock, self.prefix.position, self.prefix.digest, *part)
            self.send_one(sender, Welcome(*state, msg.starts, starts, mark))

    def forget_words(self, sender: int) -> None:
        """Count no more on what a member said that lost its disk."""
        rank = self.topology.rank_of[sender]
        self.candidate.forget_member(sender)
        self.states.forget(sender)
        self.prefix.collection.delivered_by[rank] = BOTTOM
        self.reports[rank] = 0
        self.quorum_clock = sorted(self.reports)[-self.topology.quorum(self.g0)]
        self.later[rank] = BOTTOM
        for entry in self.entries.values():
            entry.votes_of(self.g0).members &= ~(1 << rank)

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
            candidate.seen_ballot = max(candidate.seen_ballot, msg.b)
            candidate.works_in[self.topology.rank_of[sender]] = msg.cballot
            candidate.positions[self.topology.rank_of[sender]] = msg.position
            self.clock = max(self.clock, msg.clock)  # this process may have reported as much, and forgotten it
            if msg.cballot == candidate.cballot and not probation.void:
                self.take_back(rows)
        self.end_probation()

    def take_back(self, rows: StateRows) -> None:
        """Accept again what another member has in its log of the same epoch: this one may have, and forgotten it.

        It counts on itself, and who else counted on it may have restarted before it wrote down what it had heard.
        Whoever accepts late does what it might have done before. It does not take part before it has the prefix of the
        other one, so there is no gap before these messages.
        """
        for m, _, lts, _ in rows:
            entry = self.entry_with(m)
            if entry is not None and entry.lts == BOTTOM:
                entry.lts = lts
                entry.recorded = True
                self.save(Accepted(m, lts, self.clock))
        self.order_log()

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
            return
        if self.monitor is not None:
            if not probation.clean:
                self.monitor.rolled_back(self.pid)
            b = candidate.cballot
            self.monitor.restarted(self.pid, b, candidate.ballot, self.clock, self.rows(), self.prefix.done.mids())
        if candidate.status == FOLLOWER:
            self.ask_for_the_rest(candidate.leader(), candidate.cballot)

    def lacks_deliveries(self) -> bool:
        """Return whether some member that answered and is up has delivered more, and fetch that.

        What is delivered is in no promise, so a replica that forgot it would be of no use to a quorum. One that lost
        its disk gets it with the epoch that it enters.
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
        self.save_now()

    def save_now(self) -> None:
        """Make all records so far durable before anybody hears of this step."""
        self.out.urgent = self.params.durable
        self.mark = self.probation.mark

    def save_later(self, record: Message) -> None:
        """Make a record durable before anybody hears that this process delivered: a quorum has the message on disk."""
        if self.params.durable:
            self.probation.mark += 1
            self.out.records.append(encoded(record))

    def snapshot(self) -> list[bytes]:
        candidate = self.candidate
        probation = self.probation
        self.ceiling = max(self.ceiling, self.clock)
        records: list[Message] = [
            Summary(
                candidate.ballot,
                candidate.cballot,
                self.ceiling,
                self.prefix.max_delivered_gts,
                self.prefix.position,
                self.prefix.digest,
                probation.starts,
                probation.mark,
                candidate.rejoining,
                candidate.rejoin_above,
                dense(self.prefix.collection.floors, len(self.topology.groups), BOTTOM),
                dense(self.prefix.collection.shared_with, len(self.topology.groups), BOTTOM),
                probation.starts_of_all(),
                probation.marks_of_all(),
                0,  # the only epoch: members do not change
                (),
            )
        ]
        records += self.prefix.records()
        for entry in self.entries.values():
            entry.recorded = entry.lts != BOTTOM and entry.m is not None
            if entry.recorded and entry.m is not None:
                records.append(Held(entry.m, 0, entry.lts, entry.gts))
        return [encoded(record) for record in records]

    def remembered(self) -> Memory:
        return self.prefix.done.memory()

    def recall(self, memory: Memory) -> None:
        self.prefix.done.recall(memory)

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        monitor = self.monitor
        self.monitor = None  # the past was checked when it happened
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.monitor = monitor
        if monitor is not None:
            monitor.back(self.pid, self.prefix.max_delivered_gts)
        self.n = -1
        self.primary_clock = 0  # proposals may have been lost
        self.clock = self.ceiling = max(self.clock, self.ceiling)
        self.order_log()
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
        probation.begin(self.now, clean, self.candidate.rejoining)
        self.end_probation()

    def on_rejoin(self, starts: int) -> None:
        """Start without what this process knew.

        This is safe: it says nothing before it enters an epoch that began after all other members dropped whatever it
        had said, so the state of that epoch comes from a quorum without it. Any other quorum, of acknowledgements or
        of reports, meets that one in a member that forgot nothing. And it has the prefix by then.
        """
        if self.monitor is not None:
            self.monitor.replaced(self.pid)
            self.monitor.back(self.pid, BOTTOM)
        self.n = -1
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
        self.prefix.begin(summary)
        for record in found:
            self.prefix.replay(record)
        if self.monitor is not None:
            self.monitor.installed(self.pid, self.prefix.max_delivered_gts)
        for entry in list(self.entries.values()):
            if self.prefix.done.contains(entry.mid):
                self.drop(entry)
        end = self.prefix.position
        self.send_one(self.pid, Tail(end, end, ()))  # what may be delivered now is not part of the snapshot

    def replay(self, record: Message) -> None:
        candidate = self.candidate
        probation = self.probation
        probation.replay(record)
        if isinstance(record, Accepted):
            entry = self.entry_with(record.m)
            if entry is not None:
                entry.lts = max(entry.lts, record.lts)
                entry.recorded = True
            self.clock = max(self.clock, record.clock)
        elif isinstance(record, Delivered):
            mark = probation.mark
            m = self.entries[record.mid].m
            assert m is not None, "a delivery without its content on disk"
            self.take(m, record.lts, record.gts)
            probation.mark = mark  # it was counted
        elif isinstance(record, Ceiling):
            self.ceiling = max(self.ceiling, record.clock)
            probation.mark += 1
        elif isinstance(record, Promised):
            candidate.ballot = record.b
        elif isinstance(record, Adopted):
            mark = probation.mark
            candidate.ballot = record.b
            self.adopt(record.b, record.clock, record.state, 0)
            probation.mark = mark
        elif isinstance(record, Rejoining):
            candidate.rejoin(record.b)
        elif isinstance(record, Summary):
            candidate.ballot = record.ballot
            candidate.cballot = record.cballot
            self.clock = self.ceiling = record.clock
            self.prefix.begin(record)
            if record.rejoining:
                candidate.rejoin(record.rejoin_above)
        elif isinstance(record, Held):
            entry = self.entry_with(record.m)
            assert entry is not None, "a snapshot holds a message that it says is delivered"
            entry.lts = record.lts
            entry.gts = record.gts
            entry.recorded = True
        else:
            self.prefix.replay(record)

    # What drivers and people look at

    def rows(self) -> list[tuple[Mid, int]]:
        """Return the log: id and local timestamp."""
        return [(entry.mid, entry.lts) for entry in self.entries.values() if entry.lts != BOTTOM]

    def idle(self) -> bool:
        if self.candidate.status == RECOVERING or self.probation.active or self.pending is not None:
            return False
        for entry in self.entries.values():
            if entry.lts != BOTTOM or (entry.m is not None and self.candidate.status == LEADER):
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
        return self.probation.unready() or self.candidate.unready()

    def condition(self) -> dict[str, object]:
        delivered = time_of(self.prefix.max_delivered_gts)
        return {**self.candidate.condition(), "clock": self.clock, "delivered": delivered}

    def footprint(self) -> int:
        return len(self.entries) + self.prefix.done.size() + len(self.prefix.outcomes) + self.prefix.recent.size()


@final
class HybridPrimCast(PrimCast):
    """PrimCast whose primaries propose the time of day, where that is ahead of their logical clocks."""

    def next_time(self) -> int:
        return max(self.clock + 1, self.params.stamp(self.now))

    def ahead(self) -> int:
        return max(1, HYBRID_AHEAD // self.params.clock_tick)

    def condition(self) -> dict[str, object]:
        ahead = (self.clock - self.params.stamp(self.now)) * self.params.clock_tick
        return {**super().condition(), "clock_ahead_ns": max(0, ahead)}


ROW: Final[Protocol] = Protocol(
    name="primcast",
    title="PrimCast",
    replica=PrimCast,
    client=WhiteBoxClient,
    tolerates="crash of a minority in each group, any client",
    latency="3δ, worst 5δ",
    messages=MESSAGES,
    records=RECORDS,
    monitor=Monitor,
    least_delivered=94,
)
HYBRID_ROW: Final[Protocol] = replace(
    ROW,
    name="primcast_hybrid",
    title="PrimCast with hybrid clocks",
    replica=HybridPrimCast,
    latency="3δ, worst 4δ, and up to δ for clocks that differ",
)
