"""Multi-Paxos: atomic broadcast in one group by a replicated log, each entry a message.

Paper: as "A Dual Digraph Approach for Leaderless Atomic Broadcast" (AllConcur+), section V, deploys Libpaxos to compare
itself with: one proposer, five acceptors, and everybody learns. The log is `replicated_log`.

Latency in message delays: 3, at every member, and never more without failures. An acceptor of a group of three learns
from the leader and itself, 2. A member that is no acceptor takes part only by learning.

How it works. The client sends to the leader of the acceptors, which puts the message into its log. Acceptors announce
what they store to all processes, and who has heard a place from a quorum in one ballot delivers it, in the order of
the log. A new leader knows from its log which messages have a place; a message that comes again gets no second one.

What a process has learned is a prefix of one sequence, as in White-Box: who hears of somebody ahead gets what it lacks
from there (Fetch, Tail). Acceptors forget a place when a quorum of every group has learned it, so that a process which
is away costs them no more than what they keep to help it. Which places those are is on disk (`Forgotten`): one that
comes back does not know what others have learned, and would say all places since its last snapshot again.
"""

from dataclasses import dataclass
from typing import Final, final

from amcast.core.order import time_of, timestamp
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Background, Message
from amcast.protocols.black_box.durable_log import MESSAGES as RECOVERY_MESSAGES
from amcast.protocols.black_box.durable_log import RECORDS, DurableLogOwner
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.black_box.log_records import Forgotten
from amcast.protocols.black_box.replicated_log import MESSAGES as LOG_MESSAGES
from amcast.protocols.black_box.replicated_log import Announce, Entry, GroupLog, Learner, quorum_has
from amcast.protocols.parts.leader_candidate import LEADER, RECOVERING, Heartbeat
from amcast.protocols.white_box.client import Unanswered, WhiteBoxClient
from amcast.protocols.white_box.messages import Fetch, Tail

ACCEPTORS: Final = 5
SEQUENCER: Final = 0  # the group that has the acceptors


@final
@dataclass
class Progress(Background):
    """The sender, which is no acceptor, has learned the places before this one, with so many messages."""

    learned: int
    position: int


MESSAGES: Final[tuple[type[Message], ...]] = (Multicast, Reply, Hint, Progress, *LOG_MESSAGES, *RECOVERY_MESSAGES)


class MultiPaxos(DurableLogOwner):
    """A process that learns, and an acceptor if it is one of the first."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out, others_ask=False)
        self.acceptors = self.choose_acceptors()
        self.log: GroupLog | None = None
        if pid in self.acceptors:
            self.log = self.part = GroupLog(self, self.acceptors, tuple(range(topology.replicas)))
            self.probation.group = self.acceptors
        self.learner = Learner(self.acceptors)
        self.delivered = 0  # messages of what is learned, its prefix, that go to this group
        self.logged: dict[Mid, bool] = {}  # at the leader: what has a place and is not learned
        self.learned_by = [0] * topology.replicas  # places …
        self.reached_by = [0] * topology.replicas  # … and messages, which may be batches
        self.group = topology.groups[self.g0]
        told = [p for p in (*self.group, *self.acceptors) if p != pid]
        self.told: tuple[int, ...] = tuple(dict.fromkeys(told))  # of its progress, if it is no acceptor

    def choose_acceptors(self) -> tuple[int, ...]:
        return self.topology.groups[SEQUENCER][:ACCEPTORS]

    def on_start(self) -> None:
        if self.log is not None:
            self.log.start()
        else:
            self.set_timer("tick", self.params.heartbeat, self.params.heartbeat)

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Announce):
            self.heard_mark(sender, msg.mark)
            first = self.learner.learned
            found = self.learner.on_announce(sender, msg)
            for i, entry in enumerate(found, first):
                self.learn(i, entry)
            if found:
                self.go_on()
        elif isinstance(msg, Fetch):
            self.on_fetch(sender, msg)
        elif isinstance(msg, Tail):
            self.on_tail(sender, msg)
        elif self.on_recovery(sender, msg) or self.probation.active:
            pass  # nothing else while it may have forgotten something
        elif isinstance(msg, Multicast):
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Progress):
            self.on_progress(sender, msg)
        elif self.log is not None:
            if isinstance(msg, Heartbeat):
                self.reached_by[sender] = max(self.reached_by[sender], msg.position)
                self.prefix.heard(sender, msg.position)
            self.log.receive(sender, msg)

    def on_multicast(self, m: AppMessage) -> None:
        """Multicast as a member. It does not ask a second time, so this is for comparisons without failures."""
        self.send_one(self.leader(), Multicast(m))

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:
        if self.prefix.done.contains(m.mid):
            self.reply(m)
        elif self.log is not None and self.log.status == LEADER:
            if m.mid not in self.logged:
                self.logged[m.mid] = True
                self.log.append(0, 0, m)
        elif self.g0 == SEQUENCER:
            self.send_one(sender, Hint(m.mid, SEQUENCER, self.leader(), self.ballot()))

    def learn(self, i: int, entry: Entry) -> None:
        m = entry[2]
        if self.monitor is not None:
            self.monitor.decided(SEQUENCER, i, entry)
        assert not self.prefix.done.contains(m.mid), "a message with two places in the log"
        self.save_delivery(m, 0, timestamp(i, SEQUENCER))
        self.logged.pop(m.mid, None)
        self.take_again(m, 0, timestamp(i, SEQUENCER))
        if self.g0 in m.dest:
            self.reply(m)

    def take_again(self, m: AppMessage, lts: int, gts: int) -> None:
        self.prefix.append(m, lts, gts)
        self.prefix.done.add(m)
        self.learner.skip_to(time_of(gts) + 1)
        if self.g0 in m.dest:
            self.delivered += m.count
            self.deliver(m, gts)

    def prefix_replaced(self, delivered: int) -> None:
        self.delivered = delivered
        self.learner.skip_to(time_of(self.prefix.max_delivered_gts) + 1)
        for mid in [mid for mid in self.logged if self.prefix.done.contains(mid)]:
            del self.logged[mid]

    # Who is behind

    def on_progress(self, sender: int, msg: Progress) -> None:
        """Hear how far a process is that is no acceptor. One that stands still, and misses something, is helped."""
        stands = self.reached_by[sender] == msg.position
        self.learned_by[sender] = max(self.learned_by[sender], msg.learned)
        self.reached_by[sender] = max(self.reached_by[sender], msg.position)
        if stands and msg.position < self.prefix.position and self.leads():
            self.on_fetch(sender, Fetch(msg.position))
        elif self.topology.group_of[sender] == self.g0:
            self.prefix.heard(sender, msg.position)

    def on_fetch(self, sender: int, msg: Fetch) -> None:
        """Send what follows, from the log if it is not among the recent messages any more."""
        log = self.log
        # It may have learned places that its own log lacks: then it cannot tell which position the log begins at.
        knows = log is not None and self.learner.learned <= log.length()
        if log is None or not knows or not self.needed()[0] <= msg.position < self.prefix.recent.begin:
            self.prefix.on_fetch(sender, msg)
            return
        rows: list[tuple[AppMessage, int, int]] = []
        position = self.needed()[0]
        for i, (_, _, m) in enumerate(log.entries[: self.learner.learned - log.base], log.base):
            if position >= msg.position and sum([len(row[0].payload) for row in rows]) < self.params.part_bytes:
                rows.append((m, 0, timestamp(i, SEQUENCER)))
            position += m.count
        self.send_one(sender, Tail(msg.position, self.prefix.position, tuple(rows)))

    def on_tail(self, sender: int, msg: Tail) -> None:
        prefix = self.prefix
        if msg.position > prefix.position and self.topology.group_of[sender] != self.g0:
            return  # its snapshot is of another group: a member of its own has one
        if not prefix.reaches(sender, msg):
            return
        position = msg.position
        for m, _, gts in msg.rows:
            if position == prefix.position:
                assert time_of(gts) == self.learner.learned, "a place was learned before, with another message"
                self.learner.is_told()
                self.learn(time_of(gts), (0, 0, m))
            position += m.count
        first = self.learner.learned
        for i, entry in enumerate(self.learner.goes_on(), first):
            self.learn(i, entry)
        if msg.end > prefix.position:
            prefix.fetch(sender)
        self.go_on()

    def go_on(self) -> None:
        if self.probation.active:
            self.end_probation()
        elif self.log is not None:
            self.log.grown()

    def forget_member(self, member: int) -> None:
        super().forget_member(member)
        self.learned_by[member] = self.reached_by[member] = 0

    def reached(self) -> tuple[int, int]:
        return self.prefix.position, 0

    def needed(self) -> tuple[int, int]:
        assert self.log is not None
        learned = self.log.entries[: self.learner.learned - self.log.base]
        return self.prefix.position - sum([m.count for _, _, m in learned]), 0

    def fetch_from(self, member: int) -> None:
        self.prefix.fetch(member)

    def leader(self) -> int:
        return self.log.leader() if self.log is not None else self.learner.leader()

    def ballot(self) -> int:
        """Return in which ballot `leader` leads; 0 where that is hearsay, which does not count against any other."""
        return self.log.cballot if self.log is not None else 0

    def reply(self, m: AppMessage) -> None:
        if sender_of(m.mid) < self.topology.replicas:
            if sender_of(m.mid) == self.pid:
                self.out.completed.append(m.mid)
        elif self.g0 in m.dest:
            orders = self.g0 == SEQUENCER
            reply = Reply(m.mid, self.g0, self.leader(), self.ballot()) if orders else Reply(m.mid, self.g0, self.pid)
            self.send_one(sender_of(m.mid), reply)

    # The log

    def lead(self) -> None:
        assert self.log is not None
        self.logged = {m.mid: True for _, _, m in self.log.entries if not self.prefix.done.contains(m.mid)}

    def follow(self) -> None:
        self.logged = {}

    def heard(self, rank: int, delivered: int) -> None:
        self.learned_by[self.acceptors[rank]] = max(self.learned_by[self.acceptors[rank]], delivered)

    def on_suspect(self) -> None:
        if self.log is not None and not self.probation.active:
            self.log.suspect_leader()

    def on_gone(self, pid: int) -> None:
        if self.log is not None and not self.probation.active:
            self.log.lost(pid)

    def on_timer(self, name: str) -> None:
        if self.waits():
            return
        self.tell_marks()
        if self.log is None:
            self.set_timer("tick", self.params.heartbeat, self.params.heartbeat + self.params.heartbeat // 8)
            self.send(self.told, Progress(self.learner.learned, self.prefix.position))
            self.prefix.forget([self.reached_by[p] if p != self.pid else self.prefix.position for p in self.group])
            return
        self.log.tick(self.learner.learned, self.prefix.position)
        self.learned_by[self.pid] = self.learner.learned
        self.reached_by[self.pid] = self.prefix.position
        self.prefix.forget(self.reached_by)
        before = self.log.base
        self.forget_log()
        if self.log.base > before:
            self.save_in_passing(Forgotten(self.log.base))

    def forget_log(self) -> None:
        """Drop the places that a quorum of every group has learned, so far as is known in this life or was before."""
        assert self.log is not None
        everywhere = min([self.learned_in(g) for g in range(len(self.topology.groups))])
        self.log.forget_before(max(everywhere, min(self.forgotten, self.learner.learned)))

    def learned_in(self, g: int) -> int:
        """Return the place before which a quorum of a group has learned all, and so has this process."""
        learned = [self.learned_by[p] for p in self.topology.groups[g]]
        return min(quorum_has(learned, self.topology.quorum(g)), self.learner.learned)

    # What drivers and people look at

    def idle(self) -> bool:
        return not self.probation.active and self.has_learned_all()

    def has_learned_all(self) -> bool:
        return self.log is None or (self.log.status != RECOVERING and self.learner.learned == self.log.length())

    def position(self) -> int:
        return self.delivered

    def has_delivered(self, mid: Mid) -> bool:
        return self.prefix.done.contains(mid)

    def backlog(self) -> int:
        if self.log is None:
            return 0
        waiting = self.log.entries[max(0, self.learner.learned - self.log.base) :]
        return sum([len(m.payload) for _, _, m in waiting])

    def leads(self) -> bool:
        return self.log is not None and self.log.status == LEADER

    def condition(self) -> dict[str, object]:
        facts = self.log.condition() if self.log is not None else {"role": "learner"}
        return {**facts, "delivered": self.learner.learned}

    def footprint(self) -> int:
        kept = self.prefix.done.size() + self.prefix.recent.size()
        return kept + (len(self.log.entries) if self.log is not None else 0)


class SequencerClient(WhiteBoxClient):
    """Sends to the leader of the acceptors; if some groups stay silent, to all acceptors and to everybody in those."""

    def asked_first(self, m: AppMessage) -> tuple[int, ...]:
        return (self.leader_in(SEQUENCER),)

    def asked_again(self, request: Unanswered) -> tuple[int, ...]:
        groups = [g for g in request.silent if g != SEQUENCER]
        return self.topology.members_of((SEQUENCER, *groups))

    def heeds(self, request: Unanswered, g: int) -> bool:
        return True


ROW: Final[Protocol] = Protocol(
    name="multi_paxos",
    title="Multi-Paxos",
    replica=MultiPaxos,
    client=SequencerClient,
    tolerates="crash of two of five acceptors, any client",
    latency="3δ",
    messages=MESSAGES,
    records=RECORDS,
    single_group=True,
    monitor=LogMonitor,
    least_delivered=92,
)
