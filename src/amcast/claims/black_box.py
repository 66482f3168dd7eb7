"""The claims about the protocols that use consensus as a black box: the competitors of the White-Box and OAM papers."""

from collections.abc import Callable

from amcast.claims.measures import collision_free, convoy, latencies, message_count, outsiders
from amcast.claims.scenario import Scenario, Script, deltas, measuring
from amcast.core.protocol import Protocol

OPTIMISTIC = "Optimistic Atomic Multicast"
ALLCONCUR_PLUS = "AllConcur+"


def per_multicast(count: Callable[[int, int], int], formula: str, section: str) -> list[Scenario]:
    """Return the claims on message counts for several k and n."""
    return [
        Scenario(f"messages per multicast, k={k}, n={n}: {formula}", section, str(count(k, n)), message_count(k, n))
        for k, n in ((2, 3), (3, 3), (2, 5))
    ]


def skeen_like(section: str, free: int, worst: int, clock_rises: int) -> list[Scenario]:
    """Return the claims that fault-tolerant Skeen and FastCast share. `clock_rises`: the worst time of a collision."""
    best = deltas(free, free + 1)
    return [
        Scenario("latency without collision, leader / follower", section, best, collision_free(2)),
        Scenario("latency without collision, four groups", section, best, collision_free(4)),
        Scenario("latency at worst, leader / follower", section, deltas(worst, worst + 1), convoy(clock_rises)),
        Scenario("latency to one group, leader / follower", section, deltas(3, 4), collision_free(1)),
        *[
            Scenario(
                f"messages per multicast, k=1, n={n}: 1 + 3(n−1)", section, str(1 + 3 * (n - 1)), message_count(1, n)
            )
            for n in (3, 5)
        ],
        Scenario("genuine: processes outside, with a leader change", section, "0", outsiders),
    ]


@measuring
def in_one_group(table: Protocol, n: int) -> str:
    """Measure the first and the last delivery in a group of n."""
    script = Script(table, (n,))
    script.at(1, lambda: script.multicast("c0", 0))
    script.run()
    return latencies(script, "c0:0", (0,))


def one_at_a_time(table: Protocol) -> str:
    """Measure the worst latency of many messages to the same two groups. No message waits for another."""
    script = Script(table, (3, 3, 3))
    for i in range(20):
        script.at(1 + i / 8, lambda: script.multicast("c0", 1, 2))
    script.run()
    members = [script.topology.name(p) for g in (1, 2) for p in script.topology.groups[g]]
    return deltas(max(script.latency(p, f"c0:{i}") for p in members for i in range(20)))


BLACK_BOX: dict[str, list[Scenario]] = {
    "ft_skeen": [
        *skeen_like("IV, V", 6, 12, 6),
        *per_multicast(lambda k, n: k * k + 5 * k * (n - 1), "k² + 5k(n−1)", "IV"),
    ],
    "ft_skeen_eager": [
        Scenario("latency at worst, leader / follower", "III: clocks may rise any time", deltas(10, 11), convoy(4)),
    ],
    "fastcast": [
        *skeen_like("VI", 4, 8, 4),
        *per_multicast(lambda k, n: 2 * k * k - k + 5 * k * (n - 1), "2k² − k + 5k(n−1)", "VI"),
    ],
    "fastcast_eager": [
        Scenario("latency at worst, leader / follower", "VI: clocks rise on a guess", deltas(6, 7), convoy(2)),
    ],
    "paxos_amcast": [
        Scenario("latency, everywhere", "7", deltas(3, 3), collision_free(2, first=1), OPTIMISTIC),
        Scenario("latency to one group", "7", deltas(3, 3), collision_free(1, first=1), OPTIMISTIC),
        Scenario("latency at worst, many messages under way", "7", deltas(3), one_at_a_time, OPTIMISTIC),
        *[
            Scenario(
                f"messages per multicast, G={groups} groups of n={n} beside the sequencer: n + n(n−1+Gn)",
                "7",
                str(n + n * (n - 1 + groups * n)),
                message_count(groups, n, first=1),
                OPTIMISTIC,
            )
            for groups, n in ((1, 3), (2, 3), (2, 5))
        ],
    ],
    "multi_paxos": [
        Scenario("latency, first and last of five", "V", deltas(3, 3), in_one_group(5), ALLCONCUR_PLUS),
        Scenario("latency, of three: acceptors / leader", "V", deltas(2, 3), in_one_group(3), ALLCONCUR_PLUS),
        Scenario("latency, of nine, five acceptors", "V", deltas(3, 3), in_one_group(9), ALLCONCUR_PLUS),
        *[
            Scenario(
                f"messages per broadcast, n={n}, a={a} acceptors: a + a(n−1)",
                "V",
                str(a + a * (n - 1)),
                message_count(1, n),
                ALLCONCUR_PLUS,
            )
            for n, a in ((3, 3), (5, 5), (9, 5))
        ],
    ],
}
