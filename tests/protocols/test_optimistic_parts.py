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


def test_a_place_needs_a_quorum_in_one_ballot() -> None:
    learner = PartialLearner(3)
    assert not learner.hears(0, 1, 4)
    assert not learner.hears(0, 1, 4)  # the same member again
    assert not learner.hears(1, 2, 4)  # another ballot
    assert learner.hears(1, 1, 4)
    assert not learner.hears(2, 1, 4) and learner.learnt == 4  # learnt once
    assert not learner.is_told(4) and learner.is_told(6)


def test_senders_join_leave_and_join_again() -> None:
    known = SendersTo(3, ((0,), (1,), (2, 0)))
    assert known.required(2) == [(2, BOTTOM), (0, BOTTOM)] and known.asked(2) == [0]
    assert known.epochs(1, (2,)) is None and known.epochs(0, (2,)) == (BOTTOM,)
    known.joined(2, 1, 50)
    assert known.required(2) == [(2, BOTTOM), (0, BOTTOM), (1, 50)] and known.epochs(1, (2,)) == (50,)
    known.joined(2, 1, 90)  # it left meanwhile, but that is not known here yet
    assert known.required(2)[-1] == (1, 50)
    known.leaves(2, 1, 70)
    assert known.required(2)[-1] == (1, 90)  # an old leave removes nothing
    known.leaves(2, 1, 95)
    assert known.epochs(1, (2,)) is None
    known.is_told(2, [(0, BOTTOM), (1, 90)])  # by somebody who does not know that it left
    assert known.epochs(1, (2,)) is None and known.epochs(0, (2,)) == (BOTTOM,)
