"""Learning from the logs of several groups at once: from each, in order, the entries that are meant for this process.

An entry is announced to its own group and to the groups that it is addressed to. Whoever stored a place in a ballot
stored all before it, and channels are FIFO; so a learner that has a place from a quorum in one ballot had all earlier
places that are meant for it from the same members: it learns them in the order of the log, though it sees only a part.

Without `direct`, members announce to their own group only and pass on what they have learnt (Decided): one more message
delay, and fewer messages.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, Background, Message, Reader, pack_app, pack_long, pack_short
from amcast.protocols.black_box.replicated_log import Announce, Entry, GroupLog, LogOwner


@final
@mypyc_attr(acyclic=True)
class Decided(Message):
    """Place i of the log of the sender's group."""

    wire: ClassVar[dict[str, object]] = {"i": int, "kind": int, "ts": int, "m": AppMessage}

    def __init__(self, i: int, kind: int, ts: int, m: AppMessage) -> None:
        self.i = i
        self.kind = kind
        self.ts = ts
        self.m = m

    def about(self) -> tuple[Mid, ...]:
        return (self.m.mid,) if self.kind >= 0 else ()

    def pack(self, w: BytesWriter) -> None:
        pack_long(w, self.i)
        pack_short(w, self.kind)
        pack_long(w, self.ts)
        pack_app(w, self.m)

    def unpack(self, r: Reader) -> Message:
        return Decided(r.long(), r.short(), r.long(), r.app())


@final
@dataclass
class Learnt(Background):
    """The sender has learnt what is meant for it of the receiver's log, up to place i."""

    i: int


MESSAGES: Final[tuple[type[Message], ...]] = (Decided, Learnt)


@final
class SharedLog(GroupLog):
    """The log of this group, whose entries are announced to the groups that they are addressed to."""

    def __init__(self, owner: LogOwner, members: tuple[int, ...], direct: bool) -> None:
        super().__init__(owner, members, members)
        self.direct = direct
        self.g0 = owner.topology.group_of[owner.pid]
        self._outside: dict[tuple[int, ...], tuple[int, ...]] = {}

    def outside(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        """Return the members of these groups but this one."""
        known = self._outside.get(dest)
        if known is None:
            others = tuple([g for g in dest if g != self.g0])
            known = self._outside[dest] = self.owner.topology.members_of(others)
        return known

    def announce(self, i: int, entries: tuple[Entry, ...]) -> None:
        if len(entries) == 1 and self.direct:
            to = self.members + self.outside(entries[0][2].dest)
            self.owner.send(to, Announce(self.cballot, i, entries))
            return
        self.owner.send(self.members, Announce(self.cballot, i, entries))
        if self.direct:
            for place, entry in enumerate(entries, i):
                to = self.outside(entry[2].dest)
                if to:
                    self.owner.send(to, Announce(self.cballot, place, (entry,)))

    def forget_learnt(self, learnt_by: list[int]) -> None:
        """Forget the first places that all their learners have."""
        n = 0
        while n < len(self.entries) and self.has_all(self.base + n, self.entries[n][2].dest, learnt_by):
            n += 1
        self.forget_before(self.base + n)

    def has_all(self, i: int, dest: tuple[int, ...], learnt_by: list[int]) -> bool:
        return all(learnt_by[p] >= i for p in self.members + self.outside(dest))


@final
@mypyc_attr(acyclic=True)
class Tally:
    """Who announced a place in ballot b; `older` has the same of another ballot."""

    def __init__(self, b: int, older: "Tally | None") -> None:
        self.b = b
        self.members = 0
        self.count = 0
        self.older = older


@final
class PartialLearner:
    """Learns the part of one group's log that is meant for this process."""

    def __init__(self, size: int) -> None:
        self.quorum = size // 2 + 1
        self.learnt = -1  # the last place that was
        self.told = -1  # what the group knows of it
        self._tallies: dict[int, Tally] = {}

    def hears(self, rank: int, b: int, i: int) -> bool:
        """Take the announcement of place i by a member; return True if that makes it learnt."""
        if i <= self.learnt:
            return False
        newest = self._tallies.get(i)
        tally = newest
        while tally is not None and tally.b != b:
            tally = tally.older
        if tally is None:
            tally = self._tallies[i] = Tally(b, newest)
        bit = 1 << rank
        if tally.members & bit:
            return False
        tally.members |= bit
        tally.count += 1
        if tally.count < self.quorum:
            return False
        del self._tallies[i]
        self.learnt = i
        return True

    def is_told(self, i: int) -> bool:
        """Take a decided place that a member passed on; return True if it is new."""
        if i <= self.learnt:
            return False
        self.learnt = i
        return True

    def tidy(self) -> None:
        """Forget announcements that never led to anything: their ballots are over."""
        self._tallies = {i: tally for i, tally in self._tallies.items() if i > self.learnt}
