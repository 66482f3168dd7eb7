"""Coming back: a process that has a part in a log restarts from its disk, or without it from what the others know.

The promise of a ballot, the log with which it is entered, a stored place and a delivery are on disk before any replica
hears of them. So a replica that restarts is the same member as before, but it missed some messages. What it missed
of the log it gets from the leader, and of deliveries from any member (`white_box/prefix.py`). It takes no part before
the others have said that it forgot nothing, and one that lost its disk takes part from a later ballot on: see
`white_box/probation.py`, which is used as it is. A process that only learns is counted on by nobody, and needs neither.

Places that were forgotten are still on disk, behind the last snapshot. They are forgotten again before anything is
said: what travels while replicas come back is what is under way, not all that they did since their snapshots.
"""

from dataclasses import dataclass
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Durable
from amcast.core.order import BOTTOM
from amcast.core.process import Effects, Memory, Params
from amcast.core.topology import MOST, Mid, Topology
from amcast.core.wire import AppMessage, Codec, Message
from amcast.protocols.black_box.log_records import Forgotten, LogEntered, Stored
from amcast.protocols.black_box.replicated_log import GroupLog, LogOwner
from amcast.protocols.parts.leader_candidate import Heartbeat
from amcast.protocols.parts.sparse import dense
from amcast.protocols.white_box.messages import Fetch, Hello, Marks, StateRows, Tail, Welcome
from amcast.protocols.white_box.prefix import Prefix
from amcast.protocols.white_box.probation import Probation
from amcast.protocols.white_box.records import (
    Accepted,
    Delivered,
    Heard,
    Held,
    Idle,
    Outcomes,
    Promised,
    Rejoining,
    Remembered,
    Summary,
)
from amcast.protocols.white_box.state_parts import IncomingStates, in_parts

MESSAGES: Final[tuple[type[Message], ...]] = (Fetch, Tail, Marks, Hello, Welcome)


@final
@dataclass
class LogBegin(Message):
    """In a snapshot: the log begins at this place, and the process has delivered so many messages.

    The places follow, each as `Held`: message, kind, timestamp, place.
    """

    base: int
    delivered: int


RECORDS: Final = Codec(
    (Promised, LogEntered, Stored, Accepted, Delivered, Heard, Rejoining, Summary, LogBegin, Held, Remembered, Idle,
     Outcomes, Forgotten),
    MOST,
)  # fmt: skip
COUNTED: Final = (Stored, LogEntered)  # besides those that `Probation` counts: others count on them


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()


@mypyc_attr(allow_interpreted_subclasses=True)
class DurableLogOwner(LogOwner, Durable):
    """A process with a part in a log, or that only learns from one (`part` is None), and a prefix."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects, others_ask: bool) -> None:
        super().__init__(pid, topology, params, out)
        self.part: GroupLog | None = None
        self.prefix = Prefix(self, others_ask)  # what is delivered, or learned
        self.probation = Probation(self)
        self.welcomes = IncomingStates()
        self.lost: tuple[int, int, StateRows] | None = None  # of its log, that others have: position, base, rows
        self.carried: dict[Mid, AppMessage] = {}  # while it recovers: messages that are in no log
        self.lost_disk = False  # and has no part in the log: it only has to learn again what it knew, which is …
        self.goal = 0  # … what those of its group know, …
        self.unanswered: dict[int, bool] = {}  # … but for these, which have not said so yet
        self.forgotten = 0  # the places before it were needed by nobody, in an earlier life

    # What subclasses say

    def take_again(self, m: AppMessage, lts: int, gts: int) -> None:
        """Deliver what an earlier life delivered."""
        raise NotImplementedError

    def prefix_replaced(self, delivered: int) -> None:
        """Go on from the prefix of a snapshot, with which a process of this group had delivered so much."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Go on with what waited for a longer prefix."""
        raise NotImplementedError

    def forget_log(self) -> None:
        """Forget the places of the log that nobody needs."""
        raise NotImplementedError

    # Messages

    def on_recovery(self, sender: int, msg: Message) -> bool:
        """Handle what has to do with coming back; True if nothing else is to be done with this message."""
        if isinstance(msg, Marks):
            reason = self.probation.on_marks(msg)
            if reason:
                self.forget_all(reason)
        elif isinstance(msg, Hello):
            self.on_hello(sender, msg)
        elif isinstance(msg, Welcome):
            self.on_welcome(sender, msg)
        elif isinstance(msg, Heartbeat) and self.probation.active:
            assert self.part is not None
            self.part.is_behind(sender, msg)
            self.prefix.heard(sender, msg.position)
        else:
            return False
        return True

    def waits(self) -> bool:
        """Begin what a heartbeat brings; True if this process is on probation, and only asks the others again."""
        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered
        self.ask_what_is_known()
        if not self.probation.active:
            return False
        assert self.part is not None
        self.part.schedule_tick()
        self.part.watch()
        self.end_probation()
        if self.probation.active:
            self.probation.ask()
        return True

    def mark(self) -> int:
        if self.params.durable:
            self.out.urgent = True  # whoever hears of these records remembers them: they are on disk first
        return self.probation.mark

    def heard_mark(self, member: int, mark: int) -> None:
        self.probation.heard(member, mark)

    def tell_mark(self, to: tuple[int, ...]) -> None:
        if self.params.durable:
            self.send(to, self.probation.own())

    def tell_marks(self) -> None:
        """Record what was heard of the marks of others, and tell the group."""
        if not self.params.durable:
            return
        probation = self.probation
        if probation.changed:
            self.out.records.append(encoded(probation.record()))
        news = probation.news()
        if news is not None and self.part is not None:
            self.send(self.part.others, news)

    def save_what_was_heard(self) -> None:
        """Make durable how many records the members had on whose votes, or log, a ballot is founded."""
        if self.params.durable:
            self.out.records.append(encoded(self.probation.record()))
            self.out.urgent = True

    # Coming back

    def on_hello(self, sender: int, msg: Hello) -> None:
        """Say what is remembered of a replica that came back, before anything else of it is heard."""
        probation = self.probation
        probation.is_back(sender)
        starts = probation.known_starts.get(sender, 0)
        mark = probation.known_marks.get(sender, 0)
        rows: list[tuple[AppMessage, int, int, int]] = []
        b = cballot = BOTTOM
        base = 0
        part = self.part
        if self.lost_disk:
            starts = BOTTOM  # it does not know itself how much its group knew
        if part is not None:
            b = max(part.ballot, part.seen_ballot)
            cballot = part.cballot
            base = part.base
            if part.rejoining:
                starts = BOTTOM
            if sender in part.members:
                part.detector.restarted(part.members.index(sender))
            if sender in part.members and msg.void:
                self.forget_member(sender)
            elif sender in part.members:
                rows = part.rows()
        position, digest = self.reached()
        for i, parts, some in in_parts(rows, self.params.part_bytes):
            state = (b, cballot, base, position, digest, i, parts, some)  # the base in the place of a clock
            self.send_one(sender, Welcome(*state, msg.starts, starts, mark))

    def forget_member(self, member: int) -> None:
        """Drop whatever a member said that lost its disk."""
        assert self.part is not None
        self.part.forget_member(member)
        self.part.states.forget(member)
        if self.topology.group_of[member] == self.g0:
            self.prefix.collection.delivered_by[self.topology.rank_of[member]] = BOTTOM

    def on_welcome(self, sender: int, msg: Welcome) -> None:
        rows = self.welcomes.rows_of(sender, msg)
        probation = self.probation
        part = self.part
        if part is None and msg.starts == probation.starts and msg.known_starts != BOTTOM:
            self.goal = max(self.goal, msg.position)
            self.unanswered.pop(sender, None)
        if rows is None or not probation.active or part is None:
            return
        reason = probation.answered(sender, msg)
        if reason:
            self.forget_all(reason)
            return
        if sender in part.members:
            part.seen_ballot = max(part.seen_ballot, msg.b)
            part.works_in[part.members.index(sender)] = msg.cballot
            part.positions[part.members.index(sender)] = msg.position
            longer = msg.clock + len(rows) > (part.length() if self.lost is None else self.lost[1] + len(self.lost[2]))
            if msg.cballot == part.cballot and longer and not probation.void:
                self.lost = (msg.position, msg.clock, rows)
        self.end_probation()

    def take_back(self) -> None:
        """Store again what another member stored in the same ballot: this one may have, and forgotten it.

        A leader counts on itself and tells nobody, and who counted on a follower may have restarted before it wrote
        down what it had heard. All logs of a ballot are parts of one. Whoever stores late does what it might have done.
        But not behind a promise: who joined a higher ballot stored all that it ever did in this one before that, and
        what it promised with is what it had.
        """
        part = self.part
        if self.lost is not None and part is not None and part.ballot == part.cballot:
            position, base, rows = self.lost
            if position > self.prefix.position and part.base < base <= part.length():
                rows = (*part.rows()[: base - part.base], *rows)  # it needs what the other one has forgotten
                base = part.base
            if position <= self.prefix.position or base == part.base:
                part.replace(part.cballot, base, rows)
        self.lost = None

    def forget_all(self, reason: str) -> None:
        """Stop: this replica may come back as one that lost its disk, and not otherwise."""
        self.out.forgot = reason
        self.probation.active = True  # nothing more is said

    def end_probation(self) -> None:
        """Take part again if enough others have answered."""
        probation = self.probation
        part = self.part
        if self.out.forgot or part is None or not probation.is_over(self.now) or self.lacks_deliveries():
            return
        void = probation.void
        self.take_back()
        probation.end()
        if void:
            part.rejoin(part.seen_ballot)
            self.save(Rejoining(part.rejoin_above, probation.starts, probation.mark))
            self.prefix.fetch(max(part.others, key=lambda pid: part.positions[part.members.index(pid)]))

    def lacks_deliveries(self) -> bool:
        """Return whether some member that answered and is up has delivered more, and fetch that."""
        part = self.part
        assert part is not None
        for pid, position in self.probation.positions.items():
            down = pid in part.members and part.detector.suspected[part.members.index(pid)]
            if position > self.prefix.position and not down and not self.probation.void:
                self.prefix.fetch(pid)
                return True
        return False

    def on_trust(self) -> None:
        self.probation.end()
        if self.part is not None:
            self.part.rejoining = False

    # On disk

    def save(self, record: Message) -> None:
        """Make a record durable before anybody hears of this step."""
        self.save_later(record)
        self.out.urgent = True

    def save_later(self, record: Message) -> None:
        """Make a record durable before anybody hears that this process delivered: a quorum has the message on disk."""
        if self.params.durable:
            self.probation.mark += 1
            self.out.records.append(encoded(record))

    def save_in_passing(self, record: Message) -> None:
        """Write a record that nobody counts on: it is no reason to sync, and may be lost."""
        if self.params.durable:
            self.out.records.append(encoded(record))

    def save_delivery(self, m: AppMessage, lts: int, gts: int) -> None:
        if self.params.durable:
            if self.part is None or m.mid not in self.part.payloads:
                self.save_later(Accepted(m, lts, 0))
            self.save_later(Delivered(m.mid, lts, gts))

    def snapshot(self) -> list[bytes]:
        part = self.part
        probation = self.probation
        prefix = self.prefix
        records: list[Message] = [
            Summary(
                part.ballot if part is not None else BOTTOM,
                part.cballot if part is not None else BOTTOM,
                0,
                prefix.max_delivered_gts,
                prefix.position,
                prefix.digest,
                probation.starts,
                probation.mark,
                part.rejoining if part is not None else self.lost_disk,
                part.rejoin_above if part is not None else BOTTOM,
                dense(prefix.collection.floors, len(self.topology.groups), BOTTOM),
                dense(prefix.collection.shared_with, len(self.topology.groups), BOTTOM),
                probation.starts_of_all(),
                probation.marks_of_all(),
                0,
                (),
            ),
            LogBegin(part.base if part is not None else 0, self.position()),
        ]
        records += prefix.records()
        if part is not None:
            records += [Held(*row) for row in part.rows()]
        return [encoded(record) for record in records]

    def remembered(self) -> Memory:
        return self.prefix.done.memory()

    def recall(self, memory: Memory) -> None:
        self.prefix.done.recall(memory)

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        monitor = self.monitor
        self.monitor = None  # the past was checked when it happened
        for data in records:
            for record in RECORDS.read(data):
                self.replay(record)
        self.monitor = monitor
        self.carried = {}
        if self.part is not None:
            # On disk are all places since the snapshot. Every answer, vote and new log would carry them: together they
            # may be more than a channel keeps, and then no member ever hears another one again.
            self.forget_log()
        probation = self.probation
        if records or starts > 1:
            probation.starts = max(starts, probation.starts + 1, probation.known_starts.get(self.pid, 0) + 1)
        self.out.records.clear()
        self.out.sends.clear()
        self.out.urgent = False
        part = self.part
        if part is not None:
            part.restart()
        self.on_start()
        if part is not None:
            # One that lost its disk counts its lives above what its driver knows, so each of them is written down.
            probation.known_starts[self.pid] = probation.starts
            self.save_what_was_heard()
            probation.begin(self.now, clean, part.rejoining)
            self.end_probation()
        elif self.lost_disk:
            self.learn_again()

    def learn_again(self) -> None:
        """Find out how much a process without a part in the log knew that lost its disk, at least.

        Nobody counts on what it said, so it goes on at once. But until it knows as much as the others of its group do,
        these must not lose theirs.
        """
        group = self.topology.groups[self.g0]
        self.lost_disk = True
        self.unanswered = {pid: True for pid in group if pid != self.pid}
        self.ask_what_is_known()

    def ask_what_is_known(self) -> None:
        if self.unanswered:
            self.send(tuple(self.unanswered), Hello(self.probation.starts, self.probation.mark, True))
        elif self.lost_disk and self.reached()[0] >= self.goal:
            self.lost_disk = False

    def on_rejoin(self, starts: int) -> None:
        """Start without what this process knew.

        This is safe: it answers nothing before it enters a ballot that began after all other members dropped whatever
        it had said, so the log of that ballot comes from a quorum without it. And it has the prefix by then.
        """
        self.probation.starts = starts
        part = self.part
        if part is None:
            self.save(Rejoining(BOTTOM, starts, self.probation.mark))
            self.on_start()
            self.learn_again()
            return
        part.rejoin(BOTTOM)
        part.restart()
        self.save(Rejoining(BOTTOM, starts, self.probation.mark))
        self.on_start()
        self.probation.begin(self.now, clean=False, void=True)
        self.end_probation()

    def on_install(self, records: list[bytes]) -> None:
        found = [record for data in records for record in RECORDS.read(data)]
        summary, begin = found[0], found[1]
        assert isinstance(summary, Summary) and isinstance(begin, LogBegin), "a snapshot begins with its summary"
        if summary.position <= self.prefix.position:
            return
        self.prefix.begin(summary)
        for record in found:
            self.prefix.replay(record)
        self.prefix_replaced(begin.delivered)
        self.go_on()

    def replay(self, record: Message) -> None:
        part = self.part
        probation = self.probation
        if isinstance(record, COUNTED):
            probation.mark += 1
        probation.replay(record)
        if isinstance(record, Accepted):
            self.carried[record.m.mid] = record.m
        elif isinstance(record, Delivered):
            m = self.carried.pop(record.mid, None)
            if m is None:
                assert part is not None, "a delivery without its message"
                m = part.payloads[record.mid]
            self.take_again(m, record.lts, record.gts)
        elif isinstance(record, Summary):
            self.prefix.begin(record)
            self.lost_disk = part is None and record.rejoining
            if part is not None:
                part.ballot = record.ballot
                part.cballot = record.cballot
                if record.rejoining:
                    part.rejoin(record.rejoin_above)
        elif isinstance(record, LogBegin):
            if part is not None:
                part.load(part.cballot, record.base, ())
            self.prefix_replaced(record.delivered)
        elif part is not None and isinstance(record, Promised):
            part.ballot = record.b
        elif part is not None and isinstance(record, LogEntered):
            part.ballot = record.b
            part.enter(record.b)
            part.load(record.b, record.base, record.rows)
        elif part is not None and isinstance(record, Stored):
            part.store((record.kind, record.ts, record.m))
        elif isinstance(record, Forgotten):
            self.forgotten = record.base
        elif part is not None and isinstance(record, Held):
            part.store((record.phase, record.lts, record.m))
        elif isinstance(record, Rejoining):
            if part is not None:
                part.rejoin(record.b)
            else:
                self.lost_disk = True
        else:
            self.prefix.replay(record)

    # What drivers look at

    def rejoining(self) -> bool:
        return self.probation.active or (self.part.rejoining if self.part is not None else self.lost_disk)

    def unready(self) -> str:
        return self.probation.unready() or (self.part.unready() if self.part is not None else "")
