"""What `check` is asked and what it answers: which properties, which runs, and rows that cannot be judged."""

import json

import pytest
from trace_rows import Trace

from amcast.checks import PROPERTIES, Verdict, check, exit_code
from amcast.checks.evidence import Evidence
from amcast.core.trace import Event
from amcast.errors import TraceError, UsageError


def good() -> Trace:
    return Trace().multicast("c1", "a", "g0").deliver("g0/0", "a").deliver("g0/1", "a")


def names(trace: Trace) -> list[str]:
    return [verdict.property for verdict in check(trace.events)]


def test_the_default_is_what_atomic_multicast_promises() -> None:
    assert names(good().end()) == ["integrity", "validity", "order", "agreement", "termination"]


def test_genuine_and_optimistic_are_judged_when_there_is_something_to_judge() -> None:
    assert names(good().send("c1", "g0/0", "a"))[5:] == ["genuine"]
    assert names(good().send("g0/1", "g0/0"))[5:] == []
    assert names(good().optdeliver("g0/0", "a"))[5:] == ["optimistic"]


def test_the_names_and_order_of_the_properties_are_fixed() -> None:
    assert list(PROPERTIES) == [
        "integrity",
        "validity",
        "order",
        "agreement",
        "agreement-nonuniform",
        "termination",
        "fifo",
        "causal",
        "genuine",
        "optimistic",
    ]


def test_an_unknown_property_is_refused_before_any_event_is_read() -> None:
    events = iter(good().events)
    with pytest.raises(UsageError, match=r"property 'ordr' is unknown; expected one of integrity, validity, order"):
        check(events, ["integrity", "ordr"])
    with pytest.raises(UsageError, match="property '' is unknown"):
        check(events, [])
    assert len(list(events)) == 3


def test_every_asked_property_is_answered_once_in_the_order_asked() -> None:
    verdicts = check(good().events, ["fifo", "order", "fifo"])
    assert [(v.property, v.status) for v in verdicts] == [("fifo", "ok"), ("order", "ok")]


def test_runs_are_judged_apart_in_the_order_of_appearance() -> None:
    cut_off = Trace("z").multicast("c1", "a", "g0").start("g0/0")
    ended = Trace("b").multicast("c1", "a", "g0").start("g0/0").end()
    events = [ended.events[0], *cut_off.events, *ended.events[1:]]
    verdicts = check(events, ["termination"])
    assert [(v.run, v.status) for v in verdicts] == [("b", "violated"), ("z", "unknown")]


def test_a_verdict_as_json() -> None:
    (verdict,) = check(Trace().multicast("c1", "a", "g0").deliver("g1/0", "a").events, ["validity"])
    assert json.loads(json.dumps(verdict.as_dict())) == {
        "property": "validity",
        "run": "r",
        "status": "violated",
        "reason": "g1/0 delivered a, but the process is in g1 and a is addressed to g0",
        "counterexample": [
            {
                "run": "r",
                "kind": "multicast",
                "process": "c1",
                "seq": 1,
                "message": "a",
                "sender": "c1",
                "dest": ["g0"],
            },
            {"run": "r", "kind": "deliver", "process": "g1/0", "group": "g1", "seq": 1, "message": "a"},
        ],
        "figure": None,
        "evidence": {
            "runs": 1,
            "replicas": 1,
            "expected": 1,
            "multicasts": 1,
            "deliveries": 1,
            "pairs": 0,
            "states": 0,
            "faults": 0,
        },
    }


def test_rows_of_a_counterexample_keep_their_time() -> None:
    events = [
        Event("r", "multicast", "c1", None, 4, 100, "a", "c1", ("g0",)),
        Event("r", "deliver", "g1/0", "g1", 9, 250, "a"),
    ]
    assert list(check(events, ["validity"])[0].counterexample) == events


def test_exit_codes() -> None:
    ok = Verdict("order", "r", "ok", evidence=Evidence(deliveries=1))
    violated, unknown = Verdict("order", "r", "violated"), Verdict("order", "r", "unknown")
    assert exit_code([ok, ok]) == 0
    assert exit_code([unknown, violated, ok]) == 1
    assert exit_code([ok, unknown]) == 3
    assert exit_code([]) == 3


# ---------------------------------------------------------------- rows that contradict each other


def refused(*events: Event) -> str:
    with pytest.raises(TraceError) as caught:
        check(events)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_two_events_of_a_process_with_one_seq() -> None:
    first = Event("r", "multicast", "g0/0", "g0", 7, None, "a", "g0/0", ("g0",))
    for second in (
        Event("r", "deliver", "g0/0", "g0", 7, None, "a"),
        Event("r", "multicast", "g0/0", "g0", 7, None, "b", "g0/0", ("g0",)),
    ):
        assert "process 'g0/0' has two events with seq 7; expected seq to increase strictly" in refused(first, second)


def test_a_process_in_two_groups() -> None:
    message = refused(Event("r", "start", "p", "g0", 1), Event("r", "start", "p", "g1", 2))
    assert "process 'p' appears with the groups 'g0' and 'g1'; expected one group" in message


def test_a_group_that_is_left_out_in_some_rows_is_taken_from_the_others() -> None:
    events = [
        Event("r", "crash", "p", None, 9),
        Event("r", "start", "p", "g0", 1),
        *Trace().multicast("c1", "a", "g0").deliver("g0/1", "a").end().events,
    ]
    assert check(events, ["agreement"])[0].status == "ok"


def test_two_multicasts_with_one_id() -> None:
    first = Event("r", "multicast", "c1", None, 1, None, "a", "c1", ("g0",))
    by_another = Event("r", "multicast", "c2", None, 1, None, "a", "c2", ("g0",))
    to_others = Event("r", "multicast", "c1", None, 2, None, "a", "c1", ("g0", "g1"))
    for second in (by_another, to_others):
        assert "message 'a' is multicast twice, by 'c1' to g0 and by" in refused(first, second)


def test_the_same_multicast_again_is_a_resend() -> None:
    trace = Trace().multicast("c1", "a", "g0").multicast("c1", "b", "g0").multicast("c1", "a", "g0")
    assert trace.deliver("g0/0", "a", "b").verdict("fifo").status == "ok"
