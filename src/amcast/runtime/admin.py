"""What machines and operators ask a node, on a listener of its own: plain HTTP, read only.

    /livez     200 while the event loop runs
    /readyz    200 when the node serves, else 503 and the reason
    /metrics   Prometheus text
    /status    JSON

One request per connection, and everything about it is bounded: its size, its time, and how many there are at once.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from amcast.core.errors import UsageError
from amcast.runtime.config import Address

TIMEOUT: Final = 5.0  # seconds, from the connection to the last byte of the answer
LARGEST_HEAD: Final = 8192  # bytes of request line and headers
MOST_CONNECTIONS: Final = 64
TEXT: Final = "text/plain; charset=utf-8"
PATHS: Final = ("/livez", "/readyz", "/metrics", "/status")

Answer = tuple[HTTPStatus, str, bytes]


class Admin:
    """`ready` says why the node does not serve yet, or None; `status` is any JSON; `metrics` is Prometheus text."""

    def __init__(
        self,
        status: Callable[[], dict[str, object]],
        ready: Callable[[], str | None],
        metrics: Callable[[], bytes],
        timeout: float = TIMEOUT,
    ) -> None:
        self._status = status
        self._ready = ready
        self._metrics = metrics
        self._timeout = timeout
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, address: Address) -> Address:
        """Listen; where, if the port was left to the system (0)."""
        try:
            self._server = await asyncio.start_server(
                self._connected, address.host, address.port, limit=LARGEST_HEAD, reuse_address=True
            )
        except OSError as error:
            raise UsageError(
                f"admin address {address}: cannot listen there ({error.strerror or error}); stop what does, or change "
                "it in cluster.toml"
            ) from error
        return Address(address.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and what is connected."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                head = await self._head(reader)
                try:
                    writer.write(response(head if isinstance(head, tuple) else self._answer(head)))
                except Exception:
                    writer.write(response(text(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug: see the log of the node")))
                    raise
                finally:
                    await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass  # a slow or broken peer is its own affair
        finally:
            writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> bytes | Answer:
        """The request line and headers, or what to say instead of an answer."""
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            with suppress(asyncio.IncompleteReadError):
                await reader.readexactly(LARGEST_HEAD)  # unread bytes would reset the connection before the answer
            return text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {LARGEST_HEAD} bytes")
        except asyncio.IncompleteReadError:
            return text(HTTPStatus.BAD_REQUEST, "expected a whole request")

    def _answer(self, head: bytes) -> Answer:
        line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or line[2] not in ("HTTP/1.0", "HTTP/1.1"):
            return text(HTTPStatus.BAD_REQUEST, "expected a request such as GET /livez HTTP/1.1")
        if line[0] != "GET":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET")
        match line[1].partition("?")[0]:
            case "/livez":
                return text(HTTPStatus.OK, "ok")
            case "/readyz":
                reason = self._ready()
                return text(HTTPStatus.OK, "ok") if reason is None else text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, self._metrics()
            case "/status":
                return HTTPStatus.OK, "application/json", json.dumps(self._status()).encode() + b"\n"
        return text(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(PATHS)}")


def text(status: HTTPStatus, line: str) -> Answer:
    return status, TEXT, f"{' '.join(line.split())}\n".encode()


def response(answer: Answer) -> bytes:
    status, kind, body = answer
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
