"""The delivery rule against its definition, and the order of timestamps and ballots."""

from hypothesis import given
from hypothesis import strategies as st

from amcast.core.order import (
    BOTTOM,
    DeliveryQueue,
    Slot,
    ballot,
    epoch_of,
    group_of,
    leader_of,
    round_of,
    time_of,
    timestamp,
)
from amcast.core.topology import Mid

pairs = st.tuples(st.integers(0, 10**12), st.integers(0, 65_535))
triples = st.tuples(st.integers(0, 65_535), st.integers(0, 2**32 - 1), st.integers(0, 65_535))


@given(pairs, pairs)
def test_timestamps_are_ordered_as_pairs(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (timestamp(*a) < timestamp(*b)) == (a < b)
    assert BOTTOM < timestamp(0, 0)
    assert (time_of(timestamp(*a)), group_of(timestamp(*a))) == a


@given(triples, triples)
def test_ballots_are_ordered_as_triples(a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    (epoch, n, seat), (other_epoch, other_n, other_seat) = a, b
    made = ballot(n, seat, epoch)
    assert (made < ballot(other_n, other_seat, other_epoch)) == (a < b)
    assert BOTTOM < ballot(0, 0)
    assert (epoch_of(made), round_of(made), leader_of(made)) == a


@given(st.lists(st.integers(0, 3), max_size=60), st.randoms(use_true_random=False))
def test_delivers_exactly_what_the_rule_allows(steps: list[int], random: object) -> None:
    """l.17 of Skeen's protocol: committed, and every uncommitted message has a local timestamp above its final one."""
    queue = DeliveryQueue()
    clock = 0
    proposed: dict[int, Slot] = {}  # lts -> slot, uncommitted
    committed: set[int] = set()  # gts, undelivered
    for step in steps:
        if step < 2 or not proposed:
            clock += 1
            proposed[clock * 10] = queue.propose(Mid(clock), clock * 10)
        else:
            lts = sorted(proposed)[len(steps) * step % len(proposed)]
            gts = lts + random.choice((0, 1, 5, 15, 35))  # type: ignore[attr-defined]
            while gts in committed or (gts != lts and gts % 10 == 0):
                gts += 1
            clock = max(clock, gts // 10 + 1)
            queue.commit(proposed.pop(lts), gts)
            committed.add(gts)
        allowed = sorted(g for g in committed if all(lts > g for lts in proposed))
        delivered = []
        while (mid := queue.pop()) is not None:
            delivered.append(mid)
        assert len(delivered) == len(allowed)
        committed -= set(allowed)
        assert queue.uncommitted() == [proposed[lts].mid for lts in sorted(proposed)]


def test_committed_messages_leave_by_final_timestamp() -> None:
    queue = DeliveryQueue()
    for lts, gts in ((1, 9), (2, 4), (3, 6)):
        queue.commit(Slot(Mid(gts), lts), gts)
    assert [queue.pop() for _ in range(4)] == [4, 6, 9, None]


def test_long_queue_is_compacted() -> None:
    queue = DeliveryQueue()
    for i in range(1000):
        slot = queue.propose(Mid(i), i)
        queue.commit(slot, i)
        assert queue.pop() == i
    assert len(queue._proposed) < 200
