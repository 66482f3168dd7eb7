"""Other protocols than White-Box as real processes without disks: paused, cut off, and a minority killed for good."""

import random
import time
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.local.trial import Trial
from amcast.tracefile import read_events
from tests.pace import allow
from tests.runtime.faulty import Network, relayed
from tests.tools import some_now

DEADLINE = 30.0
NAMES = ("ft_skeen", "fastcast", "paxos_amcast", "multi_paxos", "baseline", "optimistic")


def disturb(trial: Trial, network: Network, chance: random.Random) -> None:
    groups = trial.config.groups
    leader = trial.leader(0)
    trial.pause(leader)
    time.sleep(chance.uniform(1.0, 1.5))
    trial.resume(leader)
    cut_off = network.around(chance.choice(trial.config.members).name)
    network.set("held", cut_off)
    time.sleep(chance.uniform(0.3, 1.0))
    network.set("open", cut_off)
    for g in groups:
        trial.kill(trial.leader(g))
    time.sleep(1.5)


@pytest.mark.parametrize("name", some_now(NAMES, ("optimistic",)))
@pytest.mark.timeout(180)
def test_short_storm(name: str, tmp_path: Path) -> None:
    groups = 1 if name == "multi_paxos" else 2
    trial = Trial(tmp_path / "cluster", groups=groups, secure=False, durable=False, protocol_name=name)
    with relayed(trial) as network:
        client = trial.client(deadline=allow(DEADLINE))
        storm = [(0.5, lambda: disturb(trial, network, random.Random(name)))]
        takings = teller.run(client, 1.0, 150.0, actions=storm, seed=1)
        assert len(trial.killed) == groups
        evidence = trial.judge(tmp_path / "trace", takings)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    assert trial.injected == {"kill": groups, "pause": 1, "held": 1}
    assert takings.done > 100
    assert takings.total == takings.expected
    guessed = any(event.kind == "optdeliver" for event in read_events(tmp_path / "trace"))
    assert guessed == (name == "optimistic")
