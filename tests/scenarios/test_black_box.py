"""The adversarial scenarios of the protocols on a replicated log, each with a golden transcript beside this file.

Group g0 is led by g0/0 at first, g1 by g1/0; times are in δ.
"""

from collections.abc import Callable

import pytest

from amcast.checks import check
from amcast.checks.termination import NOTHING_DUE
from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.black_box.ft_skeen import GTS
from amcast.protocols.black_box.replicated_log import LEADER
from amcast.sim.script import NEVER, Script
from tests.scenarios.golden import compare, transcript
from tests.scenarios.test_white_box import process, same_everywhere

Scenario = Callable[[Protocol], Script]
SCENARIOS: dict[str, tuple[tuple[str, ...], Scenario]] = {}
SKEENS = ("ft_skeen", "fastcast")
PAXOS = ("multi_paxos", "paxos_amcast")
COMMIT = {"ft_skeen": 6, "fastcast": 4}  # δ until a leader delivers a message to two groups
PROPOSED = {"ft_skeen": 4, "fastcast": 2}  # δ until it proposes the final timestamp


def scenario(*protocols: str) -> Callable[[Scenario], Scenario]:
    def register(build: Scenario) -> Scenario:
        SCENARIOS[build.__name__] = (protocols, build)
        return build

    return register


def guess_of_a_dying_leader(table: Protocol) -> Script:
    """g1/0 tells g0 that m has (2, g1), and dies before that is decided: its group gives (1, g1) to m."""
    s = Script(table, (3, 3))
    s.delay("g1/0", "g1/1", None, NEVER)
    s.delay("g1/0", "g1/2", None, NEVER)
    s.at(0.5, lambda: (s.multicast("c1", 1), s.crash("c1", lose=False)))
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(2.5, lambda: s.crash("g1/0", lose=False))
    return s


def delivered_with_the_right_timestamp(s: Script) -> None:
    members = [s.topology.name(p) for p in range(s.topology.replicas) if s.world.up(p)]
    assert {s.event("deliver", name, "c0:0").ts for name in members} == {(1, "g1")}


@scenario(*SKEENS)
def s02_client_crash_between_sends(table: Protocol) -> Script:
    """MULTICAST reaches g0/0 only; its retry brings the message to g1, and later messages are not blocked."""
    s = Script(table, (3, 3), heartbeat=5)
    s.delay("c0", "g1/0", "Multicast", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2, lambda: s.multicast("c1", 0, 1))
    s.run()
    for g in (0, 1):
        assert sorted(s.deliveries(f"g{g}/1")) == ["c0:0", "c1:0"]
    return s


@scenario(*SKEENS)
def s03_stale_delivered(table: Protocol) -> Script:
    """g0/0 delivers m, its DELIVERs crawl; g0/1 takes over and dies; g0/0 leads again and must deliver m to g0/2."""
    s = Script(table, (3, 3))
    slow = [s.delay("g0/0", "g0/1", "Deliver", 50), s.delay("g0/0", "g0/2", "Deliver", 50)]
    done = 1 + COMMIT[table.name]
    s.delay("g0/1", "g0/0", "NewLeader", 10)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(done + 1, lambda: s.recover("g0/1"))
    s.at(done + 3.5, lambda: (s.crash("g0/1", lose=False), [s.normal(rule) for rule in slow]))
    s.at(30, lambda: s.recover("g0/0"))
    s.at(80, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/1",))
    return s


@scenario("ft_skeen", "fastcast", "multi_paxos", "paxos_amcast")
def s04_unsynchronised_leader(table: Protocol) -> Script:
    """g0/1 finds m in the log of g0/0 and dies before a quorum has it: m is not decided, g0/1 delivered nothing."""
    s = Script(table, (5,), heartbeat=5)
    s.delay("g0/0", None, "Append", NEVER)
    s.delay("g0/0", None, "Announce", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.delay("g0/1", None, "NewLog", NEVER)
    s.delay("g0/3", "g0/1", "Vote", 40)
    s.delay("g0/4", "g0/1", "Vote", 40)
    s.at(3, lambda: s.recover("g0/1"))
    s.at(6, lambda: s.multicast("c1", 0))
    s.at(6.5, lambda: s.crash("g0/0", "g0/1"))
    s.run()
    assert s.deliveries("g0/0") == s.deliveries("g0/1") == []
    assert sorted(s.deliveries("g0/2")) == ["c0:0", "c1:0"]
    same_everywhere(s, 0, s.deliveries("g0/2"), but=("g0/0", "g0/1"))
    return s


@scenario(*SKEENS)
def s05_clock_recovery(table: Protocol) -> Script:
    """g0/0 delivers m with a high timestamp and dies before anybody hears of it: a later message stays behind m."""
    s = Script(table, (3, 3))
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 1))
    s.delay("g0/0", None, "Deliver", NEVER)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(100.5 + COMMIT[table.name], lambda: s.crash("g0/0", lose=False))
    s.at(110, lambda: s.recover("g0/1"))
    s.at(113.5, lambda: s.multicast("c2", 0))
    s.run()
    assert s.deliveries("g0/0") == ["c1:0"]
    same_everywhere(s, 0, ["c1:0", "c2:0"], but=("g0/0",))
    assert s.event("deliver", "g0/1", "c1:0").ts == (7, "g1")
    assert s.event("deliver", "g0/1", "c2:0").ts == (8, "g0")
    return s


@scenario("ft_skeen", "fastcast", "multi_paxos", "paxos_amcast")
def s06_stuck_follower(table: Protocol) -> Script:
    """A dying candidate convinces one follower; the leader hears of it and brings it back."""
    s = Script(table, (5,), heartbeat=5)
    s.delay("g0/4", None, "NewLeader", NEVER)
    s.delay("g0/4", "g0/3", "NewLeader", 1)
    s.at(2, lambda: s.recover("g0/4"))
    s.at(2.5, lambda: s.crash("g0/4", lose=False))
    s.at(4, lambda: s.multicast("c0", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0"], but=("g0/4",))
    assert process(s, "g0/3").log.cballot == process(s, "g0/0").log.cballot
    return s


@scenario(*SKEENS)
def s08_old_remote_leader(table: Protocol) -> Script:
    """g1/0 is deposed without knowing it and gives out timestamps that are never decided: order stays."""
    s = Script(table, (3, 3))
    for i in range(8):
        s.at(2 + i, lambda: s.multicast("c0", 1))
    s.delay("g1/0", "g1/1", "Append", 40)
    s.delay("g1/0", "g1/2", "Append", 40)
    s.delay("g1/1", "g1/0", None, 60)
    s.at(1, lambda: s.recover("g1/1"))
    s.at(12, lambda: s.multicast("c1", 0, 1))
    s.at(30, lambda: s.multicast("c2", 0))
    s.run()
    assert sorted(s.deliveries("g0/1")) == ["c1:0", "c2:0"]
    same_everywhere(s, 0, s.deliveries("g0/1"))
    same_everywhere(s, 1, s.deliveries("g1/1"))
    return s


@scenario("ft_skeen", "multi_paxos")
def s09_third_vote(table: Protocol) -> Script:
    """The vote of g0/0 comes after the quorum, with a message that the others lack: it changes nothing."""
    s = Script(table, (3,))
    s.delay("g0/0", "g0/1", "Vote", 2)
    s.delay("g0/0", None, "Append", NEVER)
    s.delay("g0/0", None, "Announce", NEVER)
    s.at(2.4, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: s.recover("g0/1"))
    s.run()
    assert len([e for e in s.recorder.events if e.kind == "send" and e.type == "NewLog"]) == 2
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario(*SKEENS, *PAXOS)
def s10_duelling_candidates(table: Protocol) -> Script:
    """Two members outbid each other for a while; nothing is delivered twice and one leader remains."""
    s = Script(table, (3,) if table.single_group else (3, 3), heartbeat=5)
    dest = (0,) if table.single_group else (0, 1)
    for i in range(10):
        s.at(1 + 3 * i, lambda: s.recover("g0/1"))
        s.at(2.5 + 3 * i, lambda: s.recover("g0/2"))
        s.at(3 + 3 * i, lambda i=i: s.multicast(f"c{i % 3}", *dest))  # type: ignore[misc]
    s.run()
    assert len(s.deliveries("g0/0")) == 10
    same_everywhere(s, 0, s.deliveries("g0/0"))
    assert sum(process(s, f"g0/{rank}").log.status == LEADER for rank in range(3)) == 1
    return s


@scenario("ft_skeen", "multi_paxos")
def s11_lost_proposal(table: Protocol) -> Script:
    """A proposal dies with its leader: the client sends again; if that is dead too it is gone, and blocks nothing."""
    s = Script(table, (3,), heartbeat=5)
    s.delay("g0/0", None, "Append", NEVER)
    s.delay("g0/0", None, "Announce", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(1, lambda: s.multicast("c1", 0))
    s.at(2.2, lambda: s.crash("g0/0", "c1"))
    s.at(3, lambda: s.multicast("c2", 0))
    s.run()
    assert sorted(s.deliveries("g0/1")) == ["c0:0", "c2:0"]
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    return s


@scenario(*SKEENS)
def s12_leader_dies_between_delivers(table: Protocol) -> Script:
    """g0/1 got the DELIVER and g0/2 did not: the new leader delivers it there, once and in order."""
    s = Script(table, (3, 3))
    done = 1 + COMMIT[table.name]
    s.delay("g0/0", "g0/2", "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(done + 0.5, lambda: s.crash("g0/0", lose=False))
    s.at(done + 2, lambda: s.recover("g0/2"))
    s.at(done + 3, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario(*SKEENS, *PAXOS)
def s13_late_duplicate(table: Protocol) -> Script:
    """The reply crawls, the client sends again, and the copy arrives when everybody has forgotten the message."""
    groups = 1 if table.single_group else 2
    s = Script(table, (3,) * groups, heartbeat=5)
    s.delay(None, "c0", "Reply", 150)
    s.at(1, lambda: s.multicast("c0", *range(groups)))
    s.at(3, lambda: s.delay("c0", None, "Multicast", 120))
    logs: list[int] = []
    s.at(100, lambda: logs.append(len(process(s, "g0/0").log.entries)))
    s.run()
    assert logs == [0], "the message was to be forgotten before its copy arrives"
    late = [e for e in s.recorder.events if e.kind == "receive" and e.type == "Multicast" and (e.time or 0) > 1e8]
    assert late, "the copy was to arrive late"
    for g in range(groups):
        same_everywhere(s, g, ["c0:0"])
    return s


@scenario(*SKEENS)
def s14_collection_versus_recovery(table: Protocol) -> Script:
    """g0/0 alone in its group delivers and dies; g1 is long done, and must not have forgotten what g0 still needs."""
    s = Script(table, (3, 3), heartbeat=5)
    s.delay("g0/0", None, "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.5 + COMMIT[table.name], lambda: s.crash("g0/0", lose=False))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario("ft_skeen")
def s15_reconnect(table: Protocol) -> Script:
    """A DELIVER is lost on a link and the next arrives: the follower waits with it and fetches what is missing."""
    s = Script(table, (3,), heartbeat=5)
    lost = s.delay("g0/0", "g0/1", "Deliver", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.normal(lost))
    s.at(6, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    assert any(e.type == "Fetch" for e in s.recorder.events if e.kind == "send")
    return s


@scenario("ft_skeen", "multi_paxos")
def s15_lost_append(table: Protocol) -> Script:
    """The same for an entry of the log: what comes behind a gap is not stored, and the leader sends its log again."""
    s = Script(table, (3,), heartbeat=5)
    lost = s.delay("g0/0", "g0/1", "Append", NEVER)
    s.delay("g0/0", "g0/2", "Append", NEVER)
    s.at(0.5, lambda: s.crash("g0/2"))
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.normal(lost))
    s.at(6, lambda: s.multicast("c1", 0))
    s.at(9.5, lambda: s.crash("c0", "c1"))
    s.run()
    assert any(e.type == "Missed" for e in s.recorder.events if e.kind == "send")
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/2",))
    return s


@scenario("multi_paxos")
def s20_answers_of_learners(table: Protocol) -> Script:
    """Members that are no acceptors answer too: the client learns from them who leads, also after a crash."""
    s = Script(table, (7,), heartbeat=5)
    for i in range(6):
        s.at(1 + 40 * i, lambda: s.multicast("c0", 0))
    s.at(50, lambda: s.crash("g0/0"))
    s.run()
    assert [s.latency("g0/6", f"c0:{i}") for i in (1, 3, 4, 5)] == [3, 3, 3, 3]
    return s


@scenario("fastcast")
def s16_wrong_guess(table: Protocol) -> Script:
    """g1/0 tells its timestamp of m, and dies before it is decided; g1/1 gives another: GTS is logged twice in g0."""
    s = guess_of_a_dying_leader(table)
    s.at(5, lambda: s.recover("g1/1"))
    s.run()
    guesses = [ts for kind, ts, _ in process(s, "g0/0").log.entries if kind == GTS]
    assert len(guesses) == 2 and guesses[0] > guesses[1]
    delivered_with_the_right_timestamp(s)
    return s


@scenario("fastcast")
def s16_wrong_guess_in_the_log(table: Protocol) -> Script:
    """As before, but g0 changes its leader too: the new one must not take the guess in its log for the truth."""
    s = guess_of_a_dying_leader(table)
    s.at(6, lambda: s.recover("g0/1"))
    s.at(20, lambda: s.recover("g1/1"))
    s.run()
    delivered_with_the_right_timestamp(s)
    return s


@scenario(*SKEENS)
def s17_overtaking(table: Protocol) -> Script:
    """m' comes when the final timestamp of m is proposed, gets a lower one, and is decided after it: m waits for m'."""
    s = Script(table, (3, 3))
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 1))
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(99.5 + PROPOSED[table.name], lambda: s.multicast("c2", 0))
    s.run()
    same_everywhere(s, 0, ["c2:0", "c1:0"])
    late = s.event("deliver", "g0/0", "c1:0").time or 0
    assert late == s.event("deliver", "g0/0", "c2:0").time
    assert late > (s.event("deliver", "g1/0", "c1:0").time or 0), "m was to be committed before m'"
    return s


@scenario(*PAXOS)
def s26_sequencer_change(table: Protocol) -> Script:
    """The leader dies when it has put m into its log; the client sends m again to the next: one place, one delivery."""
    s = Script(table, (3,) if table.single_group else (3, 3), heartbeat=5)
    dest = (0,) if table.single_group else (1,)
    s.delay("g0/0", "g0/2", "Append", NEVER)
    s.delay("g0/0", None, "Announce", NEVER)
    s.delay("g0/1", None, "Announce", 60)
    s.at(1, lambda: s.multicast("c0", *dest))
    s.at(2.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    same_everywhere(s, dest[0], ["c0:0"], but=("g0/0",))
    return s


@scenario("fastcast")
def s16_wrong_guess_and_all_timestamps(table: Protocol) -> Script:
    """As before, and g0/0 dies with its guess in the log; g0/1 has heard all HARDs: they say more than the log."""
    s = guess_of_a_dying_leader(table)
    s.at(6, lambda: (s.crash("g0/0", lose=False), s.recover("g1/1")))
    s.at(80, lambda: s.recover("g0/1"))
    s.run()
    delivered_with_the_right_timestamp(s)
    return s


@scenario(*PAXOS)
def s18_reply_lost(table: Protocol) -> Script:
    """Everybody delivered, and all replies are lost: when the client asks again it is answered."""
    s = Script(table, (3,) if table.single_group else (3, 3))
    dest = (0,) if table.single_group else (1,)
    lost = s.delay(None, "c0", "Reply", NEVER)
    s.at(1, lambda: s.multicast("c0", *dest))
    s.at(6, lambda: s.normal(lost))
    s.run()
    same_everywhere(s, dest[0], ["c0:0"])
    assert process(s, "c0").idle(), "the client was to get its answer"
    return s


@scenario("ft_skeen", "multi_paxos")
def s24_promise_to_a_higher_ballot(table: Protocol) -> Script:
    """g0/0 promised the ballot of g0/2, then hears of the lower one of g0/1: it must not help to decide in that."""
    s = Script(table, (3,))
    s.delay("g0/2", "g0/1", None, 20)
    s.delay("g0/2", "g0/0", "NewLog", 10)
    s.delay("g0/1", "g0/0", "NewLeader", 3)
    s.delay("g0/1", "g0/2", None, 60)
    process(s, "c0").cur_leader[0] = s.topology.pid("g0/1")
    process(s, "c1").cur_leader[0] = s.topology.pid("g0/2")
    s.at(1, lambda: (s.recover("g0/1"), s.recover("g0/2")))
    s.at(8, lambda: s.multicast("c0", 0))
    s.at(26, lambda: s.multicast("c1", 0))
    s.run()
    assert sorted(s.deliveries("g0/0")) == ["c0:0", "c1:0"]
    same_everywhere(s, 0, s.deliveries("g0/0"))
    return s


@scenario("paxos_amcast")
def s27_two_ballots(table: Protocol) -> Script:
    """g1/0 hears of m from g0/0 in one ballot and from g0/1 in another: it learns from what is announced again."""
    s = Script(table, (3, 3))
    s.delay("g0/1", "g1/0", "Announce", 30)
    s.delay("g0/2", "g1/0", None, NEVER)
    s.at(1, lambda: s.multicast("c0", 1))
    s.at(5, lambda: (s.recover("g0/1"), s.crash("g0/2", lose=False)))
    s.run()
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario("ft_skeen", "multi_paxos")
def s28_old_entries_of_a_lost_ballot(table: Protocol) -> Script:
    """g0/0 alone stored two messages in an old ballot; the log of the next one, shorter and newer, wins."""
    s = Script(table, (3,), heartbeat=100)
    s.delay("g0/0", "g0/1", None, NEVER)
    s.delay("g0/0", "g0/2", None, NEVER)
    for client in ("c0", "c1"):
        s.at(1, lambda client=client: s.multicast(client, 0))  # type: ignore[misc]
    s.delay("g0/1", "g0/0", None, 30)
    s.at(3, lambda: s.recover("g0/1"))
    process(s, "c2").cur_leader[0] = s.topology.pid("g0/1")
    s.at(8, lambda: (s.delay("c0", None, None, 40), s.delay("c1", None, None, 40)))
    s.at(9, lambda: s.multicast("c2", 0))
    s.at(14, lambda: (s.network.rules.clear(), s.crash("g0/1", lose=False), s.recover("g0/2")))
    s.run()
    assert s.deliveries("g0/2")[0] == "c2:0"
    assert sorted(s.deliveries("g0/2")) == ["c0:0", "c1:0", "c2:0"]
    same_everywhere(s, 0, s.deliveries("g0/2"), but=("g0/1",))
    return s


@scenario(*SKEENS)
def s29_copy_after_a_jump_of_the_log(table: Protocol) -> Script:
    """All delivered m; g0/2 forgets it, g0/1 hears later that it may, and leads with the log of g0/2: a copy comes."""
    s = Script(table, (3,), heartbeat=5)
    s.delay("g0/0", "g0/1", "Floor", 150)
    s.delay(None, "c0", "Reply", 200)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(25, lambda: s.crash("g0/0", lose=False))
    s.at(100, lambda: s.multicast("c1", 0))
    s.run()
    leads = next(e.time or 0 for e in s.recorder.events if e.kind == "leader" and e.process == "g0/1")
    copies = [e for e in s.recorder.events if e.kind == "receive" and e.type == "Multicast" and e.process == "g0/1"]
    assert [e for e in copies if leads < (e.time or 0) < 1e8], "a copy of m was to come to the new leader"
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario(*SKEENS)
def s30_prefix_before_the_vote_counts(table: Protocol) -> Script:
    """g0/0 and g0/1 delivered m and forgot its places; g0/2, which missed all of it, leads: first it fetches m."""
    s = Script(table, (3,), heartbeat=5)
    for kind in ("Append", "LogEnd", "Deliver", "Heartbeat"):
        s.delay("g0/0", "g0/2", kind, NEVER)
    s.delay("g0/1", "g0/2", "Heartbeat", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(12, lambda: (s.crash("g0/0", lose=False), s.recover("g0/2")))
    s.at(20, lambda: s.multicast("c1", 0))
    s.run()
    assert len([e for e in s.recorder.events if e.kind == "send" and e.type == "Tail"]) == 1
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario(*SKEENS)
def s31_prefix_before_the_acknowledgement(table: Protocol) -> Script:
    """Only g0/0 delivered m, forgot its places, and leads anew; no prefix gets through, and it dies: m is not lost."""
    s = Script(table, (3,), heartbeat=5)
    for kind in ("Deliver", "Heartbeat", "Tail"):
        s.delay("g0/0", None, kind, NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(11, lambda: s.recover("g0/0"))
    s.at(15, lambda: (s.crash("g0/0", "c0", lose=False), s.recover("g0/1")))
    s.at(25, lambda: s.multicast("c1", 0))
    s.run()
    assert s.deliveries("g0/0") == ["c0:0"]
    assert not process(s, "g0/0").log.entries, "the places of m were to be forgotten"
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario("fastcast")
def s32_delivery_of_an_old_leader(table: Protocol) -> Script:
    """g0/1 leads and waits for the timestamp of g1; a late DELIVER of g0/0 says what it is: nothing waits any more."""
    s = Script(table, (3, 3))
    s.delay("g0/0", "g0/1", "Deliver", 30)
    s.delay("g0/0", "g0/2", "Deliver", 30)
    for name in ("g1/0", "g1/1", "g1/2"):
        s.delay(name, "g0/1", None, 200)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(6, lambda: s.crash("g0/0", lose=False))
    s.at(7, lambda: s.recover("g0/1"))
    s.at(20, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    assert (s.event("deliver", "g0/1", "c1:0").time or 0) < 5e7
    return s


@scenario("ft_skeen", "multi_paxos")
def s34_ballot_of_which_one_has_heard(table: Protocol) -> Script:
    """g0/2 leads. g0/1 gets its vote, tells nobody but g0/2 that it leads now, and crashes: the two others go on."""
    s = Script(table, (3,), heartbeat=5)
    s.at(1, lambda: s.recover("g0/2"))
    lost = (("g0/1", "g0/0", None), ("g0/1", None, "NewLog"), ("g0/2", None, "NewLeader"))
    s.at(30, lambda: [s.delay(*rule, NEVER) for rule in lost])
    s.at(30.1, lambda: s.recover("g0/1"))
    s.at(45, lambda: (s.crash("g0/1"), s.network.rules.clear()))
    s.at(46, lambda: s.multicast("c0", 0))
    s.run()
    assert any(e.kind == "send" and e.type == "NewLog" for e in s.recorder.events), "g0/1 was to lead"
    same_everywhere(s, 0, ["c0:0"], but=("g0/1",))
    return s


@scenario("paxos_amcast")
def s33_a_group_hears_late(table: Protocol) -> Script:
    """No announcement reaches g1 for long, and acceptors keep next to nothing for laggards: their log still has it."""
    s = Script(table, (3, 3), heartbeat=5, tail_bytes=1)
    lost = [s.delay(f"g0/{rank}", f"g1/{other}", None, NEVER) for rank in range(3) for other in range(3)]
    for i in range(3):
        s.at(1 + 5 * i, lambda: s.multicast("c0", 0, 1))
    s.at(40, lambda: [s.normal(rule) for rule in lost])
    s.run()
    assert s.deliveries("g0/1") == s.deliveries("g1/1") and len(s.deliveries("g1/1")) == 3
    assert any(e.type == "Tail" for e in s.recorder.events if e.kind == "send")
    return s


def run(name: str, table: Protocol) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return judged(SCENARIOS[name][1](table), table)


def judged(s: Script, table: Protocol) -> Script:
    assert not s.world.stalled, "the run did not finish its work"
    properties = None if table.genuine else ["integrity", "validity", "order", "agreement", "termination"]
    unsure = [v for v in check(s.recorder.events, properties) if v.status != "ok"]
    assert [v for v in unsure if v.reason != NOTHING_DUE] == []
    return s


@pytest.mark.parametrize(("name", "under_test"), [(n, p) for n, (ps, _) in SCENARIOS.items() for p in ps])
def test_scenario(name: str, under_test: str, rewrite: bool) -> None:
    s = run(name, protocol(under_test))
    compare(under_test, name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s), rewrite)
