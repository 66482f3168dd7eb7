"""`amcast swarm`: seeds over processes, failures that can be replayed, Ctrl-C."""

import json
import shlex
from pathlib import Path

import pytest
from calling import Amcast
from tests.mutants import load
from tests.mutants.test_white_box import MODULES, MUTANTS

from amcast.checks.evidence import Evidence
from amcast.swarm.pool import run_seeds
from amcast.swarm.seeds import Outcome

SEEN = Evidence(runs=1, replicas=6, expected=6, multicasts=5, deliveries=20, pairs=40, faults=2)


def seeds_give(
    monkeypatch: pytest.MonkeyPatch, *, excuses: tuple[str, ...] = ("",), evidence: Evidence = SEEN, **more: int
) -> None:
    """Every seed that is run from now on, in this process, has this outcome, with these excuses in turn."""

    def run_seed(protocol: str, seed: int) -> Outcome:
        excuse = excuses[seed % len(excuses)]
        return Outcome(seed, "", "2 groups of 3", 100, 1.0, 1.0, excuse, evidence, **more)

    monkeypatch.setattr("amcast.swarm.pool.run_seed", run_seed)


def seeds_that_fail(monkeypatch: pytest.MonkeyPatch, *bad: int, interrupted_at: int | None = None) -> list[int]:
    """The seeds that are run from now on, in this process."""
    ran: list[int] = []

    def run_seed(protocol: str, seed: int) -> Outcome:
        if seed == interrupted_at:
            raise KeyboardInterrupt
        ran.append(seed)
        problem = f"order violated in {seed}" if seed in bad else ""
        return Outcome(seed, problem, "2 groups of 3", 100, 1.0, 1.0, evidence=SEEN, delivered=5)

    monkeypatch.setattr("amcast.swarm.pool.run_seed", run_seed)
    return ran


def test_all_seeds_are_run_once_over_two_processes(amcast: Amcast) -> None:
    done = amcast("swarm", "skeen", "--seeds", 6, "--first-seed", 10, "--jobs", 2, "--json")
    document = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert (document["protocol"], document["first_seed"], document["seeds"]) == ("skeen", 10, 6)
    assert document["failures"] == [] and document["seconds"] > 0 and document["seeds_per_minute"] > 0
    evidence = document["evidence"]
    assert document["verdict"] == "ok" and evidence["runs"] == 6 and evidence["replicas"] == evidence["expected"] > 0
    assert evidence["deliveries"] >= evidence["multicasts"] >= document["delivered"] > 0 and evidence["faults"] > 0
    assert document["refused"] == 0 and document["least_delivered_percent"] == 93


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

    monkeypatch.setattr("amcast.swarm.pool.run_seed", run_seed)
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
    assert (document["asked"], document["verdict"]) == (10, "violated")


def test_what_was_interrupted_is_not_ok(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_that_fail(monkeypatch, interrupted_at=4)
    document = json.loads(amcast("swarm", "white_box", "--seeds", 10, "--jobs", 1, "--json").out)
    assert (document["asked"], document["seeds"], document["verdict"]) == (10, 3, "unknown")
    assert document["reason"] == "interrupted: 3 of 10 seeds were run"
    done = amcast("swarm", "white_box", "--seeds", 10, "--jobs", 1)
    assert done.code == 130 and "3 seeds from 1, unknown: interrupted: 3 of 10 seeds were run; " in done.out
    seeds_that_fail(monkeypatch)
    document = json.loads(amcast("swarm", "white_box", "--seeds", 5, "--jobs", 1, "--json").out)
    assert (document["asked"], document["seeds"], document["verdict"]) == (5, 5, "ok")


def test_the_line_says_what_was_delivered_refused_and_excused(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_give(monkeypatch, excuses=("every sender crashed", ""), delivered=4, refused=1)
    done = amcast("swarm", "baseline", "--seeds", 4, "--jobs", 1)
    assert done.code == 0
    assert done.out.startswith(
        "baseline: 4 seeds from 1, no failure; 16 of 20 multicasts delivered, 80 deliveries, 8 faults; 4 refused; "
        "2 excused (2 every sender crashed); "
    )
    document = json.loads(amcast("swarm", "baseline", "--seeds", 4, "--jobs", 1, "--json").out)
    assert document["excused"] == {"every sender crashed": 2} and document["refused"] == 4
    assert document["evidence"]["pairs"] == 160 and document["delivered"] == 16


def test_nothing_delivered_is_unknown(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_give(monkeypatch, excuses=("every sender crashed",), evidence=Evidence(runs=1, expected=6, multicasts=5))
    done = amcast("swarm", "white_box", "--seeds", 3, "--jobs", 1)
    assert done.code == 3 and "3 seeds from 1, unknown: nothing was delivered; 0 of 15 multicasts" in done.out


def test_excused_seeds_only_are_unknown(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds_give(monkeypatch, excuses=("wild weather",), delivered=5)
    done = amcast("swarm", "white_box", "--seeds", 3, "--jobs", 1)
    assert done.code == 3 and "unknown: every seed was excused; 15 of 15 multicasts delivered" in done.out
    assert json.loads(amcast("swarm", "white_box", "--seeds", 3, "--jobs", 1, "--json").out)["verdict"] == "unknown"


def test_too_few_deliveries_are_a_failure(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed may have a reason; so many of them have none."""
    seeds_give(monkeypatch, delivered=4, refused=1)
    done = amcast("swarm", "baseline", "--seeds", 60, "--jobs", 1)
    assert done.code == 1
    assert "60 seeds from 1, only 80.0 % of the multicasts were delivered, expected at least 85 %; " in done.out
    seeds_give(monkeypatch, delivered=5)
    assert amcast("swarm", "baseline", "--seeds", 60, "--jobs", 1).code == 0


@pytest.mark.parametrize("options", [["--cluster"], ["echo"], ["--known", "x"]])
def test_an_adversary_takes_nothing_of_clusters(amcast: Amcast, options: list[str]) -> None:
    done = amcast("swarm", "white_box", "--adversary", *options)
    assert done.code == 2 and "--cluster" in done.err and done.out == ""


def test_the_moves_of_a_run_that_an_adversary_wins(
    amcast: Amcast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are kept, as few as fail alike, with their trace; as a plan they fail again."""
    broken = load(next(mutant for mutant in MUTANTS if mutant.name == "delivered_twice"), *MODULES).ROW
    for module in ("seeds", "failing"):
        monkeypatch.setattr(f"amcast.swarm.adversary.{module}.protocol", lambda name: broken)
    typed = ("swarm", "white_box", "--adversary", "--seeds", 1, "--first-seed", 149, "--jobs", 1)
    done = amcast(*typed, "--out", tmp_path)
    moves = tmp_path / "white_box-149" / "moves.txt"
    assert done.code == 1 and "replay: amcast swarm white_box --adversary --seeds 1 --first-seed 149\n" in done.out
    head, _, body = moves.read_text().partition(f"--plan {moves}\n")
    assert "white_box, seed 149: " in head and 0 < body.count("\n") < 60
    assert any("# Multicast c" in line for line in body.splitlines()), body
    again = amcast(*typed, "--plan", moves)
    assert again.code == 1 and f"{body.count(chr(10))} moves" in again.out
    moves.write_text("deliver g0/0 nobody\n")
    refused = amcast(*typed, "--plan", moves)
    assert refused.code == 2 and "nobody" in refused.err
