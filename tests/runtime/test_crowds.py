"""A crowd of idle connections at each port of a node: whoever has business there still gets in, and soon."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from nodes import SECONDS, Raw, cluster, connected, running
from tests.pace import allow

from amcast.runtime import frames
from amcast.runtime.config import Address, ClusterConfig
from amcast.runtime.doors import Door, network_of
from amcast.service import connect_sync

CROWD = 150
SOON = 2.0  # seconds


@contextmanager
def crowd(address: Address, size: int = CROWD) -> Iterator[None]:
    """So many connections that say nothing, and come back as soon as they are dropped."""
    loop = asyncio.new_event_loop()
    here = threading.Semaphore(0)
    tasks: list[asyncio.Task[None]] = []

    async def one() -> None:
        first = True
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                if first:
                    first = False
                    here.release()
                await reader.read()
                writer.close()
            await asyncio.sleep(0.5)

    async def main() -> None:
        tasks.extend(asyncio.create_task(one()) for _ in range(size))
        await asyncio.gather(*tasks, return_exceptions=True)

    def end() -> None:
        for task in tasks:
            task.cancel()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    try:
        for _ in range(size):
            assert here.acquire(timeout=allow(SECONDS))
        time.sleep(0.2)
        yield
    finally:
        loop.call_soon_threadsafe(end)
        thread.join(allow(SECONDS))
        loop.close()


def member_is_welcome(config: ClusterConfig) -> None:
    with connected(config, config.members[0].peer, "g0/1") as raw:
        raw.socket.settimeout(allow(SOON))
        answer = raw.receive()
        assert answer is not None and answer[0] == frames.WELCOME


def client_is_served(config: ClusterConfig) -> None:
    with connect_sync(config.path, "dev", deadline=allow(SOON)) as client:
        client.multicast(["g0"], b"x")


def probe_is_answered(config: ClusterConfig) -> None:
    with Raw(config.members[0].admin) as raw:
        raw.socket.settimeout(allow(SOON))
        assert b"200 OK" in raw.send(b"GET /livez HTTP/1.1\r\n\r\n").socket.recv(4096)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("port", "business"),
    [("peer", member_is_welcome), ("client", client_is_served), ("admin", probe_is_answered)],
    ids=["member", "client", "probe"],
)
def test_a_crowd_at_a_port(tmp_path: Path, port: str, business: Callable[[ClusterConfig], None], secure: bool) -> None:
    config = cluster(tmp_path, replicas=1 if port != "peer" else 3, secure=secure)
    with running(config, ["g0/0"]), crowd(getattr(config.members[0], port)):
        for _ in range(3):
            business(config)


def test_handshakes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path, replicas=1, secure=True)
    with running(config) as nodes:
        monkeypatch.setattr(nodes["g0/0"].serving.door, "most_of_one", 3)
        silent = [Raw(config.members[0].client) for _ in range(4)]
        silent[0].socket.settimeout(allow(SOON))
        assert silent[0].receive() is None, "the oldest made room"
        assert nodes["g0/0"].serving.door.strangers == 3
        for one in silent:
            one.close()


# Who makes room for whom


def let_in(door: Door, *addresses: str) -> list[str]:
    """Those that were dropped, as address and number, after strangers of these addresses had come in turn."""
    gone: list[str] = []

    async def come() -> None:
        for number, address in enumerate(addresses):
            place = door.enter((address, 1000 + number))
            place.drop = partial(gone.append, f"{address} {number}")

    asyncio.run(come())
    return gone


def test_the_oldest_of_the_largest_crowd_makes_room() -> None:
    assert let_in(Door(3, 3, 5.0), "a", "b", "b", "c") == ["b 1"], "not the oldest of all, who is alone"
    assert let_in(Door(3, 3, 5.0), "a", "b", "c", "d", "e") == ["a 0", "b 1"], "the oldest, where all are alone"
    assert let_in(Door(9, 2, 5.0), "a", "b", "b", "b", "b") == ["b 1", "b 2"], "so many of one address"


def test_reserved_addresses_have_places_of_their_own() -> None:
    assert let_in(Door(2, 5, 5.0, ["m"]), "m", "a", "b", "c", "m", "d") == ["a 1", "b 2"]
    assert let_in(Door(2, 2, 5.0, ["m"]), "m", "m", "m", "a", "b") == ["m 0"], "a crowd there drops its own"


def test_what_counts_as_one_address() -> None:
    for address, expected in (
        ("2001:db8:1:2::7", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
    ):
        assert network_of((address, 1, 0, 0)) == expected
    assert network_of(None) == network_of("") == ""
