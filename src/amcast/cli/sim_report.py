"""What is said about a simulation: its figures, what is unfinished, and the command that runs it again."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Console

from amcast.cli.output import duration, plain_table, three_digits
from amcast.cli.running import Run
from amcast.core.plural import count
from amcast.places import Place
from amcast.protocols import PROTOCOLS
from amcast.sim.network import MILLISECOND
from amcast.sim.settings import SETTINGS, Kind
from amcast.sim.simulation import Simulation
from amcast.sim.summary import Latency, Recovery, Summary
from amcast.sim.unfinished import missing, restless
from amcast.sim.world import World

if TYPE_CHECKING:
    from rich.table import Table

MOST_NAMED = 3  # processes in one line
MOST_IN_JSON = 100  # missing messages


def print_report(console: Console, simulation: Simulation, run: Run, out: Place | None) -> None:
    console.print(title(simulation), style="bold")
    console.print(in_all(run.summary))
    console.print()
    console.print(latency_table(run.summary))
    lines = [*incidents(run.summary), *([] if out is None else [f"trace in {out}"])]
    if lines:
        console.print()
    for line in lines:
        console.print(line)


def title(simulation: Simulation) -> str:
    parts = (
        PROTOCOLS[simulation.protocol].title,
        f"{count(simulation.groups, 'group')} of {simulation.replicas}",
        senders(simulation),
        simulation.network,
        f"seed {simulation.seed}",
    )
    return " · ".join(parts)


def senders(simulation: Simulation) -> str:
    if simulation.rounds:
        return count(simulation.rounds, "round")
    return f"{simulation.senders_to} send to each" if simulation.senders_to else count(simulation.clients, "client")


def in_all(summary: Summary) -> str:
    return (
        f"{count(summary.multicasts, 'message')}, {summary.deliveries:,} deliveries in "
        f"{duration(summary.duration_ms)} of virtual time: {summary.messages_per_second:,.0f} messages/s"
    )


def latency_table(summary: Summary) -> "Table":
    columns = ("p50", "p95", "p99", "max", "mean")
    table = plain_table("latency, from the multicast to", "in", *columns, right=columns)
    rows = [("first delivery in a group", summary.first_delivery), ("last delivery in a group", summary.last_delivery)]
    if summary.optimistic is not None:
        rows.insert(0, (f"optimistic delivery, {summary.mistakes:.2f} % mistakes", summary.optimistic))
    for what, latency in rows:
        for unit, cells in latency_rows(latency):
            table.add_row(what if unit == "ms" else "", unit, *cells)
    return table


def latency_rows(latency: Latency | None) -> Iterator[tuple[str, list[str]]]:
    if latency is None:
        yield "ms", ["–"] * 5
        return
    for unit, percentiles in (("ms", latency.ms), ("δ", latency.delta)):
        decimals = 2 if percentiles.max >= 1 else 4
        yield unit, [f"{value:,.{decimals}f}" for value in asdict(percentiles).values()]


def incidents(summary: Summary) -> Iterator[str]:
    """Tell crashes, leader changes and recoveries, a line each."""
    if summary.crashes or summary.leader_changes:
        yield f"{count(summary.crashes, 'crash', 'crashes')}, {count(summary.leader_changes, 'leader change')}"
    for recovery in summary.recoveries:
        yield recovery_line(recovery, summary.delta_ms)


def recovery_line(recovery: Recovery, delta_ms: float) -> str:
    crashed = f"leader {recovery.process} crashed at {duration(recovery.crash_ms)}"
    if recovery.recovery_ms is None:
        return f"{crashed}; {recovery.group} delivered nothing new since"
    after = f"{duration(recovery.recovery_ms)} ({three_digits(recovery.recovery_ms / delta_ms)} δ)"
    return f"{crashed}; {recovery.group} delivered again after {after}"


def run_document(simulation: Simulation, run: Run, out: Place | None) -> dict[str, object]:
    """Return the run for JSON."""
    config = simulation.columns()
    return {
        "protocol": config.pop("protocol"),
        "config": config,
        "outcome": run.outcome,
        "events": int(run.world.events),
        "summary": run.summary.as_dict(),
        "missing_messages": len(run.world.pending),
        "missing": [
            {"message": name, "dest": dest, "processes": processes}
            for name, dest, processes in islice(missing(run.world), MOST_IN_JSON)
        ],
        "trace": None if out is None else str(out),
    }


def unfinished(run: Run, out: Place | None) -> Iterator[str]:
    """Say why the run is not the whole story, if it is not."""
    world = run.world
    if run.outcome == "interrupted":
        kept = "" if out is None else f"; the trace in {out} is readable but has no end row"
        yield f"interrupted at {now(world)}{kept}"
    elif run.outcome == "stalled":
        yield f"stalled at {now(world)}: {what_is_missing(world)}"


def now(world: World) -> str:
    return f"{duration(int(world.now) / MILLISECOND)} of virtual time"


def what_is_missing(world: World) -> str:
    if not world.pending:
        return f"every message was delivered, but {some(restless(world)) or 'the workload'} never came to rest"
    name, dest, processes = next(missing(world))
    first = f"{name} to {', '.join(dest)} is missing at {some(processes)}"
    if len(world.pending) == 1:
        return f"1 message was not delivered everywhere: {first}"
    return f"{len(world.pending):,} messages were not delivered everywhere; the first, {first}"


def some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def command_line(simulation: Simulation) -> str:
    """Return the command that makes the same run again."""
    words = ["amcast", "sim", simulation.protocol]
    for name, setting in SETTINGS.items():
        value = setting.as_json(getattr(simulation, name))
        if setting.kind is Kind.PROTOCOL or (getattr(simulation, name) == setting.default and name != "seed"):
            continue
        for each in value if setting.kind is Kind.CRASHES else [value]:
            text = f"{each}ns" if setting.kind is Kind.TIME else str(each)
            words += [setting.flag] if setting.kind is Kind.FLAG else [setting.flag, text]
    return shlex.join(words)
