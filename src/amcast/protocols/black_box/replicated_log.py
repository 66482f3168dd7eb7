"""The replicated log of a group: one ballot at a time, recovered as a whole, learned in order without gaps.

A leader puts entries at consecutive places (2A); a member stores a place only in the ballot that it follows and only
behind all places before it (2B). So whoever stored a place in a ballot stored all before it, and what a quorum stored
is decided, in order. A new leader takes the longest log of the highest ballot that a quorum reports, brings a quorum in
step with it, and only then leads; the whole of it counts as decided.

Two ways to learn: the leader counts the 2Bs sent to it and tells `decided` to its owner; or, with `learners`, members
send what they stored to all of them, and each has a `Learner` that counts. After a new ballot every member announces
its whole log again: a learner that saw places of two ballots would otherwise never have a quorum of either.

Places that nobody will ask for again are forgotten (`forget_before`); the owner says which.

Paper: the black-box consensus of Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", section IV, and of
"Optimistic Atomic Multicast", section 6, as a log with ballots in the manner of Viewstamped Replication and Zab.
Independent instances, as there, would let a later message of a sender survive without an earlier one.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Electing, Observed
from amcast.core.order import BOTTOM, leader_of
from amcast.core.process import Effects, Params, Process
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage, Message, Reader, pack_app, pack_long, pack_mid, pack_short, wired
from amcast.protocols.black_box.invariants import LogMonitor
from amcast.protocols.parts.leader_candidate import (
    FOLLOWER,
    LEADER,
    Heartbeat,
    LeaderCandidate,
    Nack,
    NewLeader,
    NewStateAck,
)

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
    """2B to the leader: stored place i, and all before it, in ballot b."""

    wire: ClassVar[dict[str, object]] = {"b": int, "i": int, "mid": int}

    def __init__(self, b: int, i: int, mid: Mid) -> None:
        self.b = b
        self.i = i
        self.mid = mid

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.b)
        pack_long(w, self.i)
        pack_mid(w, self.mid)

    def unpack(self, r: Reader) -> Message:
        return Appended(r.long(), r.long(), r.mid())


@final
@mypyc_attr(acyclic=True)
class Announce(Message):
    """2B to all learners: stored these, from place i on, and all before them, in ballot b."""

    wire: ClassVar[dict[str, object]] = {"b": int, "i": int, "entries": tuple[tuple[int, int, AppMessage], ...]}

    def __init__(self, b: int, i: int, entries: tuple[Entry, ...]) -> None:
        self.b = b
        self.i = i
        self.entries = entries

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

    def unpack(self, r: Reader) -> Message:
        b = r.long()
        i = r.long()
        return Announce(b, i, tuple([(r.short(), r.long(), r.app()) for _ in range(r.long())]))


@final
@dataclass
class Vote(Message):
    """To a candidate: the log from place `base` on, as it was in `cballot`."""

    b: int
    cballot: int
    base: int
    entries: tuple[Entry, ...] = field(metadata=wired(tuple[Entry, ...]))

    def about(self) -> tuple[Mid, ...]:
        return about(self.entries)


@final
@dataclass
class NewLog(Message):
    """The log with which ballot b begins."""

    b: int
    base: int
    entries: tuple[Entry, ...] = field(metadata=wired(tuple[Entry, ...]))

    def about(self) -> tuple[Mid, ...]:
        return about(self.entries)


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


class GroupLog(LeaderCandidate[Vote]):
    """The part of one member: as a leader candidate it asks for logs and brings one."""

    def __init__(self, owner: LogOwner, members: tuple[int, ...], learners: tuple[int, ...] = ()) -> None:
        super().__init__(owner, members)
        self.owner = owner
        self.learners = learners
        self.base = 0  # the places before it are forgotten
        self.entries: list[Entry] = []
        self.stored = [0] * len(members)  # at the leader: the places before this one are stored by each member
        self.known_decided = 0  # at the leader

    def receive(self, sender: int, msg: Message) -> None:
        """Handle a message of the log."""
        if isinstance(msg, Append):
            self.on_append(sender, msg)
        elif isinstance(msg, Appended):
            self.on_appended(sender, msg)
        elif isinstance(msg, Heartbeat):
            self.is_behind(sender, msg)
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
        elif isinstance(msg, Nack):
            self.on_nack(msg.b)

    def length(self) -> int:
        return self.base + len(self.entries)

    # Normal operation

    def append(self, kind: int, ts: int, m: AppMessage) -> None:
        """Add an entry as the leader."""
        assert self.status == LEADER
        i = self.length()
        self.entries.append((kind, ts, m))
        self.owner.send(self.others, Append(self.cballot, i, kind, ts, m))
        self.stored[self.rank] = i + 1
        if self.learners:
            self.announce(i, ((kind, ts, m),))
        elif self.majority == 1:
            self.owner.send_one(self.owner.pid, Appended(self.cballot, i, m.mid))

    def on_append(self, sender: int, msg: Append) -> None:
        if self.status != FOLLOWER or self.cballot != msg.b:
            return
        if msg.i != self.length():
            self.refuse(sender, msg.b)
            return
        self.entries.append((msg.kind, msg.ts, msg.m))
        if self.learners:
            self.announce(msg.i, ((msg.kind, msg.ts, msg.m),))
        else:
            self.owner.send_one(sender, Appended(msg.b, msg.i, msg.m.mid))

    def on_appended(self, sender: int, msg: Appended) -> None:
        if self.status != LEADER or self.cballot != msg.b:
            return
        rank = self.members.index(sender)
        self.stored[rank] = max(self.stored[rank], msg.i + 1)
        upto = quorum_has(self.stored, self.majority)
        while self.known_decided < upto and self.status == LEADER:
            i = self.known_decided
            self.known_decided += 1
            self.owner.decided(i, self.entries[i - self.base])

    def announce(self, i: int, entries: tuple[Entry, ...]) -> None:
        """Send 2B: these are stored in the current ballot, from place i on."""
        self.owner.send(self.learners, Announce(self.cballot, i, entries))

    def forget_before(self, i: int) -> None:
        """Forget the places before i. Every member has what they say, so nobody will ask for them."""
        if i > self.base:
            del self.entries[: i - self.base]
            self.base = i

    # A new leader

    def on_new_leader(self, sender: int, b: int) -> None:
        led = self.status == LEADER
        if self.promises(sender, b):
            if led:
                self.owner.follow()
            self.owner.send_one(sender, Vote(b, self.cballot, self.base, tuple(self.entries)))

    def on_vote(self, sender: int, msg: Vote) -> None:
        if not self.has_votes(sender, msg.b, msg):
            return
        best = msg
        for vote in self.votes.values():
            if (vote.cballot, vote.base + len(vote.entries)) > (best.cballot, best.base + len(best.entries)):
                best = vote
        self.adopt(msg.b, best.base, best.entries)
        self.owner.send(self.others, NewLog(msg.b, self.base, tuple(self.entries)))
        if self.leads_now():
            self.lead()

    def on_new_log(self, sender: int, msg: NewLog) -> None:
        if self.may_follow(msg.b):
            self.adopt(msg.b, msg.base, msg.entries)
            self.owner.send_one(sender, NewStateAck(msg.b))

    def adopt(self, b: int, base: int, entries: tuple[Entry, ...]) -> None:
        """Enter ballot b with this log. What this member has forgotten, it need not know again."""
        keep = max(base, self.base)
        self.entries = list(entries[keep - base :])
        self.base = keep
        self.enter(b)
        if self.learners:
            self.announce(self.base, tuple(self.entries))

    def lead(self) -> None:
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
        stored = [self._stored[r] if self._ballot[r] == b else 0 for r in range(len(self.members))]
        upto = quorum_has(stored, self.majority)
        found: list[Entry] = []
        while self.learned < upto:
            found.append(values[self.learned])
            for each in self._values.values():
                each.pop(self.learned, None)
            self.learned += 1
        return found

    def leader(self) -> int:
        """Return who leads, so far as is known here."""
        return self.members[leader_of(max(0, *self._ballot))]
