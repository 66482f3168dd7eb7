"""A_fifo: genuine fifo multicast to open groups, whatever number of processes crash.

A process announces by an OK that it has delivered all that a sender multicast to its group before m; m is delivered
when every process that Θ trusts in every destination group has said so. An OK carries m, so that a delivered message
cannot be lost with its sender; links need not deliver what a crashed process had under way.

Paper: Schiper, Pedone, "Fast, Flexible, and Highly Resilient Genuine Fifo and Causal Multicast Algorithms",
Algorithm A_fifo; `# l.N` is a line there.

Latency in message delays: 2.

Departures: a message carries the numbers of its destination groups only; instead of msgSet there are the undelivered
messages and, per sender, the number of the last that was delivered: after its delivery nothing of a message is kept
(what others need of it is in the OK that was sent before). Θ is one per group, which the proofs need (§3.1 asks for
less). Members reply to a sender outside of their groups, so that it can go on.

The paper knows no refusals. A client of a cluster may be refused by all whom it asks, and nobody has its message then;
but the message had a number, for which all later ones would wait for ever. If nothing was multicast since, the number
is given back. Else a void message takes it, one for each destination group: it is F-MCast and F-Delivered like any
other, so the proofs hold for it, but the application never sees it.
"""

from dataclasses import dataclass, field
from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Detecting
from amcast.core.notes import Suspicion
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Reply, Request
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Message, wired
from amcast.protocols.allconcur.digraphs import mask
from amcast.protocols.ordering.numbers import Numbers
from amcast.protocols.parts.failure_detectors import ALIVE, Alive, FailureDetector


@dataclass
class Numbered(Request):
    """m, its number at each destination group, and what causally precedes it (see causal.py)."""

    seqs: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    past: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))

    def sound(self, groups: int) -> bool:
        past = self.past
        counts = [0 <= past[i] < groups and past[i + 1] >= 0 for i in range(0, len(past) - 2, 3)]
        return len(self.seqs) == len(self.m.dest) and min(self.seqs) > 0 and len(past) % 3 == 0 and False not in counts


@final
class Cast(Numbered):
    """A multicast."""


@final
class Again(Numbered):
    """A multicast again, from a client that has no reply and wants one if m is delivered."""


@final
class Ok(Numbered):
    """A multicast passed on by a process that has delivered all that the sender of m multicast to its group before."""


@final
class Void(Numbered):
    """A void message: m was refused, nobody has it, and its number at one group is to be passed over."""

    def wants_delivery(self) -> bool:
        return False


@final
class VoidOk(Numbered):
    """The OK to a void message."""


MESSAGES: Final[tuple[type[Message], ...]] = (Cast, Ok, Reply, Alive, Void, VoidOk)
ASKED: Final[tuple[type[Message], ...]] = (Cast, Again, Void)
RETRY: Final = 60  # in δ: a client that has no reply by then asks again


@final
class Introduced:
    """An undelivered message."""

    def __init__(self, msg: Numbered, addressees: int) -> None:
        self.m = msg.m
        self.seqs = msg.seqs
        self.past = msg.past
        self.void = isinstance(msg, Void | VoidOk)
        self.addressees = addressees  # processes as bits, as are:
        self.oks = 0


@final
class Sent:
    """A multicast of a sender outside that it does not know to be delivered."""

    def __init__(self, again: Again, cast: int, told: tuple[int, ...]) -> None:
        self.again = again
        self.cast = cast  # which multicast of the sender it is
        self.told = told  # see causal.py
        self.unanswered = mask(again.m.dest)  # by a client of a cluster: groups as bits

    def is_unknown(self) -> bool:
        """Return whether no group has said that it delivered it."""
        return self.unanswered == mask(self.again.m.dest)


@mypyc_attr(allow_interpreted_subclasses=True)
class Fifo(Process, Detecting):
    """A member of group g0, or a sender outside of all groups (g0 = -1)."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid] if pid < topology.size else -1
        self.nb_cast = [0] * len(topology.groups)  # l.2
        self.casts = 0
        self.f_del = Numbers()  # l.3, of the last message of a sender that was delivered: nextFDel - 1
        self.asked_again: dict[Mid, bool] = {}  # delivered messages for whose reply a client of a cluster asked lately
        self.msg_set: dict[int, dict[int, Introduced]] = {}  # l.4, sender -> number -> entry
        self.replicas = tuple(range(topology.replicas))
        self.detector = FailureDetector((), topology.replicas, params, 0)
        self.theta = (1 << topology.replicas) - 1  # the trusted processes as bits
        self.uncompleted: dict[Mid, Sent] = {}  # at a sender outside
        self.voids: dict[tuple[int, int], Void] = {}  # group and number, until a later message is delivered there
        self.remote = pid >= topology.size  # a client of a real cluster, whose connections may break
        self.waits = False
        self.settled = False  # at first it may not be connected to those who reply

    def on_start(self) -> None:
        self.detector.watch(self.watched(), self.now)
        self.beat()

    def watched(self) -> tuple[int, ...]:
        return tuple([p for p in self.replicas if p != self.pid]) if self.g0 >= 0 else ()

    # Θ

    def beat(self) -> None:
        if self.g0 >= 0:
            self.send(self.listeners(), ALIVE)
        if self.watched():
            self.set_timer("beat", self.params.heartbeat, self.params.heartbeat)

    def listeners(self) -> tuple[int, ...]:
        return tuple([p for p in self.replicas if p != self.pid])

    def on_timer(self, name: str) -> None:
        if name == "retry":
            self.waits = False
            self.settled = True
            self.on_disconnect()
            self.wait()
            return
        self.asked_again.clear()
        silent = self.detector.newly_suspected(self.now)
        for p in silent:
            self.note(Suspicion(self.topology.name(p), True))
            self.theta &= ~(1 << p)
        if silent:
            self.theta_changed()
        self.beat()

    def on_detect(self, pid: int, suspected: bool) -> None:
        self.detector.suspected[pid] = suspected
        self.theta = self.theta & ~(1 << pid) if suspected else self.theta | 1 << pid
        self.theta_changed()

    def theta_changed(self) -> None:
        for sender in list(self.msg_set):
            self.f_deliver_next(sender)

    # Task 1

    def on_multicast(self, m: AppMessage) -> None:  # l.5
        self.f_mcast(m)

    def f_mcast(self, m: AppMessage) -> None:
        for g in m.dest:  # l.6
            self.nb_cast[g] += 1  # l.7
        seqs = tuple([self.nb_cast[g] for g in m.dest])  # l.8
        told = self.told_to(m.dest)
        past = self.past(m)
        self.casts += 1
        if self.g0 not in m.dest:
            self.uncompleted[m.mid] = Sent(Again(m, seqs, past), self.casts, told)
        self.send(self.topology.members_of(m.dest), Cast(m, seqs, past))  # l.9
        if self.remote:
            self.wait()

    def past(self, m: AppMessage) -> tuple[int, ...]:
        return ()

    def told_to(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    # What was refused

    def on_abandon(self, mid: Mid) -> None:
        """Free the numbers of a message that nobody has. What one group has delivered, the others will deliver."""
        sent = self.uncompleted.pop(mid, None)
        if sent is None or not sent.is_unknown():
            return
        if sent.cast == self.casts:
            self.give_back(sent)
        else:  # later messages are numbered behind it
            self.pass_over(sent.again)

    def give_back(self, sent: Sent) -> None:
        """Take back the last multicast, as if it had not been."""
        self.casts -= 1
        for g in sent.again.m.dest:
            self.nb_cast[g] -= 1

    def pass_over(self, again: Again) -> None:
        """Let a void message take the number at each group. A group that refuses the message refuses that one, too."""
        for g, n in zip(again.m.dest, again.seqs, strict=True):
            void = Void(AppMessage(again.m.mid, (g,), b""), (n,), again.past)
            self.voids[g, n] = void
            self.send(self.topology.groups[g], void)

    def forget_voids(self, mid: Mid, g: int) -> None:
        """Forget void messages before one that g delivered: whoever it trusts there has passed them over."""
        sent = self.uncompleted.get(mid)
        if self.voids and sent is not None:
            dest = sent.again.m.dest
            number = sent.again.seqs[dest.index(g)] if g in dest else 0
            self.voids = {key: void for key, void in self.voids.items() if key[0] != g or key[1] > number}

    # A client of a real cluster

    def wait(self) -> None:
        if self.uncompleted and not self.waits:
            self.waits = True
            wait = (RETRY if self.settled else RETRY // 6) * self.params.delta
            self.set_timer("retry", wait, wait)

    def on_answer(self, msg: Reply) -> None:
        """Count the answer of a group: a client of a real cluster wants one from each."""
        sent = self.uncompleted.get(msg.mid)
        if sent is not None:
            sent.unanswered &= ~(1 << msg.g)
            if not sent.unanswered:
                del self.uncompleted[msg.mid]
                self.out.completed.append(msg.mid)

    def on_disconnect(self) -> None:
        """Ask again: a connection broke."""
        for void in self.voids.values():
            self.send(self.topology.members_of(void.m.dest), void)
        for sent in self.uncompleted.values():
            self.send(self.topology.members_of(sent.again.m.dest), sent.again)

    def idle(self) -> bool:
        """At a client of a cluster: it knows of all its multicasts what became of them."""
        return not self.remote or not self.uncompleted

    # Receiving

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Ok | VoidOk):
            self.on_ok(sender, msg)
        elif isinstance(msg, Numbered):  # Cast, Again or Void
            if self.introduce(msg) is not None:
                self.f_deliver_next(sender_of(msg.m.mid))
            elif isinstance(msg, Again) and self.is_delivered(sender, msg.seqs[msg.m.dest.index(self.g0)]):
                self.send_one(sender, Reply(msg.m.mid, self.g0, self.pid))
                if sender >= self.topology.size:
                    self.asked_again[msg.m.mid] = True
        elif isinstance(msg, Alive):
            if self.detector.heard(sender, self.now):
                self.note(Suspicion(self.topology.name(sender), False))
                self.theta |= 1 << sender
        elif isinstance(msg, Hint):  # a void message was refused
            gone = [key for key, void in self.voids.items() if key[0] == msg.g and void.m.mid == msg.mid]
            for key in gone:
                del self.voids[key]
        elif isinstance(msg, Reply):
            self.forget_voids(msg.mid, msg.g)
            if self.remote:
                self.on_answer(msg)
            else:
                self.complete(msg.mid)

    def is_delivered(self, q: int, seq: int) -> bool:
        return seq <= self.f_del.get(q)

    def on_ok(self, sender: int, msg: Numbered) -> None:
        entry = self.introduce(msg)
        if entry is not None:
            entry.oks |= 1 << sender
            self.f_deliver_next(sender_of(msg.m.mid))

    def introduce(self, msg: Numbered) -> Introduced | None:
        """Return what is known of m, from now on something; None if m is delivered already."""
        m = msg.m
        q = sender_of(m.mid)
        seq = msg.seqs[m.dest.index(self.g0)]
        next_f_del = self.f_del.get(q) + 1
        if seq < next_f_del:
            return None
        entries = self.msg_set.setdefault(q, {})
        entry = entries.get(seq)
        if entry is None:  # l.11
            entry = Introduced(msg, mask(self.topology.members_of(m.dest)))
            if seq == next_f_del:  # l.12
                self.send_ok(entry)  # l.13
            else:
                relayed = Void(m, msg.seqs, msg.past) if entry.void else Cast(m, msg.seqs, msg.past)
                self.send(self.topology.members_of(m.dest), relayed)  # l.15
            entries[seq] = entry  # l.16
        return entry

    def send_ok(self, entry: Introduced) -> None:
        if entry.void:
            self.send(self.topology.members_of(entry.m.dest), VoidOk(entry.m, entry.seqs, entry.past))
        else:
            self.send(self.ok_to(entry.m), Ok(entry.m, entry.seqs, entry.past))

    def ok_to(self, m: AppMessage) -> tuple[int, ...]:
        return self.topology.members_of(m.dest)

    def f_deliver_next(self, q: int) -> None:
        """Deliver what can be delivered of sender q."""
        entries = self.msg_set.get(q)
        if entries is None:
            return
        seq = self.f_del.get(q) + 1
        entry = entries.get(seq)
        while entry is not None and self.theta & entry.addressees & ~entry.oks == 0:  # l.17
            del entries[seq]
            self.f_del.put(q, seq)  # l.19
            seq += 1
            self.f_deliver(entry)  # l.18
            entry = entries.get(seq)
            if entry is not None:  # l.20
                self.send_ok(entry)  # l.21
        if not entries:
            del self.msg_set[q]

    def f_deliver(self, entry: Introduced) -> None:
        self.hand_over(entry)

    def hand_over(self, entry: Introduced) -> None:
        """Deliver to the application, and tell the sender."""
        if entry.void:
            return
        m = entry.m
        self.deliver(m)
        q = sender_of(m.mid)
        if q == self.pid:
            self.out.completed.append(m.mid)
        elif q >= self.topology.size or self.topology.group_of[q] not in m.dest:
            self.send_one(q, Reply(m.mid, self.g0, self.pid))

    def complete(self, mid: Mid) -> None:
        """Complete a multicast of a sender outside: one delivery means that all destinations will deliver."""
        if not self.remote and self.uncompleted.pop(mid, None) is not None:
            self.out.completed.append(mid)

    def has_delivered(self, mid: Mid) -> bool:
        """Return True if this message is delivered and its sender asked for the reply: by numbers only it can say."""
        return mid in self.asked_again

    def unready(self) -> str:
        return self.detector.waits()

    def condition(self) -> dict[str, object]:
        """Say also whom Θ distrusts, and how many senders have messages here of which an earlier one is missing."""
        distrusted = [self.topology.name(p) for p in self.replicas if not self.theta >> p & 1]
        gaps = [q for q, entries in self.msg_set.items() if self.f_del.get(q) + 1 not in entries]
        return {"role": "member", "waits": self.unready(), "distrusts": distrusted, "gaps": len(gaps)}

    def footprint(self) -> int:
        return sum([len(entries) for entries in self.msg_set.values()])


ROW: Final[Protocol] = Protocol(
    name="fifo",
    title="A_fifo, fifo multicast",
    replica=Fifo,
    client=Fifo,
    orders=("fifo",),
    tolerates="any number of crashes, with Θ",
    latency="2δ",
    messages=MESSAGES,
    requests=ASKED,
    detector="Θ",
    least_delivered=90,
)
