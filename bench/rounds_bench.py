"""The AllConcur family at the size of the paper: 455 servers, 110 rounds, tracing off; SimPy at 72.

To run it:
    .venv/bin/python bench/rounds_bench.py [PROTOCOL ...] [--servers N] [--rounds R]
"""

import argparse
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import amcast
from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.protocols import protocol
from amcast.protocols.allconcur.digraphs import binomial_children, reliable_digraph
from amcast.sim.choices import Seeded
from amcast.sim.network import MILLISECOND, SECOND, Constant
from amcast.sim.workload import Servers
from amcast.sim.world import World


def run(name: str, servers: int, rounds: int) -> tuple[int, float]:
    """Messages handled, seconds of CPU."""
    start = time.process_time()
    world = World(
        protocol(name),
        Topology((servers,)),
        Constant(MILLISECOND),
        Seeded(1),
        params=Params(MILLISECOND, heartbeat=1000 * SECOND),
        workload=Servers(rounds, b"x" * 1000),
    )
    world.run()
    assert not world.stalled and world.delivered == servers * servers * rounds
    return int(world.events), time.process_time() - start


def simpy_run(servers: int, rounds: int, reliable: bool) -> tuple[int, float]:
    """The same pattern of messages on SimPy, counters instead of a protocol, a callback per message."""
    import simpy

    start = time.process_time()
    env = simpy.Environment()
    graph = reliable_digraph(servers)
    children = [binomial_children(v, servers) for v in range(servers)]
    seen: list[list[set[int]]] = [[set() for _ in range(rounds + 2)] for _ in range(servers)]
    handled = 0

    def pass_on(me: int, origin: int, r: int) -> None:
        if reliable:
            to = graph[me]
        else:
            to = tuple((origin + v) % servers for v in children[(me - origin) % servers])
        for q in to:
            event = env.timeout(1.0)
            event.callbacks.append(lambda _, q=q: receive(q, origin, r))

    def begin(me: int, r: int) -> None:
        if r <= rounds and me not in seen[me][r]:
            seen[me][r].add(me)
            pass_on(me, me, r)

    def receive(me: int, origin: int, r: int) -> None:
        nonlocal handled
        handled += 1
        got = seen[me][r]
        if origin in got:
            return
        got.add(origin)
        pass_on(me, origin, r)
        if len(got) == servers:
            begin(me, r + 1)

    for me in range(servers):
        begin(me, 1)
    env.run()
    return handled, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="rounds of hundreds of servers")
    parser.add_argument("protocols", nargs="*", default=["allgather", "allconcur_plus", "allconcur"])
    parser.add_argument("--servers", type=int, default=455)
    parser.add_argument("--rounds", type=int, default=110)
    options = parser.parse_args()
    print(f"{options.servers} servers, {options.rounds} rounds, {'compiled' if amcast.compiled() else 'interpreted'}")
    for name in options.protocols:
        events, seconds = run(name, options.servers, options.rounds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{name:16} {events:>12,} messages {seconds:7.1f} s {events / seconds:>12,.0f} /s  peak {peak} MB")
    for name, reliable in (("allconcur_plus", False), ("allconcur", True)):
        ours = run(name, 72, 22)
        theirs = simpy_run(72, 22, reliable)
        rates = [events / seconds for events, seconds in (ours, theirs)]
        print(f"72 servers, {name}: {rates[0]:,.0f} /s, SimPy {rates[1]:,.0f} /s, ratio {rates[0] / rates[1]:.1f}")


if __name__ == "__main__":
    main()
