"""One simulated run under the eyes of a user: a progress bar, and a stop that leaves a readable trace."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from amcast.cli.output import progress_bar
from amcast.places import Place
from amcast.sim.network import SECOND
from amcast.sim.simulation import Simulation
from amcast.sim.summary import Summary, SummaryRecorder
from amcast.sim.unfinished import is_done
from amcast.sim.world import World

EVENTS_PER_LOOK = 2_000  # between two looks at the progress and at Ctrl-C


@dataclass(frozen=True)
class Run:
    """What became of a simulation."""

    world: World
    summary: Summary
    outcome: Literal["quiescent", "stalled", "interrupted"]
    exit_code: int


def run_world(
    world: World, simulation: Simulation, recorder: SummaryRecorder, out: Place | None = None, force: bool = False
) -> Run:
    """Run to the end or to Ctrl-C, with the trace in `out`."""
    with stopped_by_signals(world) as stop:
        if out is None:
            drive(world, simulation)
        else:
            from amcast.tracefile import ParquetRecorder, prepare_out

            with ParquetRecorder(prepare_out(out, force), full=recorder.full) as writer:
                recorder.forward_to = writer
                drive(world, simulation)
    summary = recorder.summary(world.network.delta)
    if stop:
        return Run(world, summary, "interrupted", 128 + stop[0])
    return Run(world, summary, "quiescent", 0) if is_done(world) else Run(world, summary, "stalled", 3)


def drive(world: World, simulation: Simulation) -> None:
    with progress_bar("{task.percentage:>3.0f} %") as bar:
        task = bar.add_task("simulating", total=100)
        world.begin()
        while not world.stopped and world.run_for(EVENTS_PER_LOOK):
            share = 0.0
            if simulation.messages is not None:
                share = (world.multicasts - len(world.pending)) / simulation.messages
            elif simulation.duration is not None:
                share = world.now / simulation.duration
            bar.update(task, completed=min(100, 100 * share), description=f"{world.now / SECOND:,.2f} s")
        world.end()


@contextmanager
def stopped_by_signals(world: World) -> Iterator[list[int]]:
    """Let the run end in order at the first Ctrl-C or SIGTERM, and list it; a second one is what it always is."""
    seen: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        world.stop()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
