"""Real processes under load, killed, paused, cut off and started again at random; then judged by their trace.

`make chaos` runs 200 rounds; here are a few. CHAOS_SEED chooses others.
"""

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.local.trial import Trial
from tests.pace import allow, until
from tests.runtime.faulty import Network, relayed
from tests.tools import FULL

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "10" if FULL else "4"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
DEADLINE = 30.0
RATE = 150.0


class Storm:
    def __init__(self, trial: Trial, network: Network, seed: int) -> None:
        self.trial = trial
        self.network = network
        self.chance = random.Random(seed)
        self.happened: list[str] = []

    def rounds(self) -> None:
        kinds = [
            self.kill_leader, self.lose_disk, self.partition, self.kill_all, self.kill_follower, self.kill_group,
            self.pause, self.pause_leader, self.one_way, self.cut_connections,
        ]  # fmt: skip
        for number in range(ROUNDS):
            kind = kinds[number % len(kinds)] if ROUNDS < 20 else self.chance.choice(kinds)
            self.happened.append(f"{time.strftime('%H:%M:%S')} {kind.__name__}")
            kind()
            time.sleep(self.chance.uniform(0.2, 1.5))

    def kill_leader(self) -> None:
        leader = self.trial.leader(self.chance.randrange(len(self.trial.config.topology.groups)))
        self.trial.kill(leader)
        time.sleep(self.chance.uniform(0.0, 2.5))
        self.trial.start(leader)

    def kill_follower(self) -> None:
        member = self.chance.choice(self.trial.config.members)
        self.trial.kill(member)
        time.sleep(self.chance.uniform(0.0, 2.5))
        self.trial.start(member)

    def lose_disk(self) -> None:
        member = self.chance.choice(self.trial.config.members)
        self.trial.kill(member)
        shutil.rmtree(member.data)
        self.trial.injected["lost disk"] += 1
        self.trial.start(member, rejoin=True)
        there = {"rejoining": False}
        assert until(lambda: there.items() <= self.trial.statuses().get(member.name, {}).items(), 30), member.name

    def kill_group(self) -> None:
        g = self.chance.randrange(len(self.trial.config.topology.groups))
        members = [member for member in self.trial.config.members if member.group == g]
        self.trial.kill(*members)
        self.trial.start(*members)

    def kill_all(self) -> None:
        self.trial.kill(*self.trial.config.members)
        self.trial.start(*self.trial.config.members)

    def partition(self) -> None:
        """One member, often a leader, hears nobody and is heard by nobody."""
        member = self.chance.choice([self.trial.leader(0), self.chance.choice(self.trial.config.members)])
        self.hold(self.network.around(member.name))

    def one_way(self) -> None:
        member = self.chance.choice(self.trial.config.members)
        side = self.chance.randrange(2)
        self.hold([pair for pair in self.network.around(member.name) if pair[side] == member.name])

    def hold(self, pairs: list[tuple[str, str]]) -> None:
        self.network.set("held", pairs)
        time.sleep(self.chance.uniform(0.5, 3.0))
        self.network.set("open", pairs)

    def cut_connections(self) -> None:
        pairs = self.network.around(self.chance.choice(self.trial.config.members).name)
        for _ in range(5):
            self.network.set("cut", pairs)
            self.network.set("open", pairs)
            time.sleep(self.chance.uniform(0.0, 0.2))

    def pause(self) -> None:
        members = self.chance.sample(self.trial.config.members, self.chance.randint(1, 2))
        self.trial.pause(*members)
        time.sleep(self.chance.uniform(0.3, 2.5))
        self.trial.resume(*members)

    def pause_leader(self) -> None:
        leader = self.trial.leader(self.chance.randrange(len(self.trial.config.topology.groups)))
        self.trial.pause(leader)
        time.sleep(self.chance.uniform(1.0, 2.5))
        self.trial.resume(leader)


@pytest.mark.timeout(120 + 20 * ROUNDS)
def test_storm(tmp_path: Path) -> None:
    assert ROUNDS > 0, f"CHAOS_ROUNDS={ROUNDS} disturbs nothing; expected 1 or more"
    trial = Trial(tmp_path / "cluster", groups=2, secure=False)
    with relayed(trial) as network:
        storm = Storm(trial, network, SEED)
        deadline = allow(DEADLINE)
        client = trial.client(deadline=deadline)
        try:
            takings = teller.run(client, 1.0, RATE, actions=[(0.5, storm.rounds)], seed=SEED)
        finally:
            print("\n".join(storm.happened))
        evidence = trial.judge(tmp_path / "trace", takings)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    print(f"{takings.done} transfers, {takings.unknown} with unknown outcome")
    assert evidence.faults >= ROUNDS
    assert max(took for _, took in takings.latencies) < deadline + allow(1.0)
    assert takings.total == takings.expected
