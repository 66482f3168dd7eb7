"""Scenarios of White-Box groups whose members change: epochs, joint votes, removed leaders, lists that others count by.

The last replicas of each group are spare at first: they learn what their group delivers, at every heartbeat. Numbers
are those of the note on membership and recovery; times are in δ.
"""

from collections.abc import Callable

import pytest

from amcast.core.order import ballot, epoch_of
from amcast.protocols.parts.leader_candidate import LEADER
from amcast.protocols.white_box.configurations import change_payload
from amcast.sim.script import NEVER, Script
from tests.scenarios import test_white_box as white_box
from tests.scenarios.golden import compare, transcript
from tests.scenarios.test_white_box import finished, process

Scenario = Callable[[], Script]
SCENARIOS: dict[str, Scenario] = {}
KINDS = ("multicast", "deliver", "crash", "restart", "leader", "reconfigure")


def scenario(build: Scenario) -> Scenario:
    SCENARIOS[build.__name__] = build
    return build


def script(*sizes: int, spare: int, heartbeat: float = 20, durable: bool = False) -> Script:
    return Script(white_box.UNDER_TEST[0], sizes, heartbeat=heartbeat, durable=durable, spare=spare)


def change(s: Script, client: str, g: int, epoch: int, *seats: int) -> None:
    """Let these be the members of a group when this epoch ends."""
    s.world.multicast(s.topology.pid(client), (g,), change_payload(epoch, seats))


def leads(s: Script, name: str) -> bool:
    found = process(s, name)
    return found.candidate.status == LEADER and epoch_of(found.candidate.cballot) == found.epoch()


def stop(s: Script, *names: str) -> None:
    """Stop replicas that were removed, as an administrator does in the end."""
    for name in names:
        assert process(s, name).is_removed(), name
    s.crash(*names, lose=False)


def end(s: Script, time: float, *removed: str) -> None:
    s.at(time, lambda: stop(s, *removed))
    s.run()


@scenario
def s33_two_of_three_swapped_at_once() -> Script:
    """Two of three are replaced by two that know nothing: nothing is delivered before one of them has the prefix."""
    s = script(5, spare=2, heartbeat=100)
    tails = [s.delay(None, name, kind, NEVER) for name in ("g0/3", "g0/4") for kind in ("Tail", "Deliver")]
    s.at(1, lambda: s.multicast("c0", 0))
    s.at(6, lambda: change(s, "c1", 0, 0, 0, 3, 4))
    s.at(8, lambda: s.multicast("c0", 0))

    def nothing_yet() -> None:
        assert s.deliveries("g0/0") == ["c0:0", "c1:0"] and not leads(s, "g0/0")
        assert process(s, "g0/3").position() == process(s, "g0/4").position() == 0
        s.normal(tails[0])

    s.at(90, nothing_yet)
    s.at(450, lambda: [s.normal(rule) for rule in tails[1:]])
    end(s, 600, "g0/1", "g0/2")
    assert s.deliveries("g0/0") == s.deliveries("g0/3") == s.deliveries("g0/4") == ["c0:0", "c1:0", "c0:1"]
    return s


@scenario
def s34_only_the_dead_knew() -> Script:
    """g0/0 alone delivers the change, asks for votes, and dies: the others deliver it in the old epoch, then go on."""
    s = script(4, spare=1)
    lost = [s.delay("g0/0", None, kind, NEVER) for kind in ("Deliver", "Tail", "Lists")]
    s.at(1, lambda: change(s, "c0", 0, 0, 0, 1, 3))

    def dies() -> None:
        assert process(s, "g0/0").epoch() == 1 and process(s, "g0/1").epoch() == process(s, "g0/2").epoch() == 0
        assert len(s.sent("NewLeader", "g0/0")) == 3
        s.crash("g0/0", lose=False)
        for rule in lost:
            s.normal(rule)

    s.at(6, dies)
    s.at(8, lambda: s.recover("g0/1"))
    s.at(60, lambda: s.multicast("c1", 0))
    end(s, 200, "g0/2")
    assert len([e for e in s.recorder.events if e.kind == "leader" and e.process == "g0/1"]) == 2, "one in each epoch"
    assert s.deliveries("g0/1") == s.deliveries("g0/3") == ["c0:0", "c1:0"]
    return s


@scenario
def s35_candidate_dies_before_the_epoch_is_established() -> Script:
    """g0/1 begins the new epoch and dies; the next candidate needs a majority of the old list, too."""
    s = script(5, spare=2, heartbeat=100)
    s.delay("g0/1", None, "NewState", NEVER)
    for name in ("g0/3", "g0/4"):
        s.delay(name, None, "Fetch", 0.1)
    s.at(1, lambda: change(s, "c0", 0, 0, 1, 3, 4))

    def dies() -> None:
        assert process(s, "g0/1").candidate.cballot == ballot(1, 1, 1) and not leads(s, "g0/1")
        s.crash("g0/1")

    deaf = [s.delay(name, "g0/3", "NewLeaderAck", NEVER) for name in ("g0/0", "g0/2")]
    s.at(30, dies)
    s.at(31, lambda: s.recover("g0/3"))

    def needs_the_old_list() -> None:
        assert process(s, "g0/3").candidate.votes.keys() == {s.topology.pid("g0/3"), s.topology.pid("g0/4")}
        assert process(s, "g0/3").candidate.cballot < ballot(1, 1, 1)
        for rule in deaf:
            s.normal(rule)
        s.recover("g0/3")

    s.at(40, needs_the_old_list)
    s.at(50, lambda: s.recover("g0/2"))  # of the old list only: it has no part in the new one
    s.at(60, lambda: s.multicast("c1", 0))
    s.at(150, lambda: stop(s, "g0/0", "g0/2"))
    s.run()
    assert leads(s, "g0/3")
    assert s.deliveries("g0/3") == s.deliveries("g0/4") == ["c0:0", "c1:0"]
    return s


@scenario
def s35_member_of_the_old_list_alone() -> Script:
    """g0/2 did not hear of the change and stands in the old epoch: it gets the lists and what it missed, no vote."""
    s = script(4, spare=1, heartbeat=100)
    away = s.delay(None, "g0/2", None, NEVER)
    s.at(1, lambda: change(s, "c0", 0, 0, 0, 1, 3))

    def stands() -> None:
        assert leads(s, "g0/0") and process(s, "g0/2").epoch() == 0
        s.normal(away)
        s.recover("g0/2")

    s.at(30, stands)

    def learnt() -> None:
        assert process(s, "g0/2").epoch() == 1 and process(s, "g0/2").is_removed()
        assert leads(s, "g0/0") and not s.sent("Nack")
        s.crash("g0/2")

    s.at(60, learnt)
    s.at(61, lambda: s.multicast("c1", 0))
    s.run()
    assert s.deliveries("g0/3") == ["c0:0", "c1:0"]
    return s


@scenario
def s35_state_of_an_epoch_that_is_over() -> Script:
    """g0/2 alone knows that the epoch is over, and nobody hears it: it enters no ballot of that epoch any more."""
    s = script(6, spare=1, heartbeat=100)
    for name in ("g0/1", "g0/3", "g0/4", "g0/5"):
        s.delay("g0/0", name, "Deliver", NEVER)
    for kind in ("NewLeader", "Lists"):
        s.delay("g0/0", None, kind, NEVER)
    s.delay("g0/2", None, "Tail", NEVER)
    mute = [s.delay("g0/2", None, kind, NEVER) for kind in ("Heartbeat", "Lists", "NewLeader")]
    s.at(1, lambda: change(s, "c0", 0, 0, 1, 2, 3, 4, 5))
    s.at(6, lambda: s.crash("g0/0"))
    s.at(8, lambda: s.recover("g0/1"))

    def entered() -> None:
        assert process(s, "g0/2").epoch() == 1 and process(s, "g0/2").candidate.cballot == ballot(0, 0)
        assert [e.detail for e in s.recorder.events if e.kind == "leader" and e.process == "g0/1"]
        for rule in mute:
            s.normal(rule)

    s.at(12.5, entered)
    s.at(60, lambda: s.multicast("c1", 0))
    s.run()
    assert all(s.deliveries(f"g0/{seat}") == ["c0:0", "c1:0"] for seat in range(1, 6))
    return s


@scenario
def s36_list_that_is_not_known() -> Script:
    """g1/0 has not heard that g0 has five members now: two acknowledgements of them are no quorum."""
    s = script(5, 5, spare=2, heartbeat=50)
    told = s.delay(None, "g1/0", "Lists", NEVER)
    s.delay(None, "g1/0", "Outcome", NEVER)
    s.at(1, lambda: change(s, "c0", 0, 0, 0, 1, 2, 3, 4))
    missing = [s.delay("g0/0", f"g0/{seat}", "Accept", NEVER) for seat in (2, 3, 4)]
    s.at(20, lambda: s.multicast("c1", 0, 1))

    def waits() -> None:
        assert s.deliveries("g1/0") == [], "it counted by a list of another epoch"

    s.at(40, waits)
    s.at(45, lambda: [s.normal(rule) for rule in missing])
    s.at(300, waits)
    s.at(301, lambda: s.normal(told))
    s.run()
    assert s.deliveries("g1/0") == ["c1:0"]
    return s


@scenario
def s36_mixed_epochs_in_a_vector() -> Script:
    """Of g1 some acknowledge m with g0's old epoch and some with its new one: that is no quorum of either."""
    s = script(4, 4, spare=1)
    late = [s.delay("g0/0", name, "Accept", 12) for name in ("g1/1", "g1/2")]
    s.delay("g1/1", None, "AcceptAck", 30)
    s.delay("g0/0", "g0/0", "AcceptAck", 1)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.5, lambda: change(s, "c1", 0, 0, 0, 1, 3))
    s.at(4, lambda: [s.normal(rule) for rule in late])
    end(s, 200, "g0/2")
    for g, name in ((0, "g0/3"), (1, "g1/0"), (1, "g1/1")):
        assert "c0:0" in s.deliveries(name), (g, name)
    assert len({e.ts for e in s.recorder.events if e.kind == "deliver" and e.message == "c0:0"}) == 1
    return s


@scenario
def s37_both_groups_replace_all_members_at_once() -> Script:
    """All members of two groups are replaced at the same time, with messages to both under way: these are delivered."""
    s = script(6, 6, spare=3)
    s.delay(None, None, "AcceptAck", 15)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.5, lambda: (change(s, "c1", 0, 0, 3, 4, 5), change(s, "c2", 1, 0, 3, 4, 5)))
    s.at(60, lambda: s.network.rules.clear())
    s.at(61, lambda: s.multicast("c1", 0, 1))
    end(s, 400, *[f"g{g}/{seat}" for g in (0, 1) for seat in range(3)])
    for name in ("g0/3", "g0/5", "g1/3", "g1/5"):
        assert {"c0:0", "c1:1"} <= {*s.deliveries(name)}, name
    for g in (0, 1):
        assert process(s, f"g{g}/4").seats(0) == process(s, f"g{g}/4").seats(1) == (3, 4, 5)
    return s


@scenario
def s38_stale_remote_leader() -> Script:
    """g1/0 completes a quorum of g0's old list when g0 has a new one already: the timestamp is the same in both."""
    s = script(6, 6, spare=3)
    for name in ("g0/0", "g0/1", "g0/2"):
        s.delay(name, "g1/0", "AcceptAck", 40)
    for name in ("g1/0", "g1/1", "g1/2"):
        s.delay(name, "g0/0", "AcceptAck", NEVER)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(1.1, lambda: change(s, "c1", 0, 0, 3, 4, 5))
    s.at(20, lambda: s.recover("g0/1"))
    end(s, 500, "g0/0", "g0/1", "g0/2")
    found = {e.ts for e in s.recorder.events if e.kind == "deliver" and e.message == "c0:0"}
    assert len(found) == 1 and "c0:0" in s.deliveries("g0/4") and "c0:0" in s.deliveries("g1/2")
    return s


@scenario
def s39_two_administrators() -> Script:
    """Two changes end the same epoch: the first takes effect, the other is delivered and changes nothing."""
    s = script(5, spare=2)
    s.at(1, lambda: change(s, "c0", 0, 0, 0, 1, 3))
    s.at(1.5, lambda: change(s, "c1", 0, 0, 0, 1, 4))
    end(s, 150, "g0/2")
    for name in ("g0/0", "g0/1", "g0/3"):
        assert s.deliveries(name) == ["c0:0", "c1:0"]
        assert process(s, name).epoch() == 1 and process(s, name).seats(0) == (0, 1, 3)
    return s


@scenario
def s40_removed_leader() -> Script:
    """The leader is removed and hands over at once; back from its disk it does not vote, and says who took over."""
    s = script(4, spare=1, heartbeat=100, durable=True)
    s.at(1, lambda: change(s, "c0", 0, 0, 1, 2, 3))

    def handed_over() -> None:
        assert leads(s, "g0/1"), "it waited for a time-out"
        s.crash("g0/0", lose=False)

    s.at(15, handed_over)
    s.at(20, lambda: s.restart("g0/0"))

    def comes_back() -> None:
        assert process(s, "g0/0").unready() == "removed: its group is g0/1, g0/2, g0/3 now"
        s.multicast("c1", 0)  # it asks g0/0, as far as it knows the leader
        s.recover("g0/2")

    s.at(60, comes_back)

    def answered() -> None:
        assert process(s, "c1").idle() and not s.sent("NewLeaderAck", "g0/0")[1:]
        s.crash("g0/0")

    s.at(80, answered)
    s.run()
    assert all(s.deliveries(name) == ["c0:0", "c1:0"] for name in ("g0/1", "g0/2", "g0/3"))
    return s


@scenario
def s40_seat_is_never_used_again() -> Script:
    """A change that would give a seat back to one that was removed changes nothing."""
    s = script(4, spare=1)
    s.at(1, lambda: change(s, "c0", 0, 0, 0, 1, 3))
    s.at(40, lambda: change(s, "c0", 0, 1, 0, 1, 2))
    end(s, 150, "g0/2")
    assert process(s, "g0/0").epoch() == 1 and process(s, "g0/3").seats(0) == (0, 1, 3)
    return s


def run(name: str) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return finished(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    compare("white_box", name, (SCENARIOS[name].__doc__ or "") + "\n\n" + transcript(s, KINDS), rewrite)
