"""The claims of the AllConcur+ paper, and of LCR."""

from typing import Any

from amcast.claims.scenario import Scenario, Script, deltas, measuring
from amcast.core.protocol import Protocol
from amcast.protocols.allconcur.digraphs import diameter, g_s, is_connected, least_degree
from amcast.protocols.allconcur.messages import Eon
from amcast.protocols.allconcur.overlay import tracking
from amcast.sim.script import DELTA

PAPER = "A Dual Digraph Approach for Leaderless Atomic Broadcast"
LCR = "Throughput Optimal Total Order Broadcast for Cluster Environments"
TABLE_II = {8: 3, 18: 4, 30: 4, 32: 4, 72: 5, 75: 5, 128: 5, 140: 6, 225: 6, 242: 7, 450: 8, 455: 8}
DIAMETERS = {8: 2, 18: 3, 30: 3, 32: 3, 72: 4, 75: 3, 128: 4, 140: 4, 225: 4, 242: 4, 450: 4, 455: 4}
N = 8
UNRELIABLE, RELIABLE = 3, 2  # δ_u and δ_r with 8 servers: depth of the tree, diameter of G_S(8,3)


@measuring
def digraph_row(table: Protocol, n: int) -> str:
    d = least_degree(n)
    graph = g_s(n, d)
    k = d if is_connected(graph, d) else -1  # the degree bounds it from above
    return f"κ={k} D={diameter(graph)}"


def figure_1b(table: Protocol) -> str:
    """Show whom p6 suspects to have m0 after every notification."""
    graph = g_s(9, 3)
    masks = [sum(1 << q for q in row) for row in graph]
    notices: dict[int, int] = {}
    found: list[str] = []
    for target, owner in ((0, 4), (5, 6), (5, 8), (0, 3), (5, 7)):
        notices[target] = notices.get(target, 0) | 1 << owner
        suspects = tracking(0, masks, notices)
        found.append("".join(str(p) for p in range(9) if suspects >> p & 1) or "∅")
    return " ".join(found)


def everybody(script: Script, at: float) -> None:
    for p in range(script.topology.replicas):
        script.at(at, lambda p=p: script.multicast(script.topology.name(p), 0))  # type: ignore[misc]


@measuring
def latency(table: Protocol, n: int) -> str:
    """Measure from a broadcast of everybody to the last delivery."""
    script = Script(table, (n,), clients=0)
    everybody(script, 1)
    script.run()
    names = script.topology.names
    return deltas(max(script.latency(p, f"{q}:0") for p in names for q in names))


@measuring
def work(table: Protocol, n: int, kind: str) -> str:
    """Count the messages that one server receives per round in which everybody broadcasts."""
    script = Script(table, (n,), clients=0)
    everybody(script, 1)
    script.run()
    received = [e for e in script.recorder.events if e.kind == "receive" and e.type == kind and e.process == "g0/0"]
    return str(len([e for e in received if e.about]))


def figure_2(table: Protocol) -> str:
    """Show the transitions of p0 and count its deliveries when p1 had delivered round 1 and p3 fails."""
    script = Script(table, (4,), clients=0)
    everybody(script, 1)
    script.at(2.5, lambda: script.delay("g0/1", None, "Unreliable", 100))
    script.at(6, lambda: script.crash("g0/3", lose=False))
    script.at(7, lambda: script.detect("g0/1", "g0/3"))
    for p in (0, 2):
        script.at(9, lambda p=p: script.detect(f"g0/{p}", "g0/3"))  # type: ignore[misc]
    script.run()
    rounds = [e.detail or "" for e in script.recorder.events if e.kind == "round" and e.process == "g0/0"]
    names = [detail.split('"transition": "')[1].split('"')[0] for detail in rounds]
    return f"{' '.join(names[:3])}: {len(script.deliveries('g0/0'))}"


def two_rounds(table: Protocol) -> str:
    """Show the state of a server when it delivers the only message there is."""
    script = Script(table, (N,), clients=0)
    script.at(1, lambda: script.multicast("g0/3", 0))
    script.run()
    server: Any = script.world.processes[0]
    return f"[{server.e}, {server.r}]"


def sequences(table: Protocol, length: int, count: int, reliable: int = 1) -> list[tuple[float, float]]:
    """Return for each round at one server when it was first broadcast and when it was delivered, in δ.

    Every sequence of so many unreliable rounds is interrupted just before the last one completes. A marker without a
    reconfiguration does that at all servers at once: nobody is removed, and the rounds are those of a failure.
    """
    script = Script(table, (N,), clients=0)

    def interrupt() -> None:
        for pid in range(N):
            server: Any = script.world.processes[pid]
            server.receive(int(script.world.now), pid, Eon(1, server.settled + 1))
            script.world.flush(pid)

    at = 1.0
    for _ in range(count):
        at += length * UNRELIABLE - 0.01
        script.at(at, interrupt)
        at += reliable * RELIABLE
    for i in range(int(at)):
        everybody(script, 1 + i)
    script.run()
    broadcast: dict[str, float] = {}
    found: dict[float, float] = {}
    for e in script.recorder.events:
        time = (e.time or 0) / DELTA
        if e.kind == "send" and e.process == "g0/0" and e.type in ("Unreliable", "Reliable"):
            for message in e.about or ():
                if message.startswith("g0/0:"):
                    broadcast.setdefault(message, time)
        elif e.kind == "deliver" and e.process == "g0/0" and e.message in broadcast:
            found.setdefault(broadcast[e.message], time)
    return [(start, end) for start, end in found.items() if end < at][2 * length :]


@measuring
def mean_latency(table: Protocol, length: int, count: int = 12) -> str:
    rounds = sequences(table, length, count)
    whole = len(rounds) // max(1, length - 1) * max(1, length - 1)
    return f"{sum(end - start for start, end in rounds[:whole]) / whole:.1f}δ"


@measuring
def rerun_latencies(table: Protocol, reliable: int) -> str:
    """Measure the two rounds that a failure interrupts at the worst moment. So many reliable rounds follow."""
    found = {f"{end - start:.1f}δ" for start, end in sequences(table, 2, 10, reliable)}
    return " ".join(sorted(found, reverse=True))


@measuring
def throughput(table: Protocol, length: int) -> str:
    """Count delivered rounds per δ, over whole sequences."""
    ends = [end for _, end in sequences(table, length, 14)]
    per = max(1, length - 1)
    return f"{8 * per / (ends[8 * per] - ends[0]):.3f}"


BROADCAST_CLAIMS = {
    "allgather": [
        *[Scenario(f"latency, n={n}: depth of the tree", "V-A", deltas(depth), latency(n), PAPER)
          for n, depth in ((8, 3), (12, 3))],
        Scenario("messages received per round, n=8: n − 1", "V-A", "7", work(8, "Unreliable"), PAPER),
    ],
    "allconcur": [
        *[Scenario(f"G_S({n}, {d})", "V, Table II", f"κ={d} D={DIAMETERS[n]}", digraph_row(n), PAPER, computed=True)
          for n, d in TABLE_II.items()],
        Scenario("whom p6 suspects to have m0", "III-A, Figure 1b", "035 03578 0357 057 ∅", figure_1b, PAPER,
                 computed=True),
        Scenario("latency, n=8: diameter of G_R", "III-A", deltas(2), latency(8), PAPER),
        Scenario("messages received per round, n=8: n d", "III-A", "24", work(8, "Reliable"), PAPER),
    ],
    "allconcur_ea": [
        Scenario("latency, n=8: twice the diameter", "III-A", deltas(4), latency(8), PAPER),
    ],
    "allconcur_plus": [
        Scenario("latency, n=8: two unreliable rounds", "V-B, nf", deltas(2 * UNRELIABLE), latency(8), PAPER),
        Scenario("state when a round 1 is delivered", "III-D", "[1, 3]", two_rounds, PAPER),
        Scenario("messages received per round, n=8: n − 1", "III-B", "7", work(8, "Unreliable"), PAPER),
        Scenario("skip transition, and what it delivers", "III-C, Figure 2", "T_UU T_UR T_Sk: 4", figure_2, PAPER),
        Scenario("mean latency, worst case: 3δ_u + 2δ_r", "V-B, wc", "13.0δ", mean_latency(2), PAPER),
        Scenario("rounds per δ, worst case: 1/(2δ_u + δ_r)", "V-B, wc", f"{1 / 8:.3f}", throughput(2), PAPER),
        *[Scenario(f"mean latency, λ={n}: 2δ_u + (δ_u + 2δ_r)/(λ − 1)", "V-B (prints λ)",
                   f"{2 * UNRELIABLE + (UNRELIABLE + 2 * RELIABLE) / (n - 1):.1f}δ", mean_latency(n), PAPER)
          for n in (3, 10)],
        *[Scenario(f"rounds per δ, λ={n}: (1 − 1/λ)/(δ_u + δ_r/λ)", "V-B",
                   f"{(1 - 1 / n) / (UNRELIABLE + RELIABLE / n):.3f}", throughput(n), PAPER)
          for n in (3, 10)],
    ],
    "allconcur_plus_uniform": [
        Scenario("latency, n=8: one message delay more", "Appendix C", deltas(7), latency(8), PAPER),
    ],
    "allconcur_plus_rerun": [
        Scenario("latencies of interrupted rounds, rerun reliably: 2δ_u + δ_r, δ_u + 2δ_r", "V-B", "8.0δ 7.0δ",
                 rerun_latencies(2), PAPER),
    ],
    "allconcur_plus_merge": [
        Scenario("latencies of interrupted rounds, rerun in one: 2δ_u + δ_r, δ_u + δ_r", "V-B", "8.0δ 5.0δ",
                 rerun_latencies(1), PAPER),
    ],
    "lcr": [
        Scenario("latency, n=8: 2(n − 1)", "4", deltas(14), latency(8), LCR),
        Scenario("messages received per round, n=8: n − 1", "4", "7", work(8, "Ring"), LCR),
    ],
}  # fmt: skip
