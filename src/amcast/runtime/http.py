"""A small HTTP server: GET only, one request per connection, and everything about it is bounded: its size, its time,
and how many there are at once.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from amcast.errors import UsageError
from amcast.runtime.config import Address
from amcast.runtime.doors import Door

TIMEOUT: Final = 5.0  # seconds, from the connection to the last byte of the answer
LARGEST_HEAD: Final = 8192  # bytes of request line and headers
MOST_CONNECTIONS: Final = 64
MOST_OF_ONE: Final = 32  # address
LOOPBACK: Final = ("127.0.0.1", "::1")  # probes of this machine
TEXT: Final = "text/plain; charset=utf-8"

Answer = tuple[HTTPStatus, str, bytes]


class HttpServer:
    """`answer` is what a server is for; `name` is what its address is called in complaints."""

    name = "web"
    headers: Mapping[str, str] = {"Cache-Control": "no-store"}

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self.door = Door(MOST_CONNECTIONS, MOST_OF_ONE, timeout, LOOPBACK)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def answer(self, target: str, headers: Mapping[str, str]) -> Answer:
        """Return what to say to a GET of this path and query; the names of headers are in lower case."""
        raise NotImplementedError

    async def start(self, address: Address) -> Address:
        """Listen; return where, also if the port was left to the system (0)."""
        try:
            self._server = await asyncio.start_server(
                self._connected, address.host, address.port, limit=LARGEST_HEAD, reuse_address=True
            )
        except OSError as error:
            raise UsageError(
                f"{self.name} address {address}: cannot listen there ({error.strerror or error}); stop what does, or "
                "choose another"
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
        place = self.door.enter(writer.get_extra_info("peername"))
        task = asyncio.ensure_future(self._serve(reader, writer))
        place.drop = task.cancel
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: place.leave())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await self._head(reader)
            try:
                answer = head if isinstance(head, tuple) else await self._answer(head)
                writer.write(response(answer, self.headers))
            except Exception:
                writer.write(response(text(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug: see the log"), self.headers))
                raise
            finally:
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass  # a slow or broken peer is its own affair
        finally:
            writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> bytes | Answer:
        """Return the request line and headers, or what to say instead of an answer."""
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            with suppress(asyncio.IncompleteReadError):
                await reader.readexactly(LARGEST_HEAD)  # unread bytes would reset the connection before the answer
            return text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"expected at most {LARGEST_HEAD} bytes")
        except asyncio.IncompleteReadError:
            return text(HTTPStatus.BAD_REQUEST, "expected a whole request")

    async def _answer(self, head: bytes) -> Answer:
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
            return text(HTTPStatus.BAD_REQUEST, "expected a request such as GET /livez HTTP/1.1")
        if words[0] != "GET":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET")
        parts = (field.partition(":") for field in fields if field)
        return await self.answer(words[1], {name.lower(): value.strip() for name, _, value in parts})


def text(status: HTTPStatus, line: str) -> Answer:
    return status, TEXT, f"{' '.join(line.split())}\n".encode()


def response(answer: Answer, headers: Mapping[str, str]) -> bytes:
    status, kind, body = answer
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
