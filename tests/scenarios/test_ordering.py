"""The adversarial scenarios of fifo and causal multicast, with golden transcripts."""

from collections.abc import Callable

import pytest

from amcast.checks import check
from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.sim.script import NEVER, Script
from tests.scenarios.golden import compare, transcript

UNDER_TEST: dict[str, Protocol] = {name: protocol(name) for name in ("fifo", "causal", "causal_stable")}
SENDERS_CRASH = ("fifo_copy_in_an_ok",)  # of all messages: nothing is due
SCENARIOS: dict[str, tuple[str, Callable[[Protocol], Script]]] = {}


def scenario(name: str) -> Callable[[Callable[[Protocol], Script]], Callable[[Protocol], Script]]:
    """A scenario of this protocol."""

    def put(build: Callable[[Protocol], Script]) -> Callable[[Protocol], Script]:
        SCENARIOS[build.__name__] = (name, build)
        return build

    return put


@scenario("fifo")
def fifo_lost_predecessor(table: Protocol) -> Script:
    """Figure 1: m1 to g1 is lost, m2 to both reaches g0 only. Everybody learns of m2, nobody may deliver it."""
    s = Script(table, (2, 2), heartbeat=5)
    s.delay("c0", "g1/0", None, NEVER)
    s.delay("c0", "g1/1", None, NEVER)
    s.at(1, lambda: (s.multicast("c0", 1), s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2, lambda: s.multicast("c1", 0, 1))
    s.run()
    assert all(s.deliveries(p) == ["c1:0"] for p in ("g0/0", "g0/1", "g1/0", "g1/1"))
    assert s.world.processes[2].footprint() == 1
    return s


@scenario("fifo")
def fifo_overtaken(table: Protocol) -> Script:
    """m2 arrives before m1: it is relayed, and gets its OKs when m1 is delivered."""
    s = Script(table, (2, 1))
    s.delay("c0", "g0/0", "Cast", 10)
    s.delay("c0", "g0/1", "Cast", 10)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(2, lambda: (s.network.rules.clear(), s.multicast("c0", 0, 1)))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:0", "c0:1"]
    return s


@scenario("fifo")
def fifo_group_dies(table: Protocol) -> Script:
    """A destination group dies as a whole: the other one delivers when Θ trusts nobody there."""
    s = Script(table, (2, 2), heartbeat=5)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.5, lambda: s.crash("g1/0", "g1/1"))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["c0:0"]
    assert s.latency("g0/0", "c0:0") > 20
    return s


@scenario("fifo")
def fifo_copy_in_an_ok(table: Protocol) -> Script:
    """Only one member receives m before its sender crashes, and says OK to one: that is enough."""
    s = Script(table, (3,), heartbeat=5)
    s.delay("c0", "g0/1", None, NEVER)
    s.delay("c0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/2", "Ok", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0), s.crash("c0", lose=False)))
    s.at(2.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    assert s.deliveries("g0/1") == s.deliveries("g0/2") == ["c0:0"]
    return s


@scenario("fifo")
def fifo_late_copy(table: Protocol) -> Script:
    """The sender's own copy comes when the message is delivered already, thanks to the others' OKs."""
    s = Script(table, (3,))
    s.delay("c0", "g0/1", "Cast", 10)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(20, lambda: s.multicast("c1", 0))
    s.run()
    assert s.deliveries("g0/1") == ["c0:0", "c1:0"] and s.latency("g0/1", "c0:0") == 2
    return s


@scenario("causal")
def causal_blind_chain(table: Protocol) -> Script:
    """Figure 2: m to g0 is slow; m* to g1 makes g1/0 multicast m' to g0, which arrives first and has to wait."""
    s = Script(table, (1, 2, 1))
    s.delay("g2/0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("g2/0", 0), s.multicast("g2/0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g2/0:0", "g1/0:0"]
    return s


@scenario("causal")
def causal_difference_is_enough(table: Protocol) -> Script:
    """The counter of the slow m travels with the first message from g1 only; the second waits behind that one."""
    s = Script(table, (1, 2, 1))
    s.delay("g2/0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("g2/0", 0), s.multicast("g2/0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 0))
    s.at(6, lambda: s.multicast("g1/0", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g2/0:0", "g1/0:0", "g1/0:1"]
    return s


@scenario("causal")
def causal_oldest_destination(table: Protocol) -> Script:
    """What g2 was told is told again in a message to g0 and g2, for g0 was not."""
    s = Script(table, (1, 2, 2))
    s.delay("c0", "g0/0", "Cast", 20)
    s.at(1, lambda: (s.multicast("c0", 0), s.multicast("c0", 1)))
    s.at(5, lambda: s.multicast("g1/0", 2))
    s.at(6, lambda: s.multicast("g1/0", 0, 2))
    s.run()
    assert s.deliveries("g0/0") == ["c0:0", "g1/0:1"]
    return s


def blind_loss(table: Protocol) -> Script:
    s = Script(table, (1, 1, 1), heartbeat=5)
    s.delay("c0", "g0/0", "Cast", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0), s.multicast("c0", 1), s.crash("c0", lose=False)))
    s.at(5, lambda: s.multicast("g1/0", 0, 2))
    s.run()
    return s


@scenario("causal")
def causal_blind_loss(table: Protocol) -> Script:
    """The error of the paper: m is lost, m* is not, and what follows from m* is delivered in g2 but never in g0."""
    s = blind_loss(table)
    assert s.deliveries("g0/0") == [] and s.deliveries("g2/0") == ["g1/0:0"]
    return s


@scenario("causal_stable")
def causal_stable_blind_loss(table: Protocol) -> Script:
    """The same with m* held back until m is stable: it never is, and nothing follows from m*."""
    s = blind_loss(table)
    assert s.deliveries("g0/0") == s.deliveries("g2/0") == ["g1/0:0"] and s.deliveries("g1/0") == []
    return s


@scenario("causal_stable")
def causal_stable_dead_group(table: Protocol) -> Script:
    """A message to a group that is dead and known to be so does not hold its sender up."""
    s = Script(table, (2, 2), heartbeat=5)
    s.at(1, lambda: s.crash("g1/0", "g1/1"))
    s.at(60, lambda: (s.multicast("g0/0", 1), s.multicast("g0/0", 0)))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == ["g0/0:1"]
    return s


def run(name: str) -> Script:
    protocol_name, build = SCENARIOS[name]
    s = build(UNDER_TEST[protocol_name])
    broken = name == "causal_blind_loss"
    assert s.world.stalled == broken, "the run did not finish its work"
    properties = ["integrity", "validity", "fifo"] + ["causal"] * (protocol_name != "fifo")
    properties += [] if broken else ["agreement"]
    properties += [] if broken or name in SENDERS_CRASH else ["termination"]
    assert [v for v in check(s.recorder.events, properties) if v.status != "ok"] == []
    left = sum(p.footprint() for p in s.world.processes if s.world.up(p.pid))
    assert left == (4 if name == "fifo_lost_predecessor" else 1 if broken else 0), "what is delivered is forgotten"
    return s


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    kinds = ("multicast", "deliver", "crash", "suspect")
    compare(SCENARIOS[name][0], name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s, kinds), rewrite)


@pytest.mark.parametrize("name", UNDER_TEST)
def test_memory_follows_what_is_under_way(name: str) -> None:
    """Nothing of a delivered message is kept."""
    s = Script(UNDER_TEST[name], (2, 2), heartbeat=5)
    for i in range(200):
        sender, dest = ("c0", "g0/0", "g1/1")[i % 3], ((0,), (1,), (0, 1))[i % 3]
        s.at(1 + i, lambda sender=sender, dest=dest: s.multicast(sender, *dest))  # type: ignore[misc]
    s.run()
    assert [p.footprint() for p in s.world.processes] == [0] * s.topology.size


def test_counters_travel_once() -> None:
    """A message carries what changed since the last one to the same group, not the whole matrix."""
    s = Script(UNDER_TEST["causal"], (2, 2))
    for i in range(20):
        s.at(1 + 10 * i, lambda: s.multicast("g0/0", 0, 1))
        s.at(2 + 10 * i, lambda: s.multicast("g1/0", 0, 1))
    s.run()
    sizes = [e.size for e in s.recorder.events if e.kind == "send" and e.type == "Cast" and e.process == "g0/0"]
    assert len(set(sizes)) <= 3 and max(size or 0 for size in sizes) < 60
