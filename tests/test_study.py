"""Guards what a researcher does in three lines of Python: simulate, check, explore."""

from pathlib import Path

import pytest

import amcast
from amcast.explorer.scope import Scope
from amcast.protocols import PROTOCOLS
from amcast.tracefile import write_jsonl


def test_a_run_is_simulated_and_judged() -> None:
    run = amcast.simulate("white_box", messages=60, crashes=["g0/0@20ms"], network="uniform:1ms,9ms")
    assert run.finished and run.summary.multicasts == 60 and run.summary.crashes == 1
    verdicts = run.check()
    assert [verdict.property for verdict in verdicts] == [
        "integrity", "validity", "order", "agreement", "termination",
    ]  # fmt: skip
    assert {verdict.status for verdict in verdicts} == {"ok"}
    assert [verdict.property for verdict in run.check(["order"])] == ["order"]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_keeps_what_it_promises(name: str) -> None:
    run = amcast.simulate(name, messages=20, clients=3)
    assert run.finished and {verdict.status for verdict in run.check()} == {"ok"}


def test_the_same_settings_make_the_same_run() -> None:
    first, again, other = (amcast.simulate("skeen", messages=20, seed=seed, full=True) for seed in (3, 3, 4))
    assert first.events == again.events != other.events
    assert {"send", "receive"} <= {event.kind for event in first.events}


def test_a_run_that_stalls_is_not_finished() -> None:
    run = amcast.simulate("white_box", messages=60, crashes=["g0/0@10ms", "g0/1@10ms"])
    assert not run.finished
    assert "violated" not in {verdict.status for verdict in run.check(["order", "integrity"])}


def test_times_are_text_with_their_unit() -> None:
    run = amcast.simulate("skeen", duration="5ms", skew="10us", clients=2)
    assert (run.simulation.duration, run.simulation.skew) == (5_000_000, 10_000)


def test_a_setup_gives_what_is_not_asked_for() -> None:
    run = amcast.simulate("white_box", setup="white-box-lan", clients=2, messages=10)
    assert (run.simulation.groups, run.simulation.clients, run.simulation.network) == (10, 2, "lan")
    assert amcast.simulate("white_box", setup="white-box-lan", clients=2, duration="1ms").simulation.messages is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group": 3}, r"unknown setting 'group' of a simulation; did you mean groups\?"),
        ({"messages": 1, "duration": "1s"}, "messages and duration exclude each other"),
        ({"crashes": ["g0/0"]}, "expected PROCESS@TIME"),
        ({"duration": "1 day"}, "1 day"),
        ({"duration": 5}, "duration: 5: expected a time with its unit"),
        ({"groups": "3"}, "groups: '3': expected a whole number"),
        ({"setup": "lan"}, "unknown set-up 'lan'"),
    ],
)
def test_what_cannot_be_simulated(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(amcast.UsageError, match=reason):
        amcast.simulate("skeen", **settings)  # type: ignore[arg-type]


def test_a_trace_is_judged_by_its_name_or_its_events(tmp_path: Path) -> None:
    run = amcast.simulate("skeen", messages=10)
    path = tmp_path / "run.jsonl"
    write_jsonl(path, run.events)
    assert amcast.check(path) == amcast.check(str(path)) == amcast.check(run.events)
    lost = [event for event in run.events if event.kind != "deliver"]
    assert "ok" not in {verdict.status for verdict in amcast.check(lost, ["order", "termination"])}
    with pytest.raises(amcast.TraceError):
        amcast.check(tmp_path / "none.jsonl")


def test_every_schedule_of_a_small_case() -> None:
    found = amcast.explore("skeen")
    assert found.verdict == ("ok", "") and found.complete and found.states > 1
    assert not amcast.explore("skeen", states=3).complete
    own = Scope("own", "one message", (1, 1), (("c0", (0, 1)),), at_once=True, orders=False)
    assert amcast.explore("skeen", own).verdict[0] == "ok"
    with pytest.raises(amcast.UsageError, match="unknown scope 'none' of skeen"):
        amcast.explore("skeen", "none")
