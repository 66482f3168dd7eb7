"""The whole cluster under a seed: the same seed is the same run, plans are data, and failures become short."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from amcast.checks import check
from amcast.errors import Alarm, UsageError
from amcast.protocols import protocol
from amcast.swarm.cluster import stack
from amcast.swarm.cluster.faults.disks import Flip
from amcast.swarm.cluster.faults.members import ChangeMembers, MoveSlots
from amcast.swarm.cluster.faults.plan import KINDS, as_json, from_json
from amcast.swarm.cluster.faults.processes import Kill, Stop
from amcast.swarm.cluster.faults.shapes import Fault
from amcast.swarm.cluster.faults.upgrades import GoBack, Upgrade
from amcast.swarm.cluster.judge import LIVENESS
from amcast.swarm.cluster.seeds import keep, refuse_unsuited, run_setup, shortest
from amcast.swarm.cluster.setup import LOADS, Setup, config_of, draw_setup
from amcast.swarm.cluster.trial import Result
from amcast.tracefile import read_events

DIGESTS = """
import sys
from amcast.swarm.cluster.seeds import run_setup
from amcast.swarm.cluster.setup import draw_setup
for seed, load in ((2, "echo"), (5, "store"), (6, "kv")):
    result = run_setup(draw_setup("white_box", seed, load))
    print(seed, load, result.digest, result.events, result.alarm)
"""


def calm(seed: int, load: str) -> Setup:
    """Return a short run without faults."""
    setup = draw_setup("white_box", seed, load)
    return replace(setup, groups=2, replicas=3, users=2, wishes=10, calm_at=1500, plan=[], lost=())


def digests(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Not even the order of hashes or the compiler may matter."""
    first = digests(PYTHONHASHSEED="1")
    assert first.count("\n") == 3
    assert digests(PYTHONHASHSEED="2", AMCAST_PURE="1") == first


def test_a_seed_is_the_same_run_after_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_setup(calm(1, "store"))
    run_setup(calm(2, "echo"))
    assert run_setup(calm(1, "store")).digest == first.digest
    monkeypatch.setattr(stack, "greenlet", None)  # threads that hand over a baton
    assert run_setup(calm(1, "store")).digest == first.digest


@pytest.mark.parametrize("load", LOADS)
def test_without_faults_everything_is_answered(load: str) -> None:
    result = run_setup(calm(3, load))
    assert result.alarm is None
    assert result.multicasts >= 20
    assert result.applied >= 3 * result.multicasts / 2


def test_a_plan_is_text_and_back() -> None:
    setups = [draw_setup("white_box", seed, load) for seed in range(60) for load in ("", "kv")]
    kinds = {*KINDS, ChangeMembers, MoveSlots, Upgrade, GoBack}
    assert {type(fault) for setup in setups for fault in setup.plan} == kinds
    for setup in setups:
        assert from_json(as_json(setup.plan)) == setup.plan


def test_faults_do_not_draw_what_others_draw() -> None:
    """Two setups that differ in their plans alone have the same network and the same clocks."""
    setup = calm(4, "echo")
    kill = [Kill(1400, "g0/1", 50)]
    without, within = run_setup(setup), run_setup(replace(setup, plan=kill))
    assert without.alarm is None and within.alarm is None
    assert without.digest != within.digest


def test_a_failing_plan_is_made_short() -> None:
    needed = Stop(300, "g0/0", 10), Flip(700, "g0/1", 20, power=False)
    plan: list[Fault] = [*(Kill(at, "g0/2", 5) for at in range(100, 1000, 100)), *needed]
    setup = replace(calm(1, "echo"), plan=sorted(plan, key=lambda fault: fault.at))
    runs = 0

    def run(tried: Setup) -> Result:
        nonlocal runs
        runs += 1
        kind = "both" if set(needed) <= set(tried.plan) else "one" if needed[0] in tried.plan else ""
        return Result(Alarm(kind, "") if kind else None, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0)

    assert shortest(setup, "both", run).plan == list(needed)
    assert runs <= 80


def test_what_is_kept_of_a_run_can_be_looked_at(tmp_path: Path) -> None:
    setup = replace(calm(5, "echo"), traced=True, plan=[Kill(700, "g0/1", 50)])
    keep(setup, tmp_path)
    assert from_json((tmp_path / "plan.json").read_bytes()) == setup.plan
    assert "SIGKILL" in (tmp_path / "log.txt").read_text()
    assert (tmp_path / "disks" / "g0-1" / "data" / "g0-1" / "identity").exists()
    verdicts = check(read_events(tmp_path / "trace.jsonl"))
    assert {verdict.status for verdict in verdicts if verdict.property in LIVENESS} == {"ok"}


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(UsageError, match="skeen keeps nothing on disk"):
        refuse_unsuited(protocol("skeen"), "")
    with pytest.raises(UsageError, match="load 'bank'"):
        refuse_unsuited(protocol("white_box"), "bank")


def test_every_replica_has_a_host_of_its_own() -> None:
    config = config_of(calm(1, "kv"))
    assert len({member.peer.host for member in config.members}) == len(config.members) == 6
