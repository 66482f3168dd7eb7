"""Scenarios of White-Box groups that come while others run: one group orders their beginning, and tells all others.

The last group of each script is no part of the cluster at first: its replicas run, and have a leader. Times are in δ.
"""

from collections.abc import Callable

import pytest

from amcast.protocols.white_box.configurations import change_payload, founding_payload
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


def script(*sizes: int, spare: int = 0, durable: bool = False, more: int = 1) -> Script:
    table = white_box.UNDER_TEST[0]
    return Script(table, sizes, heartbeat=20, durable=durable, spare=spare, founders=3, more_groups=more)


def found(s: Script, client: str, g: int, size: int = 3) -> None:
    """Have this group added, with so many members."""
    s.world.multicast(s.topology.pid(client), (0,), founding_payload(g, size))


def groups(s: Script, name: str) -> int:
    """Return how many groups there are, so far as this process knows."""
    return len(process(s, name).known())


def members(s: Script, *numbers: int) -> list[str]:
    return [s.topology.name(pid) for g in numbers for pid in s.topology.groups[g]]


@scenario
def s52_group_comes() -> Script:
    """A group is added; messages to it alone, to it and another one, and to all are ordered as any other."""
    s = script(3, 3)
    s.at(1, lambda: s.multicast("c0", 0, 1))
    s.at(2, lambda: found(s, "c1", 2))

    def known() -> None:
        assert all(groups(s, name) == 3 for name in members(s, 0, 1))
        for dest in ((2,), (0, 2), (0, 1, 2), (1, 2)):
            s.multicast("c0", *dest)

    s.at(40, known)
    s.run()
    assert s.deliveries("g2/0") == s.deliveries("g2/2") == ["c0:1", "c0:2", "c0:3", "c0:4"]
    assert s.deliveries("g1/0") == ["c0:0", "c0:3", "c0:4"]
    return s


@scenario
def s52_who_is_not_added_is_not_believed() -> Script:
    """Two groups may begin with one number: nobody believes them, and they order nothing before one is added."""
    s = script(3, 3)

    def alone() -> None:
        assert s.sent("Lists", "g2/0"), "its leader tells who its members are"
        assert all(groups(s, name) == 2 for name in members(s, 0, 1))
        assert not process(s, "g2/0").belongs
        s.multicast("c0", 2)

    s.at(50, alone)

    def nothing() -> None:
        assert process(s, "g2/0").idle() and s.deliveries("g2/0") == []
        found(s, "c1", 2)

    s.at(90, nothing)
    s.run()
    assert s.deliveries("g2/0") == s.deliveries("g2/1") == s.deliveries("g2/2") == ["c0:0"]
    return s


@scenario
def s52_two_administrators() -> Script:
    """Two add a group with one number: the first one in the order of g0 counts. One is too early, one has no number."""
    s = script(3, 3, more=2)
    s.at(0.5, lambda: found(s, "c2", 3))
    s.at(1, lambda: found(s, "c0", 2))
    s.at(1.5, lambda: found(s, "c1", 2, 1))
    s.at(2, lambda: found(s, "c2", 4))
    s.at(60, lambda: s.multicast("c0", 0, 1, 2))
    s.run()
    assert all(process(s, name).seats(2) == (0, 1, 2) for name in members(s, 0, 1, 2))
    assert s.deliveries("g2/1") == ["c0:1"] and groups(s, "g0/1") == groups(s, "g1/1") == 3
    return s


@scenario
def s52_message_before_the_table() -> Script:
    """A message to the new group reaches g1 before anybody of g1 knows of it, and waits for the table."""
    # It may be committed all the same, if g2 tells g1 that it has delivered it: that is late here.
    s = script(3, 3)
    tables = [s.delay(name, f"g1/{rank}", "Lists", NEVER) for name in members(s, 0) for rank in range(3)]
    tables += [s.delay(None, "g1/0", "Outcome", NEVER)]
    s.at(1, lambda: found(s, "c0", 2))

    def early() -> None:
        assert groups(s, "g0/0") == groups(s, "g2/0") == 3 and groups(s, "g1/0") == 2
        s.multicast("c1", 1, 2)
        s.multicast("c2", 1)

    s.at(30, early)

    def waits() -> None:
        assert s.deliveries("g1/0") == [] and s.sent("Lists", "g2/0"), "founders are not believed"
        for rule in tables:
            s.normal(rule)

    s.at(70, waits)
    s.run()
    assert sorted(s.deliveries("g1/0")) == ["c1:0", "c2:0"] and s.deliveries("g2/2") == ["c1:0"]
    return s


@scenario
def s52_only_the_dead_knew() -> Script:
    """g0/0 alone delivers the beginning of the group, and dies: the others deliver it, and tell all."""
    s = script(3, 3)
    for kind in ("Deliver", "Tail", "Lists"):
        s.delay("g0/0", None, kind, NEVER)
    s.at(1, lambda: found(s, "c0", 2))

    def dies() -> None:
        assert groups(s, "g0/0") == 3 and groups(s, "g0/1") == groups(s, "g0/2") == 2
        s.crash("g0/0", lose=False)

    s.at(8, dies)
    s.at(10, lambda: s.recover("g0/1"))
    s.at(120, lambda: s.multicast("c1", 1, 2))
    s.run()
    assert groups(s, "g0/2") == groups(s, "g1/2") == 3 and s.deliveries("g2/1") == ["c1:0"]
    return s


@scenario
def s52_everybody_restarts() -> Script:
    """What is known of the group is on disk, also where it was heard from others, and so is its list."""
    s = script(3, 3, durable=True)
    s.at(1, lambda: found(s, "c0", 2))
    s.at(45, lambda: s.multicast("c1", 1, 2))

    def all_at_once() -> None:
        assert s.deliveries("g2/0") == s.deliveries("g1/0") == ["c1:0"]
        s.crash(*members(s, 0, 1, 2))

    s.at(70, all_at_once)

    def back() -> None:
        s.restart(*members(s, 0, 1, 2))
        assert all(groups(s, name) == 3 for name in members(s, 0, 1, 2))

    s.at(75, back)
    s.at(220, lambda: s.multicast("c2", 0, 1, 2))
    s.run()
    assert s.deliveries("g2/0")[-1] == s.deliveries("g0/0")[-1] == s.deliveries("g1/2")[-1] == "c2:0"
    return s


@scenario
def s52_group_comes_while_members_change() -> Script:
    """g1 is replaced as a whole while the group comes, which began with g1's first members in mind."""
    s = script(6, 6, spare=3)
    s.at(1, lambda: found(s, "c0", 2))
    s.at(1, lambda: s.world.multicast(s.topology.pid("c1"), (1,), change_payload(0, (3, 4, 5))))

    def over() -> None:
        for name in ("g1/0", "g1/1", "g1/2"):
            assert process(s, name).is_removed(), name
        s.crash("g1/0", "g1/1", "g1/2", lose=False)

    s.at(200, over)
    s.at(220, lambda: s.multicast("c2", 0, 1, 2))
    s.run()
    assert s.deliveries("g2/0")[-1] == s.deliveries("g1/3")[-1] == "c2:0"
    return s


def run(name: str) -> Script:
    """Run a scenario with all its checks but for the golden transcript."""
    return finished(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, rewrite: bool) -> None:
    s = run(name)
    compare("white_box", name, (SCENARIOS[name].__doc__ or "") + "\n\n" + transcript(s, KINDS), rewrite)
