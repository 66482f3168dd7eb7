"""Runs a node between stdin and stdout, on the real clock."""

import os
import random
import secrets
import select
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from amcast.apps.maelstrom.node import MaelstromNode
from amcast.apps.maelstrom.workloads import WORKLOADS
from amcast.errors import UsageError
from amcast.protocols import protocol

CHUNK: Final = 2**18
MILLISECOND: Final = 1_000_000


def serve(workload: str, delta_ms: int, source: int, sink: BinaryIO, log: Callable[[str], None]) -> None:
    """Read lines from the file descriptor `source` until it ends, write lines to `sink`."""
    machine = WORKLOADS.get(workload)
    if machine is None:
        raise UsageError(f"--workload {workload}: expected one of {', '.join(WORKLOADS)}")
    boot = secrets.randbits(48)
    node = MaelstromNode(machine(), protocol("white_box"), delta_ms * MILLISECOND, boot, random.randint, log)
    try:
        run(node, source, sink)
    except BrokenPipeError:
        raise
    except Exception as problem:  # half a step may be done: nothing else must leave
        node.out.clear()
        node.crashed(problem)
        write(node, sink)
        raise


def run(node: MaelstromNode, source: int, sink: BinaryIO) -> None:
    rest = b""
    while True:
        due = node.due()
        timeout = None if due is None else max(0.0, (due - time.monotonic_ns()) / 1e9)
        data = None
        if select.select([source], [], [], timeout)[0]:
            data = os.read(source, CHUNK)
        now = time.monotonic_ns()
        if data is not None:
            *lines, rest = (rest + data).split(b"\n")
            if not data and rest:
                lines, rest = [rest], b""
            for line in lines:
                if line.strip():
                    node.receive(now, line)
        node.tick(now)
        node.flush(now)
        write(node, sink)
        if data == b"":
            return


def write(node: MaelstromNode, sink: BinaryIO) -> None:
    for line in node.out:
        sink.write(line)
    node.out.clear()
    sink.flush()
