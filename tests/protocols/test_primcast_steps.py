"""Single steps of PrimCast, compared as effects: what a process says in answer to one message."""

from amcast.core.order import BOTTOM, timestamp
from amcast.core.process import Effects, Params
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.protocols.primcast.messages import Ack, Bump, Proposal
from amcast.protocols.primcast.replica import HybridPrimCast, PrimCast

TOPOLOGY = Topology((3, 3), 1)
CLIENT = TOPOLOGY.pid("c0")
M = AppMessage(message_id(CLIENT, 0), (0,), b"hello")
N = AppMessage(message_id(CLIENT, 1), (0,), b"")
BOTH = AppMessage(message_id(CLIENT, 2), (0, 1), b"")
GROUP = (0, 1, 2)


def replica(name: str, durable: bool = False) -> PrimCast:
    return PrimCast(TOPOLOGY.pid(name), TOPOLOGY, Params(1_000_000, durable=durable), Effects())


def delivers(process: PrimCast, *messages: AppMessage) -> None:
    """Let g0/1 accept and deliver these, one after the other."""
    for n, m in enumerate(messages, 1):
        lts = timestamp(n, 0)
        process.receive(0, 0, Proposal(m, 0, 0, lts, n, 0))
        process.receive(0, 1, Ack(m.mid, 0, 0, lts, 0))


def test_a_follower_of_three_delivers_with_its_primary() -> None:
    follower = replica("g0/1")
    follower.receive(0, 0, Proposal(M, 0, 0, timestamp(1, 0), 1, 0))
    assert follower.out.sends == [(GROUP, Ack(M.mid, 0, 0, timestamp(1, 0), 0))] and not follower.out.deliveries
    follower.out.clear()
    follower.receive(0, 1, Ack(M.mid, 0, 0, timestamp(1, 0), 0))
    assert follower.out.deliveries == [(M, timestamp(1, 0))]
    assert follower.out.sends == [((CLIENT,), Reply(M.mid, 0, 0))], "it names the primary, not itself"


def test_a_proposal_waits_for_no_disk_and_counts_when_it_is_there() -> None:
    primary = replica("g0/0", durable=True)
    primary.receive(0, CLIENT, Multicast(M))
    proposal = Proposal(M, 0, 0, timestamp(1, 0), 1, BOTTOM)
    assert primary.out.sends == [(GROUP, proposal)] and not primary.out.records
    primary.out.clear()
    primary.receive(0, 0, proposal)
    assert primary.out.urgent and len(primary.out.records) == 1
    assert primary.out.sends == [(GROUP, Ack(M.mid, 0, 0, timestamp(1, 0), 1))]


def test_a_clock_is_on_disk_before_it_is_reported_and_seldom() -> None:
    follower = replica("g0/1", durable=True)
    follower.receive(0, 3, Proposal(BOTH, 1, 0, timestamp(7, 1), 1, 0))
    assert follower.out.urgent and follower.out.sends == [(GROUP, Bump(0, 7, 0, 1))]
    follower.out.clear()
    follower.receive(0, 3, Ack(N.mid, 1, 0, timestamp(9, 1), 0))
    assert not follower.out.urgent and follower.out.sends == [(GROUP, Bump(0, 9, 0, 1))]


def test_a_report_counts_what_is_on_disk() -> None:
    """A delivery is recorded and may be lost: who is told of that record would take the replica for a forgetful one."""
    follower = replica("g0/1", durable=True)
    follower.receive(0, 3, Proposal(BOTH, 1, 0, timestamp(7, 1), 1, 0))  # record 1: the ceiling
    follower.receive(0, 0, Proposal(M, 0, 0, timestamp(8, 0), 1, 0))  # record 2: the acceptance
    follower.receive(0, 0, Ack(M.mid, 0, 0, timestamp(8, 0), 0))
    follower.out.clear()
    follower.receive(0, 1, Ack(M.mid, 0, 0, timestamp(8, 0), 2))  # record 3: the delivery
    assert follower.out.deliveries and follower.out.records and not follower.out.urgent
    follower.out.clear()
    follower.receive(0, 3, Ack(N.mid, 1, 0, timestamp(9, 1), 0))
    assert follower.out.sends == [(GROUP, Bump(0, 9, 1, 2))]


def test_a_snapshot_is_installed_as_it_is() -> None:
    """What can be delivered behind it is no part of that step: the application's state is put in place first."""
    ahead, behind = replica("g0/2"), replica("g0/1")
    delivers(ahead, M)
    records = ahead.snapshot()
    for n, m in enumerate((M, N), 1):  # g0/1 has both in its log, and is about to deliver
        behind.receive(0, 0, Proposal(m, 0, 0, timestamp(n, 0), n, 0))
    behind.receive(0, 2, Ack(N.mid, 0, 0, timestamp(2, 0), 0))
    assert not behind.out.deliveries
    behind.out.clear()
    behind.install(0, records)
    assert behind.position() == 1 and not behind.out.deliveries
    (to, word), *others = behind.out.sends
    assert to == (1,) and not others
    behind.receive(0, 1, word)
    assert [m for m, _ in behind.out.deliveries] == [N]


def test_hybrid_clocks_take_the_time_where_that_is_ahead() -> None:
    primary = HybridPrimCast(0, TOPOLOGY, Params(1_000_000), Effects())
    primary.receive(5_000, CLIENT, Multicast(M))
    primary.receive(5_000, CLIENT, Multicast(N))
    stamps = [msg.lts for _, msg in primary.out.sends if isinstance(msg, Proposal)]
    assert stamps == [timestamp(5_000, 0), timestamp(5_001, 0)]
    assert primary.condition()["clock_ahead_ns"] == 1
