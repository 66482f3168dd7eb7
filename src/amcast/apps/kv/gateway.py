"""A server that speaks the Redis protocol and keeps everything in replicated groups."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

from amcast.apps.kv.batching import Batcher, ClusterClient
from amcast.apps.kv.resp import LARGEST_REQUEST, Parser, encode_reply, write
from amcast.apps.kv.server_commands import Server
from amcast.apps.kv.session import Session
from amcast.apps.kv.strings import Command
from amcast.errors import UsageError
from amcast.runtime.client import Client
from amcast.runtime.loop import new_event_loop


class Connection(asyncio.Protocol):
    """Reads ahead up to a bound; reads nothing from a client that does not take its replies."""

    def __init__(self, gateway: "Gateway") -> None:
        self.gateway = gateway
        self.task: asyncio.Task[None] | None = None
        self._limits = gateway.server.machine.limits
        self._parser = Parser(gateway.server.largest_request)
        self._commands: deque[Command] = deque()
        self._bytes = 0  # of the commands read ahead, roughly
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server = self.gateway.server
        server.accepted += 1
        if len(self.gateway.connections) >= self._limits.most_connections:
            self._transport.write(encode_reply("-ERR max number of clients reached"))
            self._transport.close()
            return
        self.gateway.connections.add(self)
        server.connections = len(self.gateway.connections)
        session = Session(server, self.gateway.batcher, server.accepted)
        self.task = asyncio.get_running_loop().create_task(self._serve(session))

    def data_received(self, data: bytes) -> None:
        self._commands.extend(self._parser.feed(data))
        self._bytes += len(data)
        failed = self._parser.error is not None
        many = len(self._commands) > self._limits.commands_read_ahead or self._bytes > self._limits.bytes_read_ahead
        if failed or many:
            self._paused = True
            self._transport.pause_reading()
        if self._commands or failed:
            self._more.set()

    def eof_received(self) -> bool:
        """Take note that the client says no more; it may still want the replies."""
        self._ended = True
        self._more.set()
        return True

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, reason: Exception | None) -> None:
        self.gateway.connections.discard(self)
        self.gateway.server.connections = len(self.gateway.connections)
        if self.task is not None:
            self.task.cancel()

    def stop(self) -> None:
        """Answer what is under way, then close."""
        self._ended = True
        self._commands.clear()
        self._more.set()

    async def _serve(self, session: Session) -> None:
        together = 32
        most = self._limits.commands_together
        try:
            while not session.closing:
                if not self._commands:
                    if self._ended or self._parser.error is not None:
                        break
                    self._bytes = 0
                    if self._paused:
                        self._paused = False
                        self._transport.resume_reading()
                    self._more.clear()
                    await self._more.wait()
                    continue
                replies = await session.take(self._commands, together)
                self.gateway.server.commands += len(replies)
                out: list[bytes] = []
                for reply in replies:
                    write(reply, session.resp3, out)
                data = b"".join(out)
                together = max(1, together // 4) if len(data) > self._limits.reply_bytes else min(2 * together, most)
                self._transport.write(data)
                await self._writable.wait()
            if self._parser.error is not None and not session.closing:
                self._transport.write(encode_reply(f"-ERR Protocol error: {self._parser.error}"))
        finally:
            self._transport.close()


class Gateway:
    """Listens, and stops gracefully."""

    def __init__(
        self, client: ClusterClient, *, largest_request: int = LARGEST_REQUEST, two_rounds: bool = False
    ) -> None:
        self.server = Server(client.groups, client.machine, largest_request=largest_request, two_rounds=two_rounds)
        self.batcher = Batcher(client)
        self.connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen; return the port, also where it was chosen by the system (0)."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), host, port, backlog=511)
        self.server.port = self._listener.sockets[0].getsockname()[1]
        return self.server.port

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        serving = [connection.task for connection in self.connections if connection.task is not None]
        tasks = [*serving, *self.batcher.tasks]
        for connection in list(self.connections):
            connection.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.server.machine.limits.grace_seconds)
            for task in late:
                task.cancel()


async def serve(gateway: Gateway, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; then answer what is under way and close. `ready` is told the port."""
    try:
        ready(await gateway.listen(host, port))
        await asyncio.get_running_loop().create_future()
    finally:
        await gateway.close()


def run(client: Client, host: str, port: int, *, two_rounds: bool, ready: Callable[[str, int], None]) -> None:
    """Serve in an event loop of its own until SIGTERM or SIGINT."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        largest = min(LARGEST_REQUEST, client.config.largest_message - 1024)
        gateway = Gateway(client, largest_request=largest, two_rounds=two_rounds)
        async with client:
            with suppress(asyncio.CancelledError):
                await serve(gateway, host, port, partial(ready, host))

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {reason}; choose another --port") from None
