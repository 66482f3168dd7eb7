"""One schedule, from the start, on real processes: to confirm a violation, to shrink it, to look at it, to write it down."""

from collections import deque

from amcast.core.errors import UsageError
from amcast.core.topology import Mid
from amcast.core.trace import Recorder
from amcast.core.tracer import Tracer
from amcast.core.wire import Codec, Message
from amcast.explore.actor import CRASH, DELTA, START, SUSPECT, Actor, Happening, Setting, Step
from amcast.explore.model import BUGS, Move, Violation


class Run:
    """Everybody has started; then `move` by `move`. All invariants of the protocol's monitor are asserted."""

    def __init__(self, setting: Setting, recorder: Recorder | None = None, run: str = "explore") -> None:
        self.setting = setting
        self.topology = setting.topology
        protocol = setting.protocol
        self.monitor = protocol.monitor(self.topology) if protocol.monitor is not None else None
        self.tracer = (
            Tracer(recorder, self.topology, Codec(protocol.messages), run, "explore") if recorder is not None else None
        )
        self.full = recorder is not None and recorder.full
        self.channels: dict[tuple[int, int], deque[Message]] = {}
        self.moves: list[Move] = []
        if self.tracer is not None:
            self.tracer.start(None)
        self.actors = [Actor(setting, pid, self.monitor) for pid in range(self.topology.size)]
        self.began = [self.act(actor, START) for actor in self.actors]

    @property
    def now(self) -> int:
        """In a trace a move takes δ."""
        return len(self.moves) * DELTA

    def act(self, actor: Actor, happening: Happening) -> Step:
        try:
            step = actor.do(happening)
        except UsageError:
            raise
        except BUGS as error:
            who = self.topology.names[actor.pid]
            raise Violation("no exception", f"{who} raised {type(error).__name__}: {error}") from error
        self.write(actor.pid, step)
        mute = self.setting.scope.mute
        for dest, msg in step.sends:
            if not self.actors_crashed(dest) and type(msg).__name__ not in mute:
                self.channels.setdefault((actor.pid, dest), deque()).append(msg)
        return step

    def actors_crashed(self, pid: int) -> bool:
        return bool(self.moves) and self.actors[pid].crashed

    def write(self, pid: int, step: Step) -> None:
        if self.tracer is None:
            return
        for kind, mid, fact in step.rows:
            if kind == "multicast":
                assert isinstance(fact, tuple)
                self.tracer.record(self.now, pid, kind, mid, dest=fact)
            elif isinstance(fact, int):
                self.tracer.record(self.now, pid, kind, mid, ts=fact)
            elif fact is None:
                self.tracer.record(self.now, pid, kind, mid)
        for kind, detail in step.notes:
            self.tracer.record(self.now, pid, kind, detail=detail or None)
        if self.full:
            for dest, msg in step.sends:
                if dest != pid:
                    self.tracer.message(self.now, pid, "send", dest, msg)

    def possible(self) -> list[Move]:
        """The moves from here."""
        found: list[Move] = [("deliver", *ends) for ends in sorted(self.channels) if self.channels[ends]]
        crashed = sum(actor.crashed for actor in self.actors)
        for actor in self.actors:
            if actor.crashed:
                found += [("lose", s, d) for s, d in sorted(self.channels) if s == actor.pid and self.channels[(s, d)]]
                continue
            if actor.timers > 0:
                found += [("timer", actor.pid, name) for name in actor.ready()]
            if actor.elections > 0:
                found.append(("suspect", actor.pid))
            if actor.may_crash and crashed < self.setting.scope.most_crashes:
                found.append(("crash", actor.pid))
        return found

    def move(self, move: Move) -> Step:
        """Do this; UsageError if it is not possible here."""
        if move not in self.possible():
            raise UsageError(f"step {len(self.moves) + 1}, {self.describe(move)}: not possible there")
        kind, at = move[0], move[1]
        assert isinstance(at, int)
        self.moves.append(move)
        if kind == "deliver" or kind == "lose":
            dest = move[2]
            assert isinstance(dest, int)
            channel = self.channels[(at, dest)]
            if kind == "lose":
                channel.clear()
                return Step()
            msg = channel.popleft()
            if self.full and self.tracer is not None and at != dest:
                self.tracer.message(self.now, dest, "receive", at, msg)
            return self.act(self.actors[dest], ("receive", at, msg))
        if kind == "crash":
            for (_, dest), channel in self.channels.items():
                if dest == at:
                    channel.clear()
            if self.tracer is not None:
                self.tracer.record(self.now, at, "crash")
            return self.act(self.actors[at], CRASH)
        return self.act(self.actors[at], SUSPECT if kind == "suspect" else ("timer", move[2]))

    def message(self, move: Move) -> Message | None:
        """What a delivery would bring."""
        if move[0] != "deliver":
            return None
        assert isinstance(move[1], int) and isinstance(move[2], int)
        channel = self.channels.get((move[1], move[2]))
        return channel[0] if channel else None

    def about(self, move: Move) -> tuple[Mid, ...]:
        msg = self.message(move)
        return msg.about() if msg is not None else ()

    def describe(self, move: Move) -> str:
        """A move as it stands in a replay file."""
        names = [self.topology.names[part] if isinstance(part, int) else str(part) for part in move]
        return " ".join(names)


def parse_move(setting: Setting, text: str) -> Move:
    """The inverse of `describe`."""
    words = text.split()
    shapes = {"deliver": 2, "lose": 2, "timer": 2, "suspect": 1, "crash": 1}
    kind = words[0] if words else ""
    if kind not in shapes or len(words) != shapes[kind] + 1:
        raise UsageError(f"move {text!r}: expected 'deliver FROM TO', 'lose FROM TO', 'timer P NAME', 'suspect P' or 'crash P'")
    pid = setting.topology.pid
    if kind == "timer":
        return (kind, pid(words[1]), words[2])
    return (kind, *[pid(word) for word in words[1:]])
