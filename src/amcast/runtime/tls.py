"""Who is at the other end: mutual TLS 1.3, and a name that must be in the membership list.

Both sides show a certificate from the cluster's CA with exactly one URI, `amcast://CLUSTER/NAME`, and NAME must be a
replica of the configuration or `client/` and one of its clients. Anything else is refused: there is no default, no
pattern, and nothing else in the certificate (common name, DNS name, address) is looked at. Sessions are not resumed, so
that every connection is judged by what holds now.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import AI_PASSIVE, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY
from typing import Any, Self, cast

from cryptography import x509

from amcast.errors import IdentityRefused, UsageError
from amcast.runtime.certificates import (
    STORE,
    check_certificate,
    hosts_of,
    identity_uri,
    is_issued_by,
    read_certificates,
    written,
)
from amcast.runtime.config import ClusterConfig, file_name
from amcast.runtime.doors import Door, Place
from amcast.runtime.machine import REAL, Machine, Socket


def server_context(config: ClusterConfig, name: str) -> ssl.SSLContext:
    """Return what the listeners of a replica need. Whoever connects must be looked at with `identity_of`."""
    context = prepared(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config, name)
    context.num_tickets = 0
    return context


def client_context(config: ClusterConfig, name: str) -> ssl.SSLContext:
    """Return what it takes to connect as g0/1 or client/alice. Whoever answers must be looked at with `identity_of`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the URI says who it is, wherever it runs
    return prepared(context, config, name)


def store_context(config: ClusterConfig, ask_clients: bool) -> ssl.SSLContext:
    """Return what the port for Redis clients needs; with `ask_clients`, look at who connects with `identity_of`."""
    if config.tls is not None and not hosts_of(config.tls.folder):
        folder = config.path.parent
        raise UsageError(f"{config.tls.folder}: no certificate of the store; make it: amcast certs {folder} --kv HOST")
    context = prepared(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config, STORE)
    context.num_tickets = 0
    if not ask_clients:
        context.verify_mode = ssl.CERT_NONE
    return context


def prepared(context: ssl.SSLContext, config: ClusterConfig, name: str) -> ssl.SSLContext:
    if config.tls is None:
        raise UsageError(f"{config.path}: there is no [tls]; add it with ca and folder")
    if name != STORE and name not in names_of(config) and name not in seats_of(config):
        raise UsageError(f"{name!r} is not in {config.path}; expected one of {', '.join(names_of(config))}")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    crt, key = check_certificate(config.tls.folder, config.tls.ca, config.name, name)
    try:
        context.load_cert_chain(crt, key)
        context.load_verify_locations(config.tls.ca)
    except ssl.SSLError as error:
        raise UsageError(f"certificate of {name}: {crt} cannot be used ({error.reason or error})") from error
    return context


class Renewable(ssl.SSLContext):
    """What a process connects or listens with: each new connection goes by the files as they were read last.

    A context cannot forget a CA that it trusts. So to read the files again is to `make` another one, and `take` it in
    the place of the one before, here, where all who connect have it.
    """

    made: ssl.SSLContext
    make: Callable[[], ssl.SSLContext]
    files: list[Path]
    written: list[tuple[int, int]]

    def __new__(cls, make: Callable[[], ssl.SSLContext]) -> Self:
        """Make the first one. Raises UsageError, as `make` does."""
        made = make()
        new = super().__new__(cls, made.protocol)
        new.made, new.make = made, make
        return new

    @classmethod
    def of_client(cls, config: ClusterConfig, name: str) -> Self:
        """Return one that knows when it is `outdated`: nobody tells a client."""
        assert config.tls is not None
        ends = [config.tls.folder / f"{file_name(name)}.{end}" for end in ("crt", "key")]
        files = [config.tls.ca, *ends]
        before = written(files)
        new = cls(lambda: client_context(config, name))
        new.files, new.written = files, before
        return new

    def outdated(self) -> bool:
        """Return whether the files were written since they were read."""
        return written(self.files) != self.written

    def read_again(self) -> list[x509.Certificate]:
        """Go by the files as they are now; return the CAs in them, which come first. Raises UsageError."""
        before, authorities = written(self.files), read_certificates(self.files[0])
        self.take(self.make())
        self.written = before
        return authorities

    def take(self, made: ssl.SSLContext) -> bool:
        """Go by this one from now on; return whether a CA is no longer trusted."""
        before, self.made = self.made, made
        return bool({*before.get_ca_certs(binary_form=True)} - {*made.get_ca_certs(binary_form=True)})

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.made.wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        return self.made.wrap_socket(*arguments, **named)


def trusted(transport: asyncio.BaseTransport | None, authorities: list[x509.Certificate]) -> bool:
    """Return whether whoever is at the other end has its certificate from one of these.

    One that has it from somebody in between has to come again, to be judged by a whole handshake.
    """
    connection = transport.get_extra_info("ssl_object") if transport is not None else None
    shown = connection.getpeercert(binary_form=True) if connection is not None else None
    return shown is None or is_issued_by(x509.load_der_x509_certificate(shown), authorities)


def names_of(config: ClusterConfig) -> list[str]:
    """Return the names of all that have a certificate."""
    return [member.name for member in config.members] + [f"client/{name}" for name in config.clients]


def seats_of(config: ClusterConfig) -> list[str]:
    """Return the names of all replicas that there may be: whoever the CA says is one of them may learn, at least."""
    return config.topology.names[: config.topology.replicas]


def identity_of(connection: ssl.SSLObject | ssl.SSLSocket, config: ClusterConfig, expected: str | None = None) -> str:
    """Return who is at the other end of a connection: g0/1, client/alice. Refuse all but members and clients.

    With `expected`, refuses other members too: whoever connects somewhere knows whom to find there.
    """
    certificate: dict[str, Any] | None = connection.getpeercert()
    if not certificate:
        raise IdentityRefused("a peer showed no certificate; expected one of this cluster's CA")
    uris = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    if len(uris) != 1:
        raise IdentityRefused(
            f"a certificate with {len(uris)} URIs ({', '.join(map(repr, uris)) or 'none'}); expected exactly one, "
            f"{identity_uri(config.name, 'NAME')}"
        )
    known = {identity_uri(config.name, name): name for name in [*seats_of(config), *names_of(config)]}
    name = known.get(uris[0])
    if name is None:
        if not uris[0].startswith(identity_uri(config.name, "")):
            raise IdentityRefused(f"a certificate of {uris[0]!r}, which is not of this cluster, {config.name}")
        raise IdentityRefused(f"a certificate of {uris[0]!r}, which is not a member; add it to {config.path} if it is")
    if expected is not None and name != expected:
        raise IdentityRefused(f"found {name} where {expected} was expected; check the addresses in {config.path}")
    return name


class Listener:
    """Accepts connections and hands on those that have become TLS ones, with their place at the door."""

    def __init__(
        self,
        listening: Socket,
        context: ssl.SSLContext | None,
        door: Door,
        factory: Callable[[Place], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._context = context
        self._door = door
        self._factory = factory
        self._trying: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def port(self) -> int:
        """Return where it listens, also if the system chose."""
        return int(self._listening.getsockname()[1])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listening)
            except OSError:  # too many are open
                self._door.make_room()
                await asyncio.sleep(0.1)
                continue
            place = self._door.enter(peer)
            task = loop.create_task(self._greet(connection, place))
            place.drop = task.cancel
            self._trying.add(task)
            task.add_done_callback(partial(self._tried, connection, place))

    async def _greet(self, connection: Socket, place: Place) -> None:
        connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self._factory(place), connection, ssl=self._context)

    def _tried(self, connection: Socket, place: Place, task: asyncio.Task[None]) -> None:
        self._trying.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            place.leave()
            connection.close()
        if error is not None and not isinstance(error, OSError):  # else it is none of ours: TLS has told it
            raise error

    def close(self) -> None:
        self._accepting.cancel()
        for task in self._trying:
            task.cancel()
        self._listening.close()


async def listen(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    door: Door,
    factory: Callable[[Place], asyncio.Protocol],
    machine: Machine = REAL,
) -> Listener:
    """Listen at an address. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
    numerical, number = cast("tuple[str, int]", found[0][4][:2])
    return Listener(machine.listen_at(numerical, number), context, door, factory)
