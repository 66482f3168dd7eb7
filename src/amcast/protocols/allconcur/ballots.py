"""How an eon of AllConcur ends when its rounds are stuck: its members decide, by ballots of which a majority is enough.

Within an eon a round has one possible outcome, everybody's message. It is delivered when a majority is known to have
all of it, so it stands for ballot 0 of a consensus with a single value. When a message is lost, or rounds make no
progress, a member prepares a ballot. Whoever promises takes no part in rounds of this eon any more, and tells which
whole rounds it has. The one who prepared proposes that the eon ends behind the last whole round that somebody has, and
which members the next one begins with: those who promised, but for those whom nobody hears. What a majority accepts is
decided. Any round that was delivered by anybody is among those that a majority reports, so nothing is undone.

A member of the next eon may be out of it before it begins: it lost its disk behind its promise. When there are only two
members then, no majority is left. So one of two decides alone as soon as the other one has said that it is out of it.

Who learns that the others went on without it steps out, keeps what it delivered, and asks to join again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.core.wire import Message, wired
from amcast.protocols.allconcur.allconcur_plus import AllConcurPlus
from amcast.protocols.allconcur.membership import Ask
from amcast.protocols.allconcur.messages import RECONFIGURE, Round, number_of
from amcast.protocols.allconcur.overlay import Fail, overlay_of
from amcast.protocols.allconcur.rounds import Batch, Control, Reliable

Content = tuple[tuple[int, Batch, Control], ...]  # of a whole round, by origin
Rounds = tuple[tuple[int, Content], ...]  # by number

KEPT: Final = 4  # rounds that were delivered last: no member is further behind
ANSWERS: Final = 5  # heartbeats in which members that nobody suspects are to promise
PATIENCE: Final = 10  # heartbeats beyond the time-out without progress, after which a ballot is prepared
LONGEST_PATIENCE: Final = 20  # heartbeats that a long time-out counts at most


@final
@dataclass
class Prepare(Message):
    """Asks for a promise. With ballot 0 it asks how this eon ended."""

    eon: int
    ballot: int


@final
@dataclass
class Promise(Message):
    """The sender has delivered the rounds up to `done` and has these whole ones; or those of what it accepted."""

    eon: int
    ballot: int
    accepted: int  # the ballot of a proposal, or 0
    done: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    rounds: Rounds = field(metadata=wired(Rounds))


@final
@dataclass
class Propose(Message):
    """The eon is to end with round r, and another to begin with these members."""

    eon: int
    ballot: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    rounds: Rounds = field(metadata=wired(Rounds))


@final
@dataclass
class Accepted(Message):
    eon: int
    ballot: int


@final
@dataclass
class Decided(Message):
    """The eon ended with round r. The last rounds of it are for those who lack them."""

    eon: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    rounds: Rounds = field(metadata=wired(Rounds))


MESSAGES: Final[tuple[type[Message], ...]] = (Prepare, Promise, Propose, Accepted, Decided)


def content_of(messages: Round) -> Content:
    return tuple([(msg.origin, msg.batch, msg.control) for msg in messages if msg is not None])


class DecidingServer(AllConcurPlus):
    forgives = True
    uniform = True
    strict = False

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.waiting: list[Round] = []  # held and skipped rounds
        self.last = 0  # the round that was delivered last
        self.recent: list[tuple[int, Content]] = []  # it and those before it
        self.lost: list[int] = []  # whose messages of this round are
        self.promised = 0  # the highest ballot: if there is one, rounds have ended here
        self.proposal: Propose | None = None  # what was accepted
        self.ballot = 0  # the own one
        self.promises: dict[int, Promise] = {}
        self.proposed_here: Propose | None = None
        self.accepts: dict[int, bool] = {}
        self.absent: dict[int, bool] = {}  # members that said that they take no part in this eon, nor ever will
        self.decided: Decided | None = None  # how the eon before this one ended

    # Rounds

    def goes_on_without(self, missing: list[int]) -> bool:
        """Return False: only a ballot removes anybody. The first member that nobody suspects prepares one at once."""
        if self.promised == 0 and self.all_lost(missing):
            self.lost = missing
            if self.pid == min([p for p in self.members if p not in self.notices], default=self.pid):
                self.prepare()
        return False

    def a_broadcast(self) -> None:
        if self.promised == 0 and self.eon > 0:
            super().a_broadcast()

    def try_to_complete(self) -> None:
        if self.promised == 0:
            super().try_to_complete()

    def on_fail(self, sender: int, msg: Fail) -> None:
        if self.promised == 0 or msg.eon != self.eon:
            super().on_fail(sender, msg)

    def release(self, undelivered: Round) -> None:
        self.waiting.append(undelivered)

    def deliver_round(self, done: Round) -> None:
        super().deliver_round(done)
        self.stable = len(self.log)  # agreement is uniform
        self.last = number_of(done)
        self.recent = [*self.recent[1 - KEPT :], (self.last, content_of(done))]

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Prepare):
            if msg.eon == self.eon:
                self.on_prepare(sender, msg)
            else:
                self.on_other_eon(sender, msg.eon, msg)
        elif isinstance(msg, Promise):
            if msg.eon == self.eon and msg.ballot == self.ballot and self.proposed_here is None:
                self.promises[sender] = msg
                self.try_to_propose(self.waits_for_all())
        elif isinstance(msg, Propose):
            if msg.eon == self.eon:
                self.on_propose(sender, msg)
            else:
                self.on_other_eon(sender, msg.eon, msg)
        elif isinstance(msg, Accepted):
            self.on_accepted(sender, msg)
        elif isinstance(msg, Decided):
            if msg.eon == self.eon:
                self.end_as_decided(msg)
            elif msg.eon > self.eon:
                self.on_other_eon(sender, msg.eon, msg)
        else:
            super().on_message(sender, msg)

    def on_other_eon(self, sender: int, eon: int, msg: Message) -> None:
        decided = self.decided
        if decided is not None and eon == decided.eon:
            if not self.told[sender]:
                self.told[sender] = True
                self.send_one(sender, decided)
        else:
            super().on_other_eon(sender, eon, msg)

    def on_ask(self, sender: int, msg: Ask) -> None:
        super().on_ask(sender, msg)
        if self.eon == 0 or not self.is_member[sender]:
            return
        if msg.above >= self.eon:  # rounds wait for it in vain
            self.absent[sender] = True
            if self.promised == 0:
                self.prepare()
        elif msg.join and self.greeting is not None:  # it does not know that it is a member
            self.send_one(sender, self.greeting)

    # Ballots

    def are_enough(self, those: Collection[int]) -> bool:
        """Return True for a majority, and for the one of two members that is left when the other one is absent.

        Nothing was delivered, accepted or decided by two that this one had no part in, and the other one has none in
        what follows. Of more than two others are a majority without it.
        """
        return 2 * len(those) > len(self.members) or (
            len(self.members) == 2 and self.pid in those and any(p in self.absent for p in self.members)
        )

    def others(self) -> tuple[int, ...]:
        return tuple([p for p in self.members if p != self.pid])

    def prepare(self) -> None:
        n = self.replicas
        self.ballot = (max(self.promised, self.ballot) // n + 1) * n + self.pid
        self.promises = {}
        self.proposed_here = None
        self.accepts = {}
        msg = Prepare(self.eon, self.ballot)
        if len(self.members) > 1:
            self.send(self.others(), msg)
        self.on_prepare(self.pid, msg)

    def on_prepare(self, sender: int, msg: Prepare) -> None:
        if msg.ballot <= self.promised:
            return
        self.promised = msg.ballot
        self.beats = 0
        proposal = self.proposal
        if proposal is None:
            promise = Promise(self.eon, msg.ballot, 0, self.last, (), self.whole_rounds())
        else:
            promise = Promise(self.eon, msg.ballot, proposal.ballot, proposal.r, proposal.members, proposal.rounds)
        self.answer(sender, promise)

    def answer(self, to: int, msg: Message) -> None:
        if to == self.pid:
            self.on_message(to, msg)
        else:
            self.send_one(to, msg)

    def whole_rounds(self) -> Rounds:
        """Return all rounds that this server has whole: delivered ones, and those that may have been elsewhere."""
        rounds = list(self.recent)
        undelivered = [*self.waiting, *[found for found in (self.held, self.prev) if found is not None]]
        if self.got == len(self.members):
            undelivered.append(self.m)
        for found in undelivered:
            if number_of(found) > rounds[-1][0] if rounds else True:
                rounds.append((number_of(found), content_of(found)))
        return tuple(rounds)

    def waits_for_all(self) -> bool:
        """Return True if members that nobody suspects are given time to promise."""
        return len(self.notices) > 0

    def try_to_propose(self, all_others: bool) -> None:
        """Propose, when enough have promised; `all_others`: and everybody whom nobody suspects."""
        promises = self.promises
        if not self.are_enough(promises) or self.proposed_here is not None:
            return
        if all_others and any(p not in promises and p not in self.notices for p in self.members):
            return
        best = max(promises.values(), key=lambda promise: promise.accepted)
        if best.accepted:
            proposal = Propose(self.eon, self.ballot, best.done, best.members, best.rounds)
        else:
            proposal = self.outcome()
        self.proposed_here = proposal
        if len(self.members) > 1:
            self.send(self.others(), proposal)
        self.on_propose(self.pid, proposal)

    def outcome(self) -> Propose:
        """Return what those who promised have: no round is delivered anywhere that is not whole at one of them."""
        whole: dict[int, Content] = {}
        for promise in self.promises.values():
            for r, content in promise.rounds:
                whole[r] = content
        r = max([promise.done for promise in self.promises.values()])
        while r + 1 in whole and not self.ends_eon(whole, r):
            r += 1
        heard = tuple(sorted([p for p in self.promises if p not in self.lost or p == self.pid]))
        members = heard if 2 * len(heard) > len(self.members) else tuple(sorted(self.promises))
        rounds = tuple([(number, whole[number]) for number in sorted(whole) if number <= r])
        return Propose(self.eon, self.ballot, r, members, rounds)

    def ends_eon(self, whole: dict[int, Content], r: int) -> bool:
        """Return True if another membership was agreed upon in the round before this one: the eon ends here."""
        orders = [order for _, _, control in whole.get(r - 1, ()) for order in control]
        return any(order[0] == RECONFIGURE and order[1] == self.eon + 1 for order in orders)

    def on_propose(self, sender: int, msg: Propose) -> None:
        if msg.ballot >= self.promised:
            self.promised = msg.ballot
            self.proposal = msg
            self.beats = 0
            self.answer(sender, Accepted(self.eon, msg.ballot))

    def on_accepted(self, sender: int, msg: Accepted) -> None:
        proposal = self.proposed_here
        if msg.eon != self.eon or proposal is None or msg.ballot != self.ballot:
            return
        self.accepts[sender] = True
        if self.are_enough(self.accepts):
            decided = Decided(self.eon, proposal.r, proposal.members, proposal.rounds)
            if len(self.members) > 1:
                self.send(self.others(), decided)
            self.end_as_decided(decided)

    # The end of an eon

    def end_as_decided(self, msg: Decided) -> None:
        for r, content in msg.rounds:
            if r == self.last + 1:
                messages: Round = [None] * self.replicas
                for origin, batch, control in content:
                    messages[origin] = Reliable(self.eon, self.e, r, origin, batch, control)
                self.deliver_round(messages)
        if self.last != msg.r:
            self.step_out()  # it lacks more than anybody has told it
            return
        self.r = msg.r
        for p in msg.members:  # each of them promised. Suspected still, it would end the next eon before it began
            if self.detector.suspected[p]:
                self.detector.heard(p, self.now)
        agreed = len(self.reconfiguration) > 0 and self.r > self.agreed_in
        self.end_eon(self.reconfiguration if agreed else msg.members, [])
        self.kick()  # what was under way when rounds ended is said again

    def end_eon(self, wanted: tuple[int, ...], missing: list[int]) -> None:
        if self.reconfiguration == wanted and self.pid not in wanted:
            self.leaves = True  # by the will of an operator, so it does not ask to join again
        self.decided = Decided(self.eon, self.r, wanted, tuple(self.recent))
        super().end_eon(wanted, missing)

    def epoch_of_next_eon(self) -> int:
        return 1  # those who heard of the end only do not know the epoch in which others saw it

    def begin_state(self, eon: int, e: int, r: int, members: tuple[int, ...]) -> None:
        self.end_ballots()
        self.last = r - 1
        super().begin_state(eon, e, r, members)

    def end_ballots(self) -> None:
        self.promised = 0
        self.proposal = None
        self.ballot = 0
        self.promises = {}
        self.proposed_here = None
        self.accepts = {}
        self.absent = {}
        self.lost = []
        self.beats = 0
        self.prev = None
        self.held = None
        self.waiting = []

    def on_removed(self) -> None:
        self.step_out()

    def step_out(self) -> None:
        """Go on outside, and ask to join again, unless it is to leave. What was not delivered waits until then."""
        if self.leaves:
            self.out.halted = True
            return
        self.forget_eon()
        self.on_join_group()

    def forget_eon(self) -> None:
        """Be no member any more."""
        self.end_ballots()
        self.above = max(self.above, self.eon + 1)  # nobody welcomes it to an eon that follows at once
        self.eon = 0
        self.decided = None
        self.reliable = False
        self.frozen = False
        self.marker = 0
        self.reconfiguration = ()
        self.wanted = ()
        self.notices = {}
        self.seqs = {}
        self.suspicions = {}
        self.revocations = {}
        self.stash.clear()
        self.early = []
        self.clear_round()
        for r in sorted(self.own, reverse=True):
            self.queue[:0] = self.own[r][0]
        self.own = {}
        self.recent = []
        self.members = ()
        self.successors = ()
        self.predecessors = ()
        self.overlay = overlay_of((self.pid,), (self.pid,), self.replicas)
        self.is_member = [False] * self.replicas
        self.detector.watch((), self.now)
        self.welcomes = {}
        self.welcome = None
        self.greeting = None

    # Time

    def on_beat(self) -> None:
        super().on_beat()
        if self.beats == 0:
            return
        if self.early and self.early[0][0] != self.pid:  # the others have gone on: how?
            self.send_one(self.early[0][0], Prepare(self.eon, 0))
        if self.ballot and self.beats == ANSWERS:
            self.try_to_propose(False)
        if self.beats > self.patience():
            self.prepare()

    def patience(self) -> int:
        """Return for how many heartbeats this server waits for others, each for another time."""
        turn = 2 * self.overlay.rank_of[self.pid]
        if self.lost:
            return ANSWERS + turn
        return min(self.params.suspect_after // self.params.heartbeat, LONGEST_PATIENCE) + PATIENCE + turn

    def idle(self) -> bool:
        said = any(batch or control for batch, control in self.own.values())
        return self.promised == 0 and not (self.waiting or self.early or said) and super().idle()

    def footprint(self) -> int:
        return super().footprint() + len(self.waiting) + len(self.promises)
