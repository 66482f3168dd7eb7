"""Single steps of White-Box, compared as effects: what a process says in answer to one message."""

from amcast.core.order import BOTTOM, ballot, timestamp
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.protocols.parts.leader_candidate import Nack, NewLeader
from amcast.protocols.white_box.messages import (
    Accept,
    AcceptAck,
    Deliver,
    Hint,
    Multicast,
    NewLeaderAck,
    Reply,
)
from amcast.protocols.white_box.records import RECORDS, Accepted, Delivered, Promised
from amcast.protocols.white_box.replica import WhiteBox

TOPOLOGY = Topology((3, 3), 1)
CLIENT = TOPOLOGY.pid("c0")
M = AppMessage(message_id(CLIENT, 0), (0, 1), b"hello")


def replica(name: str) -> WhiteBox:
    return WhiteBox(TOPOLOGY.pid(name), TOPOLOGY, Params(1_000_000), Effects())


def sends(process: WhiteBox) -> list[tuple[tuple[int, ...], object]]:
    taken = list(process.out.sends)
    process.out.clear()
    return taken


def test_leader_proposes_to_every_destination() -> None:
    leader = replica("g0/0")
    leader.receive(0, CLIENT, Multicast(M))
    expected = Effects()
    expected.sends.append(((0, 1, 2, 3, 4, 5), Accept(M, 0, 0, timestamp(1, 0))))
    assert leader.out == expected


def test_a_repeated_multicast_gets_the_same_timestamp() -> None:
    leader = replica("g0/0")
    leader.receive(0, CLIENT, Multicast(M))
    first = sends(leader)
    leader.receive(1, CLIENT, Multicast(M))
    assert sends(leader) == first


def test_a_follower_tells_a_client_who_leads_and_nobody_else() -> None:
    follower = replica("g0/1")
    follower.receive(0, CLIENT, Multicast(M))
    assert sends(follower) == [((CLIENT,), Hint(M.mid, 0, 0))]
    follower.receive(0, TOPOLOGY.pid("g1/0"), Multicast(M))
    assert sends(follower) == []


def test_acknowledges_when_all_groups_have_proposed() -> None:
    follower = replica("g0/1")
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    assert sends(follower) == []
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    assert sends(follower) == [((0, 3), AcceptAck(M.mid, 0, (0, 0)))]
    assert follower.clock == 9


def test_keeps_the_highest_ballot_of_each_group() -> None:
    follower = replica("g0/1")
    newer, older = ballot(2, 1), ballot(1, 0)
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    follower.receive(0, 4, Accept(M, 1, newer, timestamp(9, 1)))
    assert sends(follower) == [((0, 4), AcceptAck(M.mid, 0, (0, newer)))]
    follower.receive(0, 3, Accept(M, 1, older, timestamp(3, 1)))
    assert sends(follower) == [], "a lower ballot must not replace a higher one"
    follower.receive(0, 4, Accept(M, 1, newer, timestamp(9, 1)))
    assert sends(follower) == [((0, 4), AcceptAck(M.mid, 0, (0, newer)))], "a repeated ACCEPT is acknowledged again"


def test_accepts_arrive_in_every_status_and_count_later() -> None:
    follower = replica("g0/1")
    follower.receive(0, 2, NewLeader(ballot(1, 2)))
    assert sends(follower) == [((2,), NewLeaderAck(ballot(1, 2), 0, 0, ()))]
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(4, 1)))
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    assert sends(follower) == []
    assert follower.entries[M.mid].missing == 0


def test_refuses_a_lower_ballot_and_says_which_it_joined() -> None:
    follower = replica("g0/1")
    follower.receive(0, 2, NewLeader(ballot(5, 2)))
    sends(follower)
    follower.receive(0, 0, NewLeader(ballot(3, 0)))
    assert sends(follower) == [((0,), Nack(ballot(5, 2)))]


def test_refuses_a_delivery_behind_a_gap_once() -> None:
    follower = replica("g0/1")
    late = Deliver(M, 0, timestamp(2, 0), timestamp(2, 0), timestamp(1, 0))
    follower.receive(0, 0, late)
    assert sends(follower) == [((0,), Nack(0))]
    assert follower.out.deliveries == []
    follower.receive(0, 0, late)
    assert sends(follower) == []


def test_ignores_a_delivery_of_another_ballot() -> None:
    """l.25. The name of the previous delivery protects from gaps as well, so no schedule shows this guard alone."""
    follower = replica("g0/1")
    follower.receive(0, 2, Deliver(M, ballot(1, 2), timestamp(1, 0), timestamp(1, 1), BOTTOM))
    assert follower.out == Effects()


def test_delivers_in_order_and_only_the_leader_replies() -> None:
    for name, replies in (("g0/0", [((CLIENT,), Reply(M.mid, 0, 0))]), ("g0/1", [])):
        process = replica(name)
        process.receive(0, 0, Deliver(M, 0, timestamp(1, 0), timestamp(1, 1), BOTTOM))
        assert process.out.deliveries == [(M, timestamp(1, 1))]
        assert process.out.sends == replies


def test_what_is_said_is_on_disk_before() -> None:
    """Records come with the step that sends the promise, the acknowledgement or the delivery they stand for."""
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    assert follower.out.records == []
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    follower.receive(0, 0, Deliver(M, 0, timestamp(1, 0), timestamp(9, 1), BOTTOM))
    follower.receive(0, 2, NewLeader(ballot(1, 2)))
    records = [record for data in follower.out.records for record in RECORDS.read(data)]
    assert records == [
        Accepted(M, timestamp(1, 0), 9),
        Delivered(M.mid, timestamp(1, 0), timestamp(9, 1)),
        Promised(ballot(1, 2)),
    ]


def test_a_replica_comes_back_from_its_records_and_from_a_snapshot() -> None:
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    follower.receive(0, 0, Deliver(M, 0, timestamp(1, 0), timestamp(9, 1), BOTTOM))
    for records in (list(follower.out.records), follower.snapshot()):
        again = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
        again.recover(5, records)
        assert again.rows() == follower.rows()
        assert (again.clock, again.max_delivered_gts) == (9, timestamp(9, 1))
        assert (again.candidate.cballot, again.candidate.ballot) == (0, 0)
        assert again.done.mids() == [M.mid]
        again.out.clear()
        again.receive(6, 0, Deliver(M, 0, timestamp(1, 0), timestamp(9, 1), BOTTOM))
        assert again.out.deliveries == [], "delivered before the crash"


def test_a_leader_does_not_lead_on_after_a_restart() -> None:
    leader = WhiteBox(TOPOLOGY.pid("g0/0"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    leader.recover(0, [])
    leader.out.clear()
    leader.receive(0, CLIENT, Multicast(M))
    assert sends(leader) == [((CLIENT,), Hint(M.mid, 0, 0))]
