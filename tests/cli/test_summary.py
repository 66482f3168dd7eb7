"""The figures of a run are what its events say, whatever the length of the run."""

from collections.abc import Callable
from random import Random

import pytest

from amcast.core.trace import Event, ListRecorder
from amcast.sim.network import MILLISECOND
from amcast.sim.simulation import Crash, Simulation
from amcast.sim.summary import Samples, SummaryRecorder

Row = Callable[..., None]


class Script:
    """Two groups of two, and events at times in milliseconds."""

    def __init__(self) -> None:
        self.recorder = SummaryRecorder()
        self.seq = 0
        for process in ("g0/0", "g0/1", "g1/0", "g1/1"):
            self(0, "start", process)

    def __call__(self, ms: float, kind: str, process: str, message: str | None = None, *dest: str) -> None:
        self.seq += 1
        group = process.partition("/")[0] if "/" in process else None
        time = round(ms * MILLISECOND)
        sender = process if kind == "multicast" else None
        self.recorder.record(Event("r", kind, process, group, self.seq, time, message, sender, dest or None))


def test_latency_is_that_of_the_first_and_of_the_last_delivery_in_each_group() -> None:
    at = Script()
    at(1, "multicast", "c0", "a", "g0", "g1")
    at(4, "deliver", "g0/0", "a")
    at(5, "deliver", "g0/1", "a")
    at(6, "deliver", "g1/0", "a")
    at(9, "deliver", "g1/1", "a")
    summary = at.recorder.summary(delta=2 * MILLISECOND)
    assert summary.first_delivery is not None and summary.last_delivery is not None
    assert (summary.first_delivery.samples, summary.first_delivery.ms.mean, summary.first_delivery.ms.max) == (2, 4, 5)
    assert (summary.last_delivery.samples, summary.last_delivery.ms.mean, summary.last_delivery.ms.max) == (2, 6, 8)
    assert summary.last_delivery.delta.max == 4
    assert (summary.multicasts, summary.delivered_messages, summary.deliveries) == (1, 1, 4)
    assert summary.messages_per_second == 125  # one in 8 ms


def test_a_message_is_forgotten_when_those_that_are_up_delivered_it() -> None:
    at = Script()
    at(1, "multicast", "c0", "a", "g0")
    at(2, "deliver", "g0/0", "a")
    assert len(at.recorder._in_flight) == 1
    at(3, "crash", "g0/1")
    assert len(at.recorder._in_flight) == 0
    at(4, "multicast", "c0", "b", "g0")
    at(5, "deliver", "g0/0", "b")
    assert len(at.recorder._in_flight) == 0
    at(6, "deliver", "g0/0", "b")  # a duplicate is verify's business
    assert at.recorder.summary(MILLISECOND).delivered_messages == 2


def test_nobody_waits_for_a_group_that_is_down() -> None:
    at = Script()
    at(1, "crash", "g0/0")
    at(1, "crash", "g0/1")
    at(2, "multicast", "c0", "a", "g0")
    assert len(at.recorder._in_flight) == 0
    assert at.recorder.summary(MILLISECOND).first_delivery is None


def test_recovery_ends_with_the_next_message_that_is_new_to_the_group() -> None:
    at = Script()
    at(0, "leader", "g0/0")
    at(0, "leader", "g1/0")
    at(1, "multicast", "c0", "a", "g0")
    at(1, "multicast", "c1", "b", "g0", "g1")
    at(2, "deliver", "g0/0", "a")
    at(3, "crash", "g0/0")
    at(4, "deliver", "g0/1", "a")  # the old leader had delivered it
    at(5, "deliver", "g1/0", "b")  # another group
    at(8, "leader", "g0/1")
    at(10, "deliver", "g0/1", "b")
    at(11, "crash", "g0/1")
    summary = at.recorder.summary(MILLISECOND)
    assert [(r.process, r.crash_ms, r.recovery_ms) for r in summary.recoveries] == [("g0/0", 3, 7), ("g0/1", 11, None)]
    assert (summary.crashes, summary.leader_changes) == (2, 1)


def test_the_crash_of_a_follower_is_no_recovery() -> None:
    at = Script()
    at(0, "leader", "g0/0")
    at(3, "crash", "g0/1")
    assert at.recorder.summary(MILLISECOND).recoveries == ()


def test_events_are_passed_on() -> None:
    kept = ListRecorder()
    Simulation("skeen", replicas=1, messages=20).world(SummaryRecorder(forward_to=kept)).run()
    alone = ListRecorder()
    Simulation("skeen", replicas=1, messages=20).world(alone).run()
    assert kept.events == alone.events


def test_white_box_without_conflict_takes_3_and_4_delta() -> None:
    recorder = SummaryRecorder()
    world = Simulation("white_box", clients=1, messages=50, dest_groups=3).world(recorder)
    world.run()
    summary = recorder.summary(world.network.delta)
    assert summary.first_delivery is not None and summary.last_delivery is not None
    assert summary.first_delivery.delta.p50 == summary.first_delivery.delta.max == 3
    assert summary.last_delivery.delta.p50 == summary.last_delivery.delta.max == 4
    assert len(recorder._in_flight) == 0


def test_the_crash_of_a_leader_shows() -> None:
    recorder = SummaryRecorder()
    world = Simulation("white_box", messages=300, crashes=(Crash("g0/0", 20 * MILLISECOND),)).world(recorder)
    world.run()
    summary = recorder.summary(world.network.delta)
    assert summary.multicasts == summary.delivered_messages == 300
    assert summary.leader_changes == 1
    (recovery,) = summary.recoveries
    assert recovery.process == "g0/0" and recovery.recovery_ms is not None and recovery.recovery_ms > 5


def test_percentiles_are_samples() -> None:
    samples = Samples()
    for value in range(100, 0, -1):
        samples.add(value)
    assert samples.percentiles((50, 95, 99, 100)) == [50, 95, 99, 100]
    alone = Samples()
    alone.add(7)
    assert alone.percentiles((50, 99)) == [7, 7]


@pytest.mark.parametrize("largest", [10, 10**9])
def test_the_histogram_of_many_samples_is_close_to_them(largest: int) -> None:
    random = Random(1)
    values = [random.randint(0, largest) for _ in range(20_000)]
    exact, rough = Samples(), Samples(exact=1000)
    for value in values:
        exact.add(value)
        rough.add(value)
    assert (rough.count, rough.total, rough.maximum) == (exact.count, exact.total, exact.maximum)
    for seen, expected in zip(rough.percentiles((50, 95, 99)), exact.percentiles((50, 95, 99)), strict=True):
        assert seen == pytest.approx(expected, rel=0.0005, abs=0 if largest == 10 else 1)
