"""What clients may do changes while nodes run: on SIGHUP they read cluster.toml again, and lose no request."""

import asyncio
from pathlib import Path

import pytest
from nodes import cluster, connected, logged, running, until
from tests.pace import allow

from amcast.errors import AmcastError, MulticastFailed
from amcast.runtime import frames
from amcast.runtime.frames import Read
from amcast.runtime.framing import frame
from amcast.runtime.node import Node
from amcast.service import connect, load

DAN = '[clients.dan]\nread = ["*"]\nwrite = ["*"]\n'
READS = '[clients.dan]\nread = []\nwrite = ["*"]\n'
EVE = DAN.replace("dan", "eve")


def read_again(nodes: dict[str, Node], times: int) -> None:
    for node in nodes.values():
        node._loop.call_soon_threadsafe(node.renew)
    assert until(lambda: all(logged(node).count("read again") == times for node in nodes.values()))


def test_clients_come_change_and_go_while_nodes_run(tmp_path: Path) -> None:
    path = cluster(tmp_path, groups=1).path
    text = path.read_text()
    path.write_text(text + DAN)
    config = load(path)

    async def many(name: str) -> int:
        async with connect(path, name, deadline=allow(20)) as client:
            done = await asyncio.gather(*[client.multicast(["g0"], b"x") for _ in range(50)])
            path.write_text(text + DAN + EVE)
            more = [asyncio.ensure_future(client.multicast(["g0"], b"y")) for _ in range(50)]
            await asyncio.to_thread(read_again, nodes, 1)
            return len(done) + len(await asyncio.gather(*more))

    with running(config) as nodes:
        with connected(config, config.members[0].client, "client/dan") as raw:
            while (raw.receive() or (0,))[0] != frames.WELCOME:
                pass
            assert asyncio.run(many("dan")) == 100
            raw.send(frame(frames.READ, frames.encode(Read(7, 2**40, 1000, 60_000))))  # waits for rows to come
            assert until(lambda: nodes["g0/0"].serving.readers)
            path.write_text(text + READS + EVE)
            read_again(nodes, 2)
            while (answer := raw.receive() or (0, b""))[0] in (frames.CONDITION, frames.ANSWERS):
                pass
            assert answer[0] == frames.FAILED and b"dan may not read g0 any more" in answer[1]
            raw.send(frame(frames.READ, frames.encode(Read(8, 0, 1000, 0))))
            while (answer := raw.receive() or (0, b""))[0] in (frames.CONDITION, frames.ANSWERS):
                pass
            assert answer[0] == frames.FAILED and b"dan may not read g0" in answer[1]
            path.write_text(text + EVE)
            read_again(nodes, 3)
            assert "client/dan is no client of" in raw.refusal(), "at once, without another word of it"
        path.write_text(text + EVE + "[clients")
        read_again(nodes, 4)
        assert "clients and certificates not read again" in logged(nodes["g0/0"])
        path.write_text(text + EVE + DAN)  # a client looks into its own file, and nodes go by theirs
        with pytest.raises(MulticastFailed, match="'client/dan' is no client of"):
            asyncio.run(one("dan", path))
        asyncio.run(one("eve", path))


async def one(name: str, path: Path) -> None:
    async with connect(path, name, deadline=allow(20)) as client:
        try:
            await client.multicast(["g0"], b"z")
        except AmcastError as error:
            print(error)
            raise
