"""How a replica gets the state of another one when it is far behind, or has lost its disk: by copying a snapshot.

The protocol says whom to ask (`Effects.pulls`), and asks again, perhaps somebody else, if nothing comes of it. So
whatever goes wrong here is logged and given up, and this replica is as it was before. A copy goes to a file of the data
folder, part by part. One that was cut off goes on where it stopped, if this process still lives, asks the same member
again, and that one still has that snapshot. When all is there and checked, a new application is made of it, in another
thread.
Only then, in one turn of the loop, protocol, application, answers and position change together (`install`).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ssl import SSLContext
from typing import Protocol, TypeVar

from amcast.errors import AmcastError, WireError
from amcast.runtime import frames
from amcast.runtime.config import Member
from amcast.runtime.durability import PULLED, Durability, NodeSnapshot, read_snapshot
from amcast.runtime.execution import Executor
from amcast.runtime.formats import Formats
from amcast.runtime.frames import Offer, Pull
from amcast.runtime.links import Asking, LinkHost
from amcast.runtime.snapshots import SnapshotCopy

T = TypeVar("T")


class PullHost(LinkHost, Protocol):
    """The node, as it takes over the state of another."""

    durability: Durability
    formats: Formats

    def new_application(self) -> Executor | None:
        """Return an application in its first state, beside the one that runs; None if there is none."""
        ...

    def install(self, snapshot: NodeSnapshot, executor: Executor | None, source: Member) -> None:
        """Go on from this snapshot, whose application has been restored, unless it is not ahead any more."""
        ...


class Pulls:
    """The copy that one replica makes of the state of others, one at a time."""

    def __init__(self, host: PullHost) -> None:
        self.doing = ""  # for people
        self._host = host
        self._limits = host.machine.limits
        self._task: asyncio.Task[None] | None = None
        self._copy: SnapshotCopy | None = None
        self._from: tuple[int, Offer] | None = None  # the member that is copied, and its snapshot
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pull")

    def wanted(self, pid: int, context: SSLContext | None) -> None:
        """Get the state of this member, unless one is being copied."""
        source = self._host.membership.peer(pid)
        if source is not None and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._pull(source, context))

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._thread.shutdown()
        self._drop()

    def _drop(self) -> None:
        copy, self._copy, self._from = self._copy, None, None
        if copy is not None:
            copy.drop()

    async def _pull(self, source: Member, context: SSLContext | None) -> None:
        asking = Asking(self._host, source)
        self.doing = f"asks {source.name} for its state"
        try:
            await asking.open(context)
            copy = await self._copied(asking)
            snapshot, executor = await self._in_thread(self._restored, copy)
            self._drop()
            self._host.install(snapshot, executor, source)
        except (OSError, TimeoutError, AmcastError) as error:
            if not isinstance(error, OSError | TimeoutError):
                self._drop()  # what does not fit must not be gone on with
            self._host.log.warning("snapshot not had", peer=source.name, error=str(error) or type(error).__name__)
        except Exception as error:  # a bug: half of it may be in place
            self._host.fail(error)
        finally:
            asking.close()
            self.doing = ""

    async def _copied(self, asking: Asking) -> SnapshotCopy:
        """Copy a snapshot of this member: a new one, or the rest of the one that was cut off."""
        pid, position = asking.peer.pid, self._host.durability.history.end
        known = self._from[1] if self._from is not None and self._from[0] == pid else None
        asking.send(frames.PULL, frames.encode(Pull(position, known)))
        _, body = await asking.receive(frames.OFFER, self._limits.seconds_of_pull)
        offer = frames.decode(frames.offer_decoder, body)
        if offer.position <= self._host.durability.history.end:
            raise WireError(f"{asking.peer.name} offers position {offer.position}, which is not ahead")
        if self._copy is None or self._from != (pid, offer):
            self._drop()
            path = self._host.me.data / PULLED
            self._copy = await self._in_thread(SnapshotCopy, self._host.machine, path, offer.number)
            self._from = pid, offer
        copy = self._copy
        self._host.log.info("snapshot begun", peer=asking.peer.name, position=offer.position, part=copy.pieces)
        asked = copy.pieces
        while not copy.whole:
            while asked < copy.pieces + self._limits.window:
                asking.send(frames.WANT, number=asked)  # behind the last part it is refused, when all is here
                asked += 1
            number, part = await asking.receive(frames.PART, self._limits.seconds_of_pull)
            if number != copy.pieces:
                raise WireError(f"part {number}, expected {copy.pieces}")
            self.doing = f"copies the state of {asking.peer.name}: {copy.size >> 20} MiB so far"
            await self._in_thread(self._add, copy, part)
        return copy

    def _add(self, copy: SnapshotCopy, part: bytes) -> None:
        """Write a part, where that leaves the reserve of the disk untouched. In the thread of this module."""
        free = self._host.machine.files.free(self._host.me.data)
        if free - len(part) < self._limits.reserve:
            raise AmcastError(f"{free >> 20} MiB free on the disk, which are its reserve; make room there")
        copy.add(part)

    def _restored(self, copy: SnapshotCopy) -> tuple[NodeSnapshot, Executor | None]:
        """Make an application of what was copied, beside the one that runs. In the thread of this module."""
        knows = self._host.formats.knows
        snapshot = read_snapshot(copy.parts(), knows.oldest, knows.newest)
        executor = self._host.new_application()
        if executor is not None:
            executor.begin(snapshot.app_version)
            executor.restore(b"".join(snapshot.app))
        return snapshot, executor

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
