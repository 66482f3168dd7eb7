"""Coming back: a server of AllConcur with eventual accuracy restarts from its disk, or without it as a newcomer.

On disk, before anybody can count on it, are each round that is whole here, the promise of a ballot, a proposal that was
accepted and the beginning of an eon; behind these which rounds were delivered. A server counts as one that has a round
only when the round is on its own disk (`Stored`, a message to itself): so what is delivered is on the disks of a
majority. What a server broadcasts is on no disk. So one that restarts takes no part in rounds of its eon any more, but
only in the ballots by which that ends, and it prepares one at once: what it may have said twice is never asked for.

Whoever counts on the words of a server remembers of it the eon, the last whole round and the ballot. After each start a
server asks the others for that (`Back`, `Known`), and until the members of the newest eon that anybody names have
answered it takes no part in anything; after a suspicion time a majority is enough, unless the end of its records is in
doubt. If one remembers more than is on its disk, it has forgotten something, and may come back only as one that lost
its disk.

One that lost its disk needs nobody's promise. Of an eon in which it may have had a part it takes no part any more: what
a majority has without it, some member of every other majority has as well. It asks all members which eon they are in,
and is a newcomer from the second one after that on: the next one may have begun, and nobody but itself have known it.
"""

from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.capabilities import Durable
from amcast.core.order import BOTTOM
from amcast.core.process import Effects, Params
from amcast.core.requests import Multicast
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message, wired
from amcast.protocols.allconcur.ballots import (
    Accepted,
    Content,
    Decided,
    Prepare,
    Promise,
    Propose,
    Rounds,
    content_of,
)
from amcast.protocols.allconcur.membership import TAIL, Past, Welcome
from amcast.protocols.allconcur.messages import Eon, Round, number_of
from amcast.protocols.allconcur.overlay import Fail
from amcast.protocols.allconcur.past import HASH, PastLog
from amcast.protocols.allconcur.round_records import (
    RECORDS,
    Began,
    CaughtUp,
    Done,
    Outside,
    Promised,
    Recent,
    Summary,
    Took,
    Whole,
    encoded,
)
from amcast.protocols.allconcur.rounds import Reliable, RoundMessage
from amcast.protocols.allconcur.votes import Vote, VotingServer
from amcast.protocols.parts.failure_detectors import Alive
from amcast.protocols.parts.sessions import DeliveredMessages
from amcast.protocols.white_box.records import Idle, Remembered

IN_RECORD: Final = 4096  # idle senders
NOTHING: Final = -1


@final
@dataclass
class Back(Message):
    """The sender has started, and asks what is remembered of it. The number tells this life from others."""

    life: int


@final
@dataclass
class Known(Message):
    """Of the receiver, in this life, the sender knows eon, whole round and ballot; it is in `latest` itself.

    That is 0 if it is no member, and NOTHING if it lost its disk, and knows nothing of anybody.
    """

    life: int
    eon: int
    whole: int
    ballot: int
    latest: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))


@final
@dataclass
class Stored(Message):
    """To itself: the rounds of this eon up to r that were whole are on disk."""

    eon: int
    r: int


MESSAGES: Final[tuple[type[Message], ...]] = (Back, Known, Stored)


OF_ROUNDS: Final = (RoundMessage, Vote, Fail, Eon)
OF_BALLOTS: Final = (Prepare, Propose, Decided)


class DurableServer(VotingServer, Durable):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.log = PastLog(0 if params.spare else TAIL, params.tail_bytes)
        self.durable = params.durable
        self.delivered = 0  # messages, those of earlier lives included
        self.open: dict[Mid, bool] = {}  # own messages that are not delivered
        self.written = 0  # the last round of this eon of which there is a record, …
        self.stored = 0  # … and of which it is on disk
        self.back = False  # restarted in this eon, so it takes no part in its rounds
        self.lost_disk = False  # its disk, and it is no member again yet
        # What others count on, by server: the eon, the last whole round and the ballot that they heard of.
        self.known_eon = [0] * topology.replicas
        self.known_whole = [0] * topology.replicas
        self.known_ballot = [0] * topology.replicas
        # While it waits for others to say what they remember of it:
        self.asks = False
        self.life = 0
        self.fresh = False  # it has never run, so far as it knows
        self.clean = True
        self.since = 0
        self.answers: dict[int, Known] = {}
        self.kept: list[tuple[int, Message]] = []  # of ballots, for later

    # On disk

    def save(self, record: Message) -> None:
        """Make a record durable before anybody hears of this step."""
        if self.durable:
            self.out.records.append(encoded(record))
            self.out.urgent = True

    def save_later(self, record: Message) -> None:
        """Make a record durable some time: a majority has what it is about."""
        if self.durable:
            self.out.records.append(encoded(record))

    def is_whole(self, done: Round) -> None:
        r = number_of(done)
        if self.durable and r > self.written:
            self.written = r
            self.save(Whole(r, content_of(done)))
            self.send_one(self.pid, Stored(self.eon, r))

    def may_deliver(self, done: Round) -> bool:
        return not self.durable or number_of(done) <= self.stored

    def deliver_round(self, done: Round) -> None:
        self.is_whole(done)  # it may have come with the end of an eon
        super().deliver_round(done)
        self.save_later(Done(self.last))

    def deliver_message(self, msg: RoundMessage) -> None:
        if self.durable:
            self.deliver_batch(msg.origin, msg.batch)
            return
        before, delivered = len(self.out.deliveries), self.delivered
        super().deliver_message(msg)
        self.delivered = delivered + sum([m.count for m, _ in self.out.deliveries[before:]])

    def deliver(self, m: AppMessage, ts: int = BOTTOM) -> None:
        self.delivered += m.count
        super().deliver(m, ts)

    def deliver_once(self, m: AppMessage) -> None:
        """Deliver m, unless it is a second copy: a snapshot does not say which own messages it stands for."""
        if self.durable and sender_of(m.mid) < self.replicas:
            if not self.done.contains(m.mid):
                self.done.add(m)
                self.open.pop(m.mid, None)
                self.deliver(m)
        else:
            super().deliver_once(m)

    def on_multicast(self, m: AppMessage) -> None:
        if self.durable and sender_of(m.mid) == self.pid:
            self.open[m.mid] = True
            m.done = seq_of(next(iter(self.open)))
        super().on_multicast(m)

    def on_past(self, sender: int, msg: Past) -> None:
        if self.eon == 0 and msg.first == len(self.log) and msg.batch:
            most = self.welcome.past - len(self.log) if self.welcome is not None else len(msg.batch)
            self.save_later(CaughtUp(msg.batch[:most]))
        super().on_past(sender, msg)

    def enter(self, welcome: Welcome) -> None:
        self.lost_disk = False
        super().enter(welcome)

    def begin_state(self, eon: int, e: int, r: int, members: tuple[int, ...]) -> None:
        self.back = False
        self.written = self.stored = r - 1
        greeting, decided = self.greeting, self.decided
        assert greeting is not None and greeting.eon == eon
        rounds = decided.rounds if decided is not None and decided.eon == eon - 1 else ()
        self.save(self.began(greeting, rounds))
        super().begin_state(eon, e, r, members)

    def began(self, greeting: Welcome, rounds: Rounds) -> Began:
        at = (greeting.eon, greeting.e, greeting.r, greeting.members, greeting.gone)
        return Began(*at, greeting.past, greeting.prefix, greeting.old, rounds)

    def step_out(self) -> None:
        above = self.eon + 1
        self.back = False
        self.save(Outside(max(self.above, above), self.lost_disk))
        super().step_out()

    # Ballots

    def answer(self, to: int, msg: Message) -> None:
        if self.durable:
            self.send_one(to, msg)  # also to itself: not before it is on disk
        else:
            super().answer(to, msg)

    def on_prepare(self, sender: int, msg: Prepare) -> None:
        before = self.promised
        super().on_prepare(sender, msg)
        if self.promised > before:
            self.save(Promised(self.promised))

    def on_propose(self, sender: int, msg: Propose) -> None:
        super().on_propose(sender, msg)
        if self.proposal is msg:
            self.save(Took(msg.ballot, msg.r, msg.members, msg.rounds))

    def waits_for_all(self) -> bool:
        return self.back or super().waits_for_all()

    # Rounds

    def takes_part(self) -> bool:
        return not self.back and not self.asks

    def a_broadcast(self) -> None:
        if self.takes_part():
            super().a_broadcast()

    def try_to_complete(self) -> None:
        if self.takes_part():
            super().try_to_complete()

    def on_suspicion(self, p: int) -> None:
        if self.takes_part():
            super().on_suspicion(p)

    def idle(self) -> bool:
        return self.takes_part() and super().idle()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Stored):
            if msg.eon == self.eon:
                self.stored = max(self.stored, msg.r)
                self.try_to_complete()
        elif isinstance(msg, Back):
            self.on_back(sender, msg)
        elif isinstance(msg, Known):
            self.on_known(sender, msg)
        elif self.asks and not isinstance(msg, (Multicast, Alive)):
            if isinstance(msg, OF_BALLOTS):
                self.kept.append((sender, msg))
        else:
            if self.durable:
                self.remember(sender, msg)
            if not (self.back and isinstance(msg, OF_ROUNDS) and msg.eon == self.eon):
                super().on_message(sender, msg)

    def remember(self, sender: int, msg: Message) -> None:
        """Remember what a server must have on disk that says this."""
        if isinstance(msg, RoundMessage):
            self.heard_of(msg.origin, msg.eon, msg.r - 1, 0)
        elif isinstance(msg, Vote):
            self.heard_of(msg.voter, msg.eon, msg.r, 0)
        elif isinstance(msg, (Prepare, Promise, Propose, Accepted)):
            self.heard_of(sender, msg.eon, 0, msg.ballot)

    def heard_of(self, p: int, eon: int, whole: int, ballot: int) -> None:
        if eon > self.known_eon[p]:
            self.known_eon[p] = eon
            self.known_whole[p] = whole
            self.known_ballot[p] = ballot
        elif eon == self.known_eon[p]:
            self.known_whole[p] = max(self.known_whole[p], whole)
            self.known_ballot[p] = max(self.known_ballot[p], ballot)

    # Coming back

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        self.on_start()
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.out.records.clear()
        self.out.sends.clear()
        self.out.completed.clear()
        self.out.notes.clear()
        self.out.urgent = False
        self.fresh = not records and starts == 1
        self.back = self.eon > 0 and not self.fresh
        self.begin_to_ask(starts, clean)

    def on_rejoin(self, starts: int) -> None:
        self.on_start()
        self.forget_eon()
        self.above = 0
        self.lost_disk = True
        self.save(Outside(self.above, True))
        self.begin_to_ask(starts, False)

    def begin_to_ask(self, starts: int, clean: bool) -> None:
        self.asks = True
        self.life = starts << 40 | self.now >> 20 & (1 << 40) - 1
        self.clean = clean
        self.since = self.now
        self.answers = {}
        self.ask_what_is_known()
        self.end_asking_in_time()

    def ask_what_is_known(self) -> None:
        unanswered = tuple([p for p in range(self.replicas) if p != self.pid and p not in self.answers])
        if unanswered:
            self.send(unanswered, Back(self.life))

    def on_back(self, sender: int, msg: Back) -> None:
        self.told[sender] = False  # what it was told may be lost
        self.detector.restarted(sender)
        latest = NOTHING if self.lost_disk else self.eon
        known = (self.known_eon[sender], self.known_whole[sender], self.known_ballot[sender])
        self.send_one(sender, Known(msg.life, *known, latest, self.members))

    def on_known(self, sender: int, msg: Known) -> None:
        if not self.asks or msg.life != self.life:
            return
        if not self.lost_disk and self.remembers_more(msg):
            disk = f"its disk has eon {self.eon}, round {self.written} and ballot {self.promised}"
            heard = f"{self.topology.name(sender)} remembers eon {msg.eon}, round {msg.whole} and ballot {msg.ballot}"
            self.out.forgot = f"{heard}, {disk}"
            return
        self.answers[sender] = msg
        self.end_asking_in_time()

    def remembers_more(self, msg: Known) -> bool:
        if self.fresh:
            return msg.eon > 0
        if msg.eon != self.eon:
            return msg.eon > max(self.eon, self.above)
        return self.eon > 0 and (msg.whole > self.written or msg.ballot > self.promised)

    def newest(self) -> tuple[int, tuple[int, ...]]:
        """Return the newest eon that anybody names, and its members."""
        latest, members = self.eon, self.members
        for known in self.answers.values():
            if known.latest > latest:
                latest, members = known.latest, known.members
        return latest, members

    def unheard(self) -> list[int]:
        """Return those whose answer is missing."""
        latest, members = self.newest()
        needed = members if latest > 0 else tuple(range(self.replicas))
        return [p for p in needed if p != self.pid and p not in self.answers]

    def end_asking_in_time(self) -> None:
        """Take part again if enough others have answered."""
        unheard = self.unheard()
        if unheard:
            latest, members = self.newest()
            if self.lost_disk or not self.clean or latest == 0 or self.now - self.since < self.params.suspect_after:
                return
            heard = [p for p in members if p in self.answers and self.answers[p].latest != NOTHING]
            if 2 * (len(heard) + (self.pid in members)) <= len(members):
                return
        self.end_asking()

    def end_asking(self) -> None:
        latest, members = self.newest()
        promised = self.promised
        self.asks = False
        kept, self.kept = self.kept, []
        if self.lost_disk:
            self.above = latest + 1
            self.save(Outside(self.above, True))
            self.on_join_group()
        elif self.eon == 0:
            if self.joins or not self.fresh:
                self.on_join_group()
        elif latest > self.eon and self.pid not in members:
            self.step_out()
        for sender, msg in kept:
            self.on_message(sender, msg)
        if self.back and self.promised == promised:  # else somebody else is about to end the eon
            self.prepare()
        elif self.eon > 0:
            self.kick()

    def on_trust(self) -> None:
        if self.asks and not self.lost_disk:
            self.end_asking()

    def on_join_group(self) -> None:
        self.joins = True
        if not self.asks:
            super().on_join_group()

    def on_beat(self) -> None:
        if self.asks:
            self.ask_what_is_known()
            self.end_asking_in_time()
        else:
            super().on_beat()

    def replay(self, record: Message) -> None:
        """Do again what this record says of an earlier life."""
        if isinstance(record, Began):
            self.begin_again(record)
        elif isinstance(record, Whole):
            self.waiting.append(self.round_of(record.r, record.content))
            self.written = self.stored = record.r
        elif isinstance(record, Done):
            while self.waiting and number_of(self.waiting[0]) <= record.r:
                self.deliver_round(self.waiting.pop(0))
        elif isinstance(record, Promised):
            self.promised = record.ballot
        elif isinstance(record, Took):
            self.proposal = Propose(self.eon, record.ballot, record.r, record.members, record.rounds)
            self.promised = max(self.promised, record.ballot)
        elif isinstance(record, CaughtUp):
            for m in record.batch:
                self.log.append(m)
                self.deliver_once(m)
            self.stable = len(self.log)
        elif isinstance(record, Outside):
            self.forget_eon()
            self.above = record.above
            self.lost_disk = record.lost
        elif isinstance(record, Recent):
            self.last = self.written = self.stored = record.last
            self.recent = list(record.rounds)
            self.reconfiguration = record.agreed
            self.agreed_in = record.agreed_in
        else:
            self.replay_past(record)

    def replay_past(self, record: Message) -> None:
        if isinstance(record, Summary):
            self.log.begin(record.past, record.prefix)
            self.stable = self.before_eon = record.past
            self.delivered = record.position
            self.done = DeliveredMessages()
        elif isinstance(record, Remembered):
            self.done.restore(record.sender, record.done, record.above)
        elif isinstance(record, Idle):
            self.done.restore_idle(record.rows)

    def begin_again(self, record: Began) -> None:
        self.end_ballots()
        self.eon = record.eon
        self.e = record.e
        self.r = record.r
        self.last = self.written = self.stored = record.r - 1
        self.before_eon = record.past
        self.reconfiguration = ()
        self.marker = 0
        self.lost_disk = False
        self.gone = [p in record.gone for p in range(self.replicas)]
        at = (record.eon, record.e, record.r, record.members, record.gone, record.past, record.prefix, record.old)
        self.greeting = Welcome(*at) if record.eon > 1 else None
        self.decided = Decided(record.eon - 1, record.r - 1, record.members, record.rounds)
        self.begin_eon(record.members)

    def round_of(self, r: int, content: Content) -> Round:
        messages: Round = [None] * self.replicas
        for origin, batch, control in content:
            messages[origin] = Reliable(self.eon, self.e, r, origin, batch, control)
        return messages

    # Snapshots

    def snapshot(self) -> list[bytes]:
        past = len(self.log)
        records: list[Message] = [Summary(past, self.log.prefix(past), self.delivered)]
        records += [Remembered(sender, done, above) for sender, done, above in self.done.rows()]
        idle = self.done.idle_rows()
        for i in range(0, len(idle), IN_RECORD):
            records.append(Idle(tuple(idle[i : i + IN_RECORD])))
        if self.eon == 0:
            records.append(Outside(self.above, self.lost_disk))
        else:
            records += self.records_of_eon()
        return [encoded(record) for record in records]

    def records_of_eon(self) -> list[Message]:
        greeting, decided = self.greeting, self.decided
        if greeting is None:
            greeting = Welcome(self.eon, 1, 1, self.members, (), 0, bytes(HASH), 0)
        rounds = decided.rounds if decided is not None and decided.eon == self.eon - 1 else ()
        records: list[Message] = [self.began(greeting, rounds)]
        records.append(Recent(self.last, tuple(self.recent), self.reconfiguration, self.agreed_in))
        found = [*self.waiting, *[some for some in (self.held, self.prev) if some is not None]]
        if self.frozen:
            found.append(self.m)
        whole = {number_of(some): some for some in found}
        records += [Whole(r, content_of(whole[r])) for r in sorted(whole) if self.last < r <= self.written]
        if self.promised:
            records.append(Promised(self.promised))
        if self.proposal is not None:
            proposal = self.proposal
            records.append(Took(proposal.ballot, proposal.r, proposal.members, proposal.rounds))
        return records

    def on_install(self, records: list[bytes]) -> None:
        found = [record for data in records for record in RECORDS.read(data)]
        summary = found[0]
        assert isinstance(summary, Summary), "a snapshot begins with its summary"
        if self.eon > 0 or summary.position <= self.delivered:
            return
        for record in found:
            self.replay_past(record)
        welcome = self.welcome
        if welcome is not None and len(self.log) > welcome.past:  # its eon has gone on without this server
            self.above = max(self.above, welcome.eon)
            self.welcome = None
        self.welcomes = {}
        for mid in [mid for mid in self.open if self.done.contains(mid)]:
            del self.open[mid]
            self.out.completed.append(mid)
        self.queue = [m for m in self.queue if not self.done.contains(m.mid)]
        if self.joins or self.welcome is not None:
            self.ask()

    def lacks_too_much(self, sender: int) -> None:
        self.out.pulls.append(sender)

    # What drivers look at

    def position(self) -> int:
        return self.delivered

    def rejoining(self) -> bool:
        return self.asks or self.lost_disk

    def unready(self) -> str:
        if not self.asks:
            return super().unready()
        names = ", ".join([self.topology.name(p) for p in self.unheard()])
        if self.lost_disk:
            return f"rejoining: waits for {names} to say how far the others are"
        return f"may have forgotten something: waits for {names} to say what they remember of it"
