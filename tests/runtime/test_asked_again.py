"""Requests that are sent again: the answer is that of the application, an error, or nothing yet; never an empty one."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from librt.strings import BytesWriter
from nodes import SESSION, Raw, cluster, connected, running, until
from tests.pace import allow

from amcast.core.application import Delivery
from amcast.core.requests import ANSWERS, REQUESTS, Multicast, Reply
from amcast.core.topology import message_id, seq_of
from amcast.core.wire import AppMessage, Codec, Reader
from amcast.errors import AnswerGone, MulticastFailed
from amcast.runtime import frames
from amcast.runtime.framing import frame
from amcast.runtime.node import Node
from amcast.runtime.storage import Storage
from amcast.service import connect, connect_sync


class Shout:
    """Answers with what it is told, in capital letters."""

    def __init__(self, group: int, groups: int) -> None:
        pass

    def apply(self, delivery: Delivery) -> bytes:
        return delivery.payload.upper()

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def request(seq: int) -> bytes:
    w = BytesWriter()
    Codec(REQUESTS, 1).write(w, Multicast(AppMessage(message_id(SESSION, seq), (0,), b"word %d" % seq)))
    return frame(frames.REQUESTS, w.getvalue())


def replies(raw: Raw, enough: Callable[[dict[int, list[bytes]]], bool]) -> dict[int, list[bytes]]:
    """What is answered to each message, until that is enough."""
    found: dict[int, list[bytes]] = {}
    while not enough(found):
        kind, body = raw.receive() or (0, b"")
        assert kind in (frames.WELCOME, frames.ANSWERS), kind
        reader = Reader(body, 1)
        while kind == frames.ANSWERS and reader.at < reader.size:
            msg = Codec(ANSWERS, 1).read_one(reader)
            result = reader.blob()
            if isinstance(msg, Reply):
                found.setdefault(seq_of(msg.mid), []).append(result)
    return found


def leader_of(nodes: dict[str, Node]) -> Node:
    assert until(lambda: all(node.readiness() is None for node in nodes.values()))
    return nodes["g0/0"]


def test_no_answer_before_the_message_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow disk, a leader has long let its group deliver when it comes to execute a message itself."""
    commit = Storage.commit

    def slowly(storage: Storage, records: list[bytes]) -> None:
        time.sleep(0.05)
        commit(storage, records)

    monkeypatch.setattr(Storage, "commit", slowly)
    config = cluster(tmp_path)
    with running(config, app=Shout) as nodes:
        leader = leader_of(nodes)
        with connected(config, leader.me.client, "client/dev") as raw:
            for seq in range(12):
                for _ in range(40):
                    raw.send(request(seq))
                    time.sleep(0.004)
            found = replies(raw, lambda found: len(found) == 12)
        assert found and all(set(words) == {b"WORD %d" % seq} for seq, words in found.items()), found


def test_an_answer_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config, app=Shout) as nodes:
        node = nodes["g0/0"]
        for _ in range(2):
            with connect_sync(config.path, "dev", session=5, deadline=allow(20)) as client:
                assert client.multicast(["g0"], b"once")["g0"] == b"ONCE"
        node.results.by_mid.clear()
        with connect_sync(config.path, "dev", session=5, deadline=allow(20)) as client:
            with pytest.raises(AnswerGone, match="g0 has delivered it, and no longer keeps its answer") as told:
                client.multicast(["g0"], b"once")
            assert told.value.message.endswith(":0")
        with connect_sync(config.path, "dev", session=5, deadline=allow(20)) as client:
            assert client.multicast_batches([((0,), [b"once"])]) == 1, "nobody asks for the answer"
        assert node.history.end == 1, "executed once"


def test_what_waited_for_a_group_arrives_in_frames_that_it_takes(tmp_path: Path) -> None:
    """After an outage a client sends all that is open at once: 16 MB in one frame were refused, for ever."""
    config = cluster(tmp_path, replicas=1)

    async def calls() -> int:
        async with connect(config.path, "dev", deadline=allow(30)) as client:
            client._engine.process.disconnect(0)
            held = [client.submit((0,), bytes(300_000)) for _ in range(20)]
            with running(config, app=Shout) as nodes:
                # All of them are open and go out together, as after a connection broke.
                await asyncio.sleep(0)
                client._disconnected()
                assert all(len(answer[0]) == 300_000 for answer in await asyncio.gather(*held))
                return nodes["g0/0"].history.end

    assert asyncio.run(calls()) == 20


def test_messages_that_are_too_large_together_are_refused_at_once(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config, app=Shout), connect_sync(config.path, "dev", deadline=allow(20)) as client:
        with pytest.raises(MulticastFailed, match="2 messages of 2000000 bytes: expected at most"):
            client.multicast_batches([((0,), [bytes(1_000_000)] * 2)])
        assert client.multicast_batches([((0,), [bytes(700_000)] * 2)]) == 2
