"""A server of the AllConcur family that is no member yet: it asks members for what was delivered, then to be let in.

Members that may get company keep all messages. A server that wants to join first catches up, while the others go on;
when it has all, the member that it asks proposes it. Welcome to a new eon, it fetches what it still lacks, and begins.
"""

from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.capabilities import Dynamic
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.core.wire import AppMessage, Message, wired
from amcast.protocols.allconcur.overlay import OverlayServer, overlay_of
from amcast.protocols.allconcur.rounds import Batch

CHUNK: Final = 64 * 1024  # bytes of messages in one answer


@final
@dataclass
class Welcome(Message):
    """Tells a new member the state in which the eon begins, who may never come back, how many messages came before."""

    eon: int
    e: int
    r: int
    members: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    gone: tuple[int, ...] = field(metadata=wired(tuple[int, ...]))
    past: int


@final
@dataclass
class Ask(Message):
    """The sender has the first messages and asks for those that follow. If it has all, it wants to join."""

    have: int
    join: bool


@final
@dataclass
class Past(Message):
    """Messages from place `first` on, of `all` that there are."""

    first: int
    batch: Batch = field(metadata=wired(Batch))
    all: int


class JoiningServer(OverlayServer, Dynamic):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.keeps_log = params.spare > 0
        self.log: list[AppMessage] = []
        self.wanted: tuple[int, ...] = ()  # members that this server is to propose
        self.proposed = 0  # the eon in which it last did so for somebody who asked
        self.joins = False
        self.leaves = False
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
        self.send_one(self.asked, Ask(len(self.log), self.joins and self.welcome is None))

    def on_past(self, msg: Past) -> None:
        if self.eon > 0 or msg.first != len(self.log):
            return
        welcome = self.welcome
        for m in msg.batch:
            if welcome is None or len(self.log) < welcome.past:
                self.log.append(m)
                self.deliver_once(m)
        if welcome is not None and len(self.log) == welcome.past:
            self.enter(welcome)
        elif len(self.log) < msg.all:
            self.ask()

    def on_welcome(self, sender: int, msg: Welcome) -> None:
        if self.eon > 0 or self.welcome is not None or self.pid not in msg.members:
            return
        self.welcome = msg
        self.successors = overlay_of(msg.members, msg.members, self.replicas).successors[self.pid]
        self.say_alive()  # others count on it from now on
        if len(self.log) == msg.past:
            self.enter(msg)
        elif len(self.log) > msg.past:
            self.out.halted = True  # the others went on without it
        else:
            self.asked = sender
            self.ask()

    def enter(self, welcome: Welcome) -> None:
        """Begin as a member."""
        raise NotImplementedError

    # Inside

    def on_ask(self, sender: int, msg: Ask) -> None:
        if self.eon == 0 or not self.keeps_log:
            return
        batch: list[AppMessage] = []
        size = 0
        for i in range(msg.have, len(self.log)):
            if size >= CHUNK:
                break
            batch.append(self.log[i])
            size += len(self.log[i].payload)
        self.send_one(sender, Past(msg.have, tuple(batch), len(self.log)))
        if msg.join and not batch and not self.is_member[sender] and self.proposed < self.eon:
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
