"""Backups under load while replicas are killed: each one that is made balances, and none is made halfway."""

import os
import random
import time
from pathlib import Path

import msgspec
import pytest

from amcast.apps import teller
from amcast.errors import AmcastError
from amcast.local.backup import take_backup
from amcast.local.restore import restore_cluster
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime.backup import Backup

TURNS = max(2, int(os.environ.get("CHAOS_ROUNDS", "8")) // 2)
SEED = int(os.environ.get("CHAOS_SEED", "1"))
RATE = 150.0


def total(path: Path) -> int:
    return sum(sum(msgspec.msgpack.decode(state.app).values()) for state in Backup(path).groups())


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * TURNS)
def test_backups_while_replicas_are_killed(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "cluster", groups=3, secure=False)
    chance = random.Random(SEED)
    made: list[Path] = []
    failed: list[str] = []

    def back_up() -> None:
        for turn in range(TURNS):
            victim = chance.choice(trial.config.members)
            path = tmp_path / f"{turn}.amb"
            began = time.monotonic()
            trial.kill(victim)
            try:
                take_backup(trial.config, protocol(trial.config.protocol), path, seconds=20.0)
                made.append(path)
            except AmcastError as error:
                failed.append(str(error))
            trial.start(victim)
            print(f"{turn} took {time.monotonic() - began:.1f} s", flush=True)

    with trial:
        takings = teller.run(trial.client(deadline=30.0), 1.0, RATE, actions=[(0.5, back_up)], seed=SEED)
        evidence = trial.judge(tmp_path / "trace", takings)
    print(f"{evidence}; {takings.done} transfers; {len(made)} backups made, not made: {failed}")
    assert takings.total == takings.expected
    assert made and not list(tmp_path.glob("*.amb.new"))
    assert sorted(tmp_path.glob("*.amb")) == sorted(made)
    assert {total(path) for path in made} == {takings.expected}
    for groups in (2, 4):
        restore_cluster(made[-1], tmp_path / f"r{groups}", protocol, groups, 1, secure=False)
