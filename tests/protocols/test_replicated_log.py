"""The replicated log as its owners see it: what is learned, and what is forgotten."""

import pytest

from amcast.core.order import ballot
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.protocols.black_box.replicated_log import Announce, Entry, Learner, quorum_has
from amcast.sim.simulation import Simulation

FIRST, SECOND = ballot(0, 0), ballot(1, 1)


def entry(seq: int) -> Entry:
    return (0, 0, AppMessage(message_id(9, seq), (0,), b""))


def heard(learner: Learner, sender: int, b: int, i: int, *seqs: int) -> list[Entry]:
    return learner.on_announce(sender, Announce(b, i, tuple(entry(seq) for seq in seqs)))


def test_a_quorum_has_what_so_many_have() -> None:
    assert [quorum_has([7, 3, 5], majority) for majority in (1, 2, 3)] == [7, 5, 3]


def test_a_place_is_learned_from_a_quorum_in_one_ballot_and_in_order() -> None:
    learner = Learner((0, 1, 2))
    assert heard(learner, 0, FIRST, 0, 1) == [] and heard(learner, 0, FIRST, 1, 2) == []
    assert heard(learner, 1, FIRST, 0, 1) == [entry(1)]
    assert heard(learner, 2, FIRST, 0, 1) == [], "it is known"
    assert heard(learner, 2, SECOND, 0, 1, 3) == [], "place 1 has 2 in one ballot and 3 in another"
    assert heard(learner, 1, SECOND, 0, 1, 3) == [entry(3)]
    assert learner.learned == 2 and learner.leader() == 1
    assert heard(learner, 0, FIRST, 2, 4) == [], "an old ballot"


def test_a_learner_that_saw_two_ballots_learns_from_what_is_announced_again() -> None:
    learner = Learner((0, 1, 2))
    heard(learner, 0, FIRST, 0, 1)
    assert heard(learner, 1, SECOND, 0, 1) == []
    assert heard(learner, 0, SECOND, 0, 1) == [entry(1)]


@pytest.mark.parametrize("name", ["ft_skeen", "fastcast", "paxos_amcast", "multi_paxos"])
def test_memory_does_not_grow_with_the_number_of_messages(name: str) -> None:
    """A log holds what is under way, and little more: what all have delivered is forgotten at heartbeats."""
    most: list[int] = []
    for messages in (300, 1500):
        groups = 1 if name == "multi_paxos" else 3
        world = Simulation(name, groups=groups, clients=5, messages=messages).world()
        worst = 0
        world.begin()
        while world.run_for(500):
            worst = max(worst, *[world.processes[p].footprint() for p in range(world.topology.replicas)])
        most.append(worst)
    assert most[1] < 1.5 * most[0], most
