"""What a node makes durable, when, and what waits for that.

Three things go to disk: the records of the protocol (`storage.py`, synced before anything that depends on them leaves
the node), the ordered log for readers (`history.py`, written beside them, synced with snapshots only), and snapshots,
which take the place of all records before them. One thread does it, one commit at a time: while it is busy, what
depends on the disk piles up for the next commit, so that a busy node syncs once for many steps.

What must hold, whoever changes this:

- Nothing of a step that urgently needs its records is released before they are synced; steps are released in the order
  in which they were taken, also those that need no sync, for links deliver in order.
- A delivery is traced when a restart would not deliver it again, and not before.
- The parts of a snapshot belong together (`DiskHost.snapshot`). It goes to disk behind the records that were taken
  before it: it may hold more than they say, never less.
- A node that took over the state of another (`begin_again`) releases nothing before a snapshot of it is durable: its
  records alone would lead to the state before.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Protocol, TypeVar

import msgspec

from amcast.core.wire import AppMessage
from amcast.errors import UsageError, WireError
from amcast.runtime.chain import Link
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.engine import Tick
from amcast.runtime.frames import Spoken
from amcast.runtime.history import History
from amcast.runtime.identity import FORMAT, OLDEST, Described, described
from amcast.runtime.leading import Leading
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine
from amcast.runtime.metrics import Metrics
from amcast.runtime.snapshots import SnapshotWriter
from amcast.runtime.space import Space
from amcast.runtime.storage import Storage

CUT: Final = "cut-"  # the state at a mark, for a backup, and its number
OFFERED: Final = "offered-"  # a snapshot for others of a node that keeps none for itself, and its position
PULLED: Final = "pulled.new"  # a copy of another member's snapshot
PREFIX: Final = Struct(
    "<4sQ"
)  # "amn" and the format, and the length of what stands before the state of the application

T = TypeVar("T")
Deliveries = list[tuple[AppMessage, int]]  # messages with their timestamps


class _Head(msgspec.Struct, array_like=True):
    """What stands before the state of the application. The order of the fields is the format on disk."""

    position: int
    protocol: list[bytes]
    results: list[tuple[int, int, bytes]]
    chain: Link | None = None
    app_version: int = 1


@dataclass(frozen=True)
class NodeSnapshot:
    """A node after so many deliveries: one cut through its protocol, its application and the answers it keeps."""

    position: int
    protocol: list[bytes]
    app: Iterable[bytes]  # in pieces, which are made when they are taken
    results: list[tuple[int, int, bytes]]  # sender, seq, answer
    chain: Link | None = None  # of what was applied; 0.1.0 wrote none
    app_version: int = 1  # of the application's state
    format: int = OLDEST  # in use at this position, and that in which it is written

    def pieces(self) -> Iterator[bytes]:
        """Return what is written to disk, and sent to a member without one."""
        head = msgspec.msgpack.encode(_Head(self.position, self.protocol, self.results, self.chain, self.app_version))
        yield PREFIX.pack(b"amn%d" % self.format, len(head))
        yield head
        yield from self.app


def read_snapshot(pieces: list[bytes], oldest: int = OLDEST, newest: int = FORMAT) -> NodeSnapshot:
    """Return the snapshot that was written in these pieces."""
    rest = deque(pieces)
    start = b""
    while rest and len(start) < PREFIX.size:
        start += rest.popleft()
    format = next((n for n in range(oldest, newest + 1) if start.startswith(b"amn%d" % n)), 0)
    if not format:
        wanted = " or ".join(f"{b'amn%d' % n!r}" for n in range(oldest, newest + 1))
        raise UsageError(f"a snapshot of format {start[:4]!r}, expected {wanted}; run the amcast that wrote it")
    end = PREFIX.size + PREFIX.unpack_from(start)[1]
    while rest and len(start) < end:
        start += rest.popleft()
    head = msgspec.msgpack.decode(memoryview(start)[PREFIX.size : end], type=_Head)
    pieces = [start[end:], *rest]
    return NodeSnapshot(head.position, head.protocol, pieces, head.results, head.chain, head.app_version, format)


@dataclass(frozen=True)
class Saved:
    """A snapshot on disk: its number in the folder, the position of its state, and where it is."""

    number: int
    position: int
    path: Path


class Known(Protocol):
    """Which formats this node knows and writes (`formats.py`)."""

    knows: Spoken

    @property
    def level(self) -> int: ...


class DiskHost(Protocol):
    """The node, as its disk sees it."""

    config: ClusterConfig
    me: Member
    log: Log
    machine: Machine
    metrics: Metrics
    leading: Leading

    @property
    def formats(self) -> "Known": ...

    def release(self, tick: Tick) -> None:
        """Send what a step wants sent: its records are durable, or it has none that anybody depends on."""

    def delivered_for_good(self, deliveries: Deliveries) -> None:
        """Take note that a restart will not repeat these deliveries."""

    def flush(self) -> None:
        """Apply what was handled, and hand it over by `take`."""

    def snapshot(self) -> NodeSnapshot:
        """Return the node's state, all parts after the same deliveries. Raises if something was handled since."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop: the disk cannot be trusted."""

    def committed(self, nanoseconds: int) -> None:
        """Take note of how long a commit took."""


class Durability:
    """The disk of one node. Everything but `_write` runs in the event loop."""

    def __init__(self, host: DiskHost) -> None:
        self.history = History(None, machine=host.machine)
        self.storage: Storage | None = None  # None: nothing but the history is kept
        self.described: Described | None = None  # None: nothing yet, or by 0.1.0
        self.space = Space(host.machine, host.me.data, host.log)
        self._host = host
        self._clock = host.machine.clock
        self._limits = host.machine.limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._committing = False
        self._waiting: list[Tick] = []  # for the commit after this one
        self._unsynced: list[bytes] = []  # records that nothing depends on yet …
        self._unsettled: Deliveries = []  # … and the deliveries that go with them
        self._sync_at: asyncio.TimerHandle | None = None
        self._look_at: asyncio.TimerHandle | None = None
        self._since_snapshot = 0  # bytes of records
        self._saving_at = -1  # position of the snapshot that is being written
        self._newest: Saved | None = None
        self._must_save = False  # nothing is released before the next snapshot is durable
        self._wanted: list[tuple[int, asyncio.Future[Saved]]] = []  # who waits for one that is ahead of a position
        self._offering = asyncio.Lock()
        self._offers: list[int] = []  # positions of snapshots for others, of a node that keeps none for itself
        self.rejoining = False  # the folder holds nothing of this replica's own
        self.doubted = False  # it may lack something, and nobody has confirmed yet that it does not
        self._stopped = False  # no other commit begins
        self._failed = False  # and what is in memory must not get to the disk any more

    def open(self, *, new: bool, rejoin: bool = False) -> int:
        """Lock the data folder; return how often a process has started in it, this time included."""
        config, me = self._host.config, self._host.me
        self.storage = Storage(me.data, f"{config.name} {me.name}", self._host.machine, new=new, rejoin=rejoin)
        knows = self._host.formats.knows
        try:
            self.described = described(me.data, self.storage.description, config.identity, knows.oldest, knows.newest)
        except UsageError:
            self.keep_no_records()
            raise
        if rejoin:
            self.storage.begin_rejoin()
        self.rejoining = self.storage.rejoining
        self._sweep()
        self.space.measure()
        self._look_at_space()
        return self.storage.count_start()

    def _sweep(self) -> None:
        """Remove what an earlier life left of snapshots for others, of those of others, and of backups."""
        files, folder = self._host.machine.files, self._host.me.data
        for name in files.names(folder):
            if name.startswith((OFFERED, CUT)) or name == PULLED:
                files.remove(folder / name)

    def describe(self, app_version: int) -> None:
        """Write down whose data this is, unless the folder says so already."""
        if self.described is None and self.storage is not None:
            format = self._host.formats.level
            self.described = Described(cluster=self._host.config.identity, app_version=app_version, format=format)
            self.storage.describe(self.described.encoded())

    def describe_format(self, format: int) -> None:
        """Write down that this format is in use, before anything is written in it."""
        if self.described is not None and self.storage is not None and self.described.format < format:
            self.described = msgspec.structs.replace(self.described, format=format)
            self.in_thread(self.storage.describe, self.described.encoded()).add_done_callback(self._confirmed)

    def open_history(self, position: int = 0, *, on_disk: bool = True) -> None:
        """Go on with the ordered log at this position."""
        folder = self._host.me.data / "history" if on_disk else None
        self.history = History(folder, position, self._host.machine)

    def recovered(self, position: int) -> None:
        """Take note of the newest snapshot, which this node has just restored."""
        assert self.storage is not None
        n = self.storage.newest
        self._newest = Saved(n, position, self.storage.folder / f"snapshot-{n}")

    def begin_again(self, position: int) -> None:
        """Go on behind the state of another member: without the rows before it, and with a snapshot of our own first.

        The disk still leads to the state before. So nothing that depends on the new one may leave until it does not.
        """
        self.history = self.history.behind(position)
        self.save_first()

    def save_first(self) -> None:
        """Release nothing else before a snapshot is durable. If this replica rejoins, that is its own data again."""
        self._must_save = self.storage is not None

    def confirm(self) -> None:
        """Have the next start believe the folder: the others have confirmed that it lacks nothing."""
        self.doubted = False
        if self.storage is not None:
            self.in_thread(self.storage.confirm).add_done_callback(self._confirmed)

    def _confirmed(self, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._host.fail(error)

    # Snapshots for others

    def in_thread(self, work: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
        """Do this in the thread of the disk, between two commits."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def snapshot_above(self, position: int, most_behind: int) -> Saved:
        """Return a snapshot on disk that is ahead of this position: the newest, or a new one.

        A new one is made, too, if more than so many bytes of records came since: who copied the old one would have to
        ask for another at once.
        """
        if self.history.end <= position:
            raise WireError(f"{self._host.me.name} is at {self.history.end}, not ahead of {position}")
        newest = self._newest
        if newest is not None and newest.position > position and self._since_snapshot <= most_behind:
            return newest
        if self.storage is None:
            async with self._offering:  # one file at a time
                return await self._offer()
        future: asyncio.Future[Saved] = asyncio.get_running_loop().create_future()
        self._wanted.append((position, future))
        if not self._committing:
            self._host.flush()
        return await future

    async def _offer(self) -> Saved:
        """Write a snapshot although this node keeps none for itself."""
        self._host.flush()
        found = self._host.snapshot()
        path = self._host.me.data / f"{OFFERED}{found.position}"
        if found.position not in self._offers:
            writer = SnapshotWriter(self._host.machine, path, found.position, found.pieces())
            while not await self.in_thread(writer.write_some):
                pass
            self._offers.append(found.position)
        self._newest = Saved(found.position, found.position, path)
        return self._newest

    def pin(self, saved: Saved) -> bool:
        """Keep a snapshot while somebody copies it; return whether it is still there. In the thread of the disk."""
        if self.storage is not None:
            return self.storage.pin(saved.number)
        return self._host.machine.files.exists(saved.path)

    def unpin(self, saved: Saved) -> None:
        """Keep it no longer for that. In the thread of the disk."""
        if self.storage is not None:
            self.storage.unpin(saved.number)
        elif saved is not self._newest and saved.position in self._offers:
            self._offers.remove(saved.position)
            self._host.machine.files.remove(saved.path)

    def keep_no_records(self) -> None:
        """Unlock the folder of a node whose cluster lives in memory."""
        if self.storage is not None:
            self.storage.close()
            self.storage = None

    def short_of_space(self) -> str | None:
        """Return why clients must be refused before the disk is full; None while there is room."""
        return self.space.short() if self.storage is not None or self.history.on_disk else None

    def _look_at_space(self) -> None:
        self.space.look()
        if reason := self.short_of_space():
            self._host.leading.give_up(reason)
        if self.space.low and self._look_at is None and not self._stopped:  # else every commit has a look
            loop = asyncio.get_running_loop()
            self._look_at = loop.call_later(self._limits.measure_every, self._measure_behind)

    def _measure_behind(self) -> None:
        self._look_at = None
        if not self._stopped:
            future = asyncio.get_running_loop().run_in_executor(self._thread, self.space.measure)
            future.add_done_callback(self._measured)

    def _measured(self, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._host.fail(error)
        else:
            self._look_at_space()

    @property
    def unfinished(self) -> bool:
        return bool(self._unsynced) or self._committing

    # While it runs

    def append(self, deliveries: Deliveries) -> None:
        """Add deliveries to the ordered log that clients read."""
        self.history.append(deliveries, self._clock.wall_ns())
        if self.storage is None and self.history.on_disk:  # else they are written with the records
            self._sync_later()

    def take(self, tick: Tick) -> None:
        """Have a step released as soon as that is safe: at once where there is no disk to wait for."""
        if self.storage is None:
            self._host.release(tick)
            self._host.delivered_for_good(tick.deliveries)
            return
        self._waiting.append(tick)
        self._commit(cut=True)

    def _commit(self, *, cut: bool) -> None:
        """Make durable what waits, unless that is being done; what needs no commit goes out at once.

        `cut` says that all that the protocol handled is applied, and that a snapshot may be taken.
        """
        if self._committing or (self._must_save and not cut):
            return
        ticks, self._waiting = self._waiting, []
        for tick in ticks:
            self._unsynced += tick.records
            self._unsettled += tick.deliveries
        urgent = any(tick.urgent for tick in ticks)
        waited_for = cut and (self._must_save or bool(self._wanted)) and self._snapshot_is_due
        if (self._unsynced and urgent) or waited_for:
            self._write_behind(ticks, cut=cut)
            return
        for tick in ticks:
            self._host.release(tick)
        if self._unsynced:
            self._sync_later()

    def _sync_later(self) -> None:
        if self._sync_at is None:
            self._sync_at = asyncio.get_running_loop().call_later(self._limits.sync_after, self._sync)

    def _sync(self) -> None:
        self._sync_at = None
        unwritten = self._unsynced or self.storage is None
        if unwritten and not self._committing and not self._stopped and not self._must_save:
            self._write_behind([], cut=False)

    @property
    def _snapshot_is_due(self) -> bool:
        if self._must_save:
            return True
        saving = self.storage is not None and self.storage.saving
        return (self._since_snapshot > self._limits.snapshot_every or bool(self._wanted)) and not saving

    def _write_behind(self, ticks: list[Tick], *, cut: bool) -> None:
        """Begin a commit in the thread of the disk; when it is done, release these steps."""
        self._committing = True
        records, deliveries = self._unsynced, self._unsettled
        self._unsynced, self._unsettled = [], []
        blocks = self.history.take_unwritten()
        snapshot = None
        whole = self._must_save
        if cut and self._snapshot_is_due:
            self._since_snapshot = 0
            self._must_save = False
            snapshot = self._host.snapshot()  # here, not in the thread: the next step changes the state
            self._saving_at = snapshot.position
        self._since_snapshot += sum(map(len, records))
        began = self._clock.monotonic_ns()
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._write, records, blocks, snapshot, whole)
        future.add_done_callback(lambda done: self._committed(done, ticks, deliveries, began))

    def _write(
        self, records: list[bytes], blocks: list[bytes], snapshot: NodeSnapshot | None, whole: bool = False
    ) -> None:
        """Write what one commit holds, in the thread of the disk, and begin a snapshot of the state behind it.

        `whole`: finish it, too. It is the first of this replica's own after it had lost its disk, or was far behind.
        """
        self.history.write(blocks)
        self.space.measure()
        if self.storage is None:
            return
        if records:
            self.storage.commit(records)
        if snapshot is not None:
            self.history.sync()  # first: rows before a snapshot are not delivered again after a restart
            self.storage.begin_snapshot(snapshot.pieces())
            while whole and not self.storage.save_some():
                pass
            if whole and self.rejoining:
                self.storage.end_rejoin()  # only now: until then every start rejoins
                self.rejoining = False

    def _committed(self, done: "asyncio.Future[None]", ticks: list[Tick], deliveries: Deliveries, began: int) -> None:
        self._committing = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._host.fail(error)
            return
        took = self._clock.monotonic_ns() - began
        self._host.metrics.commits.observe(took / 1e9)
        self._host.committed(took)
        self._look_at_space()
        if self._saving_at >= 0 and self.storage is not None and not self.storage.saving:
            self._finished()  # in the same commit
        try:
            self._host.delivered_for_good(deliveries)
            for tick in ticks:
                self._host.release(tick)
            self._go_on(saved=False)
        except Exception as problem:  # half of what was committed may have left
            self._host.fail(problem)

    def _go_on(self, *, saved: bool) -> None:
        """Begin what the disk does next: commits and parts of a snapshot take turns, so that none waits for long."""
        if self._stopped or self._committing:
            return
        saving = self.storage is not None and self.storage.saving
        if self._snapshot_is_due:  # messages may have been handled in this turn, also by `release`
            self._host.flush()
        elif self._waiting and (saved or not saving):
            self._commit(cut=False)
        if saving and not self._committing:
            self._save_behind()

    def _save_behind(self) -> None:
        """Begin to write the next part of a snapshot in the thread of the disk."""
        assert self.storage is not None
        self._committing = True
        future = asyncio.get_running_loop().run_in_executor(self._thread, self.storage.save_some)
        future.add_done_callback(self._saved)

    def _saved(self, done: "asyncio.Future[bool]") -> None:
        self._committing = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._host.fail(error)
            return
        try:
            if done.result():
                self._finished()
            self._go_on(saved=True)
        except Exception as problem:
            self._host.fail(problem)

    def _finished(self) -> None:
        """Take note of a snapshot that is durable; hand it to those who wait for one."""
        assert self.storage is not None
        n = self.storage.newest
        self._newest = Saved(n, self._saving_at, self.storage.folder / f"snapshot-{n}")
        self._saving_at = -1
        wanted, self._wanted = self._wanted, []
        for position, future in wanted:
            if future.done():
                continue
            if self._newest.position > position:
                future.set_result(self._newest)
            elif self.history.end > position:
                self._wanted.append((position, future))
            else:
                future.set_exception(WireError(f"{self._host.me.name} is not ahead of {position}"))

    # The end

    def fail(self) -> None:
        """Begin no other commit: the node is broken, and what it has in memory may be, too."""
        self._stopped = self._failed = True

    async def settle(self) -> None:
        """Finish the commit under way, and keep a snapshot so that the next start is quick.

        Of a state that is larger than what a start may have to read behind a snapshot none is written: that would take
        longer than the start gains. What is left then is as after a crash.
        """
        self._stopped = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.seconds_to_stop
        while self._committing and loop.time() < deadline:
            await asyncio.sleep(0.005)
        if self.storage is None or self._committing or self._failed:
            return
        for tick in self._waiting:  # never released, but handled and applied: the snapshot holds them
            self._unsynced += tick.records
            self._unsettled += tick.deliveries
        blocks = self.history.take_unwritten()
        files, newest = self._host.machine.files, self._newest
        large = newest is not None and bool(files.read_at(newest.path, self._limits.snapshot_every, 1))
        snapshot = None if large and not self._must_save else self._host.snapshot()
        await loop.run_in_executor(self._thread, self._write, self._unsynced, blocks, snapshot, self._must_save)
        while snapshot is not None and self.storage.saving:
            await loop.run_in_executor(self._thread, self.storage.save_some)
        self._host.delivered_for_good(self._unsettled)

    def close(self) -> None:
        if self._look_at is not None:
            self._look_at.cancel()
        self._thread.shutdown()
        self.keep_no_records()
        self.history.close()
