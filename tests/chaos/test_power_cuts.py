"""Real processes on real file systems whose power goes: of some replicas, of a whole group, of everything at once."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.local.trial import Trial
from amcast.runtime.config import Member
from tests.chaos.states import differing_states, judge_round
from tests.power import FLUSH_JOURNAL, LOSE_JOURNAL, PowerDisk

ROUNDS = max(4, int(os.environ.get("CHAOS_ROUNDS", "40")) // 10)
SEED = int(os.environ.get("CHAOS_SEED", "1"))
DEADLINE = 30.0
RATE = 300.0


def cut_power(trial: Trial, disks: dict[Member, PowerDisk], chance: random.Random) -> None:
    """Let the power of some members go, all at the same moment, and start them again."""
    members = trial.config.members
    group = [member for member in members if member.group == chance.randrange(len(trial.config.groups))]
    hit = chance.choice([[chance.choice(members)], group, members, members])
    for member in hit:  # nobody says anything after the power is gone
        trial.processes.signal(member, signal.SIGSTOP)
    for member in hit:
        disks[member].cut_power(chance.choice([FLUSH_JOURNAL, LOSE_JOURNAL]))
    trial.kill(*hit)
    trial.injected["power cut"] += len(hit)
    for member in hit:
        disks[member].power_on()
    trial.start(*hit)


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_power_cuts(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "cluster", groups=2, secure=False)
    chance = random.Random(SEED)
    loads: list[teller.Takings] = []
    with ExitStack() as mounted:
        disks = {}
        for member in trial.config.members:
            new = member.data.rename(member.data.with_suffix(".new"))
            disks[member] = mounted.enter_context(PowerDisk(member.data, 4096))
            shutil.copytree(new, member.data, dirs_exist_ok=True)
            subprocess.run(["sync", "-f", member.data], check=True)
        with trial:
            for number in range(ROUNDS):
                after = chance.uniform(0.3, 1.0)
                storm = [(after, lambda: cut_power(trial, disks, chance))]
                takings = teller.run(trial.client(deadline=DEADLINE), 1.5, RATE, actions=storm, seed=SEED + number)
                loads.append(takings)
                judge_round(trial, loads, DEADLINE)
                time.sleep(chance.uniform(0.0, 0.5))
            evidence = trial.judge(tmp_path / "trace", *loads)
        print(f"{evidence}; injected: {dict(trial.injected)}")
        assert trial.injected["power cut"] >= ROUNDS
        assert not (different := differing_states(trial.config)), different
