"""One replica is away while much is written, the leader changes, and it comes back."""

import asyncio
from pathlib import Path

import pytest

from amcast.apps.teller import Outcomes
from amcast.local.trial import Trial
from amcast.runtime.client import Client
from tests.chaos.states import differing_states
from tests.pace import allow

DEADLINE = 60.0
PAYLOAD = bytes(range(256)) * 400  # no command of the bank: it is ordered, kept and answered all the same
WRITTEN = 8 * 2**20  # more than 20 MB may end in elections without end, whose votes carry all of it: docs/guarantees.md
UNDER_WAY = 8


async def write(client: Client, outcomes: Outcomes, count: int) -> None:
    async with client:
        for first in range(0, count, UNDER_WAY):
            await asyncio.gather(
                *(outcomes.submit(client, (0,), PAYLOAD) for _ in range(first, min(count, first + UNDER_WAY)))
            )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("gracefully", (True, False), ids=("stopped", "killed"))
def test_absence_under_load(tmp_path: Path, gracefully: bool) -> None:
    trial = Trial(tmp_path / "cluster", groups=1, secure=False)
    outcomes = Outcomes()
    end = trial.stop if gracefully else trial.kill
    with trial:
        leader = trial.leader(0)
        away = next(member for member in trial.config.members if member != leader)
        end(away)
        asyncio.run(write(trial.client(deadline=allow(DEADLINE)), outcomes, WRITTEN // len(PAYLOAD)))
        end(leader)
        trial.start(away)
        trial.start(leader)
        asyncio.run(write(trial.client(deadline=allow(DEADLINE)), outcomes, 20))
        evidence = trial.judge(tmp_path / "trace", outcomes)
    assert evidence.pairs == 3 * (WRITTEN // len(PAYLOAD) + 20)
    assert not (different := differing_states(trial.config)), different
