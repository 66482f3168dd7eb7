"""One connection between two simulated processes, and what it is before it is one.

A direction of a connection is what the writer has not got rid of (its buffer), a window of bytes that are under way or
unread, a pipe that keeps them in order, and the inbox of the reader. Chunks are split and merged at random.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

from amcast.swarm.cluster.calendar import MILLISECOND
from amcast.swarm.cluster.loop import ProcessLoop

if TYPE_CHECKING:
    from amcast.swarm.cluster.network import Network

MOST_AT_ONCE: Final = 256 * 1024  # bytes of an inbox that a program is handed in one call
HIGH_WATER: Final = 64 * 1024


class Way:
    """From one machine to another: one direction."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cuts = 0  # that hold; they may overlap
        self.slower = 1
        self.heard_at = -1  # when something last arrived
        self.ends: list[Endpoint] = []  # of connections, whose peers write to them by this way


class Endpoint(asyncio.Transport):
    """One end of a connection; what its process, and the system of its machine, know of it."""

    def __init__(self, network: "Network", process: ProcessLoop, address: tuple[str, int], way: Way) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.address = address
        self.way = way  # from here to the peer
        self.peer: Endpoint
        self.protocol: asyncio.Protocol | None = None
        self.closed = False  # for the program: connection_lost has been or will be called
        self.gone = False  # for the system: whoever sends to it gets a reset
        # Outwards
        self.buffer: deque[bytes] = deque()
        self.buffered = 0
        self.pipe: deque[bytearray | None] = deque()  # under way; None is the end
        self.arrivals: deque[int] = deque()
        self.due = 0  # when the last chunk arrives
        self.outstanding = 0  # bytes in the pipe and in the inbox of the peer
        self.window = network.weather.window
        self.end_sent = False  # by the program
        self.end_put = False  # into the pipe
        self.written_at = -1  # the last chunk
        self.stuck = False  # the pipe is held by a cut
        self.probing = False  # nothing of it was read for a while: is there still somebody?
        self.high = HIGH_WATER
        self.low = HIGH_WATER // 4
        self.full = False  # the program was told to pause
        # Inwards
        self.inbox = bytearray()
        self.unacknowledged = 0  # read here, but a cut holds the news
        self.end_arrived = False
        self.end_told = False
        self.reset_arrived = False
        self.reading = True
        self.noticed = False  # the process will look

    # What programs call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer.address, "sockname": self.address}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed or self.end_sent or self.process.dead or not data:
            return
        if self.reset_arrived:  # a broken pipe, also for a program that does not read
            self.reading = True
            self.notice()
            return
        self.buffer.append(bytes(data))
        self.buffered += len(data)
        self.push()
        if not self.full and self.buffered > self.high:
            self.full = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self.closed and not self.process.dead:
            self.end_sent = True
            self.push()

    def close(self) -> None:
        """Send what is buffered, then the end."""
        if not self.closed and not self.process.dead:
            self.closed = True
            self.end_sent = True
            self.push()
            if not self.buffer:
                self._lose(None)

    def abort(self) -> None:
        """Hang up; what is buffered is lost, what is under way is not."""
        if not self.gone and not self.process.dead:
            already, self.closed = self.closed and not self.buffer, True
            self.buffer.clear()
            self.buffered = 0
            self.end_sent = True
            self.push()
            if not already:
                self._lose(None)

    def is_reading(self) -> bool:
        return self.reading and not self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        if not self.reading:
            self.reading = True
            self.notice()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self.low, self.high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = (4 * low if low is not None else HIGH_WATER) if high is None else high
        self.low = self.high // 4 if low is None else low

    # Outwards

    def push(self) -> None:
        """Send as much of the buffer as the window takes, and the end behind it."""
        while self.buffer and self.outstanding < self.window:
            data = self.buffer.popleft()
            room = self.window - self.outstanding
            if len(data) > room:
                self.buffer.appendleft(data[room:])
                data = data[:room]
            self.buffered -= len(data)
            self.outstanding += len(data)
            self._send(data)
        if self.end_sent and not self.buffer and not self.end_put:
            self.end_put = True
            self._put(None)
        if self.buffer and not self.pipe and self.peer.gone and not self.probing:
            self.probing = True
            pause = self.way.random.randrange(MILLISECOND, 400 * MILLISECOND)
            self.network.calendar.after(pause, self._probe)

    def _probe(self) -> None:
        """Look behind a window that stays closed, as TCP does: nobody is there, and the system says so if it can."""
        self.probing = False
        if not self.gone and self.network.passes(self.way, self.peer.process.host):
            self.network.send_reset(self.peer, self)

    def _send(self, data: bytes) -> None:
        random = self.way.random
        splits = self.network.weather.splits
        if splits and len(data) > 1 and not random.randrange(splits):
            at = random.randrange(1, len(data))
            self._put(bytearray(data[:at]))
            self._put(bytearray(data[at:]))
            return
        last = self.pipe[-1] if self.pipe else None
        if last is not None and self.written_at == self.network.calendar.now:
            last.extend(data)  # written at the same instant: one packet
        else:
            self._put(bytearray(data))

    def _put(self, chunk: bytearray | None) -> None:
        calendar = self.network.calendar
        soonest = calendar.now + self.process.spent + self.network.delay(self.way)
        self.due = due = soonest if soonest > self.due else self.due + 1
        self.pipe.append(chunk)
        self.written_at = calendar.now
        calendar.at(due, self.deliver)

    def deliver(self) -> None:
        """Let the first chunk under way arrive; a cut holds it and all behind it."""
        if not self.pipe:
            return
        if self.stuck or not self.network.passes(self.way, self.peer.process.host):
            self.stuck = True
            return
        self._hand_over(self.pipe.popleft())

    def _hand_over(self, chunk: bytearray | None) -> None:
        peer = self.peer
        if peer.gone:
            self.outstanding = 0
            self.network.send_reset(peer, self)
        elif chunk is None:
            peer.end_arrived = True
            peer.notice()
        else:
            self.network.calendar.note(crc32(chunk))
            self.way.heard_at = self.network.calendar.now
            peer.process.received += len(chunk)
            peer.inbox += chunk
            peer.notice()

    def unstick(self) -> None:
        """Go on after a cut: everything that it held is sent again, in order."""
        if self.stuck:
            self.stuck = False
            for _ in self.pipe:
                calendar = self.network.calendar
                self.due = max(self.due + 1, calendar.now + self.network.delay(self.way))
                calendar.at(self.due, self.deliver)
        if self.unacknowledged:  # and the peer hears what was read here
            self._acknowledge(0)
        for end in (self, self.peer):
            if end.buffer and not end.gone:
                end.push()

    def taken(self, count: int) -> None:
        """Take note that the peer has read so much; there is room for more."""
        self.outstanding -= count
        if self.buffer or self.closed:
            calendar = self.network.calendar
            calendar.at(calendar.now + self.network.delay(self.peer.way), self._drain)

    def _drain(self) -> None:
        if self.gone or self.process.dead:
            return
        self.push()
        if self.closed and not self.buffer:
            self._lose(None)
        elif self.full and self.buffered <= self.low:
            self.process.arrived(self._resume_writing)

    def _resume_writing(self) -> None:
        if self.full and self.buffered <= self.low and not self.closed:
            self.full = False
            self.get_protocol().resume_writing()

    # Inwards

    def notice(self) -> None:
        """Have the process look at this connection in its next turn."""
        if not self.noticed and self.protocol is not None and not self.process.dead:
            self.noticed = True
            self.process.arrived(self._look)

    def _look(self) -> None:
        self.noticed = False
        protocol = self.protocol
        if self.closed and self.reset_arrived:  # what it still had to send is lost
            self._break()
        if self.closed or protocol is None or not self.reading:
            return
        if self.inbox:
            data = bytes(self.inbox[:MOST_AT_ONCE])
            del self.inbox[: len(data)]
            self._acknowledge(len(data))
            if self.inbox or self.end_arrived or self.reset_arrived:
                self.notice()
            protocol.data_received(data)
        elif self.reset_arrived:
            self._break()
        elif self.end_arrived and not self.end_told:
            self.end_told = True
            if not protocol.eof_received():
                self.close()

    def _break(self) -> None:
        self.closed = True
        self.buffer.clear()
        self.buffered = 0
        self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _acknowledge(self, count: int) -> None:
        self.unacknowledged += count
        if self.network.passes(self.way, self.peer.process.host):
            count, self.unacknowledged = self.unacknowledged, 0
            self.peer.taken(count)

    def _lose(self, error: Exception | None) -> None:
        """Tell the program, in its next turn, that this is over."""
        if not self.gone:
            self.gone = True
            if self.inbox and not self.reset_arrived:  # unread data: the system resets instead
                self.network.send_reset(self, self.peer)
            self.inbox.clear()
            if self.protocol is not None:
                self.process.call_soon(self.protocol.connection_lost, error)

    def die(self, silently: bool) -> None:
        """End with the process, or with its whole machine."""
        if self.gone:
            return
        self.gone = self.closed = True
        self.buffer.clear()
        self.buffered = 0
        if silently:
            self.pipe.clear()
        elif self.inbox or self.way.random.getrandbits(1):
            self.network.send_reset(self, self.peer)
        elif not self.end_put:
            self.end_put = True
            self._put(None)
        self.inbox.clear()


class Listening:
    """What a process listens at: connections wait here until they are accepted."""

    def __init__(self, network: "Network", process: ProcessLoop, address: tuple[str, int]) -> None:
        self.network = network
        self.process = process
        self.address = address
        self.waiting: deque[Endpoint] = deque()
        self.acceptor: asyncio.Future[Endpoint] | None = None  # of `sock_accept` …
        self.factory: Callable[[], asyncio.BaseProtocol] | None = None  # … or of a server
        self.closed = False

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.network.listeners.get(self.address) is self:
                del self.network.listeners[self.address]
            for endpoint in self.waiting:
                endpoint.closed = endpoint.gone = True
                self.network.send_reset(endpoint, endpoint.peer)
            self.waiting.clear()

    def offer(self, endpoint: Endpoint) -> None:
        self.waiting.append(endpoint)
        self.process.arrived(self._look)

    def _look(self) -> None:
        if self.factory is not None:
            while self.waiting:
                endpoint = self.waiting.popleft()
                self.process.call_soon(connect, endpoint, self.factory())
        elif self.waiting and self.acceptor is not None and not self.acceptor.done():
            self.acceptor.set_result(self.waiting.popleft())

    async def accept(self) -> Endpoint:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self.waiting:
            return self.waiting.popleft()
        self.acceptor = self.process.create_future()
        return await self.acceptor


class Accepted:
    """A connection that was accepted and has no protocol yet, in place of a socket."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def setsockopt(self, *_: object) -> None:
        pass

    def getpeername(self) -> tuple[str, int]:
        return self.endpoint.peer.address

    def getsockname(self) -> tuple[str, int]:
        return self.endpoint.address

    def close(self) -> None:
        self.endpoint.abort()


class SimServer(asyncio.AbstractServer):
    """What `create_server` returns."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    @property
    def sockets(self) -> tuple[Listening, ...]:
        return () if self._listening.closed else (self._listening,)

    def is_serving(self) -> bool:
        return not self._listening.closed

    def close(self) -> None:
        self._listening.close()

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)

    async def start_serving(self) -> None:
        pass

    async def serve_forever(self) -> None:
        await self._listening.process.create_future()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._listening.process


def connect(endpoint: Endpoint, protocol: asyncio.BaseProtocol) -> None:
    """Give a connection its protocol; from now on the program hears of what arrives."""
    endpoint.set_protocol(protocol)
    protocol.connection_made(endpoint)
    endpoint.notice()
