"""`amcast swarm`: seeds over processes, failures that can be replayed, Ctrl-C."""

import json
import shlex
from pathlib import Path

import pytest
from calling import Amcast

from amcast.check.evidence import Evidence
from amcast.cli.seeds import run_seeds
from amcast.lab.swarm import Outcome

SEEN = Evidence(runs=1, replicas=6, expected=6, multicasts=5, deliveries=20, pairs=40, faults=2)


def seeds_that_fail(monkeypatch: pytest.MonkeyPatch, *bad: int, interrupted_at: int | None = None) -> list[int]:
    """The seeds that are run from now on, in this process."""
    ran: list[int] = []

    def run_seed(protocol: str, seed: int) -> Outcome:
        if seed == interrupted_at:
            raise KeyboardInterrupt
        ran.append(seed)
        problem = f"order violated in {seed}" if seed in bad else ""
        return Outcome(seed, problem, "2 groups of 3", 100, 1.0, 1.0, evidence=SEEN, delivered=5)

    monkeypatch.setattr("amcast.cli.seeds.run_seed", run_seed)
    return ran


def test_all_seeds_are_run_once_over_two_processes(amcast: Amcast) -> None:
    done = amcast("swarm", "skeen", "--seeds", 6, "--first-seed", 10, "--jobs", 2, "--json")
    document = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert (document["protocol"], document["first_seed"], document["seeds"]) == ("skeen", 10, 6)
    assert document["failures"] == [] and document["seconds"] > 0 and document["seeds_per_minute"] > 0


def test_processes_give_the_same_results_as_one() -> None:
    together = sorted(run_seeds("white_box", range(1, 7), jobs=2), key=lambda result: result.seed)
    assert together == list(run_seeds("white_box", range(1, 7), jobs=1))


def test_a_failing_seed_prints_the_command_that_replays_it(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = seeds_that_fail(monkeypatch, 7)
    done = amcast("swarm", "white_box", "--seeds", 10, "--jobs", 1)
    assert done.code == 1 and ran == list(range(1, 11))
    assert "seed 7 failed: order violated in 7\n  2 groups of 3\n" in done.out
    (replay,) = [line.partition("replay: ")[2] for line in done.out.splitlines() if "replay: " in line]
    assert replay == "amcast swarm white_box --seeds 1 --first-seed 7"
    ran.clear()
    assert amcast(*shlex.split(replay)[1:]).code == 1 and ran == [7]
    assert "10 seeds from 1, 1 failure;" in done.out


def test_failures_in_json(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_that_fail(monkeypatch, 2, 3)
    done = amcast("swarm", "white_box", "--seeds", 4, "--jobs", 1, "--json")
    failures = json.loads(done.out)["failures"]
    assert done.code == 1 and [failure["seed"] for failure in failures] == [2, 3]
    assert failures[0] == {
        "seed": 2,
        "problem": "order violated in 2",
        "config": "2 groups of 3",
        "replay": "amcast swarm white_box --seeds 1 --first-seed 2",
        "trace": None,
    }


def test_a_seed_that_raises_has_failed(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_seed(protocol: str, seed: int) -> Outcome:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("amcast.cli.seeds.run_seed", run_seed)
    done = amcast("swarm", "white_box", "--seeds", 1)
    assert done.code == 1 and "seed 1 failed: ZeroDivisionError: by nought" in done.out


def test_the_trace_of_a_failing_seed_is_kept(amcast: Amcast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds_that_fail(monkeypatch, 2)
    done = amcast("swarm", "skeen", "--seeds", 3, "--jobs", 1, "--out", tmp_path)
    trace = tmp_path / "skeen-2"
    assert done.code == 1 and f"trace: {trace}" in done.out
    assert list(tmp_path.iterdir()) == [trace]
    assert amcast("verify", trace, "--properties", "order").code == 0
    refused = amcast("swarm", "skeen", "--seeds", 3, "--jobs", 1, "--out", tmp_path)
    assert refused.code == 2 and "--force" in refused.err
    assert amcast("swarm", "skeen", "--seeds", 3, "--jobs", 1, "--out", tmp_path, "--force").code == 1


def test_ctrl_c_tells_what_was_done(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_that_fail(monkeypatch, 2, interrupted_at=4)
    done = amcast("swarm", "white_box", "--seeds", 10, "--jobs", 1, "--json")
    document = json.loads(done.out)
    assert done.code == 130 and done.err == "amcast: interrupted after 3 of 10 seeds\n"
    assert document["seeds"] == 3 and document["interrupted"] and len(document["failures"]) == 1
