"""One simulated run under the eyes of a user: a progress bar, and a stop that leaves a readable trace."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

from amcast.cli.output import progress_bar
from amcast.errors import UsageError
from amcast.sim.network import SECOND
from amcast.sim.simulation import Simulation
from amcast.sim.summary import Summary, SummaryRecorder
from amcast.sim.unfinished import is_done
from amcast.sim.world import World

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVENTS_PER_LOOK = 2_000  # between two looks at the progress and at Ctrl-C


@dataclass(frozen=True)
class Run:
    """What became of a simulation."""

    world: World
    summary: Summary
    outcome: Literal["quiescent", "stalled", "interrupted"]
    exit_code: int


@dataclass
class Stop:
    """The signal that ended the run, or 0."""

    signal: int = 0


def ready_world(simulation: Simulation, recorder: SummaryRecorder) -> World:
    """Return the world of this description; raise UsageError for what cannot be."""
    with nothing_too_large():
        return simulation.world(recorder)


@contextmanager
def nothing_too_large() -> Iterator[None]:
    """Take a number that does not fit for the user's mistake."""
    try:
        yield
    except OverflowError:
        raise UsageError("a number or a time of this simulation is too large: expected a smaller one") from None


def run_world(
    world: World, simulation: Simulation, recorder: SummaryRecorder, out: Path | None = None, force: bool = False
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
    if stop.signal:
        return Run(world, summary, "interrupted", 128 + stop.signal)
    return Run(world, summary, "quiescent", 0) if is_done(world) else Run(world, summary, "stalled", 3)


def drive(world: World, simulation: Simulation) -> None:
    with progress_bar("{task.percentage:>3.0f} %") as bar:
        task = bar.add_task("simulating", total=100)
        world.begin()
        while not world.stopped and world.run_for(EVENTS_PER_LOOK):
            show_progress(world, simulation, bar, task)
        world.end()


def show_progress(world: World, simulation: Simulation, bar: "Progress", task: "TaskID") -> None:
    share = 0.0
    if simulation.messages is not None:
        share = (world.multicasts - len(world.pending)) / simulation.messages
    elif simulation.duration is not None:
        share = world.now / simulation.duration
    bar.update(task, completed=min(100, 100 * share), description=f"{world.now / SECOND:,.2f} s")


@contextmanager
def stopped_by_signals(world: World) -> Iterator[Stop]:
    """Let the run end in order at the first Ctrl-C or SIGTERM; a second one is what it always is."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        world.stop()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
