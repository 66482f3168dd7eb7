"""Fifo and causal order, which a protocol promises only if it says so."""

from trace_rows import Trace, told


def test_fifo_holds_when_a_prefix_of_each_sender_is_delivered() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").multicast("c2", "x", "g0")
    trace.deliver("g0/0", "a", "x", "b").deliver("g0/1", "x", "a")
    assert trace.verdict("fifo").status == "ok"


def test_fifo_shows_both_multicasts_and_both_deliveries() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("g0/0", "b", "a")
    verdict = trace.verdict("fifo")
    assert verdict.status == "violated"
    assert verdict.reason == "g0/0 delivered b without having delivered a, which c1 had multicast before"
    assert told(verdict) == [
        ("multicast", "c1", "a"),
        ("multicast", "c1", "b"),
        ("deliver", "g0/0", "b"),
        ("deliver", "g0/0", "a"),
    ]


def test_fifo_is_broken_by_a_message_that_is_never_delivered() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("g0/0", "b")
    assert told(trace.verdict("fifo")) == [
        ("multicast", "c1", "a"),
        ("multicast", "c1", "b"),
        ("deliver", "g0/0", "b"),
    ]


def test_fifo_asks_nothing_of_a_process_that_only_one_of_the_two_addresses() -> None:
    trace = Trace().multicast("c1", "a", "g1").multicast("c1", "b", "g0", "g1").deliver("g0/0", "b")
    assert trace.verdict("fifo").status == "ok"


def test_fifo_goes_by_seq_and_not_by_the_place_in_the_file() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("g0/0", "a", "b")
    trace.events.reverse()
    assert trace.verdict("fifo").status == "ok"


def two_hops() -> Trace:
    """c1 multicasts a to g0, g2; g0/0 delivers it and multicasts b to g1; g1/0 delivers that and multicasts c to g2."""
    trace = Trace().multicast("c1", "a", "g0", "g2").deliver("g0/0", "a").multicast("g0/0", "b", "g1")
    return trace.deliver("g1/0", "b").multicast("g1/0", "c", "g2")


def test_causal_holds_over_two_hops() -> None:
    assert two_hops().deliver("g2/0", "a", "c").verdict("causal").status == "ok"


def test_causal_is_broken_over_two_hops_with_the_whole_chain_shown() -> None:
    trace = two_hops().deliver("g2/0", "c", "a")
    verdict = trace.verdict("causal")
    assert verdict.status == "violated"
    assert told(verdict) == [
        ("multicast", "c1", "a"),
        ("deliver", "g0/0", "a"),
        ("multicast", "g0/0", "b"),
        ("deliver", "g1/0", "b"),
        ("multicast", "g1/0", "c"),
        ("deliver", "g2/0", "c"),
        ("deliver", "g2/0", "a"),
    ]
    assert verdict.reason == (
        "g2/0 delivered c without having delivered a, which happened before: g0/0 delivered a before it multicast b; "
        "g1/0 delivered b before it multicast c"
    )
    assert trace.verdict("fifo").status == "ok"


def test_causal_takes_the_direct_way_past_other_multicasts_of_the_same_sender() -> None:
    trace = Trace().multicast("c1", "a", "g0")
    for message in "bcd":
        trace.multicast("c1", message, "g1")
    trace.multicast("c1", "e", "g0").deliver("g0/0", "e")
    assert told(trace.verdict("causal")) == [
        ("multicast", "c1", "a"),
        ("multicast", "c1", "e"),
        ("deliver", "g0/0", "e"),
    ]


def test_neither_asks_anything_about_a_delivery_that_is_not_valid() -> None:
    """b is not addressed to g0, so that a need not come before it there."""
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g1").deliver("g0/0", "b", "a")
    assert trace.verdict("fifo").status == "ok"
    assert trace.verdict("causal").status == "ok"


def test_a_delivery_after_the_multicast_does_not_precede_it() -> None:
    trace = Trace().multicast("c1", "a", "g0", "g1").multicast("g0/0", "b", "g1").deliver("g0/0", "a")
    assert trace.deliver("g1/0", "b", "a").verdict("causal").status == "ok"


def test_a_second_replica_with_another_sequence_is_looked_at_too() -> None:
    trace = two_hops().deliver("g2/0", "a", "c").deliver("g2/1", "c")
    verdict = trace.verdict("causal")
    assert verdict.status == "violated"
    assert told(verdict)[-1] == ("deliver", "g2/1", "c")
