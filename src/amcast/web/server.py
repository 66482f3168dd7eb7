"""The server of the page: loopback only, our files only, and no page of another origin can read it."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs, urlsplit

from amcast.errors import UsageError
from amcast.runtime.config import Address
from amcast.runtime.http import Answer, HttpServer, text

HOST: Final = "127.0.0.1"
DEADLINE: Final = 600.0  # seconds: a large run takes a while to prepare
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"

Query = Mapping[str, str]
Source = Callable[[Query], Awaitable[tuple[str, bytes]]]


class PageServer(HttpServer):
    """A server of one page. `sources` answer its questions by path, and `first` is the page at `/`."""

    name = "page"
    headers: Mapping[str, str] = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    def __init__(self, first: str, sources: Mapping[str, Source]) -> None:
        super().__init__(timeout=DEADLINE)
        self._sources = sources
        self._files = {
            f"/{file.name}": (MEDIA[f".{file.name.rpartition('.')[2]}"], file.read_bytes())
            for file in (files("amcast.web") / "static").iterdir()
        }
        self._files["/"] = self._files[f"/{first}"]
        self._hosts: frozenset[str] = frozenset()

    async def start(self, address: Address) -> Address:
        bound = await super().start(address)
        self._hosts = frozenset((f"{HOST}:{bound.port}", f"localhost:{bound.port}"))
        return bound

    async def answer(self, target: str, headers: Mapping[str, str]) -> Answer:
        if headers.get("host") not in self._hosts:  # a name of somebody else that leads here
            return text(HTTPStatus.MISDIRECTED_REQUEST, f"expected the host {min(self._hosts)}")
        parts = urlsplit(target)
        if parts.path in self._files:
            media, body = self._files[parts.path]
            return HTTPStatus.OK, media, body
        if parts.path not in self._sources:
            return text(HTTPStatus.NOT_FOUND, "there is nothing here")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            return HTTPStatus.OK, *await self._sources[parts.path](query)
        except UsageError as error:
            return text(HTTPStatus.BAD_REQUEST, str(error))


def as_json(document: object) -> tuple[str, bytes]:
    return JSON, json.dumps(document).encode()


async def serve(server: PageServer, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is told the address of the page."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    bound = await server.start(Address(HOST, port))
    ready(f"http://{HOST}:{bound.port}/")
    try:
        await stop.wait()
    finally:
        await server.stop()
