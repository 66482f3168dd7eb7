"""A server of the AllConcur family that is no member yet: it asks members for what was delivered, then to be let in.

Members that may get company keep all messages. A server that wants to join first catches up, while the others go on;
when it has nearly all, the member that it asks proposes it. Welcome to a new eon, it fetches what it still lacks, and
begins.

What a member delivered last binds nobody where agreement is not uniform: it may crash, and the others run that round
again without it. So it hands out only what is stable: everything but the last round that it delivered, for by the time
it delivers a round everybody is past the one before. A server that joins believes a welcome when more than half of the
members before it say the same, and a prefix is named by its hash: the rest, up to the beginning of the eon, comes from
a member whose ledger has the hash that those named.
"""

from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.capabilities import Dynamic
from amcast.core.notes import Stops
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology, sender_of
from amcast.core.wire import Message, wired
from amcast.protocols.allconcur.overlay import OverlayServer, overlay_of
from amcast.protocols.allconcur.past import PastLog
from amcast.protocols.allconcur.rounds import Batch

CHUNK: Final = 64 * 1024  # bytes of messages in one answer


@final
@dataclass
class Welcome(Message):
    """Tells a new member the state in which the eon begins, who may never come back, and what came before.

    That is how many messages, and the hash of them all. `old` is how many members the eon before had at its end.
    """

    eon: int
    e: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    gone: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    past: int
    prefix: bytes
    old: int


@final
@dataclass
class Ask(Message):
    """The sender has the first messages, with this hash, and asks for those that follow.

    If it has nearly all, it may want to join. If it is welcome, `goal` is the hash of what came before its eon. It
    takes no part in eons up to `above`, also if it was a member.
    """

    have: int
    join: bool
    prefix: bytes
    goal: bytes
    above: int


@final
@dataclass
class Past(Message):
    """Messages from place `first` on, of `all` that there are, or why there are none for the receiver."""

    first: int
    batch: Batch = field(metadata=wired(Batch))
    all: int


TAIL: Final = 4096  # messages that members keep for one that was removed and comes back
NO_GOAL: Final = b""
ANOTHER_PAST: Final = -1  # instead of a number of messages: the asker delivered others …
FORGOTTEN: Final = -2  # … or lacks some that are no longer kept


class JoiningServer(OverlayServer, Dynamic):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.keeps_log = params.spare > 0 or self.forgives
        self.log = PastLog(0 if params.spare else TAIL)
        self.above = 0  # this server takes no part in eons up to this one: others went on, or it forgot what it said
        self.greeting: Welcome | None = None  # how this eon began, but for the first one
        self.stable = 0  # how many messages all others deliver as well
        self.before_eon = 0  # how many there were when this eon began
        self.wanted: tuple[int, ...] = ()  # members that this server is to propose
        self.proposed = 0  # the eon in which it last did so for somebody who asked
        self.joins = False
        self.leaves = False
        self.welcomes: dict[int, Welcome] = {}  # by sender, until enough of them are equal
        self.welcome: Welcome | None = None
        self.asked = pid  # whom this server asked last
        self.had = 0  # what it had at the last beat

    # Outside

    def on_join_group(self) -> None:
        self.joins = True
        self.ask_another()

    def ask_another(self) -> None:
        self.asked = (self.asked + 1) % self.replicas
        if self.asked == self.pid:
            self.asked = (self.asked + 1) % self.replicas
        self.ask()

    def ask(self) -> None:
        welcome, have = self.welcome, len(self.log)
        goal = welcome.prefix if welcome is not None else NO_GOAL
        join = self.joins and welcome is None
        self.send_one(self.asked, Ask(have, join, self.log.prefix(have), goal, self.above))

    def on_past(self, sender: int, msg: Past) -> None:
        if self.eon > 0 or msg.first != len(self.log):
            return
        if msg.all == FORGOTTEN:
            self.lacks_too_much(sender)
            return
        if msg.all == ANOTHER_PAST:
            self.note(Stops("another past"))
            self.out.halted = True
            return
        welcome = self.welcome
        for m in msg.batch:
            if welcome is None or len(self.log) < welcome.past:
                self.log.append(m)
                self.deliver_once(m)
                if sender_of(m.mid) == self.pid:  # a member then, and removed before it knew
                    self.out.completed.append(m.mid)
                    self.queue = [other for other in self.queue if other.mid != m.mid]
        if welcome is not None and len(self.log) == welcome.past:
            self.enter_if_same(welcome)
        elif len(self.log) < msg.all:
            self.ask()

    def lacks_too_much(self, sender: int) -> None:
        """Act on it that a member does not keep any more what this server lacks."""
        self.note(Stops("further behind than others remember"))
        self.out.halted = True

    def on_welcome(self, sender: int, msg: Welcome) -> None:
        if self.eon > 0 or self.welcome is not None or self.pid not in msg.members or msg.eon <= self.above:
            return
        self.welcomes[sender] = msg
        self.successors = overlay_of(msg.members, msg.members, self.replicas).successors[self.pid]
        self.say_alive()  # others count on it from now on
        if 2 * len([other for other in self.welcomes.values() if other == msg]) <= msg.old:
            return  # its sender may be the only one who saw the eon begin like this, and be gone tomorrow
        self.welcome = msg
        if len(self.log) >= msg.past:
            self.enter_if_same(msg)
        else:
            self.asked = sender
            self.ask()

    def enter_if_same(self, welcome: Welcome) -> None:
        assert self.log.prefix(len(self.log)) == welcome.prefix, "what a joiner was given is what all delivered"
        self.enter(welcome)

    def enter(self, welcome: Welcome) -> None:
        """Begin as a member."""
        raise NotImplementedError

    # Inside

    def on_ask(self, sender: int, msg: Ask) -> None:
        if self.eon == 0 or not self.keeps_log:
            return
        end = self.stable
        if msg.goal and msg.goal == self.log.prefix(self.before_eon):
            end = max(end, self.before_eon)
        known = self.log.prefix(msg.have)
        forgotten = msg.have < self.log.first
        if forgotten or (known and msg.prefix != known):
            if msg.have <= self.stable:  # else it may be this server that is alone
                self.send_one(sender, Past(msg.have, (), FORGOTTEN if forgotten else ANOTHER_PAST))
            return
        batch = self.log.part(msg.have, end, CHUNK)
        self.send_one(sender, Past(msg.have, batch, max(end, msg.have)))
        near = msg.have + len(batch) >= end  # under load it never has all
        if msg.join and near and not self.is_member[sender] and self.proposed < self.eon:
            self.proposed = self.eon
            self.on_change_members((*self.members, sender))

    def on_leave_group(self) -> None:
        self.leaves = True
        if self.eon > 0 and self.proposed < self.eon and len(self.members) > 1:
            self.proposed = self.eon
            self.on_change_members(tuple([p for p in self.members if p != self.pid]))

    def on_beat(self) -> None:
        """Ask again for what may have been lost, or was not agreed upon."""
        if self.eon > 0:
            if self.leaves:
                self.on_leave_group()
        elif self.joins or self.welcome is not None:
            if self.had == len(self.log):
                self.ask_another()
            self.had = len(self.log)
