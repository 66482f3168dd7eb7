"""Baseline Atomic Multicast: groups order what they send in a log of their own, and wait for each other's barriers.

Paper: Bezerra, Pedone, Garbinato, Geyer, "Optimistic Atomic Multicast", Algorithm 1; `# l.N` is a line there.

Latency in message delays: 3; 4 if members pass decisions on (l.31), 6 if barriers are requested only when the final
timestamp is known (in groups of three 3 and 5: a member learns from the leader and itself).

How it works. A member p of a group g stamps its message with its clock and sends it to g. The leader of g puts it into
the log of g, with a final timestamp above all before it, and the members announce what they store to the destinations.
Every entry of g that h learns is a barrier: nothing with a lower timestamp follows. A process of h delivers messages in
the order of their final timestamps, each when all groups that may send to h (sendersTo) have given a barrier as high. p
asks those groups for one; a group with nothing to send puts a null message into its log.

Departures, each for a reason that a scenario or a mutant of the tests shows:
- The final timestamp is (time, group) and part of the log entry: a destination sees only a part of the log and could
  not compute l.26. l.25 is ≥, l.34 is ≤: a message is the barrier of its own source.
- The group h itself always counts as a sender to h.
- A destination that lacks a barrier for long asks for it: so a crashed sender is not missed, and periodic null messages
  (`null_after`) are optional.
- Joining (section 5) is answered to all groups that send to h, so that two that join at once hear of each other.
- Leaving, "similar" in the paper: messages of a membership that is over are refused, whatever their timestamp. A leave
  ends what its group asked for before it in its own log, answered or not. The clocks of two groups do not say which of
  a leave and an answer is the later one. To ask again while a membership holds changes nothing.
- A sender may crash so that its group lacks one of its messages while others have a later one, which must not come
  without it. Then its group orders that nothing more comes of it (`STOP`). A sender that is suspected wrongly sends
  again what was not ordered.
- Clients that belong to no group hand their messages to a member of a group that may send them. If that group has left
  since, it orders the refusal, as of a member's message, and tells the client.
- A follower tells its leader of requests for barriers that stay unserved: their sender may have died meanwhile.
"""

from heapq import heappop, heappush
from typing import Final, final

from amcast.core.capabilities import Reconfigurable
from amcast.core.notes import GroupsChange
from amcast.core.order import BOTTOM, time_of, timestamp
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import NOBODY, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.black_box.replicated_log import Announce, LogOwner
from amcast.protocols.optimistic.clients import OamClient, source_of
from amcast.protocols.optimistic.log_learners import Decided, Learnt, PartialLearner, SharedLog
from amcast.protocols.optimistic.messages import (
    JOIN,
    JOINED,
    LEAVE,
    MESSAGE,
    MESSAGES,
    NULL,
    REFUSED,
    STOP,
    BarrierRequest,
    Refusal,
    facts_of,
    unwrap,
    wrap,
)
from amcast.protocols.optimistic.options import DEFAULTS, Options
from amcast.protocols.optimistic.reliable_multicast import (
    LIFE,
    MOST_LIVES,
    Copy,
    FifoReceiver,
    FifoSender,
    key_of,
    number_in,
    sender_in,
)
from amcast.protocols.optimistic.senders_to import SendersTo
from amcast.protocols.parts.leader_candidate import FOLLOWER, LEADER, RECOVERING
from amcast.protocols.parts.sessions import DeliveredMessages

RELAY_AFTER: Final = 8  # in δ: a message is ordered long before, without failures
LONGEST_RELAY: Final = 64
PULL_AFTER: Final = 6
STOP_AFTER: Final = 40
MOST_REFUSALS: Final = 1000  # that are remembered, for clients that ask again
FOR_EVER: Final = 1 << 62


@final
class Undecided:
    """A copy that has come and is not ordered yet, so far as this process knows."""

    def __init__(self, copy: Copy, now: int, delay: int) -> None:
        self.copy = copy
        self.due = False  # its time to be proposed has come
        self.relay_at = now + delay
        self.delay = delay


class Baseline(LogOwner, Reconfigurable):
    """A member of group g0."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects, options: Options = DEFAULTS) -> None:
        super().__init__(pid, topology, params, out)
        groups = len(topology.groups)
        self.options = options
        self.log = SharedLog(self, topology.groups[self.g0], options.direct)
        self.learners = [PartialLearner(len(members)) for members in topology.groups]
        self.learnt_by = [-1] * topology.replicas  # per process: how far it has learnt our log
        self.senders = SendersTo(groups, options.senders_to)
        self.required = self.senders.required(self.g0)
        self.numbers = FifoSender()
        self.unordered: dict[int, Copy] = {}  # what this process sent, by key
        self.copies = FifoReceiver(self.g0, topology.group_of)
        self.undecided: dict[int, Undecided] = {}  # messages \ decided, and copies on their way to the order
        self.waiting: list[tuple[int, int, int]] = []  # undecided copies that are not due: timestamp, sender, key
        self.last_stamp = -1
        self.most = 0  # of Optimistic: how long to wait for a timestamp in the future
        self.barrier = [BOTTOM] * groups  # l.5
        self.stamped: list[tuple[int, AppMessage]] = []  # stamped \ delivered, a heap
        self.learning: dict[Mid, bool] = {}  # what is in `stamped`
        self.delivered_ts = BOTTOM
        self.done = [DeliveredMessages() for _ in topology.groups]  # what is learnt from each group, wherever it goes
        self.refusals: dict[Mid, bool] = {}  # messages of clients that this group refused, the last ones
        self.open: dict[Mid, bool] = {}  # multicasts of this process, or of clients by it, that are not learnt
        self.blocked: list[AppMessage] = []  # … that it may not send yet
        # Per group: the barriers it asks us for, and the timestamps by which these are due, a heap.
        self.requests: list[list[tuple[int, int]]] = [[] for _ in topology.groups]
        self.unserved = [BOTTOM] * groups  # at a follower: the highest of these at the last tick
        self.served = [BOTTOM] * groups  # per group: the highest barrier it gets from us, learnt here
        self.joins: dict[int, int] = {}  # groups that ask to join: the timestamp of the request
        self.let_in: dict[int, int] = {}  # the same of those that have been answered
        self.waits_since = 0  # how long the first of `stamped` has not moved
        self.null_sent = [0] * groups
        # At the leader, of the log whether learnt or not:
        self.proposed: dict[int, bool] = {}  # copies
        self.barrier_sent = [BOTTOM] * groups
        self.answered: dict[int, int] = {}  # joins
        self.left = [BOTTOM] * groups
        self.missing: dict[int, int] = {}  # silent members of whom something is missing: since when
        self.stopped: dict[int, int] = {}  # members: the number before the first of a life that is not over

    # What Optimistic overrides

    def targets(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        """Return who gets the first copy of a message."""
        return self.log.members

    def horizon(self) -> int:
        """Return the time up to which copies and requests are due."""
        return FOR_EVER

    def waits_until(self, ts: int, at_most: int) -> int:
        """Return the timestamp by which this one is due: a wrong clock may have set it far into the future."""
        return ts

    def on_heard(self, copy: Copy) -> None:
        """A copy came straight from its sender."""

    def on_due(self, copy: Copy) -> None:
        """A copy is due."""

    def on_ordered(self, m: AppMessage, x: int, ts: int) -> None:
        """A message of x to this group has its final timestamp."""

    def on_void(self, copy: Copy) -> None:
        """A copy will never be ordered."""

    # Multicast

    def clock(self) -> int:
        return self.params.stamp(self.now)

    def on_start(self) -> None:
        self.log.start()

    def on_multicast(self, m: AppMessage) -> None:  # l.6
        self.open[m.mid] = True
        m.done = seq_of(next(iter(self.open)))
        if self.blocked or self.senders.newest(self.g0, m.dest) is None:
            self.blocked.append(m)
        else:
            self.submit(MESSAGE, m)

    def on_multicast_request(self, client: int, m: AppMessage) -> None:
        """Multicast for a client, which asks again if nothing comes."""
        source = source_of(m, self.options, len(self.barrier))
        if source < 0:
            return
        if m.mid in self.refusals:
            self.send_one(client, Refusal(m.mid, self.g0, self.log.leader()))
        elif self.done[source].contains(m.mid):
            if self.g0 in m.dest and m.mid not in self.learning:
                self.reply(m)
        elif m.mid not in self.open and source == self.g0:
            self.open[m.mid] = True
            self.submit(MESSAGE, m)

    def submit(self, kind: int, m: AppMessage) -> None:
        t = max(self.clock(), self.last_stamp + 1)  # l.9
        epochs = (BOTTOM,) * len(m.dest)
        if kind == MESSAGE:
            memberships = self.senders.newest(self.g0, m.dest)
            if memberships is not None:  # else its group has left since a client chose it: it will be refused
                epochs = tuple([membership.asked for membership in memberships])
                for membership in memberships:
                    t = max(t, time_of(membership.since) + 1)
        self.last_stamp = t
        ts = timestamp(t, self.g0)
        if kind == MESSAGE and not self.options.on_final:
            self.request_barriers(ts, m)
        n, prev = self.numbers.next(m.dest)
        to = self.targets(m.dest) if kind == MESSAGE else self.log.members
        copy = self.unordered[key_of(self.pid, n)] = Copy(kind, m, self.pid, n, ts, prev, epochs)
        self.send(to, copy)  # l.10

    def request_barriers(self, ts: int, m: AppMessage) -> None:
        for h in m.dest:
            for x in self.senders.asked(h):
                if x != self.g0:
                    self.send(self.topology.groups[x], BarrierRequest(ts, h, m.mid))
        for h in m.dest:  # last: any entry for another group is a barrier for one's own
            if h != self.g0:
                self.send(self.topology.groups[h], BarrierRequest(ts, h, m.mid))

    # Messages

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Announce):
            self.on_announce(sender, msg)
        elif isinstance(msg, Copy):
            self.on_copy(sender, msg)
        elif isinstance(msg, BarrierRequest):
            self.on_request(msg)
        elif isinstance(msg, Decided):
            x = self.topology.group_of[sender]
            if self.learners[x].is_told(msg.i):
                self.on_learnt(x, msg.i, msg.kind, msg.ts, msg.m)
        elif isinstance(msg, Learnt):
            self.learnt_by[sender] = max(self.learnt_by[sender], msg.i)
        elif isinstance(msg, Multicast):
            self.on_multicast_request(sender, msg.m)
        else:
            self.log.receive(sender, msg)

    def on_copy(self, sender: int, copy: Copy) -> None:  # l.11
        if sender == copy.p:
            self.on_heard(copy)
        self.take(self.copies.receive(copy))

    def take(self, copies: list[Copy]) -> None:
        for copy in copies:
            key = key_of(copy.p, copy.n)
            self.undecided[key] = Undecided(copy, self.now, RELAY_AFTER * self.params.delta)  # l.13
            heappush(self.waiting, (self.waits_until(copy.ts, self.most), copy.p, key))
        self.advance()

    def let_go(self, ts: int) -> None:
        """Let the copies be due that have an initial timestamp up to this one."""
        while self.waiting and self.waiting[0][0] <= ts:
            _, _, key = heappop(self.waiting)
            undecided = self.undecided.get(key)
            if undecided is not None:
                undecided.due = True
                self.on_due(undecided.copy)
                self.propose(undecided.copy)

    def advance(self) -> None:
        """Do what is due: copies in the order of their initial timestamps, then requests."""
        horizon = self.horizon()
        self.let_go(timestamp(horizon + 1, 0) - 1)
        if self.log.status == LEADER:
            for h in range(len(self.requests)):
                if self.requests[h]:
                    self.serve(h, horizon)

    # The log of this group

    def append(self, kind: int, t: int, m: AppMessage) -> int:
        """Append as the leader, with this time or the next free one; return the timestamp."""
        entries = self.log.entries
        last = entries[-1][1] if entries else self.barrier[self.g0]
        ts = timestamp(max(t, time_of(last) + 1), self.g0)  # l.24, l.25, l.26
        self.log.append(kind, ts, m)
        self.note_sent(ts, m.dest)
        return ts

    def note_sent(self, ts: int, dest: tuple[int, ...]) -> None:
        for h in (self.g0, *dest):
            self.barrier_sent[h] = ts

    def propose(self, copy: Copy) -> None:  # l.20
        key = key_of(copy.p, copy.n)
        if self.log.status != LEADER or key in self.proposed or self.topology.group_of[copy.p] != self.g0:
            return
        self.proposed[key] = True
        m = copy.m
        t = time_of(copy.ts)
        if copy.kind == MESSAGE:
            for i, h in enumerate(m.dest):
                if copy.epochs[i] < self.left[h]:
                    self.append(REFUSED, t, wrap(AppMessage(m.mid, m.dest, b"", m.done), (key,)))
                    return
        ts = self.append(copy.kind, t, wrap(m, (key,)))
        if copy.kind == LEAVE:
            self.left[int.from_bytes(m.payload, "big")] = ts
        if copy.kind == MESSAGE and ts != copy.ts and not self.options.on_final:
            self.request_barriers(ts, m)

    def on_request(self, msg: BarrierRequest) -> None:
        if msg.ts > self.served[msg.h]:
            heappush(self.requests[msg.h], (msg.ts, self.waits_until(msg.ts, 0)))
            self.advance()

    def serve(self, h: int, horizon: int) -> None:
        """Give h a barrier above all requests that are due, unless one is on its way."""
        wanted = max([ts for ts, due in self.requests[h] if time_of(due) <= horizon], default=BOTTOM)
        if wanted > self.barrier_sent[h]:
            self.append(NULL, time_of(wanted) + 1, AppMessage(NOBODY, (h,), b""))

    def lead(self) -> None:
        """Count what the log holds as decided, and propose what it does not hold and is due."""
        self.proposed = {}
        self.barrier_sent = list(self.served)
        self.left = [self.senders.left[h].get(self.g0, BOTTOM) for h in range(len(self.left))]
        self.answered = dict(self.let_in)
        self.stopped = {p: self.copies.life(p) for p in self.log.members}
        for kind, ts, m in self.log.entries:
            self.note_sent(ts, m.dest)
            if kind == JOINED:
                facts = facts_of(m)
                self.answered[facts[0]] = facts[1]
            elif kind != NULL:
                self.proposed[facts_of(m)[0]] = True
                if kind == LEAVE:
                    self.left[leave_target(m)] = ts
                elif kind == STOP:
                    self.stopped[sender_in(facts_of(m)[0])] = number_in(facts_of(m)[0])
        due = [(u.copy.ts, u.copy.p, key) for key, u in self.undecided.items() if u.due]
        for _, _, key in sorted(due):
            self.propose(self.undecided[key].copy)
        for g in sorted(self.joins):
            self.answer_join(g)
        self.advance()

    # Learning

    def on_announce(self, sender: int, msg: Announce) -> None:
        x = self.topology.group_of[sender]
        rank = self.topology.rank_of[sender]
        for place, (kind, ts, m) in enumerate(msg.entries, msg.i):
            if self.learners[x].hears(rank, msg.b, place):
                self.on_learnt(x, place, kind, ts, m)

    def on_learnt(self, x: int, i: int, kind: int, ts: int, m: AppMessage) -> None:
        assert ts > self.barrier[x], "timestamps of a log grow"
        self.barrier[x] = ts  # l.16, l.30
        if self.monitor is not None:
            self.monitor.decided(x, i, (kind, ts, m))
        if x == self.g0:
            self.log_learnt(i, kind, ts, m)
        if kind == JOINED:
            self.on_joined(x, ts, facts_of(m))
        elif kind != NULL:
            key = facts_of(m)[0]
            if kind == MESSAGE:
                self.stamp(x, ts, unwrap(m, 1), key)
            elif kind == REFUSED:
                self.on_refused(x, m, key)
            elif kind == JOIN:
                self.on_join_request(x, ts, m)
            elif kind == LEAVE:
                self.on_leave(x, leave_target(m), ts)
            self.undecided.pop(key, None)  # l.29
            self.unordered.pop(key, None)
            released = self.copies.ordered(sender_in(key), number_in(key))
            if kind == STOP:
                self.on_stop(sender_in(key), number_in(key))
            self.take(released)
        self.deliver_stamped()

    def log_learnt(self, i: int, kind: int, ts: int, m: AppMessage) -> None:
        """Take note of an entry of this group."""
        for h in (self.g0, *m.dest):
            self.served[h] = ts
            self.null_sent[h] = self.now
            requests = self.requests[h]
            while requests and requests[0][0] < ts:
                heappop(requests)
        outside = self.log.outside(m.dest)
        if outside and not self.options.direct:
            self.send(outside, Decided(i, kind, ts, m))  # l.31

    def stamp(self, x: int, ts: int, m: AppMessage, key: int) -> None:
        if self.done[x].contains(m.mid):
            return  # a client asked two members
        if self.g0 in m.dest:
            self.on_ordered(m, x, ts)
        self.done[x].add(m)
        if self.open.pop(m.mid, False) and sender_of(m.mid) == self.pid:
            self.out.completed.append(m.mid)
        if x == self.g0 and self.options.on_final and sender_in(key) == self.pid:
            self.request_barriers(ts, m)
        if self.g0 in m.dest:  # l.27
            self.learning[m.mid] = True
            if not self.stamped:
                self.waits_since = self.now
            heappush(self.stamped, (ts, m))  # l.15, l.28

    def deliver_stamped(self) -> None:  # l.32
        while self.stamped:
            ts, m = self.stamped[0]  # l.33
            for x, activation in self.required:
                if ts > activation and self.barrier[x] < ts:  # l.34
                    return
            heappop(self.stamped)
            assert ts > self.delivered_ts, "delivered below a delivered timestamp"
            self.delivered_ts = ts
            self.waits_since = self.now
            del self.learning[m.mid]
            if self.monitor is not None:
                self.monitor.deliver_sent(m.mid, ts)
            self.deliver(m, ts)  # l.35, l.36
            self.reply(m)

    def reply(self, m: AppMessage) -> None:
        client = sender_of(m.mid)
        if client >= self.topology.replicas:
            self.send_one(client, Reply(m.mid, self.g0, self.log.leader(), self.log.cballot))

    # Senders that crashed

    def stop_the_dead(self) -> None:
        """Order that nothing more comes of members that are silent, and of whom something is missing."""
        if self.log.status != LEADER:
            return
        for rank, p in enumerate(self.log.members):
            if not self.copies.waits(p) or not self.log.detector.suspected[rank]:
                self.missing.pop(p, None)
                continue
            since = self.missing.setdefault(p, self.now)
            first = self.copies.life(p) + LIFE
            long = self.now - since >= STOP_AFTER * self.params.delta  # perhaps somebody has what is missing
            if long and self.stopped.get(p, 0) < first <= MOST_LIVES * LIFE:
                self.stopped[p] = first
                everybody = tuple(range(len(self.barrier)))
                self.append(STOP, self.clock(), wrap(AppMessage(NOBODY, everybody, b""), (key_of(p, first),)))

    def on_stop(self, p: int, first: int) -> None:
        """Forget the copies of p with lower numbers. If p is this process, it is not dead, and sends them again.

        The leader may still order some of them, until it learns this: then they are ordered twice and count once.
        """
        for key, undecided in list(self.undecided.items()):
            if sender_in(key) == p and number_in(key) < first:
                del self.undecided[key]
                self.on_void(undecided.copy)
        if p == self.pid:
            self.numbers.begin(first)
            again = list(self.unordered.values())
            self.unordered = {}
            for copy in again:
                if copy.kind != MESSAGE:
                    self.submit(copy.kind, copy.m)
            self.blocked = [copy.m for copy in again if copy.kind == MESSAGE] + self.blocked
            self.unblock()

    # Reconfiguration

    def on_reconfigure(self, join: bool, h: int) -> None:
        """Let this group send to h from now on, or no longer."""
        target = h.to_bytes(2, "big")
        dest = (h,) if join else tuple(sorted({h, *self.senders.of[h]}))
        self.submit(JOIN if join else LEAVE, AppMessage(NOBODY, dest, target))

    def on_join_request(self, g: int, ts: int, m: AppMessage) -> None:
        if self.g0 in m.dest and g not in self.senders.of[self.g0]:  # else nothing changes
            self.joins[g] = ts
            self.answer_join(g)

    def answer_join(self, g: int) -> None:
        asked = self.joins[g]
        if self.log.status != LEADER:
            return
        if g in self.answered and not self.senders.ended(self.g0, g, self.answered[g]):
            return
        self.answered[g] = asked
        members = {x: memberships[-1].asked for x, memberships in self.senders.of[self.g0].items()}
        for kind, ts, m in self.log.entries:
            if kind == JOINED and ts > self.barrier[self.g0]:
                x, request = facts_of(m)[:2]
                if not self.senders.ended(self.g0, x, request):
                    members[x] = request
        facts = [g, asked]
        for x in sorted(members):
            facts += [x, members[x]]
        dest = tuple(sorted({g, *members}))
        t = max(self.clock(), time_of(asked) + 1)
        self.append(JOINED, t, wrap(AppMessage(NOBODY, dest, b""), tuple(facts)))

    def on_joined(self, h: int, ts: int, facts: list[int]) -> None:
        """Take note that h lets a group in, from this timestamp on."""
        g, asked = facts[0], facts[1]
        if g == self.g0 or h == self.g0:
            self.senders.joined(h, g, asked, ts)
        if h == self.g0:
            self.required = self.senders.required(h)
            self.let_in[g] = asked
            if g in self.senders.of[h]:
                self.joins.pop(g, None)
        else:
            members = [(facts[i], facts[i + 1]) for i in range(2, len(facts), 2) if facts[i] != g]
            self.senders.is_told(h, self.g0, [*members, (g, asked)])
            self.request_for_history(h, g, asked)
        if not self.senders.ended(h, g, asked):
            self.note(GroupsChange(True, g, h, time_of(asked)))
            self.unblock()

    def request_for_history(self, h: int, g: int, asked: int) -> None:
        """Ask g for a barrier: messages to h that were ordered before this group knew of g need it too."""
        if self.log.status != LEADER or g == self.g0:
            return
        late = [(ts, m.mid) for kind, ts, m in self.log.entries if kind == MESSAGE and h in m.dest and ts > asked]
        if late:
            self.send(self.topology.groups[g], BarrierRequest(late[-1][0], h, late[-1][1]))

    def on_leave(self, g: int, h: int, ts: int) -> None:
        self.senders.leaves(h, g, ts)
        if h == self.g0:
            self.joins.pop(g, None)  # it asked before it left
        self.required = self.senders.required(self.g0)
        self.note(GroupsChange(False, g, h, time_of(ts)))

    def on_refused(self, x: int, m: AppMessage, key: int) -> None:
        self.open.pop(m.mid, None)
        if self.done[x].contains(m.mid):
            return  # a client asked two members, and the other one could send it
        self.done[x].add(m)
        if x != self.g0:
            return
        self.out.refused.append(m.mid)
        client = sender_of(m.mid)
        if client >= self.topology.replicas:
            self.refusals[m.mid] = True
            if len(self.refusals) > MOST_REFUSALS:
                del self.refusals[next(iter(self.refusals))]
            self.send_one(client, Refusal(m.mid, self.g0, self.log.leader()))

    def unblock(self) -> None:
        while self.blocked and self.senders.newest(self.g0, self.blocked[0].dest) is not None:
            self.submit(MESSAGE, self.blocked.pop(0))

    # Timers

    def on_suspect(self) -> None:
        self.log.suspect_leader()

    def on_gone(self, pid: int) -> None:
        self.log.lost(pid)

    def on_timer(self, name: str) -> None:
        if name == "tick":
            self.log.tick(self.learners[self.g0].learnt)
            self.stop_the_dead()
            self.relay()
            self.pass_requests_on()
            self.pull()
            self.send_nulls()
            self.tell_learnt()
        self.advance()

    def relay(self) -> None:
        """Pass on what has not been ordered for long to the group that must order it."""
        for undecided in self.undecided.values():
            if undecided.relay_at <= self.now:
                source = self.topology.group_of[undecided.copy.p]
                to = self.log.others if source == self.g0 else self.topology.groups[source]
                self.send(to, undecided.copy)
                undecided.delay = min(2 * undecided.delay, LONGEST_RELAY * self.params.delta)
                undecided.relay_at = self.now + undecided.delay

    def pass_requests_on(self) -> None:
        """Tell the leader of requests for barriers that are not served: they may have reached followers only."""
        for h, requests in enumerate(self.requests):
            wanted = max([ts for ts, _ in requests], default=BOTTOM)
            if wanted > BOTTOM and wanted == self.unserved[h] and self.log.status == FOLLOWER:
                self.send_one(self.log.leader(), BarrierRequest(wanted, h, NOBODY))
            self.unserved[h] = wanted

    def pull(self) -> None:
        """Ask for the barriers that are missing for long."""
        if not self.stamped or self.now - self.waits_since < PULL_AFTER * self.params.delta:
            return
        self.waits_since = self.now
        ts, m = max(self.stamped)
        for x, activation in self.required:
            if ts > activation and self.barrier[x] < ts:
                self.send(self.topology.groups[x], BarrierRequest(ts, self.g0, m.mid))

    def send_nulls(self) -> None:
        if self.log.status != LEADER or not self.options.null_after:
            return
        for h in range(len(self.null_sent)):
            served = self.g0 in self.senders.of[h] or h == self.g0
            if served and self.clock() - self.params.stamp(self.null_sent[h]) >= self.options.null_after:
                self.append(NULL, self.clock(), AppMessage(NOBODY, (h,), b""))

    def tell_learnt(self) -> None:
        for x, learner in enumerate(self.learners):
            learner.tidy()
            if x != self.g0 and learner.told < learner.learnt:
                learner.told = learner.learnt
                self.send(self.topology.groups[x], Learnt(learner.learnt))
        self.learnt_by[self.pid] = self.learners[self.g0].learnt
        self.log.forget_learnt(self.learnt_by)

    def heard(self, rank: int, delivered: int) -> None:
        member = self.log.members[rank]
        self.learnt_by[member] = max(self.learnt_by[member], delivered)

    # What drivers and people look at

    def idle(self) -> bool:
        if self.log.status == RECOVERING or self.learners[self.g0].learnt + 1 < self.log.length():
            return False
        requested = any(self.requests)
        return not (self.undecided or self.stamped or self.blocked or self.joins or requested)

    def may_send_to(self) -> list[int]:
        return [h for h in range(len(self.topology.groups)) if self.g0 in self.senders.of[h]]

    def has_unanswered_joins(self) -> bool:
        return bool(self.joins)

    def holds_back(self) -> bool:
        return bool(self.blocked)

    def leads(self) -> bool:
        return self.log.status == LEADER

    def condition(self) -> dict[str, object]:
        senders = [f"g{g}" for g in self.senders.of[self.g0]]
        return {**self.log.condition(), "delivered": time_of(self.delivered_ts), "senders": senders}

    def footprint(self) -> int:
        remembered = sum([done.size() for done in self.done])
        return len(self.log.entries) + len(self.undecided) + len(self.stamped) + remembered


def leave_target(m: AppMessage) -> int:
    """Return the group that a LEAVE entry is about."""
    return int.from_bytes(unwrap(m, 1).payload, "big")


ROW: Final[Protocol] = Protocol(
    name="baseline",
    title="Baseline atomic multicast",
    replica=Baseline,
    client=OamClient,
    orders=("total", "fifo"),
    tolerates="crash of a minority in each group, any client",
    latency="3δ",
    messages=MESSAGES,
    genuine=False,
    monitor=LogMonitor,
    least_delivered=85,
)
