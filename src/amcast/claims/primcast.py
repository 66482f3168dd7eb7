"""The claims about PrimCast: latency at every replica, what it costs in messages, what a crash of a primary costs."""

from amcast.claims.black_box import in_one_group
from amcast.claims.measures import collision_free, convoy, message_count, outsiders
from amcast.claims.scenario import Scenario, Script, deltas, measuring
from amcast.core.protocol import Protocol

PRIMCAST = "PrimCast"
OURS = "our change of primaries"
AHEAD = 5  # messages by which the clock of a group is ahead


@measuring
def collision(table: Protocol, ahead: float) -> str:
    """Measure the worst case with clocks of time, of which that of g1 is ahead.

    A message m to both groups has its timestamp of g1. Just before the clock of g0 is past that, another message m'
    reaches the primary of g0 without delay, and gets a lower timestamp there. m waits until m' is decided in g1, too.
    """
    script = Script(table, (3, 3), ahead={1: ahead})
    just_before = 1 + min(ahead, 1) - 1e-6  # it hears of that timestamp at 2δ, or its own clock is past it
    script.delay("c1", "g0/0", "Multicast", 0)
    script.at(1, lambda: script.multicast("c0", 0, 1))
    script.at(1 + just_before, lambda: script.multicast("c1", 0, 1))
    script.run()
    members = [script.topology.name(p) for p in script.topology.groups[0]]
    found = [round(script.latency(name, "c0:0"), 3) for name in members]  # m' comes a nanosecond before the worst time
    return deltas(min(found), max(found))


@measuring
def interrupted(table: Protocol, crash: float, recover: float) -> str:
    """Crash a primary so long after a multicast to two groups, of which the other has a clock that is ahead.

    Measure from recover() to the deliveries at the other members, or from the multicast if there is none.
    """
    script = Script(table, (3, 3), ahead={1: 2})
    for i in range(AHEAD):
        script.at(1 + 20 * i, lambda: script.multicast("c0", 1))
    start = 200.0
    script.at(start, lambda: script.multicast("c1", 0, 1))
    script.at(start + crash, lambda: script.crash("g0/0", lose=False))
    if recover:
        script.at(start + recover, lambda: script.recover("g0/1"))
    script.run()
    found = [script.latency(name, "c1:0") - recover for name in ("g0/1", "g0/2")]
    return deltas(min(found), max(found))


@measuring
def counted(table: Protocol, k: int, n: int, type: str) -> str:
    """Count the messages of a type for one multicast to k groups of n, of which the clock of the first is ahead."""
    script = Script(table, (n,) * k)
    for i in range(AHEAD):
        script.at(1 + 20 * i, lambda: script.multicast("c0", 0))
    script.at(200, lambda: script.multicast("c1", *range(k)))
    script.run()
    sent = [e for e in script.sent(type) if (e.time or 0) >= 200 * script.network.delta and e.peer != e.process]
    return str(len(sent))


PER_MULTICAST = [
    Scenario(
        f"messages per multicast, k={k}, n={n}, without BUMPs: k + kn(kn − 1)",
        "IV",
        str(k + k * n * (k * n - 1)),
        message_count(k, n),
        PRIMCAST,
    )
    for k, n in ((1, 3), (1, 5), (2, 3), (3, 3), (2, 5))
]
BUMPS = [
    Scenario(
        f"BUMPs where one clock is ahead, k={k}, n={n}: (k − 1)n(n − 1)",
        "IV",
        str((k - 1) * n * (n - 1)),
        counted(k, n, "Bump"),
        PRIMCAST,
    )
    for k, n in ((1, 3), (2, 3), (3, 3), (2, 5))
]
SHARED = [
    Scenario("latency without collision, first / last", "IV", deltas(3, 3), collision_free(2), PRIMCAST),
    Scenario("latency without collision, four groups", "IV", deltas(3, 3), collision_free(4), PRIMCAST),
    Scenario("latency in one group of three, follower / primary", "IV", deltas(2, 3), in_one_group(3), PRIMCAST),
    Scenario("latency in one group of five, first / last", "IV", deltas(3, 3), in_one_group(5), PRIMCAST),
]
CHANGES = [
    Scenario("genuine: processes outside, with a change of primary", "IV", "0", outsiders, PRIMCAST),
    Scenario("delivery after recover(), follower / primary", OURS, deltas(3, 4), interrupted(1.5, 4), PRIMCAST),
    Scenario(
        "primary crashes when its proposal is through: no recovery", OURS, deltas(3, 3), interrupted(2.5, 0), PRIMCAST
    ),
]
PRIMCAST_CLAIMS: dict[str, list[Scenario]] = {
    "primcast": [
        *SHARED,
        Scenario("latency at worst, first / last", "IV", deltas(5, 5), convoy(2), PRIMCAST),
        *PER_MULTICAST,
        *BUMPS,
        *CHANGES,
    ],
    "primcast_hybrid": [
        *SHARED,
        *[
            Scenario(
                f"latency at worst, a clock ahead by {deltas(ahead)}: 4δ + min(ε, δ)",
                "IV",
                deltas(4 + min(ahead, 1), 4 + min(ahead, 1)),
                collision(ahead),
                PRIMCAST,
            )
            for ahead in (0, 0.25, 0.5, 1, 2)
        ],
        *CHANGES,
    ],
}
