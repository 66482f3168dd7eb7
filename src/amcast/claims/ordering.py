"""The claims of the fifo and causal multicast paper."""

from amcast.checks import check
from amcast.claims.measures import messages_sent, strangers
from amcast.claims.scenario import Scenario, Script, deltas, measuring
from amcast.core.protocol import Protocol
from amcast.sim.script import NEVER

PAPER = "Genuine Fifo and Causal Multicast"


def latency(table: Protocol) -> str:
    """Measure to the last delivery, from the multicast of an outsider and from that of a member."""
    script = Script(table, (3, 2))
    script.at(1, lambda: script.multicast("c0", 0, 1))
    script.at(10, lambda: script.multicast("g0/0", 0, 1))
    script.run()
    members = [script.topology.name(p) for p in range(script.topology.replicas)]
    return deltas(*[max(script.latency(p, m) for p in members) for m in ("c0:0", "g0/0:0")])


@measuring
def message_count(table: Protocol, sizes: tuple[int, ...]) -> str:
    """Count the messages about one multicast of an outsider, without replies. Those to oneself are not seen."""
    script = Script(table, sizes)
    script.at(1, lambda: script.multicast("c0", *range(len(sizes))))
    script.run()
    return messages_sent(script)


def figure_1(table: Protocol) -> str:
    """Count who delivers m2. m1 goes to g1, then m2 to both groups, the sender crashes and only g0 receives m2."""
    script = Script(table, (2, 2), heartbeat=5)
    script.delay("c0", "g1/0", None, NEVER)
    script.delay("c0", "g1/1", None, NEVER)
    script.at(1, lambda: (script.multicast("c0", 1), script.multicast("c0", 0, 1)))
    script.at(1, lambda: script.crash("c0", lose=False))
    script.at(2, lambda: script.multicast("c1", 0, 1))
    script.run()
    assert all("c1:0" in script.deliveries(p) for p in ("g0/0", "g0/1", "g1/0", "g1/1"))
    return str(len([e for e in script.recorder.events if e.kind == "deliver" and e.message == "c0:1"]))


def figure_2(table: Protocol) -> str:
    """Show what g0 delivers. m goes to g0 and m* to g1, then m' from g1 to g0, where it arrives first."""
    script = Script(table, (1, 2, 1))
    script.delay("g2/0", "g0/0", "Cast", 20)
    script.at(1, lambda: (script.multicast("g2/0", 0), script.multicast("g2/0", 1)))
    script.at(5, lambda: script.multicast("g1/0", 0))
    script.run()
    assert check(script.recorder.events, ["causal"])[0].status == "ok"
    return " ".join(script.deliveries("g0/0"))


def outsiders(table: Protocol) -> str:
    script = Script(table, (2, 2, 2, 2))
    for i, dest in enumerate(((0, 1), (1, 2), (2,), (0, 3))):
        script.at(1 + i, lambda i=i, dest=dest: script.multicast("c0" if i % 2 else "g3/1", *dest))  # type: ignore[misc]
    script.at(2.5, lambda: script.crash("g1/0"))
    script.run()
    return strangers(script)


COMMON = [
    Scenario("latency, from outside / of a member", "6", deltas(2, 2), latency, PAPER),
    *[
        Scenario(
            f"messages per multicast to k={sum(sizes)} processes: k + k², k of them to oneself",
            "4", str(sum(sizes) ** 2), message_count(sizes), PAPER,
        )
        for sizes in ((1,), (2, 2), (3, 2, 1))
    ],
    Scenario("genuine: processes outside, with a crash", "3.2", "0", outsiders, PAPER),
]  # fmt: skip
FIFO = [*COMMON, Scenario("deliveries of m2 in Figure 1", "1, Figure 1", "0", figure_1, PAPER)]
CAUSAL = [*FIFO, Scenario("blind causality of Figure 2", "5, Figure 2", "g2/0:0 g1/0:0", figure_2, PAPER)]
