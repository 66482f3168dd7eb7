"""A verdict says what it rests on, and none is ok on nothing."""

import pytest
from trace_rows import Trace

from amcast.checks import PROPERTIES, Verdict, check, exit_code
from amcast.checks.evidence import NOTHING, Evidence, total
from amcast.core.trace import Event
from amcast.errors import TraceError


def statuses(trace: Trace) -> dict[str, str]:
    return {name: trace.verdict(name).status for name in PROPERTIES}


def test_a_verdict_without_evidence_cannot_be_ok() -> None:
    with pytest.raises(AssertionError, match="order of run 'r' is ok on nothing"):
        Verdict("order", "r", "ok")
    with pytest.raises(AssertionError):
        Verdict("order", "r", "ok", evidence=Evidence(runs=1, expected=9, multicasts=4853))


EMPTY = {
    "only an end row": Trace().end(),
    "only start and end": Trace().start("g0/0", "g0/1", "g1/0").end(),
    "client rows only": Trace().multicast("c1", "a", "g0", "g1").multicast("c1", "b", "g0").end(),
    "client rows, cut off": Trace().multicast("c1", "a", "g0", "g1"),
    "messages to nobody": Trace().start("g0/0").send("g0/0", "g0/0").crash("g0/0").end(),
}


@pytest.mark.parametrize("what", EMPTY)
def test_no_property_is_ok_on_nothing(what: str) -> None:
    assert set(statuses(EMPTY[what]).values()) == {"unknown"}
    assert exit_code(check(EMPTY[what].events)) == 3


def test_silence_of_known_members_is_no_excuse() -> None:
    trace = Trace().start("g0/0", "g0/1").multicast("c1", "a", "g0").end()
    assert trace.verdict("termination").status == "violated"
    assert exit_code(check(trace.events)) == 1


def two_groups() -> Trace:
    trace = Trace().multicast("c1", "a", "g0", "g1").multicast("c1", "b", "g0")
    return trace.start("g0/0", "g0/1").deliver("g0/0", "a", "b").deliver("g0/1", "a", "b")


def test_a_destination_group_that_is_missing_is_named() -> None:
    for name in ("agreement", "agreement-nonuniform", "termination"):
        verdict = two_groups().end().verdict(name)
        assert (verdict.status, verdict.reason) == (
            "unknown",
            "messages are addressed to g1, of which no process is in the trace",
        )
    assert two_groups().end().verdict("order").status == "ok"


def test_a_lack_is_a_violation_also_where_a_group_is_missing() -> None:
    trace = two_groups().multicast("c1", "c", "g0").deliver("g0/0", "c").end()
    assert trace.verdict("agreement").status == trace.verdict("termination").status == "violated"


def start(trace: Trace, process: str, detail: str | None) -> None:
    trace.start(process)
    trace.events[-1].detail = detail


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_start_rows_say_how_many_members_there_are(name: str) -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").end()
    start(trace, "g0/0", '{"members": 3}')
    verdict = trace.verdict(name)
    assert (verdict.status, verdict.reason) == ("unknown", "of g0 only 1 of 3 members are in the trace")
    assert verdict.evidence.expected == 3 and verdict.evidence.replicas == 1
    start(trace.deliver("g0/1", "a"), "g0/2", None)
    assert trace.deliver("g0/2", "a").verdict(name).status == "ok"


@pytest.mark.parametrize("detail", [None, "", "no JSON", "[3]", '{"members": "many"}', '{"other": 3}'])
def test_a_start_row_may_say_something_else(detail: str | None) -> None:
    trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").end()
    start(trace, "g0/0", detail)
    assert trace.verdict("agreement").status == "ok"


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_one_process_per_group_may_be_all_that_is_left_of_it(name: str) -> None:
    trace = Trace().multicast("c1", "a", "g0", "g1").deliver("g0/0", "a").deliver("g1/0", "a").end()
    verdict = trace.verdict(name)
    assert verdict.status == "unknown" and "every group has one process" in verdict.reason
    assert trace.start("g0/0", "g1/0").verdict(name).status == "ok"


def test_what_a_verdict_rests_on() -> None:
    trace = two_groups().start("g1/0").deliver("g1/0", "a").crash("c1").end()
    seen = Evidence(runs=1, replicas=3, expected=3, multicasts=2, deliveries=5, faults=1)
    assert trace.verdict("order").evidence == seen
    assert str(trace.verdict("order").evidence) == "5 deliveries of 3 of 3 replicas, 1 fault"
    agreement = trace.verdict("agreement").evidence
    assert agreement.pairs == 5
    assert str(agreement) == "5 deliveries of 3 of 3 replicas, 5 pairs compared, 1 fault"
    assert trace.verdict("termination").status == "unknown"  # its only sender crashed
    silent = trace.start("g1/1").verdict("order").evidence
    assert (silent.replicas, silent.expected) == (3, 4)


def test_a_repeated_multicast_counts_once() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "a", "g0").deliver("g0/0", "a")
    assert trace.verdict("order").evidence.multicasts == 1


def test_traffic_and_guesses_are_what_their_properties_rest_on() -> None:
    trace = Trace().multicast("c1", "a", "g0").send("c1", "g0/0", "a").optdeliver("g0/0", "a")
    assert trace.verdict("genuine").evidence.pairs == 1
    assert trace.verdict("optimistic").evidence.pairs == 1
    silent = Trace().start("g0/0").send("g0/0", "g0/0")
    assert silent.verdict("genuine").status == "unknown"


def test_no_multicast_rows() -> None:
    events = [Event("r", "deliver", "g0/0", "g0", 1, None, "a"), Event("r", "deliver", "g0/1", "g0", 1, None, "a")]
    found = {name: check(events, [name])[0].status for name in ("validity", "order", "fifo", "causal", "integrity")}
    assert found == {
        "validity": "unknown", "order": "ok", "fifo": "unknown", "causal": "unknown", "integrity": "violated"
    }  # fmt: skip


def test_evidence_adds_up() -> None:
    one = Evidence(runs=1, replicas=3, expected=3, multicasts=10, deliveries=30, faults=2)
    assert total([one, one]) == Evidence(2, 6, 6, 20, 60, 0, 0, 4)
    assert total([]) == NOTHING and not NOTHING
    assert str(total([one, one])) == "2 runs, 60 deliveries of 6 of 6 replicas, 4 faults"
    assert str(Evidence(states=1, deliveries=1)) == "1 state, 1 delivery"


def test_no_events_are_no_run() -> None:
    with pytest.raises(TraceError, match="there are no events; expected those of at least one run"):
        check([])


def test_the_reason_is_the_one_that_helps() -> None:
    only_end = Trace().end()
    assert only_end.verdict("termination").reason == "nothing was multicast"
    assert only_end.verdict("agreement").reason == "nothing was delivered"


def test_what_was_delivered_must_have_been_multicast_to_be_compared() -> None:
    unsent = Trace().start("g0/0", "g0/1").multicast("c1", "z", "g0")
    unsent.deliver("g0/0", "a", "b").deliver("g0/1", "b", "a")
    for name in ("validity", "fifo", "causal"):
        assert unsent.verdict(name).reason == "no message was both multicast and delivered where it is addressed to"
    strays = Trace().start("g0/0").multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("g1/0", "b", "a")
    assert {strays.verdict(name).status for name in ("fifo", "causal")} == {"unknown"}
    assert strays.verdict("validity").status == "violated"
    at_a_client = Trace().start("g0/0").multicast("c1", "a", "g0").multicast("c1", "b", "g0").deliver("c2", "b", "a")
    assert {at_a_client.verdict(name).status for name in ("fifo", "causal")} == {"unknown"}


def test_there_is_no_share_of_nothing() -> None:
    guessed = Trace().start("g0/0").multicast("c1", "a", "g0").optdeliver("g0/0", "a")
    assert guessed.verdict("optimistic").figure == {"mistakes": 0, "delivered": 0}
    assert guessed.deliver("g0/0", "a").verdict("optimistic").figure == {"mistakes": 0, "delivered": 1, "share": 0.0}


def test_nobody_is_left_to_agree() -> None:
    crashed = Trace().start("g0/0", "g0/1").multicast("c1", "a", "g0").deliver("g0/0", "a").deliver("g0/1", "a")
    crashed.crash("g0/0").crash("g0/1").end()
    for name in ("agreement", "agreement-nonuniform"):
        assert crashed.verdict(name).reason == "no process that is up had to deliver what others delivered"


def test_a_repeated_multicast_counts_from_its_lowest_place_whatever_the_order_of_rows() -> None:
    """c1 multicast a before b, and a once more: who delivers b first breaks fifo order."""
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").multicast("c1", "a", "g0")
    trace.deliver("g0/0", "b", "a").start("g0/0")
    for events in (trace.events, trace.events[::-1]):
        assert [v.status for v in check(events, ["fifo", "causal"])] == ["violated", "violated"]


def test_a_start_row_may_hold_anything() -> None:
    for detail in ("[" * 100_000, '{"members": 99999999999999999999}', '{"members": -3}', '{"members": true}'):
        trace = Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").end()
        start(trace, "g0/0", detail)
        assert trace.verdict("agreement").status == "ok"


def test_a_message_to_nobody_is_said_to_be_one() -> None:
    verdict = Trace().start("g0/0").multicast("c1", "a").deliver("g0/0", "a").verdict("validity")
    assert verdict.status == "violated" and verdict.reason.endswith("a is addressed to nobody")
