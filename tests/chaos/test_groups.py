"""A group comes while a cluster runs, is loaded and is disturbed: nobody notices but by latency."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec.msgpack import decode, encode

from amcast.errors import AmcastError
from amcast.local.groups import Adding
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime.config import Address
from tests.chaos.test_members import SEED, judged
from tests.pace import allow


def adding(trial: Trial, number: int) -> Adding:
    table = protocol(trial.config.protocol)
    return Adding(trial.processes, table, number, None, allow(60.0), lambda line: print(line, flush=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("disturbed", [False, True])
def test_a_group_comes_under_load(tmp_path: Path, disturbed: bool) -> None:
    """Transfers go on between the groups that there were; the new one takes messages with them. Then all is judged."""
    trial = Trial(tmp_path / "cluster", groups=2, secure=False)
    chance = random.Random(SEED)
    nothing: list[Address] = []

    def come() -> None:
        for attempt in range(5):
            victim = chance.choice(trial.config.members)
            if disturbed:
                trial.kill(victim)
            try:
                trial.look_again()
                adding(trial, 2).add(nothing)
                break
            except AmcastError as error:  # the same command goes on
                print(f"again after {attempt}: {error}", flush=True)
                assert disturbed and attempt < 4
            finally:
                if disturbed:
                    trial.start(victim, wait=False)
                    trial.processes.wait_until_ready([victim], allow(40.0))
        trial.look_again()
        assert trial.config.groups == (0, 1, 2)
        asyncio.run(take_part())

    async def take_part() -> None:
        """Count the money in all groups, with the new one, while transfers go on."""
        async with trial.client(deadline=60.0) as client:
            for _ in range(30):
                for dest in (["g0", "g1", "g2"], ["g1", "g2"], ["g2"]):
                    answers = await client.multicast(dest, encode(["total"]))
                    assert decode(answers["g2"]) == 0, "it is empty"

    takings = judged(trial, tmp_path, come)
    assert [member.name for member in trial.config.group(2)] == ["g2/0", "g2/1", "g2/2"]
    assert disturbed or (not takings.failed and not takings.unknown), "a call failed, though quorums were there"
