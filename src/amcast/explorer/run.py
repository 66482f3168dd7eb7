"""Runs one schedule from the start on real processes: to confirm a violation, shrink it, show it or record it."""

from collections import deque

from amcast.core.notes import Leads
from amcast.core.order import BOTTOM
from amcast.core.trace import Recorder
from amcast.core.tracer import Tracer
from amcast.core.wire import Codec, Message
from amcast.errors import UsageError
from amcast.explorer.actor import (
    DELTA,
    REFUSED,
    START,
    Actor,
    Happening,
    LogEntry,
    Pull,
    Setting,
    Snapshot,
    Step,
    watched,
)
from amcast.explorer.liveness import Liveness
from amcast.explorer.model import BACK, Move, may_detect, may_harm, own_moves


class RealRun:
    """A run on real processes, `move` by `move` from the start. It asserts the invariants of the protocol's monitor."""

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
        self.now = 0  # in a trace a move takes δ
        if self.tracer is not None:
            self.tracer.start(None)
        self.actors = [Actor(setting, pid, self.monitor) for pid in range(self.topology.size)]
        self.began = [self.act(actor, START) for actor in self.actors]

    def act(self, actor: Actor, happening: Happening) -> Step:
        step = watched(actor, lambda: actor.do(happening))
        self.write(actor.pid, step)
        if actor.deaf:
            for ends, channel in self.channels.items():
                if ends[1] == actor.pid:
                    channel.clear()
        mute = self.setting.scope.mute
        for dest, msg in step.sends:
            if not self.actors[dest].deaf and type(msg).__name__ not in mute:
                self.channels.setdefault((actor.pid, dest), deque()).append(msg)
        return step

    def write(self, pid: int, step: Step) -> None:
        if self.tracer is None:
            return
        for entry in step.rows:
            record_entry(self.tracer, self.now, pid, entry)
        for note in step.notes:
            if not isinstance(note, Leads):
                self.tracer.record(self.now, pid, note.kind, detail=note.detail())
        if self.full:
            for dest, msg in step.sends:
                if dest != pid and is_said(msg):
                    self.tracer.message(self.now, pid, "send", dest, msg)

    def possible(self) -> list[Move]:
        """Return the moves from here."""
        found: list[Move] = [("deliver", *ends) for ends in sorted(self.channels) if self.channels[ends]]
        crashed = sum(actor.falls for actor in self.actors)
        for actor in self.actors:
            if actor.crashed and self.setting.loses:
                found += [("lose", s, d) for s, d in sorted(self.channels) if s == actor.pid and self.channels[(s, d)]]
            found += own_moves(actor)
        pid = self.topology.pid
        for sender, dest in [(pid(sender), pid(dest)) for sender, dest in self.setting.scope.losses]:
            if self.channels.get((sender, dest)) and ("lose", sender, dest) not in found:
                found.append(("lose", sender, dest))
        replicas = self.actors[: self.topology.replicas]
        for actor in replicas:
            if actor.crashed and actor.restarts > 0 and not may_harm(actor.pid, actor.harmed, replicas):
                found = [move for move in found if move[0] not in ("older", "rejoin") or move[1] != actor.pid]
        if crashed >= self.setting.scope.most_crashes:
            found = [move for move in found if move[0] not in ("crash", "falter")]
        return [move for move in found if move[0] != "detect" or self.may_detect(move)]

    def may_detect(self, move: Move) -> bool:
        _, pid, other = move
        assert isinstance(other, int) and isinstance(pid, int)
        return may_detect(self.setting, self.actors[other].crashed, bool(self.channels.get((other, pid))))

    def move(self, move: Move) -> Step:
        """Make this move. Raises UsageError if it is not possible here."""
        if move not in self.possible():
            raise UsageError(f"step {len(self.moves) + 1}, {spell(self.setting, move)}: not possible there")
        return self.make(move)

    def make(self, move: Move) -> Step:
        """Make this move, which must be possible."""
        kind, at = move[0], move[1]
        assert isinstance(at, int)
        self.moves.append(move)
        self.now += DELTA
        if kind == "deliver" or kind == "lose":
            dest = move[2]
            assert isinstance(dest, int)
            channel = self.channels[(at, dest)]
            if kind == "lose":
                channel.clear()
                return Step()
            msg = channel.popleft()
            if self.full and self.tracer is not None and at != dest and is_said(msg):
                self.tracer.message(self.now, dest, "receive", at, msg)
            return self.act(self.actors[dest], ("receive", at, msg))
        if kind in BACK:  # what it sent in its former life is lost
            for ends, channel in self.channels.items():
                if ends[0] == at:
                    channel.clear()
        return self.act(self.actors[at], (kind, *move[2:]))

    def calm(self) -> None:
        """Go on without anything going wrong."""
        Liveness(self.actors, self.channels, self.note_calm).run()
        for channel in self.channels.values():
            channel.clear()

    def note_calm(self, passed: int, pid: int, heard: tuple[int, Message] | None, step: Step) -> None:
        self.now = (len(self.moves) + 1) * DELTA + passed
        if heard is not None and self.full and self.tracer is not None and heard[0] != pid and is_said(heard[1]):
            self.tracer.message(self.now, pid, "receive", heard[0], heard[1])
        self.write(pid, step)

    def end(self) -> None:
        """Note that nothing more will happen."""
        if self.tracer is not None:
            self.tracer.end(self.now, False)

    def message(self, move: Move) -> Message | None:
        """Return the message that a delivery would bring."""
        if move[0] != "deliver":
            return None
        assert isinstance(move[1], int) and isinstance(move[2], int)
        channel = self.channels.get((move[1], move[2]))
        return channel[0] if channel else None


def is_said(msg: Message) -> bool:
    """Return whether a message is one of the protocol's own: a driver moves snapshots, and traces do not have them."""
    return not isinstance(msg, (Pull, Snapshot))


def spell(setting: Setting, move: Move) -> str:
    """Write a move as it stands in a replay file."""
    return " ".join(setting.topology.names[part] if isinstance(part, int) else str(part) for part in move)


def parse_move(setting: Setting, text: str) -> Move:
    """Read a move as `spell` writes it."""
    words = text.split()
    shapes = {"deliver": 2, "lose": 2, "refuse": 2, "detect": 2, "trust": 2, "timer": 2, "cut": 2, "reconfigure": 3}
    shapes.update(
        dict.fromkeys(("multicast", "suspect", "crash", "falter", "sync", "snapshot", "restart", "rejoin"), 1)
    )
    shapes["older"] = 2
    kind = words[0] if words else ""
    if kind not in shapes or len(words) != shapes[kind] + 1:
        expected = (
            "deliver P Q, lose P Q, refuse P Q, detect P Q, trust P Q, timer P NAME, multicast P, suspect P, crash P, "
            "falter P, cut P SENDS, sync P, snapshot P, restart P, older P RECORDS, rejoin P or "
            "reconfigure P join|leave|members G"
        )
        raise UsageError(f"move {text!r}: expected {expected}")
    pid = setting.topology.pid
    if kind in ("timer", "cut", "older", "reconfigure"):
        return (kind, pid(words[1]), *words[2:])
    return (kind, *[pid(word) for word in words[1:]])


def record_entry(tracer: Tracer, now: int, pid: int, entry: LogEntry) -> None:
    """Write a row of a log as a row of a trace."""
    kind, mid, fact = entry
    if kind == "multicast":
        assert isinstance(fact, tuple)
        tracer.record(now, pid, kind, mid, dest=fact)
    elif kind == "crash" or kind == "restart":
        tracer.record(now, pid, kind)
    elif kind == "leader":
        tracer.record(now, pid, kind, detail=str(fact))
    elif kind == "reconfigure":
        tracer.record(now, pid, kind, mid if fact == REFUSED else None, detail=str(fact))
    else:
        tracer.record(now, pid, kind, mid, ts=fact if isinstance(fact, int) else BOTTOM)
