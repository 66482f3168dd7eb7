"""The states of a scope and the moves between them.

A state is a tuple of numbers: one for the local state of each process, then one for the content of each channel. A
local state is known by the digest of its process and log. What an event does in it is computed once, by letting a new
process go through the events that led there, and then looked up. So protocol objects need not be copied, and a move
costs microseconds however slow the protocol is.
"""

from collections import deque
from collections.abc import Callable, Sequence

from amcast.core.wire import Message
from amcast.explorer.actor import START, Actor, Happening, LogEntry, Setting, Step, watched
from amcast.explorer.canonical import SURROUNDINGS, digest, plain

State = tuple[int, ...]
Move = tuple[object, ...]  # ("deliver", sender, dest), ("lose", sender, dest), ("timer", pid, name), ("crash", pid) …
SPARE = 1000  # live processes that are kept for the next step from where they are


class Local:
    """A state that one process can be in, and how it got there."""

    __slots__ = ("before", "crashed", "deaf", "falls", "happening", "harmed", "log", "moves", "pid")

    def __init__(self, actor: Actor, before: int, happening: Happening, log: int, moves: int) -> None:
        self.pid = actor.pid
        self.crashed = actor.crashed
        self.deaf = actor.deaf
        self.falls = actor.falls
        self.harmed = actor.harmed
        self.before = before
        self.happening = happening
        self.log = log
        self.moves = moves  # those of its own: timers, suspicions, a crash


def own_moves(actor: Actor) -> list[Move]:
    """Return the moves of a process besides messages."""
    pid = actor.pid
    if actor.crashed:
        return moves_back(actor) if actor.restarts > 0 else []
    if actor.unfinished is not None:
        return [("cut", pid, str(sends)) for sends in actor.unfinished.cuts()]
    found: list[Move] = [("timer", pid, name) for name in actor.ready()] if actor.timers > 0 else []
    if actor.unsynced:
        found.append(("sync", pid))
    if actor.elections > 0:
        found.append(("suspect", pid))
    found += [("refuse", pid, other) for other in sorted(set(actor.refusals))]
    if actor.changes:
        found.append(("reconfigure", pid, *actor.changes[0]))
    if actor.may_crash:
        found.append(("crash", pid))
    if actor.may_falter and not actor.falters:
        found.append(("falter", pid))
    if actor.left and actor.setting.scope.whenever:
        found.append(("multicast", pid))
    if actor.snapshots > 0:
        found.append(("snapshot", pid))
    found += [("detect", pid, other) for other in sorted(set(actor.detections))]
    if not actor.setting.accurate:
        found += [("trust", pid, other) for other in actor.suspects]
    return found


def moves_back(actor: Actor) -> list[Move]:
    """Return the ways in which a crashed process may come back, if nothing but its own state forbids them."""
    pid = actor.pid
    if actor.forgot:
        return [("rejoin", pid)]
    found: list[Move] = [("restart", pid)]
    if not actor.harmed:
        found += [("older", pid, str(lacks)) for lacks in actor.older()] if actor.may_be_older else []
        found += [("rejoin", pid)] if actor.may_be_lost else []
    return found


def may_harm(pid: int, harmed: bool, others: Sequence["Local | Actor"]) -> bool:
    """Return whether a disk may lose something: it is the only one, and the other replicas are up and remember.

    One that was harmed before comes back without its disk whoever is up.
    """
    return harmed or all(other.pid == pid or not (other.harmed or other.crashed) for other in others)


def may_detect(setting: Setting, crashed: bool, under_way: bool) -> bool:
    """Return whether a process may be suspected.

    `crashed` says whether it crashed, and `under_way` whether something of it has not reached the one that suspects it.
    """
    return not setting.accurate or (crashed and (setting.scope.early or not under_way))


FAULTS = ("crash", "falter", "lose", "suspect", "refuse", "detect", "older", "rejoin")
BACK = {"restart", "older", "rejoin"}


def places(move: Move) -> frozenset[int]:
    """Return the processes at which a move happens. Moves commute if they have none of them in common.

    A delivery takes the first message of a channel. What the sender puts behind it makes no difference, so only the
    receiver counts. A loss takes the whole channel, so it matters whether the sender sends before or afterwards.
    """
    ends = move[1:3] if move[0] == "lose" else move[2:3] if move[0] == "deliver" else move[1:2]
    return frozenset(end for end in ends if isinstance(end, int))


Outcome = tuple[int, tuple[tuple[int, int], ...], bool]  # local state, sends as (dest, message), whether the log grew
Look = Callable[[int, Step], None]  # at what a process does in a step; raises PropertyViolation


class Model:
    """A protocol in a scope, as a search sees it."""

    def __init__(self, setting: Setting, look: Look | None = None) -> None:
        self.setting = setting
        self.look = look
        self.size = setting.topology.size
        monitor = setting.protocol.monitor
        self.monitor_types = (*SURROUNDINGS, monitor) if isinstance(monitor, type) else SURROUNDINGS
        self.locals: list[Local] = []
        self.messages: list[Message] = []
        self.logs: list[tuple[LogEntry, ...]] = []
        self.moves: list[Move] = []
        self.home: list[int] = []  # of a move: the process that takes the step
        self.places: list[frozenset[int]] = []  # of a move
        self.dependent: list[int] = []  # of a move: those that it does not commute with in any state, as bits
        self.halting = 0  # moves by which a process stopped of its own accord in some state, as bits
        self._local_of: dict[bytes, int] = {}
        self._message_of: dict[bytes, int] = {}
        self._log_of: dict[tuple[LogEntry, ...], int] = {}
        self._move_of: dict[Move, int] = {}
        self._outcomes: dict[tuple[int, int, int], Outcome] = {}  # local state, move, message
        self._channels: list[tuple[int, ...]] = [()]
        self._channel_of: dict[tuple[int, ...], int] = {(): 0}
        self._rest: list[tuple[int, int]] = [(-1, 0)]  # of a channel: its first message, and the channel after it
        self._longer: dict[tuple[int, int], int] = {}
        self._live: dict[int, Actor] = {}
        self.crash_bits = 0
        self.harms: list[tuple[int, int]] = []  # move as a bit, whose disk loses something
        self.detections: list[tuple[int, int, int]] = []  # move as a bit, who suspects, whom
        for sender in range(self.size):
            for dest in range(self.size):
                self.number(("deliver", sender, dest))
        self.deliveries = (1 << len(self.moves)) - 1
        self._lose = [self.number(("lose", s, d)) for s in range(self.size) for d in range(self.size)]
        names = setting.topology.pid
        self._losses = [(names(sender), names(dest)) for sender, dest in setting.scope.losses]
        self.initial = self.begin()
        self.past: tuple[Move, ...] = ()  # the moves that led to `initial`
        self.faults = 0  # how often a move was made that is one

    # Numbers

    def number(self, move: Move) -> int:
        found = self._move_of.get(move)
        if found is None:
            found = self._move_of[move] = len(self.moves)
            home = move[2] if move[0] in ("deliver", "lose") else move[1]
            assert isinstance(home, int)
            bit = 1 << found
            if move[0] == "crash" or move[0] == "falter":
                self.crash_bits |= bit
            elif move[0] == "older" or move[0] == "rejoin":
                self.harms.append((bit, home))
            elif move[0] == "detect":
                assert isinstance(move[2], int)
                self.detections.append((bit, home, move[2]))
            clash = bit
            here = places(move)
            for other, there in enumerate(self.places):
                kinds = {move[0], self.moves[other][0]}
                # Only so many may crash. Who comes back may be sent to again, suspected no more, and others may crash.
                if here & there or kinds <= {"crash", "falter"} or kinds & BACK:
                    clash |= 1 << other
                    self.dependent[other] |= bit
            self.moves.append(move)
            self.home.append(home)
            self.places.append(here)
            self.dependent.append(clash)
        return found

    def message(self, msg: Message) -> int:
        key = digest(plain(msg))
        found = self._message_of.get(key)
        if found is None:
            found = self._message_of[key] = len(self.messages)
            self.messages.append(msg)
        return found

    def channel(self, content: tuple[int, ...]) -> int:
        found = self._channel_of.get(content)
        if found is None:
            rest = self.channel(content[1:])
            found = self._channel_of[content] = len(self._channels)
            self._channels.append(content)
            self._rest.append((content[0], rest))
        return found

    def longer(self, channel: int, msg: int) -> int:
        key = (channel, msg)
        found = self._longer.get(key)
        if found is None:
            found = self._longer[key] = self.channel((*self._channels[channel], msg))
        return found

    def local(self, actor: Actor, before: int, happening: Happening) -> int:
        log = tuple(actor.log)
        key = digest((actor.pid, self.known(actor), log))
        found = self._local_of.get(key)
        if found is None:
            found = self._local_of[key] = len(self.locals)
            log_number = self._log_of.setdefault(log, len(self.logs))
            if log_number == len(self.logs):
                self.logs.append(log)
            moves = sum(1 << self.number(move) for move in own_moves(actor))
            self.locals.append(Local(actor, before, happening, log_number, moves))
        if not actor.crashed and len(self._live) < SPARE:
            self._live[found] = actor
        return found

    def known(self, actor: Actor) -> tuple[object, ...]:
        """Return all of an actor on which its next steps may depend, besides its log."""
        disk: tuple[object, ...] = ()
        if actor.may_restart:
            harm = (actor.whole, actor.place, actor.harmed, actor.forgot, actor.doubtful)
            disk = (actor.now, actor.restarts, actor.durable, actor.unsynced, harm)
        left = (actor.elections, actor.refusals, actor.timers, actor.changes, actor.falters, actor.snapshots)
        detector = (actor.detections, actor.suspects)
        if actor.crashed:
            return (disk, left, detector) if actor.may_restart else ()
        if actor.unfinished is not None:
            sends = [(dest, plain(msg)) for dest, msg in actor.unfinished.sends]
            return (disk, left, detector, sends, actor.unfinished.rows, actor.unfinished.sent_before)
        rest = (plain(actor.process, self.monitor_types), actor.now, actor.due, actor.left)
        return (rest, left, detector, disk, actor.unsure)

    # Steps

    def begin(self) -> State:
        """Return the first state: everybody has started, and what is multicast at once is under way."""
        locals_, sends = [], []
        for pid in range(self.size):
            actor = Actor(self.setting, pid)
            step = self.watched(actor, START)
            locals_.append(self.local(actor, -1, START))
            sends.append(self.numbered(step))
        state = locals_ + [0] * (self.size * self.size)
        for pid in range(self.size):
            self.send(state, pid, sends[pid])
        return tuple(state)

    def go(self, moves: Sequence[Move]) -> None:
        """Begin after these moves, which must be possible."""
        for move in moves:
            self.initial, _ = self.after(self.initial, self._move_of[move])
        self.past += tuple(moves)

    def watched(self, actor: Actor, happening: Happening) -> Step:
        step = watched(actor, lambda: actor.do(happening))
        if self.look is not None:
            self.look(actor.pid, step)
        return step

    def numbered(self, step: Step) -> tuple[tuple[int, int], ...]:
        mute = self.setting.scope.mute
        return tuple((dest, self.message(msg)) for dest, msg in step.sends if type(msg).__name__ not in mute)

    def send(self, state: list[int], pid: int, sends: tuple[tuple[int, int], ...]) -> None:
        for dest, msg in sends:
            if not self.locals[state[dest]].deaf:
                at = self.size + pid * self.size + dest
                state[at] = self.longer(state[at], msg)

    def actor(self, local: int) -> Actor:
        """Return a process in this state: a live one, or a new one that is taken there."""
        live = self._live.pop(local, None)
        if live is not None:
            return live
        happenings = []
        at = local
        while at >= 0:
            happenings.append(self.locals[at].happening)
            at = self.locals[at].before
        actor = Actor(self.setting, self.locals[local].pid)
        for happening in reversed(happenings):
            actor.do(happening)
        return actor

    def outcome(self, local: int, move: int, msg: int) -> Outcome:
        key = (local, move, msg)
        found = self._outcomes.get(key)
        if found is None:
            what = self.moves[move]
            happening: Happening = (what[0], *what[2:])
            if what[0] == "deliver":
                happening = ("receive", what[1], self.messages[msg])
            actor = self.actor(local)
            step = self.watched(actor, happening)
            after = self.local(actor, local, happening)
            found = self._outcomes[key] = (after, self.numbered(step), bool(step.rows))
        return found

    def enabled(self, state: State) -> int:
        """Return the possible moves as bits."""
        bits = 0
        n = self.size
        crashed = 0
        for pid in range(n):
            local = self.locals[state[pid]]
            bits |= local.moves
            crashed += local.falls
            if local.crashed:
                for dest in range(n) if self.setting.loses else ():
                    if state[n + pid * n + dest]:
                        bits |= 1 << self._lose[pid * n + dest]
        if crashed >= self.setting.scope.most_crashes:
            bits &= ~self.crash_bits
        for bit, pid in self.harms:
            if bits & bit:
                replicas = [self.locals[local] for local in state[: self.setting.topology.replicas]]
                if not may_harm(pid, self.locals[state[pid]].harmed, replicas):
                    bits ^= bit
        for sender, dest in self._losses:  # also of a sender that crashed, whatever the protocol's links
            if state[n + sender * n + dest]:
                bits |= 1 << self._lose[sender * n + dest]
        for bit, pid, other in self.detections:
            if bits & bit:
                under_way = state[n + other * n + pid] != 0
                if not may_detect(self.setting, self.locals[state[other]].crashed, under_way):
                    bits ^= bit
        bit = 1
        for channel in state[n:]:
            if channel:
                bits |= bit
            bit <<= 1
        return bits

    def after(self, state: State, move: int) -> tuple[State, bool]:
        """Return the state that a move leads to, and whether somebody's log grew."""
        what = self.moves[move]
        kind = what[0]
        if kind in FAULTS:
            self.faults += 1
        n = self.size
        new = list(state)
        if kind == "deliver" or kind == "lose":
            at = n + move % (n * n)
            msg, new[at] = self._rest[new[at]]
            pid = move % n
            if kind == "lose":
                new[at] = 0
                return tuple(new), False
        else:
            pid = self.home[move]
            msg = -1
        new[pid], sends, grew = self.outcome(state[pid], move, msg)
        if kind in BACK:
            new[n + pid * n : n + pid * n + n] = [0] * n
        elif self.locals[new[pid]].deaf:
            for sender in range(n):
                new[n + sender * n + pid] = 0
        if sends:
            self.send(new, pid, sends)
        return tuple(new), grew

    def rests(self, state: State, enabled: int) -> bool:
        """Return whether nothing is under way, and nobody is in the middle of a step."""
        return not enabled & self.deliveries and not any(
            self.locals[local].deaf and not self.locals[local].crashed for local in state[: self.size]
        )

    def clashes(self, state: State, move: int, new: State) -> int:
        """Return the moves that do not commute with this one, which leads from a state to a new one, as bits.

        A process that halts counts among those that crashed, so that another may not crash any more. But it halts
        whether or not another has crashed. A move that sleeps was made before where its process was in the same state,
        so it is known by then whether its process halts.
        """
        pid = self.home[move]
        bit = 1 << move
        if self.crash_bits & bit:
            return self.dependent[move] | self.halting
        if self.locals[new[pid]].falls and not self.locals[state[pid]].falls:
            self.halting |= bit
            return self.dependent[move] | self.crash_bits
        return self.dependent[move]

    # What people and properties look at

    def under_way(self, state: State) -> dict[tuple[int, int], deque[Message]]:
        """Return the content of the channels."""
        n = self.size
        return {
            divmod(at, n): deque(self.messages[msg] for msg in self._channels[channel])
            for at, channel in enumerate(state[n:])
            if channel
        }

    def actors(self, state: State) -> list[Actor]:
        """Return processes in this state. They are used up."""
        return [self.actor(local) for local in state[: self.size]]
