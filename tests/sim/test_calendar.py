"""The event queue against a sorted list: by time, and at equal times first come, first served."""

from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.sim.calendar import Calendar
from amcast.sim.settings import LONGEST


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([1, 7, 100, 10_000]),
    st.lists(st.tuples(st.sampled_from(["push", "push", "pop"]), st.integers(0, 10**6)), max_size=200),
)
def test_same_order_as_a_sorted_list(width: int, steps: list[tuple[str, int]]) -> None:
    calendar = Calendar(width)
    model: list[tuple[int, int]] = []
    pushed = 0
    now = 0
    for step, offset in steps + [("pop", 0)] * 200:
        if step == "push":
            # Near, at once, and beyond the ring.
            time = now + (0 if offset % 5 == 0 else offset // (1 if offset % 3 else 1000))
            calendar.push(time, pushed, str(pushed))
            model.append((time, pushed))
            pushed += 1
        elif calendar.pop():
            model.sort()
            expected = model.pop(0)
            now = int(calendar.now)
            assert (now, int(calendar.code), calendar.payload) == (*expected, str(expected[1]))
        else:
            assert model == []
        assert len(calendar) == len(model)
    assert model == []


def test_drained_buckets_are_used_again() -> None:
    calendar = Calendar(10)
    for round_number in range(2000):
        for i in range(50):
            calendar.push(round_number * 1000 + i, i, None)
        for i in range(50):
            assert calendar.pop() and calendar.code == i
    assert len(calendar._pool) < 20


def test_many_events_in_one_bucket_are_sorted() -> None:
    calendar = Calendar(10**6)
    times = [(i * 7919) % 1000 + 10**6 for i in range(3000)]
    for i, time in enumerate(times):
        calendar.push(time, i, None)
    popped = []
    while calendar.pop():
        popped.append((int(calendar.now), int(calendar.code)))
    assert popped == sorted((time, i) for i, time in enumerate(times))


def test_the_longest_delays_keep_their_order() -> None:
    calendar = Calendar(LONGEST // 512)
    times = [LONGEST // 3, LONGEST, 7, LONGEST - 1, 7, LONGEST // 512 - 1]
    for number, time in enumerate(times):
        calendar.push(time, number, None)
    found = []
    while calendar.pop():
        found.append((int(calendar.now), int(calendar.code)))
    assert found == sorted((time, number) for number, time in enumerate(times))
