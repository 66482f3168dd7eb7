"""The admin listener: what it answers, and that no request hurts it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from tests.pace import allow

from amcast.errors import UsageError
from amcast.runtime.admin import Admin
from amcast.runtime.config import Address
from amcast.runtime.http import LARGEST_HEAD, MOST_OF_ONE

ANY = Address("127.0.0.1", 0)


class Node:
    """What a listener shows, to be changed by tests."""

    def __init__(self) -> None:
        self.reason: str | None = "no leader yet in g0,\nfor 3 s"
        self.registry = CollectorRegistry()
        Counter("amcast_deliveries", "Messages delivered", registry=self.registry).inc(3)
        self.broken = False

    def status(self) -> dict[str, object]:
        if self.broken:
            raise ValueError("a bug")
        return {"id": "g0/1", "delivered": 3}

    def admin(self, timeout: float = 5.0) -> Admin:
        return Admin(self.status, lambda: self.reason, lambda: generate_latest(self.registry), timeout)


Ask = Callable[[bytes], Awaitable[tuple[str, str, str]]]


def asked(node: Node, scenario: Callable[[Ask, Address], Awaitable[None]], timeout: float = 5.0) -> None:
    """Run a scenario with a listener; `ask` gives the status line, the headers and the body of an answer."""

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        admin = node.admin(timeout)
        address = await admin.start(ANY)

        async def ask(request: bytes) -> tuple[str, str, str]:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request)
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            line, _, headers = head.partition("\r\n")
            return line, headers, body

        await scenario(ask, address)
        await admin.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address.host, address.port)

    asyncio.run(run())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_what_each_path_answers() -> None:
    node = Node()

    async def scenario(ask: Ask, address: Address) -> None:
        assert (await ask(get("/livez")))[::2] == ("HTTP/1.1 200 OK", "ok\n")
        assert (await ask(get("/readyz")))[::2] == (
            "HTTP/1.1 503 Service Unavailable",
            "no leader yet in g0, for 3 s\n",
        )
        node.reason = None
        assert (await ask(get("/readyz?verbose")))[::2] == ("HTTP/1.1 200 OK", "ok\n")
        line, headers, body = await ask(get("/metrics"))
        assert line == "HTTP/1.1 200 OK" and "Content-Type: text/plain; version=" in headers
        assert "amcast_deliveries_total 3.0\n" in body
        line, headers, body = await ask(get("/status"))
        assert "Content-Type: application/json" in headers and f"Content-Length: {len(body)}" in headers
        assert json.loads(body) == {"id": "g0/1", "delivered": 3}

    asked(node, scenario)


def test_what_is_not_a_request_is_refused_and_the_next_one_served() -> None:
    requests = {
        get("/etc/passwd"): "404",
        get("/livez/.."): "404",
        b"POST /livez HTTP/1.1\r\n\r\n": "405",
        b"GET /livez HTTP/2\r\n\r\n": "400",
        b"GET /livez\r\n\r\n": "400",
        b"GET  /livez HTTP/1.1\r\n\r\n": "400",
        b"\r\n\r\n": "400",
        b"\x16\x03\x01\x00\xff\xfe\r\n\r\n": "400",
        b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * LARGEST_HEAD: "431",
    }

    async def scenario(ask: Ask, address: Address) -> None:
        for request, code in requests.items():
            assert (await ask(request))[0].split(" ")[1] == code, request[:40]
            assert (await ask(get("/livez")))[2] == "ok\n"

    asked(Node(), scenario)


def test_a_bug_in_a_node_is_not_an_answer() -> None:
    node = Node()
    node.broken = True

    async def scenario(ask: Ask, address: Address) -> None:
        assert (await ask(get("/status")))[0] == "HTTP/1.1 500 Internal Server Error"
        assert (await ask(get("/livez")))[2] == "ok\n"

    asked(node, scenario)


def test_a_slow_peer_is_dropped_in_time() -> None:
    async def scenario(ask: Ask, address: Address) -> None:
        assert await ask(b"GET /livez HTTP/1.1\r\n") == ("", "", "")
        assert (await ask(get("/livez")))[2] == "ok\n"

    asked(Node(), scenario, timeout=allow(0.2))  # the second one must be read within it


def test_connections_are_bounded() -> None:
    async def scenario(ask: Ask, address: Address) -> None:
        waiting = [await asyncio.open_connection(address.host, address.port) for _ in range(MOST_OF_ONE)]
        assert (await ask(get("/livez")))[2] == "ok\n"
        async with asyncio.timeout(10):
            assert await waiting[0][0].read() == b"", "the oldest made room"
        for reader, writer in waiting[1:]:
            writer.write(get("/livez"))
            assert (await reader.read()).endswith(b"ok\n"), "the others are served"

    asked(Node(), scenario, timeout=60.0)


def test_an_address_in_use_is_one_line() -> None:
    async def run() -> None:
        first = Node().admin()
        address = await first.start(ANY)
        with pytest.raises(UsageError, match=rf"^admin address {address}: cannot listen there \(.*in use.*\)"):
            await Node().admin().start(address)
        await first.stop()

    asyncio.run(run())
