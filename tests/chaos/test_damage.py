"""The end of a log is damaged while who knows better is away: what was acknowledged is never missing from an answer."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from amcast.errors import AmcastError
from amcast.local.trial import Trial
from amcast.runtime.config import Member
from amcast.service import connect_sync
from tests.pace import allow

CASES = max(4, int(os.environ.get("CHAOS_ROUNDS", "8")) // 2)
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECTOR = 512


def damage(log: Path, chance: random.Random) -> str:
    """Flip a bit near the end of a log, or cut it there, or wipe what is behind, or delete it; return which."""
    data = bytearray(log.read_bytes())
    end = len(data.rstrip(b"\0"))
    at = chance.randrange(max(0, end - 2 * SECTOR), end)
    kind = chance.choice(["flip", "flip", "cut", "wipe", "delete"])
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "wipe":
        data[at:] = bytes(len(data) - at)
    if kind == "delete":
        log.unlink()
    else:
        with log.open("r+b") as file:
            file.truncate(len(data))
            file.write(data)
    return kind


def rows_until(trial: Trial, start: int, probe: bytes, deadline: float) -> list[bytes]:
    """Return what is delivered from a position on, up to a probe that is multicast now."""
    rows = []
    with connect_sync(trial.config.path, deadline=deadline) as client:
        client.multicast(["g0"], probe)
        for delivery in client.deliveries("g0", start):
            rows.append(delivery.payload)
            if delivery.payload == probe:
                break
    return rows


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * CASES)
def test_the_end_of_a_log_is_damaged(tmp_path: Path) -> None:
    """Only the leader and a follower have a write. The follower's log is damaged, and the leader stays away."""
    chance = random.Random(SEED)
    trial = Trial(tmp_path / "cluster", groups=1, secure=False, traced=False)
    seen: Counter[tuple[str, str]] = Counter()
    with trial:
        for case in range(CASES):
            leader = trial.leader(0)
            away, harmed = chance.sample([member for member in trial.config.members if member != leader], 2)
            trial.kill(away)
            word = b"write %d" % case
            with connect_sync(trial.config.path, deadline=allow(30)) as client:
                client.multicast(["g0"], word)
            start = max(status["position"] for status in trial.statuses().values()) - 1  # type: ignore[type-var]
            trial.kill(leader)
            trial.kill(harmed)
            kind = damage(max(harmed.data.glob("log-*")), chance)
            trial.start(away, harmed, wait=False)
            try:
                rows = rows_until(trial, start, b"probe %d" % case, allow(3))
                assert word in rows, f"{kind}: the acknowledged write is not there"
                seen[kind, "answered"] += 1
            except AmcastError:
                seen[kind, "unavailable"] += 1
            come_back(trial, leader, harmed)
            rows = rows_until(trial, start, b"after %d" % case, allow(30))
            assert word in rows, f"{kind}: the acknowledged write is lost"
    print(dict(seen))
    assert seen.total() == CASES and any(end == "unavailable" for _, end in seen), "nothing was damaged"


def come_back(trial: Trial, leader: Member, harmed: Member) -> None:
    """Start the leader, and who was harmed as its last line says: by itself, or with --rejoin."""
    trial.start(leader)
    try:
        trial.start(harmed)  # it may run already, and wait for the leader
    except AmcastError:
        assert trial.processes.running(harmed) is None, trial.statuses()
        trial.start(harmed, rejoin=True)
    assert trial.wait_until_level(), trial.not_level
