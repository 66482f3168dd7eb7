"""How two processes come to know each other: HELLO from the one that dials, WELCOME or REFUSED from the other.

Members and clients greet alike. Nothing else that arrives is looked at before: whoever dials says which formats it
knows, its name, whom it expects to find and what its cluster is, and where there is TLS its certificate must say the
same name. Whoever dials checks the certificate that it finds as well.
"""

import asyncio
from collections.abc import Callable
from ssl import SSLContext
from typing import Protocol, cast

from amcast.errors import PeerError, WireError
from amcast.runtime import frames
from amcast.runtime.config import Address, ClusterConfig, Member
from amcast.runtime.doors import Place
from amcast.runtime.frames import Hello, Spoken, Welcome
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.identity import refusal_of
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine
from amcast.runtime.tls import identity_of


async def dial(address: Address, context: SSLContext | None, protocol: asyncio.BaseProtocol, seconds: float) -> None:
    """Connect to a listener of a member within so many seconds. Raises OSError and TimeoutError."""
    name = "" if context is not None else None  # its certificate is looked at by say_hello, not by its host's name
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        await loop.create_connection(lambda: protocol, address.host, address.port, ssl=context, server_hostname=name)


def say_hello(transport: asyncio.BaseTransport, config: ClusterConfig, expected: str, hello: Hello) -> None:
    """Greet the member that was dialled, after a look at who it is. Raises IdentityRefused."""
    if config.tls is not None:
        identity_of(transport.get_extra_info("ssl_object"), config, expected)
    cast(asyncio.WriteTransport, transport).write(frame(frames.HELLO, frames.encode(hello)))


def abort_unless(answered: Callable[[], bool], transport: asyncio.WriteTransport, seconds: float) -> None:
    """Give up a connection whose other end does not answer the greeting within so many seconds."""

    def look() -> None:
        if not answered():
            transport.abort()

    asyncio.get_running_loop().call_later(seconds, look)


class Understood(Protocol):
    """Knows what is spoken here (`formats.py`)."""

    def ours(self) -> Spoken: ...

    def greeted(self, name: str, theirs: Spoken) -> str | None: ...


class GreetingHost(Protocol):
    """The node, as whoever greets it sees it."""

    config: ClusterConfig
    me: Member
    boot: int
    log: Log
    machine: Machine

    @property
    def formats(self) -> "Understood": ...

    def fail(self, error: BaseException) -> None: ...


class AcceptedConnection(asyncio.Protocol):
    """A connection that somebody else dialled: its first frame is a greeting, in time, or the last one."""

    transport: asyncio.Transport

    def __init__(self, host: GreetingHost, place: Place) -> None:
        self.host = host
        self.reader = FrameReader(frames.LARGEST_HELLO)
        self._place = place
        self._stranger = True

    # What a listener for members and one for clients do in their own ways

    def welcome(self, hello: Hello, theirs: Spoken) -> int:
        """Let this one in: return the number of the batch that is expected from it. Raises WireError."""
        raise NotImplementedError

    def welcomed(self) -> None:
        """Say what else somebody needs to know who was let in."""

    def refusals(self) -> tuple[str, ...]:
        """Return why requests to each group are refused; empty if they are not."""
        return ()

    def take(self, kind: int, number: int, body: bytes) -> None:
        """Handle a frame of somebody who has been let in. Raises PeerError."""
        raise NotImplementedError

    def left(self) -> None:
        """Forget this connection, of somebody who was let in or not."""

    # The greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._place.drop = self.transport.abort

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, body in self.reader.feed(data):
                if self._stranger:
                    self._greet(kind, body)
                else:
                    self.take(kind, number, body)
        except PeerError as error:
            self.refuse(str(error))
        except Exception as error:  # a bug: this node must not go on with half a step done
            self.host.fail(error)

    def _greet(self, kind: int, body: bytes) -> None:
        if kind != frames.HELLO:
            raise WireError(f"a frame of kind {kind}, expected a greeting")
        hello = frames.decode(frames.hello_decoder, body)
        config = self.host.config
        theirs = hello.formats or Spoken(hello.version, hello.version)
        if reason := self.host.formats.greeted(hello.name, theirs):
            raise WireError(reason)
        if hello.cluster != config.name:
            raise WireError(f"greeting of cluster {hello.cluster!r}, expected {config.name!r}")
        if hello.to != self.host.me.name:
            raise WireError(f"greeting for {hello.to!r}, but this is {self.host.me.name}; check its address")
        if reason := refusal_of(hello.name, hello.identity, self.host.me.name, config.identity):
            raise WireError(reason)
        if config.tls is not None:
            name = identity_of(self.transport.get_extra_info("ssl_object"), config)
            if name != hello.name:
                raise WireError(f"{name} says that it is {hello.name}")
        expects = self.welcome(hello, theirs)
        self._stranger = False
        self._place.leave()
        welcome = Welcome(self.host.me.name, self.host.boot, expects, self.refusals(), self.host.formats.ours())
        self.transport.write(frame(frames.WELCOME, frames.encode(welcome)))
        self.welcomed()

    def refuse(self, reason: str) -> None:
        """Say why, and hang up."""
        peer = str(self.transport.get_extra_info("peername"))
        self.host.log.warning("connection refused", peer=peer, reason=reason)
        self.transport.write(frame(frames.REFUSED, reason.encode()[:1000]))
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._place.leave()
        self.left()
