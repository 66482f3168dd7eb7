"""AllConcur+: leaderless atomic broadcast in rounds, without redundancy while nobody fails.

In an unreliable round [e, r] messages travel along trees; it is complete with a message of every server, and delivered
when the next one is complete as well. A failure notification takes everybody back to the first undelivered round, which
is run again as a reliable round [[e+1, r]] over the digraph G_R: complete when every missing message is known to be
lost (early termination by tracking), and delivered at once. Who is silent in a reliable round is removed.

Paper: Poke, Glass, "A Dual Digraph Approach for Leaderless Atomic Broadcast" (extended), Algorithms 1 to 6 and Table I;
`# l.N` is a line there. Transitions: T_UU, T_R▷ (no failure), T_UR, T_▷R, T_RR (failure), T_Sk (skip).

Latency in message delays: twice the depth of the tree; every server receives each message once. Not uniform: what a
server delivers, and replies to a client, before it crashes binds nobody else.

Departures: duplicates of notifications and premature messages are dropped (l.28, l.45 would forward for ever); l.73
empties M^prev; completion is tried again until nothing completes; a server sends an empty message where others could
not go on without it, and rounds of empty messages need no successor; a message that is run again is the same as before.
Of a predecessor that a server has reported, and of a removed server, it ignores reliable messages that come directly.
An eon ends (§IV-D) when members agree upon others through a broadcast: the next reliable round that completes is the
transitional one, forced by a marker that spreads like a notification; then all change to the new members' digraph. Who
joins is given what is stable only, and enters when more than half of the members before welcome it alike: the paper
leaves open what a newcomer may believe, and one member alone may have delivered what the others run again.
A detector is never perfect where processes stand still: a server that suspects all its predecessors, or is suspected by
all its successors, stops, and only a minority is removed in one round, so that no server goes on without the others.
A removal ends the eon, so that G_R has its full degree again; the paper's stays as it is until somebody joins, and so
bears f crashes in all.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.notes import MembersChange, RoundBegins, Stops, Suspicion
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Multicast
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.digraphs import bears_uniformly
from amcast.protocols.allconcur.membership import Ask, JoiningServer, Past, Welcome
from amcast.protocols.allconcur.messages import (
    MESSAGES,
    RECONFIGURE,
    REVOKE,
    STARTED,
    Eon,
    Round,
    highest_started,
    holds_reliable,
    loaded,
    number_of,
)
from amcast.protocols.allconcur.overlay import Fail, Removed
from amcast.protocols.allconcur.rounds import Batch, Control, Reliable, RoundClient, RoundMessage, Unreliable
from amcast.protocols.parts.failure_detectors import Alive

STALLED: Final = 10  # heartbeats without progress, after which a server is not ready


class AllConcurPlus(JoiningServer):
    uniform = False
    always_reliable = False
    rerun_reliably = False
    rerun_in_one = False
    strict = True  # assert what the paper proves to be impossible

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.e = 1
        self.r = 1
        self.reliable = False
        self.m: Round = [None] * topology.replicas  # M
        self.got = 0
        self.prev: Round | None = None  # M^prev: the unreliable round that is complete and not delivered
        self.held: Round | None = None  # the one before it, where delivery waits for more (uniform)
        self.stash: dict[int, RoundMessage] = {}  # M^next: of one state only
        self.own: dict[int, tuple[Batch, Control]] = {}  # round -> what this server broadcasts in it
        self.started = 0  # the highest round of those
        self.frozen = False  # no message is added any more (votes)
        self.early: list[tuple[int, Message]] = []  # of a later eon
        self.marker = 0  # the round in which an end of this eon was agreed upon, if known
        self.settled = 0  # the last reliable round that was completed: no marker up to it counts
        self.reconfiguration: tuple[int, ...] = ()
        self.agreed_in = 0
        self.gone = [False] * topology.replicas
        self.suspicions: dict[int, tuple[int, int]] = {}  # predecessor -> seq, round
        self.revocations: dict[int, tuple[int, int]] = {}  # those to be revoked
        self.revoked: dict[tuple[int, int], int] = {}
        self.beats = 0  # heartbeats since there was progress, while something is to be done
        self.seen = (0, 0, 0, 0)

    def on_start(self) -> None:
        members = self.topology.groups[self.g0]
        members = members[: len(members) - self.params.spare]
        if self.pid in members:
            self.begin_eon(members)
            self.reliable = self.always_reliable
        else:
            self.eon = 0
        self.beat()

    # Algorithm 1

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Unreliable):
            self.on_unreliable(sender, msg)
        elif isinstance(msg, Reliable):
            self.on_reliable(sender, msg)
        elif isinstance(msg, Alive):
            if self.gone[sender]:
                self.tell_removed(sender)
            else:
                self.hear(sender)
        elif isinstance(msg, Fail):
            self.on_fail(sender, msg)
        elif isinstance(msg, Multicast):
            self.on_request(sender, msg.m)
        elif isinstance(msg, Eon):
            self.on_eon(sender, msg)
        elif isinstance(msg, Welcome):
            self.on_welcome(sender, msg)
        elif isinstance(msg, Ask):
            self.on_ask(sender, msg)
        elif isinstance(msg, Past):
            self.on_past(sender, msg)
        elif isinstance(msg, Removed) and msg.eon >= self.eon and self.eon > 0:
            self.on_removed()

    def on_removed(self) -> None:
        self.note(Stops("removed"))
        self.out.halted = True

    def kick(self) -> None:
        if self.eon > 0 and self.m[self.pid] is None and self.must_send():
            self.a_broadcast()
            self.try_to_complete()

    def must_send(self) -> bool:  # l.3
        """Return True if others wait for a message of this server, or it has something to say."""
        if self.got > 0 or self.queue or self.wanted:
            return True
        own = self.own.get(self.r)
        if own is not None and (own[0] or own[1]):
            return True
        if self.always_reliable:
            return bool(self.notices or self.marker or self.revocations)
        return self.reliable or loaded(self.prev) or loaded(self.held)

    def a_broadcast(self) -> None:  # l.7
        if self.m[self.pid] is not None:
            return
        own = self.own.get(self.r)
        if own is None:
            own = (self.take_batch(), self.take_control())
            self.own[self.r] = own
            self.started = max(self.started, self.r)
        msg: RoundMessage
        if self.reliable:  # l.9
            batch, control = self.reliable_content(own)
            msg = Reliable(self.eon, self.e, self.r, self.pid, batch, control)
            if self.successors:
                self.send(self.successors, msg)  # l.14
        else:  # l.8
            msg = Unreliable(self.eon, self.e, self.r, self.pid, own[0], own[1])
            children = self.overlay.children(self.pid, self.pid)
            if children:
                self.send(children, msg)  # l.11
        self.m[self.pid] = msg  # l.12, l.15
        self.got += 1

    def reliable_content(self, own: tuple[Batch, Control]) -> tuple[Batch, Control]:
        """Return what the latency options of §V-B add: which rounds have begun, or a second round."""
        if self.rerun_reliably:
            return own[0], (*own[1], (STARTED, self.started))
        if self.rerun_in_one and self.r + 1 in self.own:
            second = self.own[self.r + 1]
            return own[0] + second[0], own[1] + second[1]
        return own

    def take_control(self) -> Control:
        control: list[tuple[int, ...]] = []
        for p, (seq, since) in list(self.revocations.items()):
            if self.r > since:  # in the round of the suspicion itself, messages were ignored
                control.append((REVOKE, p, self.pid, seq))
                del self.revocations[p]
        if self.wanted:
            control.append((RECONFIGURE, self.eon + 1, *self.wanted))
            self.wanted = ()
        return tuple(control)

    # Algorithm 2

    def on_unreliable(self, sender: int, msg: Unreliable) -> None:  # l.17
        if msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
        elif msg.e == self.e and msg.r == self.r:  # l.21
            assert not (self.reliable and self.strict), "Theorem III.3: one kind of state per epoch and round"
            if self.reliable or self.m[msg.origin] is not None:
                return
            self.take_unreliable(msg)  # l.22
            if self.m[self.pid] is None:
                self.a_broadcast()  # l.23
            if self.got == len(self.members) or self.held is not None:
                self.try_to_complete()  # l.24
        elif msg.e < self.e or msg.r < self.r:  # l.18
            if self.gone[sender]:
                self.tell_removed(sender)
        elif msg.e == self.e and msg.r == self.r + 1:
            if not self.stash or not holds_reliable(self.stash):  # l.20
                self.stash[msg.origin] = msg
        else:
            assert not self.strict, "Theorem III.4: an unreliable message is at most one round ahead"

    def take_unreliable(self, msg: RoundMessage) -> None:
        children = self.overlay.children(self.pid, msg.origin)
        if children:
            self.send(children, msg)
        self.m[msg.origin] = msg
        self.got += 1

    # Algorithm 3

    def on_reliable(self, sender: int, msg: Reliable) -> None:  # l.25
        if self.eon == msg.eon and self.deaf[sender]:
            if self.gone[sender]:
                self.tell_removed(sender)
            return
        if msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
        elif msg.e == self.e and msg.r == self.r and self.reliable:
            self.take_reliable(msg)
        elif msg.e < self.e or msg.r < self.r:  # l.26
            return
        elif msg.e > self.e:  # l.27
            if not (self.reliable and msg.e == self.e + 1 and msg.r == self.r + 1):
                assert not self.strict, "Theorem III.5: from the next epoch only to a reliable round, one round ahead"
                return
            if self.stash and not holds_reliable(self.stash):
                self.stash.clear()  # l.29
            if msg.origin not in self.stash:
                self.send(self.successors, msg)  # l.28
                self.stash[msg.origin] = msg  # l.30
        else:  # l.31
            possible = self.reliable and msg.r == self.r + 1 and self.prev is not None and not self.frozen
            assert possible or not self.strict, "Theorem III.6: a skip from a reliable round to the next"
            if possible:  # l.32
                self.skip()
                self.take_reliable(msg)

    def take_reliable(self, msg: RoundMessage) -> None:
        if self.m[msg.origin] is not None or self.frozen:
            return
        if self.successors:
            self.send(self.successors, msg)  # l.40
        self.m[msg.origin] = msg
        self.got += 1
        if self.m[self.pid] is None:
            self.a_broadcast()  # l.41
        if self.got == len(self.members) or self.notices:
            self.try_to_complete()  # l.42

    def skip(self) -> None:
        prev = self.prev
        assert prev is not None
        self.prev = None  # l.35
        self.release(prev)  # l.33-34
        self.clear_round()
        self.stash.clear()
        self.r += 1  # l.39
        self.note_state("T_Sk")

    def release(self, undelivered: Round) -> None:
        """Deliver an unreliable round that all deliver: it was completed before the current one."""
        self.deliver_round(undelivered)

    # Algorithm 4

    def on_suspicion(self, p: int) -> None:
        self.note(Suspicion(self.topology.name(p), True))
        if self.revocations.pop(p, None) is not None:
            return  # the notification is still good
        self.own_seq += 1
        self.suspicions[p] = (self.own_seq, self.r)
        self.deaf[p] = True
        self.on_fail(self.pid, Fail(self.eon, p, self.pid, self.own_seq))

    def on_trusted(self, p: int) -> None:
        self.note(Suspicion(self.topology.name(p), False))
        if (p, self.pid) in self.seqs:
            self.revocations[p] = self.suspicions[p]

    def on_fail(self, sender: int, msg: Fail) -> None:  # l.43
        if msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
            return
        if not (self.is_member[msg.target] and self.is_member[msg.owner]):  # l.44
            return
        pair = (msg.target, msg.owner)
        if self.seqs.get(pair, -1) >= msg.seq or self.revoked.get(pair, -1) >= msg.seq:
            return
        self.send(self.successors, msg)  # l.45
        self.to_reliable()  # l.46-49
        self.add_notice(msg)  # l.50-52
        if not self.forgives and self.alone():
            self.note(Stops(self.alone()))  # the others go on without it, or nobody does
            self.out.halted = True
            return
        self.go_on()

    def to_reliable(self) -> None:
        if self.reliable:
            return
        self.clear_round()  # l.47
        self.stash.clear()
        self.e += 1
        self.reliable = True
        if self.prev is not None:
            self.r -= 1
        self.note_state("T_UR" if self.prev is not None else "T_▷R")

    def go_on(self) -> None:
        """Go on in a reliable round, which may just have begun."""
        self.a_broadcast()
        held = self.held
        if held is not None:  # own message went to more successors than can fail: all will skip what is held
            self.held = None
            self.release(held)
        self.try_to_complete()  # l.53

    # Algorithm 5

    def try_to_complete(self) -> None:  # l.54
        while self.is_in() and (self.complete_reliable() if self.reliable else self.complete_unreliable()):
            if self.marker and not self.reliable:
                self.to_reliable()
                self.go_on()
            elif self.must_send():
                self.a_broadcast()  # l.63, l.87

    def is_in(self) -> bool:
        return self.eon > 0 and not self.out.halted

    def complete_unreliable(self) -> bool:
        held = self.held
        if held is not None:
            others = self.got - (1 if self.m[self.pid] is not None else 0)
            if others >= self.enough() and self.may_deliver(held):
                self.held = None
                self.deliver_round(held)
                if self.marker:
                    return True
        if self.got < len(self.members) or self.held is not None:  # l.56
            return False
        done = self.prev
        self.prev = self.m  # l.62
        self.is_whole(self.prev)
        self.clear_round()
        self.r += 1  # l.59
        self.note_state("T_UU")
        if done is not None:
            if self.uniform:
                assert self.held is None
                self.held = done
            else:
                self.deliver_round(done)  # l.57-58
        self.take_stash()
        return True

    def enough(self) -> int:
        """Return how many others must have come two rounds further before a round is delivered (uniform)."""
        return min(self.overlay.degree - 1, (len(self.members) - 1) // 2)

    def complete_reliable(self) -> bool:
        missing: list[int] = []
        if self.got < len(self.members):
            if not self.notices:
                return False
            missing = [p for p in self.members if self.m[p] is None]
            if not self.goes_on_without(missing):  # l.64
                return False
        if self.m[self.pid] is None or not self.confirmed():
            return False
        done = self.m
        self.prev = None  # l.73
        self.deliver_round(done)  # l.65
        if self.rerun_in_one:
            self.own.pop(self.r + 1, None)  # was broadcast together with this one
        self.settled = self.r
        agreed = len(self.reconfiguration) > 0 and self.r > self.agreed_in
        if agreed or missing:  # l.66-71
            self.end_eon(self.reconfiguration if agreed else self.members, missing)
            return True
        if not self.reconfiguration and self.r >= self.marker:
            self.marker = 0
        self.clear_round()
        self.frozen = False
        self.r += 1
        again = self.rerun_reliably and self.r <= highest_started(done)
        if not self.notices and not self.marker and not self.always_reliable and not again:  # l.74
            self.reliable = False
            self.note_state("T_R▷")  # l.75
        else:
            self.e += 1
            self.note_state("T_RR")  # l.80
        self.take_stash()
        return True

    def goes_on_without(self, missing: list[int]) -> bool:
        """Return True if the messages of these are lost, and they are to be removed."""
        return 2 * len(missing) < len(self.members) and self.all_lost(missing)

    def is_whole(self, done: Round) -> None:
        """Take note that everybody's message of this round is here, before anybody can conclude that."""

    def may_deliver(self, done: Round) -> bool:
        """Return True if this server counts as one that has this whole round."""
        return True

    def confirmed(self) -> bool:
        """Return True if a complete reliable round may be delivered."""
        return True

    def take_stash(self) -> None:
        """Take what came too early, if it belongs to the state that has just begun."""
        stash, self.stash = self.stash, {}
        for msg in stash.values():
            if msg.e != self.e or msg.r != self.r or isinstance(msg, Reliable) != self.reliable:
                return  # l.81-82: all are of another state
            if self.reliable:
                self.m[msg.origin] = msg  # l.84-85, relayed already
                self.got += 1
            else:
                self.take_unreliable(msg)  # l.61, l.77

    def clear_round(self) -> None:
        self.m = [None] * self.replicas
        self.got = 0

    def deliver_round(self, done: Round) -> None:
        self.stable = len(self.log)
        for msg in done:
            if msg is None:
                continue
            if msg.batch:
                if self.keeps_log:
                    for m in msg.batch:
                        if not self.done.contains(m.mid):  # as it is delivered
                            self.log.append(m)
                self.deliver_message(msg)
            if msg.control:
                self.obey(msg.r, msg.control)
        self.own.pop(number_of(done), None)

    def obey(self, r: int, control: Control) -> None:
        for order in control:
            if order[0] == REVOKE:
                target, owner, seq = order[1], order[2], order[3]
                self.revoked[target, owner] = max(seq, self.revoked.get((target, owner), -1))
                if self.seqs.get((target, owner), seq + 1) <= seq:
                    self.forget(target, owner)
                    if owner == self.pid and not self.gone[target]:
                        self.deaf[target] = False
            elif order[0] == RECONFIGURE and order[1] == self.eon + 1 and not self.reconfiguration:
                self.reconfiguration = order[2:]
                self.agreed_in = r
                self.marker = r
                self.send(self.successors, Eon(self.eon, r))

    # Eons

    def on_change_members(self, members: tuple[int, ...]) -> None:
        self.wanted = tuple(sorted(members))
        self.kick()

    def on_eon(self, sender: int, msg: Eon) -> None:
        if msg.eon != self.eon:
            self.on_other_eon(sender, msg.eon, msg)
        elif msg.r0 > self.settled and msg.r0 > self.marker:
            self.send(self.successors, msg)
            self.marker = msg.r0
            self.to_reliable()
            self.go_on()

    def on_other_eon(self, sender: int, eon: int, msg: Message) -> None:
        if eon > self.eon:
            self.early.append((sender, msg))
        elif self.gone[sender]:
            self.tell_removed(sender)

    def end_eon(self, wanted: tuple[int, ...], missing: list[int]) -> None:
        """Begin the next eon with these members, but for those that are lost: all do so after the same round."""
        members = tuple([p for p in wanted if p not in missing])
        new = tuple([p for p in members if not self.is_member[p]])
        e = self.epoch_of_next_eon()
        for p in self.members:
            if p not in members:
                self.gone[p] = True
        gone = tuple([p for p in range(self.replicas) if self.gone[p] and p not in new])
        past = len(self.log)
        old = len(self.members) - len(missing)
        self.greeting = Welcome(self.eon + 1, e, self.r + 1, members, gone, past, self.log.prefix(past), old)
        if new:
            self.send(new, self.greeting)
        if self.pid in members:
            self.begin_state(self.eon + 1, e, self.r + 1, members)
        else:
            self.step_out()

    def epoch_of_next_eon(self) -> int:
        return self.e + 1 if self.always_reliable else self.e

    def step_out(self) -> None:
        """Go on as no member."""
        self.out.halted = True

    def begin_state(self, eon: int, e: int, r: int, members: tuple[int, ...]) -> None:
        """Begin the first state of an eon."""
        self.eon = eon
        self.before_eon = len(self.log)
        self.e = e
        self.r = r
        self.reliable = self.always_reliable
        self.frozen = False
        self.marker = 0
        self.reconfiguration = ()
        self.wanted = ()  # was meant for the members of another eon
        self.suspicions = {}
        self.revocations = {}
        self.revoked = {}
        self.stash.clear()
        self.clear_round()
        for p in members:
            if self.gone[p]:  # it comes back
                self.gone[p] = False
                self.detector.suspected[p] = False
        self.begin_eon(members)
        self.note(MembersChange(len(members), eon))
        early, self.early = self.early, []
        for p in self.predecessors:
            if self.detector.suspected[p]:
                self.on_suspicion(p)
        for sender, msg in early:
            self.on_message(sender, msg)

    def enter(self, welcome: Welcome) -> None:
        self.greeting = welcome
        for p in welcome.gone:
            self.gone[p] = True
        self.begin_state(welcome.eon, welcome.e, welcome.r, welcome.members)
        self.kick()

    def tell_removed(self, p: int) -> None:
        if not self.told[p]:
            self.told[p] = True
            self.send_one(p, Removed(self.eon))

    # For drivers

    def note_state(self, transition: str) -> None:
        self.note(RoundBegins(self.e, self.r, self.reliable, transition))

    def idle(self) -> bool:
        if self.queue or self.wanted or self.notices or self.marker or self.revocations:
            return False
        if (self.reliable and not self.always_reliable) or (self.always_reliable and self.got > 0):
            return False
        return not (loaded(self.m) or loaded(self.prev) or loaded(self.held))

    def on_beat(self) -> None:
        super().on_beat()
        seen = (self.eon, self.e, self.r, self.got)
        self.beats = self.beats + 1 if seen == self.seen and self.eon > 0 and not self.idle() else 0
        self.seen = seen

    def unready(self) -> str:
        if self.eon == 0:
            return "joining"
        return "rounds make no progress" if self.beats > STALLED else self.detector.waits()

    def condition(self) -> dict[str, object]:
        role = "member" if self.eon > 0 else "outside"
        ballot = f"{self.eon}.{self.e}.{self.r}"
        return {"role": role, "ballot": ballot, "members": len(self.members), "waits": self.unready()}

    def footprint(self) -> int:
        return super().footprint() + len(self.own) + len(self.stash) + len(self.seqs) + len(self.early)


@final
class AllConcurPlusUniform(AllConcurPlus):
    """Appendix C: what a server delivers before it fails, all others deliver as well. One message delay more.

    A round is delivered when f others have gone two rounds further. If that is interrupted, the round stays held and is
    delivered behind one's own reliable message, which makes everybody else skip it.
    """

    uniform = True


@final
class AllConcurPlusRerun(AllConcurPlus):
    """§V-B, first latency option: every round that had begun before a rollback is run again reliably."""

    rerun_reliably = True


@final
class AllConcurPlusMerge(AllConcurPlus):
    """§V-B, second latency option: all undelivered rounds are run again in one reliable round."""

    rerun_in_one = True


ROW: Final[Protocol] = Protocol(
    name="allconcur_plus",
    title="AllConcur+",
    replica=AllConcurPlus,
    client=RoundClient,
    tolerates="f crashes, G_R of degree f + 1, a minority; not uniform",
    latency="2 tree depths",
    messages=MESSAGES,
    single_group=True,
    reliable_links=True,
    uniform=False,
    detector="P",
    bears=bears_uniformly,
    least_delivered=90,
)
UNIFORM_ROW: Final[Protocol] = replace(
    ROW,
    name="allconcur_plus_uniform",
    title="AllConcur+, uniform",
    replica=AllConcurPlusUniform,
    tolerates="f crashes, G_R of degree f + 1, a minority",
    latency="2 tree depths + 1",
    uniform=True,
)
RERUN_ROW: Final[Protocol] = replace(
    ROW, name="allconcur_plus_rerun", title="AllConcur+, rerunning reliably", replica=AllConcurPlusRerun
)
MERGE_ROW: Final[Protocol] = replace(
    ROW, name="allconcur_plus_merge", title="AllConcur+, rerunning in one round", replica=AllConcurPlusMerge
)
