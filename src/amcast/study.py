"""What programs use to study protocols: `amcast.simulate`, `amcast.check`, `amcast.explore`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amcast import checks
from amcast.checks import Verdict
from amcast.core.protocol import Protocol
from amcast.core.trace import Event, ListRecorder
from amcast.errors import UsageError, meant
from amcast.explorer import exploration
from amcast.explorer.exploration import Exploration
from amcast.explorer.scope import Scope
from amcast.explorer.scopes import scope_named
from amcast.explorer.search import Limits
from amcast.protocols import protocol as protocol_named
from amcast.sim.settings import SETTINGS
from amcast.sim.setups import simulation_in
from amcast.sim.simulation import Simulation
from amcast.sim.summary import Summary, SummaryRecorder


@dataclass(frozen=True)
class SimulatedRun:
    """What `amcast.simulate` returns: a run that is over.

    `events` is its trace, `summary` its figures (throughput, latency, recovery), `simulation` what was asked for.
    `finished` is false if the run stalled: something was not delivered, and never will be.
    """

    simulation: Simulation
    events: Sequence[Event]
    summary: Summary
    finished: bool

    def check(self, properties: Sequence[str] | None = None) -> list[Verdict]:
        """Judge this run: by default, all that its protocol promises."""
        return checks.check(self.events, properties or promises(protocol_named(self.simulation.protocol)))


def simulate(protocol: str, *, setup: str | None = None, full: bool = False, **settings: Any) -> SimulatedRun:
    """Run a protocol in virtual time until all is delivered, and return what happened.

        run = amcast.simulate("white_box", messages=500, crashes=["g0/0@20ms"])
        print(run.summary.first_delivery)
        assert all(verdict.status == "ok" for verdict in run.check())

    `settings` are those of `amcast sim`: groups, replicas, clients, messages, duration, dest_groups, rate, network,
    crashes, skew, seed, payload, checked, senders_to, window, rounds, batch. A time is text with its unit, such
    as "10s" or "50us". The same settings make the same run, event by event. `setup` names an experiment of a paper,
    such as "white-box-lan", of which settings change a part. With `full` the trace has every send and
    receive, not only multicasts, deliveries and what went wrong. Raises UsageError for what cannot be simulated.
    """
    simulation = described(protocol, setup, settings)
    events = ListRecorder(full)
    recorder = SummaryRecorder(full, events)
    world = simulation.world(recorder)
    world.run()
    finished = not world.stalled and not world.pending and world.workload.finished(world)
    return SimulatedRun(simulation, events.events, recorder.summary(world.network.delta), finished)


def described(protocol: str, setup: str | None, settings: Mapping[str, Any]) -> Simulation:
    """Return the description of a run, from settings as they are typed and written in files."""
    given: dict[str, Any] = {"protocol": protocol_named(protocol).name}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise UsageError(f"unknown setting {name!r} of a simulation; {meant(name, SETTINGS)}")
        try:
            given[name] = SETTINGS[name].read(value)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    return simulation_in(setup, given)


def check(trace: str | Path | Iterable[Event], properties: Sequence[str] | None = None) -> list[Verdict]:
    """Judge a trace: the name of its file or folder, or its events. Return a verdict per property and run.

        for verdict in amcast.check("run1"):
            print(verdict.property, verdict.status, verdict.reason)

    A verdict's status is "ok", "violated" (with the rows of the smallest counter-example that was found) or "unknown"
    (with the reason). `properties` are names such as "order" and "agreement"; without them, it is what atomic multicast
    promises, and what else the rows allow to judge. Raises TraceError for a trace that cannot be read.
    """
    if isinstance(trace, str | Path):
        from amcast.tracefile import read_events  # and pyarrow with it

        trace = read_events(trace)
    return checks.check(trace, properties)


def promises(table: Protocol) -> list[str]:
    """Return the properties that a protocol promises to clients.

    They are no members of its groups: the fifo order that some protocols promise as well is one between members.
    """
    order = "order" if "total" in table.orders else table.orders[0]
    return ["integrity", "validity", order, "agreement" if table.uniform else "agreement-nonuniform", "termination"]


def explore(
    protocol: str,
    scope: str | Scope = "small",
    *,
    states: int | None = None,
    depth: int | None = None,
    seconds: float | None = None,
    walks: int = 0,
    seed: int = 1,
) -> Exploration:
    """Run every schedule of a protocol within a scope, judge every state, and return what was found out.

        found = amcast.explore("skeen")
        assert found.verdict == ("ok", "") and found.complete, found.violation

    `scope` is one of those that `amcast explore PROTOCOL --list` shows, or one of your own. The search may be limited
    to so many `states`, to schedules of so many moves (`depth`) and to so many `seconds`. With `walks`, it follows so
    many random schedules, drawn by `seed`, instead of all. A `violation` is a shortest schedule, which `amcast replay`
    shows step by step.
    """
    table = protocol_named(protocol)
    chosen = scope_named(table, scope) if isinstance(scope, str) else scope
    return exploration.explore(table, chosen, Limits(states, depth, seconds), walks, seed)
