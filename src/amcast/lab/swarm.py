"""Swarms: many small runs, each with its own random configuration and fault plan, all checked.

A run has two phases. Until the calm, anything goes: crashes in the middle of a broadcast, elections for no reason,
pauses, partitions, delays of many δ; nothing may be delivered wrongly. Then the faults stop, a quorum of every group
is up, and every message has to be delivered everywhere within `BOUND` δ. A seed and a version reproduce a run.
"""

from dataclasses import dataclass
from pathlib import Path

from amcast.check import check
from amcast.core.errors import InvariantViolation
from amcast.core.process import Params, Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Event, ListRecorder, Recorder
from amcast.lab.broadcasts import broadcast_trial
from amcast.lab.open_groups import open_groups_trial
from amcast.lab.trial import DELTA, Trial, draw_network
from amcast.protocols import protocol
from amcast.sim.choices import Seeded
from amcast.sim.faults import Restart, Storm, storm
from amcast.sim.network import MILLISECOND
from amcast.sim.workload import ClosedLoop, Destinations, OpenLoop
from amcast.sim.world import Workload, World
from amcast.tracefile import ParquetRecorder

BOUND = 500  # δ from the calm, or from a later multicast, until every correct destination has delivered
MOST = 400_000  # messages in a run: Optimistic in 4 groups of 5 takes 122,000
MAY_BE_UNKNOWN = ("genuine", "optimistic")  # where nothing was sent, or nothing delivered
BUGS = (InvariantViolation, AssertionError, KeyError, IndexError, ValueError)  # how a broken protocol shows


@dataclass(frozen=True)
class Outcome:
    """What became of one seed."""

    seed: int
    ok: bool
    problem: str
    config: str
    events: int
    virtual_ms: float
    slowest: float  # δ from the calm, or from a later multicast, to the last delivery of a message


class MixedDestinations(Workload):
    """A closed loop in which every message draws how many groups it goes to."""

    def __init__(self, groups: int, messages: int) -> None:
        self.loops = [ClosedLoop(Destinations(groups, count), messages) for count in range(1, groups + 1)]
        self.left = messages

    def begin(self, world: World) -> None:
        for client in world.senders:
            self.completed(world, client, None)

    def completed(self, world: World, client: int, mid: object) -> None:
        if self.left > 0 and world.up(client):
            self.left -= 1
            loop = self.loops[world.choices.below(len(self.loops))]
            world.multicast(client, loop.destinations.choose(world), b"")

    def finished(self, world: World) -> bool:
        return self.left == 0 or world.senders_up == 0


def make_trial(table: Protocol, seed: int, recorder: Recorder | None) -> Trial:
    """Draw a configuration and a fault plan."""
    if table.broadcast:
        return broadcast_trial(table, seed, recorder)
    if table.detector == "Θ":
        return open_groups_trial(table, seed, recorder)
    if table.name in ("baseline", "optimistic"):  # with fault plans of their own
        from amcast.lab import oam  # it needs this module

        return oam.make_trial(table, seed, recorder)
    choices = Seeded(seed)
    groups = 1 if table.single_group else 1 + choices.below(4)
    replicas = 1 if table.single_replica else (3, 3, 3, 5, 1)[choices.below(5)]
    topology = Topology((replicas,) * groups, 1 + choices.below(5))
    calm_at = (20 + choices.below(400)) * DELTA
    durable = table.durable and choices.chance(40)
    kinds = Storm(
        restarts=durable,
        replicas_crash=table.elects and not durable and choices.chance(70),
        clients_crash=choices.chance(40),
        elections=table.elects and choices.chance(60),
        disturbances=choices.chance(60),
    )
    network = draw_network(choices)
    messages = 5 + choices.below(60)
    workload: Workload = MixedDestinations(groups, messages)
    if choices.chance(30):
        rate = 1e9 / (DELTA * (1 + choices.below(10)))
        workload = OpenLoop(Destinations(groups, 1 + choices.below(groups)), rate, messages, payload=b"")
    world = World(
        table,
        topology,
        network,
        choices,
        params=Params(DELTA, checked=True, durable=durable),
        workload=workload,
        recorder=recorder,
        run=f"{table.name}-{seed}",
        skew=[choices.below(5 * DELTA) for _ in range(topology.size)],
    )
    plan = storm(topology, choices, calm_at, DELTA, kinds)
    for time, action in plan:
        world.at(time, action)
    clients_crash = any(repr(action).startswith(f"crash {client}") for client in topology.clients for _, action in plan)
    for pid in range(topology.replicas) if durable else ():
        world.at(calm_at, Restart(pid))  # whoever is down, and was to crash in a step that came late
    properties = ["integrity", "validity", "order"] + (["genuine"] if table.genuine else [])
    if table.elects or not clients_crash:
        properties += ["agreement", "termination"]
    config = (
        f"{groups} groups of {replicas}, {len(topology.clients)} clients, {messages} messages, "
        f"{type(network).__name__} network, calm at {calm_at // DELTA}δ, {len(plan) - 1} faults"
        + (", restarts" if durable else "")
    )
    return Trial(world, calm_at, config, tuple(properties))


def run_seed(name: str, seed: int) -> Outcome:
    """Run and check the trial of one seed."""
    return judge(protocol(name), seed)


def judge(table: Protocol, seed: int) -> Outcome:
    recorder = ListRecorder(full=True)
    trial = make_trial(table, seed, recorder)
    world = trial.world
    problem = ""
    try:
        world.run(MOST)
        problem = find_problem(trial, recorder)
    except BUGS as error:
        problem = f"{type(error).__name__}: {error}"
    slowest = slowest_delivery(trial, recorder)
    return Outcome(seed, not problem, problem, trial.config, int(world.events), world.now / MILLISECOND, slowest)


def slowest_delivery(trial: Trial, recorder: ListRecorder) -> float:
    since: dict[str | None, int] = {}
    slowest = 0
    for event in recorder.events:
        if event.kind == "multicast":
            since[event.message] = max(trial.calm_at, event.time or 0)
        elif event.kind == "deliver" and event.message in since:
            slowest = max(slowest, (event.time or 0) - since[event.message])
    return slowest / DELTA


def find_problem(trial: Trial, recorder: ListRecorder) -> str:
    """What is wrong with a run that ended, in one line; empty if nothing is."""
    events = without_refused(recorder.events)
    if trial.correct_only:
        crashed = {event.process for event in events if event.kind == "crash"}
        events = [event for event in events if event.kind != "deliver" or event.process not in crashed]
    for verdict in check(events, list(trial.properties)):
        if verdict.status == "violated" or (verdict.status == "unknown" and verdict.property not in MAY_BE_UNKNOWN):
            return f"{verdict.property} {verdict.status}: {verdict.reason}"
    world = trial.world
    if world.stalled and "termination" in trial.properties:
        busy = [p for p in range(world.topology.size) if world.up(p) and not world.processes[p].idle()]
        return f"not quiescent: unfinished work at {', '.join(world.topology.name(p) for p in busy)}"
    slowest = slowest_delivery(trial, recorder)
    if slowest > BOUND and "termination" in trial.properties:
        return f"a delivery {slowest:.0f}δ after the calm and its multicast: expected at most {BOUND}δ"
    return ""


def without_refused(events: list[Event]) -> list[Event]:
    """The trace as if what was refused had not been multicast."""
    refused = {e.message for e in events if e.kind == "reconfigure" and e.message is not None}
    return [e for e in events if e.message not in refused or e.message is None] if refused else events


def write_trace(name: str, seed: int, path: Path) -> None:
    """Run the trial of a seed once more and keep its full trace."""
    with ParquetRecorder(path, full=True) as recorder:
        trial = make_trial(protocol(name), seed, recorder)
        try:
            trial.world.run(MOST)
        except BUGS:
            pass  # the rows up to the failure are what is wanted
