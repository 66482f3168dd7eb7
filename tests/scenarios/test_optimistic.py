"""The adversarial scenarios of Baseline and Optimistic, each with a golden transcript beside this file.

Group g0 is led by g0/0 at first, g1 by g1/0; times are in δ. Members multicast themselves.
"""

from collections.abc import Callable
from typing import Any

import pytest

from amcast.checks import check
from amcast.checks.guesses import open_guess
from amcast.checks.refusals import refused, without_refused
from amcast.checks.termination import NOTHING_DUE
from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.optimistic.options import Options
from amcast.sim.faults import Reconfigure
from amcast.sim.relation import configured
from amcast.sim.script import DELTA, NEVER, Script
from tests.scenarios.golden import compare, transcript

Scenario = Callable[[Protocol], Script]
SCENARIOS: dict[str, tuple[tuple[str, ...], Scenario]] = {}
BOTH = ("baseline", "optimistic")
KINDS = ("multicast", "optdeliver", "deliver", "crash", "leader", "reconfigure")


def scenario(*protocols: str) -> Callable[[Scenario], Scenario]:
    def register(build: Scenario) -> Scenario:
        SCENARIOS[build.__name__] = (protocols, build)
        return build

    return register


def script(
    table: Protocol, *sizes: int, heartbeat: float = 10_000, ahead: dict[int, float] | None = None, **options: Any
) -> Script:
    return Script(configured(table, Options(**options)), sizes, heartbeat=heartbeat, ahead=ahead)


def process(s: Script, name: str) -> Any:
    return s.world.processes[s.topology.pid(name)]


def join(s: Script, name: str, h: int, joins: bool = True) -> None:
    Reconfigure(s.topology.pid(name), joins, h).act(s.world)


def same_everywhere(s: Script, g: int, expected: list[str], but: tuple[str, ...] = ()) -> None:
    for pid in s.topology.groups[g]:
        name = s.topology.name(pid)
        if name not in but:
            assert s.deliveries(name) == expected, name


def guesses(s: Script, name: str) -> list[str]:
    return [e.message or "" for e in s.recorder.events if e.kind == "optdeliver" and e.process == name]


@scenario(*BOTH)
def s06_stuck_follower(table: Protocol) -> Script:
    """g0/4 starts to recover, only g0/3 hears of it, g0/4 dies; the others go on, and g0/3 must deliver too."""
    s = script(table, 5, 5, heartbeat=20)
    for other in ("g0/0", "g0/1", "g0/2"):
        s.delay("g0/4", other, "NewLeader", NEVER)
    s.at(1, lambda: s.recover("g0/4"))
    s.at(2.5, lambda: s.crash("g0/4"))
    s.at(5, lambda: s.multicast("g0/1", 0, 1))
    s.run()
    same_everywhere(s, 0, ["g0/1:0"], but=("g0/4",))
    return s


@scenario(*BOTH)
def s10_duelling_candidates(table: Protocol) -> Script:
    """g0/1 and g0/2 take ballots from each other: nothing is delivered twice, and one of them leads in the end."""
    s = script(table, 3, 3, heartbeat=5)
    for i in range(6):
        s.at(2 + 4 * i, lambda i=i: s.recover(f"g0/{1 + i % 2}"))  # type: ignore[misc]
        s.at(3 + 4 * i, lambda i=i: s.multicast(f"g0/{i % 3}", 0, 1))  # type: ignore[misc]
    s.run()
    assert len(s.deliveries("g1/0")) == 6
    same_everywhere(s, 0, s.deliveries("g1/0"))
    return s


@scenario(*BOTH)
def s12_leader_dies_between_announcements(table: Protocol) -> Script:
    """What g0/0 and g0/1 accepted is known to g1/1 only when g0/0 dies; the new leader announces it to all anew."""
    s = script(table, 3, 3, heartbeat=5)
    for slow in ("g1/0", "g1/2", "g0/2"):
        s.delay("g0/0", slow, "Announce", NEVER)
        s.delay("g0/1", slow, "Announce", 60)
    s.delay("g0/0", "g0/2", "Append", NEVER)
    s.at(1, lambda: s.multicast("g0/1", 1))
    s.at(4.5, lambda: (s.crash("g0/0"), s.network.rules.clear()))
    s.at(6, lambda: s.multicast("g0/2", 1))
    s.run()
    same_everywhere(s, 1, ["g0/1:0", "g0/2:0"])
    return s


@scenario(*BOTH)
def s13_client_asks_two_members(table: Protocol) -> Script:
    """The client's member is slow, so it asks all; the message is ordered twice and delivered once."""
    s = script(table, 3, 3, heartbeat=5)
    s.delay("g0/0", None, "Copy", 30)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    return s


@scenario(*BOTH)
def s14_collection_versus_recovery(table: Protocol) -> Script:
    """g0/4 learns m without storing it; when two that stored it are dead, g1 learns it only if nobody forgot it."""
    s = script(table, 5, 3, heartbeat=5)
    s.delay("g0/0", "g0/4", "Append", 200)
    s.delay("g0/0", "g0/4", "Announce", 200)
    for dead in ("g0/1", "g0/2"):
        for q in range(3):
            s.delay(dead, f"g1/{q}", "Announce", NEVER)
    s.at(1, lambda: s.multicast("g0/3", 1))
    s.at(40, lambda: (s.crash("g0/1", "g0/2"), s.network.rules.clear()))
    s.at(42, lambda: s.recover("g0/3"))
    s.run()
    same_everywhere(s, 1, ["g0/3:0"])
    return s


@scenario("baseline")
def s18_equal_times(table: Protocol) -> Script:
    """In g0 a message of time 12 is ordered, then one of 10, which becomes 13, then one of 13, which becomes 14; and
    messages of two groups with equal times are delivered in the order of the groups."""
    s = script(table, 3, 3)
    s.delay("g0/1", "g0/0", "Copy", 2)
    s.delay("g0/2", "g0/0", "Copy", 3)
    s.at(10, lambda: s.multicast("g0/1", 0, 1))
    s.at(10.000002, lambda: s.multicast("g0/0", 0, 1))
    s.at(10.000003, lambda: s.multicast("g0/2", 0, 1))
    s.at(40, lambda: (s.multicast("g1/0", 0, 1), s.multicast("g0/0", 0, 1)))
    s.run()
    for g in (0, 1):
        same_everywhere(s, g, ["g0/0:0", "g0/1:0", "g0/2:0", "g0/0:1", "g1/0:0"])
    finals = [s.event("deliver", "g1/0", m).ts for m in ("g0/0:0", "g0/1:0", "g0/2:0")]
    assert finals == [(10 * DELTA + t, "g0") for t in (2, 3, 4)]
    return s


@scenario(*BOTH)
def s19_solitary(table: Protocol) -> Script:
    """g0 and g2 may send to g1; one message of g0, and nothing else: 3δ."""
    s = script(table, 3, 3, 3, senders_to=((0,), (0, 2), (2,)))
    s.at(1, lambda: s.multicast("g0/1", 1))
    s.run()
    assert {s.latency(f"g1/{i}", "g0/1:0") for i in range(3)} == {3}
    return s


@scenario("optimistic")
def s20_short_window(table: Protocol) -> Script:
    """m is stamped before m' and comes after it was delivered optimistically: a mistake, and no more than that."""
    s = script(table, 3, 3, window=DELTA)
    s.delay("g0/1", None, "Copy", 3)
    s.at(10, lambda: s.multicast("g0/1", 1))
    s.at(10.1, lambda: s.multicast("g0/2", 1))
    s.run()
    assert guesses(s, "g1/0") == ["g0/2:0", "g0/1:0"]
    same_everywhere(s, 1, ["g0/2:0", "g0/1:0"])
    early, late = (s.event("deliver", "g1/0", m).ts for m in ("g0/2:0", "g0/1:0"))
    assert early is not None and late is not None and late > early
    return s


@scenario("optimistic")
def s20_mistake_between_groups(table: Protocol) -> Script:
    """The same with messages of two groups: the final order is that of the timestamps, the guess was wrong."""
    s = script(table, 3, 3, 3, window=DELTA)
    s.delay("g0/1", "g2/0", "Copy", 2.5)
    s.delay("g0/1", "g2/1", "Copy", 2.5)
    s.at(10, lambda: s.multicast("g0/1", 2))
    s.at(10.1, lambda: s.multicast("g1/1", 2))
    s.run()
    same_everywhere(s, 2, ["g0/1:0", "g1/1:0"])
    assert guesses(s, "g2/0") == ["g1/1:0", "g0/1:0"] and guesses(s, "g2/2") == ["g0/1:0", "g1/1:0"]
    figure = check(s.recorder.events, ["optimistic"])[0].figure
    assert figure is not None and figure["mistakes"] == 2 and figure["delivered"] == 6
    return s


@scenario("optimistic")
def s20_window_of_the_slowest(table: Protocol) -> Script:
    """Messages of g0 take 0.5δ, those of g1 1.5δ: after a while everybody in g2 waits for the latter."""
    s = script(table, 3, 3, 3)
    for p in range(3):
        for q in range(3):
            s.delay(f"g0/{p}", f"g2/{q}", "Copy", 0.5)
            s.delay(f"g1/{p}", f"g2/{q}", "Copy", 1.5)
    for i in range(6):
        s.at(1 + 10 * i, lambda: s.multicast("g1/1", 2))
        s.at(1.2 + 10 * i, lambda: s.multicast("g0/1", 2))
    s.run()
    assert process(s, "g2/1").window.length == 1.5 * DELTA
    assert guesses(s, "g2/1")[2:] == s.deliveries("g2/1")[2:]
    return s


@scenario("optimistic")
def s20_a_clock_that_is_behind(table: Protocol) -> Script:
    """The clock of g1 is 50δ behind: its messages seem to take 51δ, and nobody waits for it."""
    s = script(table, 3, 3, 3, ahead={0: 50, 2: 50})
    for i in range(5):
        s.at(1 + 10 * i, lambda: s.multicast("g1/1", 2))
        s.at(5 + 10 * i, lambda: s.multicast("g0/1", 2))
    s.run()
    assert {s.latency("g2/1", f"g0/1:{i}") for i in range(5)} <= {3, 4}
    assert process(s, "g2/1").window.length == DELTA
    return s


@scenario("optimistic")
def s20_a_clock_that_is_ahead(table: Protocol) -> Script:
    """The clock of g1 is 50δ ahead: nobody waits until its timestamps are over, neither g1 nor the others."""
    s = script(table, 3, 3, 3, ahead={1: 50})
    for i in range(5):
        s.at(1 + 10 * i, lambda: s.multicast("g1/1", 0, 2))
        s.at(5 + 10 * i, lambda: s.multicast("g0/1", 0, 2))
    s.run()
    assert max(s.latency("g2/1", f"g0/1:{i}") for i in range(5)) <= 6
    assert max(s.latency("g2/1", f"g1/1:{i}") for i in range(5)) <= 6
    return s


@scenario("optimistic")
def s20_an_outage(table: Protocol) -> Script:
    """Some messages of g1/1 take 40δ, the rest 1δ: the others wait a bit longer, and not any more when it is silent."""
    s = script(table, 3, 3, 3, heartbeat=5)
    s.delay("g1/1", "g2/1", "Copy", 40)
    for i in range(3):
        s.at(1 + i, lambda: s.multicast("g1/1", 2))
    s.at(42, lambda: s.network.rules.clear())
    for i in range(3):
        s.at(43 + i, lambda: s.multicast("g1/1", 2))
        s.at(60 + i, lambda: s.multicast("g0/1", 2))
        s.at(300 + i, lambda: s.multicast("g0/1", 2))
    s.run()
    assert max(s.latency("g2/1", f"g0/1:{i}") for i in range(3)) <= 5
    assert {s.latency("g2/1", f"g0/1:{i}") for i in range(3, 6)} == {3}
    assert process(s, "g2/1").window.length == DELTA
    return s


@scenario("optimistic")
def s21_ordered_copy_first(table: Protocol) -> Script:
    """The first copy to g1/2 crawls: it delivers optimistically when it learns the order, and once."""
    s = script(table, 3, 3)
    s.delay("g0/1", "g1/2", "Copy", 20)
    s.at(1, lambda: s.multicast("g0/1", 1))
    s.run()
    assert guesses(s, "g1/2") == ["g0/1:0"] == s.deliveries("g1/2")
    return s


@scenario("optimistic")
def s21_ordered_copy_before_waiting_ones(table: Protocol) -> Script:
    """A long window: what waits with a lower timestamp is delivered optimistically before the ordered message is."""
    s = script(table, 3, 3, 3, window=DELTA)
    process(s, "g2/0").window.length = 30 * DELTA
    s.at(10, lambda: s.multicast("g1/1", 2))
    s.at(10.5, lambda: s.multicast("g0/1", 2))
    s.delay("g1/0", "g2/0", "Announce", 20)
    s.delay("g1/1", "g2/0", "Announce", 20)
    s.delay("g1/2", "g2/0", "Announce", 20)
    s.run()
    assert guesses(s, "g2/0") == ["g1/1:0", "g0/1:0"]
    same_everywhere(s, 2, ["g1/1:0", "g0/1:0"])
    return s


@scenario("optimistic")
def s22_sender_dies(table: Protocol) -> Script:
    """The last copy of a dying sender reaches one destination only, which hands it to the group that orders it."""
    s = script(table, 3, 3, heartbeat=5)
    s.at(1, lambda: s.multicast("g0/1", 1))
    s.at(6, lambda: [s.delay("g0/1", q, None, NEVER) for q in s.topology.names if q not in ("g0/1", "g1/2")])
    s.at(6, lambda: (s.multicast("g0/1", 1), s.crash("g0/1", lose=False)))
    s.run()
    same_everywhere(s, 1, ["g0/1:0", "g0/1:1"])
    return s


@scenario("optimistic")
def s22_sender_and_receiver_die(table: Protocol) -> Script:
    """The same, and that destination dies too: nobody delivers the message, and nothing waits for it."""
    s = script(table, 3, 3, heartbeat=5)
    s.at(1, lambda: s.multicast("g0/1", 1))
    s.at(6, lambda: [s.delay("g0/1", q, None, NEVER) for q in s.topology.names if q not in ("g0/1", "g1/2")])
    s.at(6, lambda: (s.multicast("g0/1", 1), s.crash("g0/1", lose=False)))
    s.at(7.5, lambda: s.crash("g1/2"))
    s.at(8, lambda: s.multicast("g0/2", 1))
    s.run()
    same_everywhere(s, 1, ["g0/1:0", "g0/2:0"], but=("g1/2",))
    return s


@scenario(*BOTH)
def s22_copy_reaches_a_follower(table: Protocol) -> Script:
    """The only copy of a dying sender is at a follower, which hands it to its leader."""
    s = script(table, 3, 3, heartbeat=5)
    s.at(1, lambda: [s.delay("g0/1", q, None, NEVER) for q in s.topology.names if q not in ("g0/1", "g0/2")])
    s.at(1, lambda: (s.multicast("g0/1", 1), s.crash("g0/1", lose=False)))
    s.at(5, lambda: s.multicast("g0/2", 1))
    s.run()
    assert sorted(s.deliveries("g1/0")) == ["g0/1:0", "g0/2:0"]
    same_everywhere(s, 1, s.deliveries("g1/0"))
    return s


@scenario("optimistic")
def s22_later_copy_comes_first(table: Protocol) -> Script:
    """Of a dying sender g1/0 has m and g2/0 has m', which came after it; m' reaches their group first, and waits."""
    s = script(table, 3, 3, 3, heartbeat=5)

    def die() -> None:
        for q in s.topology.names:
            if q != "g1/0":
                s.delay("g0/1", q, None, NEVER)
        s.multicast("g0/1", 1)
        s.delay("g0/1", "g1/0", None, NEVER)
        s.delay("g0/1", "g2/0", None, 1)
        s.multicast("g0/1", 1, 2)
        s.crash("g0/1", lose=False)
        s.delay("g1/0", "g0/0", "Copy", 20)
        s.delay("g1/0", "g0/2", "Copy", 20)

    s.at(1, die)
    s.run()
    same_everywhere(s, 1, ["g0/1:0", "g0/1:1"])
    return s


@scenario("optimistic")
def s22_earlier_message_is_lost(table: Protocol) -> Script:
    """Of a dying sender its own group has nothing, and g1 has m', which it sent after a message to its own group: m'
    cannot be ordered without that one, so g0 orders that nothing more comes of it, and g1 undoes what it guessed."""
    s = script(table, 3, 3, heartbeat=5)

    def die() -> None:
        for q in ("g0/0", "g0/2"):
            s.delay("g0/1", q, None, NEVER)
        s.multicast("g0/1", 0)
        s.multicast("g0/1", 1)
        s.crash("g0/1", lose=False)

    s.at(1, die)
    s.at(4, lambda: s.multicast("g0/2", 1))
    s.run()
    same_everywhere(s, 1, ["g0/2:0"])
    assert guesses(s, "g1/0") == ["g0/1:1", "g0/2:0"]
    return s


@scenario("optimistic")
def s22_wrongly_stopped(table: Protocol) -> Script:
    """The same, but the sender lives, and its messages to its own group are slow: it sends again what was stopped, and
    everything is delivered, once, and nothing is delivered optimistically twice."""
    s = script(table, 3, 3, heartbeat=5)
    for q in ("g0/0", "g0/2"):
        s.delay("g0/1", q, None, 120)
    s.at(1, lambda: (s.multicast("g0/1", 0), s.multicast("g0/1", 1), s.multicast("g0/1", 0, 1)))
    s.at(121, lambda: s.network.rules.clear())
    s.at(150, lambda: s.multicast("g0/1", 1))
    s.run()
    same_everywhere(s, 0, ["g0/1:0", "g0/1:2"])
    same_everywhere(s, 1, ["g0/1:1", "g0/1:2", "g0/1:3"])
    assert any("undone" in (e.detail or "") for e in s.recorder.events)
    return s


@scenario(*BOTH)
def s22_requests_die_with_the_sender(table: Protocol) -> Script:
    """A sender dies before it asks for barriers: the destinations ask for them themselves."""
    s = script(table, 3, 3, 3, heartbeat=5)
    s.delay("g0/1", None, "BarrierRequest", NEVER)
    s.at(1, lambda: (s.multicast("g0/1", 1), s.crash("g0/1", lose=False)))
    s.run()
    same_everywhere(s, 1, ["g0/1:0"])
    return s


@scenario(*BOTH)
def s22_requests_reach_followers_only(table: Protocol) -> Script:
    """A sender dies when only its requests to two followers of g2 have left: they tell their leader."""
    s = script(table, 3, 3, 3, heartbeat=5)
    s.at(1, lambda: s.multicast("g0/2", 1))
    s.at(8, lambda: [s.delay("g0/1", q, None, NEVER) for q in s.topology.names if q not in ("g2/1", "g2/2")])
    s.at(8, lambda: (s.multicast("g0/1", 1), s.crash("g0/1", lose=False)))
    s.run()
    same_everywhere(s, 1, ["g0/2:0"])
    assert not any(any(process(s, f"g2/{i}").requests) for i in range(3))
    return s


@scenario(*BOTH)
def s25_client_of_a_group_that_left(table: Protocol) -> Script:
    """The group that a client's message goes through has left a destination: it is refused, and the client is told;
    also when it asks again. When the group has joined again, its next message is delivered."""
    s = script(table, 3, 3, heartbeat=5)
    s.delay("g0/0", "c0", "Refusal", 30)
    s.delay("g0/1", "c0", "Refusal", 30)
    s.delay("g0/2", "c0", "Refusal", 30)
    s.at(1, lambda: join(s, "g0/1", 1, False))
    s.at(10, lambda: s.multicast("c0", 0, 1))
    s.at(60, lambda: join(s, "g0/1", 1))
    s.at(80, lambda: s.multicast("c0", 0, 1))
    s.run()
    same_everywhere(s, 0, ["c0:1"])
    same_everywhere(s, 1, ["c0:1"])
    assert process(s, "c0").idle() and sorted(refused(s.recorder.events)) == ["c0:0"]
    return s


@scenario(*BOTH)
def s25_one_member_refuses_and_another_sends(table: Protocol) -> Script:
    """A client asks two members; one knows that its group joined again, the other only that it left. What is ordered
    first counts: the message is delivered, and not refused as well."""
    s = script(table, 3, 3, heartbeat=5)
    s.at(1, lambda: join(s, "g0/1", 1, False))
    s.at(9, lambda: [s.delay(f"g1/{i}", "g0/2", "Announce", 80) for i in range(3)])
    s.at(10, lambda: join(s, "g0/1", 1))
    s.delay("c0", "g0/0", "Multicast", 200)
    s.delay("g0/2", "g0/0", "Copy", 10)
    s.at(20, lambda: s.multicast("c0", 0, 1))
    s.run()
    same_everywhere(s, 0, ["c0:0"])
    same_everywhere(s, 1, ["c0:0"])
    assert not refused(s.recorder.events)
    return s


@scenario(*BOTH)
def s23_join_under_load(table: Protocol) -> Script:
    """g1 joins the senders to g2 while g0 sends; g2/2 learns of it late, and orders nothing differently."""
    s = script(table, 3, 3, 3, heartbeat=5, senders_to=((0,), (1,), (0,)))
    for i in range(16):
        s.at(1 + i / 2, lambda: s.multicast("g0/1", 2))
    s.at(2, lambda: (join(s, "g1/1", 2), s.multicast("g1/1", 2), s.multicast("g1/1", 1, 2)))
    for member in ("g2/0", "g2/1"):
        s.delay(member, "g2/2", "Announce", 12)
        s.delay("g1/" + member[-1], "g2/2", None, 25)
    s.delay("g1/2", "g2/2", None, 25)
    s.run()
    same_everywhere(s, 2, s.deliveries("g2/0"))
    assert len(s.deliveries("g2/0")) == 18 and s.deliveries("g2/0")[-1] != "g1/1:1"
    return s


@scenario(*BOTH)
def s23_a_slow_clock_joins(table: Protocol) -> Script:
    """The clock of g1 is far behind when it joins: its messages are stamped above the moment that let it in."""
    s = script(table, 3, 3, 3, heartbeat=5, ahead={0: 50, 2: 50}, senders_to=((0,), (1,), (0,)))
    for i in range(40):
        s.at(1 + i / 2, lambda: s.multicast("g0/1", 2))
    s.at(2, lambda: (join(s, "g1/0", 2), s.multicast("g1/0", 2)))
    s.run()
    same_everywhere(s, 2, s.deliveries("g2/0"))
    assert s.deliveries("g2/0")[-1] != "g1/0:0"
    return s


@scenario(*BOTH)
def s24_two_joins(table: Protocol) -> Script:
    """g0 and g1 join the senders to g2 at once: both get in and hear of each other, and their messages are ordered."""
    s = script(table, 3, 3, 3, senders_to=((0,), (1,), (2,)))
    s.at(1, lambda: (join(s, "g0/1", 2), join(s, "g1/1", 2)))
    s.at(2, lambda: (s.multicast("g0/1", 2), s.multicast("g1/1", 2)))
    for i in range(4):
        s.at(12 + i, lambda: (s.multicast("g0/2", 0, 2), s.multicast("g1/2", 1, 2)))
    s.run()
    same_everywhere(s, 2, s.deliveries("g2/0"))
    assert len(s.deliveries("g2/0")) == 10
    for name in s.topology.names[:9]:
        assert sorted(process(s, name).senders.of[2]) == [0, 1, 2], name
    return s


@scenario(*BOTH)
def s25_leave_with_a_lagging_member(table: Protocol) -> Script:
    """g0 leaves the senders to g1; g0/2, which does not know yet, still multicasts to g1: refused, though its timestamp
    is above. Then g0 joins again, and what it multicasts is delivered in order."""
    s = script(table, 3, 3)
    s.at(1, lambda: s.multicast("g0/2", 1))
    s.at(10, lambda: [s.delay(f"g0/{i}", "g0/2", "Announce", 10) for i in range(2)])
    s.at(10, lambda: join(s, "g0/1", 1, False))
    s.at(13, lambda: s.multicast("g0/2", 1))
    s.at(30, lambda: (s.network.rules.clear(), s.multicast("g1/1", 1)))
    s.at(40, lambda: (join(s, "g0/1", 1), s.multicast("g0/1", 1), s.multicast("g0/2", 0, 1)))
    s.at(41, lambda: s.multicast("g1/1", 1))
    s.run()
    same_everywhere(s, 1, s.deliveries("g1/0"))
    assert "g0/2:1" not in s.deliveries("g1/0") and s.deliveries("g1/0")[:2] == ["g0/2:0", "g1/1:0"]
    assert sorted(s.deliveries("g1/0")[2:]) == ["g0/1:0", "g0/2:2", "g1/1:1"]
    return s


@scenario(*BOTH)
def s25_join_again_before_the_leave_is_known(table: Protocol) -> Script:
    """g0 leaves and joins again; g1/2 hears that it joined before it hears that it left, and loses nothing."""
    s = script(table, 3, 3, heartbeat=5)
    s.at(1, lambda: s.multicast("g0/1", 1))
    for member in range(3):
        s.delay(f"g0/{member}", "g1/2", "Announce", 30)
    s.at(3, lambda: s.multicast("g1/0", 1))
    s.at(8, lambda: join(s, "g0/1", 1, False))
    s.at(14, lambda: (join(s, "g0/1", 1), s.multicast("g0/1", 1)))
    s.at(20, lambda: s.multicast("g1/0", 0, 1))
    s.at(22, lambda: s.multicast("g0/2", 0, 1))
    s.run()
    same_everywhere(s, 1, s.deliveries("g1/0"))
    assert len(s.deliveries("g1/0")) == 5
    (membership,) = process(s, "g1/2").senders.of[1][0]
    assert membership.since > membership.asked > 0
    return s


@scenario(*BOTH)
def s25_a_leave_ends_what_was_asked_for_before_it(table: Protocol) -> Script:
    """g1 leaves the senders to g0, joins twice, leaves and joins again, and the clock of g0 is far ahead: by the clocks
    both answers are later than the leave behind them. What g1 multicasts comes in one order with what g0 does."""
    s = script(table, 1, 1, heartbeat=5, ahead={0: 50}, window=0)
    for t, joins in ((1, False), (1.1, True), (2.4, True), (2.5, False), (9, True)):
        s.at(t, lambda joins=joins: join(s, "g1/0", 0, joins))  # type: ignore[misc]
    s.delay("g0/0", "g1/0", "Announce", 0.5)
    s.at(1.2, lambda: s.multicast("g1/0", 0))
    for i in range(20):
        s.at(2 + i / 2, lambda: s.multicast("g0/0", 0))
    s.run()
    assert len(s.deliveries("g0/0")) == 21
    assert [len(process(s, name).senders.of[0][1]) for name in ("g0/0", "g1/0")] == [1, 1]
    return s


def run(name: str, table: Protocol) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    s = SCENARIOS[name][1](table)
    assert not s.world.stalled, "the run did not finish its work"
    properties = ["integrity", "validity", "order", "agreement", "termination", "fifo"]
    properties += ["optimistic"] if table.name == "optimistic" else []
    unsure = [v for v in check(without_refused(s.recorder.events), properties) if v.status != "ok"]
    assert [v for v in unsure if v.reason != NOTHING_DUE] == []
    assert open_guess(without_refused(s.recorder.events)) == ""
    return s


@pytest.mark.parametrize(("name", "under_test"), [(n, p) for n, (ps, _) in SCENARIOS.items() for p in ps])
def test_scenario(name: str, under_test: str, rewrite: bool) -> None:
    s = run(name, protocol(under_test))
    compare(under_test, name, (SCENARIOS[name][1].__doc__ or "") + "\n\n" + transcript(s, KINDS), rewrite)
