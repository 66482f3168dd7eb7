"""Swarms: many small runs, each with its own random configuration and fault plan, all checked.

A run has two phases. Until the calm, anything goes: crashes in the middle of a broadcast, elections for no reason,
pauses, partitions, delays of many δ; nothing may be delivered wrongly. Then the faults stop, a quorum of every group
is up, and every message has to be delivered everywhere within `BOUND` δ. A seed and a version reproduce a run.

Where that cannot be demanded, because every sender crashed for example, the seed is excused and says why. It is not ok.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amcast.checks import Verdict, check
from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.guesses import open_guess
from amcast.checks.history import NOTHING_MULTICAST
from amcast.checks.refusals import refused, without_refused, wrong_refusal
from amcast.checks.termination import NOTHING_DUE
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import Event, ListRecorder, Recorder
from amcast.errors import InvariantViolation
from amcast.protocols import protocol
from amcast.sim.choices import Seeded
from amcast.sim.faults import Restart, Storm, storm
from amcast.sim.network import MILLISECOND
from amcast.swarm.broadcasts import broadcast_trial
from amcast.swarm.open_groups import open_groups_trial
from amcast.swarm.optimistic import optimistic_trial
from amcast.swarm.trial import DELTA, Trial, draw_network, draw_workload, draw_world, judge_always, lost_with_sender

BOUND = 500  # δ from the calm, or from a later multicast, until every correct destination has delivered
MOST = 400_000  # messages in a run: Optimistic in 4 groups of 5 takes 122,000
LIVENESS = ("agreement", "agreement-nonuniform", "termination")
EXCUSES = {  # what termination says where nothing need be delivered, in few words
    NOTHING_DUE: "every sender or every destination crashed",
    NOTHING_MULTICAST: "nothing was multicast",
}
ALL_REFUSED = "every message was refused"
BUGS = (InvariantViolation, AssertionError, KeyError, IndexError, ValueError)  # how a broken protocol shows


@dataclass(frozen=True)
class Outcome:
    """What became of one seed: a problem, an excuse, or neither. Then it is ok."""

    seed: int
    problem: str
    config: str
    events: int
    virtual_ms: float
    slowest: float  # δ from the calm, or from a later multicast, to the last delivery of a message
    excuse: str = ""  # why not all could be judged
    evidence: Evidence = NOTHING
    delivered: int = 0  # multicasts that somebody delivered
    refused: int = 0

    def __post_init__(self) -> None:
        assert self.problem or self.excuse or self.evidence, f"seed {self.seed} is ok on nothing"

    @property
    def ok(self) -> bool:
        return not self.problem and not self.excuse


def make_trial(table: Protocol, seed: int, recorder: Recorder | None) -> Trial:
    """Draw a configuration and a fault plan."""
    if table.broadcast:
        return broadcast_trial(table, seed, recorder)
    if table.detector == "Θ":
        return open_groups_trial(table, seed, recorder)
    if table.reconfigures:  # with fault plans of their own
        return optimistic_trial(table, seed, recorder)
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
    workload = draw_workload(choices, groups, messages)
    tail_bytes = choices.pick((0, 300, 1500)) if durable else 0  # few deliveries are kept: who missed more pulls
    params = Params(DELTA, checked=True, durable=durable, tail_bytes=tail_bytes)
    world = draw_world(table, seed, topology, network, choices, params, workload, recorder)
    plan = storm(topology, choices, calm_at, DELTA, kinds)
    properties = ["integrity", "validity", "order", "agreement", "termination"] + (["genuine"] if table.genuine else [])
    config = (
        f"{groups} groups of {replicas}, {len(topology.clients)} clients, {messages} messages, "
        f"{type(network).__name__} network, calm at {calm_at // DELTA}δ, {len(plan) - 1} faults"
        + (", restarts" if durable else "")
    )
    excuse = lost_with_sender if table.blocks or not table.elects else judge_always
    trial = Trial(world, calm_at, config, tuple(properties), excuse=excuse).follow(plan)
    for pid in range(topology.replicas) if durable else ():
        world.at(calm_at, Restart(pid))  # whoever is down, and was to crash in a step that came late
    return trial


def run_seed(name: str, seed: int) -> Outcome:
    """Run and check the trial of one seed."""
    return judge(protocol(name), seed)


def judge(table: Protocol, seed: int) -> Outcome:
    recorder = ListRecorder(full=True)
    trial = make_trial(table, seed, recorder)
    world = trial.world
    problem = excuse = ""
    pairs = 0
    try:
        world.run(MOST)
        problem, excuse, pairs = find_problem(trial, recorder)
    except BUGS as error:
        problem = f"{type(error).__name__}: {error}"
    events = recorder.events
    multicasts = {event.message for event in events if event.kind == "multicast"}
    return Outcome(
        seed,
        problem,
        trial.config,
        int(world.events),
        world.now / MILLISECOND,
        slowest_delivery(trial, recorder),
        excuse,
        evidence_of(trial, events, pairs),
        delivered=len({event.message for event in events if event.kind == "deliver"} & multicasts),
        refused=len(refused(events)),
    )


def evidence_of(trial: Trial, events: Sequence[Event], pairs: int) -> Evidence:
    deliveries = [event.process for event in events if event.kind == "deliver"]
    return Evidence(
        runs=1,
        replicas=len(set(deliveries)),
        expected=trial.world.topology.replicas,
        multicasts=sum(event.kind == "multicast" for event in events),
        deliveries=len(deliveries),
        pairs=pairs,
        faults=sum(event.kind == "crash" for event in events) + trial.acted.total(),
    )


def slowest_delivery(trial: Trial, recorder: ListRecorder) -> float:
    since: dict[str | None, int] = {}
    slowest = 0
    for event in recorder.events:
        if event.kind == "multicast":
            since[event.message] = max(trial.calm_at, event.time or 0)
        elif event.kind == "deliver" and event.message in since:
            slowest = max(slowest, (event.time or 0) - since[event.message])
    return slowest / DELTA


def find_problem(trial: Trial, recorder: ListRecorder) -> tuple[str, str, int]:
    """Return what is wrong with a run that ended, or why not all of it could be judged, and the pairs compared."""
    world = trial.world
    if wrong := wrong_refusal(world.protocol, recorder.events):
        return wrong, "", 0
    events = without_refused(recorder.events)
    if trial.correct_only:
        crashed = {event.process for event in events if event.kind == "crash"}
        events = [event for event in events if event.kind != "deliver" or event.process not in crashed]
    excuse = trial.excuse(events)
    verdicts = check(events, [name for name in trial.properties if not excuse or name not in LIVENESS])
    pairs = sum(verdict.evidence.pairs for verdict in verdicts if verdict.property in LIVENESS)
    for verdict in verdicts:
        if verdict.status == "violated":
            return said(verdict), "", pairs
    if not excuse and world.stalled:
        busy = [p for p in range(world.topology.size) if world.up(p) and not world.processes[p].idle()]
        return f"not quiescent: unfinished work at {', '.join(world.topology.name(p) for p in busy)}", "", pairs
    if not excuse and (guess := open_guess(events)):
        return f"optimistic violated: {guess}", "", pairs
    slowest = slowest_delivery(trial, recorder)
    if not excuse and slowest > BOUND:
        return f"a delivery {slowest:.0f}δ after the calm and its multicast: expected at most {BOUND}δ", "", pairs
    if not excuse:
        excuse = EXCUSES.get(next(verdict.reason for verdict in verdicts if verdict.property == "termination"), "")
        if excuse and refused(recorder.events) and not any(event.kind == "multicast" for event in events):
            excuse = ALL_REFUSED
    for verdict in verdicts:
        if verdict.status == "unknown" and not excuse and not (verdict.property == "genuine" and all_alone(events)):
            return said(verdict), "", pairs
    return "", excuse, pairs


def all_alone(events: Sequence[Event]) -> bool:
    """Return whether nobody delivered but senders, each what it had multicast: nobody need be told of anything."""
    senders = {event.message: event.process for event in events if event.kind == "multicast"}
    return all(event.process == senders.get(event.message) for event in events if event.kind == "deliver")


def said(verdict: Verdict) -> str:
    return f"{verdict.property} {verdict.status}: {verdict.reason}"


def write_trace(name: str, seed: int, path: Path) -> None:
    """Run the trial of a seed once more and keep its full trace."""
    from amcast.tracefile import ParquetRecorder  # needs pyarrow, which no other part of a swarm does

    with ParquetRecorder(path, full=True) as recorder:
        trial = make_trial(protocol(name), seed, recorder)
        try:
            trial.world.run(MOST)
        except BUGS:
            pass  # the rows up to the failure are what is wanted
