"""Fills the trace of a replica that skipped rows: with what it keeps itself, and with what others of its group keep.

A replica that takes over the state of another does not deliver the messages in it, but they are delivered there: a
trace of it must have them. So it reads them in the log of whoever keeps them, while it goes on. What it delivers
meanwhile is in its own log, and is traced behind them. If it stops before it is done, its next life goes on.
"""

import asyncio
from ssl import SSLContext
from typing import Final, Protocol

from amcast.errors import AmcastError, HistoryGone
from amcast.runtime import frames
from amcast.runtime.config import Member
from amcast.runtime.durability import Durability
from amcast.runtime.frames import Read
from amcast.runtime.links import Asking, LinkHost
from amcast.runtime.rows import unpack_rows
from amcast.runtime.tracing import ReplicaTrace, Row

FIRST_PAUSE: Final = 1.0  # seconds, before the others are asked again; twice as long each time …
LONGEST_PAUSE: Final = 60.0  # … up to this: one that has the rows may be away for days


class FillingHost(LinkHost, Protocol):
    """The node, as it completes its trace."""

    durability: Durability


class Filling:
    """What one replica does to complete its trace."""

    def __init__(self, host: FillingHost, trace: ReplicaTrace, context: SSLContext | None) -> None:
        self._host = host
        self._trace = trace
        self._context = context
        self._limits = host.machine.limits
        self._groups = len(host.config.topology.groups)
        self._pause = FIRST_PAUSE
        self._task: asyncio.Task[None] | None = None

    def look(self, source: Member | None = None) -> None:
        """Begin, if rows are missing; ask this member first."""
        if self._trace.lacks and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._fill(source))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _fill(self, source: Member | None) -> None:
        try:
            while self._trace.lacks:
                if self._trace.position < self._host.durability.history.earliest:
                    await self._fill_from_others(source)
                else:
                    self._fill_from_here()
                    await asyncio.sleep(0)
        except (AmcastError, OSError) as error:
            self._host.fail(error)

    def _fill_from_here(self) -> None:
        history = self._host.durability.history
        first, _, rows = history.read(self._trace.position, self._limits.rows_at_once)
        self._trace.fill(first, self._rows(rows))

    def _rows(self, block: bytes) -> list[Row]:
        return [(m, ts, index) for ts, index, _, m in unpack_rows(block, self._groups)]

    async def _fill_from_others(self, source: Member | None) -> None:
        """Ask those of the group, one after the other. If none of them keeps the next row, the trace ends."""
        me, config = self._host.me, self._host.config
        members = list(config.known.values()) if config.first else list(config.members)  # also those who were
        others = [member for member in members if member.group == me.group and member.pid != me.pid]
        others.sort(key=lambda member: member is not source)
        gone = 0
        for member in others:
            asking = Asking(self._host, member)
            try:
                await asking.open(self._context)
                while self._trace.position < self._host.durability.history.earliest:
                    await self._read(asking)
                    self._pause = FIRST_PAUSE
                return
            except HistoryGone:
                gone += 1
            except (OSError, TimeoutError, AmcastError) as error:
                gone += member not in config.members  # it need not come back
                self._host.log.info("no rows yet", peer=member.name, error=str(error) or type(error).__name__)
            finally:
                asking.close()
        if gone == len(others):
            kept = self._host.durability.history.earliest
            self._host.log.warning("trace ends", missing_from=self._trace.position, missing_to=kept)
            self._trace.end(kept)
            return
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _read(self, asking: Asking) -> None:
        at = self._trace.position
        asking.send(frames.READ, frames.encode(Read(0, at, self._limits.rows_at_once, 0)))
        _, body = await asking.receive(frames.ROWS, self._limits.seconds_of_pull)
        answer = frames.decode(frames.rows_decoder, body)
        if at < answer.earliest:
            raise HistoryGone(f"position {at} is no longer kept by {asking.peer.name}")
        if at >= answer.end:
            raise AmcastError(f"{asking.peer.name} is at {answer.end} itself")
        self._trace.fill(answer.first, self._rows(answer.rows))
