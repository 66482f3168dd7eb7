"""The network between simulated processes: TCP as programs see it.

What breaks is the way between two machines, in one direction or both. Connections then hold what they have, as TCP
sends it again, and are dialled anew after 1, 2, 4, … s. A reset is a packet of its own, which overtakes others, and is
lost in a cut.

A killed process leaves its system behind: what was written arrives, and then an end or a reset. A machine without power
is silent; only when it is back does it reset what others still send to its former connections.
"""

import asyncio
import errno
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from amcast.swarm.cluster.calendar import MICROSECOND, MILLISECOND, SECOND, Calendar
from amcast.swarm.cluster.connection import Accepted, Endpoint, Listening, SimServer, Way, connect
from amcast.swarm.cluster.jobs import Died
from amcast.swarm.cluster.loop import ProcessLoop

FIRST_REPEAT: Final = SECOND  # of a SYN that got no answer; then twice as long each time
MOST_REPEATS: Final = 6
BACKLOG: Final = 1024
FIRST_PORT: Final = 40_000


@dataclass
class Weather:
    """How the network is when nothing is wrong with it."""

    shortest: int = 50 * MICROSECOND  # on the way between two machines
    longest: int = 500 * MICROSECOND
    window: int = 256 * 1024
    splits: int = 8  # one chunk of so many arrives in two parts


class Network:
    """All ways between machines, all listeners and connections."""

    def __init__(self, calendar: Calendar, seed: str, weather: Weather | None = None) -> None:
        self.calendar = calendar
        self.weather = weather if weather is not None else Weather()
        self.listeners: dict[tuple[str, int], Listening] = {}
        self.down: set[str] = set()  # hosts without power
        self._seed = seed
        self._ways: dict[tuple[str, str], Way] = {}
        self._ways_from: defaultdict[str, list[Way]] = defaultdict(list)
        self._ends: dict[ProcessLoop, list[Endpoint]] = defaultdict(list)
        self._ports: defaultdict[str, int] = defaultdict(lambda: FIRST_PORT)

    def way(self, source: str, target: str) -> Way:
        found = self._ways.get((source, target))
        if found is None:
            found = self._ways[source, target] = Way(Random(f"{self._seed} way {source} {target}"))
            self._ways_from[source].append(found)
        return found

    def delay(self, way: Way) -> int:
        """Draw how long a packet takes; some take several times as long as most."""
        weather = self.weather
        span = weather.longest - weather.shortest
        drawn = way.random.random()
        return way.slower * (weather.shortest + int(span * drawn * drawn))

    def passes(self, way: Way, target: str) -> bool:
        return not way.cuts and target not in self.down

    def heard_at(self, source: str, target: str) -> int:
        """Return when something last arrived from one machine at another; -1 if nothing ever did."""
        way = self._ways.get((source, target))
        return way.heard_at if way is not None else -1

    def sends(self, source: str) -> bool:
        """Return whether something is under way from this machine."""
        return any(end.pipe for way in self._ways_from[source] for end in way.ends)

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one machine to another."""
        self.way(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        way = self.way(source, target)
        way.cuts -= 1
        if not way.cuts:
            self._unstick(way)

    def _unstick(self, way: Way) -> None:
        """Send again what the way held; TCP finds out after a while that it can."""
        for endpoint in list(way.ends):
            pause = way.random.randrange(MILLISECOND, 400 * MILLISECOND)
            self.calendar.at(self.calendar.now + pause, self._retry, endpoint)

    def _retry(self, endpoint: Endpoint) -> None:
        if self.passes(endpoint.way, endpoint.peer.process.host):
            endpoint.unstick()

    def power_off(self, host: str) -> None:
        self.down.add(host)

    def power_on(self, host: str) -> None:
        self.down.discard(host)
        for (source, target), way in self._ways.items():
            if host in (source, target) and not way.cuts:
                self._unstick(way)

    def connections(self, one: str, other: str) -> list[Endpoint]:
        """Return the ends at the first machine of what is connected to the other."""
        return [end for end in self.way(one, other).ends if not end.gone and not end.peer.gone]

    def reset(self, endpoint: Endpoint) -> None:
        """Break a connection, as something between its ends may do: both hear of it."""
        self._reset_arrives(endpoint)
        self._reset_arrives(endpoint.peer)

    def send_reset(self, source: Endpoint, target: Endpoint) -> None:
        way = source.way
        if source.process.host in self.down:
            return
        self.calendar.at(self.calendar.now + self.delay(way), self._reset_arrives, target, way)

    def _reset_arrives(self, endpoint: Endpoint, way: Way | None = None) -> None:
        if way is not None and not self.passes(way, endpoint.process.host):
            return  # nobody sends a reset twice
        for end in (endpoint, endpoint.peer):  # what comes later belongs to nothing
            end.pipe.clear()
            end.stuck = False
        if not endpoint.reset_arrived and not endpoint.gone:
            endpoint.reset_arrived = True
            endpoint.notice()

    # Processes

    def leave(self, process: ProcessLoop, silently: bool) -> None:
        """Close what a dead process had open; silently, if its machine went with it."""
        for address, listening in list(self.listeners.items()):
            if listening.process is process:
                listening.closed = True
                del self.listeners[address]
                for endpoint in listening.waiting:
                    endpoint.die(silently)
        for endpoint in self._ends.pop(process, ()):
            endpoint.die(silently)

    def listen_at(self, process: ProcessLoop, host: str, port: int) -> Listening:
        if process.dead:
            raise Died
        if host != process.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self._port(host)
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listening = self.listeners[host, port] = Listening(self, process, (host, port))
        return listening

    def serve(
        self, process: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> SimServer:
        listening = self.listen_at(process, host, port)
        listening.factory = factory
        return SimServer(listening)

    async def accept(self, listening: Listening) -> tuple[Accepted, tuple[str, int]]:
        endpoint = await listening.accept()
        return Accepted(endpoint), endpoint.peer.address

    async def adopt(
        self, process: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], accepted: Accepted
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        protocol = factory()
        made = process.create_future()
        process.call_soon(connect, accepted.endpoint, protocol)
        process.call_soon(set_unless_cancelled, made)
        await made
        return accepted.endpoint, protocol

    async def dial(
        self, process: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        if process.dead:
            raise Died
        answer: asyncio.Future[Endpoint] = process.create_future()
        self._knock(process, (host, port), answer, 0)
        endpoint = await answer
        protocol = factory()
        connect(endpoint, protocol)
        return endpoint, protocol

    def _knock(
        self, process: ProcessLoop, address: tuple[str, int], answer: "asyncio.Future[Endpoint]", repeats: int
    ) -> None:
        """Send a SYN, and again while nothing comes back."""
        if process.dead or answer.done():
            return
        there = self.way(process.host, address[0])
        if self.passes(there, address[0]):
            self.calendar.at(
                self.calendar.now + process.spent + self.delay(there), self._knocked, process, address, answer
            )
        if repeats < MOST_REPEATS:
            again = self.calendar.now + (FIRST_REPEAT << repeats)
            self.calendar.at(again, self._knock, process, address, answer, repeats + 1)
        else:
            timed_out = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            process.arrived(lambda: None if answer.done() else answer.set_exception(timed_out))

    def _knocked(self, process: ProcessLoop, address: tuple[str, int], answer: "asyncio.Future[Endpoint]") -> None:
        back = self.way(address[0], process.host)
        listening = self.listeners.get(address)
        full = listening is not None and len(listening.waiting) >= BACKLOG
        if self.passes(back, process.host) and address[0] not in self.down and not full:
            due = self.calendar.now + self.delay(back)
            self.calendar.at(due, self._answered, process, address, answer, listening is not None)

    def _answered(
        self, process: ProcessLoop, address: tuple[str, int], answer: "asyncio.Future[Endpoint]", accepted: bool
    ) -> None:
        if process.dead or answer.done():
            return
        if not accepted:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            process.arrived(lambda: None if answer.done() else answer.set_exception(refused))
            return
        listening = self.listeners.get(address)
        there, back = self.way(process.host, address[0]), self.way(address[0], process.host)
        near = Endpoint(self, process, (process.host, self._port(process.host)), there)
        far = Endpoint(self, listening.process if listening is not None else process, address, back)
        near.peer, far.peer = far, near
        self._open(near)
        if listening is None:  # it ended meanwhile
            far.gone = far.closed = True
            self.send_reset(far, near)
        else:
            self._open(far)
            # What the dialler writes arrives behind its last packet of the handshake, so it may be accepted now.
            self.calendar.at(self.calendar.now + self.delay(there), self._welcome, listening, far)
        process.arrived(lambda: self._established(near, answer))

    def _welcome(self, listening: Listening, endpoint: Endpoint) -> None:
        if not listening.closed and not endpoint.gone:
            listening.offer(endpoint)
        elif not endpoint.gone:
            endpoint.closed = endpoint.gone = True
            self.send_reset(endpoint, endpoint.peer)

    def _established(self, endpoint: Endpoint, answer: "asyncio.Future[Endpoint]") -> None:
        if answer.done():  # nobody waits for it any more
            endpoint.abort()
        else:
            answer.set_result(endpoint)

    def _open(self, endpoint: Endpoint) -> None:
        ends = self._ends[endpoint.process]
        if len(ends) > 64:
            ends[:] = [end for end in ends if not end.gone]
        ends.append(endpoint)
        if len(endpoint.way.ends) > 64:
            endpoint.way.ends = [end for end in endpoint.way.ends if not end.gone or end.pipe]
        endpoint.way.ends.append(endpoint)

    def _port(self, host: str) -> int:
        self._ports[host] += 1
        return self._ports[host]


def set_unless_cancelled(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
