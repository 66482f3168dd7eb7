"""Every claim of a paper that `amcast claims` measures holds exactly, and was measured on something."""

import json
from dataclasses import replace

import pytest

from amcast.checks.evidence import NOTHING
from amcast.claims import table as claims
from amcast.claims.scenario import Scenario, measure
from amcast.claims.table import CLAIMS
from amcast.cli import run
from amcast.protocols import protocol

ALL = [(name, scenario) for name, scenarios in CLAIMS.items() for scenario in scenarios]
LATENCY = CLAIMS["skeen"][0]


@pytest.mark.parametrize(("name", "scenario"), ALL, ids=[f"{name}: {scenario.claim}" for name, scenario in ALL])
def test_claim(name: str, scenario: Scenario) -> None:
    measured, evidence = measure(scenario, protocol(name))
    assert measured == scenario.expected
    if scenario.computed:
        assert evidence == NOTHING, "it has runs: then they must deliver something"
    else:
        assert evidence.runs and evidence.multicasts and evidence.deliveries and 0 < evidence.replicas


def test_there_are_claims() -> None:
    assert len(ALL) == 148 and all(CLAIMS.values())
    assert sum(scenario.computed for _, scenario in ALL) == 13


def claims_of_skeen(monkeypatch: pytest.MonkeyPatch, *scenarios: Scenario) -> None:
    monkeypatch.setattr(claims, "CLAIMS", {"skeen": list(scenarios)})


def test_the_last_line_says_what_was_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    claims_of_skeen(monkeypatch, LATENCY)
    assert run(["claims"]) == 0
    assert capsys.readouterr().out.endswith(
        "1 of 1 claim met; 1 run, 2 deliveries, 0 crashes; 0 computed without a run\n"
    )
    assert run(["claims", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["claims"][0]["evidence"]["deliveries"] == 2 == document["evidence"]["deliveries"]
    assert document["claims"][0]["computed"] is False


def test_a_claim_that_is_not_met_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claims_of_skeen(monkeypatch, LATENCY, replace(LATENCY, expected="3δ"))
    assert run(["claims"]) == 1
    told = capsys.readouterr().out
    assert "not met" in told and "1 of 2 claims met; " in told


def test_a_claim_that_was_measured_on_nothing_is_not_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claims_of_skeen(monkeypatch, replace(LATENCY, measure=lambda table: LATENCY.expected))
    assert run(["claims"]) == 1
    told = capsys.readouterr().out
    assert "on nothing" in told and "0 of 1 claim met; 0 runs, 0 deliveries" in told


def test_no_claims_are_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    claims_of_skeen(monkeypatch)
    assert run(["claims"]) == 3
    assert "unknown: there are no claims; 0 runs, 0 deliveries" in capsys.readouterr().out
