"""Explores a protocol in a scope, judges every state, and shrinks what is found."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amcast.checks import check
from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.verdict import Status
from amcast.core.plural import count
from amcast.core.protocol import Protocol
from amcast.core.trace import ListRecorder, Recorder
from amcast.errors import PropertyViolation
from amcast.explorer.actor import Setting
from amcast.explorer.delayed_walk import DelayedWalks
from amcast.explorer.model import Move
from amcast.explorer.properties import EVERYTHING, Properties
from amcast.explorer.run import RealRun, parse_move, spell
from amcast.explorer.schedule import Schedule
from amcast.explorer.scope import Scope
from amcast.explorer.search import Found, Limits, Search
from amcast.explorer.shrink import retrace, shrink
from amcast.explorer.walk import Walks


@dataclass
class Exploration:
    """The findings so far."""

    protocol: str
    scope: Scope
    phase: str = "states"
    states: int = 0
    transitions: int = 0
    schedules: int = 0  # followed on real processes with all invariants asserted, or at random
    ways: int = 0  # schedules that pass through all states, of which `schedules` were followed
    rests: int = 0  # states with no message under way, from which everything was delivered in calm
    depth: int = 0  # moves in the longest schedule
    complete: bool = False  # every state of the scope was seen
    seconds: float = 0.0
    ended: int = 0  # states at the edge of a search that was cut, from which everything was delivered in calm
    delayed: int = 0  # walks with slow channels, after a search that was cut …
    longest: int = 0  # … and the moves of the longest of them
    evidence: Evidence = NOTHING
    sometimes: dict[str, bool] = field(default_factory=dict)
    violation: Schedule | None = None
    found_after: int = 0  # moves of the violation as it was found, before it was shrunk

    @property
    def unseen(self) -> list[str]:
        """What should have been seen and was not."""
        return [what for what, seen in self.sometimes.items() if not seen]

    @property
    def verdict(self) -> tuple[Status, str]:
        """Say whether all is well, and if not why.

        The verdict is unknown if no move was made or nothing was delivered. It is unknown too if what the scope is
        made for was never seen, in every schedule or in a part of them. Whether it was every one is `complete`.
        """
        if self.violation is not None:
            return "violated", f"{self.violation.property}: {self.violation.problem}"
        if not self.transitions and not self.delayed:
            return "unknown", "no move was made"
        if not self.evidence.deliveries:
            return "unknown", "nothing was delivered"
        if EVERYTHING in self.unseen:
            return "unknown", "never was everything delivered everywhere"
        if self.unseen:
            where = "scope" if self.complete else "part of the scope"
            return "unknown", f"never seen in this {where}: {'; '.join(self.unseen)}"
        return "ok", ""


ENDS = 100  # states at the edge of a search that was cut, from which it goes on in calm
DELAYED = 1000  # walks with slow channels after it


def explore(
    table: Protocol,
    scope: Scope,
    limits: Limits | None = None,
    walks: int = 0,
    seed: int = 1,
    sleeping: bool = True,
    follow: int | None = None,
    after: Sequence[str] = (),
    progress: Callable[[Exploration], None] | None = None,
    delayed: int = DELAYED,
) -> Exploration:
    """See every state within the limits, or make so many random walks: from the start, or after these moves.

    A search that the limits cut goes on with `delayed` walks in which a few channels are slow.
    The protocol's monitor knows what was before. It then watches schedules that pass through all states: all of them,
    or `follow` of them.
    """
    started = time.monotonic()
    setting = Setting.of(table, scope)
    result = Exploration(table.name, scope)

    def report(work: Search | Walks) -> None:
        result.states, result.transitions = work.states, work.transitions
        result.rests, result.depth = work.rests, work.depth
        result.seconds = time.monotonic() - started
        if progress is not None:
            progress(result)

    def retrace(moves: tuple[Move, ...]) -> None:
        run = RealRun(setting)
        for move in moves:
            run.make(move)

    properties = None
    past: tuple[Move, ...] = ()
    try:
        properties = Properties(setting)
        past = tuple(parse_move(setting, text) for text in after)
        run = RealRun(setting)
        for move in past:
            run.move(move)  # raises UsageError if it is not possible
        properties.model.go(past)
        found: Found | None = None
    except PropertyViolation as violation:
        found = Found(violation.property, violation.problem, past)
    if properties is not None and found is None:
        work: Search | Walks
        if walks:
            work = Walks(properties, retrace, seed)
            work.run(walks, limits, report)
            result.schedules = work.walks
        else:
            work = Search(properties, sleeping)
            work.run(limits, report)
            result.complete = work.complete
        report(work)
        found = work.found
        if found is None and isinstance(work, Search):
            result.phase = "invariants"
            found = assert_invariants(setting, work, result, report, follow)
        if found is None and isinstance(work, Search) and not work.complete:
            result.phase = "liveness"
            found = check_liveness(properties, work, result)
            if found is None and delayed:
                result.phase = "walks"
                longer = DelayedWalks(properties, seed, past)
                longer.run(delayed, Limits(seconds=limits.seconds if limits else None), lambda: report(work))
                result.delayed, result.longest = longer.walks, longer.depth
                found = longer.found
        result.evidence = properties.evidence(work.states)
        result.sometimes = properties.sometimes if not after else {}  # a part of the scope need not contain it
    if found is not None:
        result.complete = False
        result.found_after = len(found.moves)
        result.phase = "shrink"
        result.violation = shrunk(setting, properties, found)
    result.seconds = time.monotonic() - started
    return result


def assert_invariants(
    setting: Setting, search: Search, result: Exploration, report: Callable[[Search], None], most: int | None
) -> Found | None:
    """Follow schedules to all states on real processes, watched by the protocol's monitor."""
    ends = search.ends()
    result.ways = len(ends)
    for end in ends if most is None else ends[:: max(1, -(-len(ends) // max(1, most)))]:
        run = RealRun(setting)
        try:
            for move in search.moves_to(end):
                run.make(move)
        except PropertyViolation as violation:
            return Found(violation.property, violation.problem, tuple(run.moves))
        result.schedules += 1
        if result.schedules % 256 == 0:
            report(search)
    return None


def check_liveness(properties: Properties, search: Search, result: Exploration) -> Found | None:
    """Go on without faults from some states at the edge of a search that was cut, until all is delivered."""
    ends = search.ends()
    for end in ends[:: -(-len(ends) // ENDS)]:
        moves = search.moves_to(end)
        state = search.model.initial
        try:
            for move in moves[len(search.model.past) :]:
                state, _ = search.model.after(state, search.model.number(move))
            properties.at_edge(state)
        except PropertyViolation as violation:
            return Found(violation.property, violation.problem, moves, calm=True)
        result.ended += 1
    return None


def shrunk(setting: Setting, properties: Properties | None, found: Found) -> Schedule:
    if properties is not None:
        found = shrink(properties, found)
    moves = tuple(spell(setting, move) for move in found.moves)
    return Schedule(setting.protocol.name, found.property, found.problem, setting.scope, moves, found.calm)


def judge_again(table: Protocol, schedule: Schedule) -> tuple[Status, str]:
    """Say whether a schedule still shows what it was written for, with the protocol as it is now."""
    setting = Setting.of(table, schedule.scope)
    try:
        properties = Properties(setting)
        moves = [parse_move(setting, move) for move in schedule.moves]
        found = retrace(properties, moves, schedule.calm)
    except PropertyViolation as violation:
        found = Found(violation.property, violation.problem, ())
    if found is not None:
        return "violated", f"{found.property}: {found.problem}"
    recorder = ListRecorder(full=True)
    retell(table, schedule, recorder)
    for verdict in check(recorder.events, ["genuine"]) if table.genuine else ():  # of messages, and not of logs
        if verdict.status == "violated":
            return "violated", f"genuine: {verdict.reason}"
    deliveries = sum(event.kind == "deliver" for event in recorder.events)
    if not deliveries:
        return "unknown", "nothing is delivered along this schedule"
    told = count(deliveries, "delivery", "deliveries")
    return "ok", f"nothing is violated along this schedule with the protocol as it is now: {told}"


def retell(table: Protocol, schedule: Schedule, recorder: Recorder) -> str:
    """Record the run of a schedule as a trace. Return what goes wrong in it; empty if nothing does."""
    setting = Setting.of(table, schedule.scope)
    try:
        run = RealRun(setting, recorder, run=f"{table.name}-{schedule.scope.name}")
        for move in schedule.moves:
            run.move(parse_move(setting, move))
        if schedule.calm:
            run.calm()
            run.end()
    except PropertyViolation as violation:
        return str(violation)
    return ""
