"""Every replica is restarted in turn, again and again, under load: nobody notices but by a little latency."""

import os
import time
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.local.trial import Trial
from tests.chaos.states import differing_states

TURNS = max(2, int(os.environ.get("CHAOS_ROUNDS", "8")) // 4)
SEED = int(os.environ.get("CHAOS_SEED", "1"))
DEADLINE = 30.0
RATE = 150.0


def percentile(values: list[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


@pytest.mark.slow
@pytest.mark.timeout(180 + 120 * TURNS)
def test_rolling_restarts(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "cluster", groups=3, secure=False)

    def restart_all() -> None:
        for turn in range(TURNS):
            began = time.monotonic()
            for member in trial.config.members:
                trial.stop(member)
                trial.start(member)
            print(f"{turn} took {time.monotonic() - began:.0f} s", flush=True)

    with trial:
        takings = teller.run(trial.client(deadline=DEADLINE), 1.0, RATE, actions=[(0.5, restart_all)], seed=SEED)
        evidence = trial.judge(tmp_path / "trace", takings)
    took = [seconds for _, seconds in takings.latencies]
    print(f"{evidence}; {takings.done} transfers, {takings.unknown} with unknown outcome, {takings.failed} refused")
    print(", ".join(f"p{percent} {1000 * percentile(took, percent):.0f} ms" for percent in (50, 99, 99.9, 100)))
    assert trial.injected["stop"] == 9 * TURNS
    assert not takings.failed and not takings.unknown, "a call failed, though a quorum was there all the time"
    assert takings.total == takings.expected
    assert not (different := differing_states(trial.config)), different
