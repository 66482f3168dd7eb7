"""The replicated log as its owners see it: what is learned, and what is forgotten."""

import pytest

from amcast.core.order import ballot
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.protocols import protocol
from amcast.protocols.black_box.durable_log import DurableLogOwner
from amcast.protocols.black_box.replicated_log import Announce, Entry, Learner, quorum_has
from amcast.sim.script import Script
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


@pytest.mark.parametrize("name", ["ft_skeen", "fastcast", "paxos_amcast", "multi_paxos"])
def test_a_member_that_is_down_costs_a_bounded_amount(name: str) -> None:
    """Memory and votes are the same after 100 and after 200 messages: what is delivered is in no vote."""
    sizes: list[tuple[int, int]] = []
    for messages in (100, 200):
        groups = 1 if name == "multi_paxos" else 2
        s = Script(protocol(name), (3,) * groups, heartbeat=5, tail_bytes=2000)
        s.at(0.5, lambda s=s: s.crash("g0/2"))  # type: ignore[misc]
        for i in range(messages):
            s.at(1 + 10 * i, lambda s=s, groups=groups: s.multicast("c0", *range(groups)))  # type: ignore[misc]
        s.at(10 * messages + 50, lambda s=s: s.recover("g0/1"))  # type: ignore[misc]
        s.run()
        names = ["g0/0", "g0/1", *[f"g1/{rank}" for rank in range(3) if groups > 1]]
        assert all(len(s.deliveries(name)) == messages for name in names)
        memory = max(s.world.processes[s.topology.pid(name)].footprint() for name in names)
        vote = max(len(part[2]) for part in s.world.processes[s.topology.pid("g0/0")].log.in_parts())
        sizes.append((memory, vote))
    assert sizes[0] == sizes[1], sizes
    assert sizes[0][0] < 40 and sizes[0][1] < 5


@pytest.mark.parametrize("name", ["ft_skeen", "fastcast", "multi_paxos", "paxos_amcast"])
def test_a_mark_that_is_told_is_on_disk_before(name: str) -> None:
    """Else a kill makes a replica one that forgot (seed 1400007 of `swarm ft_skeen --cluster`)."""
    for tell in (lambda owner: owner.mark(), lambda owner: owner.tell_mark((1,))):
        owner = protocol(name).make(0, Topology((3,), 1), Params(1_000_000, durable=True), Effects())
        assert isinstance(owner, DurableLogOwner) and not owner.out.urgent
        tell(owner)
        assert owner.out.urgent
