"""A schedule to step through: what each move does, and the state of every process before and after it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from amcast.core.protocol import Protocol
from amcast.errors import PropertyViolation
from amcast.explorer.actor import Setting, Step
from amcast.explorer.run import RealRun, parse_move
from amcast.explorer.schedule import Schedule
from amcast.explorer.variables import Variable, show, variables

CALM = "calm"


@dataclass(frozen=True)
class Moment:
    """One move: what it was, what it brought, what it led to."""

    move: str
    message: str
    effects: tuple[str, ...]
    about: tuple[str, ...]
    process: int  # that did something; -1: all of them
    problem: str = ""


class Replay:
    """A schedule to step through. Moments are numbered from 1; 0 is the start."""

    def __init__(self, table: Protocol, schedule: Schedule) -> None:
        self.table = table
        self.schedule = schedule
        self.setting = Setting.of(table, schedule.scope)
        self.topology = self.setting.topology
        self.moves = [*schedule.moves, *([CALM] if schedule.calm else [])]
        run = RealRun(self.setting)
        self.begin = tuple(text for actor, step in zip(run.actors, run.began, strict=True)
                           for text in self.effects(actor.pid, step, named=True))  # fmt: skip
        self.moments = [self.moment(run, move) for move in self.moves]
        self._run: RealRun | None = None

    def __len__(self) -> int:
        return len(self.moments)

    def moment(self, run: RealRun, text: str) -> Moment:
        if text == CALM:
            problem = make(run.calm)
            left = []
            for actor in run.actors[: self.topology.replicas]:
                had = [self.topology.message_name(mid) for kind, mid, _ in actor.log if kind == "deliver"]
                left.append(f"{self.topology.names[actor.pid]} delivered {' '.join(had) or 'nothing'}")
            return Moment(text, "nothing goes wrong any more", tuple(left), (), -1, problem)
        move = parse_move(self.setting, text)
        message = run.message(move)
        about = tuple(self.topology.message_name(mid) for mid in message.about()) if message is not None else ()
        step: list[Step] = []
        problem = make(lambda: step.append(run.move(move)))
        pid = move[2] if move[0] in ("deliver", "lose") else move[1]
        assert isinstance(pid, int)
        told = show("", message, self.topology) if message is not None else ""
        return Moment(text, told, self.effects(pid, step[0]) if step else (), about, pid, problem)

    def effects(self, pid: int, step: Step, named: bool = False) -> tuple[str, ...]:
        who = f"{self.topology.names[pid]} " if named else ""
        found = []
        for kind, mid, fact in step.rows:
            if kind == "leader":
                found.append(f"{who}leads: {fact}")
            elif kind != "crash":
                stamp = f" at {show('ts', fact, self.topology)}" if isinstance(fact, int) and fact >= 0 else ""
                found.append(f"{who}{kind}s {self.topology.message_name(mid)}{stamp}")
        sent: dict[str, list[str]] = {}
        for dest, msg in step.sends:
            sent.setdefault(show("", msg, self.topology), []).append(self.topology.names[dest])
        return (*found, *(f"{who}sends to {' '.join(dests)}: {text}" for text, dests in sent.items()))

    def run_to(self, number: int) -> RealRun:
        """Return the processes after so many moves."""
        run = self._run
        self._run = None
        if run is None or len(run.moves) > number or number > len(self.schedule.moves):
            run = RealRun(self.setting)
        for text in self.moves[len(run.moves) : number]:
            make(run.calm if text == CALM else partial(run.move, parse_move(self.setting, text)))
        if number <= len(self.schedule.moves):
            self._run = run
        return run

    def state(self, number: int, process: str) -> dict[str, Variable]:
        """Return the variables of a process after so many moves."""
        pid = self.topology.pid(process)
        return variables(self.run_to(number).actors[pid].process, self.topology, self.table.paper_names)

    def changes(self, number: int, process: str) -> list[tuple[str, Variable]]:
        """Return what the last of so many moves changed at a process: the value before, and the variable after it."""
        before, after = self.state(number - 1, process), self.state(number, process)
        gone = {name: replace(variable, value="-") for name, variable in before.items() if name not in after}
        old = {name: variable.value for name, variable in before.items()}
        now = before | after | gone  # in the order in which they are shown
        return [(old.get(name, "-"), now[name]) for name in now if old.get(name, "-") != now[name].value]

    def next_about(self, number: int, message: str) -> int | None:
        """Return the next moment after this one that concerns a message."""
        for later in range(number + 1, len(self) + 1):
            moment = self.moments[later - 1]
            if message in moment.about or any(message in effect for effect in moment.effects):
                return later
        return None


def make(act: Callable[[], object]) -> str:
    """Do this, and return what it violates."""
    try:
        act()
    except PropertyViolation as violation:
        return str(violation)
    return ""
