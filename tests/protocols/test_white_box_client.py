"""A client of White-Box goes by what it is told of the members."""

from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.protocols.white_box.client import WhiteBoxClient


def test_who_was_removed_is_asked_no_more() -> None:
    topology = Topology((3, 3, 3), later=1)
    client = WhiteBoxClient(topology.replicas, topology, Params(1_000_000), Effects())
    client.cur_leader[1] = topology.groups[1][2]
    client.learn_lists(0, ((0, 1, (1, 2, 3), True, b""), (1, 1, (0, 1, 3), True, b""), (2, 1, (0, 1, 3), True, b"")))
    leaders = [client.leader_in(g) for g in range(3)]
    assert leaders == [topology.groups[0][1], topology.groups[1][0], topology.groups[2][0]]
