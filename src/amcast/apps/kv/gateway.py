"""A server that speaks the Redis protocol and keeps everything in replicated groups."""

import asyncio
import errno
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ssl import SSLContext
from typing import cast

from cryptography import x509

from amcast.apps.kv.batching import Batcher, ClusterClient
from amcast.apps.kv.lookout import Lookout
from amcast.apps.kv.resp import LARGEST_REQUEST, Parser, encode_reply, write
from amcast.apps.kv.server_commands import Server
from amcast.apps.kv.session import Session
from amcast.apps.kv.strings import Command
from amcast.apps.kv.users import Users
from amcast.apps.kv.users_file import FILE, is_right, read_users
from amcast.errors import IdentityRefused, UsageError
from amcast.runtime.certificates import read_certificates
from amcast.runtime.client import Client
from amcast.runtime.config import Address, ClusterConfig, load_config
from amcast.runtime.doors import Door, Place
from amcast.runtime.latency import Latency
from amcast.runtime.log import Log
from amcast.runtime.loop import new_event_loop
from amcast.runtime.serving import CLIENT
from amcast.runtime.tls import Listener, Renewable, identity_of, listen, store_context, trusted


class Connection(asyncio.Protocol):
    """Reads ahead up to a bound; reads nothing from a client that does not take its replies."""

    def __init__(self, gateway: "Gateway", place: Place) -> None:
        self.gateway = gateway
        self._place = place  # at the door, until it need not log in, or has
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
        self._place.drop = self._transport.abort
        server = self.gateway.server
        server.accepted += 1
        if self.gateway.members is not None:
            try:
                self._refuse_others(self.gateway.members)
            except IdentityRefused as refused:
                server.log.warning("connection refused", peer=self._peer(), reason=str(refused))
                self._transport.abort()
                return
        if len(self.gateway.connections) >= self._limits.most_connections:
            self._transport.write(encode_reply("-ERR max number of clients reached"))
            self._transport.close()
            return
        self.gateway.connections.add(self)
        server.connections = len(self.gateway.connections)
        session = Session(server, self.gateway.batcher, server.accepted, self._peer())
        self._watch(session)
        self.task = asyncio.get_running_loop().create_task(self._serve(session))

    def _refuse_others(self, config: ClusterConfig) -> None:
        """Refuse all but clients of the cluster: a replica has no business here. Raises IdentityRefused."""
        name = identity_of(self._transport.get_extra_info("ssl_object"), config)
        if not name.startswith(CLIENT):
            raise IdentityRefused(f"{name} is a replica; expected a client")

    def look_again(self, members: ClusterConfig, authorities: list[x509.Certificate]) -> None:
        """Hang up if the certificate at the other end is none of these clients' any more."""
        try:
            self._refuse_others(members)
            if trusted(self._transport, authorities):
                return
            reason = "a certificate of a CA that is trusted no more"
        except IdentityRefused as refused:
            reason = str(refused)
        self.gateway.server.log.warning("connection refused", peer=self._peer(), reason=reason)
        self._transport.abort()

    def _peer(self) -> str:
        return str(self._transport.get_extra_info("peername"))

    def _watch(self, session: Session) -> None:
        """Guard against a stranger; stop when somebody has logged in."""
        self._parser.guarded = session.stranger
        if not session.stranger:
            self._place.leave()

    def data_received(self, data: bytes) -> None:
        self._commands.extend(self._parser.feed(data))
        if self._parser.http:
            self.gateway.server.log.warning("possible cross-protocol attack: HTTP, closed", peer=self._peer())
            self._commands.clear()
            self._transport.abort()
            return
        self._bytes += len(data)
        failed = self._parser.error is not None
        limits = self._limits
        most = limits.bytes_of_a_stranger if self._parser.guarded else limits.bytes_read_ahead
        if failed or len(self._commands) > limits.commands_read_ahead or self._bytes > most:
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
        self._place.leave()
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
                    self._commands.extend(self._parser.feed(b""))  # what waited until we knew more of the sender
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
                began = self.gateway.server.machine.clock.monotonic_ns()
                replies = await session.take(self._commands, together)
                self.gateway.latency.add(self.gateway.server.machine.clock.monotonic_ns() - began, len(replies))
                self.gateway.server.commands += len(replies)
                self._watch(session)
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
        self,
        client: ClusterClient,
        *,
        largest_request: int = LARGEST_REQUEST,
        two_rounds: bool = False,
        users: Users | None = None,
        members: ClusterConfig | None = None,
        log: Log | None = None,
    ) -> None:
        """Prepare a gateway. With `members`, whoever connects must show the certificate of one of its clients."""
        self.server = Server(
            client.groups,
            client.machine,
            largest_request=largest_request,
            two_rounds=two_rounds,
            users=users,
            log=log if log is not None else Log("kv", machine=client.machine),
        )
        self.members = members
        self.latency = Latency("amcast_command_seconds", "From when a command is taken up to its reply")
        self.lookout = Lookout(client, self.server.log)
        self.batcher = Batcher(client, self.lookout)
        self.connections: set[Connection] = set()
        self._listener: Listener | None = None
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, context: SSLContext | None = None) -> int:
        """Listen, with TLS if there is a context; return the port, also where it was chosen by the system (0)."""
        await self.lookout.look()
        await self.batcher.learn_map(self.server.machine.limits.seconds_to_look)
        self._looking = asyncio.get_running_loop().create_task(self.lookout.keep_looking())
        limits = self.server.machine.limits
        door = Door(limits.most_not_logged_in, limits.most_not_logged_in, limits.seconds_to_log_in)
        factory = partial(Connection, self)
        self._listener = await listen(host, port, context, door, factory, self.server.machine)
        self.server.port = self._listener.port
        return self.server.port

    def look_again(self, members: ClusterConfig, authorities: list[x509.Certificate]) -> None:
        """Hang up on whoever has shown a certificate, and could not come with it any more."""
        if self.members is not None:
            self.members = members
            for connection in list(self.connections):
                connection.look_again(members, authorities)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._looking is not None:
            self._looking.cancel()
        serving = [connection.task for connection in self.connections if connection.task is not None]
        tasks = [*serving, *self.batcher.tasks]
        for connection in list(self.connections):
            connection.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.server.machine.limits.grace_seconds)
            for task in late:
                task.cancel()


async def serve(
    gateway: Gateway, host: str, port: int, ready: Callable[[int], None], context: SSLContext | None = None
) -> None:
    """Serve until cancelled; then answer what is under way and close. `ready` is told the port."""
    try:
        ready(await gateway.listen(host, port, context))
        await asyncio.get_running_loop().create_future()
    finally:
        await gateway.close()


@dataclass(frozen=True)
class Port:
    """Where and how Redis clients are served."""

    host: str
    port: int
    tls: bool = False
    client_certificates: bool = False  # TLS clients must show one of a client in cluster.toml
    two_rounds: bool = True


def run(client: Client, where: Port, ready: Callable[[int], None]) -> None:
    """Serve in an event loop of its own until SIGTERM or SIGINT; on SIGHUP, read users and certificates again."""
    config = client.config
    file = config.path.parent / FILE
    by_name = read_users(file)
    refuse_open_port(where, by_name is not None, config)
    context = Renewable(lambda: store_context(config, where.client_certificates)) if where.tls else None
    log = Log("kv")

    def reload(gateway: Gateway) -> None:
        """Take up what changed on disk; what cannot be read leaves everything as it is."""
        try:
            found = read_users(file)
            if (found is None) != (gateway.server.users is None):
                raise UsageError(f"{file}: it came or went; restart to serve with it or without it")
            members = replace(config, clients=load_config(config.path).clients)
            authorities = read_certificates(config.tls.ca) if config.tls is not None else []
            made = context.make() if context is not None else None
            client.renew_certificate()
            if found is not None and gateway.server.users is not None:
                gateway.server.users.replace(found)
            if context is not None and made is not None:
                context.take(made)
                gateway.look_again(members, authorities)
            log.info("users and certificates read again")
        except (UsageError, OSError) as error:
            log.warning("not read again", reason=str(error))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        gateway = Gateway(
            client,
            largest_request=min(LARGEST_REQUEST, config.largest_message - 1024),
            two_rounds=where.two_rounds,
            users=Users(by_name, is_right, client.machine) if by_name is not None else None,
            members=config if where.client_certificates else None,
            log=log,
        )
        client.numbers.latencies.append(gateway.latency)
        loop.add_signal_handler(signal.SIGHUP, reload, gateway)
        async with client:
            with suppress(asyncio.CancelledError):
                await serve(gateway, where.host, where.port, ready, context)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
    except OSError as error:
        raise UsageError(f"cannot listen on {Address(where.host, where.port)}: {why_not(error)}") from None


def refuse_open_port(where: Port, users: bool, config: ClusterConfig) -> None:
    """Refuse to listen where other machines reach it, unless they must log in and nobody hears their passwords."""
    if where.client_certificates and not where.tls:
        raise UsageError("--client-certs without --tls: expected both, for a certificate is shown in TLS")
    if Address(where.host, where.port).loopback or (users and where.tls):
        return
    missing = [] if users else [f"users ('amcast kv-user {config.path.parent} NAME' adds one)"]
    if not where.tls:
        missing.append("--tls")
    raise UsageError(
        f"--host {where.host} can be reached from other machines: expected {' and '.join(missing)}, or --host 127.0.0.1"
    )


def why_not(error: OSError) -> str:
    """Say why one cannot listen somewhere, and what to change."""
    if (error.errno or 0) < 0:  # a number of getaddrinfo
        return "there is no such host; choose another --host"
    if error.errno == errno.EADDRNOTAVAIL:
        return "it is not an address of this machine; choose another --host"
    return f"{os.strerror(error.errno) if error.errno else error}; choose another --port"
