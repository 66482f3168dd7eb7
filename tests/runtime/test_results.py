"""The answers that a node keeps: those that a client may ask for again, and no more than there is room for."""

from amcast.core.topology import message_id, sender_of
from amcast.core.wire import AppMessage
from amcast.runtime.serving import OVERHEAD, Results


def message(sender: int, seq: int, done: int = 0) -> AppMessage:
    return AppMessage(message_id(sender, seq), (0,), b"", done)


def test_what_a_client_has_is_forgotten() -> None:
    results = Results()
    for seq in range(5):
        results.add(message(7, seq, max(0, seq - 1)), b"%d" % seq)
    assert list(results.by_mid.values()) == [b"3", b"4"]
    results.add(message(7, 5, 5), b"5")
    results.add(message(8, 0), b"other")
    assert list(results.by_mid.values()) == [b"5", b"other"]


def test_clients_that_are_gone_leave_no_more_than_there_is_room_for() -> None:
    room = 100 * (OVERHEAD + 10)
    results = Results(room)
    for sender in range(1, 1000):
        results.add(message(sender, 0), bytes(10))
        if sender % 3 == 0:
            results.add(message(sender, 1), bytes(10))
        assert results.size <= room
    assert len(results.by_mid) == 100 and len(results._sessions) <= 100
    assert min(map(sender_of, results.by_mid)) > 900, "the oldest go first"
    again = Results(room)
    again.restore(results.rows())
    assert again.by_mid == results.by_mid and again.size == results.size and again._sessions == results._sessions


def test_one_answer_is_kept_however_large_it_is() -> None:
    results = Results(10)
    results.add(message(1, 0), bytes(1000))
    assert len(results.by_mid) == 1
    results.add(message(2, 0), bytes(1000))
    assert list(map(sender_of, results.by_mid)) == [2]
