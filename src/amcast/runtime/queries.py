"""Reads of an application's state, answered by the leader of its group without a place in the order.

All reads that come in one turn are confirmed together: the process asks a quorum whether it still leads, and says when
that is certain and all is delivered that anybody was told before (`Confirming`). Then they are answered from the state,
behind the deliveries of that turn. So a read sees every write that was acknowledged before it was asked, whoever
acknowledged it, and nothing goes to the disk. Who does not lead says so, and the client asks another one.
"""

import asyncio
from typing import Final, Protocol

from amcast.core.application import Queried, Speculator
from amcast.core.capabilities import Confirming, Electing
from amcast.core.protocol import Protocol as Row
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig, Grant, Member
from amcast.runtime.engine import Engine
from amcast.runtime.execution import Executor
from amcast.runtime.frames import Refusal
from amcast.runtime.framing import frame
from amcast.runtime.machine import Machine

MOST_WAITING: Final = 4096  # reads of all clients


class QueriesHost(Protocol):
    """The node, as those see it who read its application's state."""

    config: ClusterConfig
    me: Member
    protocol: Row
    machine: Machine
    engine: Engine
    app: Executor | Speculator | None

    def act(self) -> None:
        """Have what the process wants done be done, at the end of this turn."""

    def now(self) -> int: ...


class Asker(Protocol):
    """The connection of a client."""

    transport: asyncio.Transport
    grant: Grant | None


Waiting = tuple[Asker, int, bytes]  # who asks, the number of the read, and what it asks


class Queries:
    """The reads that one replica has under way."""

    def __init__(self, host: QueriesHost) -> None:
        self._host = host
        self._next = host.machine.random.getrandbits(32)  # no number of an earlier life
        self._new: list[Waiting] = []
        self._asked: dict[int, list[Waiting]] = {}
        self._patience: asyncio.TimerHandle | None = None

    def take(self, asker: Asker, number: int, request: bytes) -> None:
        """Read for a client, or say why not."""
        assert asker.grant is not None
        host = self._host
        executor = host.app
        if host.me.group not in asker.grant.read:
            self._refuse((asker, number, b""), f"{asker.grant.name} may not read g{host.me.group}")
        elif not isinstance(executor, Executor) or not isinstance(executor.app, Queried):
            self._refuse((asker, number, b""), f"application {host.config.app} has no method query")
        elif not self._leads():
            self._refuse((asker, number, b""), f"{host.me.name} does not lead", frames.UNAVAILABLE)
        elif len(self._new) + sum(map(len, self._asked.values())) >= MOST_WAITING:
            self._refuse((asker, number, b""), f"{host.me.name} has {MOST_WAITING} reads under way", frames.BUSY)
        else:
            self._new.append((asker, number, request))
            host.act()

    def _leads(self) -> bool:
        process = self._host.engine.process
        return isinstance(process, Electing) and isinstance(process, Confirming) and process.leads()

    def ask(self) -> None:
        """Have the process find out whether it leads, once for all reads of this turn."""
        if not self._new:
            return
        process = self._host.engine.process
        assert isinstance(process, Confirming)
        self._next += 1
        self._asked[self._next], self._new = self._new, []
        process.confirm(self._host.now(), self._next)
        if self._patience is None:
            self._look_later()

    def _look_later(self) -> None:
        seconds = 2 * self._host.config.suspect_ms / 1000
        self._patience = asyncio.get_running_loop().call_later(seconds, self._look, self._next)

    def _look(self, newest: int) -> None:
        """Give up what was asked before the last look: no quorum answers."""
        self._patience = None
        for number in [number for number in self._asked if number <= newest]:
            for waiting in self._asked.pop(number):
                self._refuse(waiting, f"no quorum says that {self._host.me.name} leads", frames.UNAVAILABLE)
        if self._asked:
            self._look_later()

    def confirmed(self, numbers: list[int]) -> None:
        """Answer: what was delivered by now is executed."""
        for number in numbers:
            for asker, read, request in self._asked.pop(number, []):
                executor = self._host.app
                assert isinstance(executor, Executor)
                if not asker.transport.is_closing():
                    asker.transport.write(frame(frames.QUERIED, executor.query(request), read))

    def stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def _refuse(self, waiting: Waiting, reason: str, kind: int = frames.FORBIDDEN) -> None:
        asker, number, _ = waiting
        if not asker.transport.is_closing():
            asker.transport.write(frame(frames.FAILED, frames.encode(Refusal(-1, reason, number, kind))))
