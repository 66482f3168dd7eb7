"""The small parts of Baseline and Optimistic, one at a time."""

from amcast.core.order import BOTTOM
from amcast.core.requests import replica_codec
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, joined
from amcast.protocols.black_box.replicated_log import Announce
from amcast.protocols.optimistic.log_learners import PartialLearner
from amcast.protocols.optimistic.messages import MESSAGES, facts_of, unwrap, wrap
from amcast.protocols.optimistic.reliable_multicast import Copy, FifoReceiver, FifoSender
from amcast.protocols.optimistic.senders_to import SendersTo
from amcast.protocols.optimistic.wait_window import LAST, WaitWindow


def test_a_run_of_messages_survives_its_place_in_a_log() -> None:
    run = AppMessage(message_id(7, 3), (0, 2), joined([b"one", b"", b"three"]), 2, count=3)
    codec = replica_codec(MESSAGES, 3)
    announced = Announce(5, 9, ((0, 77, wrap(run, (11, 12))),))
    again = codec.decode(codec.encode(announced))
    assert isinstance(again, Announce) and again == announced
    logged = again.entries[0][2]
    assert facts_of(logged) == [11, 12] and unwrap(logged, 2) == run


def copy(p: int, n: int, prev: int, dest: int = 1) -> Copy:
    return Copy(0, AppMessage(message_id(p, n), (dest,), b""), p, n, n, (prev,), (BOTTOM,))


def test_sender_names_its_previous_message_to_each_group() -> None:
    sender = FifoSender()
    assert [sender.next(dest) for dest in ((1,), (2,), (1, 2), (1,))] == [(1, (0,)), (2, (0,)), (3, (1, 2)), (4, (3,))]


def test_copies_wait_for_those_before() -> None:
    receiver = FifoReceiver(1, [0, 0, 0, 1, 1, 1])
    first, third, fourth = copy(0, 1, 0), copy(0, 3, 1), copy(0, 4, 3)
    assert receiver.receive(fourth) == [] and receiver.receive(third) == []
    assert receiver.receive(first) == [first, third, fourth]
    assert receiver.receive(third) == []  # again
    assert receiver.receive(copy(1, 5, 2)) == []
    assert [c.n for c in receiver.ordered(1, 2)] == [5]  # the ordered message is as good as its copy


def test_sender_s_own_group_gets_everything() -> None:
    receiver = FifoReceiver(0, [0, 0, 0, 1, 1, 1])
    second = copy(0, 2, 0, dest=1)
    assert receiver.receive(second) == []
    assert [c.n for c in receiver.receive(copy(0, 1, 0, dest=1))] == [1, 2]


def test_window_is_the_largest_mean_of_the_last_hundred() -> None:
    window = WaitWindow(start=9)
    assert window.length == 9
    for _ in range(LAST):
        window.heard(1, 100)
        window.heard(2, 40)
    assert window.length == 100
    for _ in range(LAST // 2):
        window.heard(1, -100)  # a clock that is ahead
    assert window.length == 40
    for _ in range(LAST):
        window.heard(2, -50)
    for _ in range(LAST // 2):
        window.heard(1, -100)
    assert window.length == -50


def test_window_of_a_percentile_and_a_fixed_one() -> None:
    window = WaitWindow(start=0, percentile=95)
    for delay in range(1, LAST + 1):
        window.heard(1, delay)
    assert window.length > 80
    fixed = WaitWindow(start=0, fixed=7)
    fixed.heard(1, 100)
    assert fixed.length == 7


def test_window_without_outliers() -> None:
    window = WaitWindow(start=9, most=50)
    for _ in range(10):
        window.heard(1, 20, now=100)
        window.heard(2, 1000, now=200)  # a wrong clock: nobody waits for it
    assert window.length == 20
    for _ in range(10):
        window.heard(2, 0, now=200)  # its clock is mended: what was measured before counts as 50
    assert window.length == 25
    window.forget(150, [])
    assert window.length == 25  # the first is silent
    window.forget(150, [2])
    assert window.length == 9  # and the other one suspected


def test_a_place_needs_a_quorum_in_one_ballot() -> None:
    learner = PartialLearner(3)
    assert not learner.hears(0, 1, 4)
    assert not learner.hears(0, 1, 4)  # the same member again
    assert not learner.hears(1, 2, 4)  # another ballot
    assert learner.hears(1, 1, 4)
    assert not learner.hears(2, 1, 4) and learner.learnt == 4  # learnt once
    assert not learner.is_told(4) and learner.is_told(6)


def may_send(known: SendersTo, g: int, h: int) -> list[tuple[int, int]] | None:
    found = known.newest(g, (h,))
    return [(membership.asked, membership.since) for membership in found] if found is not None else None


def test_senders_join_leave_and_join_again() -> None:
    known = SendersTo(3, ((0,), (1,), (2, 0)))
    assert known.required(2) == [(2, BOTTOM), (0, BOTTOM)] and known.asked(2) == [0]
    assert may_send(known, 1, 2) is None and may_send(known, 0, 2) == [(BOTTOM, BOTTOM)]
    known.joined(2, 1, 30, 50)
    assert known.required(2) == [(2, BOTTOM), (0, BOTTOM), (1, 50)] and may_send(known, 1, 2) == [(30, 50)]
    known.joined(2, 1, 30, 50)  # heard again
    known.joined(2, 1, 80, 90)  # it left meanwhile, but that is not known here yet
    assert known.required(2)[-1] == (1, 50) and may_send(known, 1, 2) == [(80, 90)]
    known.leaves(2, 1, 70)
    assert known.required(2)[-1] == (1, 90)  # the first is over, the second goes on
    known.leaves(2, 1, 95)
    assert may_send(known, 1, 2) is None
    known.is_told(2, 1, [(0, BOTTOM)])
    known.joined(2, 1, 94, 200)  # the answer to what it asked for before it left
    assert may_send(known, 1, 2) is None and may_send(known, 0, 2) == [(BOTTOM, BOTTOM)]


def test_a_leave_ends_only_what_was_asked_for_before_it() -> None:
    """By the clocks of the other group all answers are later than the leave."""
    known = SendersTo(2, ((0,), (1,)))
    for asked, since in ((10, 500), (30, 510)):
        known.joined(0, 1, asked, since)
    known.leaves(0, 1, 20)
    assert known.required(0)[-1] == (1, 510) and may_send(known, 1, 0) == [(30, 510)]
    known.leaves(0, 1, 40)
    assert known.required(0) == [(0, BOTTOM)] and known.ended(0, 1, 30) and not known.ended(0, 1, 50)


def test_a_third_group_knows_its_own_memberships_better() -> None:
    known = SendersTo(3, ((0,), (1,), (2,)))
    known.joined(2, 0, 5, 9)
    known.leaves(2, 1, 20)
    known.is_told(2, 0, [(1, 15), (2, BOTTOM)])  # by somebody who does not know that g1 left
    assert known.asked(2) == [0] and may_send(known, 0, 2) == [(5, 9)] and may_send(known, 1, 2) is None
    known.is_told(2, 0, [(1, 25), (2, BOTTOM)])
    assert known.asked(2) == [0, 1]
