"""The hand-written traces in tests/traces: each breaks exactly one property, and the verdict names who and what."""

from pathlib import Path

import pytest
from trace_rows import told

from amcast.checks import PROPERTIES, check
from amcast.tracefile import read_events

TRACES = Path(__file__).parent.parent / "traces"
# All that can be judged on a trace without send, receive and optdeliver rows.
JUDGED = [name for name in PROPERTIES if name not in ("genuine", "optimistic")]

BROKEN = {
    "duplicate": (
        "integrity",
        "g0/0 delivered a twice",
        [("deliver", "g0/0", "a"), ("deliver", "g0/0", "a")],
    ),
    "unsent": (
        "integrity",
        "g0/0 delivered ghost, which nobody multicast",
        [("deliver", "g0/0", "ghost")],
    ),
    "cycle3": (
        "order",
        "no total order is possible: g0/0 delivered a before b; g1/0 delivered b before c; g2/0 delivered c before a",
        [
            ("deliver", "g0/0", "a"),
            ("deliver", "g0/0", "b"),
            ("deliver", "g1/0", "b"),
            ("deliver", "g1/0", "c"),
            ("deliver", "g2/0", "c"),
            ("deliver", "g2/0", "a"),
        ],
    ),
    "crashed_gap": (
        "order",
        "no total order is possible: g0/0 delivered a before b; "
        "g0/2 (crashed) delivered b and never a, which is addressed to its group",
        [
            ("deliver", "g0/0", "a"),
            ("deliver", "g0/0", "b"),
            ("deliver", "g0/2", "b"),
            ("multicast", "c1", "a"),
        ],
    ),
    "fifo": (
        "fifo",
        "g0/0 delivered b without having delivered a, which c1 had multicast before",
        [
            ("multicast", "c1", "a"),
            ("multicast", "c1", "b"),
            ("deliver", "g0/0", "b"),
            ("deliver", "g0/0", "a"),
        ],
    ),
    "causal": (
        "causal",
        "g2/0 delivered c without having delivered a, which happened before: g0/0 delivered a before it multicast b; "
        "g1/0 delivered b before it multicast c",
        [
            ("multicast", "c1", "a"),
            ("deliver", "g0/0", "a"),
            ("multicast", "g0/0", "b"),
            ("deliver", "g1/0", "b"),
            ("multicast", "g1/0", "c"),
            ("deliver", "g2/0", "c"),
            ("deliver", "g2/0", "a"),
        ],
    ),
}
# A message that overtakes another of the same sender breaks causal order as well.
IMPLIED = {"fifo": {"causal"}}


def test_the_good_trace_keeps_everything() -> None:
    verdicts = check(read_events(TRACES / "good.jsonl"), JUDGED)
    assert [(verdict.property, verdict.status) for verdict in verdicts] == [(name, "ok") for name in JUDGED]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_trace_is_rejected_for_the_right_reason(name: str) -> None:
    broken, reason, rows = BROKEN[name]
    verdicts = {verdict.property: verdict for verdict in check(read_events(TRACES / f"{name}.jsonl"), JUDGED)}
    assert verdicts[broken].reason == reason
    assert told(verdicts[broken]) == rows
    violated = {each for each, verdict in verdicts.items() if verdict.status == "violated"}
    assert violated == {broken} | IMPLIED.get(name, set())


def test_every_trace_is_looked_at() -> None:
    assert {file.stem for file in TRACES.glob("*.jsonl")} >= {"good", *BROKEN}
