"""The claims about Baseline and Optimistic Atomic Multicast."""

from itertools import pairwise

from amcast.checks import check
from amcast.claims.scenario import Scenario, Script, count_run, deltas, measuring
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.core.trace import ListRecorder
from amcast.protocols.optimistic.options import Options
from amcast.sim.choices import Seeded
from amcast.sim.network import ExponentialTail, Network, Uniform
from amcast.sim.relation import configured
from amcast.sim.script import DELTA
from amcast.sim.workload import Destinations, OpenLoop
from amcast.sim.world import World

OAM = "Optimistic Atomic Multicast"
SENDER = "g0/1"  # not the leader


def members(script: Script, *groups: int) -> list[str]:
    return [script.topology.name(p) for g in groups for p in script.topology.groups[g]]


@measuring
def solitary(table: Protocol, n: int, options: Options | None = None) -> str:
    """Measure one message from g0 to g1 and g2, with nothing else under way. All groups may send to each other."""
    script = Script(configured(table, options or Options()), (n, n, n))
    script.at(1, lambda: script.multicast(SENDER, 1, 2))
    script.run()
    return slowest(script, table, f"{SENDER}:0", 1, 2)


def slowest(script: Script, table: Protocol, message: str, *groups: int) -> str:
    """Return the time of the last delivery. For Optimistic, the last optimistic delivery stands before it."""
    names = members(script, *groups)
    final = max(script.latency(p, message) for p in names)
    if table.name != "optimistic":
        return deltas(final)
    sent = script.event("multicast", message.split(":")[0], message).time or 0
    guesses = [((script.event("optdeliver", p, message).time or 0) - sent) / DELTA for p in names]
    return deltas(max(guesses), final)


def restamped(table: Protocol) -> str:
    """Let two members of g2 stamp the same moment, so that the second message gets another final timestamp."""
    script = Script(table, (3, 3, 3))
    script.at(1, lambda: (script.multicast("g2/1", 0, 1), script.multicast("g2/2", 0, 1)))
    script.run()
    assert script.event("deliver", "g1/0", "g2/2:0").ts == (DELTA + 1, "g2")
    return slowest(script, table, "g2/2:0", 0, 1)


@measuring
def message_count(table: Protocol, k: int, n: int) -> str:
    """Count the messages about one multicast from g0 to k groups that g0 and g1 may send to.

    Replies and messages to oneself do not count.
    """
    relation = ((), (), *(((0, 1),) * k))
    script = Script(configured(table, Options(senders_to=relation)), (n,) * (k + 2))
    script.at(1, lambda: script.multicast(SENDER, *range(2, k + 2)))
    script.run()
    return str(len([e for e in script.recorder.events if e.kind == "send" and e.type != "Reply"]))


def count(k: int, n: int, optimistic: bool) -> int:
    own = n * n + n - 1  # a null message of a destination for itself
    other = 2 * n * n + n - 1  # … of g1 for a destination
    return 2 * (n - 1) + (k * n if optimistic else 0) + n * (n - 1 + k * n) + k * other + k * own


def counts(optimistic: bool) -> list[Scenario]:
    first = "kn + " if optimistic else ""
    formula = f"2(n−1) + {first}n(n−1+kn) + k(2n²+n−1) + k(n²+n−1)"
    return [
        Scenario(
            f"messages per multicast, k={k}, n={n}, one other sender: {formula}",
            "6", str(count(k, n, optimistic)), message_count(k, n), OAM,
        )
        for k, n in ((1, 3), (2, 3), (2, 5))
    ]  # fmt: skip


def outsiders(table: Protocol) -> str:
    """Count the processes that take part without being of the sender's group, a destination or a sender to one."""
    relation = ((0,), (0, 1), (1, 2), (3,))
    script = Script(configured(table, Options(senders_to=relation)), (3,) * 4)
    for at, sender, dest in ((1, "g0/1", 1), (2, "g1/2", 2), (3, "g0/0", 0), (4, "g3/1", 3)):
        script.at(at, lambda sender=sender, dest=dest: script.multicast(sender, dest))  # type: ignore[misc]
    script.at(2.5, lambda: script.crash("g1/0"))
    script.at(6, lambda: script.recover("g1/1"))
    script.run()
    allowed = {}
    for e in script.recorder.events:
        if e.kind == "multicast" and e.dest:
            h = int(e.dest[0][1:])
            allowed[e.message] = {e.process[:2], f"g{h}", *(f"g{g}" for g in relation[h])}
    strangers = {
        name
        for e in script.recorder.events
        for m in e.about or ()
        for name in (e.process, e.peer or "")
        if name[:2] not in allowed[m]
    }
    return str(len(strangers))


def loaded(table: Protocol, network: Network, window: int, skew: int, seconds: float, rate: float) -> ListRecorder:
    """Run nine members that multicast at random moments, to one or two of three groups."""
    topology = Topology((3, 3, 3))
    choices = Seeded(1)
    recorder = ListRecorder()
    world = World(
        configured(table, Options(window=window)), topology, network, choices,
        params=Params(DELTA, heartbeat=int(1e9)), recorder=recorder,
        workload=OpenLoop(Destinations(3, 2), rate, None, int(seconds * 1e9)),
        skew=[choices.below(2 * skew + 1) for _ in range(topology.size)], senders=tuple(range(topology.size)),
    )  # fmt: skip
    world.run()
    count_run(recorder)
    return recorder


def mistakes(recorder: ListRecorder) -> float:
    """Return the share of mistaken deliveries in percent."""
    figure = check(recorder.events, ["optimistic"])[0].figure
    assert figure is not None, "nothing was delivered optimistically"
    return 100 * figure["share"]


def estimate_holds(table: Protocol) -> str:
    """Show that nothing is late with delays of at most δ, a window of δ and equal clocks."""
    recorder = loaded(table, Uniform(DELTA // 10, DELTA), DELTA, 0, 0.5, 500)
    sent = {e.message: e.time or 0 for e in recorder.events if e.kind == "multicast"}
    latest = {"optdeliver": 0, "deliver": 0}
    for e in recorder.events:
        if e.kind in latest:
            latest[e.kind] = max(latest[e.kind], (e.time or 0) - sent[e.message])
    within = "≤ 3δ" if latest["deliver"] <= 3 * DELTA else deltas(latest["deliver"] / DELTA)
    return f"{deltas(latest['optdeliver'] / DELTA)} / {within} / {mistakes(recorder):.2f} %"


WINDOWS = (0.25, 0.5, 1.0, 2.0)  # in δ


def window_pays(table: Protocol) -> str:
    """Show the mistakes for each window. Delays are δ/2 with a tail of mean 0.15δ, clocks agree within 0.05δ."""
    network = ExponentialTail(DELTA // 2, 15 * DELTA // 100)
    found = [mistakes(loaded(table, network, int(window * DELTA), DELTA // 20, 4, 400)) for window in WINDOWS]
    falls = all(a > b for a, b in pairwise(found))
    return "falls to 0 %" if falls and found[-1] < 0.05 else " ".join(f"{share:.2f} %" for share in found)


OPTIMISTIC: dict[str, list[Scenario]] = {
    "baseline": [
        Scenario("latency, groups of 3", "1", deltas(3), solitary(3), OAM),
        Scenario("latency, groups of 5", "1", deltas(3), solitary(5), OAM),
        Scenario("decisions passed on (l.31), groups of 3", "3.3", deltas(3), solitary(3, Options(direct=False)), OAM),
        Scenario("decisions passed on (l.31), groups of 5", "3.3", deltas(4), solitary(5, Options(direct=False)), OAM),
        Scenario("barriers asked for late, groups of 3", "3.4", deltas(5), solitary(3, Options(on_final=True)), OAM),
        Scenario("barriers asked for late, groups of 5", "3.4", deltas(6), solitary(5, Options(on_final=True)), OAM),
        Scenario("latency if the final timestamp is not the initial one", "6", deltas(4), restamped, OAM),
        *counts(False),
        Scenario("quasi-genuine: processes outside, with a leader change", "3.1", "0", outsiders, OAM),
    ],
    "optimistic": [
        Scenario("optimistic / conservative latency, groups of 3", "6", deltas(1, 3), solitary(3), OAM),
        Scenario("optimistic / conservative latency, groups of 5", "6", deltas(1, 3), solitary(5), OAM),
        Scenario("the same if the final timestamp is not the initial one", "6", deltas(1, 4), restamped, OAM),
        Scenario("the same and mistakes under load, delays ≤ δ = w", "4.2", "1δ / ≤ 3δ / 0.00 %", estimate_holds, OAM),
        Scenario("mistakes as the window grows from 0.25δ to 2δ", "7.1.3", "falls to 0 %", window_pays, OAM),
        *counts(True),
        Scenario("quasi-genuine: processes outside, with a leader change", "3.1", "0", outsiders, OAM),
    ],
}
