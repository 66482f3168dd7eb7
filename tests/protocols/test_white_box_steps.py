"""Single steps of White-Box, compared as effects: what a process says in answer to one message."""

import pytest

from amcast.core.order import BOTTOM, ballot, timestamp
from amcast.core.process import Effects, Params
from amcast.core.requests import NOBODY
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage, Message
from amcast.errors import InvariantViolation
from amcast.protocols.parts.leader_candidate import Heartbeat, Nack, NewLeader, NewStateAck
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.protocols.white_box.message_state import ACCEPTED
from amcast.protocols.white_box.messages import (
    Accept,
    AcceptAck,
    Deliver,
    Fetch,
    Hello,
    Hint,
    Marks,
    Multicast,
    NewLeaderAck,
    NewState,
    Outcome,
    Reply,
    StateRows,
    Tail,
    Welcome,
)
from amcast.protocols.white_box.recent import digest_of
from amcast.protocols.white_box.records import RECORDS, Accepted, Delivered, Heard, Promised
from amcast.protocols.white_box.replica import WhiteBox

TOPOLOGY = Topology((3, 3), 1)
CLIENT = TOPOLOGY.pid("c0")
M = AppMessage(message_id(CLIENT, 0), (0, 1), b"hello")
N = AppMessage(message_id(CLIENT, 1), (0,), b"")
P = AppMessage(message_id(CLIENT, 2), (0,), b"")


def replica(name: str, tail_bytes: int = 0) -> WhiteBox:
    return WhiteBox(TOPOLOGY.pid(name), TOPOLOGY, Params(1_000_000, tail_bytes=tail_bytes), Effects())


def sends(process: WhiteBox) -> list[tuple[tuple[int, ...], Message]]:
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


def test_a_follower_that_stood_still_does_not_stand() -> None:
    """It finds the leader silent when it wakes, before it reads what the leader said meanwhile."""
    follower = replica("g0/1")
    follower.start(0)
    heartbeat = follower.params.heartbeat
    for now in range(heartbeat, 4 * heartbeat, heartbeat):
        follower.receive(now, TOPOLOGY.pid("g0/0"), Heartbeat(ballot(1, 0), ballot(1, 0), 0, 0))
        follower.timer(now, "tick")
    late = 4 * heartbeat + 3 * follower.params.suspect_after
    sends(follower)
    follower.timer(late, "tick")
    assert not any(isinstance(message, NewLeader) for _, message in sends(follower))
    while late < 5 * heartbeat + 7 * follower.params.suspect_after:  # but it hears nobody indeed
        late += heartbeat
        follower.timer(late, "tick")
    assert any(isinstance(message, NewLeader) for _, message in sends(follower))


def test_a_member_that_comes_back_is_asked_again() -> None:
    """What it said that it had delivered was not on its disk yet: to wait for that would be for ever."""
    g1 = TOPOLOGY.pid("g0/1")
    replica = WhiteBox(TOPOLOGY.pid("g0/0"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    replica.recover(0, [], 2, clean=True)
    sends(replica)
    for pid in TOPOLOGY.everybody:
        if pid != replica.pid:
            position = 1 if pid == g1 else 0
            replica.receive(0, pid, Welcome(0, 0, 0, position, 0, 0, 1, (), 2, 0, 0))
    assert sends(replica) == [((g1,), Fetch(0))] and replica.rejoining()
    replica.receive(0, g1, Hello(2, 0, False))
    replica.timer(replica.params.heartbeat, "tick")
    assert ((g1,), Hello(2, 0, False)) in sends(replica)
    replica.receive(0, g1, Welcome(0, 0, 0, 0, 0, 0, 1, (), 2, 0, 0))
    assert not replica.rejoining()


def asking() -> WhiteBoxClient:
    """A client that has asked for two messages, and been answered neither."""
    client = WhiteBoxClient(CLIENT, TOPOLOGY, Params(1_000_000), Effects())
    for m in (M, N):
        client.multicast(0, m)
    client.out.clear()
    return client


def asked(client: WhiteBoxClient) -> list[tuple[int, int]]:
    """Whom it has just asked for what."""
    found = [(pid, msg.m.mid) for to, msg in client.out.sends if isinstance(msg, Multicast) for pid in to]
    client.out.clear()
    return found


def test_a_client_asks_a_new_leader_for_everything_at_once() -> None:
    client = asking()
    client.receive(0, 1, Hint(NOBODY, 0, 1, ballot(1, 1)))
    assert asked(client) == [(1, M.mid), (1, N.mid)]
    client.receive(0, 2, Hint(N.mid, 0, 1, ballot(1, 1)))
    assert asked(client) == [], "it has asked there"
    client.receive(0, 1, Hint(NOBODY, 0, 1, ballot(4, 1)))
    assert asked(client) == [(1, M.mid), (1, N.mid)], "it has just begun, and may have lost what it was asked before"
    client.receive(0, 4, Reply(M.mid, 1, 4, ballot(1, 1)))
    assert asked(client) == [], "answered, and nothing else is open there"
    client.receive(0, 5, Hint(NOBODY, 1, 5, ballot(2, 2)))
    assert asked(client) == [], "what that group has answered"
    client.receive(0, 2, Reply(M.mid, 0, 2, ballot(5, 2)))
    assert asked(client) == [(2, N.mid)], "who answers leads, and may not have the rest"


def test_a_leader_that_was_replaced_does_not_mislead_a_client() -> None:
    client = asking()
    client.receive(0, 1, Hint(NOBODY, 0, 1, ballot(2, 1)))
    asked(client)
    for late in (Hint(NOBODY, 0, 2, ballot(1, 2)), Hint(N.mid, 0, 0, 0), Reply(M.mid, 0, 0, 0)):
        client.receive(0, 0, late)
        assert asked(client) == [] and client.cur_leader[0] == 1
    client.receive(0, 1, Hint(N.mid, 0, 2, ballot(2, 1)))
    assert asked(client) == [(2, N.mid)], "it leads no more, and names another one"


def test_a_client_waits_no_longer_for_a_new_leader_than_for_the_first() -> None:
    client = asking()
    delay = client.requests[N.mid].delay
    for at, news in ((0, lambda now: client.receive(now, 1, Hint(NOBODY, 0, 1, ballot(1, 1)))), (9, client.disconnect)):
        for seconds in (1, 2, 4):
            client.timer((at + seconds) * 10**9, "resend")
        assert client.requests[N.mid].delay > 4 * delay
        now = (at + 5) * 10**9
        news(now)
        assert (client.requests[N.mid].delay, client.requests[N.mid].due) == (delay, now + delay)


def test_so_many_requests_wait_for_a_leader() -> None:
    follower = replica("g0/1", tail_bytes=10)
    follower.gone(0, 0)
    follower.out.clear()
    follower.receive(0, CLIENT, Multicast(M))
    assert sends(follower) == []
    follower.receive(0, CLIENT, Multicast(AppMessage(P.mid, (0,), b"longer")))
    assert sends(follower) == [((CLIENT,), Hint(P.mid, 0, 0))], "5 bytes have room beside those 5, and 6 have not"
    assert follower.kept.take() == [M] and follower.kept.take() == []
    follower.receive(0, CLIENT, Multicast(AppMessage(P.mid, (0,), b"longer")))
    assert sends(follower) == [], "there is room again"


def test_acknowledges_when_all_groups_have_proposed() -> None:
    follower = replica("g0/1")
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    assert sends(follower) == []
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    assert sends(follower) == [((0, 3), AcceptAck(M.mid, 0, (0, 0), 0))]
    assert follower.clock == 9


def test_keeps_the_highest_ballot_of_each_group() -> None:
    follower = replica("g0/1")
    newer, older = ballot(2, 1), ballot(1, 0)
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    follower.receive(0, 4, Accept(M, 1, newer, timestamp(9, 1)))
    assert sends(follower) == [((0, 4), AcceptAck(M.mid, 0, (0, newer), 0))]
    follower.receive(0, 3, Accept(M, 1, older, timestamp(3, 1)))
    assert sends(follower) == [], "a lower ballot must not replace a higher one"
    follower.receive(0, 4, Accept(M, 1, newer, timestamp(9, 1)))
    assert sends(follower) == [((0, 4), AcceptAck(M.mid, 0, (0, newer), 0))], "a repeated ACCEPT is acknowledged again"


def test_accepts_arrive_in_every_status_and_count_later() -> None:
    follower = replica("g0/1")
    follower.receive(0, 2, NewLeader(ballot(1, 2)))
    assert sends(follower) == [((2,), NewLeaderAck(ballot(1, 2), 0, 0, 0, 0, 0, 1, ()))]
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


def test_fetches_once_what_is_missing_before_a_delivery() -> None:
    follower = replica("g0/1")
    late = Deliver(N, timestamp(2, 0), timestamp(2, 0), 1)
    follower.receive(0, 0, late)
    assert sends(follower) == [((0,), Fetch(0))]
    follower.receive(0, 0, late)
    assert follower.out == Effects(), "somebody was asked just now"
    follower.receive(0, 0, Tail(0, 2, ((M, timestamp(1, 0), timestamp(1, 1)),)))
    assert follower.out.deliveries == [(M, timestamp(1, 1)), (N, timestamp(2, 0))], "what came too early is kept"


def test_a_delivery_is_a_fact_in_any_ballot_and_happens_once() -> None:
    follower = replica("g0/1")
    follower.receive(0, 2, NewLeader(ballot(1, 2)))
    sends(follower)
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
    assert follower.out.deliveries == [(M, timestamp(1, 1))]


def test_a_laggard_gets_deliveries_or_hears_that_they_are_not_kept() -> None:
    leader = replica("g0/0", tail_bytes=150)
    for position, m in enumerate((M, N)):
        leader.receive(0, 0, Deliver(m, timestamp(position + 1, 0), timestamp(position + 1, 1), position))
    sends(leader)
    leader.receive(1, 2, Fetch(1))
    leader.receive(1, 2, Fetch(0))
    leader.receive(1, 2, Fetch(2))
    assert sends(leader) == [((2,), Tail(1, 2, ((N, timestamp(2, 0), timestamp(2, 1)),))), ((2,), Tail(1, 2, ()))]
    follower = replica("g0/2")
    follower.receive(2, 0, Tail(1, 2, ()))
    assert follower.out.pulls == [0] and follower.out.sends == []


def test_a_vote_has_what_is_not_delivered_and_comes_in_parts() -> None:
    """And it counts when all of them are here, in order."""
    follower, candidate = replica("g0/1"), replica("g0/2")
    payload = bytes(Params(1).part_bytes - 1000)
    big = [AppMessage(message_id(CLIENT, seq), (0,), payload) for seq in range(4)]
    for i, m in enumerate(big):
        follower.receive(0, 0, Accept(m, 0, 0, timestamp(i + 1, 0)))
    follower.receive(0, 0, Deliver(big[0], timestamp(1, 0), timestamp(1, 0), 0))
    candidate.receive(0, 0, Deliver(big[0], timestamp(1, 0), timestamp(1, 0), 0))
    follower.out.clear()
    candidate.suspect(1)
    ((_, ask),) = sends(candidate)
    candidate.receive(1, 2, ask)
    ((_, own),) = sends(candidate)
    candidate.receive(1, 2, own)
    follower.receive(1, 2, ask)
    votes = [msg for _, msg in sends(follower) if isinstance(msg, NewLeaderAck)]
    assert [(v.part, v.parts, v.position, v.rows) for v in votes] == [
        (i, 3, 1, ((m, ACCEPTED, timestamp(i + 2, 0), BOTTOM),)) for i, m in enumerate(big[1:])
    ]
    for i in (1, 0, 2, 1, 0, 0, 1):
        candidate.receive(2, 1, votes[i])
        assert sends(candidate) == [], "a quorum is not there before the last part"
    candidate.receive(2, 1, votes[2])
    states = [msg for _, msg in sends(candidate) if isinstance(msg, NewState)]
    assert [m for state in states for m, _, _, _ in state.rows] == big[1:]


def test_a_candidate_waits_for_the_longest_prefix_of_the_votes() -> None:
    candidate = replica("g0/1")
    b = ballot(1, 1)
    candidate.receive(0, 1, NewLeader(b))
    for _, own in sends(candidate):
        candidate.receive(0, 1, own)
    digest = digest_of(0, M.mid, timestamp(1, 1))
    candidate.receive(0, 2, NewLeaderAck(b, 0, 1, 1, digest, 0, 1, ()))
    assert sends(candidate) == [((2,), Fetch(0))]
    candidate.receive(1, 2, Tail(0, 1, ((M, timestamp(1, 0), timestamp(1, 1)),)))
    assert sends(candidate) == [((0, 2), NewState(b, b, 1, 1, digest, 0, 1, ()))]


def test_a_follower_has_the_prefix_of_a_ballot_before_it_acknowledges() -> None:
    follower = replica("g0/1")
    b = ballot(1, 2)
    digest = digest_of(0, M.mid, timestamp(1, 1))
    follower.receive(0, 2, NewState(b, b, 5, 1, digest, 0, 1, ()))
    assert sends(follower) == [((2,), Fetch(0))]
    assert follower.candidate.cballot == 0
    follower.receive(1, 2, Tail(0, 1, ((M, timestamp(1, 0), timestamp(1, 1)),)))
    assert sends(follower) == [((2,), NewStateAck(b))]
    assert (follower.candidate.cballot, follower.clock) == (b, 5)


def test_members_that_delivered_other_messages_stop() -> None:
    """A candidate, and a follower; nobody repairs that."""
    other = digest_of(0, N.mid, timestamp(1, 1))
    candidate = replica("g0/1")
    b = ballot(1, 1)
    candidate.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
    candidate.out.clear()
    candidate.receive(0, 1, NewLeader(b))
    for _, own in sends(candidate):
        candidate.receive(0, 1, own)
    with pytest.raises(InvariantViolation, match=r"g0/1 and g0/2 have delivered other messages up to position 1"):
        candidate.receive(0, 2, NewLeaderAck(b, 0, 1, 1, other, 0, 1, ()))
    follower = replica("g0/1")
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
    with pytest.raises(InvariantViolation, match=r"g0/1 and g0/2 have delivered other messages up to position 1"):
        follower.receive(0, 2, NewState(ballot(1, 2), ballot(1, 2), 1, 1, other, 0, 1, ()))


def test_answers_another_group_with_the_outcome_and_its_own_with_nothing() -> None:
    follower = replica("g0/1")
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
    follower.out.clear()
    follower.receive(1, 3, Accept(M, 1, 0, timestamp(1, 1)))
    follower.receive(1, 4, Multicast(M))
    follower.receive(1, 0, Accept(M, 0, 0, timestamp(1, 0)))
    outcome = Outcome(M.mid, timestamp(1, 1))
    assert sends(follower) == [((3,), outcome), ((4,), outcome)]


def test_delivers_in_order_and_only_the_leader_replies() -> None:
    for name, replies in (("g0/0", [((CLIENT,), Reply(M.mid, 0, 0))]), ("g0/1", [])):
        process = replica(name)
        process.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(1, 1), 0))
        assert process.out.deliveries == [(M, timestamp(1, 1))]
        assert process.out.sends == replies


def test_what_is_said_is_on_disk_before() -> None:
    """Records come with the step that sends the promise, the acknowledgement or the delivery they stand for."""
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    assert follower.out.records == []
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(9, 1), 0))
    follower.receive(0, 2, NewLeader(ballot(1, 2)))
    records = [record for data in follower.out.records for record in RECORDS.read(data)]
    assert records == [
        Accepted(M, timestamp(1, 0), 9),
        Delivered(M.mid, timestamp(1, 0), timestamp(9, 1)),
        Promised(ballot(1, 2)),
    ]


def test_a_mark_that_is_told_is_on_disk_before() -> None:
    """What others remember of a replica must not be lost with it: deliveries alone are written without haste."""
    leader = WhiteBox(TOPOLOGY.pid("g0/0"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    leader.save_later(Delivered(M.mid, timestamp(1, 0), timestamp(9, 1)))
    assert not leader.out.urgent
    leader.send_state((1,))
    assert ((1,), Marks(((0, 1, 1),))) in leader.out.sends
    assert leader.out.urgent


def test_a_replica_comes_back_from_its_records_and_from_a_snapshot() -> None:
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(M, 0, 0, timestamp(1, 0)))
    follower.receive(0, 3, Accept(M, 1, 0, timestamp(9, 1)))
    follower.receive(0, 0, Deliver(M, timestamp(1, 0), timestamp(9, 1), 0))
    for records in (list(follower.out.records), follower.snapshot()):
        again = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
        again.recover(5, records, 2, clean=True)
        assert again.rows() == follower.rows()
        assert (again.clock, again.prefix.max_delivered_gts) == (9, timestamp(9, 1))
        assert (again.position(), again.prefix.digest) == (1, follower.prefix.digest)
        assert again.probation.mark == follower.probation.mark
        assert (again.candidate.cballot, again.candidate.ballot) == (0, 0)
        assert again.prefix.done.mids() == [M.mid]
        again.out.clear()
        again.trust(5)
        again.receive(6, 0, Deliver(M, timestamp(1, 0), timestamp(9, 1), 0))
        assert again.out.deliveries == [], "delivered before the crash"


def test_a_leader_does_not_lead_on_after_a_restart() -> None:
    leader = WhiteBox(TOPOLOGY.pid("g0/0"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    leader.recover(0, [], 2, clean=True)
    leader.trust(0)
    leader.out.clear()
    leader.receive(0, CLIENT, Multicast(M))
    assert sends(leader) == [] and leader.kept.waiting == [M], "it waits for the next ballot"


def welcome(starts: int, known_starts: int, known_mark: int, rows: StateRows = ()) -> Welcome:
    return Welcome(0, 0, 7, 0, 0, 0, 1, rows, starts, known_starts, known_mark)


def restarted(name: str, records: list[bytes], clean: bool = True) -> WhiteBox:
    process = WhiteBox(TOPOLOGY.pid(name), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    process.recover(0, records, 2, clean)
    return process


def records_of_one_acceptance() -> list[bytes]:
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(N, 0, 0, timestamp(1, 0)))
    assert sends(follower) == [((0,), AcceptAck(N.mid, 0, (0,), 1))], "a word counts from its record on"
    follower.receive(0, 0, Accept(N, 0, 0, timestamp(1, 0)))
    return list(follower.out.records)


def test_a_replica_that_came_back_asks_all_and_takes_no_part_before_they_answer() -> None:
    follower = restarted("g0/1", records_of_one_acceptance())
    assert sends(follower) == [((0, 2, 3, 4, 5), Hello(2, 1, False))]
    for msg in (NewLeader(ballot(1, 2)), Accept(M, 0, 0, timestamp(1, 0)), Multicast(M), Nack(ballot(3, 0))):
        follower.receive(1, 2, msg)
    assert follower.out == Effects()
    assert follower.unready().startswith("may have forgotten something: waits for g0/0, g0/2, g1/0, g1/1, g1/2")
    for pid in (0, 2, 3, 4, 5):
        assert follower.rejoining()
        follower.receive(2, pid, welcome(2, 1, 1))
    assert not follower.rejoining() and follower.out.forgot == ""
    follower.receive(3, 2, NewLeader(ballot(1, 2)))
    assert [type(msg) for _, msg in sends(follower)] == [Marks, NewLeaderAck]


def test_a_replica_that_forgot_is_found_out_by_what_others_remember() -> None:
    for known_starts, known_mark in ((2, 0), (1, 2)):
        follower = restarted("g0/1", records_of_one_acceptance())
        follower.receive(2, 3, welcome(2, known_starts, known_mark))
        remembers = f"g1/0 remembers start {known_starts} and record {known_mark}"
        assert follower.out.forgot == f"{remembers}, its disk had start 1 and record 1"
        for pid in (0, 2, 3, 4, 5):
            follower.receive(2, pid, welcome(2, 1, 1))
        assert follower.rejoining(), "whatever the others say"


def test_an_answer_to_an_earlier_life_does_not_count() -> None:
    follower = restarted("g0/1", [])
    for pid in (0, 2, 3, 4, 5):
        follower.receive(2, pid, welcome(1, 0, 0))
    assert follower.rejoining()


def test_deliveries_on_probation_do_not_hide_what_is_missing() -> None:
    follower = restarted("g0/1", [])
    follower.receive(1, 0, Deliver(N, timestamp(1, 0), timestamp(1, 0), 0))
    follower.receive(1, 0, welcome(2, 1, 2))
    assert follower.out.forgot, "two records were on disk once, and none is of these"


def test_a_majority_releases_after_a_while_one_that_misses_nothing_so_far_as_is_known() -> None:
    for clean in (True, False):
        follower = restarted("g0/1", [], clean)
        follower.receive(2, 2, welcome(2, 1, 0))
        follower.timer(2, "tick")
        assert follower.rejoining()
        follower.timer(follower.params.suspect_after + 1, "tick")
        assert follower.rejoining() is not clean


def test_one_that_forgot_itself_is_not_waited_for_and_does_not_count() -> None:
    follower = restarted("g0/1", [])
    follower.receive(2, 2, welcome(2, BOTTOM, 0))
    follower.timer(follower.params.suspect_after + 1, "tick")
    assert follower.rejoining(), "no majority"
    for pid in (0, 3, 4, 5):
        follower.receive(2, pid, welcome(2, 1, 0))
    assert not follower.rejoining()


def test_what_others_hear_they_remember_and_tell() -> None:
    leader = WhiteBox(TOPOLOGY.pid("g0/0"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    leader.receive(0, 1, AcceptAck(M.mid, 0, (0, 0), 7))
    leader.receive(0, 2, Marks(((2, 3, 5), (1, 1, 4))))
    leader.out.clear()
    leader.timer(1, "tick")
    assert Marks(((1, 1, 7), (2, 3, 5), (0, 1, 0))) in [msg for _, msg in leader.out.sends]
    heard = [record for data in leader.out.records for record in RECORDS.read(data)]
    assert heard == [Heard((0, 1, 3, 0, 0, 0), (0, 7, 5, 0, 0, 0))]
    leader.out.clear()
    leader.receive(2, 1, Hello(2, 6, False))
    assert sends(leader)[0][1] == Welcome(0, 0, 0, 0, 0, 0, 1, (), 2, 1, 7)


def test_who_restarts_is_not_taken_for_slow() -> None:
    params = Params(1_000_000, durable=True)
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, params, Effects())
    detector = follower.candidate.detector
    now = 0
    for start in range(2, 6):
        now += params.suspect_after + 1
        assert 0 in detector.newly_suspected(now), f"before start {start}"
        follower.receive(now, 0, Hello(start, 0, False))
        assert detector.heard(0, now)


def test_a_leader_takes_back_what_a_follower_accepted_from_it() -> None:
    follower = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    follower.receive(0, 0, Accept(N, 0, 0, timestamp(1, 0)))
    follower.out.clear()
    follower.receive(1, 0, Hello(2, 0, False))
    ((_, answer),) = sends(follower)
    assert isinstance(answer, Welcome) and answer.rows == ((N, ACCEPTED, timestamp(1, 0), BOTTOM),)
    leader = restarted("g0/0", [])
    leader.receive(1, 1, answer)
    assert leader.rows() == [(N.mid, ACCEPTED, timestamp(1, 0), BOTTOM)]
    assert [record for data in leader.out.records for record in RECORDS.read(data)] == [Accepted(N, timestamp(1, 0), 1)]


def test_a_replica_without_a_disk_enters_no_ballot_in_which_it_may_have_had_a_part() -> None:
    lost = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    lost.rejoin(0, 2)
    assert sends(lost) == [((0, 2), Hello(2, 1, True))]
    old, new = ballot(4, 2), ballot(5, 2)
    for pid in (0, 2):
        lost.receive(1, pid, Welcome(old, 0, 0, 0, 0, 0, 1, (), 2, 1, 9))
    lost.out.clear()
    for b in (old, new):
        lost.receive(2, 2, NewLeader(b))
        assert lost.out == Effects(), "it does not vote"
    lost.receive(2, 2, NewState(old, old, 0, 0, 0, 0, 1, ()))
    assert lost.out == Effects()
    lost.receive(2, 2, NewState(new, new, 0, 0, 0, 0, 1, ()))
    assert [type(msg) for _, msg in sends(lost)] == [Marks, NewStateAck]
    assert not lost.rejoining()
    assert (lost.probation.starts, lost.probation.mark) > (2, 9), "others believe what it says from now on"


def test_a_replica_that_lost_its_disk_once_counts_each_life_after_that() -> None:
    """Killed twice before it made a snapshot, it was taken for one that forgot: others remembered its last life."""
    lost = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    lost.rejoin(0, 2)
    for pid in (0, 2):
        lost.receive(1, pid, Welcome(ballot(4, 2), 0, 0, 0, 0, 0, 1, (), 2, 7, 9))
    disk, lives = list(lost.out.records), [lost.probation.starts]
    for starts in (3, 4):
        again = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
        again.recover(2, list(disk), starts, True)
        disk += again.out.records
        lives.append(again.probation.starts)
    assert lives == [8, 9, 10]


def test_a_snapshot_of_another_is_taken_over_if_it_is_ahead() -> None:
    source, other = (WhiteBox(pid, TOPOLOGY, Params(1_000_000, durable=True), Effects()) for pid in (0, 2))
    for position, m in enumerate((M, N)):
        source.receive(0, 0, Deliver(m, timestamp(position + 1, 0), timestamp(position + 1, 1), position))
    other.receive(0, 0, Accept(N, 0, 0, timestamp(2, 0)))
    other.receive(0, 0, Accept(P, 0, 0, timestamp(3, 0)))
    other.out.clear()
    other.install(1, source.snapshot())
    assert other.out.deliveries == [], "they are in the application's state"
    assert (other.position(), other.prefix.digest, other.clock) == (2, source.prefix.digest, 3)
    assert other.has_delivered(M.mid) and other.has_delivered(N.mid)
    assert other.rows() == [(P.mid, ACCEPTED, timestamp(3, 0), BOTTOM)]
    assert list(other.prefix.outcomes) == [M.mid]
    other.receive(2, 0, Deliver(P, timestamp(3, 0), timestamp(3, 0), 2))
    assert other.out.deliveries == [(P, timestamp(3, 0))]
    other.install(3, source.snapshot())
    assert other.position() == 3


def test_one_that_forgot_does_not_vouch_for_others() -> None:
    lost = WhiteBox(TOPOLOGY.pid("g0/1"), TOPOLOGY, Params(1_000_000, durable=True), Effects())
    lost.rejoin(0, 2)
    sends(lost)
    lost.receive(1, 2, Hello(2, 0, False))
    ((_, answer),) = sends(lost)
    assert isinstance(answer, Welcome) and answer.known_starts == BOTTOM


def test_a_life_that_others_remember_is_judged_at_any_time() -> None:
    """Two folders of one replica are in use, or one from before its last start was released too early."""
    follower = restarted("g0/1", [])
    follower.trust(0)
    follower.receive(1, 2, Marks(((1, 2, 0),)))
    assert follower.out.forgot == ""
    follower.receive(1, 2, Marks(((1, 3, 0),)))
    assert follower.out.forgot.startswith("others of its group remember start 3")
