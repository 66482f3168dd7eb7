"""Fault-tolerant Skeen: Skeen's protocol, every step of a group first agreed on by its members.

Paper: Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", extended version, section IV (the straightforward
solution that White-Box is compared with). The paper has no figure of it; the log is `replicated_log`.

Latency in message delays, leader / follower: 6 / 7 with no conflicting message under way, 12 / 13 at worst without
failures, 3 / 4 to one group. With the eager clock 10 / 11 at worst.

How it works. The leader of each destination group gives m a local timestamp and puts it into the log of its group
(LTS). When that is decided it tells the leaders of the other groups (HARD). The leader that has them all puts their
maximum, the final timestamp, into its log (GTS); when that is decided it raises its clock past it. It delivers in the
order of final timestamps what no message without one can precede, and says so to its group (DELIVER). For one
destination group the local timestamp is final.

Decisions where the paper is silent:
- m gets its local timestamp on receipt and the clock rises when GTS is decided: so the paper's worst case comes about.
  To raise it when GTS is proposed is as safe, and faster (`EagerFtSkeen`).
- The leader decides on deliveries, not the order of the log: LTS(m') may be decided after GTS(m), and m' go first.
- A new leader starts from the log: its clock is the highest time there, a message with LTS and no GTS is pending, and
  pending messages are sent again to all members of their destinations.
- A decided local timestamp never changes, so every process keeps each HARD, whatever its role.
- Deliveries of a group are numbered, as in White-Box. Which message has which number is decided with the log, so it is
  delivered in any status and ballot, and who lacks a part of this prefix gets it from any member (Fetch, Tail). A place
  of the log is forgotten as soon as its message is delivered here, a message when it is delivered, but for its final
  timestamp if it has other destinations: that stays until a quorum of each of them has delivered it (Floor), for the
  leader that still works on it (Outcome). What was delivered decides whether a copy is new, not the log.
- Replicas come back from their disks: `durable_log`. What others said of their timestamps is asked for again.
"""

from dataclasses import replace
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM, DeliveryQueue, Slot, leader_of, time_of, timestamp
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import NOTHING, Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Message, Reader, pack_long, pack_mid, pack_short
from amcast.protocols.black_box.durable_log import MESSAGES as RECOVERY_MESSAGES
from amcast.protocols.black_box.durable_log import RECORDS, DurableLogOwner
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.black_box.replicated_log import MESSAGES as LOG_MESSAGES
from amcast.protocols.black_box.replicated_log import Entry, GroupLog
from amcast.protocols.parts.collection import Floor
from amcast.protocols.parts.leader_candidate import LEADER, RECOVERING, Heartbeat
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.protocols.white_box.messages import Deliver, Fetch, Outcome, Tail

LTS: Final = 0
GTS: Final = 1

RETRY_AFTER: Final = 20  # in δ: a failure-free message is through long before
LONGEST_RETRY: Final = 80


class LocalTimestamp(Message):
    """The local timestamp that group g gave to m; `b` is the ballot of g."""

    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "b": int, "lts": int}

    def __init__(self, mid: Mid, g: int, b: int, lts: int) -> None:
        self.mid = mid
        self.g = g
        self.b = b
        self.lts = lts

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_long(w, self.b)
        pack_long(w, self.lts)


@final
class Hard(LocalTimestamp):
    """A local timestamp that is decided."""

    def unpack(self, r: Reader) -> Message:
        return Hard(r.mid(), r.group(), r.long(), r.long())


MESSAGES: Final[tuple[type[Message], ...]] = (
    Multicast,
    Hard,
    Deliver,
    Reply,
    Hint,
    Floor,
    *LOG_MESSAGES,
    Outcome,
    *RECOVERY_MESSAGES,
)


@final
@mypyc_attr(acyclic=True)
class Known:
    """What is known of a message that is not delivered; `m` is unknown while only timestamps of other groups came."""

    def __init__(self, mid: Mid) -> None:
        self.mid = mid
        self.m = NOTHING
        self.hard: dict[int, int] = {}  # group -> its decided local timestamp, or the final one that it told
        self.retry_at = 0
        self.retry_delay = 0
        self.begin_ballot()

    def begin_ballot(self) -> None:
        """Forget what is the leader's, and counts for its ballot only."""
        self.lts = BOTTOM
        self.stable = False  # LTS is decided
        self.soft: dict[int, int] = {}  # group -> a local timestamp that is not decided (FastCast)
        self.proposed = BOTTOM  # the last GTS in the log
        self.logged = BOTTOM  # the last one that is decided
        self.committed = False
        self.slot: Slot | None = None


class FtSkeen(DurableLogOwner):
    """A member of group g0."""

    eager_clock = False

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out, others_ask=True)
        self.group = topology.groups[self.g0]
        self.log = self.part = GroupLog(self, self.group)
        self.clock = 0
        self.known: dict[Mid, Known] = {}
        self.queue = DeliveryQueue()
        self.under_way = 0  # bytes of messages that are known and not delivered
        self.next_position = 0  # at the leader: of what it sends next in DELIVER
        self.ballots = [0] * len(topology.groups)  # the highest one known of each group: who leads it

    def on_start(self) -> None:
        self.log.start()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Hard):
            self.on_hard(msg)
        elif isinstance(msg, Deliver):
            self.on_deliver(sender, msg)
        elif isinstance(msg, Floor):
            self.prefix.collection.on_floor(msg)
        elif isinstance(msg, Fetch):
            self.prefix.on_fetch(sender, msg)
        elif isinstance(msg, Tail):
            self.on_tail(sender, msg)
        elif self.on_recovery(sender, msg) or self.probation.active:
            pass  # nothing else while it may have forgotten something
        elif isinstance(msg, Multicast):
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Outcome):
            self.on_outcome(msg)
        else:
            if isinstance(msg, Heartbeat):
                self.prefix.heard(sender, msg.position)
            self.log.receive(sender, msg)

    def known_of(self, mid: Mid) -> Known | None:
        """Return what is known of m, which is something from now on; None if m was delivered."""
        known = self.known.get(mid)
        if known is None and not self.prefix.done.contains(mid):
            known = self.known[mid] = Known(mid)
        return known

    def hear_of(self, known: Known, m: AppMessage) -> None:
        self.under_way += len(m.payload) - len(known.m.payload)
        known.m = m

    # Normal operation

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:
        leads = self.log.status == LEADER
        if self.prefix.done.contains(m.mid):
            self.tell_outcome(sender, m.mid)
            return
        if not leads:
            if sender >= self.topology.replicas:
                self.send_one(sender, Hint(m.mid, self.g0, self.log.leader(), self.log.cballot))
            return
        known = self.known_of(m.mid)
        assert known is not None
        if known.lts == BOTTOM:
            self.clock += 1
            self.hear_of(known, m)
            known.lts = timestamp(self.clock, self.g0)
            known.slot = self.queue.propose(m.mid, known.lts)
            self.retry_later(known, RETRY_AFTER * self.params.delta)
            self.log.append(LTS, known.lts, m)
            if len(m.dest) > 1:
                self.timestamp_given(known)
        elif known.stable and len(m.dest) > 1:  # some group may have missed it
            self.send(self.topology.members_of(m.dest), Hard(m.mid, self.g0, self.log.cballot, known.lts))

    def tell_outcome(self, asker: int, mid: Mid) -> None:
        """Answer who asks for a message that is delivered here: its client, or a leader that still works on it."""
        if asker >= self.topology.replicas:
            if self.log.status == LEADER:
                self.reply(mid)
            else:
                self.send_one(asker, Hint(mid, self.g0, self.log.leader(), self.log.cballot))
        elif self.topology.group_of[asker] != self.g0:
            outcome = self.prefix.outcomes.get(mid)
            if outcome is not None:  # else a quorum of its group has delivered it, and it will learn that there
                self.send_one(asker, Outcome(mid, outcome.gts))

    def on_outcome(self, msg: Outcome) -> None:
        """Hear the final timestamp from a group that has delivered: no group gave more, and one gave as much."""
        known = self.known.get(msg.mid)
        if known is not None and self.log.status == LEADER:
            for g in known.m.dest:
                if g != self.g0:
                    known.hard.setdefault(g, msg.gts)
            self.settle(known)

    def timestamp_given(self, known: Known) -> None:
        """This leader gave a timestamp to a message for several groups. FastCast tells the others at once."""

    def other_leaders(self, m: AppMessage) -> tuple[int, ...]:
        groups = self.topology.groups
        return tuple([groups[g][leader_of(self.ballots[g])] for g in m.dest if g != self.g0])

    def decided(self, i: int, entry: Entry) -> None:
        kind, ts, m = entry
        if self.monitor is not None:
            self.monitor.decided(self.g0, i, entry)
        known = self.known.get(m.mid)
        if known is None:
            return  # this leader has learnt of its delivery in an earlier ballot
        if kind == GTS:
            known.logged = ts
            self.settle(known)
            return
        known.stable = True
        known.hard[self.g0] = ts
        if self.monitor is not None:
            self.monitor.hard(self.g0, m.mid, ts)
        if len(m.dest) == 1:
            self.commit(known, ts)
            return
        self.send(self.other_leaders(m), Hard(m.mid, self.g0, self.log.cballot, ts))
        self.settle(known)

    def on_hard(self, msg: Hard) -> None:
        self.ballots[msg.g] = max(self.ballots[msg.g], msg.b)
        known = self.known_of(msg.mid)
        if known is None:
            return
        known.hard[msg.g] = msg.lts
        if self.log.status == LEADER:
            self.settle(known)

    def settle(self, known: Known) -> None:
        """Propose the final timestamp when every group has decided on its own, and commit when it is decided."""
        if known.committed or not known.stable or len(known.hard) < len(known.m.dest):
            return
        gts = max(known.hard.values())
        if known.logged == gts:
            self.commit(known, gts)
        elif known.proposed != gts:
            self.propose(known, gts)

    def propose(self, known: Known, gts: int) -> None:
        known.proposed = gts
        if self.eager_clock:
            self.clock = max(self.clock, time_of(gts))
        m = known.m
        self.log.append(GTS, gts, AppMessage(m.mid, m.dest, b"", m.done))

    def commit(self, known: Known, gts: int) -> None:
        known.committed = True
        self.clock = max(self.clock, time_of(gts))
        assert known.slot is not None
        self.queue.commit(known.slot, gts)
        self.deliver_committed()

    def deliver_committed(self) -> None:
        slot = self.queue.pop_slot()
        while slot is not None:
            known = self.known.get(slot.mid)
            if known is not None:  # else this leader has learnt of its delivery in an earlier ballot
                if self.monitor is not None:
                    self.monitor.deliver_sent(slot.mid, slot.gts)
                self.send(self.group, Deliver(known.m, known.lts, slot.gts, self.next_position))
                self.next_position += known.m.count
            slot = self.queue.pop_slot()

    def on_deliver(self, sender: int, msg: Deliver) -> None:
        if msg.position != self.prefix.position:
            if msg.position > self.prefix.position:
                self.prefix.hold_back(msg)
                self.prefix.fetch(sender)
            return
        self.take(msg.m, msg.lts, msg.gts)
        if self.prefix.ahead:
            self.take_ahead()
        if sender != self.pid:
            self.go_on()

    def take(self, m: AppMessage, lts: int, gts: int) -> None:
        """Deliver what follows next in the order of this group."""
        assert not self.prefix.done.contains(m.mid), "a message was delivered before, at another position"
        self.drop(m.mid)
        self.prefix.append(
            m, lts, gts
        )  # its final timestamp is in the log of every later ballot: so the clock is past it
        self.prefix.done.add(m)
        self.save_delivery(m, lts, gts)
        if self.monitor is not None:
            self.monitor.delivered(self.g0, self.prefix.position, m.mid)
        self.deliver(m, gts)
        if self.next_position < self.prefix.position:
            self.next_position = self.prefix.position
        if self.log.status == LEADER:
            self.reply(m.mid)

    def take_again(self, m: AppMessage, lts: int, gts: int) -> None:
        self.prefix.append(m, lts, gts)
        self.prefix.done.add(m)
        self.deliver(m, gts)

    def drop(self, mid: Mid) -> None:
        """Forget a message that is delivered."""
        known = self.known.pop(mid, None)
        if known is not None:
            self.under_way -= len(known.m.payload)
            if known.slot is not None and known.slot.gts == BOTTOM:
                self.queue.commit(known.slot, known.lts)  # at a leader that learnt this from others: it blocks nothing

    def prefix_replaced(self, delivered: int) -> None:
        for mid in list(self.known):
            if self.prefix.done.contains(mid):
                self.drop(mid)
        self.next_position = max(self.next_position, self.prefix.position)
        self.prefix.forget_ahead()

    def take_ahead(self) -> None:
        """Deliver what came too early and follows now."""
        msg = self.prefix.next_ahead()
        while msg is not None:
            self.take(msg.m, msg.lts, msg.gts)
            msg = self.prefix.next_ahead()
        self.prefix.forget_ahead()

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
        self.go_on()

    def go_on(self) -> None:
        """Go on with what waited for deliveries of others: the queue of a leader, or the entry into a ballot."""
        if self.probation.active:
            self.end_probation()
            return
        if self.log.status == LEADER:
            self.deliver_committed()
        self.log.grown()

    def reached(self) -> tuple[int, int]:
        return self.prefix.position, self.prefix.digest

    def fetch_from(self, member: int) -> None:
        self.prefix.fetch(member)

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid, self.log.cballot))

    # A new leader

    def lead(self) -> None:
        self.queue = DeliveryQueue()
        self.next_position = self.prefix.position
        self.prefix.collection.announce_again()
        for known in self.known.values():
            known.begin_ballot()
        self.clock = max(0, time_of(self.prefix.max_delivered_gts))
        for i, entry in enumerate(self.log.entries, self.log.base):
            self.start_from(i, entry)
        pending: list[Known] = []
        for known in self.known.values():
            if known.stable:
                gts = self.certain_gts(known)
                if gts != BOTTOM:
                    known.committed = True
                    self.queue.commit(Slot(known.mid, known.lts), gts)
                else:
                    pending.append(known)
        pending.sort(key=lambda known: known.lts)
        for known in pending:
            known.slot = self.queue.propose(known.mid, known.lts)
        self.deliver_committed()
        for known in pending:
            self.retry(known)
            self.retry_later(known, RETRY_AFTER * self.params.delta)
            self.settle(known)

    def start_from(self, i: int, entry: Entry) -> None:
        kind, ts, m = entry
        if self.monitor is not None:
            self.monitor.decided(self.g0, i, entry)
        self.clock = max(self.clock, time_of(ts))
        known = self.known_of(m.mid)
        if known is None:
            return
        if kind == LTS:
            self.hear_of(known, m)
            known.lts = ts
            known.stable = True
            known.hard[self.g0] = ts
        else:
            known.proposed = ts
            known.logged = ts

    def certain_gts(self, known: Known) -> int:
        """Return the final timestamp of a message in the log, BOTTOM if the log does not tell."""
        return known.lts if len(known.m.dest) == 1 else known.logged

    def retry(self, known: Known) -> None:
        """Ask all destinations again. This process is among them, and sends its HARD again."""
        self.send(self.topology.members_of(known.m.dest), Multicast(known.m))

    def retry_later(self, known: Known, delay: int) -> None:
        known.retry_at = self.now + delay
        known.retry_delay = min(2 * delay, LONGEST_RETRY * self.params.delta)

    def on_suspect(self) -> None:
        if not self.probation.active:
            self.log.suspect_leader()

    def on_gone(self, pid: int) -> None:
        if not self.probation.active:
            self.log.lost(pid)

    # Heartbeats and collection

    def on_timer(self, name: str) -> None:
        prefix = self.prefix
        if self.waits():
            return
        self.log.tick(prefix.max_delivered_gts, prefix.position)
        self.tell_marks()
        leads = self.log.status == LEADER
        if leads:
            for mid in self.queue.uncommitted():
                known = self.known[mid]
                if known.retry_at <= self.now:
                    self.retry(known)
                    self.retry_later(known, known.retry_delay)
        for mid in prefix.collection.tick(leads, self.log.rank, prefix.max_delivered_gts):
            del prefix.outcomes[mid]
        prefix.forget(self.log.positions)
        if prefix.done.crowded():
            prefix.done.shelve({sender_of(mid): True for mid in self.known})
        self.forget_log()

    def heard(self, rank: int, delivered: int) -> None:
        self.prefix.collection.heard(rank, delivered)

    def forget_log(self) -> None:
        """Drop the log up to the first entry of a message that is not delivered here."""
        i = self.log.base
        for _, _, m in self.log.entries:
            if not self.prefix.done.contains(m.mid):
                break
            i += 1
        self.log.forget_before(i)

    # What drivers and people look at

    def idle(self) -> bool:
        if self.log.status == RECOVERING or self.prefix.ahead or self.probation.active:
            return False
        return all(self.prefix.done.contains(m.mid) for _, _, m in self.log.entries)

    def leads(self) -> bool:
        return self.log.status == LEADER

    def has_delivered(self, mid: Mid) -> bool:
        return self.prefix.done.contains(mid)

    def position(self) -> int:
        return self.prefix.position

    def backlog(self) -> int:
        return self.under_way

    def condition(self) -> dict[str, object]:
        delivered = time_of(self.prefix.max_delivered_gts)
        return {**self.log.condition(), "clock": self.clock, "delivered": delivered}

    def footprint(self) -> int:
        prefix = self.prefix
        kept = len(prefix.outcomes) + prefix.recent.size() + len(self.log.entries)
        return len(self.known) + prefix.done.size() + kept


@final
class EagerFtSkeen(FtSkeen):
    """Raises its clock as soon as it proposes a final timestamp."""

    eager_clock = True


ROW: Final[Protocol] = Protocol(
    name="ft_skeen",
    title="Fault-tolerant Skeen",
    replica=FtSkeen,
    client=WhiteBoxClient,
    tolerates="crash of a minority in each group, any client",
    latency="6δ / 7δ, worst 12δ / 13δ",
    messages=MESSAGES,
    records=RECORDS,
    monitor=LogMonitor,
    least_delivered=94,
)
EAGER_ROW: Final[Protocol] = replace(
    ROW,
    name="ft_skeen_eager",
    title="Fault-tolerant Skeen, eager clock",
    replica=EagerFtSkeen,
    latency="6δ / 7δ, worst 10δ / 11δ",
)
