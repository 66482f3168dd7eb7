"""The adversarial scenarios of the AllConcur family, with golden transcripts. One group; times are in δ."""

from collections.abc import Callable
from typing import Any

import pytest

from amcast.checks import check
from amcast.core.protocol import Protocol
from amcast.protocols import PROTOCOLS
from amcast.protocols.allconcur.digraphs import reliable_digraph
from amcast.sim.choices import Choices
from amcast.sim.script import NEVER, Script
from tests.scenarios.golden import compare, transcript

UNDER_TEST: dict[str, Protocol] = {name: row for name, row in PROTOCOLS.items() if row.broadcast}
Build = Callable[[Protocol], Script]
SCENARIOS: dict[str, tuple[str, Build]] = {}
STALLS = ("allconcur_ea_halves",)  # nobody has a majority


def scenario(name: str) -> Callable[[Build], Build]:
    def put(build: Build) -> Build:
        SCENARIOS[build.__name__] = (name, build)
        return build

    return put


def server(s: Script, i: int) -> Any:
    return s.world.processes[i]


def state(s: Script, i: int) -> tuple[int, int, bool]:
    return (server(s, i).e, server(s, i).r, server(s, i).reliable)


def everybody_multicasts(s: Script, at: float = 1) -> None:
    for pid in range(s.topology.replicas):
        s.at(at, lambda pid=pid: s.world.up(pid) and s.multicast(s.topology.name(pid), 0))  # type: ignore[misc]


def all_detect(s: Script, at: float, *targets: str) -> None:
    for pid in range(s.topology.replicas):
        s.at(at, lambda pid=pid: s.detect(s.topology.name(pid), *targets))  # type: ignore[misc]


def rounds(s: Script, process: str) -> list[str]:
    return [e.detail or "" for e in s.recorder.events if e.kind == "round" and e.process == process]


@scenario("allconcur")
def allconcur_lost_message(table: Protocol) -> Script:
    """Figure 1: G_S(9,3), p0 sends m0 to p5 only and fails, p5 fails silent: all others deliver without m0."""
    s = Script(table, (9,))
    s.delay("g0/0", "g0/3", "Reliable", NEVER)
    s.delay("g0/0", "g0/4", "Reliable", NEVER)
    s.delay("g0/5", None, None, NEVER)
    everybody_multicasts(s)
    s.at(1.5, lambda: s.crash("g0/0", lose=False))
    s.at(2.5, lambda: s.crash("g0/5", lose=False))
    for i, (owner, target) in enumerate(((4, 0), (6, 5), (8, 5), (3, 0), (7, 5))):
        s.at(10 + 5 * i, lambda owner=owner, target=target: s.detect(f"g0/{owner}", f"g0/{target}"))  # type: ignore[misc]
    s.run()
    assert s.deliveries("g0/6") == [f"g0/{i}:0" for i in (1, 2, 3, 4, 6, 7, 8)]
    assert server(s, 6).members == (1, 2, 3, 4, 6, 7, 8)
    return s


@scenario("allconcur")
def allconcur_slow_relay(table: Protocol) -> Script:
    """G_S(9,3): m0 reaches p5 only, which lives and is slow: nobody may take m0 for lost."""
    s = Script(table, (9,))
    s.delay("g0/0", "g0/3", "Reliable", NEVER)
    s.delay("g0/0", "g0/4", "Reliable", NEVER)
    s.delay("g0/5", None, "Reliable", 20)
    everybody_multicasts(s)
    s.at(1.5, lambda: s.crash("g0/0", lose=False))
    all_detect(s, 4, "g0/0")
    s.run()
    assert s.deliveries("g0/6") == [f"g0/{i}:0" for i in range(9)]
    return s


@scenario("allconcur")
def allconcur_deaf(table: Protocol) -> Script:
    """p1 reports p0 before m0 arrives, and the others complete without m0: p1 must ignore m0 when it comes."""
    s = Script(table, (4,))
    s.world.obligations.uniform = False
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/3", None, NEVER)
    s.delay("g0/0", "g0/1", None, 10)
    s.delay("g0/2", "g0/1", None, 30)
    s.delay("g0/3", "g0/1", None, 30)
    everybody_multicasts(s)
    s.at(1.5, lambda: s.crash("g0/0", lose=False))
    all_detect(s, 3, "g0/0")
    s.run()
    assert s.deliveries("g0/1") == s.deliveries("g0/2") == [f"g0/{i}:0" for i in range(1, 4)]
    return s


def delivered_and_dead(table: Protocol, early: bool) -> Script:
    s = Script(table, (4,))
    s.world.obligations.uniform = not early
    everybody_multicasts(s)
    for i in (1, 2, 3):
        s.delay("g0/0", f"g0/{i}", None, 30)
    s.at(2.5, lambda: s.crash("g0/0", lose=False))
    all_detect(s, 3 if early else 40, "g0/0")
    s.run()
    assert s.deliveries("g0/0") == [f"g0/{i}:0" for i in range(4)]
    return s


@scenario("allconcur")
def allconcur_drained_detector(table: Protocol) -> Script:
    """K_4: p0 sends m0 to all, completes, delivers, dies; suspected when all it sent is handled: all deliver m0."""
    s = delivered_and_dead(table, early=False)
    assert s.deliveries("g0/1") == [f"g0/{i}:0" for i in range(4)]
    return s


@scenario("allconcur")
def allconcur_early_detector(table: Protocol) -> Script:
    """The same, suspected at once: what p0 sent is ignored by all, so the others deliver without m0 (not uniform)."""
    s = delivered_and_dead(table, early=True)
    assert s.deliveries("g0/1") == s.deliveries("g0/3") == [f"g0/{i}:0" for i in range(1, 4)]
    return s


@scenario("allconcur_plus")
def allconcur_plus_one_message(table: Protocol) -> Script:
    """One message in the whole system: delivered by all, who are in [1, 3] then and silent."""
    s = Script(table, (8,))
    s.at(1, lambda: s.multicast("g0/3", 0))
    s.run()
    assert all(s.deliveries(f"g0/{i}") == ["g0/3:0"] and state(s, i) == (1, 3, False) for i in range(8))
    return s


@scenario("allconcur_plus")
def allconcur_plus_skip(table: Protocol) -> Script:
    """Figure 2: only p1 completes [1, 2] and delivers round 1; when p3 fails, p0 rolls back further, and skips."""
    s = Script(table, (4,))
    everybody_multicasts(s)
    s.at(2.5, lambda: s.delay("g0/1", None, "Unreliable", 100))
    s.at(6, lambda: s.crash("g0/3", lose=False))
    s.at(7, lambda: s.detect("g0/1", "g0/3"))
    s.at(7.5, lambda: state_is(s, 1, (2, 2, True)))
    all_detect(s, 9, "g0/3")
    s.run()
    assert any('"T_Sk"' in detail for detail in rounds(s, "g0/0"))
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == [f"g0/{i}:0" for i in range(4)]
    return s


def state_is(s: Script, i: int, expected: tuple[int, int, bool]) -> None:
    assert state(s, i) == expected


@scenario("allconcur_plus")
def allconcur_plus_two_ways_to_the_next_epoch(table: Protocol) -> Script:
    """p3 fails after its reliable message: p0 knows before it completes (T_RR), p1 after (T_R▷, T_▷R): same state."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(1.5, lambda: s.crash("g0/4"))
    all_detect(s, 3, "g0/4")
    s.at(4.2, lambda: s.crash("g0/3", lose=False))
    s.delay("g0/2", "g0/0", "Reliable", 6)
    s.at(4.5, lambda: s.detect("g0/0", "g0/3"))
    s.at(20, lambda: s.detect("g0/1", "g0/3"))
    s.at(20, lambda: s.detect("g0/2", "g0/3"))
    s.run()
    assert any('"T_RR"' in detail for detail in rounds(s, "g0/0"))
    assert any('"T_▷R"' in detail for detail in rounds(s, "g0/1")[1:])
    return s


@scenario("allconcur_plus")
def allconcur_plus_complete_before_it_begins(table: Protocol) -> Script:
    """p2 has all of [2, 2] before it completes [[2, 1]], for G_R is slow there: T_R▷ is followed by T_UU at once."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    for i in (3, 5, 7):
        s.delay(f"g0/{i}", "g0/2", "Reliable", 50)
    s.at(1.5, lambda: s.crash("g0/4"))
    all_detect(s, 3, "g0/4")
    everybody_multicasts(s, 10)
    s.run()
    seen = [e for e in s.recorder.events if e.kind == "round" and e.process == "g0/2"]
    begun, done = [e for e in seen if '"epoch": 2' in (e.detail or "")][1:3]
    assert '"T_R▷"' in (begun.detail or "") and '"T_UU"' in (done.detail or "") and begun.time == done.time
    return s


@scenario("allconcur_plus")
def allconcur_plus_stash_is_void(table: Protocol) -> Script:
    """p2 has all of [2, 2] and reports p3 before it completes [[2, 1]]: in [[3, 2]] what it has does not count."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    for i in (3, 5, 7):
        s.delay(f"g0/{i}", "g0/2", "Reliable", 50)
    s.at(1.5, lambda: s.crash("g0/4"))
    all_detect(s, 3, "g0/4")
    everybody_multicasts(s, 10)
    s.at(14.5, lambda: s.crash("g0/3", lose=False))
    all_detect(s, 15, "g0/3")
    s.run()
    assert len(server(s, 2).members) == 6
    assert "g0/3:1" not in s.deliveries("g0/2")
    return s


@scenario("allconcur_plus")
def allconcur_plus_not_uniform(table: Protocol) -> Script:
    """p1 delivers round 1 and dies unseen; the others run the round again without p1: its delivery was not final."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(4.5, lambda: s.delay("g0/1", None, None, NEVER))
    s.at(2.5, lambda: s.delay("g0/1", None, "Unreliable", NEVER))
    s.at(9, lambda: s.crash("g0/1", lose=False))
    all_detect(s, 12, "g0/1")
    s.run()
    assert len(s.deliveries("g0/1")) == 5
    return s


class Once(Choices):
    """Makes this choice, and after it always the first one that there is."""

    def __init__(self, choice: int) -> None:
        self.choice = choice

    def below(self, n: int) -> int:
        choice, self.choice = self.choice, 0
        assert choice < n
        return choice


def held_round(table: Protocol, done: int) -> Script:
    """p1 is in [1, 3] and holds [1, 1], suspects p3 and dies after so many effects."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(2.5, lambda: s.delay("g0/1", None, "Unreliable", 100))
    s.at(8, lambda: s.crash("g0/3", lose=False))

    def die() -> None:
        s.world.choices = Once(done)
        s.world.crash_mid_step(1)
        s.world.state[1] = 3
        s.world.processes[1].detect(0, 3, True)
        s.world.flush(1)

    s.at(9, die)
    all_detect(s, 12, "g0/1", "g0/3")
    s.run()
    return s


@scenario("allconcur_plus_uniform")
def allconcur_plus_uniform_dies_before_its_message(table: Protocol) -> Script:
    """It dies after 4 notifications: it delivered nothing, the others run round 1 again without it."""
    s = held_round(table, 4)
    assert s.deliveries("g0/1") == []
    assert s.deliveries("g0/0") == ["g0/0:0", "g0/2:0", "g0/4:0"]
    return s


@scenario("allconcur_plus_uniform")
def allconcur_plus_uniform_dies_after_its_delivery(table: Protocol) -> Script:
    """It dies after 4 notifications, 4 messages and 5 deliveries: the others skip and deliver the same five."""
    s = held_round(table, 13)
    assert s.deliveries("g0/1") == s.deliveries("g0/0") == [f"g0/{i}:0" for i in range(5)]
    return s


@scenario("allconcur_plus_ea")
def allconcur_plus_ea_false_suspicion(table: Protocol) -> Script:
    """One successor suspects p3 and trusts it again: reliable rounds until the revocation is delivered, nobody lost."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    successor = s.topology.name(server_graph(8, 3)[0])
    s.at(2.5, lambda: s.detect(successor, "g0/3"))
    s.at(30, lambda: s.detect(successor, "g0/3", suspected=False))
    everybody_multicasts(s, 200)
    s.run()
    assert all(len(server(s, i).members) == 8 and not server(s, i).reliable for i in range(8))
    assert all(len(s.deliveries(f"g0/{i}")) == 16 for i in range(8))
    return s


def server_graph(n: int, p: int) -> tuple[int, ...]:
    return reliable_digraph(n)[p]


@scenario("allconcur_plus_ea")
def allconcur_plus_ea_suspected_by_all(table: Protocol) -> Script:
    """All successors of p0 suspect it for good: seven go on, p0 hears that it was removed; its log is a prefix."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    for q in server_graph(8, 0):
        s.at(5.5, lambda q=q: s.detect(f"g0/{q}", "g0/0"))  # type: ignore[misc]
    s.at(100, lambda: s.multicast("g0/1", 0))
    s.run()
    assert server(s, 1).members == tuple(range(1, 8))
    mine = s.deliveries("g0/0")
    assert mine == s.deliveries("g0/1")[: len(mine)]
    return s


@scenario("allconcur_plus_ea")
def allconcur_plus_ea_hears_again(table: Protocol) -> Script:
    """p1 suspects p3 wrongly and takes it back; then p3's other successors die, and p3 is heard through p1 alone."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    s.at(2.5, lambda: s.detect("g0/1", "g0/3"))
    s.at(30, lambda: s.detect("g0/1", "g0/3", suspected=False))
    s.at(100, lambda: s.crash("g0/2", "g0/6"))
    all_detect(s, 110, "g0/2", "g0/6")
    everybody_multicasts(s, 200)
    s.run()
    assert server(s, 3).members == (0, 1, 3, 4, 5, 7)
    assert all(len(s.deliveries(f"g0/{i}")) == 14 for i in server(s, 3).members)
    return s


@scenario("allconcur_ea")
def allconcur_ea_minority_with_more(table: Protocol) -> Script:
    """Three suspect two before they have their messages and go on; the two have more, and may not deliver it."""
    s = Script(table, (5,), heartbeat=30)
    for i in (0, 1):
        s.delay(f"g0/{i}", None, "Reliable", 5)
    everybody_multicasts(s)
    for i in (2, 3, 4):
        s.at(1.5, lambda i=i: s.detect(f"g0/{i}", "g0/0", "g0/1"))  # type: ignore[misc]
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == [] and not s.world.up(0)
    assert s.deliveries("g0/2") == ["g0/2:0", "g0/3:0", "g0/4:0"]
    return s


@scenario("allconcur_ea")
def allconcur_ea_halves(table: Protocol) -> Script:
    """Two halves suspect each other: nobody delivers any more, and what was delivered is a prefix of one sequence."""
    s = Script(table, (6,))
    s.at(1, lambda: s.multicast("g0/0", 0))
    everybody_multicasts(s, 20)
    for i in range(6):
        others = [f"g0/{j}" for j in range(6) if (j < 3) != (i < 3)]
        s.at(20.5, lambda i=i, others=others: s.detect(f"g0/{i}", *others))  # type: ignore[misc]
    s.run()
    assert all(s.deliveries(f"g0/{i}") == ["g0/0:0"] for i in range(6))
    return s


@scenario("allconcur_plus")
def allconcur_plus_marker_of_nobody(table: Protocol) -> Script:
    """Only p1 delivers a reconfiguration, its marker reaches p0, and p1 dies: the others go back to unreliable mode."""
    s = Script(table, (5,), spare=1)
    s.at(1, lambda: s.change_members("g0/1", 0, 1, 2, 3, 4))
    everybody_multicasts(s)
    s.at(2.5, lambda: s.delay("g0/1", None, "Unreliable", 100))
    s.delay("g0/1", "g0/2", "Eon", NEVER)
    s.delay("g0/1", "g0/3", "Eon", NEVER)
    s.delay("g0/1", None, "Reliable", NEVER)
    s.at(5.5, lambda: s.crash("g0/1", lose=False))
    for i in (0, 2, 3):
        s.at(10, lambda i=i: s.detect(f"g0/{i}", "g0/1"))  # type: ignore[misc]
    s.at(40, lambda: s.crash("g0/4"))
    s.at(50, lambda: s.multicast("g0/2", 0))
    s.run()
    assert all(server(s, i).members == (0, 2, 3) and server(s, i).eon == 1 for i in (0, 2, 3))
    assert all(not server(s, i).reliable for i in (0, 2, 3))
    assert any(e.type == "Eon" and e.kind == "receive" and e.process == "g0/2" for e in s.recorder.events)
    return s


@scenario("allconcur_plus")
def allconcur_plus_join_and_leave(table: Protocol) -> Script:
    """p5 joins while messages flow, then p0 leaves: p5 has everything, p0 stops."""
    s = Script(table, (6,), spare=1)
    for i in range(5):
        s.at(1 + 3 * i, lambda i=i: s.multicast(f"g0/{i}", 0))  # type: ignore[misc]
    s.at(5, lambda: s.change_members("g0/2", 0, 1, 2, 3, 4, 5))
    s.at(60, lambda: s.multicast("g0/5", 0))
    s.at(80, lambda: s.change_members("g0/5", 1, 2, 3, 4, 5))
    s.at(120, lambda: s.multicast("g0/1", 0))
    s.run()
    assert server(s, 1).eon == 3 and not s.world.up(0)
    assert s.deliveries("g0/5") == s.deliveries("g0/1") and len(s.deliveries("g0/1")) == 7
    return s


@scenario("allconcur_plus")
def allconcur_plus_slow_newcomer(table: Protocol) -> Script:
    """What p5 lacks comes late, long after it was welcome: it says that it is alive, and nobody removes it."""
    s = Script(table, (6,), spare=1, heartbeat=2)  # who is silent for 8 δ is suspected
    everybody_multicasts(s)
    s.delay(None, "g0/5", "Past", 8.5)
    s.at(20, lambda: s.change_members("g0/2", 0, 1, 2, 3, 4, 5))
    s.at(40, lambda: s.multicast("g0/1", 0))
    s.run()
    assert all(server(s, i).members == (0, 1, 2, 3, 4, 5) for i in range(6))
    assert s.deliveries("g0/5") == s.deliveries("g0/1") and len(s.deliveries("g0/1")) == 7
    return s


@scenario("allconcur_plus")
def allconcur_plus_all_at_once(table: Protocol) -> Script:
    """p6 and p7 join and p0 leaves, at whatever moment of each other's changes: all of it happens."""
    for later in range(25):
        s = Script(table, (8,), spare=2, heartbeat=5)
        s.at(1, lambda s=s: s.multicast("g0/1", 0))  # type: ignore[misc]
        s.at(5, lambda s=s: s.join_group("g0/6"))  # type: ignore[misc]
        s.at(5 + later / 2, lambda s=s: s.join_group("g0/7"))  # type: ignore[misc]
        s.at(5 + later / 3, lambda s=s: s.leave_group("g0/0"))  # type: ignore[misc]
        s.at(150, lambda s=s: s.multicast("g0/7", 0))  # type: ignore[misc]
        s.run()
        assert not s.world.up(0)
        assert all(server(s, i).members == (1, 2, 3, 4, 5, 6, 7) for i in range(1, 8)), later
        assert all(s.deliveries(f"g0/{i}") == ["g0/1:0", "g0/7:0"] for i in range(1, 8)), later
    return s


@scenario("lcr")
def lcr_all_at_once(table: Protocol) -> Script:
    """Everybody broadcasts at once: of concurrent messages that of the last on the ring comes first, everywhere."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.run()
    assert all(s.deliveries(f"g0/{i}") == [f"g0/{j}:0" for j in (4, 3, 2, 1, 0)] for i in range(5))
    return s


@scenario("lcr")
def lcr_crash_in_a_view_change(table: Protocol) -> Script:
    """p4 dies, then p3 while its state reaches p0 only, then p2: who is left has all that anybody delivered."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(6.5, lambda: s.crash("g0/4", lose=False))
    s.delay("g0/3", "g0/1", "State", NEVER)
    s.delay("g0/3", "g0/2", "State", NEVER)
    s.at(9, lambda: s.multicast("g0/3", 0))
    all_detect(s, 10, "g0/4")
    s.at(10.5, lambda: s.crash("g0/3", lose=False))
    all_detect(s, 20, "g0/3")
    s.at(21.5, lambda: s.crash("g0/2", lose=False))
    all_detect(s, 30, "g0/2")
    everybody_multicasts(s, 60)
    s.run()
    assert server(s, 0).members == (0, 1) and "g0/3:1" in s.deliveries("g0/1")
    return s


@scenario("lcr")
def lcr_incomparable_views(table: Protocol) -> Script:
    """p0 hears of one crash first, p1 of another: both end up in the view without either."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(3.5, lambda: s.crash("g0/3", "g0/4", lose=False))
    s.at(8, lambda: (s.detect("g0/0", "g0/3"), s.detect("g0/1", "g0/4")))
    all_detect(s, 20, "g0/3", "g0/4")
    everybody_multicasts(s, 40)
    s.run()
    assert all(server(s, i).members == (0, 1, 2) for i in range(3))
    return s


@scenario("lcr")
def lcr_early_in_the_next_view(table: Protocol) -> Script:
    """p0 is in the new view and broadcasts before p1 is: p1 keeps the message until it is there."""
    s = Script(table, (4,))
    s.at(1, lambda: s.crash("g0/3"))
    all_detect(s, 3, "g0/3")
    s.delay("g0/2", "g0/1", "StateAck", 10)
    s.at(6, lambda: s.multicast("g0/0", 0))
    s.run()
    assert all(s.deliveries(f"g0/{i}") == ["g0/0:0"] for i in range(3))
    return s


@scenario("lcr")
def lcr_two_views_behind(table: Protocol) -> Script:
    """p2 misses the end of a view change that p0 has gone beyond: what is of the older view comes first there too."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.at(4.5, lambda: s.crash("g0/4", lose=False))
    all_detect(s, 5.5, "g0/4")
    s.delay("g0/3", "g0/2", "StateAck", NEVER)
    s.at(8, lambda: s.multicast("g0/0", 0))
    s.at(8.5, lambda: s.crash("g0/3", lose=False))
    all_detect(s, 20, "g0/3")
    s.run()
    assert s.deliveries("g0/2") == s.deliveries("g0/0") and s.deliveries("g0/0")[-1] == "g0/0:1"
    return s


def run(name: str) -> Script:
    protocol_name, build = SCENARIOS[name]
    table = UNDER_TEST[protocol_name]
    s = build(table)
    assert s.world.stalled == (name in STALLS), "the run did not finish its work"
    uniform = table.uniform and name not in ("allconcur_early_detector", "allconcur_deaf")
    crashed = {e.process for e in s.recorder.events if e.kind == "crash"}
    events = [e for e in s.recorder.events if uniform or e.kind != "deliver" or e.process not in crashed]
    properties = ["integrity", "validity", "order"] + ([] if name in STALLS else ["agreement", "termination"])
    assert [v for v in check(events, properties) if v.status != "ok"] == []
    return s


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    kinds = ("multicast", "deliver", "crash", "suspect", "trust", "round", "reconfigure")
    compare(SCENARIOS[name][0], name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s, kinds), rewrite)
