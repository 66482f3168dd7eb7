"""When leaders tell which floor their group has reached, how often, and what is forgotten then."""

from collections.abc import Callable
from typing import Any

import pytest

from amcast.core.order import BOTTOM
from amcast.core.process import Effects, Params, Process
from amcast.core.topology import Mid, Topology
from amcast.protocols.parts import collection as parts
from amcast.protocols.parts.sparse import dense, sparse
from amcast.protocols.white_box.configurations import Configurations
from amcast.sim.choices import Seeded
from tests.mutants import load, mutant

GROUPS = 40
NEAR, FAR = 7, 23  # groups that share messages with the first one


class Leader:
    """The collection of the leader of the first of many groups, and what it tells whom."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.process = Process(0, Topology((3,) * GROUPS), Params(1), Effects())
        self.collection = module.Collection(self.process, 2)
        self.told: list[tuple[int, int, int]] = []  # tick, group, floor

    def deliver(self, gts: int, *others: int, everybody: bool = True) -> None:
        self.collection.delivered(self.module.Collectable(Mid(gts), (0, *others), gts))
        self.delivered = gts
        if everybody:
            self.collection.heard(1, gts)

    def ticks(self, count: int, leads: bool = True) -> list[Mid]:
        forgotten: list[Mid] = []
        for _ in range(count):
            forgotten += self.collection.tick(leads, 0, self.delivered)
            for to, floor in self.process.out.sends:
                self.told.append((self.collection.ticks, to[0] // 3, floor.gts))
            self.process.out.sends.clear()
        return forgotten

    def hear(self, g: int, gts: int) -> None:
        self.collection.on_floor(self.module.Floor(g, gts))


def who_shares_a_delivery_is_told_once_a_quorum_has_it(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, FAR, everybody=False)
    leader.ticks(3)
    assert leader.told == []
    leader.collection.heard(2, 1)
    leader.ticks(3)
    assert leader.told == [(4, 0, 1), (4, FAR, 1)] and not leader.collection.untold


def a_floor_is_told_again_less_and_less_often(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, FAR)
    leader.ticks(5000)
    times = [tick for tick, g, _ in leader.told if g == FAR]
    assert times == [1, 17, 49, 113, 241, 497, 1009, 2033, 3057, 4081], "doubled, up to once in 1024"


def news_begin_that_anew(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, FAR)
    leader.ticks(30)
    leader.deliver(2, FAR)
    leader.ticks(40)
    assert [(tick, floor) for tick, g, floor in leader.told if g == FAR] == [(1, 1), (17, 1), (31, 2), (47, 2)]


def what_does_not_concern_a_group_is_not_told_to_it(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, FAR)
    leader.deliver(2, NEAR)
    leader.ticks(1)
    leader.deliver(3, NEAR)
    leader.ticks(1)
    assert [g for tick, g, _ in leader.told if tick == 2] == [0, NEAR]


def a_new_leader_tells_all_who_share_something(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, FAR)
    leader.deliver(2, NEAR)
    leader.ticks(10, leads=False)
    assert leader.told == []
    leader.ticks(2)
    assert leader.told == [(11, 0, 2), (11, NEAR, 2), (11, FAR, 2)]
    leader.ticks(1, leads=False)
    leader.ticks(1)
    assert [g for tick, g, _ in leader.told if tick == 14] == [0, NEAR, FAR]


def a_message_is_forgotten_when_all_its_groups_have_it(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(1, NEAR, FAR)
    leader.deliver(2, NEAR)
    leader.hear(NEAR, 2)
    assert leader.ticks(3) == [], "its own group has not"
    leader.hear(0, 2)
    assert leader.ticks(3) == [2]
    leader.hear(FAR, 1)
    assert leader.ticks(1) == [1] and not leader.collection.waiting


def a_follower_that_delivers_late_forgets_at_once(module: Any) -> None:
    leader = Leader(module)
    leader.hear(0, 5)
    leader.hear(FAR, 5)
    leader.deliver(5, FAR)
    assert leader.ticks(1, leads=False) == [5]


def a_floor_that_is_old_changes_nothing(module: Any) -> None:
    leader = Leader(module)
    leader.deliver(5, FAR)
    for g in (0, FAR):
        leader.hear(g, 4)
        leader.hear(g, 2)
    assert leader.ticks(2) == [] and leader.collection.floors == {0: 4, FAR: 4}
    leader.hear(FAR, 5)
    leader.hear(0, 5)
    leader.hear(FAR, 1)
    assert leader.ticks(1) == [5]


STEPS: list[Callable[[Any], None]] = [
    who_shares_a_delivery_is_told_once_a_quorum_has_it,
    a_floor_is_told_again_less_and_less_often,
    news_begin_that_anew,
    what_does_not_concern_a_group_is_not_told_to_it,
    a_new_leader_tells_all_who_share_something,
    a_message_is_forgotten_when_all_its_groups_have_it,
    a_follower_that_delivers_late_forgets_at_once,
    a_floor_that_is_old_changes_nothing,
]
MUTANTS = [
    mutant("never_told_again", ("                self.tell(g, floor, min(2", "                (self, floor, min(2")),
    mutant("told_again_as_often", ("min(2 * ticks, LONGEST_SILENCE)", "ticks")),
    mutant("told_again_ever_less", ("min(2 * ticks, LONGEST_SILENCE)", "2 * ticks")),
    mutant("old_plans_count", ("            if due == self.ticks:\n", "            if True:\n")),
    mutant("told_without_a_quorum", ("< min(floor, shared)", "< shared")),
    mutant("untold_for_ever", ("            if shared <= floor:\n", "            if False:\n")),
    mutant("told_too_early", ("            if shared <= floor:\n", "            if True:\n")),
    mutant("new_leader_is_silent", ("            if not self.leads:\n", "            if False:\n")),
    mutant("floors_fall", ("if gts > self.floors.get(g, BOTTOM):", "if True:")),
    mutant("nothing_rises", ("                self.risen[g] = True\n", "                pass\n")),
    mutant("own_group_not_looked_at", ("        self.risen[self.g0] = True\n", "")),
    mutant("one_group_is_enough", ("                if blocked_by < 0:\n", "                if True:\n")),
    mutant("empty_queues_stay", ("            if not queue:\n", "            if False:\n")),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_collection(step: Callable[[Any], None]) -> None:
    step(parts)


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Any) -> None:
    module = load(broken, parts)
    with pytest.raises((AssertionError, KeyError)):
        for step in STEPS:
            step(module)


def test_numbers_of_which_most_are_the_same() -> None:
    assert sparse((BOTTOM, 4, BOTTOM, 0), BOTTOM) == {1: 4, 3: 0}
    assert dense({1: 4, 3: 0}, 4, BOTTOM) == (BOTTOM, 4, BOTTOM, 0)


def test_processes_share_what_they_begin_with_and_nothing_else() -> None:
    topology = Topology((3, 3))
    one, other, late = (Configurations(topology, Params(1)) for _ in range(3))
    assert one.lists is other.lists and not one.changed and not one.knows_less(5)
    one.add(0, 1, (0, 1), b"")
    assert one.knows_less(5) and one.members_of((0, 1)) == (0, 1, 2, 3, 4, 5)
    one.establish(0, 1)
    assert one.members_of((0, 1)) == (0, 1, 3, 4, 5) and one.known == (3, 1)
    for process in (other, late, Configurations(topology, Params(1))):
        assert len(process.lists[0]) == 1 and process.established == [0, 0] and process.known == (1, 1)
        assert process.members_of((0, 1)) == (0, 1, 2, 3, 4, 5)
    spare = Configurations(topology, Params(1, spare=1))
    assert spare.members_of((0, 1)) == (0, 1, 3, 4), "who is no member yet is not asked"


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 5), (10, 2), (10, 7), (1000, 3)])
def test_a_sample_is_what_drawing_from_a_list_gives(n: int, k: int) -> None:
    for seed in range(100):
        choices = Seeded(seed)
        left = list(range(n))
        drawn = sorted(left.pop(choices.below(len(left))) for _ in range(k))
        assert list(Seeded(seed).sample(n, k)) == drawn
