"""LCR: atomic broadcast on a ring, ordered by vector clocks; every message travels twice around.

A message goes round to the predecessor of its origin, by then everybody has it; an acknowledgement goes round after it
and makes it stable. The clocks give one order in which stable messages are delivered as soon as none before them is
missing. When servers crash, the others exchange what they have not delivered and go on in a new view.

Paper: Guerraoui, Levy, Pochon, Quéma, "Throughput Optimal Total Order Broadcast for Cluster Environments".

Latency in message delays: 2(n - 1). Every server receives each message and each acknowledgement once. Uniform, with a
perfect failure detector.

Departures: the paper takes views from a membership service. Here a view is the set of servers that are not suspected:
who hears of a smaller view takes the intersection, so views shrink along one chain, and of two that are not comparable
at most one is ever complete. A view is complete when all its members have acknowledged the states of all.
The paper's detector never errs, but one that works by time-outs takes a server for crashed that only stood still. It
cannot be kept in: LCR bears any number of crashes, so the others must go on without it, however few they are. So a
server that leaves others out of a view tells them, before anything is delivered without them, and who is told stops.
Who is left out is not listened to, else it would take others along. Where two sides left each other out, the one with
more than half of all servers goes on and any other stops; until they hear of each other both may have delivered. Who
stood still does not count that time as the silence of all others. But one that hears nobody for other reasons, and is
heard, leaves out all others, and they stop: it cannot tell that from their crashes.
"""

from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.capabilities import Detecting
from amcast.core.notes import MembersChange, Stops
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage, Message, wired
from amcast.protocols.allconcur.rounds import RoundClient, RoundServer
from amcast.protocols.parts.failure_detectors import ALIVE, Alive, FailureDetector

Pending = tuple[tuple[int, int, tuple[int, ...], AppMessage], ...]  # size, origin and clock of a RING, and its m


@final
@dataclass
class Ring(Message):
    """m of `origin`, with the origin's clock; `size` is the number of members of the view."""

    size: int
    origin: int
    clock: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    m: AppMessage


@final
@dataclass
class RingAck(Message):
    size: int
    origin: int
    seq: int


@final
@dataclass
class State(Message):
    """What the sender has not delivered, for a view of these members. Who gets it and is none of them is left out."""

    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    pending: Pending = field(metadata=wired(Pending))

    def about(self) -> tuple[Mid, ...]:
        return tuple([row[3].mid for row in self.pending])


@final
@dataclass
class StateAck(Message):
    """The sender has the states of all these members."""

    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))


MESSAGES: Final[tuple[type[Message], ...]] = (Multicast, Reply, Ring, RingAck, State, StateAck, Alive)


@final
class RingEntry:
    def __init__(self, msg: Ring) -> None:
        self.msg = msg
        self.stable = False


def precedes(a: Ring, b: Ring) -> bool:
    """Return True if a is delivered before b: messages of older views come first, then the clocks decide."""
    if a.size != b.size:
        return a.size > b.size
    i, j = a.origin, b.origin
    if i < j:
        return a.clock[i] <= b.clock[i]
    return a.clock[j] < b.clock[j]


@final
class Lcr(RoundServer, Detecting):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.members = topology.groups[self.g0]  # of the view in which the ring works
        self.clock = [0] * topology.replicas
        self.delivered = [0] * topology.replicas  # by origin, in this view
        self.pending: list[RingEntry] = []
        self.target: tuple[int, ...] = ()  # the members of the view to come, while there is one
        self.states: dict[int, bool] = {}
        self.acks: dict[tuple[int, ...], dict[int, bool]] = {}
        self.early: list[tuple[int, Message]] = []  # of the ring in a later view
        self.detector = FailureDetector((), topology.replicas, params, 0, forgives=False)

    def on_start(self) -> None:
        self.detector.watch(tuple([p for p in self.members if p != self.pid]), self.now)
        self.beat()

    def after(self, steps: int) -> int:
        """Return the server so many places further on the ring."""
        return self.members[(self.members.index(self.pid) + steps) % len(self.members)]

    # The ring

    def kick(self) -> None:
        while self.queue and not self.target:
            m = self.queue.pop(0)
            self.clock[self.pid] += 1
            msg = Ring(len(self.members), self.pid, tuple(self.clock), m)
            self.insert(msg)
            if len(self.members) == 1:
                self.on_stable(self.pid, msg.clock[self.pid])
            else:
                self.send_one(self.after(1), msg)

    def insert(self, msg: Ring) -> None:
        at = len(self.pending)
        while at > 0 and precedes(msg, self.pending[at - 1].msg):
            at -= 1
        self.pending.insert(at, RingEntry(msg))

    def on_ring(self, msg: Ring) -> None:
        j = msg.origin
        if msg.clock[j] <= self.clock[j]:
            return
        self.insert(msg)
        self.clock[j] += 1
        if self.after(1) == j:
            self.on_stable(j, msg.clock[j])
            self.send_one(j, RingAck(msg.size, j, msg.clock[j]))
        else:
            self.send_one(self.after(1), msg)

    def on_ack(self, msg: RingAck) -> None:
        self.on_stable(msg.origin, msg.seq)
        if self.after(2) != msg.origin:
            self.send_one(self.after(1), msg)

    def on_stable(self, origin: int, seq: int) -> None:
        for entry in self.pending:
            if entry.msg.origin == origin and entry.msg.clock[origin] == seq:
                entry.stable = True
                break
        while self.pending and self.pending[0].stable:
            self.hand_over(self.pending.pop(0).msg)

    def hand_over(self, msg: Ring) -> None:
        self.delivered[msg.origin] = msg.clock[msg.origin]
        self.deliver_batch(msg.origin, (msg.m,))

    # Views

    def beat(self) -> None:
        if len(self.members) > 1:
            self.send(tuple([p for p in self.members if p != self.pid]), ALIVE)
        self.set_timer("beat", self.params.heartbeat, self.params.heartbeat)

    def on_timer(self, name: str) -> None:
        self.detector.look(self.now)
        silent = self.detector.newly_suspected(self.now)
        if silent:
            self.change_view([p for p in self.view() if p not in silent])
        self.beat()

    def on_detect(self, pid: int, suspected: bool) -> None:
        if suspected and pid in self.view():
            self.detector.suspected[pid] = True
            self.change_view([p for p in self.view() if p != pid])

    def view(self) -> tuple[int, ...]:
        return self.target or self.members

    def change_view(self, members: list[int]) -> None:
        """Stop the ring, tell all of the new view what is not delivered, and tell the others that they are left out."""
        left_out = tuple([p for p in self.view() if p not in members])
        self.target = tuple(members)
        self.note(MembersChange(len(members)))
        for p in self.members:
            self.detector.suspected[p] = p not in self.target
        self.states = {}
        rows = tuple([(e.msg.size, e.msg.origin, e.msg.clock, e.msg.m) for e in self.pending])
        self.send(left_out, State(self.target, ()))  # first: nothing is delivered without them before they can know
        self.send(self.target, State(self.target, rows))

    def on_state(self, sender: int, msg: State) -> None:
        if self.pid not in msg.members and not self.outlasts(sender):
            self.note(Stops("left out"))
            self.out.halted = True
            return
        if sender not in self.view():
            return  # it is left out itself, and was told
        common = [p for p in self.view() if p in msg.members]
        if len(common) < len(self.view()):
            self.change_view(common)
        if not self.target or self.target != msg.members:
            return
        for size, origin, clock, m in msg.pending:
            self.merge(Ring(size, origin, clock, m))
        self.states[sender] = True
        if len(self.states) == len(self.target):
            self.send(self.target, StateAck(self.target))
            self.install_if_acknowledged()

    def outlasts(self, other: int) -> bool:
        """Return True if this server may go on although the other one left it out: with most servers, without that."""
        return other not in self.view() and 2 * len(self.view()) > self.replicas

    def merge(self, msg: Ring) -> None:
        """Keep a message that somebody has not delivered, unless it is known or delivered here."""
        if msg.size > len(self.members) or (
            msg.size == len(self.members) and msg.clock[msg.origin] <= self.delivered[msg.origin]
        ):
            return
        if msg not in [entry.msg for entry in self.pending]:
            self.insert(msg)

    def on_state_ack(self, sender: int, msg: StateAck) -> None:
        self.acks.setdefault(msg.members, {})[sender] = True
        self.install_if_acknowledged()

    def install_if_acknowledged(self) -> None:
        if not self.target or len(self.states) < len(self.target):
            return
        if len(self.acks.get(self.target, {})) < len(self.target):
            return
        for entry in self.pending:
            self.hand_over(entry.msg)
        self.pending = []
        self.members = self.target
        self.target = ()
        self.states = {}
        self.acks = {}
        self.clock = [0] * self.replicas
        self.delivered = [0] * self.replicas
        self.detector.watch(tuple([p for p in self.members if p != self.pid]), self.now)
        early, self.early = self.early, []
        for sender, msg in early:
            self.on_message(sender, msg)
        self.kick()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Ring):
            if self.works(sender, msg.size, msg):
                self.on_ring(msg)
        elif isinstance(msg, RingAck):
            if self.works(sender, msg.size, msg):
                self.on_ack(msg)
        elif isinstance(msg, Alive):
            self.detector.heard(sender, self.now)
        elif isinstance(msg, Multicast):
            self.on_request(sender, msg.m)
        elif isinstance(msg, State):
            self.on_state(sender, msg)
        elif isinstance(msg, StateAck):
            self.on_state_ack(sender, msg)

    def works(self, sender: int, size: int, msg: Message) -> bool:
        """Return True if ring traffic of a view with so many members is to be handled now. What is early is kept."""
        if size < len(self.members):
            self.early.append((sender, msg))
        return size == len(self.members) and not self.target

    def idle(self) -> bool:
        return not self.queue and not self.pending and not self.target

    def unready(self) -> str:
        return self.detector.waits()

    def condition(self) -> dict[str, object]:
        return {"role": "member", "members": len(self.members), "waits": self.unready()}

    def footprint(self) -> int:
        return super().footprint() + len(self.pending) + len(self.early)


ROW: Final[Protocol] = Protocol(
    name="lcr",
    title="LCR",
    replica=Lcr,
    client=RoundClient,
    tolerates="any number of crashes, with P",
    latency="2(n - 1)",
    messages=MESSAGES,
    single_group=True,
    reliable_links=True,
    detector="P",
    bears=lambda n: n - 1,
    least_delivered=90,
)
