"""Names and numbers of groups, processes and messages."""

import pytest

from amcast.core.topology import Topology, message_id, sender_of, seq_of
from amcast.errors import TopologyError


def test_names_and_numbers() -> None:
    topology = Topology((3, 1), 2)
    assert [topology.name(p) for p in range(topology.size)] == ["g0/0", "g0/1", "g0/2", "g1/0", "c0", "c1"]
    assert [topology.pid(name) for name in ("g0/2", "g1/0", "c1")] == [2, 3, 5]
    assert topology.groups == ((0, 1, 2), (3,))
    assert topology.members_of((0, 1)) == (0, 1, 2, 3)
    assert (topology.quorum(0), topology.quorum(1)) == (2, 1)
    assert topology.message_name(message_id(4, 7)) == "c0:7"


@pytest.mark.parametrize(("sender", "seq"), [(0, 0), (3, 2**31), (10**6, 5)])
def test_message_ids(sender: int, seq: int) -> None:
    mid = message_id(sender, seq)
    assert (sender_of(mid), seq_of(mid)) == (sender, seq)


@pytest.mark.parametrize(("sizes", "clients"), [((), 1), ((0,), 1), ((3, -1), 1), ((3,), -1), ((70_000,), 1)])
def test_impossible_topologies_are_refused(sizes: tuple[int, ...], clients: int) -> None:
    with pytest.raises(TopologyError, match="expected"):
        Topology(sizes, clients)


def test_unknown_process_is_refused_by_name() -> None:
    with pytest.raises(TopologyError, match=r"no process 'g9/0'.*g0/0 … g1/0 or c0 … c1"):
        Topology((3, 1), 2).pid("g9/0")
