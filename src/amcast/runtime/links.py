"""Channels between members: in order, without loss or repetition for as long as both processes live.

Each member dials every other one and sends on that connection; the other end only acknowledges. A batch is kept until
it is acknowledged and sent again after a reconnect, from the number that the other end expects. A channel starts
afresh when either process does: what was under way is lost then, as a restarted process expects. It also starts afresh
when a member that cannot be reached, or is slow, has made us keep too much: so a member that is away costs the others
a bounded amount, and its protocol asks again for what it lacks. One of a protocol that cannot ask again stops then.
"""

import asyncio
from collections import deque
from ssl import SSLContext
from typing import Final, Protocol, cast

from amcast.core.protocol import Protocol as Row
from amcast.errors import LostMessages, PeerError, WireError
from amcast.runtime import frames
from amcast.runtime.config import Member
from amcast.runtime.doors import Door, Place
from amcast.runtime.frames import AppVersions, Hello, Pulse, Spoken, Welcome
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.greeting import AcceptedConnection, GreetingHost, Understood, abort_unless, dial, say_hello

BURST: Final = 4  # times what is kept for a member that is away


class Hearing(Protocol):
    """Takes what another member states of itself (`exchange.py`)."""

    def hear(self, pid: int, body: bytes) -> None: ...


class LinkHost(GreetingHost, Protocol):
    """The node, as its links see it."""

    protocol: Row

    def under_way(self) -> int:
        """Return how many bytes of messages are under way in the group."""
        ...

    def on_batch(self, sender: int, batch: bytes) -> None: ...

    def on_pulse(self, sender: int, pulse: Pulse) -> None: ...

    def supplying(self, pid: int, transport: asyncio.Transport) -> "Supplying": ...

    @property
    def leading(self) -> "Leads": ...

    @property
    def exchange(self) -> "Hearing": ...

    @property
    def membership(self) -> "Peers": ...

    @property
    def links(self) -> "dict[int, Outgoing]": ...

    @property
    def versions(self) -> "KnownVersions": ...

    @property
    def formats(self) -> "KnownFormats": ...


class Peers(Protocol):
    """Knows the other replicas (`membership.py`)."""

    def peer(self, pid: int) -> Member | None: ...

    def greeted(self, hello: Hello) -> Member: ...

    def arrived(self) -> None: ...

    def left(self, pid: int) -> None: ...


class Leads(Protocol):
    """Decides who leads the group (`leading.py`)."""

    def asked(self, pid: int) -> None: ...

    def nobody_listens(self, pid: int) -> None: ...


class Supplying(Protocol):
    """Answers a member that wants a snapshot, or rows (`supply.py`)."""

    def take(self, kind: int, number: int, body: bytes) -> None: ...

    def left(self) -> None: ...


class KnownVersions(Protocol):
    """What members say of their application when they greet."""

    def ours(self) -> AppVersions: ...

    def greeted(self, pid: int, hello: Hello) -> str | None: ...

    def left(self, pid: int) -> None: ...


class KnownFormats(Understood, Protocol):
    """What members know of formats, and which one is in use (`formats.py`)."""

    def member_greeted(self, pid: int, name: str, theirs: Spoken) -> str | None: ...

    def heard(self, theirs: Spoken) -> None: ...

    def left(self, pid: int) -> None: ...


class Outgoing:
    """The channel to one member."""

    def __init__(self, host: LinkHost, peer: Member, context: SSLContext | None) -> None:
        self.host = host
        self.peer = peer
        self.context = context
        self.kept: deque[tuple[int, bytes]] = deque()  # not acknowledged
        self.kept_bytes = 0
        self.next = 1
        self.boot = 0  # of the other end
        self.connection: _Dialled | None = None  # once it is welcome
        self.dropped = 0  # channels given up
        self.refusal = ""  # why the other end does not let us in
        self._limits = host.machine.limits
        # Two of the largest messages must fit, or none of them would ever get through.
        self._least_kept = 2 * host.config.largest_message
        most_kept = self._limits.most_kept if host.protocol.durable else self._limits.most_kept_for_good
        self._most_kept = max(most_kept, self._least_kept)
        self._random = host.machine.random
        self._sooner: asyncio.Future[None] | None = None  # done if the pause before dialling again has no reason

    def send(self, batch: bytes) -> None:
        data = frame(frames.BATCH, batch, self.next)
        self.kept.append((self.next, data))
        self.kept_bytes += len(data)
        self.next += 1
        if self.connection is not None:
            self.connection.transport.write(data)
        if self.kept_bytes > self._least_kept and self.kept_bytes > self._most_now():
            self.give_up()

    def _most_now(self) -> int:
        """Return how many bytes may be kept.

        Those who are away share what one of them may cost, unless the protocol cannot ask again for what is given up:
        who lacks more comes back by a snapshot. One that is there and only slow may be behind by several times as much:
        votes and retries come at once. They have all that is under way. However much that has become, a channel that
        gave it up would be given up again when the same is sent again, and the group would never elect.
        """
        if self.connection is None:
            if not self.host.protocol.durable:
                return self._most_kept
            away = sum([link.connection is None for link in self.host.links.values()])
            return max(self._most_kept // max(1, away), self._least_kept)
        return BURST * max(self._most_kept, self.host.under_way())

    def tell(self, data: bytes) -> None:
        """Send a frame that is not worth keeping: the next one says more."""
        if self.connection is not None and not self.connection.transport.get_write_buffer_size():
            self.connection.transport.write(data)

    @property
    def congested(self) -> bool:
        """Return True if this member is there, does not keep up, and could not ask again for what is given up."""
        slow = self.connection is not None and self.kept_bytes > self._limits.congested
        return slow and not self.host.protocol.durable

    def give_up(self) -> None:
        """Forget what is kept; the protocol finds out what the member lacks."""
        if self.connection is not None or not self.dropped:  # of one that is away, once is enough
            self.host.log.warning("channel given up", peer=self.peer.name, bytes=self.kept_bytes)
        self.dropped += 1
        self.forget()
        if self.connection is not None:
            self.connection.transport.abort()

    def forget(self) -> None:
        self.kept.clear()
        self.kept_bytes = 0

    def acknowledged(self, number: int) -> None:
        while self.kept and self.kept[0][0] <= number:
            self.kept_bytes -= len(self.kept.popleft()[1])

    def welcomed(self, connection: "_Dialled", welcome: Welcome) -> None:
        if self.boot not in (0, welcome.boot):
            self.forget()
        self.boot = welcome.boot
        if welcome.formats is not None:
            self.host.formats.heard(welcome.formats)
        self.acknowledged(welcome.expects - 1)
        first = self.kept[0][0] if self.kept else self.next
        connection.transport.write(frame(frames.START, b"", first))
        connection.transport.writelines([data for _, data in self.kept])
        self.connection = connection
        self.refusal = ""
        self.host.log.info("connected", peer=self.peer.name, again=len(self.kept))

    def dialled_by(self, boot: int) -> None:
        """Dial at once, as the other end has just done: it is there.

        Else one that restarts hears of us only after our pause, which may be longer than `suspect_ms`. It would take
        us for dead by then, although we hear it: it would elect another leader, and would not wait for us to say what
        it forgot.
        """
        if self.connection is not None and self.boot != boot:  # to a process that is gone
            self.connection.transport.abort()
        if self._sooner is not None and not self._sooner.done():
            self._sooner.set_result(None)

    async def run(self) -> None:
        """Dial, and dial again whenever the connection ends: at once if it was a good one.

        If nobody listens then, where somebody did, the member is gone: there is no sooner news of a crash. A time-out
        or a reset says nothing, and neither do more refusals.
        """
        pause = self._limits.first_pause
        was_there = False
        loop = asyncio.get_running_loop()
        while True:
            self._sooner = loop.create_future()
            connection = _Dialled(self)
            began = loop.time()
            try:
                await dial(self.peer.peer, self.context, connection, self._limits.seconds_to_greet)
                await self._watch(connection)
            except ConnectionRefusedError:
                if was_there:
                    self.host.leading.nobody_listens(self.peer.pid)
                was_there = False
                self.host.log.debug("cannot connect", peer=self.peer.name, error="nobody listens")
            except (OSError, TimeoutError) as error:
                self.host.log.debug("cannot connect", peer=self.peer.name, error=str(error))
            if connection.welcome:
                was_there = True
                pause = self._limits.first_pause
                if loop.time() - began > self._limits.longest_pause:
                    continue
                self._sooner = asyncio.get_running_loop().create_future()  # who dialled us before may be gone, too
            await asyncio.wait([self._sooner], timeout=pause * self._random.uniform(0.7, 1.3))
            pause = self._limits.first_pause if self._sooner.done() else min(2 * pause, self._limits.longest_pause)

    async def _watch(self, connection: "_Dialled") -> None:
        """Wait until it ends. Give up one that nothing passes any more: it may never say so."""
        while not connection.lost.done():
            waiting = self.kept[0][0] if self.kept else 0
            unsent = connection.transport.get_write_buffer_size()
            await asyncio.wait([connection.lost], timeout=self._limits.seconds_of_silence)
            stuck = waiting and self.kept and self.kept[0][0] == waiting and not connection.lost.done()
            if stuck and connection.welcome and not 0 < connection.transport.get_write_buffer_size() < unsent:
                self.host.log.warning("connection silent", peer=self.peer.name)
                connection.transport.abort()
                await connection.lost

    def close(self) -> None:
        """Forget this member: it is none any more."""
        self.forget()
        if self.connection is not None:
            self.connection.transport.abort()

    def refused(self, reason: str) -> None:
        if reason != self.refusal:
            self.host.log.error("refused", peer=self.peer.name, reason=reason)
        self.refusal = reason


class _Dialled(asyncio.Protocol):
    """The end of a connection that sends batches."""

    transport: asyncio.Transport

    def __init__(self, link: Outgoing) -> None:
        self.link = link
        self.reader = FrameReader(frames.LARGEST_HELLO)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.welcome = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        try:
            say_hello(transport, self.link.host.config, self.link.peer.name, hello_of(self.link.host, self.link.peer))
        except PeerError as error:
            self.link.refused(str(error))
            self.transport.abort()
            return
        seconds = self.link.host.machine.limits.seconds_to_greet
        abort_unless(lambda: self.welcome or self.lost.done(), self.transport, seconds)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, body in self.reader.feed(data):
                if kind == frames.ACK and self.welcome:
                    self.link.acknowledged(number)
                elif kind == frames.WELCOME and not self.welcome:
                    self.welcome = True
                    self.link.welcomed(self, frames.decode(frames.welcome_decoder, body))
                elif kind == frames.REFUSED:
                    self.link.refused(body.decode(errors="replace"))
                else:
                    raise WireError(f"a frame of kind {kind} from {self.link.peer.name}")
        except WireError as error:
            self.link.refused(str(error))
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self.link.connection is self:
            self.link.connection = None
            self.link.host.log.info("disconnected", peer=self.link.peer.name)
        if not self.lost.done():
            self.lost.set_result(None)


class Incoming:
    """What the other members send to this one."""

    def __init__(self, host: LinkHost) -> None:
        self.host = host
        self.expects: dict[int, tuple[int, int]] = {}  # pid -> boot, number of the next batch
        self.current: dict[int, _Member] = {}
        self.here: set[_Member] = set()  # all that were let in; also those who want snapshots
        limits = host.machine.limits
        hosts = [member.peer.host for member in host.config.members]
        self.door = Door(limits.most_strangers, limits.most_of_one_address, limits.seconds_to_greet, hosts)

    def accept(self, place: Place) -> "_Member":
        return _Member(self, place)

    def close(self) -> None:
        """Let the others see that nobody listens any more."""
        for member in list(self.current.values()):
            member.transport.close()


class _Member(AcceptedConnection):
    """The end of a connection that receives batches."""

    host: LinkHost

    def __init__(self, incoming: Incoming, place: Place) -> None:
        super().__init__(incoming.host, place)
        self.incoming = incoming
        self.pid = -1
        self.supply: Supplying | None = None  # this is no channel
        self.boot = 0
        self.next = -1  # until START
        self.unacknowledged = 0
        self.ack_at: asyncio.TimerHandle | None = None
        self._limits = incoming.host.machine.limits

    def welcome(self, hello: Hello, theirs: Spoken) -> int:
        member = self.host.membership.greeted(hello)
        if reason := self.host.formats.member_greeted(member.pid, member.name, theirs):
            raise WireError(reason)
        if reason := self.host.versions.greeted(member.pid, hello):
            raise WireError(reason)
        self.pid = member.pid
        self.boot = hello.boot
        self.incoming.here.add(self)
        if hello.pulls:
            self.supply = self.host.supplying(member.pid, self.transport)
            return 0
        self.reader.largest = largest_from_peers(self.host)
        before = self.incoming.current.get(member.pid)
        if before is not None:
            before.transport.abort()
        self.incoming.current[member.pid] = self
        self.host.membership.arrived()
        if link := self.host.links.get(member.pid):
            link.dialled_by(hello.boot)
        boot, expects = self.incoming.expects.get(member.pid, (0, 0))
        return expects if boot == hello.boot else 0

    def take(self, kind: int, number: int, body: bytes) -> None:
        if self.supply is not None:
            self.supply.take(kind, number, body)
        elif self.next < 0:
            self.begin(kind, number)
        elif self.incoming.current.get(self.pid) is not self:
            return  # a newer connection of the same member has taken over
        elif kind == frames.STATEMENT:
            self.host.exchange.hear(self.pid, body)
        elif kind == frames.PULSE:
            self.host.on_pulse(self.pid, frames.decode(frames.pulse_decoder, body))
        elif kind == frames.LEAD:
            self.host.leading.asked(self.pid)
        elif kind != frames.BATCH or number != self.next:
            raise WireError(f"frame {number} of kind {kind}, expected batch {self.next}")
        else:
            self.take_batch(number, body)

    def begin(self, kind: int, number: int) -> None:
        boot, expects = self.incoming.expects.get(self.pid, (0, 0))
        if kind != frames.START or (boot == self.boot and number < expects):
            raise WireError(f"frame {number} of kind {kind}, expected a start from {expects}")
        if number > (expects if boot == self.boot else 1) and not self.host.protocol.durable:
            name, peer = self.host.me.name, self.host.config.topology.name(self.pid)
            raise LostMessages(f"{name} stopped: it could not be reached for so long that {peer} gave up its messages")
        self.next = number
        self.incoming.expects[self.pid] = (self.boot, number)

    def take_batch(self, number: int, batch: bytes) -> None:
        self.host.on_batch(self.pid, batch)  # or it is refused, and expected again: nothing is skipped
        self.next = number + 1
        self.incoming.expects[self.pid] = (self.boot, self.next)
        self.unacknowledged += 1
        if self.unacknowledged >= self._limits.ack_every:
            self.acknowledge()
        elif self.ack_at is None:
            self.ack_at = asyncio.get_running_loop().call_later(self._limits.ack_after, self.acknowledge)

    def acknowledge(self) -> None:
        if self.ack_at is not None:
            self.ack_at.cancel()
            self.ack_at = None
        if self.unacknowledged and not self.transport.is_closing():
            self.unacknowledged = 0
            self.transport.write(frame(frames.ACK, b"", self.next - 1))

    def left(self) -> None:
        self.incoming.here.discard(self)
        if self.ack_at is not None:
            self.ack_at.cancel()
            self.ack_at = None
        if self.supply is not None:
            self.supply.left()
        if self.incoming.current.get(self.pid) is self:
            del self.incoming.current[self.pid]
            self.host.versions.left(self.pid)
            self.host.formats.left(self.pid)
            self.host.membership.left(self.pid)


def largest_from_peers(host: LinkHost) -> int:
    """Return how long a frame of another member may be: a protocol that can ask again sends nothing in one piece.

    But for rounds: how one ends is one message, with all batches of the last ones.
    """
    in_parts = host.protocol.durable and not host.protocol.broadcast
    return frames.ROOM + host.config.largest_message if in_parts else frames.LARGEST_PEER


def hello_of(host: LinkHost, peer: Member, *, pulls: bool = False) -> Hello:
    config, me = host.config, host.me
    return Hello(
        frames.VERSION, config.name, me.name, host.boot, 0, peer.name, config.identity, host.versions.ours(), pulls,
        str(me.peer), host.formats.ours(),
    )  # fmt: skip


class Asking:
    """A connection to another member besides the channel: for a snapshot, or for rows of its log."""

    def __init__(self, host: LinkHost, peer: Member) -> None:
        self.peer = peer
        self._host = host
        self._frames = FrameReader(largest_from_peers(host))
        self._found: deque[tuple[int, int, bytes]] = deque()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, context: SSLContext | None) -> None:
        """Connect and greet. Raises OSError, TimeoutError and PeerError."""
        address = self.peer.peer
        name = "" if context is not None else None
        seconds = self._host.machine.limits.seconds_to_greet
        async with asyncio.timeout(seconds):
            self._reader, self._writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=name
            )
        say_hello(
            self._writer.transport, self._host.config, self.peer.name, hello_of(self._host, self.peer, pulls=True)
        )
        await self.receive(frames.WELCOME, seconds)

    def send(self, kind: int, body: bytes = b"", number: int = 0) -> None:
        assert self._writer is not None
        self._writer.write(frame(kind, body, number))

    async def receive(self, kind: int, seconds: float) -> tuple[int, bytes]:
        """Return the number and the body of the next frame, which is of this kind. Raises as `open`, and PeerError."""
        while not self._found:
            async with asyncio.timeout(seconds):
                data = await self._reader.read(2**18)
            if not data:
                raise ConnectionError("the connection was closed")
            self._found += [found for found in self._frames.feed(data) if found[0] != frames.MAKING]
        found, number, body = self._found.popleft()
        if found == frames.REFUSED:
            raise WireError(body.decode(errors="replace"))
        if found == frames.FAILED:
            raise WireError(frames.decode(frames.refusal_decoder, body).reason)
        if found != kind:
            raise WireError(f"a frame of kind {found} from {self.peer.name}, expected {kind}")
        return number, body

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
