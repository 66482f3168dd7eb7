"""Real processes under load, stopped, killed, paused, cut off and started again at random, and judged after each round.

A round disturbs a cluster of two groups while money moves between its accounts. Then the cluster comes to rest: every
replica has delivered the same, the books balance, and at the end all states are equal and the trace is sound.

`make chaos` runs 200 rounds; here are a few. CHAOS_SEED chooses others, CHAOS_PROTOCOL another protocol.
"""

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime.config import Member
from tests.chaos.states import differing_states, judge_round
from tests.pace import allow, until
from tests.runtime.faulty import Network, relayed
from tests.tools import FULL, some_now

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "16" if FULL else "4"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
KINDS = os.environ.get("CHAOS_KINDS", "")  # some of them, with commas; all if empty
PROTOCOL = os.environ.get("CHAOS_PROTOCOL", "white_box")
DEADLINE = 30.0
RATE = 150.0


class Storm:
    def __init__(self, trial: Trial, network: Network, seed: int, names: str) -> None:
        self.trial = trial
        self.network = network
        self.chance = random.Random(seed)
        self.happened: list[str] = []
        kinds = [
            self.kill_leader, self.restart, self.lose_disk, self.restart_all, self.partition, self.kill_all,
            self.rolling_restart, self.interrupted_rejoin, self.older_folder, self.absence, self.kill_follower,
            self.kill_group, self.pause, self.pause_leader, self.one_way, self.cut_connections,
        ]  # fmt: skip
        self.kinds = [getattr(self, name) for name in names.split(",")] if names else kinds

    def round(self, number: int) -> None:
        kind = self.kinds[number % len(self.kinds)] if ROUNDS <= 20 else self.chance.choice(self.kinds)
        self.happened.append(f"{number} {time.strftime('%H:%M:%S')} {kind.__name__}")
        kind()
        time.sleep(self.chance.uniform(0.2, 1.5))

    def leader(self) -> Member:
        return self.trial.leader(self.chance.randrange(len(self.trial.config.groups)))

    def restart(self) -> None:
        """Stop and start single members, often leaders, as an operator does who changes nothing."""
        for _ in range(self.chance.randint(1, 4)):
            member = self.chance.choice([self.leader(), self.chance.choice(self.trial.config.members)])
            self.trial.stop(member)
            time.sleep(self.chance.choice([0.0, self.chance.uniform(0.0, 2.0)]))
            self.trial.start(member)

    def rolling_restart(self) -> None:
        for member in self.chance.sample(self.trial.config.members, len(self.trial.config.members)):
            self.trial.stop(member)
            self.trial.start(member)

    def restart_all(self) -> None:
        self.trial.stop(*self.trial.config.members)
        self.trial.start(*self.trial.config.members)

    def absence(self) -> None:
        """One member is away for long; meanwhile the leader of its group changes."""
        member = self.chance.choice(self.trial.config.members)
        self.chance.choice([self.trial.stop, self.trial.kill])(member)
        time.sleep(self.chance.uniform(2.0, 6.0))
        leader = self.trial.leader(member.group)
        if leader is not member:
            self.chance.choice([self.trial.stop, self.trial.kill])(leader)
            self.trial.start(leader, wait=False)
        self.trial.start(member)
        self.trial.wait_until_ready([leader])

    def older_folder(self) -> None:
        """A member gets an older copy of its folder, while the one who knows what is missing in it is away."""
        self.put_older_folder(rejoin=True)

    def older_folder_unnoticed(self) -> None:
        """The same, and the operator does not say so. This version does not notice: it is run only if it is named."""
        self.put_older_folder(rejoin=False)

    def put_older_folder(self, rejoin: bool) -> None:
        leader = self.leader()
        others = [member for member in self.trial.config.members if member.group == leader.group and member != leader]
        older, absent = self.chance.sample(others, 2)
        copy = self.trial.folder / "copy"
        self.trial.stop(older)
        shutil.copytree(older.data, copy)
        self.trial.start(older)
        time.sleep(self.chance.uniform(0.2, 1.0))
        self.trial.kill(absent)
        time.sleep(self.chance.uniform(0.5, 1.5))  # what is decided now, the leader and the older one alone know
        self.trial.kill(leader, older)
        shutil.rmtree(older.data)
        copy.rename(older.data)
        self.trial.injected["older folder"] += 1
        self.trial.start(older, wait=False, rejoin=rejoin)
        self.trial.start(absent, wait=False)
        time.sleep(self.chance.uniform(1.0, 4.0))
        self.trial.start(leader, wait=False)
        self.trial.wait_until_ready([leader, older, absent])

    def kill_leader(self) -> None:
        leader = self.trial.leader(self.chance.randrange(len(self.trial.config.groups)))
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

    def interrupted_rejoin(self) -> None:
        """A member without its disk is killed while it fetches a state, and its supervisor simply starts it."""
        member = self.chance.choice(self.trial.config.members)
        others = [other for other in self.trial.config.members if other.group == member.group and other != member]
        other = self.chance.choice(others)  # while it is away, nobody finishes a rejoin
        self.trial.kill(member, other)
        shutil.rmtree(member.data)
        self.trial.injected["lost disk"] += 1
        self.trial.start(member, wait=False, rejoin=True)
        assert until(lambda: (member.data / "identity").exists(), 20), "no rejoin began"
        time.sleep(self.chance.uniform(0.0, 1.0))
        self.trial.kill(member)
        self.trial.start(member, wait=False)
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.trial.start(other)
        self.trial.wait_until_ready([member])

    def kill_group(self) -> None:
        g = self.chance.randrange(len(self.trial.config.groups))
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
        leader = self.trial.leader(self.chance.randrange(len(self.trial.config.groups)))
        self.trial.pause(leader)
        time.sleep(self.chance.uniform(1.0, 2.5))
        self.trial.resume(leader)


def weather(tmp_path: Path, name: str, rounds: int, kinds: str) -> None:
    groups = 1 if protocol(name).single_group else 2
    trial = Trial(tmp_path / "cluster", groups=groups, secure=False, protocol_name=name)
    loads: list[teller.Takings] = []
    with relayed(trial) as network:
        storm = Storm(trial, network, SEED, kinds)
        try:
            for number in range(rounds):
                deadline = allow(DEADLINE)
                client = trial.client(deadline=deadline)
                takings = teller.run(
                    client, 1.0, RATE, actions=[(0.3, lambda number=number: storm.round(number))], seed=SEED + number
                )
                loads.append(takings)
                judge_round(trial, loads, deadline)
        finally:
            print("\n".join(storm.happened))
        evidence = trial.judge(tmp_path / "trace", *loads)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    print(f"{sum(each.done for each in loads)} transfers, {sum(each.unknown for each in loads)} with unknown outcome")
    assert evidence.faults >= rounds
    assert not (different := differing_states(trial.config)), different


@pytest.mark.timeout(180 + 40 * ROUNDS)
def test_storm(tmp_path: Path) -> None:
    assert ROUNDS > 0, f"CHAOS_ROUNDS={ROUNDS} disturbs nothing; expected 1 or more"
    weather(tmp_path, PROTOCOL, ROUNDS, KINDS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", some_now(("ft_skeen", "fastcast", "multi_paxos", "paxos_amcast", "primcast"), ()))
def test_short_storm(name: str, tmp_path: Path) -> None:
    """Their replicas come back like those of White-Box; CHAOS_PROTOCOL lets one of them through the rest."""
    weather(tmp_path, name, 4, "kill_leader,lose_disk,kill_all,kill_follower")
