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
STALLS = ("allconcur_plus_halves",)  # nobody has a majority


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
    """p3 fails after its reliable message: p0 knows before p4 is removed, p1 after: both reach the same state."""
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
    assert all(server(s, i).members == (0, 1, 2) and state(s, i) == state(s, 0) for i in range(3))
    assert all(any('"T_▷R"' in detail for detail in rounds(s, f"g0/{i}")[1:]) for i in (0, 1))
    return s


@scenario("allconcur_plus")
def allconcur_plus_complete_before_it_begins(table: Protocol) -> Script:
    """p2 has all of [2, 2] before it completes [[2, 1]], for G_R is slow there: the next eon begins with T_UU."""
    s = Script(table, (8,))
    everybody_multicasts(s)
    for i in (3, 5, 7):
        s.delay(f"g0/{i}", "g0/2", "Reliable", 50)
    s.at(1.5, lambda: s.crash("g0/4"))
    all_detect(s, 3, "g0/4")
    everybody_multicasts(s, 10)
    s.run()
    seen = [e for e in s.recorder.events if e.kind in ("round", "reconfigure") and e.process == "g0/2"]
    begun = next(e for e in seen if e.kind == "reconfigure")
    done = seen[seen.index(begun) + 1]
    assert '"T_UU"' in (done.detail or "") and begun.time == done.time
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
    """All successors of p0 suspect it for no reason: seven go on, p0 hears that it was removed, and comes back."""
    s = Script(table, (8,), heartbeat=5)
    everybody_multicasts(s)
    for q in server_graph(8, 0):
        s.at(5.5, lambda q=q: s.detect(f"g0/{q}", "g0/0"))  # type: ignore[misc]
    s.at(100, lambda: s.multicast("g0/1", 0))
    s.run()
    assert all(server(s, i).members == tuple(range(8)) for i in range(8))
    assert any('"members": 7' in (e.detail or "") for e in s.recorder.events if e.kind == "reconfigure")
    assert all(s.deliveries(f"g0/{i}") == s.deliveries("g0/1") and len(s.deliveries("g0/1")) == 9 for i in range(8))
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
    """Three suspect two before they have their messages and go on; the two have more, and may not deliver it so."""
    s = Script(table, (5,), heartbeat=5)
    for i in (0, 1):
        s.delay(f"g0/{i}", None, "Reliable", 5)
    everybody_multicasts(s)
    for i in (2, 3, 4):
        s.at(1.5, lambda i=i: s.detect(f"g0/{i}", "g0/0", "g0/1"))  # type: ignore[misc]
    s.run()
    assert all(s.world.up(i) and s.deliveries(f"g0/{i}") == s.deliveries("g0/2") for i in range(5))
    assert len(s.deliveries("g0/2")) == 5
    return s


@scenario("allconcur_ea")
def allconcur_ea_halves(table: Protocol) -> Script:
    """Two halves do not hear each other for 60 δ: nobody goes on alone, and when they do, all is delivered."""
    s = Script(table, (6,), heartbeat=2)
    s.at(1, lambda: s.multicast("g0/0", 0))
    everybody_multicasts(s, 20)
    rules: list[Any] = []
    apart = [(f"g0/{i}", f"g0/{j}") for i in range(6) for j in range(6) if (i < 3) != (j < 3)]
    s.at(20.5, lambda: [rules.append(s.delay(i, j, None, 60)) for i, j in apart])
    s.at(50, lambda: all_have(s, 1))
    s.at(80, lambda: [s.normal(rule) for rule in rules])
    s.run()
    assert all(len(s.deliveries(f"g0/{i}")) == 7 for i in range(6))
    return s


@scenario("allconcur_ea")
def allconcur_ea_whole_round_of_one(table: Protocol) -> Script:
    """p0 delivers round 1 by the vote of p1 and dies; p2, which lacks it, ends the eon: p1 tells what it has."""
    s = Script(table, (3,), heartbeat=50)
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/1", "g0/2", None, 30)
    s.delay("g0/0", "g0/1", "Vote", NEVER)
    s.at(1, lambda: s.multicast("g0/0", 0))
    s.at(1, lambda: s.multicast("g0/2", 0))
    s.at(3.5, lambda: s.crash("g0/0"))
    s.at(5, lambda: s.detect("g0/2", "g0/0", "g0/1"))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == s.deliveries("g0/2") == ["g0/0:0", "g0/2:0"]
    return s


@scenario("allconcur_ea")
def allconcur_ea_no_vote_behind_a_promise(table: Protocol) -> Script:
    """p1 promises p2 that round 1 has ended without m0, which comes later: it may not vote, so that p0 delivers it."""
    s = Script(table, (3,), heartbeat=50)
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/1", "Reliable", 20)
    s.at(1, lambda: s.multicast("g0/0", 0))
    s.at(1, lambda: s.multicast("g0/2", 0))
    s.at(4, lambda: s.delay("g0/1", "g0/2", None, 30))
    s.at(4, lambda: s.delay("g0/2", "g0/0", None, NEVER))
    s.at(5, lambda: s.detect("g0/2", "g0/0", "g0/1"))
    s.at(30, lambda: s.crash("g0/0"))
    s.run()
    assert s.deliveries("g0/0") == [] and s.deliveries("g0/1") == s.deliveries("g0/2") == ["g0/2:0"]
    return s


def all_have(s: Script, count: int) -> None:
    assert all(len(s.deliveries(f"g0/{i}")) == count for i in range(s.topology.replicas))


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
    assert all(server(s, i).members == (0, 2, 3) and server(s, i).eon == 2 for i in (0, 2, 3))
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


def paused(table: Protocol, since: float, pause: float) -> Script:
    """One of five stands still until the others have gone on without it, wakes, and stops; its time-outs come first."""
    s = Script(table, (5,), heartbeat=2)  # who is silent for 8 δ is suspected
    s.world.obligations.uniform = False  # what it delivers before it knows counts as little
    for at in (1, 4, 30, 60):
        everybody_multicasts(s, at)
    s.at(since, lambda: s.world.pause(4))
    s.at(since + pause, lambda: s.world.resume(4))
    s.run()
    assert all(server(s, i).members == (0, 1, 2, 3) and s.world.up(i) for i in range(4)) and not s.world.up(4)
    assert len(s.deliveries("g0/0")) >= 16
    assert any(e.kind == "suspect" and "heard by nobody" in (e.detail or "") for e in s.recorder.events)
    return s


@scenario("allconcur_plus")
def allconcur_plus_paused(table: Protocol) -> Script:
    """p4 stands still for longer than the time-out: the others go on, and it stops when nobody hears it."""
    for later in range(20):
        s = paused(table, 1.1 + later / 4, 12)
    return s


@scenario("allconcur")
def allconcur_paused(table: Protocol) -> Script:
    """The same without unreliable rounds."""
    for later in range(20):
        s = paused(table, 1.1 + later / 4, 30)
    return s


@scenario("allconcur_plus")
def allconcur_plus_hears_nobody(table: Protocol) -> Script:
    """Nothing reaches p4 any more, though all hear it: it stops, and the others go on."""
    s = Script(table, (5,), heartbeat=2)
    everybody_multicasts(s)
    s.at(6, lambda: s.delay(None, "g0/4", None, NEVER))
    s.at(40, lambda: s.multicast("g0/1", 0))
    s.run()
    assert all(server(s, i).members == (0, 1, 2, 3) and len(s.deliveries(f"g0/{i}")) == 6 for i in range(4))
    assert not s.world.up(4)
    return s


@scenario("allconcur_plus")
def allconcur_plus_three_of_nine_one_by_one(table: Protocol) -> Script:
    """p0, p1 and p7, all whom p3 hears in the first digraph, crash one after the other: each time G_R is made anew."""
    s = Script(table, (9,), heartbeat=2)
    for i, p in enumerate((0, 1, 7)):
        s.at(20 + 60 * i, lambda p=p: s.crash(f"g0/{p}"))  # type: ignore[misc]
    for at in (1, 30, 90, 150, 210):
        s.at(at, lambda: s.multicast("g0/3", 0))
    s.run()
    alive = (2, 3, 4, 5, 6, 8)
    assert all(server(s, i).members == alive and len(s.deliveries(f"g0/{i}")) == 5 for i in alive)
    return s


@scenario("allconcur_plus")
def allconcur_plus_halves(table: Protocol) -> Script:
    """Two and two suspect each other: neither half has more than half of the members, so neither goes on alone."""
    s = Script(table, (4,), heartbeat=5)
    everybody_multicasts(s, 1)
    s.at(20, lambda: [s.delay(f"g0/{i}", f"g0/{j}", None, NEVER) for i in (0, 1) for j in (2, 3)])
    s.at(20, lambda: [s.delay(f"g0/{j}", f"g0/{i}", None, NEVER) for i in (0, 1) for j in (2, 3)])
    everybody_multicasts(s, 21)
    for i, j in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)):
        s.at(25, lambda i=i, j=j: s.detect(f"g0/{i}", f"g0/{j}"))  # type: ignore[misc]
    s.run()
    assert all(len(s.deliveries(f"g0/{i}")) == 4 for i in range(4))
    assert all(server(s, i).condition()["waits"] == "rounds make no progress" for i in range(4))
    return s


@scenario("allconcur_plus")
def allconcur_plus_who_helps_a_newcomer_dies(table: Protocol) -> Script:
    """Only p0 delivers its m in round 1, tells p3 about the past, and dies; the others run round 1 again without m."""
    s = Script(table, (4,), spare=1, heartbeat=5)
    s.at(1, lambda: s.multicast("g0/0", 0))
    s.at(2.5, lambda: s.delay("g0/1", "g0/2", "Unreliable", 8))
    s.at(2.5, lambda: s.delay("g0/2", "g0/1", "Unreliable", 8))
    s.at(5, lambda: s.join_group("g0/3"))  # asks p0, which has delivered m
    s.at(7.5, lambda: s.crash("g0/0", lose=False))
    all_detect(s, 9, "g0/0")
    s.at(60, lambda: s.multicast("g0/1", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g0/0:0"]
    assert all(s.deliveries(f"g0/{i}") == ["g0/1:0"] and server(s, i).members == (1, 2, 3) for i in (1, 2, 3))
    return s


@scenario("allconcur_plus")
def allconcur_plus_welcome_of_one(table: Protocol) -> Script:
    """p0 ends the eon with its m, welcomes p3 and dies; the others ignore m and end it without: p3 does as they do."""
    s = Script(table, (4,), spare=1, heartbeat=5)
    s.at(1, lambda: s.change_members("g0/0", 0, 1, 2, 3))
    s.at(2.5, lambda: s.multicast("g0/0", 0))
    s.at(4, lambda: s.delay("g0/0", "g0/1", "Reliable", 30))
    s.at(4, lambda: s.delay("g0/0", "g0/2", "Reliable", 30))
    s.at(4, lambda: s.delay("g0/1", "g0/2", "Reliable", 10))
    s.at(4, lambda: s.delay("g0/2", "g0/1", "Reliable", 10))
    s.at(8.5, lambda: s.crash("g0/0", lose=False))
    all_detect(s, 9, "g0/0")
    s.at(60, lambda: s.multicast("g0/1", 0))
    s.run()
    assert s.deliveries("g0/0") == ["g0/0:0"]
    assert all(s.deliveries(f"g0/{i}") == ["g0/1:0"] and server(s, i).members == (1, 2, 3) for i in (1, 2, 3))
    return s


@scenario("allconcur_plus")
def allconcur_plus_proposal_of_the_past(table: Protocol) -> Script:
    """p0 and p1 propose other members, p1 at any moment later: one that was meant for the eon that ends is void."""
    for later in range(40):
        s = Script(table, (5,), spare=2, heartbeat=5)
        s.at(1, lambda s=s: s.multicast("g0/2", 0))  # type: ignore[misc]
        s.at(5, lambda s=s: s.change_members("g0/0", 0, 1, 2, 3))  # type: ignore[misc]
        proposed: list[int] = []
        s.at(
            5 + later / 4, lambda s=s, of=proposed: (of.append(server(s, 1).eon), s.change_members("g0/1", 0, 1, 2, 4))
        )  # type: ignore[misc]
        s.run()
        assert [server(s, i).eon for i in (0, 1, 2)] == [proposed[0] + 1] * 3, later
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


@scenario("lcr")
def lcr_paused(table: Protocol) -> Script:
    """p4 stands still for longer than the time-out: the others go on, and it stops when it hears of that.

    The same happens to one of two, where nobody has more than half.
    """
    for n in (2, 5):
        for later in range(20):
            s = Script(table, (n,), heartbeat=2)  # who is silent for 8 δ is suspected
            for at in (1, 4, 30, 60):
                everybody_multicasts(s, at)
            s.at(1.1 + later / 2, lambda s=s, n=n: s.world.pause(n - 1))  # type: ignore[misc]
            s.at(31.1 + later / 2, lambda s=s, n=n: s.world.resume(n - 1))  # type: ignore[misc]
            s.run()
            assert [s.world.up(i) for i in range(n)] == [True] * (n - 1) + [False], (n, later)
            assert all(server(s, i).members == tuple(range(n - 1)) for i in range(n - 1))
            assert len(s.deliveries("g0/0")) >= 4 * (n - 1)
            assert any(e.kind == "suspect" and "left out" in (e.detail or "") for e in s.recorder.events)
    return s


@scenario("lcr")
def lcr_left_out_suspects(table: Protocol) -> Script:
    """p4 is left out and does not know yet when it leaves out p0: it stops, and takes nobody along."""
    s = Script(table, (5,))
    everybody_multicasts(s)
    s.delay(None, "g0/4", "State", 30)
    s.at(20, lambda: [s.detect(f"g0/{i}", "g0/4") for i in range(4)])
    s.at(30, lambda: s.detect("g0/4", "g0/0"))
    everybody_multicasts(s, 70)
    s.run()
    assert [s.world.up(i) for i in range(5)] == [True] * 4 + [False]
    assert all(server(s, i).members == (0, 1, 2, 3) and len(s.deliveries(f"g0/{i}")) == 9 for i in range(4))
    return s


@scenario("lcr")
def lcr_halves(table: Protocol) -> Script:
    """Two sides leave each other out and hear of it late: more than half go on, of two halves both stop."""
    for n in (4, 5):
        s = Script(table, (n,))
        everybody_multicasts(s)
        here = tuple([f"g0/{i}" for i in range(n - 2)])
        there = tuple([f"g0/{i}" for i in range(n - 2, n)])
        for p in here:
            for q in there:
                s.delay(p, q, "State", 30)
                s.delay(q, p, "State", 30)
        for one, other in ((here, there), (there, here)):
            s.at(20, lambda s=s, one=one, other=other: [s.detect(p, *other) for p in one])  # type: ignore[misc]
        views: list[int] = []
        s.at(40, lambda s=s, n=n, views=views: views.extend([len(server(s, i).members) for i in (0, n - 1)]))  # type: ignore[misc]
        everybody_multicasts(s, 70)
        s.run()
        assert views == [n - 2, 2]  # both went on
        assert [s.world.up(i) for i in range(n)] == [n == 5] * (n - 2) + [False] * 2
    return s


def run(name: str) -> Script:
    protocol_name, build = SCENARIOS[name]
    table = UNDER_TEST[protocol_name]
    s = build(table)
    assert s.world.stalled == (name in STALLS), "the run did not finish its work"
    uniform = table.uniform and name not in ("allconcur_early_detector", "allconcur_deaf", "allconcur_paused")
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
