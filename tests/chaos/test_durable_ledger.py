"""A ledger with disks: servers that are paused, killed one by one or all at once, or lose their disk come back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amcast.apps.chains import log_of, transactions_in
from amcast.apps.ledger import chain
from amcast.cli import run
from amcast.local.trial import Trial
from amcast.runtime.client import SyncClient
from amcast.service import connect_sync
from tests.pace import allow

PAUSES = (2.05, 2.3, 5.0, 30.0)  # seconds; servers are suspected after 2


@contextmanager
def ledger(folder: Path, servers: int) -> Iterator[tuple[Trial, SyncClient]]:
    """Run a ledger that keeps its data. Wrong suspicions on a busy machine are part of what it bears."""
    trial = Trial(
        folder, groups=1, replicas=servers, app="ledger", secure=False, traced=False, protocol_name="allconcur_plus_ea"
    )
    with trial, connect_sync(trial.config.path) as client:
        yield trial, client


def append(client: SyncClient, heights: list[int], count: int) -> None:
    for _ in range(count):
        client.multicast(["g0"], b"transaction %d" % len(heights), deadline=allow(60))
        heights.append(len(heights) + 1)


def agree(trial: Trial, client: SyncClient, appended: int) -> None:
    """Check that all servers are members with the same chain, in which all is that was acknowledged."""
    assert trial.wait_until_level(), trial.not_level
    deadline = time.monotonic() + allow(60)
    while time.monotonic() < deadline:
        members = {name: status.get("members") for name, status in trial.statuses().items()}
        if set(members.values()) == {len(trial.config.members)}:
            break
        time.sleep(0.2)
    assert set(members.values()) == {len(trial.config.members)}, members
    chains = {rank: chain(log_of(client, rank)) for rank in range(len(trial.config.members))}
    assert len(set(chains.values())) == 1, chains
    assert chains[0][0] == appended, chains


@pytest.mark.timeout(300)
def test_all_killed_at_once(tmp_path: Path) -> None:
    heights: list[int] = []
    with ledger(tmp_path / "cluster", 3) as (trial, client):
        append(client, heights, 40)
        trial.kill(*trial.config.members)
        trial.start(*trial.config.members)
        append(client, heights, 40)
        agree(trial, client, 80)
        whole = chain(log_of(client, 0))
    assert chain(transactions_in(trial.config.members[1].data)) == whole, "the files of a stopped server"
    trial.config.members[1].data.rename(tmp_path / "old")
    with ledger(tmp_path / "new", 3) as (trial, client):
        assert run(["ledger", "found", str(trial.config.path), str(tmp_path / "old")]) == 0
        agree(trial, client, 80)  # it is there when one has it, and the others follow
        assert chain(log_of(client, 0)) == whole, "founded anew"
        assert run(["ledger", "found", str(trial.config.path), str(tmp_path / "old")]) == 2, "it is not empty"


@pytest.mark.slow
@pytest.mark.parametrize("servers", [9, 5])
@pytest.mark.timeout(600)
def test_killed_one_after_the_other(servers: int, tmp_path: Path) -> None:
    """Three of nine, or two of five, with the service going on; then they come back from their disks."""
    heights: list[int] = []
    with ledger(tmp_path / "cluster", servers) as (trial, client):
        victims = trial.config.members[1 : 1 + (servers - 1) // 2 - (servers > 7)]
        for victim in victims:
            append(client, heights, 30)
            trial.kill(victim)
        append(client, heights, 30)
        for victim in victims:
            trial.start(victim)
            append(client, heights, 10)
        agree(trial, client, len(heights))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lost_disk(tmp_path: Path) -> None:
    heights: list[int] = []
    with ledger(tmp_path / "cluster", 5) as (trial, client):
        append(client, heights, 30)
        lost = trial.config.members[2]
        trial.kill(lost)
        trial.start(lost, rejoin=True)
        append(client, heights, 30)
        agree(trial, client, 60)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [5, 7])
@pytest.mark.timeout(3600)
def test_paused(servers: int, tmp_path: Path) -> None:
    """Ten times each: the others go on, and the paused one comes back by itself."""
    heights: list[int] = []
    with ledger(tmp_path / "cluster", servers) as (trial, client):
        for number in range(10):
            for pause in PAUSES:
                paused = trial.config.members[(number + int(pause)) % servers]
                trial.pause(paused)
                began = time.monotonic()
                before = len(heights)
                while time.monotonic() - began < pause:
                    append(client, heights, 1)
                    time.sleep(0.01)
                trial.resume(paused)
                took = time.monotonic()
                append(client, heights, 5)
                agree(trial, client, len(heights))
                print(
                    f"{servers} servers, {paused.name} paused for {pause:g} s: {len(heights) - before} "
                    f"transactions meanwhile, all members again after {time.monotonic() - took:.1f} s",
                    flush=True,
                )
