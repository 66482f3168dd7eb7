"""One seed of the adversary: draw a run, play it, judge it, and make a failing one short.

Safety is judged on the whole trace, liveness on what the calm at its end brought. A seed, a version and nothing else
make a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amcast.checks import check
from amcast.checks.evidence import Evidence
from amcast.checks.guesses import open_guess
from amcast.checks.refusals import refused, withdrawn, without_refused, without_withdrawn, wrong_refusal
from amcast.core.protocol import Protocol
from amcast.core.trace import Event, ListRecorder, Recorder
from amcast.protocols import protocol
from amcast.sim.choices import Seeded
from amcast.swarm.adversary.calm import Calm
from amcast.swarm.adversary.machine import Machine
from amcast.swarm.adversary.moves import Move, parse
from amcast.swarm.adversary.setup import Setup, draw_setup
from amcast.swarm.adversary.strategy import Strategy
from amcast.swarm.seeds import ALL_REFUSED, BUGS, EXCUSES, LIVENESS, Outcome, all_alone, said
from amcast.swarm.trial import DELTA

# Points by which less may be delivered than in a swarm in virtual time: its runs are short, so that one client that
# crashes, or wild weather in a few more seeds than usual, weighs more. The least of 12 times 50 seeds was one below.
LESS_DELIVERED = 15
FAILURES = (*BUGS, TypeError, AttributeError, NotImplementedError)


@dataclass
class Run:
    """A run that was played: its moves, its trace, and the error that ended it."""

    machine: Machine
    events: list[Event]
    error: str

    @property
    def setup(self) -> Setup:
        return self.machine.setup


def play(table: Protocol, seed: int, recorder: Recorder | None = None, moves: Sequence[Move] | None = None) -> Run:
    """Play the run of a seed; with `moves`, these in its surroundings."""
    choices = Seeded(seed)
    setup = draw_setup(table, seed, choices)
    kept = recorder if recorder is not None else ListRecorder()
    machine = Machine(setup, kept)
    error = ""
    try:
        machine.start()
        if moves is None:
            Strategy(machine, choices).play()
        else:
            for move in moves:
                machine.make(move)
        Calm(machine, Seeded(seed)).run()
    except FAILURES as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Run(machine, kept.events if isinstance(kept, ListRecorder) else [], error)


def moves_of(table: Protocol, seed: int, plan: str) -> list[Move]:
    """Read the moves that somebody wants in the surroundings of a seed; lines that begin with # are for people."""
    topology = draw_setup(table, seed, Seeded(seed)).topology
    lines = [line.strip() for line in plan.splitlines()]
    return [parse(topology, line) for line in lines if line and not line.startswith("#")]


def run_adversary_seed(name: str, seed: int, plan: str = "") -> Outcome:
    return judge_adversary(protocol(name), seed, plan)


def judge_adversary(table: Protocol, seed: int, plan: str = "") -> Outcome:
    """Play and judge the run of one seed; with a plan, these moves instead of the drawn ones."""
    return outcome_of(play(table, seed, moves=moves_of(table, seed, plan) if plan else None))


def outcome_of(run: Run) -> Outcome:
    machine, events = run.machine, run.events
    problem, excuse, pairs = (run.error, "", 0) if run.error else find_problem(run)
    multicasts = {event.message for event in events if event.kind == "multicast"} - withdrawn(events)
    deliveries = [event.process for event in events if event.kind == "deliver"]
    evidence = Evidence(
        runs=1,
        replicas=len(set(deliveries)),
        expected=machine.topology.replicas,
        multicasts=len(multicasts),
        deliveries=len(deliveries),
        pairs=pairs,
        faults=machine.faults,
    )
    return Outcome(
        run.setup.seed,
        problem,
        f"{run.setup.describe()}; {len(machine.moves)} moves, {machine.faults} faults",
        machine.handled,
        machine.now / DELTA,
        0.0,
        excuse,
        evidence,
        delivered=len({event.message for event in events if event.kind == "deliver"} & multicasts),
        refused=len(refused(events)) + len(withdrawn(events)),
    )


def find_problem(run: Run) -> tuple[str, str, int]:
    """Return what is wrong with a run that ended, or why not all of it could be judged, and the pairs compared."""
    setup = run.setup
    if wrong := wrong_refusal(setup.table, run.events):
        return f"refusal violated: {wrong}", "", 0
    events = without_refused(run.events)
    if not setup.uniform:  # what a process delivered that crashed later does not count
        crashed = {event.process for event in events if event.kind == "crash"}
        events = [event for event in events if event.kind != "deliver" or event.process not in crashed]
    handled, events = events, without_withdrawn(events)
    excuse = setup.excuse(events)
    names = [name for name in setup.properties() if not excuse or name not in LIVENESS]
    verdicts = check(events, [name for name in names if name != "genuine"])
    if "genuine" in names:
        verdicts += check(handled, ["genuine"])  # also of what was given up
    pairs = sum(verdict.evidence.pairs for verdict in verdicts if verdict.property in LIVENESS)
    for verdict in verdicts:
        if verdict.status == "violated":
            return said(verdict), "", pairs
    if not excuse and (guess := open_guess(events)):
        return f"optimistic violated: {guess}", "", pairs
    if not excuse and (waiting := run.machine.waiting_clients()):
        who = run.machine.topology.names[waiting[0]]
        return f"completion violated: {who} never learns what became of what it multicast", "", pairs
    if not excuse:
        excuse = EXCUSES.get(next(verdict.reason for verdict in verdicts if verdict.property == "termination"), "")
        given_up = refused(run.events) or withdrawn(run.events)
        if excuse and given_up and not any(event.kind == "multicast" for event in events):
            excuse = ALL_REFUSED
    for verdict in verdicts:
        nothing_said = verdict.property == "genuine" and (all_alone(events) or not run.machine.seen)
        if verdict.status == "unknown" and not excuse and not nothing_said:
            return said(verdict), "", pairs
    return "", excuse, pairs
