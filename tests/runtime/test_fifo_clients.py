"""Clients of fifo and causal multicast: what is refused, or waits for a group that is gone, holds up nothing else."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import cluster, running, until
from tests.pace import allow
from tests.runtime.test_asked_again import Shout
from tests.tools import some_now

from amcast.errors import AnswerGone, MulticastFailed, OutcomeUnknown
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig
from amcast.runtime.machine import Limits, Machine
from amcast.service import connect, load

NAMES = ("fifo", "causal", "causal_stable")
G0, G1 = (tuple(f"g{g}/{r}" for r in range(3)) for g in range(2))
GRANTS = """
[clients.alice]
read = ["*"]
write = ["g0"]
"""


def made(folder: Path, name: str, groups: int = 2) -> ClusterConfig:
    config = cluster(folder, groups=groups, replicas=3, durable=False, protocol_name=name)
    config.path.write_text(config.path.read_text() + GRANTS)
    return load(config.path)


def open_voids(client: Client) -> int:
    return len(client._engine.process.voids)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_goes_on_after_what_it_may_not(name: str, tmp_path: Path) -> None:
    """P-13: the number of the refused message was missing for ever. One is refused alone, some between others."""
    config = made(tmp_path, name)

    async def calls() -> None:
        async with connect(config.path, "alice", deadline=allow(10)) as client:
            assert (await client.multicast(["g0"], b"first"))["g0"] == b"FIRST"
            with pytest.raises(MulticastFailed, match="alice may not multicast to g0, g1 here"):
                await client.multicast(["g0", "g1"], b"forbidden")
            assert (await client.multicast(["g0"], b"second"))["g0"] == b"SECOND"
            for _ in range(3):
                dests = [(0,), (0, 1), (1,), (0,), (0, 1)]
                asked = []
                for dest in dests:
                    asked.append(client.submit(dest, b"word"))
                    await asyncio.sleep(0)  # each travels alone
                found = await asyncio.gather(*asked, return_exceptions=True)
                assert [isinstance(one, MulticastFailed) for one in found] == [dest != (0,) for dest in dests], found
            assert (await client.multicast(["g0"], b"last"))["g0"] == b"LAST"
            assert open_voids(client) == 0, "those that g1 refuses are forgotten, too"

    with running(config, app=Shout) as nodes:
        asyncio.run(calls())
        assert until(lambda: [nodes[f"g0/{r}"].history.end for r in range(3)] == [9] * 3)
        assert [nodes[f"g1/{r}"].history.end for r in range(3)] == [0] * 3
        assert all(node.engine.process.footprint() == 0 for node in nodes.values())
        assert all(node.engine.process.condition()["gaps"] == 0 for node in nodes.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_client_goes_on_when_there_is_room_for_it(name: str, tmp_path: Path) -> None:
    """A replica with many clients refuses one in its greeting, and takes it later."""
    config = made(tmp_path, name, groups=1)

    async def calls() -> None:
        async with AsyncExitStack() as later:
            async with connect(config.path, "alice", deadline=allow(10)) as early:
                await early.multicast(["g0"], b"early")
                assert await asyncio.to_thread(until, lambda: all(node.serving.sessions for node in nodes.values()))
                first = sessions()
                late = await later.enter_async_context(connect(config.path, "alice", deadline=allow(10)))
                asked = []
                for _ in range(3):
                    asked.append(late.submit((0,), b"refused"))
                    await asyncio.sleep(0)
                found = await asyncio.gather(*asked, return_exceptions=True)
                assert all(isinstance(one, MulticastFailed) for one in found), found
            assert await asyncio.to_thread(until, lambda: not first & sessions())
            assert (await late.multicast(["g0"], b"late"))["g0"] == b"LATE"

    def sessions() -> set[int]:
        return {session for node in nodes.values() for session in node.serving.sessions}

    with running(config, app=Shout, machine=Machine(limits=replace(Limits(), most_clients=1))) as nodes:
        asyncio.run(calls())


@pytest.mark.parametrize("name", some_now(NAMES, ("causal_stable",)))
def test_a_group_of_which_nobody_is_up_blocks_no_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-13: a client of causal_stable waited for ever. What nobody has fails, and is not delivered later."""
    monkeypatch.setattr("amcast.runtime.config.SECONDS_TO_APPEAR", 1)  # for which g0 waits for g1 when it starts
    config = made(tmp_path, name)

    async def calls() -> None:
        async with connect(config.path, "dev", deadline=allow(6)) as client:
            lost = client.submit((1,), b"lost", 4)
            await asyncio.sleep(0)
            assert (await client.multicast(["g0"], b"word"))["g0"] == b"WORD"
            with pytest.raises(MulticastFailed, match="by its deadline nobody in g1 had taken it"):
                await lost
            with running(config, G1, app=Shout):
                assert (await client.multicast(["g1"], b"back"))["g1"] == b"BACK"

    with running(config, G0, app=Shout):
        asyncio.run(calls())


@pytest.mark.parametrize("name", some_now(NAMES, ("causal_stable",)))
def test_a_group_that_died_with_a_message_blocks_no_others(name: str, tmp_path: Path) -> None:
    """Who had it is gone: the outcome is unknown, and the client goes on."""
    config = made(tmp_path, name)

    async def calls() -> None:
        async with connect(config.path, "dev", deadline=allow(20)) as client:
            assert (await client.multicast(["g1"], b"word"))["g1"] == b"WORD"
            for member in G1:
                nodes[member].on_requests = lambda *_: None  # type: ignore[method-assign]
            lost = client.submit((1,), b"lost", 5)
            await asyncio.sleep(0.2)
            for member in G1:
                nodes[member]._loop.call_soon_threadsafe(nodes[member].stop)
            assert (await client.multicast(["g0"], b"word"))["g0"] == b"WORD"
            with pytest.raises(OutcomeUnknown):
                await lost

    with running(config, app=Shout) as nodes:
        asyncio.run(calls())


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_gone_blocks_nothing(name: str, tmp_path: Path) -> None:
    """All replicas have delivered a message, the replies are lost, and so are the answers."""
    config = made(tmp_path, name, groups=1)

    async def calls() -> None:
        async with connect(config.path, "dev", deadline=allow(10)) as client:
            received, lost = client._answered, []
            client._answered = lambda pid, _: lost.append(pid)  # type: ignore[method-assign]
            asked = client.submit((0,), b"once")
            while len(lost) < 3:
                await asyncio.sleep(0.01)
            for node in nodes.values():
                node.results.by_mid.clear()
            client._answered = received  # type: ignore[method-assign]
            client._disconnected()
            with pytest.raises(AnswerGone, match="g0 has delivered it, and no longer keeps its answer"):
                await asked
            assert (await client.multicast(["g0"], b"twice"))["g0"] == b"TWICE"

    with running(config, app=Shout) as nodes:
        asyncio.run(calls())
