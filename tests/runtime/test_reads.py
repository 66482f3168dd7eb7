"""Reads outside of the order: the leader answers after a quorum said that it leads, and never with an old value."""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import pytest
from nodes import Deaf, connected, running, until
from tests.pace import allow

from amcast.apps.bank import Bank
from amcast.apps.kv import KV, wire
from amcast.errors import AmcastError, MulticastFailed, OutcomeUnknown, Rejected, UsageError
from amcast.local.files import create_cluster
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.execution import answer_or_reason
from amcast.runtime.framing import frame
from amcast.service import connect_sync


def a_cluster(folder: Path, name: str = "white_box", groups: int = 1, replicas: int = 3) -> ClusterConfig:
    return create_cluster(folder, protocol(name), groups, replicas, "bank", secure=False)


def opened(account: str, amount: int) -> bytes:
    return msgspec.msgpack.encode(("open", account, amount))


BALANCE = msgspec.msgpack.encode(["balances", "a"])


def test_a_read_sees_what_was_acknowledged_and_leaves_no_trace(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "c")
    with running(config, app=Bank) as nodes:
        with connect_sync(config.path, deadline=allow(20)) as one, connect_sync(config.path, deadline=allow(20)) as two:
            for number in range(1, 6):
                one.multicast(["g0"], opened("a", 1))
                end = nodes["g0/0"].history.end
                assert msgspec.msgpack.decode(two.read("g0", BALANCE)) == {"a": number}
                assert nodes["g0/0"].history.end == end
            with pytest.raises(Rejected, match="g0 rejected it: ValueError: expected balances"):
                two.read("g0", msgspec.msgpack.encode(["x"]))
            nodes["g0/2"]._loop.call_soon_threadsafe(nodes["g0/2"].leading.ask)
            assert until(lambda: nodes["g0/2"].leading.leads)
            one.multicast(["g0"], opened("a", 1))
            assert msgspec.msgpack.decode(two.read("g0", BALANCE)) == {"a": 6}, "whoever leads now"


def test_calls_end_when_their_client_is_closed(tmp_path: Path) -> None:
    """And later ones at once. Who waits for them was not cancelled, so that is no CancelledError."""
    config = a_cluster(tmp_path / "c")

    async def main() -> list[BaseException]:
        async with Client(config, protocol("white_box"), "dev", allow(20)) as client:

            async def first() -> None:
                async for _ in client.deliveries("g0"):
                    return

            def calls() -> list[Coroutine[object, object, object]]:
                return [client.read("g0", BALANCE), client.rows("g0", 0, wait_ms=60_000), first()]

            for pid in range(3):
                connection = client._connection(pid)
                assert connection is not None
                connection.connection_made(Deaf())
            tasks = [asyncio.create_task(call) for call in [*calls(), client.multicast(["g0"], b"")]]
            await asyncio.sleep(0.01)
        ended = [*tasks, *calls()]
        return [error for error in await asyncio.gather(*ended, return_exceptions=True) if error is not None]

    errors = asyncio.run(asyncio.wait_for(main(), allow(5)))
    assert [(type(error), str(error)) for error in errors] == [(OutcomeUnknown, "the client was closed")] * 7
    with connect_sync(config.path) as client:
        pass
    client.close()
    for call in (lambda: client.multicast(["g0"], b""), lambda: client.read("g0", BALANCE)):
        with pytest.raises(MulticastFailed, match="the client was closed"):
            call()


def test_who_is_turned_away_at_the_door_is_told(tmp_path: Path) -> None:
    """So ends a client whose certificate the nodes do not trust: TLS 1.3 says nothing before they hang up."""
    config = a_cluster(tmp_path / "c")

    async def main() -> list[BaseException | object]:
        for member in config.members:
            await asyncio.start_server(lambda _, writer: writer.close(), member.client.host, member.client.port)
        async with Client(config, protocol("white_box"), "dev", allow(0.3)) as client:
            calls = client.multicast(["g0"], b""), client.read("g0", BALANCE)
            return list(await asyncio.gather(*calls, return_exceptions=True))

    sent, read = asyncio.run(main())
    assert isinstance(sent, MulticastFailed) and isinstance(read, OutcomeUnknown)
    for error in (sent, read):
        assert "hung up before it let us in: does it trust our certificate?" in str(error), error


def test_where_there_are_no_reads_one_line_says_so(tmp_path: Path) -> None:
    config = a_cluster(tmp_path / "p", "primcast", replicas=1)
    with (
        connect_sync(config.path) as client,
        pytest.raises(UsageError, match="primcast answers no reads outside of the"),
    ):
        client.read("g0", BALANCE)
    config = create_cluster(tmp_path / "c", protocol("white_box"), 1, 1, "log", secure=False)
    config.path.write_text(config.path.read_text() + '[clients.writer]\nread = []\nwrite = ["*"]\n')
    config = load_config(config.path)
    with running(config):
        with connect_sync(config.path, "dev", deadline=allow(20)) as client:
            with pytest.raises(AmcastError, match="application log has no method query"):
                client.read("g0", BALANCE)
            with pytest.raises(UsageError, match="a read of 1048577 bytes: expected at most 1048576"):
                client.read("g0", bytes(2**20 + 1))
        with connect_sync(config.path, "writer", deadline=allow(20)) as client:
            with pytest.raises(AmcastError, match="writer may not read g0"):
                client.read("g0", BALANCE)


@pytest.mark.timeout(400)
def test_a_leader_that_stood_still_never_gives_an_old_value(tmp_path: Path) -> None:
    """It is asked before it can hear that another one leads; the question waits in its socket while it is paused."""
    trial = Trial(tmp_path / "c", groups=1, secure=False, traced=False)
    config = trial.config
    with trial, connect_sync(config.path, deadline=allow(20)) as client:
        client.multicast(["g0"], opened("a", 1))
        for number in range(2, 5):
            old = trial.leader(0)
            with connected(config, old.client, "client/dev") as raw:
                while (raw.receive() or (0,))[0] != frames.WELCOME:
                    pass
                trial.pause(old)
                client.multicast(["g0"], opened("a", 1))  # by another leader
                raw.send(b"".join([frame(frames.QUERY, BALANCE, n) for n in range(20)]))
                trial.processes.signal(old, signal.SIGCONT)
                trial.paused.remove(old)
                answers = 0
                while answers < 20:
                    kind, body = raw.receive() or (0, b"")
                    assert kind, "it hung up"
                    answers += kind in (frames.QUERIED, frames.FAILED)
                    if kind == frames.QUERIED:
                        answer = answer_or_reason(body)
                        assert isinstance(answer, bytes) and msgspec.msgpack.decode(answer) == {"a": number}
            assert msgspec.msgpack.decode(client.read("g0", BALANCE)) == {"a": number}


def test_the_store_answers_only_what_may_be_answered_so() -> None:
    def asked(*command: bytes, now: int = 0) -> object:
        found = store.query(wire.encode(wire.StoreRequest(now, [wire.Execute([list(command)])])))
        return wire.decode_answers(found)[0].value[0] if found else "through the order"  # type: ignore[union-attr]

    def executed(unit: wire.Unit, now: int = 1000) -> None:
        store.execute(wire.StoreRequest(now, [unit]), several=False)

    store = KV(0, 1)
    executed(wire.Execute([[b"SET", b"a", b"1"], [b"SET", b"brief", b"x", b"PX", b"500"]]))
    before = store.snapshot()
    assert asked(b"GET", b"a") == b"1" and asked(b"GET", b"none") is None and asked(b"STRLEN", b"a") == 1
    assert asked(b"GET", b"brief", now=1499) == b"x"
    assert asked(b"GET", b"brief", now=1500) == "through the order", "it has expired, and that is for all replicas"
    for command in ((b"SET", b"a", b"2"), (b"INCR", b"a"), (b"TTL", b"brief"), (b"DBSIZE",), (b"GETDEL", b"a")):
        assert asked(*command) == "through the order", command
    executed(wire.Prepare(b"t", [0], [[b"SET", b"a", b"2"]], [], []))
    locked = store.snapshot()
    assert asked(b"GET", b"a") == "through the order" and asked(b"GET", b"brief") == b"x"
    assert store.snapshot() == locked != before
    executed(wire.Decide(b"t", True))
    assert asked(b"GET", b"a") == b"2"
