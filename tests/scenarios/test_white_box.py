"""The adversarial scenarios of White-Box: each drives the shipped protocol into one corner and compares what happened
with the golden transcript beside this file (`pytest --rewrite` writes them anew).

Group g0 is led by g0/0 at first, g1 by g1/0; times are in δ.
"""

from collections.abc import Callable
from typing import Any

import pytest

from amcast.checks import check
from amcast.core.order import BOTTOM, ballot
from amcast.protocols import protocol
from amcast.protocols.parts.leader_candidate import FOLLOWER, LEADER
from amcast.protocols.white_box.message_state import COMMITTED, PROPOSED, START
from amcast.sim.faults import Snapshot
from amcast.sim.script import NEVER, Script
from tests.scenarios.golden import compare, transcript

Scenario = Callable[[], Script]
SCENARIOS: dict[str, Scenario] = {}


def scenario(build: Scenario) -> Scenario:
    SCENARIOS[build.__name__] = build
    return build


UNDER_TEST = [protocol("white_box")]  # the tests of the tests put a broken one here


def script(
    *sizes: int,
    heartbeat: float = 10_000,
    durable: bool = False,
    tail_bytes: int = 0,
    tells_clients: bool = False,
) -> Script:
    return Script(
        UNDER_TEST[0], sizes or (3, 3), heartbeat=heartbeat, durable=durable, tail_bytes=tail_bytes,
        tells_clients=tells_clients,
    )  # fmt: skip


def process(s: Script, name: str) -> Any:
    return s.world.processes[s.topology.pid(name)]


def same_everywhere(s: Script, g: int, expected: list[str], but: tuple[str, ...] = ()) -> None:
    for pid in s.topology.groups[g]:
        name = s.topology.name(pid)
        if name not in but:
            assert s.deliveries(name) == expected, name


@scenario
def s02_client_crash_between_sends() -> Script:
    """MULTICAST reaches g0/0 only; its retry brings the message to g1, and later messages are not blocked."""
    s = script(heartbeat=5)
    s.delay("c0", "g1/0", "Multicast", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2, lambda: s.multicast("c1", 0, 1))
    s.run()
    for g in (0, 1):
        assert sorted(s.deliveries(f"g{g}/1")) == ["c0:0", "c1:0"]
    return s


@scenario
def s03_stale_delivered() -> Script:
    """g0/0 commits m, its DELIVERs crawl; g0/1 takes over without it and dies; g0/0 leads again and must deliver m."""
    s = script()
    slow = [s.delay("g0/0", "g0/1", "Deliver", 50), s.delay("g0/0", "g0/2", "Deliver", 50)]
    s.delay("g0/1", "g0/0", "NewLeader", 10)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(5, lambda: s.recover("g0/1"))
    s.at(7.5, lambda: (s.crash("g0/1", lose=False), [s.normal(rule) for rule in slow]))
    s.at(25, lambda: s.recover("g0/0"))
    s.at(80, lambda: s.multicast("c1", 0))
    s.run()
    assert s.deliveries("g0/2") == ["c0:0", "c1:0"]
    assert s.deliveries("g0/0") == ["c0:0", "c1:0"]
    return s


@scenario
def s04_unsynchronised_leader() -> Script:
    """g0/1 recovers a state without m and dies before anybody is in step with it: it must have delivered nothing."""
    s = script(3, 3, 3)
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 2))
    s.delay("g1/0", "g0/0", "Accept", 200)
    s.delay("g1/0", "g0/1", "Accept", 200)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(110, lambda: s.multicast("c2", 0, 2))
    s.delay("g0/1", None, "NewState", NEVER)
    s.delay("g0/1", "g0/2", "NewLeader", NEVER)
    s.at(120, lambda: s.recover("g0/1"))
    s.at(130, lambda: s.crash("g0/1"))
    s.at(140, lambda: s.recover("g0/2"))
    s.run()
    assert s.deliveries("g0/1") == []
    same_everywhere(s, 0, ["c1:0", "c2:0"], but=("g0/1",))
    assert s.event("deliver", "g0/2", "c1:0").ts == (1, "g1")
    assert s.event("deliver", "g0/2", "c2:0").ts == (7, "g2")
    return s


@scenario
def s05_clock_recovery() -> Script:
    """The new leader missed the high timestamp of m; the clock of its follower keeps a later message behind m."""
    s = script()
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 1))
    s.delay("g1/0", "g0/1", "Accept", 60)
    s.delay(None, "g0/1", "Outcome", 60)  # g1 has delivered m, and would say so
    s.delay("g0/0", None, "Deliver", NEVER)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(103.5, lambda: s.crash("g0/0"))
    s.at(110, lambda: s.recover("g0/1"))
    s.at(115, lambda: s.multicast("c2", 0))
    s.run()
    assert s.deliveries("g0/0") == ["c1:0"]
    same_everywhere(s, 0, ["c1:0", "c2:0"], but=("g0/0",))
    assert s.event("deliver", "g0/1", "c1:0").ts == (7, "g1")
    return s


@scenario
def s06_stuck_follower() -> Script:
    """A dying candidate convinces one follower; the leader hears of it and brings it back."""
    s = script(5, heartbeat=5)
    s.delay("g0/4", None, "NewLeader", NEVER)
    s.delay("g0/4", "g0/3", "NewLeader", 1)
    s.at(2, lambda: s.recover("g0/4"))
    s.at(2.5, lambda: s.crash("g0/4", lose=False))
    s.at(4, lambda: s.multicast("c0", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0"], but=("g0/4",))
    assert process(s, "g0/3").candidate.cballot == process(s, "g0/0").candidate.cballot
    assert process(s, "g0/3").candidate.status == FOLLOWER
    return s


@scenario
def s07_mixed_vectors() -> Script:
    """g1 changes its leader between the ACCEPTs that different members of g0 see: one vector counts, one gts."""
    s = script(3, 5)
    s.delay("g1/0", "g0/1", "Accept", NEVER)
    s.delay("g1/0", "g0/2", "Accept", NEVER)
    for rank in range(1, 5):
        s.delay("g1/0", f"g1/{rank}", None, NEVER)
    s.delay("c1", "g1/0", None, NEVER)
    s.delay("g1/1", "g0/0", None, 30)
    s.delay(None, None, "Outcome", 200)
    s.at(0.5, lambda: s.multicast("c1", 1))
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(2.5, lambda: s.crash("g1/0", lose=False))
    s.at(5, lambda: s.recover("g1/1"))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    timestamps = [s.event("deliver", name, "c0:0").ts for name in ("g0/0", "g0/1", "g0/2", "g1/1", "g1/2")]
    assert timestamps == [(2, "g1")] * 5, "g1/0 had proposed (1, g1), g1/1 proposes (2, g1)"
    return s


@scenario
def s08_old_remote_leader() -> Script:
    """g1/0 is deposed without knowing it and proposes a huge timestamp: clocks rise, order stays."""
    s = script()
    for i in range(8):
        s.at(2 + i, lambda: s.multicast("c0", 1))
    s.delay("g1/0", "g1/1", "Accept", 40)
    s.delay("g1/0", "g1/2", "Accept", 40)
    s.delay("g1/1", "g1/0", None, 60)
    s.at(1, lambda: s.recover("g1/1"))
    s.at(12, lambda: s.multicast("c1", 0, 1))
    s.at(30, lambda: s.multicast("c2", 0))
    s.run()
    assert s.deliveries("g0/1") == s.deliveries("g0/0") == s.deliveries("g0/2")
    assert sorted(s.deliveries("g0/1")) == ["c1:0", "c2:0"]
    same_everywhere(s, 1, s.deliveries("g1/1"))
    return s


@scenario
def s09_third_vote() -> Script:
    """The vote of g0/0 comes after the quorum, with a message that the others lack: it changes nothing."""
    s = script()
    s.delay("g0/0", "g0/1", "NewLeaderAck", 2)
    s.at(2.4, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: s.recover("g0/1"))
    s.run()
    new_states = [e for e in s.recorder.events if e.kind == "send" and e.type == "NewState"]
    assert len(new_states) == 2
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s10_duelling_candidates() -> Script:
    """Two members outbid each other for a while; nothing is delivered twice and one leader remains."""
    s = script(heartbeat=5)
    for i in range(10):
        s.at(1 + 3 * i, lambda: s.recover("g0/1"))
        s.at(2.5 + 3 * i, lambda: s.recover("g0/2"))
        s.at(3 + 3 * i, lambda i=i: s.multicast(f"c{i % 3}", 0, 1))  # type: ignore[misc]
    s.run()
    assert len(s.deliveries("g0/0")) == 10
    same_everywhere(s, 0, s.deliveries("g0/0"))
    assert sum(process(s, f"g0/{rank}").candidate.status == LEADER for rank in range(3)) == 1
    return s


@scenario
def s11_lost_proposal() -> Script:
    """A proposal dies with its leader: the client sends again; if that is dead too it is gone, and blocks nothing."""
    s = script(3, heartbeat=5)
    s.delay("g0/0", None, "Accept", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(1, lambda: s.multicast("c1", 0))
    s.at(2.2, lambda: s.crash("g0/0", "c1"))
    s.at(3, lambda: s.multicast("c2", 0))
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    assert sorted(s.deliveries("g0/1")) == ["c0:0", "c2:0"]
    return s


@scenario
def s12_leader_dies_between_delivers() -> Script:
    """g0/1 got the DELIVER and g0/2 did not: the new leader delivers it there, once and in order."""
    s = script()
    s.delay("g0/0", "g0/2", "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(4.5, lambda: s.crash("g0/0", lose=False))
    s.at(6, lambda: s.recover("g0/2"))
    s.at(7, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario
def s13_late_duplicate() -> Script:
    """The reply crawls, the client sends again, and the copy arrives when everybody has forgotten the message."""
    s = script(heartbeat=5)
    s.delay("g0/0", "c0", "Reply", 150)
    s.delay("g1/0", "c0", "Reply", 150)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(3, lambda: s.delay("c0", None, "Multicast", 120))
    s.at(100, lambda: forgotten.extend(process(s, name).entries for name in ("g0/0", "g1/0")))
    s.at(100, lambda: forgotten.extend(process(s, name).prefix.outcomes for name in ("g0/0", "g1/0")))
    forgotten: list[object] = []
    s.run()
    assert [process(s, name).prefix.recent.size() for name in ("g0/0", "g1/0")] == [0, 0]
    assert forgotten == [{}, {}, {}, {}], "the message was to be forgotten before its copy arrives"
    late = [e for e in s.recorder.events if e.kind == "receive" and e.type == "Multicast" and (e.time or 0) > 1e8]
    assert late, "the copy was to arrive late"
    for g in (0, 1):
        same_everywhere(s, g, ["c0:0"])
    return s


@scenario
def s14_collection_versus_recovery() -> Script:
    """g0/0 alone in its group delivers and dies; g1 is long done, and must not have forgotten what g0 still needs."""
    s = script(heartbeat=5)
    s.delay("g0/0", None, "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(4.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    assert s.sent("Outcome"), "g0 was to learn the timestamp from g1"
    return s


@scenario
def s15_reconnect() -> Script:
    """A DELIVER is lost on a link and the next arrives: the follower fetches what it lacks, without an election."""
    s = script(heartbeat=5)
    lost = s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.normal(lost))
    s.at(6, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    assert s.sent("Fetch", "g0/1") and not s.sent("NewLeader")
    return s


@scenario
def s16_forgotten_while_blocked() -> Script:
    """A leader that nobody follows has m committed behind m'; it learns from a follower that both are delivered."""
    s = script(heartbeat=20)
    for i in range(3):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 1))
    s.delay("g1/0", "g0/0", "Accept", 400)
    s.delay(None, "g0/0", "Outcome", 400)
    s.delay("g0/1", "g0/0", None, 60)
    s.at(40, lambda: s.multicast("c1", 0, 1))  # m': timestamp 1 in g0, 4 in g1
    s.at(40.5, lambda: s.multicast("c2", 0))  # m: timestamp 2
    s.at(46, lambda: s.recover("g0/1"))

    def blocked() -> None:
        leader = process(s, "g0/0")
        assert leader.candidate.status == LEADER and [e.phase for e in leader.entries.values()] == [PROPOSED, COMMITTED]

    def learnt() -> None:
        leader = process(s, "g0/0")
        assert leader.candidate.status == LEADER and leader.candidate.cballot == 0 and leader.prefix.position == 2

    s.at(45, blocked)
    s.at(85, learnt)
    s.at(200, lambda: s.multicast("c0", 0))
    s.run()
    same_everywhere(s, 0, ["c2:0", "c1:0", "c0:3"])
    return s


@scenario
def s17_resurrection() -> Script:
    """g0/2 alone accepted m in an old ballot; the next leader delivered without it: m must not come back as it was."""
    s = script(3, 3, 3)
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 2))
    s.delay("g1/0", "g0/0", "Accept", 100)
    s.delay("g1/0", "g0/1", "Accept", 100)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.delay("g0/1", "g0/2", None, 100)
    s.at(105, lambda: s.recover("g0/1"))
    s.at(110, lambda: s.multicast("c2", 0, 2))
    s.at(140, lambda: s.recover("g0/2"))
    s.run()
    same_everywhere(s, 0, ["c2:0", "c1:0"])
    assert s.event("deliver", "g0/1", "c2:0").ts == (7, "g2")
    return s


@scenario
def s18_reply_lost() -> Script:
    """Everybody delivered, the leader dies before it replies: the new one answers when the client asks again."""
    s = script(heartbeat=5)
    s.delay("g0/0", "c0", "Reply", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(5.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    assert process(s, "c0").idle(), "the client was to get its answer"
    return s


@scenario
def s19_old_acks() -> Script:
    """As s04, but g0/1 has led before and holds an acknowledgement of that ballot: it must not count again."""
    s = script(3, 3, 3)
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 2))
    s.at(70, lambda: s.recover("g0/1"))
    s.at(80, lambda: s.recover("g0/0"))
    s.at(90, lambda: [s.delay("g1/0", name, "Accept", 200) for name in ("g0/0", "g0/1")])
    s.at(90, lambda: [s.delay("g0/1", None, "NewState", NEVER), s.delay("g0/1", "g0/2", "NewLeader", NEVER)])
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(110, lambda: s.multicast("c2", 0, 2))
    s.at(120, lambda: s.recover("g0/1"))
    s.at(130, lambda: s.crash("g0/1"))
    s.at(140, lambda: s.recover("g0/2"))
    s.run()
    assert s.deliveries("g0/1") == []
    same_everywhere(s, 0, ["c1:0", "c2:0"], but=("g0/1",))
    return s


@scenario
def s20_leader_restarts() -> Script:
    """g0/1 restarts while an acknowledgement of its ballot is still under way: that ballot is over for it."""
    s = script(durable=True, heartbeat=10)
    s.delay("g0/2", "g0/1", "NewStateAck", 53)
    s.at(1, lambda: s.recover("g0/1"))
    for client in ("c0", "c1"):
        process(s, client).cur_leader[0] = s.topology.pid("g0/1")
    s.at(2, lambda: [s.delay(name, None, "NewLeader", NEVER) for name in ("g0/0", "g0/2")])
    s.delay("g1/0", "g0/1", "Accept", 50)
    s.delay("g0/1", "g0/0", "Accept", NEVER)  # so that g0/2 alone accepts m
    s.at(6, lambda: s.multicast("c0", 0, 1))
    s.at(10, lambda: s.crash("g0/1", lose=False))
    s.at(12, lambda: s.restart("g0/1"))

    def over() -> None:
        restarted = process(s, "g0/1")
        assert not restarted.rejoining() and restarted.candidate.ballot == restarted.candidate.cballot == ballot(1, 1)
        received = [e for e in s.recorder.events if (e.kind, e.process, e.type) == ("receive", "g0/1", "NewStateAck")]
        assert [e.peer for e in received] == ["g0/0", "g0/2"]

    s.at(57.5, over)
    s.at(57.6, lambda: s.multicast("c1", 0))
    s.at(80, lambda: s.network.rules.clear())
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/0"))
    assert sorted(s.deliveries("g0/0")) == ["c0:0", "c1:0"]
    return s


@scenario
def s21_snapshot_forgets_what_a_new_state_dropped() -> Script:
    """m was accepted in an old ballot, dropped by the next, left out of a snapshot, then delivered: it is on disk."""
    s = script(durable=True, heartbeat=15)
    s.delay("g1/0", "g0/0", "Accept", 12)
    s.delay("g1/0", "g0/1", "Accept", 12)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.delay("g0/2", "g0/1", "NewLeaderAck", 5)
    s.at(4, lambda: s.recover("g0/1"))
    s.at(8, lambda: s.crash("g0/2", lose=False))
    s.at(8.5, lambda: s.restart("g0/2"))
    s.at(8.7, lambda: dropped.extend(e.phase == START and e.recorded for e in process(s, "g0/2").entries.values()))
    s.at(8.7, lambda: Snapshot(s.topology.pid("g0/2")).act(s.world))
    s.at(8.7, lambda: s.delay("g1/0", "g0/2", "Accept", 100))
    s.at(61, lambda: s.crash("g0/2", lose=False))
    s.at(62, lambda: s.world.restart(s.topology.pid("g0/2")))
    dropped: list[bool] = []
    s.run()
    assert dropped == [True], "m was to be on disk, and in no ballot"
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s23_lost_disk() -> Script:
    """g0/2 loses its disk while it is voted with, tells the others, crashes again, and becomes a member in the end."""
    s = script(durable=True, heartbeat=20)
    lost = s.topology.pid("g0/2")
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.delay("g0/0", "g0/1", "NewLeaderAck", 15)
    s.at(57, lambda: s.recover("g0/1"))
    s.at(60, lambda: s.crash("g0/2", lose=False))

    def come_back() -> None:
        assert lost in process(s, "g0/1").candidate.votes
        assert process(s, "g0/1").prefix.collection.delivered_by[2] != BOTTOM
        s.world.disks[lost].lost = True
        s.restart("g0/2")

    def come_back_again() -> None:
        for name in ("g0/0", "g0/1"):
            assert lost not in process(s, name).candidate.votes
            assert process(s, name).prefix.collection.delivered_by[2] == BOTTOM
        s.crash("g0/2")
        s.restart("g0/2")
        assert process(s, "g0/2").candidate.rejoining

    s.at(60.5, come_back)
    s.at(61.7, come_back_again)
    s.at(66, lambda: s.multicast("c1", 0, 1))
    s.at(250, lambda: s.crash("g0/2", lose=False))
    s.at(251, lambda: s.restart("g0/2"))
    s.at(300, lambda: s.multicast("c2", 0, 1))
    s.run()
    assert not process(s, "g0/2").rejoining()
    assert s.world.disks[lost].starts == 4, "its last start was to be an ordinary one"
    same_everywhere(s, 0, ["c0:0", "c1:0", "c2:0"])
    return s


@scenario
def s22_many_false_suspicions() -> Script:
    """Suspicions that no silence explains do not make the members patient: a real crash is noticed in time."""
    s = script(3, heartbeat=5)
    for i in range(9):
        s.at(10 + 40 * i, lambda i=i: s.recover(f"g0/{1 - i % 2}"))  # type: ignore[misc]
    s.at(410, lambda: (leads.append(process(s, "g0/1").candidate.status == LEADER), s.crash("g0/1")))
    s.at(411, lambda: s.multicast("c0", 0))
    leads: list[bool] = []
    s.run()
    assert leads == [True]
    assert s.latency("g0/0", "c0:0") < 60
    return s


def finished(s: Script) -> Script:
    """Check a scenario that has run as all of them are checked."""
    assert not s.world.stalled, "the run did not finish its work"
    assert [v for v in check(s.recorder.events) if v.status != "ok"] == []
    for pid in range(s.topology.replicas):
        if s.world.up(pid):
            member = process(s, s.topology.name(pid))
            assert all(e.phase == COMMITTED for e in member.entries.values() if member.candidate.status == LEADER)
    return s


def run(name: str) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return finished(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    compare("white_box", name, (SCENARIOS[name].__doc__ or "") + "\n\n" + transcript(s), rewrite)
