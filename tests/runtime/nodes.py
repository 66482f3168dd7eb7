"""Nodes that run in a thread of the test, and raw connections to them."""

import asyncio
import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests import pace
from tests.pace import allow

from amcast.core.application import StateMachine
from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.client import Client
from amcast.runtime.config import Address, ClusterConfig
from amcast.runtime.frames import OURS, Hello
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.log import Log
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.node import Node
from amcast.runtime.serving import session_of
from amcast.runtime.tls import client_context
from amcast.service import connect_sync
from amcast.swarm.cluster.next_release import NEXT, next_release

SECONDS = 20.0  # for anything that is waited for
SESSION = session_of("client/dev", 2**40)


def cluster(
    folder: Path,
    groups: int = 1,
    replicas: int = 3,
    secure: bool = False,
    durable: bool = True,
    protocol_name: str = "white_box",
) -> ClusterConfig:
    return create_cluster(folder, protocol(protocol_name), groups, replicas, "log", secure=secure, durable=durable)


@contextmanager
def running(
    config: ClusterConfig,
    names: Sequence[str] = (),
    app: Callable[[int, int], StateMachine] | None = None,
    machine: Machine = REAL,
    coming: bool = False,
) -> Iterator[dict[str, Node]]:
    """These nodes, or all, of the release to come or of this one; what one stopped with is raised at the end."""
    loop = asyncio.new_event_loop()
    row, knows = protocol(config.protocol), OURS
    if coming:
        row, knows = next_release(row), NEXT
    nodes = {
        name: Node(config, name, row, app, log=Log(name, "info", io.StringIO()), machine=machine, knows=knows)
        for name in names or [member.name for member in config.members]
    }
    ready = threading.Semaphore(0)
    ends: list[BaseException | None] = []

    async def main() -> None:
        work = [node.run(ready.release) for node in nodes.values()]
        ends.extend(await asyncio.gather(*work, return_exceptions=True))

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    try:
        for _ in nodes:
            assert ready.acquire(timeout=allow(SECONDS)), f"not ready: {ends}"
        yield nodes
    finally:
        for node in nodes.values():
            loop.call_soon_threadsafe(node.stop)
        thread.join(allow(SECONDS))
        assert not thread.is_alive(), "the nodes do not stop"
        loop.close()
        for end in ends:
            if end is not None:
                raise end


class Load:
    """Multicasts all the while, several at a time; every one has to succeed."""

    def __init__(self, client: Client, groups: list[str]) -> None:
        self.done = 0
        self.longest = 0.0  # seconds
        self._client, self._groups, self._stop = client, groups, False
        self._tasks = [asyncio.create_task(self._call()) for _ in range(4)]

    async def _call(self) -> None:
        while not self._stop:
            began = asyncio.get_running_loop().time()
            await self._client.multicast(self._groups, b"x")
            self.longest = max(self.longest, asyncio.get_running_loop().time() - began)
            self.done += 1

    async def more(self, calls: int = 50) -> None:
        """Wait until so many more calls have succeeded."""
        before = self.done
        while self.done < before + calls:
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def stop(self) -> int:
        self._stop = True
        await asyncio.gather(*self._tasks)
        return self.done


def logged(node: Node) -> str:
    stream = node.log._stream
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


class Raw:
    """A connection on which anything can be said."""

    def __init__(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection((address.host, address.port), timeout=allow(SECONDS))
        self.socket = context.wrap_socket(plain) if context is not None else plain
        self._reader = FrameReader(2**24)
        self._found: list[tuple[int, int, bytes]] = []

    def send(self, data: bytes) -> "Raw":
        with suppress(ConnectionError):  # it may have hung up already
            self.socket.sendall(data)
        return self

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame; None if the other end has hung up."""
        while not self._found:
            try:
                data = self.socket.recv(2**16)
            except TimeoutError:
                raise AssertionError("neither an answer nor the end") from None
            except OSError:  # reset, or cut off inside TLS
                data = b""
            if not data:
                return None
            self._found = self._reader.feed(data)
        kind, _, body = self._found.pop(0)
        return kind, body

    def refusal(self) -> str:
        """Why it hung up; empty if it did not say."""
        reason = ""
        while (answer := self.receive()) is not None:
            if answer[0] == frames.REFUSED:
                reason = answer[1].decode()
        return reason

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connected(
    config: ClusterConfig, address: Address, name: str, *, as_: str | None = None, session: int | None = None
) -> Raw:
    """With the certificate of `name`, saying that it is `as_`."""
    context = client_context(config, name) if config.tls is not None else None
    known = session_of(as_ or name, SESSION) if session is None else session
    to = next(member.name for member in config.members if address in (member.peer, member.client))
    return Raw(address, context).send(greeting(config, as_ or name, known, to=to))


def greeting(
    config: ClusterConfig, name: str, session: int = 0, version: int = frames.VERSION, to: str = "g0/0"
) -> bytes:
    return frame(frames.HELLO, frames.encode(Hello(version, config.name, name, 5, session, to, config.identity)))


def multicast_works(config: ClusterConfig, name: str = "dev") -> bool:
    """A client gets its answer."""
    with connect_sync(config.path, name, deadline=allow(SECONDS)) as client:
        return list(client.multicast(["g0"], b"payload")) == ["g0"]


def until(what: Callable[[], object], seconds: float = SECONDS) -> bool:
    return pace.until(what, seconds)


class Deaf(asyncio.Transport):
    """Takes what is written, and is never closed."""

    def write(self, data: object) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False
