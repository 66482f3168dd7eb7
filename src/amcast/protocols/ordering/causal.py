"""A_causal: genuine causal multicast to open groups, on top of A_fifo.

Every process counts, per group and sender, the multicasts in its causal past (nbCast); a message is delivered when all
that its past has for this group is delivered. Counting multicasts and not deliveries makes a chain visible that passes
by the group (the blind causality of Figure 2).

Paper: Schiper, Pedone, "Fast, Flexible, and Highly Resilient Genuine Fifo and Causal Multicast Algorithms",
Algorithm A_causal; `# l.N` is a line there.

Latency in message delays: 2, and what a message has to wait for its past.

Departures: a message carries the counters that changed since its sender's last message to each of its destinations,
which fifo delivery makes enough: what did not change was tested with that message, so messages of one sender are
delivered in order, and merged already.

An error of the paper (Propositions A.7 and A.8): if a sender casts m to g, then m* to h, and crashes so that m is lost,
whatever follows from m* can never be delivered in g although others deliver it. Causal order holds, agreement does not.
`CausalStable` repairs it: a process multicasts only when all its earlier messages have OKs of all that Θ trusts, for
which OKs also go to a sender outside of the destinations; a client of a real cluster waits for a reply instead.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Reply
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage
from amcast.protocols.ordering.fifo import ROW as FIFO_ROW
from amcast.protocols.ordering.fifo import Fifo, Introduced, Numbered, Sent
from amcast.protocols.ordering.numbers import MOST_RECENT, Numbers


class Causal(Fifo):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        # l.2: (group, process) -> count, and at which change; in the order of the changes
        self.counts: dict[tuple[int, int], tuple[int, int]] = {}
        self.changes = 0
        self.old_counts = [Numbers() for _ in topology.groups]  # group -> those that have not changed for long …
        self.old_until = 0  # … the last of them at this change
        self.told = [0] * len(topology.groups)  # group -> changes when this process last cast to it
        self.nb_del = Numbers()  # l.3
        self.msg_lst: list[Introduced] = []  # l.4

    def count(self, g: int, q: int, n: int) -> None:
        if n > self.known(g, q):
            self.counts.pop((g, q), None)  # so that what changed last is last
            self.changes += 1
            self.counts[g, q] = (n, self.changes)
            if len(self.counts) > MOST_RECENT:
                self.shelve()

    def known(self, g: int, q: int) -> int:
        known = self.counts.get((g, q))
        return known[0] if known is not None else self.old_counts[g].get(q)

    def shelve(self) -> None:
        """Keep the older half of the counters in little space: most are of senders that are gone."""
        for g, q in list(self.counts)[: MOST_RECENT // 2]:
            n, self.old_until = self.counts.pop((g, q))
            self.old_counts[g].put(q, n)

    def past(self, m: AppMessage) -> tuple[int, ...]:  # l.6-8
        """Return what changed since the last cast to any destination, but for what `seqs` says anyway."""
        since = min([self.told[g] for g in m.dest])
        found: list[int] = []
        for key, (n, change) in reversed(self.counts.items()):
            if change <= since:
                break
            found += [key[0], key[1], n]
        if since < self.old_until:  # all of them: one that was told before does no harm
            for h in range(len(self.old_counts)):
                for q, n in self.old_counts[h].rows():
                    if (h, q) not in self.counts:
                        found += [h, q, n]
        for g in m.dest:
            self.count(g, self.pid, self.nb_cast[g])
        for g in m.dest:
            self.told[g] = self.changes
        return tuple(found)

    def told_to(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self.told[g] for g in dest])

    def give_back(self, sent: Sent) -> None:
        """Take back also what it counted, and what its destinations would have been told by it."""
        super().give_back(sent)
        for g, told in zip(sent.again.m.dest, sent.told, strict=True):
            self.told[g] = told
            row = self.counts.get((g, self.pid))
            if row is not None:
                self.counts[g, self.pid] = (self.nb_cast[g], row[1])
            else:
                self.old_counts[g].put(self.pid, self.nb_cast[g])

    def is_deliverable(self, entry: Introduced) -> bool:  # l.10
        past = entry.past
        q = sender_of(entry.m.mid)
        for i in range(0, len(past), 3):
            if past[i] == self.g0 and past[i + 1] != q and past[i + 2] > self.nb_del.get(past[i + 1]):  # l.11
                return False
        return True

    def f_deliver(self, entry: Introduced) -> None:  # l.12
        self.msg_lst.append(entry)  # l.13
        while self.c_deliver_first():  # l.14
            pass

    def c_deliver_first(self) -> bool:  # l.15
        """Deliver the first message that is deliverable. Of each sender only the first is looked at."""
        blocked: dict[int, bool] = {}
        for i, entry in enumerate(self.msg_lst):
            q = sender_of(entry.m.mid)
            if q not in blocked:
                if self.is_deliverable(entry):
                    del self.msg_lst[i]  # l.20
                    self.c_deliver(entry)
                    return True
                blocked[q] = True
        return False

    def c_deliver(self, entry: Introduced) -> None:
        q = sender_of(entry.m.mid)
        self.hand_over(entry)  # l.16
        self.nb_del.put(q, entry.seqs[entry.m.dest.index(self.g0)])  # l.17
        for i in range(0, len(entry.past), 3):  # l.18
            self.count(entry.past[i], entry.past[i + 1], entry.past[i + 2])  # l.19
        for g, n in zip(entry.m.dest, entry.seqs, strict=True):
            self.count(g, q, n)

    def is_delivered(self, q: int, seq: int) -> bool:
        return seq <= self.nb_del.get(q)

    def footprint(self) -> int:
        return super().footprint() + len(self.msg_lst)


@final
class CausalStable(Causal):
    """Casts one message after the other, each when those before it cannot be lost any more."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.waiting: list[AppMessage] = []
        self.unstable: AppMessage | None = None  # the last cast, until it is stable
        self.oks = 0

    def watched(self) -> tuple[int, ...]:
        return tuple([p for p in self.replicas if p != self.pid]) if not self.remote else ()

    def listeners(self) -> tuple[int, ...]:
        return tuple([p for p in range(self.topology.size) if p != self.pid])

    def on_multicast(self, m: AppMessage) -> None:
        self.waiting.append(m)
        self.cast_next()

    def cast_next(self) -> None:
        while self.unstable is None and self.waiting:
            self.unstable = self.waiting.pop(0)
            self.oks = 0
            self.f_mcast(self.unstable)
            self.look_at_oks()  # nobody there may be trusted

    def ok_to(self, m: AppMessage) -> tuple[int, ...]:
        members = self.topology.members_of(m.dest)
        q = sender_of(m.mid)
        return members if q in members or q >= self.topology.size else (*members, q)

    def on_ok(self, sender: int, msg: Numbered) -> None:
        if self.unstable is not None and self.unstable.mid == msg.m.mid:
            self.oks |= 1 << sender
        if self.g0 in msg.m.dest:
            super().on_ok(sender, msg)
        self.check_stable()

    def theta_changed(self) -> None:
        super().theta_changed()
        self.check_stable()

    def on_answer(self, msg: Reply) -> None:
        """Count the message as stable: whoever delivered it had OKs of all that it trusts."""
        super().on_answer(msg)
        if self.unstable is not None and self.unstable.mid == msg.mid:
            self.unstable = None
            self.cast_next()

    def on_abandon(self, mid: Mid) -> None:
        self.waiting = [m for m in self.waiting if m.mid != mid]
        super().on_abandon(mid)
        if self.unstable is not None and self.unstable.mid == mid:
            self.unstable = None
            self.cast_next()

    def idle(self) -> bool:
        return super().idle() and (not self.remote or not self.waiting)

    def check_stable(self) -> None:
        self.look_at_oks()
        self.cast_next()

    def look_at_oks(self) -> None:
        """Take note if the last cast is stable: all that Θ trusts have it. To a client of a cluster nobody says OK."""
        m = self.unstable
        if m is None:
            return
        for p in self.topology.members_of(m.dest):
            if self.theta & ~self.oks & 1 << p:
                return
        self.unstable = None
        self.complete(m.mid)

    def complete(self, mid: Mid) -> None:
        if self.unstable is None or self.unstable.mid != mid:  # a reply may come before the last OK
            super().complete(mid)


ROW: Final[Protocol] = replace(
    FIFO_ROW,
    name="causal",
    title="A_causal, causal multicast",
    replica=Causal,
    client=Causal,
    orders=("causal",),
    tolerates="any crashes, with Θ; a sender's may block others",
    blocks=True,  # an error of the paper, see above
)
STABLE_ROW: Final[Protocol] = replace(
    ROW,
    name="causal_stable",
    title="A_causal, every message stable before the next",
    replica=CausalStable,
    client=CausalStable,
    tolerates="any number of crashes, with Θ",
    latency="2δ, one at a time",
    blocks=False,
    least_delivered=85,
)
