"""The kernel over columns against the checks over events, on random runs that are good or broken in every way we know.

The same runs are judged as a whole and cut as finely as can be: tables of a few rows, several buckets, blocks of a few
places. Nothing but the choice of a counter-example may differ.
"""

import random
from collections import Counter

import pytest

from amcast.checks import PROPERTIES, Verdict, check
from amcast.checks.agreement import NOBODY_UP
from amcast.checks.history import CUT_OFF, NOTHING_DELIVERED, NOTHING_KNOWN, NOTHING_MULTICAST, SOLITARY
from amcast.checks.termination import NOTHING_DUE
from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.verify import Plan, verify_events
from amcast.verify.gather import hashes
from tests.tools import FULL
from tests.verify.random_runs import events_of

ALL = list(PROPERTIES)
WHOLE = {"buckets": 1}
FINELY = {"buckets": 5, "rows_at_a_time": 40}
MORE = 10 if FULL else 1

Judged = dict[tuple[str, str], tuple[object, ...]]


def judged(verdicts: list[Verdict]) -> Judged:
    """Return all but counter-examples: also what a verdict rests on, and why there is none."""
    return {
        (v.run, v.property): (v.status, v.figure, v.evidence, v.reason if v.status == "unknown" else "")
        for v in verdicts
    }


def differences(expected: Judged, found: Judged) -> dict[tuple[str, str], object]:
    return {
        key: (expected.get(key), found.get(key)) for key in {*expected, *found} if expected.get(key) != found.get(key)
    }


@pytest.mark.parametrize(
    ("runs", "seed", "plan", "cut"),
    [
        pytest.param(1000, 7, Plan(ALL), WHOLE, id="whole"),
        pytest.param(500, 8, Plan(ALL, trust_nothing=True), WHOLE, id="black box"),
        pytest.param(150, 9, Plan(ALL, partitions=3, places_per_block=3), FINELY, id="finely"),
        pytest.param(150, 10, Plan(ALL, True, partitions=2, places_per_block=3), FINELY, id="finely, black box"),
    ],
)
def test_the_kernel_gives_the_verdicts_of_the_checks(runs: int, seed: int, plan: Plan, cut: dict[str, int]) -> None:
    events = events_of(runs * MORE, seed)
    random.Random(seed).shuffle(events)  # no verdict depends on the order of rows
    found = verify_events(events, plan, **cut)
    assert differences(judged(check(events, ALL)), judged(found)) == {}
    assert len(found) > 0.9 * runs * MORE * len(ALL)  # some runs lost all rows
    for verdict in found:  # each violation is shown by rows, and each doubt has a reason
        assert bool(verdict.counterexample) == (verdict.status == "violated")
        assert bool(verdict.reason) == (verdict.status != "ok")


def test_runs_one_by_one() -> None:
    """A run alone is numbered in other ways than among many."""
    for seed in range(60 * MORE):
        events = events_of(1, 1000 + seed)
        if events:
            assert differences(judged(check(events, ALL)), judged(verify_events(events, Plan(ALL)))) == {}, seed


def test_the_random_runs_reach_every_answer_and_what_sets_the_properties_apart() -> None:
    """Else the comparisons above would compare nothing."""
    reached: Counter[str] = Counter()
    verdicts = check(events_of(2000, 7), ALL)
    for verdict in verdicts:
        reached[f"{verdict.property} {verdict.status}"] += 1
        if verdict.property == "order":
            reached["a cycle of three or more"] += len(verdict.counterexample) >= 6
            reached["a gap in a cycle"] += any(row.kind == "multicast" for row in verdict.counterexample)
            reached["a gap of a crashed process"] += (
                "(crashed) delivered" in verdict.reason and "never" in verdict.reason
            )
    by_run = {(verdict.run, verdict.property): verdict.status for verdict in verdicts}
    for run in {run for run, _ in by_run}:
        reached["fifo kept, causal order broken"] += (by_run[run, "fifo"], by_run[run, "causal"]) == ("ok", "violated")
        statuses = (by_run[run, "agreement"], by_run[run, "agreement-nonuniform"])
        reached["only uniform agreement broken"] += statuses == ("violated", "ok")
    expected = {f"{name} {status}" for name in ALL for status in ("ok", "violated", "unknown")}
    reasons = (
        NOTHING_DELIVERED, NOTHING_MULTICAST, NOTHING_KNOWN, CUT_OFF, SOLITARY, NOBODY_UP, NOTHING_DUE,
        "of which no process is", "members are in the trace",
    )  # fmt: skip
    for reason in reasons:
        reached[reason] = sum(verdict.status == "unknown" and reason in verdict.reason for verdict in verdicts)
    assert expected <= set(reached)
    assert min(reached.values()) >= 5, reached


def test_the_properties_by_default_are_those_of_the_checks() -> None:
    events = events_of(40, 3)
    expected = sorted(check(events), key=lambda verdict: verdict.run)
    found = verify_events(events)
    assert [(v.run, v.property, v.status) for v in found] == [(v.run, v.property, v.status) for v in expected]


def test_seqs_that_fill_the_whole_range_of_int64() -> None:
    """They do not fit on one line; only their order counts."""
    events = events_of(60, 5)
    for event in events:
        event.seq = (event.seq - 20) * 2**57 if event.kind not in ("start", "end") else 0
    assert differences(judged(check(events, ALL)), judged(verify_events(events, Plan(ALL)))) == {}


def test_a_hash_depends_on_the_name_alone() -> None:
    import pyarrow as pa

    names = ["", "a", "abcdefgh", "abcdefghi", "ä" * 20, "abcdefgh\0", "b", "a"]
    whole = hashes(pa.array(names)).tolist()
    assert whole[1] == whole[-1] and len(set(whole)) == len(names) - 1
    for start in range(len(names)):
        assert hashes(pa.array(names)[start:]).tolist() == whole[start:]
    assert not len(hashes(pa.array([], pa.string())))


# ---------------------------------------------------------------- rows that contradict each other

MULTICAST = Event("r", "multicast", "p", "g0", 7, None, "a", "p", ("g0",))
CONTRADICTIONS = {
    "two deliveries with one seq": [Event("r", "deliver", "q", "g0", 1, None, m) for m in "ab"],
    "two kinds with one seq": [MULTICAST, Event("r", "deliver", "p", "g0", 7, None, "a")],
    "a crash with the seq of a delivery": [
        Event("r", "deliver", "q", "g0", 1, None, "a"),
        Event("r", "crash", "q", None, 1),
    ],
    "two groups": [MULTICAST, Event("r", "start", "p", "g1", 1)],
    "two senders": [MULTICAST, Event("r", "multicast", "q", None, 1, None, "a", "q", ("g0",))],
    "two destinations": [MULTICAST, Event("r", "multicast", "p", "g0", 9, None, "a", "p", ("g0", "nowhere"))],
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
@pytest.mark.parametrize("rows_at_a_time", [1, 100])
def test_contradictions_are_refused_in_the_words_of_the_checks(what: str, rows_at_a_time: int) -> None:
    events = [*CONTRADICTIONS[what], Event("r", "end", "driver", None, 1)]
    with pytest.raises(TraceError) as expected:
        check(events)
    with pytest.raises(TraceError) as found:
        verify_events(events, rows_at_a_time=rows_at_a_time)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("far", [8, 8 + 2**40])
def test_the_same_multicast_again_is_a_resend(far: int) -> None:
    again = Event("r", "multicast", "p", "g0", far, None, "a", "p", ("g0", "g0"))
    late = Event("r", "deliver", "p", "g0", far, None, "a")  # the seq of a resend is nobody's
    (verdict,) = verify_events([MULTICAST, again, late], Plan(["integrity"]))
    assert verdict.status == "ok"
