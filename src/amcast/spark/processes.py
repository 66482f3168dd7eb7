"""A sweep in processes of this machine, where no Spark is asked for: the same rows, folder and outcome, sooner.

Each process runs one batch after the other. One that dies (see `amcast.spark.row`) is replaced, and what dead ones left
is run again at the end, each row in a process of its own.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from amcast.errors import AmcastError
from amcast.spark.row import Config, Output, refused, run_batch

SECONDS_PER_LOOK: Final = 0.3
PRELOADED: Final = ["amcast.spark.row"]

Batches = Mapping[str, Sequence[Config]]


def run_in_processes(batches: Batches, output: Output, look: Callable[[], None]) -> None:
    """Run these batches. Raises UsageError if the folder cannot be written."""
    for isolated in (False, True):
        left = {name: rows for name, rows in batches.items() if not output.has(name)}
        if left:
            run_each(left, replace(output, isolated=isolated), look)


def run_each(batches: Batches, output: Output, look: Callable[[], None]) -> None:
    """Run each batch once, on all cores."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(PRELOADED)  # else each process imports it
    waiting = list(batches.items())[::-1]
    processes: dict[Connection, Any] = {}
    deaths = 0

    def begin() -> None:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, output))
        process.start()
        there.close()
        processes[here] = process
        here.send(waiting.pop())

    try:
        for _ in range(min(len(batches), len(os.sched_getaffinity(0)))):
            begin()
        while processes:
            for pipe in wait(list(processes), SECONDS_PER_LOOK):
                assert isinstance(pipe, Connection)
                try:
                    error = pipe.recv()
                except (EOFError, OSError):
                    processes.pop(pipe).join()
                    deaths += 1
                    if deaths > len(batches):
                        raise AmcastError(f"{output.out}: processes of the sweep die before they begin") from None
                    if waiting:
                        begin()
                    continue
                if error is not None:
                    raise refused(output, error)
                if waiting:
                    pipe.send(waiting.pop())
                else:
                    pipe.close()
                    processes.pop(pipe).join()
            look()
    finally:
        for process in processes.values():
            process.kill()
            process.join()


def serve(pipe: Connection, output: Output) -> None:
    """Run the batches that come, until no more come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one says what it means
    with suppress(EOFError, OSError):
        while True:
            name, rows = pipe.recv()
            pipe.send(run_batch(name, rows, output))
