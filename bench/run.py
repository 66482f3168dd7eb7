"""`make bench`: simulator events per second with the White-Box handlers, beside SimPy with the same message pattern.

Both run in this process, one after the other, three times in turn; the table shows medians and the ratio of the
medians. An event is a message handled. SimPy runs the pattern with counters instead of the protocol, so the comparison
is in its favour. A second table shows that memory follows what is in flight and not how long a run lasts.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import simpy_peer

import amcast
from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.protocols import protocol
from amcast.sim.choices import Seeded
from amcast.sim.faults import Pause
from amcast.sim.network import MILLISECOND, Constant, Network, Uniform
from amcast.sim.workload import ClosedLoop, Destinations
from amcast.sim.world import World

SETTINGS = {"30 servers": (10, 100), "450 servers": (150, 2000)}  # groups of 3, clients


def our_run(network: Network, groups: int, clients: int, messages: int) -> int:
    """Faults and FIFO on: a follower pauses for a while, every channel is clamped."""
    world = World(
        protocol("white_box"),
        Topology((3,) * groups, clients),
        network,
        Seeded(1),
        params=Params(network.delta),
        workload=ClosedLoop(Destinations(groups, 2), messages),
    )
    world.need_fifo()
    world.at(network.delta, Pause(2, 5 * network.delta))
    world.run()
    assert not world.stalled
    return int(world.events)


def simpy_run(style: Callable[[simpy_peer.Pattern], int], groups: int, clients: int, messages: int) -> int:
    return style(simpy_peer.Pattern(groups, 3, clients, 2, messages, 1))


def rate(run: Callable[[], int]) -> float:
    start = time.process_time()
    events = run()
    return events / (time.process_time() - start)


def compare(scale: int) -> Table:
    mode = "compiled" if amcast.compiled() else "interpreted"
    table = Table(title=f"events per second, tracing off ({mode})")
    for column in (
        "setting",
        "amcast",
        "amcast, jitter",
        "SimPy processes",
        "SimPy callbacks",
        "ratio",
        "to callbacks",
    ):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for name, (groups, clients) in SETTINGS.items():
        ours = scale if amcast.compiled() else scale // 8

        runs: list[Callable[[], int]] = [
            partial(our_run, Constant(MILLISECOND), groups, clients, ours),
            partial(our_run, Uniform(MILLISECOND // 2, MILLISECOND), groups, clients, ours),
            partial(simpy_run, simpy_peer.run_processes, groups, clients, scale // 10),
            partial(simpy_run, simpy_peer.run_callbacks, groups, clients, scale // 10),
        ]
        samples = [[rate(run) for run in runs] for _ in range(3)]
        medians = [statistics.median(column) for column in zip(*samples, strict=True)]
        ratios = (medians[0] / medians[2], medians[0] / medians[3])
        table.add_row(name, *[f"{m:,.0f}" for m in medians], f"{ratios[0]:.1f}×", f"{ratios[1]:.1f}×")
    return table


MEMORY_PROGRAM = """
import resource, sys
sys.path.insert(0, {bench!r})
from run import Constant, MILLISECOND, ClosedLoop, Destinations, Params, Seeded, Topology, World, protocol
world = World(protocol("white_box"), Topology((3,) * 10, 100), Constant(MILLISECOND), Seeded(1),
              params=Params(MILLISECOND), workload=ClosedLoop(Destinations(10, 2), {messages}))
world.run()
print(world.events, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def memory(lengths: list[int]) -> Table:
    table = Table(title="memory of a run")
    for column in ("multicasts", "events", "peak MB"):
        table.add_column(column, justify="right")
    for messages in lengths:
        program = MEMORY_PROGRAM.format(bench=str(Path(__file__).parent), messages=messages)
        out = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
        )
        events, peak = out.stdout.split()
        table.add_row(f"{messages:,}", f"{int(events):,}", peak)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="simulator benchmarks")
    parser.add_argument("--long", action="store_true", help="also a run of 100 million events (minutes)")
    parser.add_argument("--scale", type=int, default=60_000, help="multicasts per measurement")
    options = parser.parse_args()
    console = Console(width=140)
    console.print(compare(options.scale))
    if amcast.compiled():
        environment = {**os.environ, "AMCAST_PURE": "1"}
        subprocess.run([sys.executable, __file__, "--scale", str(options.scale // 2)], env=environment, check=True)
        console.print(memory([30_000, 300_000, *([2_800_000] if options.long else [])]))


if __name__ == "__main__":
    main()
