"""The adversarial scenarios of PrimCast: each drives the shipped protocol into one corner and compares what happened
with the golden transcript beside this file (`pytest --rewrite` writes them anew).

Group g0 has the primary g0/0 at first, g1 has g1/0; times are in δ. Those with s are of the whole
family, those with p of PrimCast, those with r of replicas that come back.
"""

from collections.abc import Callable

import pytest

from amcast.checks import check
from amcast.core.capabilities import Electing
from amcast.protocols import protocol
from amcast.protocols.parts.leader_candidate import FOLLOWER, LEADER
from amcast.sim.faults import LoseDisk, Snapshot
from amcast.sim.script import DELTA, NEVER, Rule, Script
from tests.scenarios.golden import compare, transcript
from tests.scenarios.test_white_box import process, same_everywhere
from tests.scenarios.test_white_box_recovery import copy_disk, position, put_back, starts

Scenario = Callable[[], Script]
SCENARIOS: dict[str, Scenario] = {}
KINDS = ("multicast", "deliver", "crash", "restart", "leader")
UNDER_TEST = [protocol("primcast")]  # the tests of the tests put a broken one here


def scenario(build: Scenario) -> Scenario:
    SCENARIOS[build.__name__] = build
    return build


def script(*sizes: int, heartbeat: float = 10_000, durable: bool = False, tail_bytes: int = 0) -> Script:
    return Script(UNDER_TEST[0], sizes or (3, 3), heartbeat=heartbeat, durable=durable, tail_bytes=tail_bytes)


def ahead(s: Script, messages: int = 6) -> None:
    """Let the clock of g1 be ahead: what is multicast at 100 has a timestamp one above this there."""
    for i in range(messages):
        s.at(1 + 10 * i, lambda: s.multicast("c0", 1))


def slow(s: Script, senders: tuple[str, ...], dest: str, delay: float, type: str | None = None) -> None:
    for sender in senders:
        s.delay(sender, dest, type, delay)


def sent_to(s: Script, client: str, leader: str) -> None:
    """Let a client know the new primary, so that it need not ask."""
    process(s, client).cur_leader[s.topology.group_of[s.topology.pid(leader)]] = s.topology.pid(leader)


G1 = ("g1/0", "g1/1", "g1/2")


@scenario
def s02_client_crash_between_sends() -> Script:
    """The multicast reaches g0/0 only: its proposal starts the message in g1, and later ones are not blocked."""
    s = script()
    s.delay("c0", "g1/0", "Multicast", NEVER)
    s.at(1, lambda: (s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2, lambda: s.multicast("c1", 0, 1))
    s.run()
    for g in (0, 1):
        assert sorted(s.deliveries(f"g{g}/1")) == ["c0:0", "c1:0"]
    assert s.latency("g1/2", "c0:0") == 4
    return s


@scenario
def s06_stuck_follower() -> Script:
    """A dying candidate convinces one follower; the primary hears of it and brings it back."""
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
def s08_old_remote_primary() -> Script:
    """g1/0 is deposed without knowing it and proposes a high timestamp: clocks rise, order stays."""
    s = script()
    for i in range(8):
        s.at(2 + i, lambda: s.multicast("c0", 1))
    s.delay("g1/0", "g1/1", "Proposal", 40)
    s.delay("g1/0", "g1/2", "Proposal", 40)
    s.delay("g1/1", "g1/0", None, 60)
    s.at(1, lambda: s.recover("g1/1"))
    s.at(12, lambda: s.multicast("c1", 0, 1))
    s.at(30, lambda: s.multicast("c2", 0))
    s.run()
    assert sorted(s.deliveries("g0/1")) == ["c1:0", "c2:0"]
    same_everywhere(s, 0, s.deliveries("g0/1"))
    same_everywhere(s, 1, s.deliveries("g1/1"))
    return s


@scenario
def s09_third_promise() -> Script:
    """The promise of g0/0 comes after the quorum, with a message that the others lack: it changes nothing."""
    s = script()
    s.delay("g0/0", "g0/1", "Promise", 2)
    s.at(2.4, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: s.recover("g0/1"))
    s.run()
    assert len(s.sent("EpochState")) == 2
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s10_duelling_candidates() -> Script:
    """Two members outbid each other for a while; nothing is delivered twice and one primary remains."""
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
def s13_late_duplicate() -> Script:
    """The replies crawl, the client sends again, and the copy arrives when everybody has forgotten the message."""
    s = script(heartbeat=5)
    s.delay(None, "c0", "Reply", 150)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(3, lambda: s.delay("c0", None, "Multicast", 120))
    s.at(100, lambda: forgotten.extend(process(s, name).entries for name in ("g0/0", "g1/0")))
    s.at(100, lambda: forgotten.extend(process(s, name).prefix.outcomes for name in ("g0/0", "g1/0")))
    forgotten: list[object] = []
    s.run()
    assert forgotten == [{}, {}, {}, {}], "the message was to be forgotten before its copy arrives"
    late = [e for e in s.recorder.events if e.kind == "receive" and e.type == "Multicast" and (e.time or 0) > 1e8]
    assert late, "the copy was to arrive late"
    for g in (0, 1):
        same_everywhere(s, g, ["c0:0"])
    return s


@scenario
def s14_collection_versus_recovery() -> Script:
    """g0 hears nothing from g1, which is long done, and must not have forgotten what g0 still needs."""
    s = script(heartbeat=5)
    s.delay("c0", None, "Reply", 0)
    for name in ("g0/0", "g0/1", "g0/2"):
        slow(s, G1, name, NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(200, lambda: s.network.rules.clear())
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    assert s.sent("Outcome"), "g0 was to learn the timestamp from g1"
    return s


@scenario
def s18_replies_lost() -> Script:
    """Everybody delivers, all replies are lost: whoever is asked again answers, the primary or not."""
    s = script(heartbeat=5)
    lost = s.delay(None, "c0", "Reply", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(8, lambda: (s.normal(lost), s.crash("g0/0", lose=False)))
    s.run()
    assert process(s, "c0").idle(), "the client was to get its answer"
    same_everywhere(s, 0, ["c0:0"])
    return s


@scenario
def s52_requests_during_an_election() -> Script:
    """Requests that come during an election are kept: by who will be primary, and by who passes them on."""
    s = script(3)
    s.delay("g0/2", "g0/1", "Promise", 5)
    s.delay("g0/0", "g0/1", "Promise", 5)
    s.at(1, lambda: s.recover("g0/1"))
    s.at(2.5, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: (sent_to(s, "c1", "g0/1"), s.multicast("c1", 0)))
    s.run()
    assert sorted(s.deliveries("g0/2")) == ["c0:0", "c1:0"]
    assert not s.sent("Hint") and s.latency("g0/2", "c0:0") < 9 and s.latency("g0/2", "c1:0") < 9
    same_everywhere(s, 0, s.deliveries("g0/2"))
    return s


@scenario
def s48_handover() -> Script:
    """g0/0 hands the lead to g0/2 while messages are under way, and does not take it back at once."""
    s = script(3, heartbeat=5)
    for i in range(6):
        s.at(1 + 2 * i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    give = lambda process, now: process.hand_over(now, s.topology.pid("g0/2"))  # noqa: E731
    s.at(4, lambda: s.world.tell(s.topology.pid("g0/0"), Electing, give))
    s.run()
    assert process(s, "g0/2").leads() and len(s.deliveries("g0/0")) == 6
    same_everywhere(s, 0, s.deliveries("g0/0"))
    return s


@scenario
def p01_stale_reports() -> Script:
    """g0/1 is alone in its epoch: what g0/2 reported in the one before must not let it deliver.

    It lacks c2:0, which g0/0 proposed and the epoch after it gets from g0/0.
    """
    s = script()
    ahead(s)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(101.2, lambda: [s.delay("g0/0", name, None, 100) for name in ("g0/1", "g0/2")])
    s.at(100.5, lambda: s.multicast("c2", 0))
    s.delay("g0/1", None, "EpochState", NEVER)
    s.at(105, lambda: s.recover("g0/1"))

    def alone() -> None:
        assert process(s, "g0/1").leads() and process(s, "g0/2").clock == 7
        s.crash("g0/1")

    s.at(112, alone)
    s.at(115, lambda: s.recover("g0/2"))
    s.run()
    assert s.deliveries("g0/1") == []
    same_everywhere(s, 0, ["c2:0", "c1:0"], but=("g0/1",))
    assert s.event("deliver", "g0/2", "c1:0").ts == (7, "g1")
    return s


@scenario
def p02_report_after_a_promise() -> Script:
    """g0/2 promises with clock 1 and hears of 7 then: if it told g0/0 so, that would deliver before c2:0, at 2."""
    s = script()
    ahead(s)
    slow(s, G1, "g0/1", 60)
    slow(s, G1, "g0/2", 5)
    s.delay("g0/0", "g0/1", "Bump", 60)
    s.delay("g0/0", "g0/2", "Bump", 60)
    s.delay("g0/1", "g0/0", None, 60)
    s.delay("g0/1", "g0/2", "EpochState", 10)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(103, lambda: s.recover("g0/1"))
    s.at(104.5, lambda: (sent_to(s, "c2", "g0/1"), s.multicast("c2", 0)))

    def promised() -> None:
        member = process(s, "g0/2")
        assert member.candidate.ballot > member.candidate.cballot and member.clock == 7

    s.at(107, promised)
    s.run()
    same_everywhere(s, 0, ["c2:0", "c1:0"])
    assert s.event("deliver", "g0/1", "c2:0").ts == (2, "g0")
    return s


def only_one_knows(durable: bool) -> Script:
    """Let g0/0 deliver at 7, because g0/2 has heard of 7, too; then it dies, and nobody else can deliver that yet."""
    s = script(durable=durable, heartbeat=40 if durable else 10_000)
    ahead(s)
    s.at(99, lambda: slow(s, G1, "g0/1", 150))
    s.at(99, lambda: slow(s, G1, "g0/2", 150, "Outcome"))
    for kind in ("Bump", "Report"):
        slow(s, ("g0/0",), "g0/1", NEVER, kind)
        slow(s, ("g0/0",), "g0/2", NEVER, kind)
        slow(s, ("g0/2",), "g0/1", NEVER, kind)
    s.at(100, lambda: s.multicast("c1", 0, 1))

    def crash() -> None:
        assert [process(s, f"g0/{rank}").clock for rank in range(3)] == [7, 1, 7]
        s.crash("g0/0", lose=False)

    s.at(103.5, crash)
    return s


def goes_on_above_seven(s: Script, recover: float) -> Script:
    s.at(recover, lambda: s.recover("g0/1"))
    s.at(recover + 1, lambda: (sent_to(s, "c2", "g0/1"), s.multicast("c2", 0)))
    s.run()
    assert s.deliveries("g0/0") == ["c1:0"]
    same_everywhere(s, 0, ["c1:0", "c2:0"], but=("g0/0",))
    return s


@scenario
def p03_promised_clock() -> Script:
    """The new primary has not heard of the timestamp with which a message was delivered: it gets it by a promise."""
    s = goes_on_above_seven(only_one_knows(durable=False), 105)
    assert s.event("deliver", "g0/1", "c2:0").ts == (8, "g0")
    return s


@scenario
def p03_promised_clock_after_a_restart() -> Script:
    """As before, but g0/2 restarts in between: what it reported is on disk, with something to spare."""
    s = only_one_knows(durable=True)
    s.at(104, lambda: (s.crash("g0/2", lose=False), s.delay("g0/1", None, "NewLeader", NEVER)))
    s.at(105, lambda: s.restart("g0/2"))
    again = [rule for rule in s.network.rules if rule.type == "NewLeader"]
    s.at(299, lambda: [s.normal(rule) for rule in s.network.rules if rule.type == "NewLeader" and rule not in again])
    return goes_on_above_seven(s, 300)


@scenario
def p04_old_primarys_clock() -> Script:
    """g0/1 has promised a dead candidate, refuses c2:0, and gets the clock that follows it: it must not deliver yet."""
    s = script(5, 3)
    ahead(s)
    s.delay("g0/4", None, "NewLeader", NEVER)
    s.delay("g0/4", "g0/1", "NewLeader", 1)
    s.delay("g1/0", "g0/0", None, 3)
    s.delay("g1/1", "g0/0", None, 3)
    s.delay("g1/2", "g0/0", None, 3)
    s.delay(None, "g0/0", "Bump", 3)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(101.3, lambda: s.recover("g0/4"))
    s.at(102.2, lambda: s.crash("g0/4", lose=False))
    s.at(102, lambda: s.multicast("c2", 0))
    s.at(150, lambda: s.recover("g0/0"))
    s.at(180, lambda: s.recover("g0/0"))  # above the ballot of the dead candidate
    s.run()
    same_everywhere(s, 0, ["c2:0", "c1:0"], but=("g0/4",))
    return s


@scenario
def p05_acknowledged_again() -> Script:
    """g0/0 and g0/1 acknowledged m in different epochs, as g1 heard: those who enter the new one say it again."""
    s = script()
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/0", "g0/1", "Proposal", 1)
    slow(s, G1, "g0/1", 10)
    for name in G1:
        s.delay("g0/1", name, "Ack", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(3.2, lambda: s.crash("g0/0", lose=False))
    s.at(3.5, lambda: s.network.rules.clear())
    s.at(4, lambda: s.recover("g0/1"))
    s.run()
    same_everywhere(s, 1, ["c0:0"])
    same_everywhere(s, 0, ["c0:0"], but=("g0/0",))
    assert s.latency("g1/0", "c0:0") < 10, "without waiting for anybody to ask"
    return s


@scenario
def p06_mixed_epochs() -> Script:
    """g0/0 alone had m at 1; g0/1 proposes it at 2 in the next epoch: one word of each is no quorum for either."""
    s = script()
    s.delay("g0/0", "g0/1", None, NEVER)
    s.delay("g0/0", "g0/2", None, NEVER)
    s.delay("g0/1", "g0/2", "Proposal", 40)
    s.delay("g0/2", None, "Ack", 20)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(2.5, lambda: s.crash("g0/0", lose=False))
    s.at(3, lambda: s.recover("g0/1"))
    s.at(3, lambda: (sent_to(s, "c1", "g0/1"), s.multicast("c1", 0)))

    def undecided() -> None:
        assert s.deliveries("g1/0") == [] and process(s, "g0/1").leads()

    s.at(30, undecided)
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario
def p07_lost_by_one_group() -> Script:
    """g0 loses m with its primary, its client is dead, g1 has proposed it: what g1 says starts it again in g0."""
    s = script(heartbeat=5)
    s.delay("g0/0", None, None, NEVER)
    s.at(1, lambda: (s.multicast("c0", 0, 1), s.crash("c0", lose=False)))
    s.at(2.5, lambda: s.crash("g0/0"))
    s.at(4, lambda: s.multicast("c1", 1))
    s.run()
    same_everywhere(s, 0, ["c0:0"], but=("g0/0",))
    assert sorted(s.deliveries("g1/0")) == ["c0:0", "c1:0"]
    return s


@scenario
def p07_proposed_when_known() -> Script:
    """As before, at its fastest: the new primary has heard of m from g1, and proposes it at once."""
    s = script()
    s.delay("g0/0", None, None, NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(2.5, lambda: s.crash("g0/0", "c0"))
    s.at(4, lambda: s.recover("g0/1"))
    s.at(20, lambda: (sent_to(s, "c1", "g0/1"), s.multicast("c1", 0)))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    assert s.latency("g0/1", "c0:0") == 7 and s.latency("g1/2", "c0:0") == 7
    return s


@scenario
def p08_cut_off_member() -> Script:
    """g1/2 is cut off while the others deliver and forget: it gets what it missed from its group, and takes part."""
    s = script(heartbeat=5)
    s.at(1, lambda: [s.delay(None, "g1/2", None, NEVER), s.delay("g1/2", None, None, NEVER)])
    for i in range(5):
        s.at(2 + 5 * i, lambda i=i: s.multicast(f"c{i % 3}", 0, 1))  # type: ignore[misc]
    s.at(100, lambda: s.network.rules.clear())
    s.at(199, lambda: forgotten.append(process(s, "g0/0").prefix.outcomes == {}))
    s.at(200, lambda: s.crash("g1/0"))
    s.at(201, lambda: s.multicast("c0", 0, 1))
    forgotten: list[bool] = []
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/0"))
    same_everywhere(s, 1, s.deliveries("g0/0"), but=("g1/0",))
    assert len(s.deliveries("g1/2")) == 6 and forgotten == [True]
    return s


@scenario
def p09_gap_in_the_proposals() -> Script:
    """A proposal to g0/1 is lost on a link and the next arrives: it is no quorum with g0/0 before it has both."""
    s = script(3, heartbeat=5)
    lost = s.delay("g0/0", "g0/1", "Proposal", NEVER)
    away = s.delay("g0/2", None, None, 30)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3, lambda: s.normal(lost))
    s.at(3, lambda: s.multicast("c1", 0))
    s.at(4.5, lambda: early.append(len(process(s, "g0/1").log_rows())))
    s.at(20, lambda: s.normal(away))
    early: list[int] = []
    s.run()
    assert early == [0] and len(s.sent("Gap", "g0/1")) == 1 and not s.sent("NewLeader")
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    assert s.latency("g0/0", "c1:0") < 10, "what came too early was to be kept"
    return s


@scenario
def p09_proposals_while_a_gap_is_filled() -> Script:
    """g0/1 has the state and waits for the prefix, which is slow; what is proposed meanwhile is not another gap."""
    s = script(3, heartbeat=50)
    lost = s.delay("g0/0", "g0/1", "Proposal", NEVER)
    s.delay("g0/2", "g0/1", "Ack", NEVER)
    s.delay("g0/0", "g0/1", "Tail", 6)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(6, lambda: s.normal(lost))
    for i in range(5):
        s.at(7 + i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    s.at(25, lambda: missed.append(6 - process(s, "g0/1").n))
    missed: list[int] = []
    s.run()
    assert len(s.sent("Gap", "g0/1")) == 1 and missed == [0]
    same_everywhere(s, 0, s.deliveries("g0/0"))
    return s


@scenario
def p09_clock_past_a_gap() -> Script:
    """g0/1 misses c2:0, and gets the clock that its primary reported behind it: it must not deliver past c2:0."""
    s = script()
    ahead(s)
    slow(s, G1, "g0/0", 2)
    s.at(101.2, lambda: lost.append(s.delay("g0/0", "g0/1", "Proposal", NEVER)))
    lost: list[Rule] = []
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(100.5, lambda: s.multicast("c2", 0))
    s.run()
    assert lost and len(s.sent("Gap", "g0/1")) == 1
    same_everywhere(s, 0, ["c2:0", "c1:0"])
    return s


@scenario
def p10_dead_primary_no_recovery() -> Script:
    """g0/0 crashes when its proposal and its clock are through: the others deliver, without an election."""
    s = script()
    ahead(s)
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(102.5, lambda: s.crash("g0/0", lose=False))
    s.run()
    same_everywhere(s, 0, ["c1:0"], but=("g0/0",))
    assert s.latency("g0/2", "c1:0") == 3 and not s.sent("NewLeader")
    return s


@scenario
def p11_prefix_before_the_epoch() -> Script:
    """g0/2 delivers m with g0/0 and is primary then: g0/1 may not enter its epoch without m."""
    s = script(3)
    s.delay("g0/0", "g0/1", "Proposal", NEVER)
    s.delay("g0/2", "g0/1", "Ack", NEVER)
    s.delay("g0/2", "g0/0", "NewLeader", NEVER)
    fetches = s.delay(None, "g0/2", "Fetch", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(5, lambda: s.recover("g0/2"))

    def nobody_entered() -> None:
        assert s.deliveries("g0/2") == ["c0:0"] and s.sent("Fetch", "g0/1")
        assert process(s, "g0/1").candidate.cballot == 0
        s.crash("g0/2")
        s.normal(fetches)

    s.at(15, nobody_entered)
    s.at(40, lambda: s.recover("g0/1"))
    s.at(41, lambda: (sent_to(s, "c1", "g0/1"), s.multicast("c1", 0)))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/2",))
    return s


@scenario
def p12_candidate_behind_a_voter() -> Script:
    """g0/1 stands and lacks m, which g0/2 has delivered: m is in no promise, so it fetches it first."""
    s = script(3)
    s.delay("g0/0", "g0/1", "Proposal", NEVER)
    s.delay("g0/2", "g0/1", "Ack", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(4.5, lambda: (s.crash("g0/0"), s.network.rules.clear()))
    s.at(5, lambda: s.recover("g0/1"))
    s.at(6, lambda: (sent_to(s, "c1", "g0/1"), s.multicast("c1", 0)))
    s.run()
    assert s.sent("Fetch", "g0/1")
    same_everywhere(s, 0, ["c0:0", "c1:0"], but=("g0/0",))
    return s


@scenario
def p13_lost_reports() -> Script:
    """All reports of clocks are lost on links that broke: they come again with the heartbeats."""
    s = script(heartbeat=5)
    ahead(s)
    s.at(99, lambda: lost.append(s.delay(None, None, "Bump", NEVER)))
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(104, lambda: s.normal(lost[0]))
    lost: list[Rule] = []
    s.run()
    same_everywhere(s, 0, ["c1:0"])
    return s


@scenario
def r01_follower_comes_back() -> Script:
    """g0/2 is away while m2 is ordered, and returns to the same epoch: it gets the state and deliveries, and helps."""
    s = script(3, durable=True, heartbeat=5)
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


@scenario
def r02_primary_comes_back() -> Script:
    """g0/0 proposed m, whose proposals are lost, and restarts before anybody misses it: its epoch is over for it."""
    s = script(3, durable=True, heartbeat=5)
    lost = s.delay("g0/0", None, "Proposal", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(2.5, lambda: (s.crash("g0/0", "c0", lose=False), s.normal(lost)))
    s.at(4, lambda: s.restart("g0/0"))
    s.at(60, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, s.deliveries("g0/1"))
    assert "c1:0" in s.deliveries("g0/1") and process(s, "g0/0").candidate.cballot > 0
    return s


@scenario
def r03_all_at_once() -> Script:
    """All crash when a quorum has m in its log and nobody delivered it: from their disks alone, m is delivered."""
    s = script(3, durable=True, heartbeat=5)
    s.delay(None, None, "Ack", NEVER)
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(3.5, lambda: (s.network.rules.clear(), s.crash("g0/0", "g0/1", "g0/2", "c0")))
    s.at(10, lambda: s.restart("g0/0", "g0/1", "g0/2"))
    s.at(60, lambda: s.multicast("c1", 0))
    s.run()
    same_everywhere(s, 0, ["c0:0", "c1:0"])
    return s


@scenario
def r04_lost_disk() -> Script:
    """Two members lose their disks, one after the other, and take part from later epochs on; then all restart."""
    s = script(3, durable=True, heartbeat=5)
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


@scenario
def r05_away_for_long() -> Script:
    """g0/2 is away for more than anybody keeps: it comes by snapshot, and g0/0 dies as soon as it is back."""
    s = script(3, durable=True, heartbeat=5, tail_bytes=500)
    s.at(5, lambda: s.crash("g0/2", lose=False))
    for i in range(60):
        s.at(6 + 3 * i, lambda i=i: s.multicast(f"c{i % 3}", 0))  # type: ignore[misc]
    sizes: list[int] = []
    s.at(249, lambda: sizes.extend([process(s, "g0/0").footprint(), len(process(s, "g0/0").log_rows())]))
    s.at(250, lambda: s.restart("g0/2"))
    s.at(300, lambda: s.crash("g0/0", lose=False))
    s.at(302, lambda: s.multicast("c0", 0))
    s.run()
    assert sizes[0] < 20 and sizes[1] == 0, f"{sizes}: what the absence of a member costs the others is bounded"
    assert process(s, "g0/2").prefix.recent.begin > 30, "it was to come by snapshot"
    assert len(s.deliveries("g0/1")) == 61
    same_everywhere(s, 0, s.deliveries("g0/1"), but=("g0/0",))
    return s


@scenario
def r06_own_word_of_a_follower() -> Script:
    """g0/2 delivers m with g0/0 and answers; it forgets that and stands with g0/1, which knows nothing of m."""
    s = script(3, durable=True, heartbeat=100)
    s.delay("g0/0", "g0/1", None, NEVER)
    s.delay("g0/2", "g0/1", None, NEVER)
    s.delay("g0/2", "g0/0", None, NEVER)
    s.at(1, lambda: copy_disk(s, "g0/2"))
    s.at(1, lambda: s.multicast("c0", 0))

    def forget() -> None:
        assert process(s, "c0").idle(), "the client was to get its answer"
        assert (position(s, "g0/0"), position(s, "g0/2")) == (0, 1)
        put_back(s, "g0/2")
        s.network.rules.clear()
        s.delay("g0/0", "g0/2", "EpochState", NEVER)

    def lead() -> None:
        assert not process(s, "g0/2").rejoining()
        s.delay("g0/2", "g0/0", None, 50)
        s.recover("g0/2")

    s.at(6, forget)
    s.at(7, lambda: s.restart("g0/2"))
    s.at(13, lead)
    s.at(14, lambda: (sent_to(s, "c1", "g0/2"), s.multicast("c1", 0)))
    s.run()
    assert starts(s, "g0/2") == 2, "nobody knew that it had forgotten anything"
    assert s.deliveries("g0/1") == s.deliveries("g0/0") == ["c0:0", "c1:0"]
    return s


@scenario
def r07_older_copy_of_a_follower() -> Script:
    """g0/1 forgets that it acknowledged m: who counted on that remembers more than its disk, and finds it out."""
    s = script(3, durable=True, heartbeat=5)
    s.at(1, lambda: copy_disk(s, "g0/1"))
    s.at(2, lambda: s.multicast("c0", 0))
    s.at(20, lambda: put_back(s, "g0/1", clean=True))
    s.at(22, lambda: s.restart("g0/1"))
    s.at(100, lambda: s.multicast("c1", 0))
    s.run()
    assert process(s, "g0/1").probation.starts > 2, "it was to come back as one that lost its disk"
    assert s.deliveries("g0/0") == s.deliveries("g0/2") == ["c0:0", "c1:0"]
    return s


@scenario
def r07_foreign_witness() -> Script:
    """g0/1 forgets that it acknowledged m while g0/0 is away, and only g1 has counted on it: that finds it out."""
    s = script(durable=True, heartbeat=20)
    slow(s, ("g0/0", "g1/0"), "g0/2", NEVER, "Proposal")
    for name in ("g0/0", "g0/2"):
        s.delay("g0/1", name, None, NEVER)
    s.at(1, lambda: copy_disk(s, "g0/1"))
    s.at(1, lambda: s.multicast("c0", 0, 1))

    def forget() -> None:
        assert position(s, "g1/0") == 1 and position(s, "g0/0") == position(s, "g0/2") == 0
        s.crash("c0", "g0/0", lose=False)
        s.network.rules.clear()
        put_back(s, "g0/1", clean=True)  # nobody can tell by its end

    s.at(6, forget)
    s.at(7, lambda: s.restart("g0/1"))
    s.at(300, lambda: s.restart("g0/0"))
    s.at(500, lambda: s.multicast("c1", 0, 1))
    s.run()
    assert starts(s, "g0/1") == 3, "it was to be found out"
    assert s.deliveries("g0/0") == s.deliveries("g0/2") == ["c0:0", "c1:0"]
    same_everywhere(s, 1, ["c0:0", "c1:0"])
    return s


@scenario
def r08_snapshot() -> Script:
    """A snapshot has what is in the log, also what another epoch left out of it since, and how far the clock got."""
    s = script(durable=True, heartbeat=15)
    ahead(s)
    for name in G1:
        s.at(99, lambda name=name: slow(s, (name,), "g0/2", 30, "Ack"))  # type: ignore[misc]
    s.at(100, lambda: s.multicast("c1", 0, 1))
    s.at(102.5, lambda: Snapshot(s.topology.pid("g0/2")).act(s.world))
    s.at(102.6, lambda: s.crash("g0/2", lose=False))
    s.at(104, lambda: s.restart("g0/2"))
    s.at(
        104.1,
        lambda: kept.extend((entry.lts, process(s, "g0/2").clock) for entry in process(s, "g0/2").entries.values()),
    )
    kept: list[tuple[int, int]] = []
    s.run()
    assert len(kept) == 1 and kept[0][0] == 1 << 16 and kept[0][1] >= 7
    same_everywhere(s, 0, ["c1:0"])
    return s


def finished(s: Script) -> Script:
    """Check a scenario that has run as all of them are checked."""
    assert not s.world.stalled, "the run did not finish its work"
    assert [v for v in check(s.recorder.events) if v.status != "ok"] == []
    for pid in range(s.topology.replicas):
        if s.world.up(pid):
            assert not process(s, s.topology.name(pid)).log_rows()
    return s


def run(name: str) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return finished(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    compare("primcast", name, (SCENARIOS[name].__doc__ or "") + "\n\n" + transcript(s, KINDS), rewrite)


def test_scenarios_hold_with_hybrid_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that count on no particular timestamp."""
    monkeypatch.setattr("tests.scenarios.test_primcast.UNDER_TEST", [protocol("primcast_hybrid")])
    for name in SCENARIOS:
        if name.startswith("s") or name[:3] in ("p05", "p07", "p08", "p11", "p12"):
            run(name)
