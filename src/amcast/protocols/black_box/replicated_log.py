"""The replicated log of a group: one ballot at a time, recovered as a whole, learned in order without gaps.

A leader puts entries at consecutive places (2A); a member stores a place only in the ballot that it follows and only
behind all places before it (2B). So whoever stored a place in a ballot stored all before it, and what a quorum stored
is decided, in order. A new leader takes the longest log of the highest ballot that a quorum reports, brings a quorum in
step with it, and only then leads; the whole of it counts as decided.

Two ways to learn: the leader counts the 2Bs sent to it and tells `decided` to its owner; or, with `learners`, members
send what they stored to all of them, and each has a `Learner` that counts. After a new ballot every member announces
its whole log again: a learner that saw places of two ballots would otherwise never have a quorum of either.

Places that this member needs no more are forgotten (`forget_before`); the owner says which. What they said is part of
what it has delivered, its prefix: see `white_box/prefix.py`. So a vote and a new log carry the rest of the log and how
long the prefix is, in parts, and nobody enters a ballot without the longest prefix of its votes. A member that missed a
place, or a ballot, gets the log again from whoever leads.

Paper: the black-box consensus of Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", section IV, and of
"Optimistic Atomic Multicast", section 6, as a log with ballots in the manner of Viewstamped Replication and Zab.
Independent instances, as there, would let a later message of a sender survive without an earlier one.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Electing, Observed
from amcast.core.order import BOTTOM, leader_of
from amcast.core.process import Effects, Params, Process
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage, Background, Message, Reader, pack_app, pack_long, pack_mid, pack_short
from amcast.errors import InvariantViolation
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.black_box.log_records import LogEntered, Stored
from amcast.protocols.parts.leader_candidate import (
    FOLLOWER,
    LEADER,
    RECOVERING,
    Heartbeat,
    LeaderCandidate,
    Nack,
    NewLeader,
    NewStateAck,
)
from amcast.protocols.white_box.messages import StatePart, StateRows
from amcast.protocols.white_box.records import Promised
from amcast.protocols.white_box.state_parts import IncomingStates, in_parts

ASK_AGAIN: Final = 20  # in δ, after which a lost log is asked for again

Entry = tuple[int, int, AppMessage]  # what kind, a timestamp, a message: the owner knows what they mean


def about(entries: tuple[Entry, ...]) -> tuple[Mid, ...]:
    """Return the application messages in these. An entry of a negative kind is about none."""
    return tuple([m.mid for kind, _, m in entries if kind >= 0])


@final
@mypyc_attr(acyclic=True)
class Append(Message):
    """2A: the leader of ballot b puts this at place i."""

    wire: ClassVar[dict[str, object]] = {"b": int, "i": int, "kind": int, "ts": int, "m": AppMessage}

    def __init__(self, b: int, i: int, kind: int, ts: int, m: AppMessage) -> None:
        self.b = b
        self.i = i
        self.kind = kind
        self.ts = ts
        self.m = m

    def about(self) -> tuple[Mid, ...]:
        return (self.m.mid,) if self.kind >= 0 else ()

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.b)
        pack_long(w, self.i)
        pack_short(w, self.kind)
        pack_long(w, self.ts)
        pack_app(w, self.m)

    def unpack(self, r: Reader) -> Message:
        return Append(r.long(), r.long(), r.short(), r.long(), r.app())


@final
@mypyc_attr(acyclic=True)
class Appended(Message):
    """2B to the leader: stored place i, and all before it, in ballot b. For `mark` see `Marks` of White-Box."""

    wire: ClassVar[dict[str, object]] = {"b": int, "i": int, "mid": int, "mark": int}

    def __init__(self, b: int, i: int, mid: Mid, mark: int) -> None:
        self.b = b
        self.i = i
        self.mid = mid
        self.mark = mark

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.b)
        pack_long(w, self.i)
        pack_mid(w, self.mid)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        return Appended(r.long(), r.long(), r.mid(), r.long())


@final
@mypyc_attr(acyclic=True)
class Announce(Message):
    """2B to all learners: stored these, from place i on, and all before them, in ballot b."""

    wire: ClassVar[dict[str, object]] = {
        "b": int,
        "i": int,
        "entries": tuple[tuple[int, int, AppMessage], ...],
        "mark": int,
    }

    def __init__(self, b: int, i: int, entries: tuple[Entry, ...], mark: int = 0) -> None:
        self.b = b
        self.i = i
        self.entries = entries
        self.mark = mark

    def about(self) -> tuple[Mid, ...]:
        return about(self.entries)

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.b)
        pack_long(w, self.i)
        pack_long(w, len(self.entries))
        for kind, ts, m in self.entries:
            pack_short(w, kind)
            pack_long(w, ts)
            pack_app(w, m)
        pack_long(w, self.mark)

    def unpack(self, r: Reader) -> Message:
        b = r.long()
        i = r.long()
        entries = tuple([(r.short(), r.long(), r.app()) for _ in range(r.long())])
        return Announce(b, i, entries, r.long())


@mypyc_attr(acyclic=True)
@dataclass
class LogPart(StatePart):
    """One of the parts in which a log travels, from place `base` on: message, kind, timestamp, place.

    The places before `base` are about what the sender has delivered. The times are in the log: `clock` is not used.
    """

    base: int = 0

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m, kind, _, _ in self.rows if kind >= 0])


@final
@mypyc_attr(acyclic=True)
@dataclass
class Vote(LogPart):
    """To a candidate: the log as it was in `cballot`."""


@final
@mypyc_attr(acyclic=True)
@dataclass
class NewLog(LogPart):
    """The log with which ballot b begins, or what has become of it."""


@final
@mypyc_attr(acyclic=True)
@dataclass
class Missed(Message):
    """To the leader of ballot b: the sender missed a place, and asks for the log."""

    b: int


@final
@dataclass
class LogEnd(Background):
    """From the leader of ballot b: its log has so many places, of which some, or their 2B, may have been lost."""

    b: int
    length: int


MESSAGES: Final[tuple[type[Message], ...]] = (
    Append,
    Appended,
    Announce,
    NewLeader,
    Vote,
    NewLog,
    NewStateAck,
    Nack,
    Heartbeat,
    Missed,
    LogEnd,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class LogOwner(Process, Electing, Observed):
    """A process that has a part in a log, and is told what becomes of it."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.monitor: LogMonitor | None = None

    def on_observe(self, monitor: object) -> None:
        assert isinstance(monitor, LogMonitor)
        self.monitor = monitor

    def decided(self, i: int, entry: Entry) -> None:
        """This place is decided. Called in order, at a leader without learners."""

    def lead(self) -> None:
        """This process leads from now on; the log so far is decided."""

    def follow(self) -> None:
        """This process does not lead any more."""

    def heard(self, rank: int, delivered: int) -> None:
        """Another member has delivered so far."""

    def reached(self) -> tuple[int, int]:
        """Return length and digest of what this process has delivered, if that stands for a part of the log."""
        return 0, 0

    def needed(self) -> tuple[int, int]:
        """Return length and digest of the prefix without which the log of this process is of no use."""
        return self.reached()

    def save(self, record: Message) -> None:
        """Make a record durable before anybody hears of this step, if replicas come back."""

    def save_what_was_heard(self) -> None:
        """Make durable how many records others had, if replicas come back."""

    def mark(self) -> int:
        """Return how many records this process has made durable: others remember it."""
        return 0

    def heard_mark(self, member: int, mark: int) -> None:
        """Remember how many records another member had."""

    def tell_mark(self, to: tuple[int, ...]) -> None:
        """Tell others how many records this process has."""

    def fetch_from(self, member: int) -> None:
        """Get what that member has delivered, and say `GroupLog.grown` when there is more."""


class GroupLog(LeaderCandidate[Vote]):
    """The part of one member: as a leader candidate it asks for logs and brings one."""

    def __init__(self, owner: LogOwner, members: tuple[int, ...], learners: tuple[int, ...] = ()) -> None:
        super().__init__(owner, members)
        self.owner = owner
        self.learners = learners
        self.base = 0  # the places before it are forgotten
        self.entries: list[Entry] = []
        self.payloads: dict[Mid, AppMessage] = {}  # of the entries, if replicas come back
        self.durable = owner.params.durable
        self.stored = [0] * len(members)  # at the leader: the places before this one are stored by each member
        self.known_decided = 0  # at the leader
        self.states = IncomingStates()
        self.pending: NewLog | None = None  # the log of a ballot that it cannot enter before it has the prefix, …
        self.pending_from = owner.pid  # … and whose it is
        self.missed_at = BOTTOM  # when it last asked for the log
        self.passed_by = False  # places of the ballot that it is about to enter came too early

    def receive(self, sender: int, msg: Message) -> None:
        """Handle a message of the log."""
        if isinstance(msg, Append):
            self.on_append(sender, msg)
        elif isinstance(msg, Appended):
            self.on_appended(sender, msg)
        elif isinstance(msg, Heartbeat):
            if self.is_behind(sender, msg):
                self.send_log((sender,))
            self.owner.heard(self.members.index(sender), msg.delivered)
        elif isinstance(msg, NewLeader):
            self.on_new_leader(sender, msg.b)
        elif isinstance(msg, Vote):
            self.on_vote(sender, msg)
        elif isinstance(msg, NewLog):
            self.on_new_log(sender, msg)
        elif isinstance(msg, NewStateAck):
            if self.has_follower(sender, msg.b):
                self.lead()
        elif isinstance(msg, Missed):
            if self.status == LEADER and self.cballot == msg.b:
                self.send_log((sender,))
        elif isinstance(msg, LogEnd):
            follows = self.status == FOLLOWER and self.cballot == msg.b
            if follows and msg.length > self.length():
                self.miss(sender, msg.b)
            elif follows:
                self.tell_stored(sender)  # said before, and lost, or never: it got it from others when it came back
        elif isinstance(msg, Nack):
            if self.status == LEADER and msg.b < self.cballot and self.lagged(self.members.index(sender)):
                self.send_log((sender,))  # who rejoins sends no heartbeat, and was not ready when this ballot began
            self.on_nack(msg.b)

    def length(self) -> int:
        return self.base + len(self.entries)

    def store(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
        if self.durable and entry[0] == 0:
            self.payloads[entry[2].mid] = entry[2]

    def load(self, b: int, base: int, rows: StateRows) -> None:
        """Let this be the log, in ballot b."""
        self.cballot = b
        self.base = base
        self.entries = []
        self.payloads = {}
        for m, kind, ts, _ in rows:
            self.store((kind, ts, m))

    def replace(self, b: int, base: int, rows: StateRows) -> None:
        """Let this be the log, in ballot b, for good."""
        self.load(b, base, rows)
        if self.durable:
            self.owner.save(LogEntered(b, base, rows))
        if self.learners:
            self.announce(self.base, tuple(self.entries))

    def rows(self) -> list[tuple[AppMessage, int, int, int]]:
        return [(m, kind, ts, i) for i, (kind, ts, m) in enumerate(self.entries, self.base)]

    # Normal operation

    def append(self, kind: int, ts: int, m: AppMessage) -> None:
        """Add an entry as the leader."""
        assert self.status == LEADER
        i = self.length()
        self.store((kind, ts, m))
        if self.durable:
            self.owner.save(Stored(i, kind, ts, m))
        self.owner.send(self.others, Append(self.cballot, i, kind, ts, m))
        self.stored[self.rank] = i + 1
        if self.learners:
            self.announce(i, ((kind, ts, m),))
        elif self.majority == 1:
            self.owner.send_one(self.owner.pid, Appended(self.cballot, i, m.mid, self.owner.mark()))

    def on_append(self, sender: int, msg: Append) -> None:
        if self.pending is not None and msg.b == self.pending.b:
            self.passed_by = True
            return
        if self.status != FOLLOWER or self.cballot != msg.b:
            return
        if msg.i != self.length():
            self.miss(sender, msg.b)
            return
        self.store((msg.kind, msg.ts, msg.m))
        if self.durable:
            self.owner.save(Stored(msg.i, msg.kind, msg.ts, msg.m))
        if self.learners:
            self.announce(msg.i, ((msg.kind, msg.ts, msg.m),))
        else:
            self.owner.send_one(sender, Appended(msg.b, msg.i, msg.m.mid, self.owner.mark()))

    def on_appended(self, sender: int, msg: Appended) -> None:
        self.owner.heard_mark(sender, msg.mark)
        if self.status != LEADER or self.cballot != msg.b:
            return
        rank = self.members.index(sender)
        self.stored[rank] = max(self.stored[rank], msg.i + 1)
        upto = quorum_has(self.stored, self.majority)
        while self.known_decided < upto and self.status == LEADER:
            i = self.known_decided
            self.known_decided += 1
            self.owner.decided(i, self.entries[i - self.base])

    def tell_stored(self, leader: int) -> None:
        """Send 2B for all of the log, in the current ballot, unless learners were told."""
        if self.entries and not self.learners:
            i, m = self.length() - 1, self.entries[-1][2]
            self.owner.send_one(leader, Appended(self.cballot, i, m.mid, self.owner.mark()))

    def announce(self, i: int, entries: tuple[Entry, ...]) -> None:
        """Send 2B: these are stored in the current ballot, from place i on."""
        self.owner.send(self.learners, Announce(self.cballot, i, entries, self.owner.mark()))

    def miss(self, leader: int, b: int) -> None:
        """Ask the leader for its log, unless it was asked just now."""
        now = self.process.now
        if self.missed_at == BOTTOM or now >= self.missed_at + ASK_AGAIN * self.process.params.delta:
            self.missed_at = now
            self.owner.send_one(leader, Missed(b))

    def forget_before(self, i: int) -> None:
        """Forget the places before i: what they say is part of the prefix, or everybody knows it."""
        if i > self.base:
            if self.durable:
                for kind, _, m in self.entries[: i - self.base]:
                    if kind == 0:
                        self.payloads.pop(m.mid, None)
            del self.entries[: i - self.base]
            self.base = i
            self.known_decided = max(self.known_decided, i)

    # A new leader

    def in_parts(self) -> list[tuple[int, int, StateRows]]:
        """Return the log: number of a part, of how many, rows."""
        return in_parts(self.rows(), self.process.params.part_bytes)

    def on_new_leader(self, sender: int, b: int) -> None:
        led = self.status == LEADER
        if self.promises(sender, b):
            self.pending = None
            if led:
                self.owner.follow()
            if self.durable:
                self.owner.save(Promised(b))
                self.owner.tell_mark((sender,))
            position, digest = self.owner.needed()
            for part in self.in_parts():
                self.owner.send_one(sender, Vote(b, self.cballot, 0, position, digest, *part, self.base))

    def on_vote(self, sender: int, msg: Vote) -> None:
        rows = self.states.rows_of(sender, msg)
        if rows is None:
            return
        vote = Vote(msg.b, msg.cballot, 0, msg.position, msg.digest, 0, 1, rows, msg.base)
        if self.has_votes(sender, msg.b, vote):
            self.form()

    def form(self) -> None:
        """Begin the ballot for which a quorum has voted, as soon as the longest prefix of the votes is here."""
        furthest = max(self.votes, key=lambda pid: self.votes[pid].position)
        position, digest = self.owner.reached()
        if self.votes[furthest].position > position:
            self.owner.fetch_from(furthest)
            return
        digests: dict[int, int] = {position: digest}
        best = self.votes[self.process.pid]
        for pid, vote in self.votes.items():
            if digests.setdefault(vote.position, vote.digest) != vote.digest:
                self.differ(pid, vote.position)
            if (vote.cballot, vote.base + len(vote.rows)) > (best.cballot, best.base + len(best.rows)):
                best = vote
        self.owner.save_what_was_heard()
        self.adopt(self.ballot, best.base, best.rows)
        self.send_log(self.others)
        if self.leads_now():
            self.lead()

    def differ(self, pid: int, position: int) -> None:
        names = self.process.topology
        raise InvariantViolation(
            f"{names.name(self.process.pid)} and {names.name(pid)} have delivered other messages "
            f"up to position {position}: compare them with `amcast cluster verify`"
        )

    def send_log(self, to: tuple[int, ...]) -> None:
        """Send the log of the ballot in which this process works, as it is now."""
        self.owner.tell_mark(to)
        position, digest = self.owner.needed()
        for part in self.in_parts():
            self.owner.send(to, NewLog(self.cballot, self.cballot, 0, position, digest, *part, self.base))

    def on_new_log(self, sender: int, msg: NewLog) -> None:
        rows = self.states.rows_of(sender, msg)
        if rows is None:
            return
        follows = self.status == FOLLOWER and self.cballot == msg.b == self.ballot
        if self.joins(msg.b) or (follows and msg.base + len(rows) > self.length()):
            self.pending = NewLog(msg.b, msg.cballot, 0, msg.position, msg.digest, 0, 1, rows, msg.base)
            self.pending_from = sender
            self.passed_by = False
            self.enter_pending()

    def enter_pending(self) -> None:
        """Follow in a ballot as soon as the prefix with which its log begins is here."""
        pending = self.pending
        assert pending is not None
        position, digest = self.owner.reached()
        if pending.position > position:
            self.owner.fetch_from(self.pending_from)
            return
        if pending.position == position and pending.digest != digest:
            self.differ(self.pending_from, position)
        self.pending = None
        entered = self.cballot == pending.b
        self.status = FOLLOWER
        self.adopt(pending.b, pending.base, pending.rows)
        if not entered:
            self.owner.tell_mark((self.pending_from,))
            self.owner.send_one(self.pending_from, NewStateAck(pending.b))
        self.tell_stored(self.pending_from)
        if self.passed_by:
            self.owner.send_one(self.pending_from, Missed(pending.b))

    def grown(self) -> None:
        """Go on with what waits for a longer prefix."""
        if self.pending is not None:
            self.enter_pending()
        elif self.status == RECOVERING and self.may_form():
            self.form()

    def adopt(self, b: int, base: int, rows: StateRows) -> None:
        """Enter ballot b with this log, or take over more of it. What this member had, counts no more."""
        self.enter(b)
        self.replace(b, base, rows)

    def tick(self, delivered: int, position: int = 0) -> None:
        super().tick(delivered, position)
        if self.status == LEADER and self.entries:
            unsure = [p for p in self.others if self.learners or self.stored[self.members.index(p)] < self.length()]
            if unsure:
                self.owner.send(tuple(unsure), LogEnd(self.cballot, self.length()))

    def lead(self) -> None:
        self.owner.save_what_was_heard()
        self.known_decided = self.length()
        self.stored = [0] * len(self.members)
        self.stored[self.rank] = self.known_decided
        self.owner.lead()


def quorum_has(stored: list[int], majority: int) -> int:
    """Return the place before which all are stored by so many members."""
    return sorted(stored, reverse=True)[majority - 1]


@final
class Learner:
    """Learns the log of a group from what its members announce, at whoever needs it."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.majority = len(members) // 2 + 1
        self.learned = 0  # the places before it
        self._ballot = [BOTTOM] * len(members)  # the last one in which each member announced …
        self._stored = [0] * len(members)  # … the places before this one
        self._values: dict[int, dict[int, Entry]] = {}  # by ballot and place, what is not learned

    def on_announce(self, sender: int, msg: Announce) -> list[Entry]:
        """Return what is learned by this, in order."""
        rank = self.members.index(sender)
        b = msg.b
        if b < self._ballot[rank]:
            return []
        if b > self._ballot[rank]:
            self._ballot[rank] = b
            self._stored[rank] = 0
            for over in [over for over in self._values if over not in self._ballot]:
                del self._values[over]  # every member has left this ballot
        values = self._values.setdefault(b, {})
        for place, entry in enumerate(msg.entries, msg.i):
            if place >= self.learned:
                values[place] = entry
        self._stored[rank] = max(self._stored[rank], msg.i + len(msg.entries))
        return self.found_in(b)

    def found_in(self, b: int) -> list[Entry]:
        """Return what is learned from the announcements of ballot b, in order, as far as no place is missing here."""
        values = self._values[b]
        stored = [self._stored[r] if self._ballot[r] == b else 0 for r in range(len(self.members))]
        upto = quorum_has(stored, self.majority)
        found: list[Entry] = []
        while self.learned < upto and self.learned in values:
            found.append(values[self.learned])
            self.is_told()
        return found

    def is_told(self) -> None:
        """Take note that the next place is learned, here or from somebody who knew."""
        for each in self._values.values():
            each.pop(self.learned, None)
        self.learned += 1

    def goes_on(self) -> list[Entry]:
        """Return what is learned because places before it were told."""
        return [entry for b in sorted(self._values) for entry in self.found_in(b)]

    def skip_to(self, i: int) -> None:
        """Take note that all places before i are learned."""
        while self.learned < i:
            self.is_told()

    def leader(self) -> int:
        """Return who leads, so far as is known here."""
        return self.members[leader_of(max(0, *self._ballot))]
