"""A node that is overloaded says so: clients back off, and end with Busy by their deadline if it stays so."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import cluster, running, until
from tests.pace import allow

from amcast.errors import Busy, OutcomeUnknown
from amcast.runtime.config import ClusterConfig
from amcast.runtime.node import Node
from amcast.service import connect, connect_sync

Live = tuple[ClusterConfig, Node]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    config = cluster(tmp_path, replicas=1)
    with running(config) as nodes:
        yield config, nodes["g0/0"]


def short(node: Node, reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk of a node be short of space, or not any more, and wait until it has noticed."""
    monkeypatch.setattr(node.durability, "short_of_space", lambda: reason)
    assert until(lambda: node.pulses.busy == (reason or ""))


def test_busy_until_the_deadline_and_why(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    config, node = live
    with connect_sync(config.path, "dev") as client:
        client.multicast(["g0"], b"first")
        short(node, "100 MB of disk are left", monkeypatch)
        for _ in range(2):
            began, deadline = time.monotonic(), allow(0.7)  # within it the node has to be asked
            with pytest.raises(Busy, match="100 MB of disk are left"):
                client.multicast(["g0"], b"no room", deadline=deadline)
            assert deadline - 0.1 < time.monotonic() - began < deadline + allow(0.5)
        short(node, None, monkeypatch)
        assert client.multicast(["g0"], b"last", deadline=allow(20))
    assert node.history.end == 2, "what was refused is not delivered"


def test_who_is_patient_gets_through(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    config, node = live
    asked = 0

    async def many() -> int:
        nonlocal asked
        async with connect(config.path, "dev", deadline=allow(20)) as client:
            calls = [asyncio.ensure_future(client.multicast(["g0"], b"%d" % i)) for i in range(5)]
            await asyncio.sleep(0.5)
            for i in range(5, 500):
                calls.append(asyncio.ensure_future(client.multicast(["g0"], b"%d" % i)))
                await asyncio.sleep(0.002)  # each a message of its own
            asked = node.metrics.requests
            await asyncio.to_thread(short, node, None, monkeypatch)
            return len(await asyncio.gather(*calls))

    short(node, "little disk", monkeypatch)
    refused = count_refusals(node, monkeypatch)
    began = time.monotonic()
    assert asyncio.run(many()) == 500 and node.history.end == 500
    seconds = time.monotonic() - began
    assert asked == 0 and len(refused) < 30 + 20 * seconds, "a busy node is left alone, but for a try now and then"


def count_refusals(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    refusal_of = node.pulses.refusal_of

    def counted(dest: tuple[int, ...]) -> tuple[int, str] | None:
        refused = refusal_of(dest)
        if refused is not None:
            found.append(refused[0])
        return refused

    monkeypatch.setattr(node.pulses, "refusal_of", counted)
    return found


def test_a_group_that_does_not_keep_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for a moment, and are told after that; a member that is away or slow holds up nobody."""
    config = cluster(tmp_path, replicas=3)
    with running(config, ["g0/0", "g0/1"]) as nodes:
        node = nodes["g0/0"]
        assert until(lambda: node.readiness() is None)
        with connect_sync(config.path, "dev") as client:
            client.multicast(["g0"], b"x", deadline=allow(20))
            assert node.links[2].kept_bytes, "nobody is there"
            node.links[1].kept_bytes += 2**30
            assert not node.links[1].congested and not node.links[2].congested, "a slow one holds up nobody"
            node.links[1].kept_bytes -= 2**30
            for each in nodes.values():
                monkeypatch.setattr(each.engine.process, "backlog", lambda: 17 * 2**20)
            assert until(lambda: node.serving.paused, 2.0), "at first they are not read"
            assert until(lambda: node.pulses.busy)
            with pytest.raises((Busy, OutcomeUnknown), match=r"g0 does not keep up|no answer"):
                client.multicast(["g0"], b"x", deadline=1.0)
            with pytest.raises(Busy, match="g0 does not keep up: 17 MB are under way"):
                client.multicast(["g0"], b"x", deadline=1.0)
            assert not node.serving.paused
            monkeypatch.undo()
            assert client.multicast(["g0"], b"x", deadline=allow(20))
