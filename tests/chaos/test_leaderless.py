"""The protocols without leaders as real processes: cut off for a while, killed for good, joined, left."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from amcast.apps.ledger import chain
from amcast.check import check
from amcast.cli.ledger import log_of
from amcast.cli.trial import Trial
from amcast.core.errors import OutcomeUnknown
from amcast.protocols import PROTOCOLS
from amcast.runtime.client import Client
from amcast.runtime.config import Member
from amcast.service import connect_sync
from amcast.tracefile import read_events
from tests.runtime.faulty import Network, relayed

NAMES = tuple(name for name, table in PROTOCOLS.items() if table.broadcast or table.detector == "Θ")
SHORT = ("allconcur_plus", "causal")
COMMON = ["integrity", "validity", "termination"]


async def load(client: Client, groups: int, stop: asyncio.Event, chance: random.Random) -> int:
    """Multicasts one after the other, on several tasks; how many were answered."""
    done = 0

    async def one_after_the_other(name: str) -> None:
        nonlocal done
        while not stop.is_set():
            dest = chance.sample(range(groups), chance.randint(1, groups))
            await client.multicast([f"g{g}" for g in dest], name.encode())
            done += 1
            await asyncio.sleep(0.005)

    async with client, asyncio.TaskGroup() as tasks:
        for name in "abcde":
            tasks.create_task(one_after_the_other(name))
    return done


async def under_load(trial: Trial, groups: int, chance: random.Random, network: Network) -> int:
    client = trial.client(deadline=30.0)
    stop = asyncio.Event()
    running = asyncio.create_task(load(client, groups, stop, chance))
    await asyncio.sleep(0.5)
    served = trial.config.members[client.session % len(trial.config.members)]
    try:
        await asyncio.to_thread(disturb, trial, network, chance, served)
    finally:
        stop.set()
    return await running


def disturb(trial: Trial, network: Network, chance: random.Random, served: Member) -> None:
    """`served` by this server is the client: what a protocol that is not uniform says before a crash binds nobody."""
    table = PROTOCOLS[trial.config.protocol]
    cut_off = network.around(chance.choice(trial.config.members).name)
    network.set("held", cut_off)
    time.sleep(chance.uniform(0.1, 0.3))  # less than what makes a detector suspect it
    network.set("open", cut_off)
    if table.detector == "◇P":
        paused = chance.choice([member for member in trial.config.members if member is not served])
        trial.pause(paused)
        time.sleep(2.5)
        trial.resume(paused)
        time.sleep(1.0)
    if table.detector:
        for group in trial.config.topology.groups:
            victims = [trial.config.members[pid] for pid in group if pid != served.pid]
            up = [member for member in victims if trial.processes.running(member) is not None]
            trial.kill(chance.choice(up))
    time.sleep(2.5)


@pytest.mark.parametrize("name", NAMES if "CHAOS_ROUNDS" in os.environ else SHORT)
@pytest.mark.timeout(180)
def test_short_storm(name: str, tmp_path: Path) -> None:
    table = PROTOCOLS[name]
    groups, replicas = (1, 5) if table.broadcast else (2, 3)
    trial = Trial(
        tmp_path / "cluster", groups=groups, replicas=replicas, app="log", secure=False, durable=False,
        protocol_name=name,
    )  # fmt: skip
    with relayed(trial) as network:
        done = asyncio.run(under_load(trial, groups, random.Random(name), network))
        for member in trial.config.members:  # a server that the others went on without has stopped
            if trial.processes.running(member) is None and member not in trial.killed:
                assert table.detector == "◇P", f"{member.name} stopped"
                trial.killed.append(member)
        level = trial.finish(tmp_path / "trace")
    assert level, "a replica did not catch up"
    assert done > 100
    agreement = "agreement" if table.uniform else "agreement-nonuniform"
    order = "order" if table.broadcast else table.order
    for verdict in check(read_events(tmp_path / "trace"), [*COMMON, agreement, order]):
        assert verdict.status == "ok", f"{verdict.property}: {verdict.reason}"


@pytest.mark.timeout(180)
def test_a_ledger_goes_on(tmp_path: Path) -> None:
    """Seven servers: two are killed one after the other, a new one joins and catches up, one leaves."""
    trial = Trial(
        tmp_path / "cluster", groups=1, replicas=7, app="ledger", secure=False, durable=False,
        protocol_name="allconcur_plus_uniform", traced=False, spare=1,
    )  # fmt: skip
    members = trial.config.members
    with trial, connect_sync(trial.config.path) as client:
        heights: list[bytes] = []

        def append(count: int) -> None:
            for _ in range(count):
                try:
                    heights.append(client.multicast(["g0"], b"transaction %d" % len(heights), deadline=20)["g0"])
                except OutcomeUnknown:
                    pytest.fail("the ledger stands still")

        append(50)
        trial.kill(members[2])
        append(50)
        trial.kill(members[5])
        append(50)
        trial.start(members[7])
        append(50)
        trial.processes.signal(members[0], signal.SIGUSR1)
        assert not trial.processes.wait_until_gone([members[0]], 20)
        append(50)
        trial.killed.append(members[0])
        assert trial.wait_until_level()
        chains = {rank: chain(log_of(client, rank)) for rank in (1, 3, 4, 6, 7)}
    assert len(set(chains.values())) == 1, chains
    assert chains[7][0] == 250
