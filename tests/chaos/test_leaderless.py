"""The protocols without leaders as real processes: cut off for a while, killed for good, joined, left."""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from amcast.apps.chains import log_of
from amcast.apps.ledger import chain
from amcast.apps.teller import Outcomes
from amcast.local.trial import Trial
from amcast.protocols import PROTOCOLS
from amcast.runtime.client import Client, SyncClient
from amcast.runtime.config import Member
from amcast.service import connect_sync
from tests.pace import allow, slowness
from tests.runtime.faulty import Network, relayed
from tests.tools import some_now

NAMES = tuple(name for name, table in PROTOCOLS.items() if table.broadcast or table.detector == "Θ")


SUSPECT = 2.0  # seconds of silence after which a process is taken for crashed


def slowed(trial: Trial) -> float:
    """Let the members wait longer before they suspect each other, on a busy machine; return by how much."""
    pace = slowness()
    text = trial.config.path.read_text()
    assert text.count("suspect_ms = 2000 ") == bool(PROTOCOLS[trial.config.protocol].detector)
    trial.config.path.write_text(text.replace("suspect_ms = 2000 ", f"suspect_ms = {1000 * SUSPECT * pace:.0f} "))
    return pace


async def load(client: Client, groups: int, stop: asyncio.Event, chance: random.Random) -> Outcomes:
    """Multicasts one after the other, on several tasks."""
    outcomes = Outcomes()

    async def one_after_the_other(name: str) -> None:
        while not stop.is_set():
            dest = tuple(sorted(chance.sample(range(groups), chance.randint(1, groups))))
            await outcomes.submit(client, dest, name.encode())
            await asyncio.sleep(0.005)

    async with client, asyncio.TaskGroup() as tasks:
        for name in "abcde":
            tasks.create_task(one_after_the_other(name))
    return outcomes


async def under_load(trial: Trial, groups: int, chance: random.Random, network: Network, pace: float) -> Outcomes:
    client = trial.client(deadline=allow(30))
    stop = asyncio.Event()
    running = asyncio.create_task(load(client, groups, stop, chance))
    await asyncio.sleep(0.5)
    served = trial.config.members[client.session % len(trial.config.members)]
    try:
        await asyncio.to_thread(disturb, trial, network, chance, served, pace)
    finally:
        stop.set()
    return await running


def disturb(trial: Trial, network: Network, chance: random.Random, served: Member, pace: float) -> None:
    """`served` by this server is the client: what a protocol that is not uniform says before a crash binds nobody."""
    table = PROTOCOLS[trial.config.protocol]
    cut_off = network.around(chance.choice(trial.config.members).name)
    network.set("held", cut_off)
    time.sleep(chance.uniform(0.1, 0.3))  # less than what makes a detector suspect it
    network.set("open", cut_off)
    if table.detector == "◇P":
        paused = chance.choice([member for member in trial.config.members if member is not served])
        trial.pause(paused)
        time.sleep(1.25 * SUSPECT * pace)  # until it is suspected
        trial.resume(paused)
        time.sleep(1.0)
    if table.detector:
        for group in trial.config.topology.groups:
            victims = [trial.config.members[pid] for pid in group if pid != served.pid]
            up = [member for member in victims if trial.processes.running(member) is not None]
            trial.kill(chance.choice(up))
    time.sleep(1.25 * SUSPECT * pace)


@pytest.mark.parametrize("name", some_now(NAMES, ("allconcur_plus",)))
@pytest.mark.timeout(180)
def test_short_storm(name: str, tmp_path: Path) -> None:
    table = PROTOCOLS[name]
    groups, replicas = (1, 5) if table.broadcast else (2, 3)
    trial = Trial(
        tmp_path / "cluster", groups=groups, replicas=replicas, app="log", secure=False, durable=False,
        protocol_name=name,
    )  # fmt: skip
    pace = slowed(trial)
    with relayed(trial) as network:
        outcomes = asyncio.run(under_load(trial, groups, random.Random(name), network, pace))
        for member in trial.config.members:  # a server that the others went on without has stopped
            if trial.processes.running(member) is None and member not in trial.killed:
                assert table.detector == "◇P", f"{member.name} stopped"
                trial.killed.append(member)
        evidence = trial.judge(tmp_path / "trace", outcomes)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    assert trial.injected == {
        "held": 1,
        **({"pause": 1} if table.detector == "◇P" else {}),
        **({"kill": groups} if table.detector else {}),
    }
    assert len(outcomes.acknowledged) > 100


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_paused_server_of_a_ledger_comes_back(tmp_path: Path) -> None:
    """One of five stands still until the others have removed it: they go on, it joins again, and all chains agree."""
    trial = Trial(
        tmp_path / "cluster", groups=1, replicas=5, app="ledger", secure=False, durable=False,
        protocol_name="allconcur_plus_ea",
    )  # fmt: skip
    pace = slowed(trial)
    with trial, connect_sync(trial.config.path) as client:
        for number, (rank, pause) in enumerate(((1, 1.05), (3, 1.15), (0, 2.5))):
            paused = trial.config.members[rank]
            trial.pause(paused)
            began = time.monotonic()
            while time.monotonic() - began < pause * SUSPECT * pace:
                client.multicast(["g0"], b"transaction while %d is paused" % number, deadline=allow(30))
                time.sleep(0.004 * pace)  # so that it lacks no more than others remember
            trial.resume(paused)
        assert trial.wait_until_level(), trial.not_level
        chains = {rank: chain(log_of(client, rank)) for rank in range(5)}
    assert len(set(chains.values())) == 1, chains
    assert chains[0][0] > 3


@pytest.mark.timeout(180)
def test_a_ledger_goes_on(tmp_path: Path) -> None:
    """Seven servers: two are killed one after the other, a new one joins and catches up, one leaves."""
    trial = Trial(
        tmp_path / "cluster", groups=1, replicas=7, app="ledger", secure=False, durable=False,
        protocol_name="allconcur_plus_uniform", spare=1,
    )  # fmt: skip
    outcomes = Outcomes()
    slowed(trial)
    with trial:
        with connect_sync(trial.config.path, trace=trial.traces / "client.jsonl") as client:
            chains = live_through(trial, client, outcomes)
        evidence = trial.judge(tmp_path / "trace", outcomes)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    assert trial.injected == {"kill": 2}
    assert len(outcomes.acknowledged) == 250
    assert len(set(chains.values())) == 1, chains
    assert chains[7][0] == 250


def live_through(trial: Trial, client: SyncClient, outcomes: Outcomes) -> dict[int, tuple[int, bytes]]:
    """Append before and after every change; return the chains of those who are members in the end."""
    members = trial.config.members
    sender = trial.config.topology.name(client._client.session)

    def append(count: int) -> None:
        for _ in range(count):
            number = len(outcomes.acknowledged)
            client.multicast(["g0"], b"transaction %d" % number, deadline=allow(20))
            outcomes.acknowledged[f"{sender}:{number}"] = (0,)  # one after the other: in the order of the calls

    append(50)
    trial.kill(members[2])
    append(50)
    trial.kill(members[5])
    append(50)
    trial.start(members[7])
    append(50)
    trial.processes.signal(members[0], signal.SIGUSR1)
    assert not trial.processes.wait_until_gone([members[0]], allow(20))
    trial.killed.append(members[0])
    append(50)
    assert trial.wait_until_level(), trial.not_level
    return {rank: chain(log_of(client, rank)) for rank in (1, 3, 4, 6, 7)}
