"""One replica is away while much is written, the leader changes, and it comes back."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from amcast.apps.teller import Outcomes
from amcast.local.trial import Trial
from amcast.runtime.client import Client
from amcast.runtime.config import Member
from amcast.service import connect_sync
from tests.chaos.states import differing_states
from tests.pace import allow

DEADLINE = 60.0
PAYLOAD = bytes(range(256)) * 400  # no command of the bank: it is ordered, kept and answered all the same
WRITTEN = 8 * 2**20  # more than a connection keeps for one that is away
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


AWAY_FOR = int(os.environ.get("CHAOS_MESSAGES", "100000"))  # of 1 kB; 10**6 were tried
ROW = bytes(1000)
MOST_GROWTH = 64  # MiB; leaders of groups in which nobody is away grow by 25 to 35 under this load, for moments by 60
MOST_OF_A_VOTE = 2**20


def resident(trial: Trial, member: Member) -> int:
    """Return the memory of a replica, in bytes."""
    pid = trial.statuses()[member.name]["pid"]
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def written_by(trial: Trial, member: Member) -> int:
    """Return how many bytes a replica has written, to disks and to sockets."""
    text = Path(f"/proc/{trial.statuses()[member.name]['pid']}/io").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("wchar:")).split()[1])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("replicas", "away"), ((3, 1), (5, 2)))
def test_who_is_away_for_long_costs_little(tmp_path: Path, replicas: int, away: int) -> None:
    """Memory of the others, the votes for the next leader, and the time until it is back do not depend on how long."""
    trial = Trial(tmp_path / "cluster", groups=1, replicas=replicas, secure=False, traced=False)
    with trial:
        leader = trial.leader(0)
        absent = [member for member in trial.config.members if member != leader][:away]
        with connect_sync(trial.config.path, deadline=allow(DEADLINE)) as client:
            client.multicast_batches([((0,), [ROW] * 500)] * 20)  # what grows by itself has grown
            trial.kill(*absent)
            present = trial.alive()
            before = {member.name: resident(trial, member) for member in present}
            for first in range(0, AWAY_FOR, 10_000):
                client.multicast_batches([((0,), [ROW] * 500)] * (min(10_000, AWAY_FOR - first) // 500))
            grown = {member.name: (resident(trial, member) - before[member.name]) >> 20 for member in present}
            print(f"{replicas} replicas, {away} away for {AWAY_FOR:,} messages; MiB grown: {grown}", flush=True)
            assert max(grown.values()) < MOST_GROWTH, grown

            began = time.monotonic()
            trial.start(*absent)
            assert trial.wait_until_level(), trial.not_level
            back = time.monotonic() - began
            voters = [member for member in trial.alive() if member != leader]
            wrote = {member.name: written_by(trial, member) for member in voters}
            began = time.monotonic()
            trial.kill(leader)
            client.multicast(["g0"], b"after")
            elected = time.monotonic() - began
            votes = {member.name: written_by(trial, member) - wrote[member.name] for member in voters}
            print(
                f"back after {back:.1f} s; elected after {elected:.2f} s, bytes written meanwhile: {votes}", flush=True
            )
            trial.start(leader)
            assert trial.wait_until_level(), trial.not_level
        assert back < allow(60) and elected < allow(5)
        assert max(votes.values()) < MOST_OF_A_VOTE, votes
    assert not (different := differing_states(trial.config)), different
