"""Scenarios of replicas on a replicated log that come back: from their disks, from older copies of them, or without.

They go on from those in test_black_box.py. g0 is led by g0/0 at first; times are in δ.
"""

from collections.abc import Callable

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.sim.faults import LoseDisk, Snapshot
from amcast.sim.script import DELTA, NEVER, Script
from tests.scenarios.golden import compare, transcript
from tests.scenarios.test_black_box import judged
from tests.scenarios.test_white_box import process, same_everywhere
from tests.scenarios.test_white_box_recovery import copy_disk, position, put_back, starts

Scenario = Callable[[Protocol], Script]
SCENARIOS: dict[str, tuple[tuple[str, ...], Scenario]] = {}
ALL = ("ft_skeen", "fastcast", "multi_paxos", "paxos_amcast")


def scenario(*protocols: str) -> Callable[[Scenario], Scenario]:
    def register(build: Scenario) -> Scenario:
        SCENARIOS[build.__name__] = (protocols, build)
        return build

    return register


def script(table: Protocol, heartbeat: float = 5, tail_bytes: int = 0) -> Script:
    return Script(table, (3,), heartbeat=heartbeat, durable=True, tail_bytes=tail_bytes)


@scenario(*ALL)
def r01_follower_comes_back(table: Protocol) -> Script:
    """g0/2 is away while m2 is ordered, and returns to the same ballot: it gets places and deliveries, and helps."""
    s = script(table)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(20, lambda: s.crash("g0/2", lose=False))
    s.at(22, lambda: s.multicast("c1", 0))
    s.at(40, lambda: s.restart("g0/2"))
    s.at(80, lambda: s.crash("g0/1", lose=False))
    s.at(82, lambda: s.multicast("c2", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0", "c2:0"], but=("g0/1",))
    assert len([e for e in s.recorder.events if e.kind == "leader"]) == 1, "nobody had to be elected"
    return s


@scenario(*ALL)
def r02_leader_comes_back(table: Protocol) -> Script:
    """g0/0 stored m alone and crashes; it comes back before anybody misses it, and may not go on in its ballot."""
    s = script(table)
    lost = [s.delay("g0/0", None, kind, NEVER) for kind in ("Append", "Announce")]
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: (s.crash("g0/0", "c0", lose=False), [s.normal(rule) for rule in lost]))
    s.at(4, lambda: s.restart("g0/0"))
    s.at(60, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/1"))
    assert "c1:0" in s.deliveries("g0/1")
    return s


@scenario(*ALL)
def r03_all_at_once(table: Protocol) -> Script:
    """All crash when a quorum has stored m and nobody delivered it: from their disks alone, m is delivered."""
    s = script(table)
    for kind in ("Appended", "Announce"):
        s.delay(None, None, kind, NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3.5, lambda: (s.network.rules.clear(), s.crash("g0/0", "g0/1", "g0/2", "c0")))
    s.at(10, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario(*ALL)
def r04_lost_disk(table: Protocol) -> Script:
    """Two members lose their disks, one after the other, and take part from later ballots on; then all restart."""
    s = script(table)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(20, lambda: LoseDisk(s.topology.pid("g0/1"), DELTA).act(s.world))
    s.at(70, lambda: LoseDisk(s.topology.pid("g0/2"), DELTA).act(s.world))
    s.at(130, lambda: s.crash("g0/0", "g0/1", "g0/2", lose=False))
    s.at(135, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    s.at(250, lambda: s.crash("g0/0", lose=False))
    s.at(252, lambda: s.multicast("c1", 0))
    s.run()
    assert [starts(s, f"g0/{rank}") for rank in (1, 2)] == [3, 3]
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario(*ALL)
def r05_away_for_long(table: Protocol) -> Script:
    """g0/2 is away for more than anybody keeps: it comes by snapshot, and g0/0 dies as soon as it is back."""
    s = script(table, tail_bytes=500)
    s.at(5, lambda: s.crash("g0/2", lose=False))
    for i in range(60):
        s.at(6 + 3 * i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    s.at(250, lambda: s.restart("g0/2"))
    s.at(300, lambda: s.crash("g0/0", lose=False))
    s.at(302, lambda: s.multicast("c0", 0))
    s.run()
    assert process(s, "g0/2").prefix.recent.begin > 30, "it was to come by snapshot"
    assert len(s.deliveries("g0/1")) == 61
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    return s


@scenario("ft_skeen", "fastcast")  # learners of the others have heard of it, and find it out
def r06_own_word_of_a_leader(table: Protocol) -> Script:
    """g0/0 and g0/1 store m, its client is answered; g0/0 forgets it, and leads again with g0/2: m is still first."""
    s = script(table, heartbeat=100)
    s.delay("g0/0", "g0/2", "Append", NEVER)
    s.delay("g0/0", None, "Deliver", NEVER)
    s.at(1, lambda: copy_disk(s, "g0/0"))
    s.at(1, lambda: s.multicast("c0", 0))

    def forget() -> None:
        assert process(s, "c0").idle(), "the client was to get its answer"
        assert position(s, "g0/2") == 0
        put_back(s, "g0/0")

    def lead_again() -> None:
        assert not process(s, "g0/0").rejoining()
        s.network.rules.clear()
        s.delay("g0/0", "g0/1", None, 50)
        s.recover("g0/0")

    s.at(6, forget)
    s.at(7, lambda: s.restart("g0/0"))
    s.at(13, lead_again)
    s.at(14, lambda: s.multicast("c1", 0))
    s.run()
    assert starts(s, "g0/0") == 2, "nobody knew that it had forgotten anything"
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario(*ALL)
def r07_older_copy_of_a_follower(table: Protocol) -> Script:
    """The folder of g0/1 is put back while g0/2 is away: g0/0 finds it out, and it comes back when g0/2 knows."""
    s = script(table, heartbeat=10)
    waiting: list[str] = []
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(45, lambda: copy_disk(s, "g0/1"))
    s.at(50, lambda: s.multicast("c1", 0))
    s.at(100, lambda: s.crash("g0/2", lose=False))
    s.at(101, lambda: put_back(s, "g0/1", clean=True))  # nobody can tell by its end
    s.at(102, lambda: s.restart("g0/1"))
    s.at(110, lambda: s.multicast("c2", 0))
    s.at(250, lambda: waiting.append(process(s, "g0/1").unready()))
    s.at(251, lambda: s.restart("g0/2"))
    s.run()
    assert waiting == ["rejoining: waits for g0/2 to count on nothing that it said before"]
    same_everywhere(s, 0, ["c0:0", "c1:0", "c2:0"])
    return s


@scenario(*ALL)
def r08_last_place_is_lost(table: Protocol) -> Script:
    """The last entry is lost on the way to g0/2, which is needed for a quorum: it hears that there is more."""
    s = script(table)
    lost = [s.delay("g0/0", "g0/2", kind, NEVER) for kind in ("Append", "Announce")]
    s.at(0.5, lambda: s.crash("g0/1"))
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3, lambda: [s.normal(rule) for rule in lost])
    s.at(3, lambda: s.crash("c0", lose=False))
    s.run()
    same_everywhere(s, 0, ["c0:0"], but=("g0/1",))
    return s


@scenario(*ALL)
def r09_promise_is_kept(table: Protocol) -> Script:
    """g0/1 votes for g0/2 and restarts: it must not help g0/0 any more, which has not heard of that ballot."""
    s = script(table, heartbeat=200)
    s.delay("g0/2", "g0/0", None, 60)
    s.delay("g0/2", "g0/1", "NewLog", 30)
    s.delay("g0/0", "g0/2", "Append", 60)
    s.delay("g0/0", None, "Deliver", 60)
    for rank in (0, 1):
        s.delay(f"g0/{rank}", "g0/2", "Announce", 60)
    process(s, "c1").cur_leader[0] = s.topology.pid("g0/2")
    s.at(1, lambda: s.recover("g0/2"))
    s.at(2.5, lambda: s.crash("g0/1", lose=False))
    s.at(4, lambda: s.restart("g0/1"))
    s.at(5, lambda: process(s, "g0/1").trust(int(s.world.now)))  # g0/2 would be waited for: this is not about that
    s.at(12, lambda: s.multicast("c0", 0))
    s.at(40, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/1"))
    assert sorted(s.deliveries("g0/1")) == ["c0:0", "c1:0"]
    return s


@scenario(*ALL)
def r10_snapshots_of_an_undelivered_message(table: Protocol) -> Script:
    """All have forgotten m1, stored m2 and made a snapshot when they crash: from these alone, m2 is delivered."""
    s = script(table)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(38, lambda: [s.delay(None, None, kind, NEVER) for kind in ("Appended", "Announce")])
    s.at(40, lambda: s.multicast("c1", 0))
    s.at(42.5, lambda: [Snapshot(pid).act(s.world) for pid in range(3)])
    s.at(42.6, lambda: (s.network.rules.clear(), s.crash("g0/0", "g0/1", "g0/2", "c1")))
    s.at(50, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario(*ALL)
def r11_restarts_after_a_lost_disk(table: Protocol) -> Script:
    """g0/1 restarts three times, lost its disk, and is killed twice more before any snapshot: no life is forgotten."""
    s = script(table)

    def killed() -> None:
        s.crash("g0/1", lose=False)
        s.world.disks[s.topology.pid("g0/1")].starts = max(0, count.pop(0))
        s.restart("g0/1")

    count = [1, 2, 1, 2]  # what the driver has counted: from the beginning, with another disk
    s.at(1, lambda: s.multicast("c0", 0))
    for time in (30, 60):
        s.at(time, killed)
    s.at(90, lambda: LoseDisk(s.topology.pid("g0/1"), DELTA).act(s.world))
    for time in (150, 200):
        s.at(time, killed)
    s.at(300, lambda: s.crash("g0/2", lose=False))
    s.at(302, lambda: s.multicast("c1", 0))
    s.run()
    assert starts(s, "g0/1") == 3, "it was not to be found out"
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/2",))
    return s


@scenario("ft_skeen", "fastcast")
def r13_what_was_stored_is_said_again(table: Protocol) -> Script:
    """g0/1 and g0/2 store m and crash before g0/0 hears of it; it still leads when they are back: m is delivered."""
    s = script(table)
    lost = s.delay(None, "g0/0", "Appended", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3.5, lambda: (s.crash("g0/1", "g0/2", "c0", lose=False), s.normal(lost)))
    s.at(5, lambda: s.restart("g0/1", "g0/2"))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    assert len([e for e in s.recorder.events if e.kind == "leader"]) == 1, "nobody had to be elected"
    return s


@scenario("multi_paxos", "paxos_amcast")
def r14_nothing_is_stored_behind_a_promise(table: Protocol) -> Script:
    """g0/0 alone stored m1. g0/1 and g0/3 vote for g0/4 without it, and restart: they must not store it any more."""
    s = Script(table, (5,), heartbeat=5, durable=True)
    s.delay("g0/0", None, "Append", NEVER)
    s.delay("g0/4", "g0/0", "NewLeader", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3, lambda: s.recover("g0/4"))
    s.at(5.5, lambda: (s.crash("g0/0", "g0/1", "g0/3", "c0", lose=False), s.network.rules.clear()))
    s.at(5.6, lambda: s.restart("g0/0", "g0/1", "g0/3"))
    s.at(8, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/4"))
    assert s.deliveries("g0/4")[0] == "c1:0", "g0/4 began without m1"
    return s


@scenario("paxos_amcast")
def r12_one_that_only_learns_loses_its_disk(table: Protocol) -> Script:
    """g1/2 has no part in the log. It is not whole before it knows what g1 knew, also if it restarts meanwhile."""
    # Else those of g1 could lose their disks one after the other, and nobody would know any more what g1 delivered.
    s = Script(table, (1, 3), heartbeat=5, durable=True)
    whole: list[bool] = []
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(40, lambda: LoseDisk(s.topology.pid("g1/2"), DELTA).act(s.world))
    s.at(40.5, lambda: [s.delay(p, "g1/2", None, NEVER) for p in ("g0/0", "g1/0", "g1/1")])
    s.at(60, lambda: (s.crash("g1/2", lose=False), s.restart("g1/2")))
    for time in (59, 80, 200):
        s.at(time, lambda: whole.append(not process(s, "g1/2").rejoining()))
    s.at(80, s.network.rules.clear)
    s.run()
    assert whole == [False, False, True]
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario(*ALL)
def r15_delivered_places_are_not_said_again(table: Protocol) -> Script:
    """All crash when 20 messages are delivered: the disks have their places, and what replicas say has none of them."""
    s = script(table)
    for i in range(20):
        s.at(1 + 5 * i, lambda: s.multicast("c0", 0))
    s.at(150, lambda: s.crash("g0/0", "g0/1", "g0/2", lose=False))
    s.at(160, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    logs: list[int] = []
    s.at(160.1, lambda: logs.extend(len(process(s, f"g0/{rank}").log.entries) for rank in range(3)))  # type: ignore[attr-defined]
    s.at(220, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, [*[f"c0:{i}" for i in range(20)], "c1:0"])
    assert logs == [0, 0, 0], f"{logs} places come with every answer, vote and new log"
    return s


@scenario(*ALL)
def r13_rejoins_though_it_missed_the_ballot(table: Protocol) -> Script:
    """g0/1 lost its disk, and the log of the next ballot does not reach it: its leader hears that it waits."""
    s = script(table)
    s.at(1, lambda: s.multicast("c0", 0))
    lost = s.delay(None, "g0/1", "NewLog", NEVER)
    s.at(20, lambda: LoseDisk(s.topology.pid("g0/1"), DELTA).act(s.world))
    s.at(50, lambda: s.normal(lost))
    s.at(200, lambda: s.crash("g0/2", lose=False))
    s.at(202, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/2",))
    assert len([e for e in s.recorder.events if e.kind == "leader"]) == 2, "one ballot is enough for it to come back"
    return s


def run(name: str, table: Protocol) -> Script:
    return judged(SCENARIOS[name][1](table), table)


@pytest.mark.parametrize(("name", "under_test"), [(n, p) for n, (ps, _) in SCENARIOS.items() for p in ps])
def test_scenario(name: str, under_test: str, rewrite: bool) -> None:
    s = run(name, protocol(under_test))
    compare(under_test, name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s), rewrite)
