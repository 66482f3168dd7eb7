"""Figures 4 and 5 of the AllConcur+ paper, in the set-ups allconcur-sdc and allconcur-mdc: latency and throughput.

Messages of four 250-byte transactions; every round of every server carries one. Latency is from the broadcast of a
message to its delivery by its own server, the median; throughput counts transactions delivered per server.

    .venv/bin/python bench/allconcur_figures.py [--setup allconcur-sdc] [--servers 8 32 72] [--rounds 20] [--failures]
"""

import argparse
import statistics

from amcast.core.process import Params
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.trace import Event, Recorder
from amcast.core.wire import Message
from amcast.lab.simulate import set_up
from amcast.protocols import protocol
from amcast.sim.choices import Choices, Seeded
from amcast.sim.network import MILLISECOND, SECOND, Network
from amcast.sim.workload import Servers
from amcast.sim.world import World

TRANSACTIONS = 4
UNDER_WAY = {"allconcur_plus": 3, "lcr": 1}


class FirstSends(Network):
    """Remembers when each message left its own server."""

    def __init__(self, inner: Network) -> None:
        super().__init__(inner.delta)
        self.inner = inner
        self.left: dict[Mid, int] = {}

    def attach(self, codec: object) -> None:
        self.inner.attach(codec)

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        for mid in msg.about():
            if sender_of(mid) == sender:
                self.left.setdefault(mid, self.now)
        self.inner.now = self.now
        return self.inner.delay(sender, dest, msg, choices)


class OwnDeliveries(Recorder):
    """When a message was delivered by its own server; and how many server 0 delivered by when."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[str, int] = {}
        self.first: list[int] = []

    def record(self, event: Event) -> None:
        if event.kind == "deliver" and event.message and event.time is not None:
            if event.process == "g0/0":
                self.first.append(event.time)
            if event.message.startswith(event.process + ":"):
                self.own[event.message] = event.time


def run(
    name: str, setup: str, n: int, rounds: int, gap: int = 0, crashes: tuple[tuple[int, int], ...] = ()
) -> tuple[float, float, OwnDeliveries]:
    """Median latency in ms, transactions per second and server."""
    topology = Topology((n,))
    inner, _ = set_up(setup, topology)
    network = FirstSends(inner)
    recorder = OwnDeliveries()
    world = World(
        protocol(name),
        topology,
        network,
        Seeded(1),
        params=Params(MILLISECOND, heartbeat=MILLISECOND, suspect_after=10 * MILLISECOND)
        if crashes
        else Params(MILLISECOND, heartbeat=1000 * SECOND),
        workload=Servers(rounds, UNDER_WAY.get(name, 2), b"x" * 250 * TRANSACTIONS, gap),
        recorder=recorder,
    )
    for at, pid in crashes:
        world.call(at, lambda world, pid=pid: world.crash(pid))
    world.run()
    assert not world.stalled
    names = {topology.message_name(mid): time for mid, time in network.left.items()}
    latencies = [end - names[m] for m, end in recorder.own.items() if m in names]
    window = [t for t in recorder.first if t > recorder.first[len(recorder.first) // 5]]
    rate = TRANSACTIONS * len(window) / (window[-1] - recorder.first[len(recorder.first) // 5]) * SECOND
    return statistics.median(latencies) / MILLISECOND, rate, recorder


def figure_5(n: int) -> None:
    """Four failures in a second: throughput of server 0 in bins of 5 ms."""
    when = ((150, n // 2 - 2), (350, n // 3), (550, n - 5), (800, n // 5))
    crashes = tuple((MILLISECOND * at, pid) for at, pid in when)
    for name, rounds in (("allconcur_plus", 1300), ("allconcur", 280)):
        _, _, recorder = run(name, "allconcur-sdc", n, rounds, 600_000, crashes)
        bins: dict[int, int] = {}
        for time in recorder.first:
            bins[time // (5 * MILLISECOND)] = bins.get(time // (5 * MILLISECOND), 0) + TRANSACTIONS
        last = min(200, max(bins))
        rates = [bins.get(b, 0) * 200 for b in range(last)]
        gaps = [b - a for a, b in zip(recorder.first, recorder.first[1:], strict=False)]
        print(f"{name}: mean {sum(rates) / last:,.0f} tx/s in {5 * last} ms, median {statistics.median(rates):,.0f}, "
              f"least {min(rates[1:]):,}, longest pause {max(gaps) / MILLISECOND:.1f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures 4 and 5 of the AllConcur+ paper")
    parser.add_argument("--setup", default="allconcur-sdc")
    parser.add_argument("--servers", type=int, nargs="*", default=[8, 32, 72])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--failures", action="store_true", help="Figure 5 instead: 72 servers, four failures")
    options = parser.parse_args()
    if options.failures:
        figure_5(options.servers[-1])
        return
    for n in options.servers:
        base: tuple[float, float] | None = None
        round_ms, _, _ = run("allgather", options.setup, n, 3)
        for name in ("allconcur_plus", "allgather", "allconcur", "allconcur_ea", "lcr"):
            latency, rate, _ = run(name, options.setup, n, options.rounds, int(0.6 * round_ms * MILLISECOND))
            base = base or (latency, rate)
            ratios = f"latency {latency / base[0]:5.2f} ×, AllConcur+ throughput {base[1] / rate:5.2f} ×"
            print(f"{options.setup} n={n:3} {name:15} {latency:8.3f} ms {rate:10,.0f} tx/s   {ratios}", flush=True)


if __name__ == "__main__":
    main()
