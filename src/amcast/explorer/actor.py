"""One process under the control of a search: it takes the next event when it is told to."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from amcast.core.capabilities import Detecting, Durable, Dynamic, Electing, Observed, Reconfigurable
from amcast.core.notes import GroupsChange, Leads, Note, Undone
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import NOBODY
from amcast.core.topology import Mid, Topology, message_id, sender_of
from amcast.core.wire import AppMessage, Message
from amcast.errors import AmcastError, InvariantViolation, PropertyViolation, UsageError
from amcast.explorer.scope import Scope

DELTA = 1_000_000

REFUSED = '{"refused": true}'

Result = TypeVar("Result")
Sends = list[tuple[int, Message]]
LogEntry = tuple[str, Mid, object]  # kind of row in a trace; message; destinations, timestamp or detail


@dataclass(frozen=True)
class Setting:
    """The common surroundings of all processes of an exploration."""

    protocol: Protocol
    scope: Scope
    topology: Topology
    params: Params

    @classmethod
    def of(cls, protocol: Protocol, scope: Scope) -> "Setting":
        durable = bool(scope.restarts)
        params = Params(DELTA, checked=True, durable=durable, spare=scope.spare, tail_bytes=scope.tail_bytes)
        return cls(protocol, scope, scope.topology(), params)

    @property
    def loses(self) -> bool:
        """True if messages that a process had under way when it crashed may be lost."""
        return not self.protocol.reliable_links

    @property
    def accurate(self) -> bool:
        """True if only processes that crashed are suspected."""
        return self.protocol.detector != "◇P"

    def works(self, pid: int) -> tuple[tuple[int, ...], ...]:
        """Return the destinations of what this process multicasts."""
        name = self.topology.names[pid]
        return tuple(dest for who, dest in self.scope.multicasts if who == name)


BUGS = (AmcastError, AssertionError, KeyError, IndexError, ValueError, TypeError, AttributeError, NotImplementedError)


class Pull(Message):
    """Asks a member for a snapshot of what it has delivered, as a driver does on a connection of its own."""


class Snapshot(Message):
    """Records that a member made of its state, and what it had delivered."""

    def __init__(self, records: list[bytes], delivered: list[LogEntry]) -> None:
        self.records = records
        self.delivered = delivered


# What can happen to a process: the first word says what. Messages are objects here, numbers in a search.
Happening = tuple[object, ...]
START: Happening = ("start",)


@dataclass
class Step:
    """The consequences of one event."""

    sends: Sends = field(default_factory=list)
    rows: list[LogEntry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    sent_before: list[int] = field(default_factory=list)  # of a row: how many of the messages leave before it

    def cuts(self) -> range:
        """Return how many of the messages may have left when the process crashes inside this step."""
        return range(min(1, len(self.sends)), len(self.sends) + 1)


class Actor:
    """A process with what a driver knows about it: its clock, its timers, what it has still to multicast."""

    def __init__(self, setting: Setting, pid: int, monitor: object = None) -> None:
        self.setting = setting
        self.pid = pid
        self.monitor = monitor
        self.out = Effects()
        self.process = self.made()
        self.now = 0  # moves only when a timer fires
        self.due: list[tuple[str, int, int]] = []  # timer, earliest and latest time
        self.left = list(setting.works(pid))
        self.seq = 0
        self.log: list[LogEntry] = []
        self.inbox: deque[Message] = deque()  # from itself, if that is part of the step
        self.crashed = False
        self.durable: list[bytes] = []
        self.whole = 0  # records of a snapshot, which the disk keeps together
        self.had: list[LogEntry] = []  # what was delivered, in all lives …
        self.place = 0  # … and how much of it this one has: a disk that lost its end has it deliver again
        self.unsynced: list[bytes] = []
        self.unsure: list[LogEntry] = []  # delivered, with a record that a crash would lose
        scope = setting.scope
        name = setting.topology.names[pid]
        self.restarts = scope.restarts.count(name)
        self.may_restart = self.restarts > 0
        self.starts = 1
        self.may_be_older, self.may_be_lost = name in scope.older, name in scope.lost
        self.harmed = False  # its disk lost something
        self.forgot = False  # and it must come back without it: it stopped, or has not taken part since it did
        self.doubtful = False  # nobody has confirmed yet that it did not
        self.elections = scope.elections.count(name)
        self.refusals = [setting.topology.pid(other) for who, other in scope.refusals if who == name]
        self.timers = scope.timers.count(name)
        self.changes = [(what, group) for who, what, group in scope.reconfigurations if who == name]
        self.may_crash = name in scope.crashes
        self.may_falter = name in scope.falters
        self.falters = False  # it crashes inside its next step …
        self.unfinished: Step | None = None  # … which is this one: where it is cut is the next move
        self.snapshots = scope.snapshots.count(name)
        self.detections = [setting.topology.pid(other) for who, other in scope.detections if who == name]
        self.suspects: list[int] = []  # those that it suspects because of a move

    def made(self) -> Process:
        process = self.setting.protocol.make(self.pid, self.setting.topology, self.setting.params, self.out)
        if self.monitor is not None and isinstance(process, Observed):
            process.on_observe(self.monitor)
        return process

    def do(self, happening: Happening) -> Step:
        """Let this happen now."""
        step = Step()
        before = len(self.log)
        what = happening[0]
        process = self.process
        if what == "start":
            process.start(self.now)
            self.drain(step)
            if not self.setting.scope.whenever:
                self.multicast(step)
        elif what == "multicast":
            self.multicast(step)
        elif what == "receive":
            _, sender, msg = happening
            assert isinstance(sender, int) and isinstance(msg, Message)
            self.hear(step, sender, msg)
        elif what == "timer":
            self.timers -= 1
            self.fire(str(happening[1]))
        elif what == "suspect":
            self.elections -= 1
            if isinstance(process, Electing):
                process.suspect(self.now)
            else:  # a client asks again, as it does when a connection breaks
                process.disconnect(self.now)
        elif what == "refuse":
            assert isinstance(happening[1], int) and isinstance(process, Electing), "a scope of groups with leaders"
            self.refusals.remove(happening[1])
            process.gone(self.now, happening[1])
        elif what == "reconfigure":
            wish, group = self.changes.pop(0)
            if wish == "members":
                names = self.setting.topology.pid
                assert isinstance(process, Dynamic), "a scope of members that change"
                process.change_members(self.now, tuple([names(name) for name in group.split(",")]))
            elif isinstance(process, Dynamic):
                ask = process.join_group if wish == "join" else process.leave_group
                ask(self.now)
            else:
                assert isinstance(process, Reconfigurable), "a scope of groups that join and leave"
                process.reconfigure(self.now, wish == "join", int(group[1:]))
        elif what == "detect" or what == "trust":
            self.detect(what == "detect", happening[1])
        elif what == "crash":
            self.crash(step)
        elif what == "falter":
            self.falters = True
            return step
        elif what == "cut":
            return self.fall(int(str(happening[1])))
        elif what == "sync":
            self.sync(step)
        elif what == "snapshot":
            self.snapshots -= 1
            self.sync(step)
            self.keep_snapshot()
        elif what == "restart" or what == "rejoin":
            self.restart(step, rejoins=what == "rejoin")
        elif what == "older":
            del self.durable[len(self.durable) - int(str(happening[1])) :]
            self.harmed = self.doubtful = True
            self.restart(step)
        self.drain(step)
        self.hear_oneself(step)
        self.confirm(step)
        if not self.falters or self.crashed:
            return step
        self.unfinished = step
        del self.log[before:]
        return Step()

    @property
    def deaf(self) -> bool:
        """True if no message reaches this process: it crashed, or is about to inside a step."""
        return self.crashed or self.unfinished is not None

    def stopped(self) -> bool:
        """Return whether it stopped by itself, to come back without its disk."""
        return self.crashed and self.forgot

    @property
    def falls(self) -> bool:
        """True if this process counts among those that crash."""
        return self.crashed or self.falters

    def fall(self, sends: int) -> Step:
        """Crash in the middle of the unfinished step, when so many of its messages have left.

        What the step does happens in order: a row counts if the message after it has left. So what is delivered after
        the last of them is not.
        """
        step = self.unfinished
        assert step is not None
        self.unfinished = None
        fallen = Step(step.sends[:sends])
        for entry, sent in zip(step.rows, step.sent_before, strict=True):
            if sent < sends:
                self.write(fallen, entry)
        self.crash(fallen)
        return fallen

    def detect(self, suspected: bool, other: object) -> None:
        assert isinstance(other, int)
        if suspected:
            self.detections.remove(other)
            self.suspects.append(other)
        else:
            self.suspects.remove(other)
        assert isinstance(self.process, Detecting), "a scope of suspicions"
        self.process.detect(self.now, other, suspected)

    def hear(self, step: Step, sender: int, msg: Message) -> None:
        """Take a message, or do what a driver does when a snapshot is asked for, or comes."""
        process = self.process
        if not isinstance(msg, (Pull, Snapshot)):
            process.receive(self.now, sender, msg)
            return
        assert isinstance(process, Durable)
        self.sync(step)
        if isinstance(msg, Pull):
            step.sends.append((sender, Snapshot(process.snapshot(), self.had[: self.place])))
            return
        before = process.position()
        process.install(self.now, msg.records)
        if process.position() > before:
            for entry in msg.delivered[before : process.position()]:
                self.deliver(step, entry)
            self.keep_snapshot()
            self.out.records.clear()

    def keep_snapshot(self) -> None:
        assert isinstance(self.process, Durable), "a scope with snapshots"
        self.durable = self.process.snapshot()
        self.whole = len(self.durable)

    def hear_oneself(self, step: Step) -> None:
        while self.inbox:
            self.process.receive(self.now, self.pid, self.inbox.popleft())
            self.drain(step)

    def fire(self, name: str) -> None:
        """Fire a timer at its latest time."""
        timer = min([timer for timer in self.due if timer[0] == name], key=lambda timer: timer[2])
        self.due.remove(timer)
        self.now = max(self.now, timer[2])
        self.process.timer(self.now, name)

    def ready(self) -> list[str]:
        """Return the timers that may fire next: those that need not come after another one."""
        first = min([latest for _, _, latest in self.due], default=0)
        return sorted({name for name, earliest, _ in self.due if earliest <= first})

    def crash(self, step: Step) -> None:
        self.crashed = True
        self.falters = False
        self.write(step, ("crash", NOBODY, None))
        self.due = []
        self.left = []
        self.unsynced = []
        self.unsure = []

    def older(self) -> list[int]:
        """Return how many records may be missing from the end of the disk: one, half or all behind a snapshot."""
        most = len(self.durable) - self.whole
        return sorted({1, (most + 1) // 2, most}) if most > 0 else []

    def confirm(self, step: Step) -> None:
        """Let the next start believe what is on disk, once others have said that nothing is missing."""
        process = self.process
        if (self.doubtful or self.forgot) and not self.crashed:
            assert isinstance(process, Durable)
            if not process.rejoining():
                if self.forgot:
                    self.sync(step)
                    self.keep_snapshot()
                self.doubtful = self.forgot = False

    def restart(self, step: Step, rejoins: bool = False) -> None:
        """Come back with what is durable, or without it."""
        self.crashed = False
        self.restarts -= 1
        self.write(step, ("restart", NOBODY, None))
        self.process = self.made()
        assert isinstance(self.process, Durable), "a scope with restarts"
        self.starts += 1
        if rejoins:
            self.harmed = self.forgot = True
            self.durable, self.whole = [], 0
            self.process.rejoin(self.now, self.starts)
        else:
            self.process.recover(self.now, list(self.durable), self.starts, not self.doubtful)
            self.out.deliveries.clear()  # made before the crash, and written then
        self.place = self.process.position()

    def sync(self, step: Step) -> None:
        """Make durable what was recorded."""
        self.durable += self.unsynced
        self.unsynced = []
        for entry in self.unsure:
            self.deliver(step, entry)
        self.unsure = []

    def deliver(self, step: Step, entry: LogEntry) -> None:
        """Write down a delivery; what a disk forgot comes again, and must be the same."""
        if self.place < len(self.had):
            if self.had[self.place] != entry:
                who = self.setting.topology.names[self.pid]
                raise InvariantViolation(f"{who} delivers {entry} where it had delivered {self.had[self.place]}")
        else:
            self.had.append(entry)
            self.write(step, entry)
        self.place += 1

    def multicast(self, step: Step) -> None:
        """Multicast what is left to do, as far as it need not wait."""
        while self.left:
            dest = self.left.pop(0)
            mid = message_id(self.pid, self.seq)
            self.seq += 1
            self.write(step, ("multicast", mid, dest))
            self.process.multicast(self.now, AppMessage(mid, dest, b""))
            self.drain(step)
            if not self.setting.scope.open_loop or self.setting.scope.whenever:
                return

    def drain(self, step: Step) -> None:
        """Take what the process wants done."""
        out = self.out
        self.unsynced += out.records
        if out.urgent:
            self.sync(step)
        for to, msg in out.sends:
            for dest in to:
                if dest == self.pid and self.setting.scope.at_once:
                    self.inbox.append(msg)
                else:
                    step.sends.append((dest, msg))
        for msg in out.news if self.setting.scope.news else ():
            step.sends += [(client, msg) for client in self.setting.topology.clients]
        step.sends += [(source, Pull()) for source in out.pulls]
        self.due += [(name, self.now + earliest, self.now + latest) for name, earliest, latest in out.timers]
        step.notes += out.notes
        for note in out.notes:
            if isinstance(note, Leads):
                self.write(step, (note.kind, NOBODY, note.detail()))
            elif isinstance(note, (GroupsChange, Undone)):  # by which refusals and guesses are judged
                self.log.append((note.kind, NOBODY, note.detail()))
        for m in out.optimistic:
            self.write(step, ("optdeliver", m.mid, None))
        for m, ts in out.deliveries:
            if self.unsynced:
                self.unsure.append(("deliver", m.mid, ts))
            else:
                self.deliver(step, ("deliver", m.mid, ts))
        for mid in out.refused:
            self.write(step, ("reconfigure", mid, REFUSED))
        self.forgot = self.forgot or bool(out.forgot)
        halted = out.halted or self.forgot
        completed = len(out.completed) + len([mid for mid in out.refused if sender_of(mid) == self.pid])
        out.clear()
        if halted:  # it must stop for good
            self.inbox.clear()
            self.crash(step)
        for _ in range(completed if not self.setting.scope.whenever else 0):
            self.multicast(step)

    def write(self, step: Step, entry: LogEntry) -> None:
        self.log.append(entry)
        step.rows.append(entry)
        step.sent_before.append(len(step.sends))


def watched(actor: Actor, act: Callable[[], Result]) -> Result:
    """Act, and turn what a broken protocol raises into a violation."""
    try:
        return act()
    except (UsageError, PropertyViolation):
        raise
    except InvariantViolation as error:
        raise PropertyViolation("invariant", str(error)) from error
    except BUGS as error:
        who = actor.setting.topology.names[actor.pid]
        raise PropertyViolation("no exception", f"{who} raised {type(error).__name__}: {error}") from error
