"""Every quantitative claim of a paper, as a scenario that is run and measured.

A claim holds when the measured value equals the expected one exactly: virtual time has no noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from amcast.check import check
from amcast.core.errors import UsageError
from amcast.core.process import Protocol
from amcast.lab.claims_broadcast import BROADCAST_CLAIMS
from amcast.lab.claims_ordering import CAUSAL, FIFO
from amcast.lab.scenario import WHITE_BOX as WHITE_BOX
from amcast.lab.scenario import Scenario as Scenario
from amcast.lab.scenario import deltas
from amcast.lab.script import Script
from amcast.protocols import PROTOCOLS, protocol


@dataclass(frozen=True)
class Claim:
    """A claim and what was measured."""

    protocol: str
    claim: str
    paper: str
    section: str
    expected: str
    measured: str
    ok: bool


def replicas_of(table: Protocol) -> int:
    return 1 if table.single_replica else 3


def latencies(script: Script, message: str, groups: tuple[int, ...]) -> str:
    """First (leader) and last (follower) delivery of a message in its destination groups, the worst group counting."""
    first: list[float] = []
    last: list[float] = []
    for g in groups:
        members = [script.latency(script.topology.name(p), message) for p in script.topology.groups[g]]
        first.append(min(members))
        last.append(max(members))
    return deltas(max(first), max(last)) if len(script.topology.groups[0]) > 1 else deltas(max(first))


def collision_free(k: int) -> Callable[[Protocol], str]:
    """One message to k groups, nothing else under way."""

    def measure(table: Protocol) -> str:
        script = Script(table, (replicas_of(table),) * max(2, k))
        script.at(1, lambda: script.multicast("c0", *range(k)))
        script.run()
        return latencies(script, "c0:0", tuple(range(k)))

    return measure


def convoy(clock_rises: float) -> Callable[[Protocol], str]:
    """The worst case without failures.

    The clock of g1 is ahead, so the message m to both groups gets its timestamp there. At the instant at which the
    clock of g0 is about to be raised past it, another message m' reaches the leader of g0 in no time; its timestamp
    there is still low, and m has to wait until m' is committed.
    """

    def measure(table: Protocol) -> str:
        script = Script(table, (replicas_of(table),) * 2)
        leaders = [members[0] for members in script.topology.groups]
        ahead = script.topology.name(leaders[0])
        for i in range(5):
            script.at(1 + 20 * i, lambda: script.multicast("c0", 1))
        start = 200.0

        def collide() -> None:
            script.multicast("c2", 0, 1)
            script.delay(None, ahead, None, 0)
            script.world.heal()
            script.network.rules.clear()

        def begin() -> None:
            script.world.block(leaders[1], leaders[0])  # to arrive δ later, just behind m'
            script.multicast("c1", 0, 1)

        script.delay("c2", ahead, "Multicast", 0)
        script.at(start, begin)
        script.at(start + clock_rises, collide)
        script.run()
        return latencies(script, "c1:0", (0,))

    return measure


def interrupted(table: Protocol) -> str:
    """A leader crashes when its group has accepted a message; from recover() to the delivery at the new leader."""
    script = Script(table, (3, 3))
    script.at(1, lambda: script.multicast("c0", 0, 1))
    script.at(3.5, lambda: script.crash("g0/0"))
    script.at(4, lambda: script.recover("g0/1"))
    script.run()
    delivered = script.event("deliver", "g0/1", "c0:0").time
    assert delivered is not None
    return deltas(delivered / script.network.delta - 4)


def message_count(k: int, n: int) -> Callable[[Protocol], str]:
    """Messages about one multicast to k groups of n, without replies and messages to oneself."""

    def measure(table: Protocol) -> str:
        script = Script(table, (n,) * k)
        script.at(1, lambda: script.multicast("c0", *range(k)))
        script.run()
        return str(len([e for e in script.recorder.events if e.kind == "send" and e.about and e.type != "Reply"]))

    return measure


def outsiders(table: Protocol) -> str:
    """Processes that take part in ordering a message without being its sender or a destination."""
    script = Script(table, (replicas_of(table),) * 4, clients=4)
    for i, dest in enumerate(((0, 1), (1, 2), (2,), (0, 3))):
        script.at(1 + i, lambda i=i, dest=dest: script.multicast(f"c{i}", *dest))  # type: ignore[misc]
    if table.elects:
        script.at(2.5, lambda: script.crash("g1/0"))
        script.at(6, lambda: script.recover("g1/1"))
    script.run()
    verdict = check(script.recorder.events, ["genuine"])[0]
    return "0" if verdict.status == "ok" else verdict.reason


CLAIMS: dict[str, list[Scenario]] = {
    "skeen": [
        Scenario("latency without collision", "III", deltas(2), collision_free(2)),
        Scenario("latency without collision, four groups", "III", deltas(2), collision_free(4)),
        Scenario("latency at worst, convoy of Figure 2", "III", deltas(4), convoy(2)),
        Scenario("latency to one group", "III", deltas(1), collision_free(1)),
        *[Scenario(f"messages per multicast, k={k}: k²", "III", str(k * k), message_count(k, 1)) for k in (1, 2, 3)],
        Scenario("genuine: processes outside", "III, Theorem 1", "0", outsiders),
    ],
    "white_box": [
        Scenario("latency without collision, leader / follower", "V, Theorem 5", deltas(3, 4), collision_free(2)),
        Scenario("latency without collision, four groups", "V, Theorem 5", deltas(3, 4), collision_free(4)),
        Scenario("latency at worst, leader / follower", "V, Theorem 5", deltas(5, 6), convoy(2)),
        Scenario("latency to one group, leader / follower", "IV", deltas(3, 4), collision_free(1)),
        Scenario("commit of an interrupted message after recover()", "IV", deltas(6), interrupted),
        *[
            Scenario(
                f"messages per multicast, k={k}, n={n}: 2k²n + kn − 2k",
                "IV",
                str(2 * k * k * n + k * n - 2 * k),
                message_count(k, n),
            )
            for k, n in ((1, 3), (2, 3), (3, 3), (2, 5))
        ],
        Scenario("genuine: processes outside, with a leader change", "V, Theorem 2", "0", outsiders),
    ],
    "fifo": FIFO,
    "causal": CAUSAL,
    **BROADCAST_CLAIMS,
}


def run_claims(protocols: list[str] | None = None) -> list[Claim]:
    """Measure the claims of these protocols, or of all that have some."""
    results: list[Claim] = []
    for name in protocols or list(CLAIMS):
        table = protocol(name)
        if name not in CLAIMS:
            raise UsageError(f"no claims of {name}: expected one of {', '.join(CLAIMS)}")
        for scenario in CLAIMS[name]:
            measured = scenario.measure(table)
            results.append(
                Claim(
                    name, scenario.claim, scenario.paper, scenario.section, scenario.expected, measured,
                    measured == scenario.expected,
                )
            )  # fmt: skip
    return results


assert all(name in PROTOCOLS for name in CLAIMS)
