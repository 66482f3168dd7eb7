"""Scenarios of White-Box's recovery: prefixes by pull, bounded votes, replicas that forgot, leaders that stay.

They go on from those in test_white_box.py. g0 = {g0/0, g0/1, g0/2}; times are in δ. The numbers are those of the note
on membership and recovery.
"""

from collections.abc import Callable
from itertools import pairwise

import pytest

from amcast.core.capabilities import Electing
from amcast.core.order import ballot, leader_of, time_of, timestamp
from amcast.core.topology import Mid
from amcast.protocols.parts.leader_candidate import LEADER
from amcast.protocols.white_box.message_state import ACCEPTED, COMMITTED, PROPOSED
from amcast.sim.faults import CopyDisk, LoseDisk, Snapshot
from amcast.sim.script import DELTA, NEVER, Script
from tests.scenarios.golden import compare, transcript
from tests.scenarios.test_white_box import finished, process, same_everywhere, script

Scenario = Callable[[], Script]
SCENARIOS: dict[str, Scenario] = {}
KINDS = ("multicast", "deliver", "crash", "restart", "leader")


def scenario(build: Scenario) -> Scenario:
    SCENARIOS[build.__name__] = build
    return build


def client_of(s: Script, client: str, leader: str) -> None:
    """Let a client know who will lead, so that it need not ask all."""
    process(s, client).cur_leader[0] = s.topology.pid(leader)


def copy_disk(s: Script, name: str) -> None:
    CopyDisk(s.topology.pid(name)).act(s.world)


def put_back(s: Script, name: str, clean: bool = False) -> None:
    """Crash a process and put its disk back to the last copy."""
    s.crash(name, lose=False)
    disk = s.world.disks[s.topology.pid(name)]
    assert disk.copy is not None and (disk.copy, disk.starts_of_copy) != (disk.durable, disk.starts)
    disk.durable = list(disk.copy)
    disk.starts = disk.starts_of_copy
    disk.clean = clean


def starts(s: Script, name: str) -> int:
    return s.world.disks[s.topology.pid(name)].starts


def position(s: Script, name: str) -> int:
    found = process(s, name).position()
    assert isinstance(found, int)
    return found


@scenario
def s27_prefix_before_the_acknowledgement() -> Script:
    """g0/0 alone delivers m and begins a ballot behind it; nobody can fetch m, so nobody may enter; g0/0 dies."""
    s = script(3)
    s.delay("g0/0", "g0/2", "Accept", NEVER)
    s.delay("g0/0", None, "Deliver", NEVER)
    s.delay("g0/0", "g0/1", "NewLeader", NEVER)
    fetches = s.delay(None, "g0/0", "Fetch", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.recover("g0/0"))

    def nobody_entered() -> None:
        assert s.deliveries("g0/0") == ["c0:0"]
        assert len(s.sent("NewState", "g0/0")) == 2 and {e.process for e in s.sent("Fetch")} == {"g0/1", "g0/2"}
        assert not s.sent("NewStateAck")
        s.crash("g0/0")
        s.normal(fetches)

    s.at(15, nobody_entered)
    s.at(20, lambda: s.recover("g0/1"))
    s.at(21, lambda: (client_of(s, "c1", "g0/1"), s.multicast("c1", 0)))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


def forgetful_leader(follower_delivers: bool) -> Script:
    """Let g0/0 and g0/1 accept m, and g0/0 forget it and lead again with g0/2, which knows nothing of m."""
    s = script(3, durable=True, heartbeat=100)
    s.delay("g0/0", "g0/2", "Accept", NEVER)
    s.delay("g0/0", "g0/2", "Deliver", NEVER)
    if not follower_delivers:
        s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.at(1, lambda: copy_disk(s, "g0/0"))
    s.at(1, lambda: s.multicast("c0", 0))

    def forget() -> None:
        assert process(s, "c0").idle(), "the client was to get its answer"
        assert (position(s, "g0/1"), position(s, "g0/2")) == (follower_delivers, 0)
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
    assert process(s, "g0/0").candidate.cballot == ballot(1, 0)
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario
def s28_own_word_of_a_leader() -> Script:
    """g0/0 and g0/1 accept m, its client is answered; g0/0 forgets it, and leads again with g0/2: m is still first."""
    return forgetful_leader(follower_delivers=False)


@scenario
def s28_own_word_of_a_leader_and_a_delivery() -> Script:
    """As before, but g0/1 has delivered m: g0/0 needs the prefix before it takes part, for m is in no vote."""
    return forgetful_leader(follower_delivers=True)


@scenario
def s29_foreign_witness() -> Script:
    """g0/1 forgets that it accepted m while g0/0 is away, and only g1/0 has counted on it: that finds it out."""
    s = script(durable=True, heartbeat=20)
    for leader in ("g0/0", "g1/0"):
        s.delay(leader, "g0/2", "Accept", NEVER)
    s.delay("g0/1", "g0/0", None, NEVER)
    s.at(1, lambda: copy_disk(s, "g0/1"))
    s.at(1, lambda: s.multicast("c0", 0, 1))

    def forget() -> None:
        assert s.sent("Deliver", "g1/0") and not s.sent("Deliver", "g0/0"), "g1/0 has counted on g0/1"
        s.crash("c0", "g0/0", lose=False)
        s.network.rules.clear()
        put_back(s, "g0/1", clean=True)  # nobody can tell by its end

    s.at(5, forget)
    s.at(6, lambda: s.restart("g0/1"))
    s.at(300, lambda: s.restart("g0/0"))
    s.at(500, lambda: s.multicast("c1", 0, 1))
    s.run()
    assert starts(s, "g0/1") == 3, "it was to be found out"
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    same_everywhere(s, 1, ["c0:0", "c1:0"])
    return s


def late_group(s: Script, until: float) -> list[Mid]:
    """Let g0 deliver m, which g1 has accepted; its leader dies before it commits m, and is replaced much later."""
    mids: list[Mid] = []
    for rank in (1, 2):
        s.delay(f"g1/{rank}", "g1/0", "AcceptAck", NEVER)
        elections = s.delay(f"g1/{rank}", None, "NewLeader", NEVER)
        s.at(until, lambda rule=elections: s.normal(rule))  # type: ignore[misc]
    s.at(1, lambda: mids.append(s.multicast("c0", 0, 1)))
    s.at(7, lambda: s.crash("g1/0"))
    return mids


def only_the_outcome_is_left(s: Script, mid: Mid) -> None:
    for name in ("g0/0", "g0/1", "g0/2"):
        member = process(s, name)
        assert member.entries == {} and list(member.prefix.outcomes) == [mid], name
        assert member.prefix.recent.size() == 0, name
        assert position(s, "g1/1") == position(s, "g1/2") == 0


@scenario
def s30_collected_and_still_needed() -> Script:
    """All of g0 have delivered m and kept its timestamp only; the leader of g1 is dead, the next one needs it."""
    s = script(durable=True, heartbeat=20)
    mids = late_group(s, 300)
    s.at(200, lambda: [Snapshot(pid).act(s.world) for pid in s.topology.groups[0]])
    s.at(200, lambda: s.crash("g0/0", "g0/1", "g0/2", lose=False))
    s.at(201, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    s.at(300, lambda: only_the_outcome_is_left(s, mids[0]))
    s.run()
    assert s.sent("Outcome")
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"], but=("g1/0",))
    return s


@scenario
def s30_collected_and_all_came_by_snapshot() -> Script:
    """As before; meanwhile the members of g0 lose their disks one after the other, and come back by snapshots."""
    s = script(durable=True, heartbeat=20, tail_bytes=1)
    mids = late_group(s, 1500)
    for i, pid in enumerate(s.topology.groups[0]):
        s.at(200 + 400 * i, lambda pid=pid: LoseDisk(pid, DELTA).act(s.world))  # type: ignore[misc]
    s.at(1400, lambda: only_the_outcome_is_left(s, mids[0]))
    s.run()
    assert [starts(s, f"g0/{rank}") for rank in range(3)] == [2, 2, 2]
    assert s.sent("Outcome")
    same_everywhere(s, 1, ["c0:0"], but=("g1/0",))
    return s


@scenario
def s31_follower_away_for_long() -> Script:
    """Many messages while g0/2 is away; g0/0 dies soon after it is back: votes and memory do not know how many."""
    s = script(3, durable=True, heartbeat=5, tail_bytes=2000)
    s.at(5, lambda: s.crash("g0/2", lose=False))  # it has accepted the first one
    for i in range(300):
        s.at(2 + i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    footprints: list[int] = []
    for time in (100, 300):
        s.at(time, lambda: footprints.append(max(process(s, f"g0/{rank}").footprint() for rank in (0, 1))))
    s.at(300.5, lambda: s.restart("g0/2"))
    s.at(303, lambda: s.crash("g0/0", lose=False))
    s.run()
    assert footprints[1] <= footprints[0] + 2 and footprints[1] < 40, footprints
    votes = s.sent("NewLeaderAck")
    assert votes and max(len(e.about or ()) for e in votes) < 10
    assert max(e.size or 0 for e in votes) < 1000
    assert process(s, "g0/2").prefix.recent.begin > 200, "it was to come by snapshot"
    assert len(s.deliveries("g0/1")) == 300
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    return s


@scenario
def s32_server_of_a_snapshot_dies() -> Script:
    """g0/2 pulls a snapshot; its server dies before it has it, the others go on, and another one serves it."""
    s = script(3, durable=True, heartbeat=5, tail_bytes=500)
    s.at(1, lambda: s.crash("g0/2", lose=False))
    for i in range(60):
        s.at(2 + 3 * i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    s.at(100, lambda: s.restart("g0/2"))
    died: list[int] = []

    def die() -> None:
        prefix = process(s, "g0/2").prefix
        if not died and prefix.fetch_after > s.world.now + 60 * DELTA:  # it pulls
            died.append(prefix.position)
            s.crash("g0/0", lose=False)

    for i in range(200):
        s.at(101 + i / 4, die)
    s.run()
    assert died == [0], "it was to die before g0/2 had anything"
    assert process(s, "g0/2").prefix.recent.begin > 30, "it was to come by a later snapshot"
    assert len(s.deliveries("g0/1")) == 60
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    return s


@scenario
def s41_leader_behind_its_followers() -> Script:
    """The DELIVER of the old leader reaches g0/2 after it has voted, and g0/1 not at all, which leads: it learns m."""
    s = script(3, heartbeat=5)
    s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.delay("g0/0", "g0/2", "Deliver", 5)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(4.5, lambda: s.crash("g0/0", lose=False))
    s.at(5, lambda: s.recover("g0/1"))

    def behind() -> None:
        assert process(s, "g0/1").candidate.status == LEADER
        assert (position(s, "g0/1"), position(s, "g0/2")) == (0, 1)

    s.at(9.5, behind)
    s.at(11, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario
def s41_leader_learns_what_blocked_another_message() -> Script:
    """As before, but the DELIVER of the old leader comes late: m2, committed behind m, must not wait any longer."""
    s = script(3)
    s.delay("g0/0", "g0/1", "Deliver", 30)
    s.delay("g0/0", "g0/2", "Deliver", 5)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(4.5, lambda: s.crash("g0/0", lose=False))
    s.at(5, lambda: s.recover("g0/1"))
    client_of(s, "c1", "g0/1")
    s.at(11, lambda: s.multicast("c1", 0))

    def blocked() -> None:
        leader = process(s, "g0/1")
        assert leader.leads() and sorted(e.phase for e in leader.entries.values()) == [ACCEPTED, COMMITTED]

    s.at(33, blocked)
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


def older_copy(name: str, away: str, restart_before: bool = False) -> Script:
    """Put the disk of a member back while another one is away for longer than the grace time."""
    s = script(3, durable=True, heartbeat=10)
    expected = ["c0:0", "c2:0"]
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(45, lambda: copy_disk(s, name))
    if restart_before:
        s.at(46, lambda: s.crash(name, lose=False))
        s.at(47, lambda: s.restart(name))
    else:
        expected.insert(1, "c1:0")
        s.at(50, lambda: s.multicast("c1", 0))
    s.at(100, lambda: s.crash(away, lose=False))
    s.at(101, lambda: put_back(s, name, clean=True))  # nobody can tell by its end
    s.at(102, lambda: s.restart(name))
    s.at(110, lambda: s.multicast("c2", 0))
    s.at(250, lambda: waiting.append(process(s, name).unready()))
    s.at(251, lambda: s.restart(away))
    waiting: list[str] = []
    s.run()
    assert waiting == [f"rejoining: waits for {away} to count on nothing that it said before"]
    same_everywhere(s, 0, expected)
    return s


@scenario
def s42_older_copy_of_a_follower() -> Script:
    """The folder of g0/1 is put back while g0/2 is away: g0/0 finds it out, and it comes back when g0/2 knows."""
    return older_copy("g0/1", away="g0/2")


@scenario
def s42_older_copy_of_the_leader() -> Script:
    """The folder of g0/0, which led, is put back while g0/2 is away: g0/1 finds it out."""
    return older_copy("g0/0", away="g0/2")


@scenario
def s42_older_copy_from_before_the_last_start() -> Script:
    """The folder of g0/1 is put back to before its last start, since when it said little: the start is remembered."""
    return older_copy("g0/1", away="g0/2", restart_before=True)


def lost_end(s: Script, crash_at: float) -> None:
    """Let g0/1 accept m and lose its records, and start again while g0/0, which counted on them, is away."""
    s.delay("g0/0", "g0/2", "Accept", NEVER)
    for name in ("g0/1", "g0/2"):
        s.delay("g0/0", name, "Deliver", NEVER)
        s.delay(name, "g0/0", "Fetch", NEVER)
        s.delay(None, name, "Marks", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))

    def lose_the_end() -> None:
        assert process(s, "c0").idle() and position(s, "g0/0") == 1, "the client was to get its answer"
        assert position(s, "g0/1") == position(s, "g0/2") == 0
        s.crash("g0/0", "g0/1", lose=False)
        s.network.rules.clear()
        disk = s.world.disks[s.topology.pid("g0/1")]
        assert disk.durable
        disk.durable.clear()
        disk.clean = False

    def come_back() -> None:
        assert process(s, "g0/1").unready().endswith("waits for g0/0 to say what they remember of it")
        s.restart("g0/0")

    s.at(crash_at, lose_the_end)
    s.at(crash_at + 1, lambda: s.restart("g0/1"))
    s.at(100, lambda: s.multicast("c1", 0))
    s.at(300, come_back)


@scenario
def s43_lost_end_of_the_records() -> Script:
    """g0/1 lost what it accepted, and its driver cannot tell; g0/0, who knows, is away: g0/1 waits for its word."""
    s = script(3, durable=True, heartbeat=10)
    lost_end(s, 25)
    s.run()
    assert starts(s, "g0/1") == 3, "g0/0 was to find it out"
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario
def s43_lost_end_and_a_witness_that_forgot_it() -> Script:
    """As before, but g0/0 crashed before it wrote down what it had heard; it answers, and is gone: m is still first."""
    s = script(3, durable=True, heartbeat=10)
    lost_end(s, 6)
    s.at(307, lambda: s.crash("g0/0", lose=False))
    s.at(308, lambda: s.recover("g0/1"))
    s.at(400, lambda: s.restart("g0/0"))
    s.run()
    assert starts(s, "g0/1") == 2, "g0/0 was to have forgotten what it heard"
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario
def s43_lost_ballot_and_a_witness_that_restarted() -> Script:
    """g0/1 forgot the ballot that it entered and m; g0/0, which counted on both, restarted: it must remember that."""
    s = script(3, durable=True, heartbeat=50)
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.at(1, lambda: s.recover("g0/0"))
    s.at(6, lambda: s.multicast("c0", 0))

    def forget() -> None:
        assert process(s, "c0").idle() and process(s, "g0/0").candidate.cballot == ballot(1, 0)
        s.world.disks[s.topology.pid("g0/0")].lose()  # it had not written that m is delivered
        s.crash("g0/0", "g0/1", lose=False)
        s.network.rules.clear()
        disk = s.world.disks[s.topology.pid("g0/1")]
        disk.durable.clear()
        disk.clean = False

    s.at(12, forget)
    s.at(13, lambda: s.restart("g0/0"))
    s.at(14, lambda: s.restart("g0/1"))
    s.at(15.5, lambda: s.crash("g0/0", lose=False))
    s.at(20, lambda: s.recover("g0/1"))
    s.at(21, lambda: s.multicast("c1", 0))
    s.at(300, lambda: s.restart("g0/0"))
    s.run()
    assert starts(s, "g0/1") == 3, "g0/0 was to find it out"
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario
def s44_everything_restarts_at_once() -> Script:
    """All replicas crash under load and start again: they take part after a round trip, or two where they must fetch
    what others had delivered, and nobody is replaced."""
    s = script(durable=True, heartbeat=10)
    everybody = [s.topology.name(pid) for pid in range(s.topology.replicas)]
    for i in range(40):
        s.at(1 + i, lambda i=i: s.multicast(f"c{i % 3}", *((0,), (0, 1), (1,))[i % 3]))  # type: ignore[misc]
    s.at(30, lambda: s.crash(*everybody))
    s.at(35, lambda: s.restart(*everybody))
    for time in (35, 37.001, 39.001):
        s.at(time, lambda: on_probation.append([name for name in everybody if process(s, name).probation.active]))
    on_probation: list[list[str]] = []
    s.run()
    assert on_probation[0] == everybody and 0 < len(on_probation[1]) < 6 and on_probation[2] == []
    assert [starts(s, name) for name in everybody] == [2] * 6
    for g in (0, 1):
        assert len(s.deliveries(f"g{g}/0")) == 27 - g
        same_everywhere(s, g, s.deliveries(f"g{g}/0"))
    return s


def leaders(s: Script) -> list[str]:
    return [e.process for e in s.recorder.events if e.kind == "leader" and e.process.startswith("g0/")]


@scenario
def s48_first_member_restarts() -> Script:
    """g0/0 crashes and comes back: one election in all, none at its return."""
    s = script(3, durable=True, heartbeat=5)
    for i in range(20):
        s.at(1 + 10 * i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    s.at(20, lambda: s.crash("g0/0"))
    s.at(100, lambda: s.restart("g0/0"))
    s.run()
    assert leaders(s) == ["g0/0", "g0/1"]
    assert len(s.deliveries("g0/0")) == 20
    same_everywhere(s, 0, s.deliveries("g0/0"))
    return s


@scenario
def s48_handover_under_load() -> Script:
    """g0/0 hands over to g0/2 while messages come: the next delivery is less than three heartbeats away."""
    s = script(3, durable=True, heartbeat=5)
    for i in range(60):
        s.at(1 + i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    g0 = [s.topology.pid(f"g0/{rank}") for rank in range(3)]
    s.at(30, lambda: s.world.tell(g0[0], Electing, lambda p, now: p.hand_over(now, g0[2])))
    s.run()
    assert leaders(s) == ["g0/0", "g0/2"]
    times = sorted((e.time or 0) / DELTA for e in s.recorder.events if e.kind == "send" and e.type == "Reply")
    assert len(times) >= 60 and max(b - a for a, b in pairwise(times)) < 15
    assert len(s.deliveries("g0/0")) == 60
    same_everywhere(s, 0, s.deliveries("g0/0"))
    return s


@scenario
def s52_requests_during_an_election() -> Script:
    """What g0/0 had proposed, and what reaches g0/1 and g0/2 while they elect, is ordered without being sent again."""
    s = script()
    s.delay("g0/0", None, "Accept", NEVER)
    s.delay("g1/0", "g0/0", "Accept", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(3, lambda: s.recover("g0/1"))
    for rank in (1, 2):
        client_of(s, f"c{rank}", f"g0/{rank}")
        s.at(3.6, lambda rank=rank: s.multicast(f"c{rank}", 0))  # type: ignore[misc]
    s.at(5, lambda: [states.append(len(process(s, f"g0/{rank}").kept.waiting)) for rank in (1, 2)])
    states: list[int] = []
    s.at(13, lambda: early.extend(sorted(s.deliveries("g0/1"))))
    early: list[str] = []
    s.run()
    assert states == [1, 1], "they were to come during the election"
    assert len(s.sent("Multicast", "g0/0")) == 1, "g0/0 was to pass on what it had proposed"
    assert early == ["c0:0", "c1:0", "c2:0"], "before a client sends anything again"
    same_everywhere(s, 0, s.deliveries("g0/1"))
    return s


@scenario
def s53_leader_that_hears_nobody() -> Script:
    """g0/0 is heard and hears nobody: it stops its heartbeats, so the others find another leader."""
    s = script(3, heartbeat=5)
    for rank in (1, 2):
        s.delay(f"g0/{rank}", "g0/0", None, NEVER)
    s.at(100, lambda: s.multicast("c0", 0))
    s.at(300, lambda: s.network.rules.clear())
    s.run()
    assert leaders(s)[:2] == ["g0/0", "g0/1"]
    assert s.latency("g0/1", "c0:0") < 60
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s30_proposed_only() -> Script:
    """g0 has delivered m with a quorum of g1 in which its leader is not: that has only proposed m, and is told."""
    s = script(heartbeat=5)
    for i in range(3):
        s.at(1 + 5 * i, lambda: s.multicast("c1", 0))  # so that the timestamp of g0 is the higher one
    s.delay("g0/0", "g1/0", "Accept", NEVER)
    s.at(20, lambda: s.multicast("c0", 0, 1))
    s.at(24.5, lambda: phases.extend(e.phase for e in process(s, "g1/0").entries.values()))
    phases: list[int] = []
    s.run()
    assert phases == [PROPOSED]
    same_everywhere(s, 0, ["c1:0", "c1:1", "c1:2", "c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario
def s30_outcome_for_a_leader_that_was_replaced() -> Script:
    """g1/0 does not know that g1/1 leads, and hears that m was delivered: it must not deliver m where x was."""
    s = script(heartbeat=5)
    s.delay("g1/1", "g1/0", None, 200)
    s.delay("g1/2", "g1/0", "Heartbeat", NEVER)
    for rank in range(3):
        s.delay("g1/0", f"g0/{rank}", "Accept", NEVER)
    s.delay(None, None, "Floor", NEVER)
    s.at(1, lambda: s.recover("g1/1"))
    process(s, "c1").cur_leader[1] = s.topology.pid("g1/1")
    s.at(8, lambda: s.multicast("c1", 1))  # x
    s.at(9, lambda: s.multicast("c0", 0, 1))  # m, first to g1/0 and then to all
    outcomes: list[bool] = []

    def told() -> None:
        old = process(s, "g1/0")
        outcomes.append(old.leads() and position(s, "g0/0") == 1 and position(s, "g1/0") == 0)

    s.at(60, told)
    s.at(220, lambda: s.network.rules.clear())
    s.run()
    assert outcomes == [True] and [e for e in s.sent("Outcome") if e.peer == "g1/0" and (e.time or 0) < 60 * DELTA]
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c1:0", "c0:0"])
    return s


@scenario
def s30_outcome_with_another_timestamp() -> Script:
    """g1/0 has the acknowledgements of its group for what g0/0 proposed; m was delivered with what g0/1 proposed."""
    s = script(heartbeat=5)
    s.delay("g0/0", "g0/1", "Accept", NEVER)
    s.delay("g0/0", "g0/2", "Accept", NEVER)
    s.delay("g1/1", "g1/0", None, 200)
    s.delay("g1/2", "g1/0", "Heartbeat", NEVER)
    s.delay(None, None, "Floor", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))  # m: 1 in both groups, and only g1 accepts it
    s.at(4.5, lambda: s.crash("g0/0"))
    s.at(5, lambda: s.recover("g0/1"))
    client_of(s, "c2", "g0/1")
    for _ in range(5):
        s.at(8.5, lambda: s.multicast("c2", 0))  # so that g0/1 proposes 6 for m
    s.at(8, lambda: s.recover("g1/1"))
    process(s, "c1").cur_leader[1] = s.topology.pid("g1/1")
    s.at(11.5, lambda: s.multicast("c1", 1))  # x: 2 in g1, so it comes before m
    held: list[list[tuple[int, int, int]]] = []

    def told() -> None:
        old = process(s, "g1/0")
        assert old.leads() and position(s, "g1/0") == 0 and position(s, "g1/1") == 2
        for entry in old.entries.values():
            assert entry.outcome == timestamp(6, 0)
            held.append([(leader_of(v.bal[0]), time_of(v.gts), v.counts[1]) for v in entry.vectors])

    s.at(60, told)
    s.at(220, lambda: s.network.rules.clear())
    s.run()
    assert held == [[(0, 1, 2), (1, 6, 1)]], "quorum with another timestamp, and that timestamp without a quorum"
    same_everywhere(s, 1, ["c1:0", "c0:0"])
    return s


def delivered_elsewhere() -> Script:
    """g0/0 crashes while m is under way, and g1 has delivered m when g0/1 takes over. Nobody is asked who leads."""
    s = script()
    s.delay(None, None, "Confirm", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(3.5, lambda: s.crash("g0/0"))
    s.at(4, lambda: s.recover("g0/1"))
    return s


@scenario
def s30_outcome_behind_the_acknowledgements() -> Script:
    """g0 has accepted m again when its leader hears that g1 has delivered m: that is enough."""
    s = delivered_elsewhere()
    s.delay(None, "g0/1", "Outcome", 1.5)
    s.run()
    assert s.sent("Outcome") and s.event("deliver", "g0/1", "c0:0").time == 10.5 * DELTA
    return s


@scenario
def s30_outcome_before_the_acknowledgements() -> Script:
    """The leader of g0 hears that g1 has delivered m, and then that g0 has accepted m again: that is enough."""
    s = delivered_elsewhere()
    s.delay("g0/2", "g0/1", "AcceptAck", 1.5)
    s.run()
    assert s.sent("Outcome") and s.event("deliver", "g0/1", "c0:0").time == 10.5 * DELTA
    return s


@scenario
def s54_candidate_behind_a_voter() -> Script:
    """g0/2 has delivered m, of which the candidate g0/1 knows nothing: it fetches m before it begins its ballot."""
    s = script(3)
    s.delay("g0/0", "g0/1", "Accept", NEVER)
    s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5.5, lambda: s.crash("g0/0", lose=False))
    s.at(6, lambda: [states.append(position(s, name)) for name in ("g0/1", "g0/2")])
    s.at(6, lambda: s.recover("g0/1"))
    client_of(s, "c1", "g0/1")
    s.at(7, lambda: s.multicast("c1", 0))
    states: list[int] = []
    s.run()
    assert states == [0, 1]
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario
def s55_no_vote_without_a_disk() -> Script:
    """g0/1 lost its disk and what it accepted; it restarts from a snapshot, is asked for a vote, and gives none."""
    s = script(3, durable=True, heartbeat=50, tail_bytes=1)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(60, lambda: s.delay("g0/0", "g0/2", None, NEVER))
    s.at(60, lambda: s.delay("g0/0", "g0/1", "Deliver", NEVER))
    s.at(61, lambda: s.multicast("c1", 0))

    def lose_the_disk() -> None:
        assert process(s, "c1").idle() and position(s, "g0/1") == position(s, "g0/2") == 1
        s.crash("g0/1", lose=False)
        s.world.disks[s.topology.pid("g0/1")].lost = True
        s.network.rules.clear()
        s.restart("g0/1")

    def restart_again() -> None:
        assert position(s, "g0/1") > 0, "it was to have its snapshot"
        s.crash("g0/1", lose=False)
        s.restart("g0/1")
        s.delay("g0/2", "g0/0", None, 40)

    s.at(67, lose_the_disk)
    s.at(74, restart_again)
    s.at(79, lambda: s.recover("g0/2"))
    client_of(s, "c2", "g0/2")
    s.at(80, lambda: s.multicast("c2", 0))
    s.at(90, lambda: votes.extend(e.process for e in s.sent("NewLeaderAck")))
    votes: list[str] = []
    s.run()
    assert votes == [], "g0/1 must not, and g0/0 cannot vote yet"
    same_everywhere(s, 0, ["c0:0", "c1:0", "c2:0"])
    return s


@scenario
def s56_follower_loses_its_disk() -> Script:
    """g0/1 is the first of five to follow, and loses its disk: its word counts no more, and two others are needed."""
    s = script(5, durable=True, heartbeat=50)
    s.delay("g0/2", "g0/0", "NewStateAck", 10)
    s.delay("g0/3", "g0/0", "NewStateAck", 20)
    s.delay("g0/4", "g0/0", "NewStateAck", 30)
    s.at(1, lambda: s.recover("g0/0"))

    def lose_the_disk() -> None:
        assert list(process(s, "g0/0").candidate.followers) == [s.topology.pid("g0/1")]
        s.crash("g0/1", lose=False)
        s.world.disks[s.topology.pid("g0/1")].lost = True
        s.restart("g0/1")

    s.at(6, lose_the_disk)
    for time in (20, 30):
        s.at(time, lambda: leads.append(process(s, "g0/0").leads()))
    leads: list[bool] = []
    s.at(40, lambda: s.multicast("c0", 0))
    s.at(400, lambda: s.crash("g0/1", lose=False))
    s.at(401, lambda: s.restart("g0/1"))
    s.run()
    assert starts(s, "g0/1") == 3, "its last start was to be an ordinary one"
    assert leads == [False, True]
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s57_nothing_comes_back_from_an_older_ballot() -> Script:
    """g0/2 alone accepted m in ballot 0; g0/1 accepted another message in ballot 1, restarts, and takes no m back."""
    s = script(3, 3, 3, durable=True, heartbeat=100)
    for i in range(6):
        s.at(1 + 5 * i, lambda: s.multicast("c0", 2))
    for name in ("g0/0", "g0/1"):
        s.delay("g1/0", name, "Accept", NEVER)
    s.at(40, lambda: s.multicast("c1", 0, 1))
    s.at(42, lambda: s.delay("g0/1", "g0/2", None, NEVER))
    s.at(45, lambda: s.recover("g0/1"))
    client_of(s, "c2", "g0/1")
    s.at(50, lambda: s.multicast("c2", 0, 2))
    s.at(56, lambda: (s.crash("g0/1", lose=False), s.network.rules.clear()))

    def answered() -> None:
        assert process(s, "g0/2").candidate.cballot == 0 and len(process(s, "g0/2").rows()) >= 1
        assert process(s, "g0/1").candidate.cballot == ballot(1, 1) and not process(s, "g0/1").rejoining()
        s.recover("g0/1")

    s.at(57, lambda: s.restart("g0/1"))
    s.at(57, lambda: s.delay("g0/1", "g0/2", "NewLeader", NEVER))
    s.at(61, answered)
    s.run()
    assert sorted(s.deliveries("g0/1")) == ["c1:0", "c2:0"]
    same_everywhere(s, 0, s.deliveries("g0/1"))
    return s


@scenario
def s58_who_had_more_is_gone() -> Script:
    """g0/0 alone has delivered m, says so to g0/1, which restarts, and dies: g0/1 waits until it suspects g0/0."""
    s = script(3, durable=True, heartbeat=10)
    s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.delay("g0/0", "g0/2", "Deliver", NEVER)
    s.delay(None, "g0/0", "Fetch", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.crash("g0/1", lose=False))
    s.at(6, lambda: s.restart("g0/1"))
    s.at(7.5, lambda: s.crash("g0/0", lose=False))
    s.at(30, lambda: waiting.append(process(s, "g0/1").unready()))
    waiting: list[str] = []
    s.at(31, lambda: s.multicast("c1", 0))
    s.run()
    assert waiting == ["may have forgotten something: fetches what others have delivered"]
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario
def s59_dead_leader_refuses() -> Script:
    """g0/0 dies with two requests: who is refused stands at once, and tells the client, which sends all again at once.

    What g0/2 got meanwhile waited there, and needs no client either.
    """
    s = script(3, tells_clients=True)
    s.at(1, lambda: [s.multicast("c0", 0), s.multicast("c0", 0)])
    s.at(1.5, lambda: s.crash("g0/0"))
    s.at(2, lambda: [s.refuse("g0/2", "g0/0"), s.refuse("g0/1", "g0/0")])
    client_of(s, "c1", "g0/2")
    s.at(2, lambda: s.multicast("c1", 0))
    s.at(12.5, lambda: early.extend(s.deliveries("g0/1")))
    early: list[str] = []
    s.run()
    assert sorted(early) == ["c0:0", "c0:1", "c1:0"], "before a client sends anything again by itself"
    assert len(s.sent("Multicast", "c0")) == 4 and len(s.sent("Multicast", "c1")) == 2, "each once more, and no more"
    return s


@scenario
def s60_suspected_and_there() -> Script:
    """g0/2 finds its leader gone, and is wrong: a request waits there until the leader is heard, and no longer."""
    s = script(3, heartbeat=5)
    client_of(s, "c0", "g0/2")
    s.at(1, lambda: s.refuse("g0/2", "g0/0"))
    s.delay("g0/2", None, "NewLeader", NEVER)
    s.delay(None, "g0/0", "Nack", NEVER)
    s.at(1.5, lambda: s.multicast("c0", 0))
    s.at(12.5, lambda: early.extend(s.deliveries("g0/0")))
    early: list[str] = []
    s.run()
    assert early == ["c0:0"], "before the client sends it again"
    return s


def run(name: str) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return finished(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    compare("white_box", name, (SCENARIOS[name].__doc__ or "") + "\n\n" + transcript(s, KINDS), rewrite)
