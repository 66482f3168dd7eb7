"""Multi-Paxos: atomic broadcast in one group by a replicated log, each entry a message.

Paper: as "A Dual Digraph Approach for Leaderless Atomic Broadcast" (AllConcur+), section V, deploys Libpaxos to compare
itself with: one proposer, five acceptors, and everybody learns. The log is `replicated_log`.

Latency in message delays: 3, at every member, and never more without failures. An acceptor of a group of three learns
from the leader and itself, 2. A member that is no acceptor takes part only by learning.

How it works. The client sends to the leader of the acceptors, which puts the message into its log. Acceptors announce
what they store to all processes, and who has heard a place from a quorum in one ballot delivers it, in the order of
the log. A new leader knows from its log which messages have a place; a message that comes again gets no second one.
"""

from dataclasses import dataclass
from typing import Final, final

from amcast.core.order import timestamp
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Background, Message
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.black_box.replicated_log import MESSAGES as LOG_MESSAGES
from amcast.protocols.black_box.replicated_log import Announce, Entry, GroupLog, Learner, LogOwner
from amcast.protocols.parts.leader_candidate import LEADER, RECOVERING
from amcast.protocols.parts.sessions import DeliveredMessages
from amcast.protocols.white_box.client import Unanswered, WhiteBoxClient

ACCEPTORS: Final = 5
SEQUENCER: Final = 0  # the group that has the acceptors


@final
@dataclass
class Progress(Background):
    """The sender, which is no acceptor, has learned the places before this one."""

    learned: int


MESSAGES: Final[tuple[type[Message], ...]] = (Multicast, Reply, Hint, Progress, *LOG_MESSAGES)


class MultiPaxos(LogOwner):
    """A process that learns, and an acceptor if it is one of the first."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.acceptors = self.choose_acceptors()
        self.log: GroupLog | None = None
        if pid in self.acceptors:
            self.log = GroupLog(self, self.acceptors, tuple(range(topology.replicas)))
        self.learner = Learner(self.acceptors)
        self.done = DeliveredMessages()  # all that is learned, wherever it goes
        self.logged: dict[Mid, bool] = {}  # at the leader: what has a place and is not learned
        self.learned_by = [0] * topology.replicas

    def choose_acceptors(self) -> tuple[int, ...]:
        return self.topology.groups[SEQUENCER][:ACCEPTORS]

    def on_start(self) -> None:
        if self.log is not None:
            self.log.start()
        else:
            self.set_timer("tick", self.params.heartbeat, self.params.heartbeat)

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Announce):
            first = self.learner.learned
            for i, entry in enumerate(self.learner.on_announce(sender, msg), first):
                self.learn(i, entry)
        elif isinstance(msg, Multicast):
            self.on_multicast_request(sender, msg.m)
        elif isinstance(msg, Progress):
            self.learned_by[sender] = max(self.learned_by[sender], msg.learned)
        elif self.log is not None:
            self.log.receive(sender, msg)

    def on_multicast(self, m: AppMessage) -> None:
        """Multicast as a member. It does not ask a second time, so this is for comparisons without failures."""
        self.send_one(self.leader(), Multicast(m))

    def on_multicast_request(self, sender: int, m: AppMessage) -> None:
        if self.done.contains(m.mid):
            self.reply(m)
        elif self.log is not None and self.log.status == LEADER:
            if m.mid not in self.logged:
                self.logged[m.mid] = True
                self.log.append(0, 0, m)
        elif self.g0 == SEQUENCER:
            self.send_one(sender, Hint(m.mid, SEQUENCER, self.leader()))

    def learn(self, i: int, entry: Entry) -> None:
        m = entry[2]
        if self.monitor is not None:
            self.monitor.decided(SEQUENCER, i, entry)
        assert not self.done.contains(m.mid), "a message with two places in the log"
        self.done.add(m)
        self.logged.pop(m.mid, None)
        if self.g0 in m.dest:
            self.deliver(m, timestamp(i, SEQUENCER))
            self.reply(m)

    def leader(self) -> int:
        return self.log.leader() if self.log is not None else self.learner.leader()

    def reply(self, m: AppMessage) -> None:
        if sender_of(m.mid) < self.topology.replicas:
            if sender_of(m.mid) == self.pid:
                self.out.completed.append(m.mid)
        elif self.g0 in m.dest:
            leader = self.leader() if self.g0 == SEQUENCER else self.pid
            self.send_one(sender_of(m.mid), Reply(m.mid, self.g0, leader))

    # The log

    def lead(self) -> None:
        assert self.log is not None
        self.logged = {m.mid: True for _, _, m in self.log.entries if not self.done.contains(m.mid)}

    def follow(self) -> None:
        self.logged = {}

    def heard(self, rank: int, delivered: int) -> None:
        self.learned_by[self.acceptors[rank]] = max(self.learned_by[self.acceptors[rank]], delivered)

    def on_suspect(self) -> None:
        if self.log is not None:
            self.log.suspect_leader()

    def on_timer(self, name: str) -> None:
        if self.log is None:
            self.set_timer("tick", self.params.heartbeat, self.params.heartbeat + self.params.heartbeat // 8)
            self.send(self.acceptors, Progress(self.learner.learned))
            return
        self.log.tick(self.learner.learned)
        self.learned_by[self.pid] = self.learner.learned
        self.log.forget_before(min(self.learned_by))

    # What drivers and people look at

    def idle(self) -> bool:
        return self.log is None or (self.log.status != RECOVERING and self.learner.learned == self.log.length())

    def leads(self) -> bool:
        return self.log is not None and self.log.status == LEADER

    def condition(self) -> dict[str, object]:
        facts = self.log.condition() if self.log is not None else {"role": "learner"}
        return {**facts, "delivered": self.learner.learned}

    def footprint(self) -> int:
        return self.done.size() + (len(self.log.entries) if self.log is not None else 0)


class SequencerClient(WhiteBoxClient):
    """Sends to the leader of the acceptors; if some groups stay silent, to all acceptors and to everybody in those."""

    def asked_first(self, m: AppMessage) -> tuple[int, ...]:
        return (self.cur_leader[SEQUENCER],)

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
    single_group=True,
    monitor=LogMonitor,
    least_delivered=92,
)
