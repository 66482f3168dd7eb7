"""A leader that dies is replaced because nobody listens there any more, long before its silence says so."""

import asyncio
import io
import time
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodes import cluster, connected, running, until
from tests.pace import allow

import amcast
from amcast.core.requests import ANSWERS, NOBODY, Hint
from amcast.core.wire import Codec, Reader
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime import frames, links
from amcast.runtime.config import Address, ClusterConfig, load_config
from amcast.runtime.log import Log
from amcast.runtime.machine import Limits, Machine

AGES = {"delta_ms = 20 ": "delta_ms = 10000 ", "suspect_ms = 800 ": "suspect_ms = 9000000 "}
SECONDS = 30.0  # to start, and to find a leader; a client alone would ask again after 120


def cluster_without_time_outs(folder: Path) -> ClusterConfig:
    path = cluster(folder).path
    text = path.read_text()
    for before, after in AGES.items():
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return load_config(path)


def test_who_is_refused_leads_and_the_clients_hear_of_it(tmp_path: Path) -> None:
    config = cluster_without_time_outs(tmp_path)
    nodes = Processes(config)
    try:
        with nodes.alone():
            for member in config.members:
                nodes.start(member)
        assert not any(nodes.wait_until_ready(config.members, allow(SECONDS)).values())
        with amcast.connect_sync(str(config.path)) as client:
            client.multicast(["g0"], b"before", deadline=allow(SECONDS))
            nodes.children["g0/0"].kill()
            began = time.monotonic()
            client.multicast(["g0"], b"after", deadline=allow(SECONDS))
            print(f"answered after {1000 * (time.monotonic() - began):.0f} ms")
    finally:
        nodes.stop(config.members)


def test_a_node_tells_all(tmp_path: Path) -> None:
    """A node that is refused by its leader leads, and says so to a client that has asked for nothing."""
    config = cluster_without_time_outs(tmp_path)
    with running(config) as nodes:
        node = nodes["g0/1"]
        assert until(lambda: not node.engine.process.unready() and len(node.leading.others) == 2)
        with connected(config, node.me.client, "client/dev") as raw:
            assert until(lambda: node.serving.sessions)
            node._loop.call_soon_threadsafe(node.leading.nobody_listens, 0)
            assert until(lambda: node.leading.leads)
            while (found := raw.receive()) is not None and found[0] != frames.ANSWERS:
                pass
        assert found is not None
        hint = Codec(ANSWERS, 1).read_one(Reader(found[1], 1))
        assert isinstance(hint, Hint) and (hint.mid, hint.g, hint.leader) == (NOBODY, 0, 1)
        assert hint.ballot == node.engine.process.candidate.cballot > 0  # type: ignore[attr-defined]


def test_a_refusal_is_news_once_and_only_where_somebody_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = iter(("refused", "there", "refused", "refused", "there", "reset", "silent", "refused", "there", "there"))
    told: list[str] = []

    async def dial(address: Address, context: SSLContext | None, connection: Any, seconds: float) -> None:
        what = next(attempts, "over")
        told.append(what)
        if what == "over":
            raise asyncio.CancelledError
        if what == "there":
            connection.transport = SimpleNamespace(get_write_buffer_size=lambda: 0)
            connection.welcome = True
            connection.lost.set_result(None)
        else:
            raise {"refused": ConnectionRefusedError, "reset": ConnectionResetError, "silent": TimeoutError}[what]

    monkeypatch.setattr(links, "dial", dial)
    host = SimpleNamespace(
        config=cluster(tmp_path), machine=Machine(limits=Limits(first_pause=0.0, longest_pause=0.0)),
        protocol=protocol("white_box"), log=Log("g0/1", "error", io.StringIO()),
        leading=SimpleNamespace(nobody_listens=lambda pid: told.append(f"{pid} is gone")),
    )  # fmt: skip
    link = links.Outgoing(cast(Any, host), host.config.members[0], None)
    with suppress(asyncio.CancelledError):
        asyncio.run(link.run())
    assert told == [
        "refused", "there", "refused", "0 is gone", "refused", "there", "reset", "silent", "refused", "0 is gone",
        "there", "there", "over",
    ]  # fmt: skip
