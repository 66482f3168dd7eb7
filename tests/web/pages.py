"""Runs to look at, and the server of a page in a thread of the test."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from amcast.core.trace import Event, ListRecorder
from amcast.runtime.config import Address
from amcast.sim.simulation import Crash, Simulation
from amcast.tracefile import read_events
from amcast.web.runs import RunRows, first_times
from amcast.web.server import HOST, PageServer
from amcast.web.view import ShownTrace

TRACES = Path(__file__).parent.parent / "traces"


def simulated(
    messages: int = 40, network: str = "constant:1ms", full: bool = True, crash: str = "", clients: int = 4
) -> list[Event]:
    """A run of White-Box."""
    recorder = ListRecorder(full=full)
    crashes = (Crash.parse(crash),) if crash else ()
    run = Simulation("white_box", groups=3, clients=clients, messages=messages, network=network, crashes=crashes)
    run.world(recorder).run()
    return recorder.events


def long_run(events: int) -> list[Event]:
    """At least so many events: a run again and again, each time with new messages."""
    once = [event for event in simulated(300, "uniform:1ms,9ms") if event.kind not in ("start", "end")]
    span = max(event.time or 0 for event in once) + 1
    turns = -(-events // len(once))
    return [later(event, turn, span) for turn in range(turns) for event in once]


def later(event: Event, turn: int, span: int) -> Event:
    return Event(
        event.run, event.kind, event.process, event.group, event.seq + turn * 10**6, (event.time or 0) + turn * span,
        message=event.message and f"{event.message}.{turn}", sender=event.sender, dest=event.dest, ts=event.ts,
        peer=event.peer, type=event.type, size=event.size,
        about=event.about and tuple(f"{name}.{turn}" for name in event.about),
    )  # fmt: skip


def rows_of(events: Sequence[Event]) -> dict[str, RunRows]:
    runs = dict.fromkeys(event.run for event in events)
    first = first_times(events)
    return {run: RunRows([event for event in events if event.run == run], first.get(run, 0)) for run in runs}


def rows_in(file: str) -> dict[str, RunRows]:
    return rows_of(list(read_events(TRACES / file)))


@contextmanager
def served(server: PageServer) -> Iterator[str]:
    """Where the page is, while it is served."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    bound = asyncio.run_coroutine_threadsafe(server.start(Address(HOST, 0)), loop).result(20)
    try:
        yield f"http://{HOST}:{bound.port}/"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@contextmanager
def trace_page(runs: dict[str, RunRows], name: str = "run.jsonl") -> Iterator[str]:
    shown = ShownTrace(Path(name), runs)
    shown.data(None)  # as the command does before it says where the page is
    with served(PageServer("index.html", shown.sources())) as url:
        yield url
