"""What a client notices when the leader of a group of three dies, or stands still: for how long nothing is answered.

    python bench/failover_bench.py                       20 gaps after SIGKILL and 20 after SIGSTOP
    python bench/failover_bench.py --only kill --gaps 5  --protocol primcast --durable

One client keeps some multicasts under way, each anew when it is answered. A gap is the longest time without an answer
from the signal on. The node is started again, or goes on, and all must be ready before the next one.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import amcast
from amcast.local.files import create_cluster
from amcast.local.level import status_of
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig, Member

SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
OUTSTANDING: Final = 4
CALM: Final = 0.3  # seconds of answers that end a gap
SECONDS: Final = 60.0  # for anything that is waited for


@contextmanager
def cluster(name: str, durable: bool, suspect_ms: float | None) -> Iterator[Processes]:
    """Nodes that run inside the block."""
    with tempfile.TemporaryDirectory(prefix="amcast-bench-") as folder:
        config = create_cluster(Path(folder), protocol(name), 1, 3, "log", secure=False, durable=durable)
        if suspect_ms is not None:
            text = config.path.read_text()
            config.path.write_text(text.replace("suspect_ms = 800 ", f"suspect_ms = {suspect_ms:g} "))
        nodes = Processes(config)
        try:
            with nodes.alone():
                for member in config.members:
                    nodes.start(member)
            wait_until_ready(nodes)
            yield nodes
        finally:
            nodes.stop(config.members)


def wait_until_ready(nodes: Processes) -> None:
    states = nodes.wait_until_ready(nodes.config.members, SECONDS)
    if any(states.values()):
        raise SystemExit(f"not ready: {states}")


def leader_of(config: ClusterConfig) -> Member:
    """Return the member that leads, so far as the members say."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for member in config.members:
            found = status_of(config, member)
            if isinstance(found, dict) and found.get("leads"):
                return member
        time.sleep(0.05)
    raise SystemExit(f"nobody leads {config.name}")


class Load:
    """Multicasts under way at all times, and when the last of them was answered."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.answers: list[float] = []
        self.running = True

    def begin(self) -> None:
        for _ in range(OUTSTANDING):
            self.submit()

    def submit(self) -> None:
        self.client.submit((0,), b"twenty bytes of load").add_done_callback(self.answered)

    def answered(self, future: asyncio.Future[Any]) -> None:
        future.result()
        self.answers.append(time.monotonic())
        if self.running:
            self.submit()

    async def gap_after(self, moment: float) -> float:
        """Wait until answers come again; return the longest time without one since this moment."""
        until = moment + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(0.05)
            times = [moment, *[at for at in self.answers if at >= moment]]
            gap, end = max(
                (after - before, after) for before, after in zip(times, [*times[1:], times[-1]], strict=True)
            )
            if len(times) > 1 and times[-1] - end > CALM and time.monotonic() - times[-1] < CALM:
                return gap
        raise SystemExit(f"nothing was answered for {SECONDS:g} s")


async def gaps_of(nodes: Processes, kind: str, count: int) -> list[float]:
    """Return so many gaps, in milliseconds."""
    config = nodes.config
    found: list[float] = []
    async with amcast.connect(str(config.path), deadline=SECONDS) as client:
        load = Load(client)
        load.begin()
        for _ in range(count):
            await asyncio.sleep(1.0)
            load.answers.clear()
            leader = await asyncio.to_thread(leader_of, config)
            moment = time.monotonic()
            nodes.signal(leader, SIGNALS[kind])
            found.append(1000 * await load.gap_after(moment))
            print(f"{kind} {leader.name}: {found[-1]:.0f} ms", file=sys.stderr, flush=True)
            if kind == "stop":
                nodes.signal(leader, signal.SIGCONT)
            else:
                with nodes.alone():
                    nodes.wait_until_gone([leader], SECONDS)
                    nodes.start(leader)
            await asyncio.to_thread(wait_until_ready, nodes)
        load.running = False
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while load.client._engine.open:
                    await asyncio.sleep(0.01)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="for how long nothing is answered when a leader dies")
    parser.add_argument("--gaps", type=int, default=20)
    parser.add_argument("--only", choices=tuple(SIGNALS))
    parser.add_argument("--protocol", default="white_box")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--suspect-ms", type=float)
    options = parser.parse_args()
    for kind in SIGNALS if options.only is None else (options.only,):
        with cluster(options.protocol, options.durable, options.suspect_ms) as nodes:
            found = sorted(asyncio.run(gaps_of(nodes, kind, options.gaps)))
        print(
            f"{options.protocol}, {kind}: {len(found)} gaps, median {median(found):.0f} ms, "
            f"90 % {found[int(0.9 * (len(found) - 1))]:.0f} ms, worst {found[-1]:.0f} ms"
        )


if __name__ == "__main__":
    main()
