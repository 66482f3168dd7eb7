"""Integrity, validity and order, on traces small enough to judge by eye."""

from trace_rows import Trace, told

from amcast.checks import check

# ---------------------------------------------------------------- integrity


def test_integrity_holds_when_each_message_is_delivered_once_by_each_process() -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").deliver("g0/1", "a")
    assert trace.verdict("integrity").status == "ok"


def test_a_duplicate_is_shown_as_the_two_deliveries() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("g0/0", "a", "b", "a")
    verdict = trace.verdict("integrity")
    assert verdict.status == "violated"
    assert verdict.reason == "g0/0 delivered a twice"
    assert told(verdict) == [("deliver", "g0/0", "a"), ("deliver", "g0/0", "a")]
    assert [row.seq for row in verdict.counterexample] == [1, 3]


def test_a_delivery_without_multicast_is_shown() -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a", "ghost")
    verdict = trace.verdict("integrity")
    assert verdict.status == "violated"
    assert verdict.reason == "g0/0 delivered ghost, which nobody multicast"
    assert told(verdict) == [("deliver", "g0/0", "ghost")]


def test_the_same_message_in_two_runs_is_no_duplicate() -> None:
    one = Trace("one").multicast("c1", "a", "g0").deliver("g0/0", "a")
    two = Trace("two").multicast("c1", "a", "g0").deliver("g0/0", "a")
    both = Trace()
    both.events = [event for pair in zip(one.events, two.events, strict=True) for event in pair]
    assert [(v.run, v.status) for v in check(both.events, ["integrity"])] == [("one", "ok"), ("two", "ok")]


# ---------------------------------------------------------------- validity


def test_validity_holds_when_only_addressed_messages_are_delivered() -> None:
    trace = Trace().multicast("c1", "a", "g0", "g1").deliver("g0/0", "a").deliver("g1/0", "a")
    assert trace.verdict("validity").status == "ok"


def test_a_delivery_outside_the_destination_is_shown_with_the_multicast() -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").deliver("g1/0", "a")
    verdict = trace.verdict("validity")
    assert verdict.status == "violated"
    assert verdict.reason == "g1/0 delivered a, but the process is in g1 and a is addressed to g0"
    assert told(verdict) == [("multicast", "c1", "a"), ("deliver", "g1/0", "a")]


def test_a_client_delivers_nothing() -> None:
    verdict = Trace().multicast("c1", "a", "g0").deliver("c1", "a").verdict("validity")
    assert verdict.status == "violated"
    assert told(verdict) == [("multicast", "c1", "a"), ("deliver", "c1", "a")]


def test_a_message_that_nobody_multicast_is_left_to_integrity() -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a", "ghost")
    assert trace.verdict("validity").status == "ok"


# ---------------------------------------------------------------- order


def three_messages() -> Trace:
    trace = Trace()
    for message, dest in (("a", ("g0", "g2")), ("b", ("g0", "g1")), ("c", ("g1", "g2"))):
        trace.multicast("c1", message, *dest)
    return trace


def test_order_holds_when_one_total_order_explains_all() -> None:
    trace = three_messages().deliver("g0/0", "a", "b").deliver("g1/0", "b", "c").deliver("g2/0", "a", "c")
    assert trace.verdict("order").status == "ok"


def test_a_cycle_over_three_groups_is_found_though_every_pair_of_groups_agrees() -> None:
    trace = three_messages().deliver("g0/0", "a", "b").deliver("g1/0", "b", "c").deliver("g2/0", "c", "a")
    verdict = trace.verdict("order")
    assert verdict.status == "violated"
    assert sorted(told(verdict)) == [
        ("deliver", "g0/0", "a"),
        ("deliver", "g0/0", "b"),
        ("deliver", "g1/0", "b"),
        ("deliver", "g1/0", "c"),
        ("deliver", "g2/0", "a"),
        ("deliver", "g2/0", "c"),
    ]
    for part in ("g0/0 delivered a before b", "g1/0 delivered b before c", "g2/0 delivered c before a"):
        assert part in verdict.reason


def test_two_replicas_that_disagree_are_shown_by_the_two_messages_only() -> None:
    trace = Trace()
    for message in "abcdef":
        trace.multicast("c1", message, "g0")
    trace.deliver("g0/0", *"abcdef").deliver("g0/1", *"aecdbf")
    verdict = trace.verdict("order")
    assert verdict.status == "violated"
    assert len(verdict.counterexample) == 4
    messages = {row.message for row in verdict.counterexample}
    assert len(messages) == 2 and messages & {"b", "e"}
    assert {row.process for row in verdict.counterexample} == {"g0/0", "g0/1"}


def gap(crash: bool) -> Trace:
    trace = Trace().multicast("c1", "a", "g0").multicast("c2", "b", "g0")
    trace.deliver("g0/0", "a", "b").deliver("g0/1", "b")
    return trace.crash("g0/1") if crash else trace


def test_a_gap_is_a_violation_even_at_a_process_that_crashed() -> None:
    verdict = gap(crash=True).verdict("order")
    assert verdict.status == "violated"
    assert sorted(told(verdict)) == [
        ("deliver", "g0/0", "a"),
        ("deliver", "g0/0", "b"),
        ("deliver", "g0/1", "b"),
        ("multicast", "c1", "a"),
    ]
    assert "g0/1 (crashed) delivered b and never a, which is addressed to its group" in verdict.reason
    assert "g0/0 delivered a before b" in verdict.reason


def test_a_gap_at_a_process_that_is_up_is_a_violation_too() -> None:
    verdict = gap(crash=False).verdict("order")
    assert verdict.status == "violated"
    assert "g0/1 delivered b and never a" in verdict.reason


def test_a_process_that_stopped_early_has_no_gap_before_what_it_delivered() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c2", "b", "g0").start("g0/2")
    trace.deliver("g0/0", "a", "b").deliver("g0/1", "a").crash("g0/1")
    assert trace.verdict("order").status == "ok"


def test_two_gaps_that_exclude_each_other() -> None:
    """g0/0 has only a, g0/1 has only b: each of the two must be before the other."""
    trace = Trace().multicast("c1", "a", "g0").multicast("c2", "b", "g0").deliver("g0/0", "a").deliver("g0/1", "b")
    verdict = trace.verdict("order")
    assert verdict.status == "violated"
    assert sorted(told(verdict)) == [
        ("deliver", "g0/0", "a"),
        ("deliver", "g0/1", "b"),
        ("multicast", "c1", "a"),
        ("multicast", "c2", "b"),
    ]


def test_a_message_that_nobody_delivered_makes_no_gap() -> None:
    trace = Trace().multicast("c1", "lost", "g0").multicast("c1", "a", "g0").deliver("g0/0", "a").deliver("g0/1", "a")
    assert trace.verdict("order").status == "ok"


def test_the_rows_of_a_process_may_stand_in_any_order() -> None:
    trace = gap(crash=False).deliver("g0/1", "a")
    assert trace.verdict("order").status == "violated"
    forward = Trace().multicast("c1", "a", "g0").multicast("c2", "b", "g0").deliver("g0/0", "a", "b")
    forward.deliver("g0/1", "a", "b")
    forward.events.reverse()
    assert forward.verdict("order").status == "ok"


def test_a_timestamp_proves_nothing() -> None:
    """The protocol says a < b everywhere; the deliveries say otherwise."""
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0")
    trace.deliver("g0/0", "a", "b").deliver("g0/1", "b", "a")
    for event in trace.events:
        if event.kind == "deliver":
            event.ts = (event.seq, "x")
    assert trace.verdict("order").status == "violated"
