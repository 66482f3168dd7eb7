"""Guards that what a process does in a step, and what it keeps, does not grow with the number of groups."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.explorer.canonical import ATOMS, attributes
from amcast.protocols import protocol

done = 0

def count(frame, event, arg):
    global done
    frame.f_trace_opcodes = True
    done += event == "opcode"
    return count

def size(value):
    "How many values there are within this one; what was seen before counts once."
    if type(value) in ATOMS:
        return 1
    if isinstance(value, (Params, Effects)) or id(value) in seen:
        return 0
    seen[id(value)] = value
    if isinstance(value, dict):
        return sum(size(key) + size(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(size, value))
    return sum(size(getattr(value, name, None)) for name in attributes(value))

topology = Topology((1,) * int(sys.argv[2]), 1)
table = protocol(sys.argv[1])
out = Effects()
params = Params(1_000_000)
replicas = [table.replica(pid, topology, params, out) for pid in (0, 1)]
client = table.client(topology.clients[0], topology, params, out)
on_way = []

def collect(sender):
    on_way.extend((sender, to, msg) for dest, msg in out.sends for to in dest)
    out.clear()

for now in range(3 * 20):
    for process in (*replicas, client):
        if now == 0:
            process.start(now)
        elif process is client and now % 20 == 1:
            client.multicast(now, AppMessage(message_id(client.pid, now // 20), (0, 1), b""))
        elif process is not client:
            sys.settrace(count)
            process.timer(now, "tick")
            sys.settrace(None)
        collect(process.pid)
    while on_way:
        sender, to, msg = on_way.pop(0)
        process = client if to == client.pid else replicas[to]
        sys.settrace(count)
        process.receive(now, sender, msg)
        sys.settrace(None)
        collect(to)
assert replicas[0].position() == replicas[1].position() == 3
seen = {}
size(topology)  # all processes share it, and what follows from it
print(done, sum(size(process) for process in (*replicas, client)))
"""


def cost(name: str, groups: int) -> tuple[int, int]:
    """Return how many instructions of Python a run takes, and how many values the processes keep then."""
    command = [sys.executable, "-c", PROGRAM, name, str(groups)]
    environment = {**os.environ, "AMCAST_PURE": "1"}
    instructions, values = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return int(instructions), int(values)


@pytest.mark.parametrize("name", ["white_box", "primcast"])
def test_many_groups_cost_a_process_nothing(name: str) -> None:
    few, many = cost(name, 3), cost(name, 1000)
    assert many[0] <= few[0] and few[0] > 10_000, "instructions"
    assert many[1] <= few[1] and few[1] > 100, "values that it keeps"
