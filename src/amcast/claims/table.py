"""Every quantitative claim of a paper, as a scenario that is run and measured.

A claim holds when the measured value equals the expected one exactly: virtual time has no noise.
"""

from dataclasses import dataclass

from amcast.checks.evidence import NOTHING, Evidence
from amcast.claims.allconcur import BROADCAST_CLAIMS
from amcast.claims.black_box import BLACK_BOX
from amcast.claims.measures import collision_free, convoy, interrupted, message_count, outsiders
from amcast.claims.optimistic import OPTIMISTIC
from amcast.claims.ordering import CAUSAL, FIFO
from amcast.claims.primcast import PRIMCAST_CLAIMS
from amcast.claims.scenario import Claims, Scenario, deltas, measure
from amcast.core.plugins import Table
from amcast.errors import UsageError
from amcast.protocols import protocol


@dataclass(frozen=True)
class Claim:
    """A claim and its measured value."""

    protocol: str
    claim: str
    paper: str
    section: str
    expected: str
    measured: str
    ok: bool  # never on nothing: what it was measured in delivered something, unless it is computed
    computed: bool = False
    evidence: Evidence = NOTHING


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
    **PRIMCAST_CLAIMS,
    **BLACK_BOX,
    **OPTIMISTIC,
    "fifo": FIFO,
    "causal": CAUSAL,
    **BROADCAST_CLAIMS,
}


def all_claims() -> Table[Claims]:
    """Return our claims and those of plug-ins, by protocol."""
    return Table("amcast.claims", Claims, [Claims(name, tuple(scenarios)) for name, scenarios in CLAIMS.items()])


def run_claims(protocols: list[str] | None = None) -> list[Claim]:
    """Measure the claims of these protocols, or of all that have some."""
    results: list[Claim] = []
    claims = all_claims()
    for name in protocols or list(claims):
        table = protocol(name)
        if name not in claims:
            raise UsageError(f"no claims of {name}: expected one of {', '.join(claims)}")
        for scenario in claims[name].scenarios:
            measured, evidence = measure(scenario, table)
            ok = measured == scenario.expected and (bool(evidence) or scenario.computed)
            said = {part: getattr(scenario, part) for part in ("claim", "paper", "section", "expected", "computed")}
            results.append(Claim(name, measured=measured, ok=ok, evidence=evidence, **said))
    return results
