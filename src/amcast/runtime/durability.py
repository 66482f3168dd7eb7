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
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

import msgspec

from amcast.core.wire import AppMessage
from amcast.errors import UsageError
from amcast.runtime.chain import Link
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.engine import Tick
from amcast.runtime.history import History
from amcast.runtime.identity import Described, described
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine
from amcast.runtime.metrics import Metrics
from amcast.runtime.space import Space
from amcast.runtime.storage import Storage

FORMAT: Final = b"amn2"  # 0.1.0 had no such word, and no state of it begins like this
LENGTH: Final = Struct("<Q")
PREFIX: Final = Struct("<4sQ")  # the format, and the length of what stands before the state of the application

Deliveries = list[tuple[AppMessage, int]]  # messages with their timestamps


class _Head(msgspec.Struct, array_like=True):
    """What stands before the state of the application. The order of the fields is the format on disk."""

    position: int
    protocol: list[bytes]
    results: list[tuple[int, int, bytes]]
    chain: Link | None = None
    app_version: int = 1


class _Snapshot010(msgspec.Struct, array_like=True):
    """A snapshot as 0.1.0 wrote it."""

    position: int
    protocol: list[bytes]
    app: bytes
    results: list[tuple[int, int, bytes]]


@dataclass(frozen=True)
class NodeSnapshot:
    """A node after so many deliveries: one cut through its protocol, its application and the answers it keeps."""

    position: int
    protocol: list[bytes]
    app: Iterable[bytes]  # in pieces, which are made when they are taken
    results: list[tuple[int, int, bytes]]  # sender, seq, answer
    chain: Link | None = None  # of what was applied; 0.1.0 wrote none
    app_version: int = 1  # of the application's state

    def pieces(self) -> Iterator[bytes]:
        """Return what is written to disk, and sent to a member without one."""
        head = msgspec.msgpack.encode(_Head(self.position, self.protocol, self.results, self.chain, self.app_version))
        yield PREFIX.pack(FORMAT, len(head))
        yield head
        yield from self.app


def read_snapshot(pieces: list[bytes]) -> NodeSnapshot:
    """Return the snapshot that was written in these pieces."""
    rest = deque(pieces)
    start = b""
    while rest and len(start) < PREFIX.size:
        start += rest.popleft()
    if not start.startswith(FORMAT):
        old = msgspec.msgpack.decode(b"".join([start, *rest]), type=_Snapshot010)
        return NodeSnapshot(old.position, old.protocol, [old.app], old.results)
    end = PREFIX.size + PREFIX.unpack_from(start)[1]
    while rest and len(start) < end:
        start += rest.popleft()
    head = msgspec.msgpack.decode(memoryview(start)[PREFIX.size : end], type=_Head)
    pieces = [start[end:], *rest]
    return NodeSnapshot(head.position, head.protocol, pieces, head.results, head.chain, head.app_version)


def joined_state(rows: list[bytes], snapshot: NodeSnapshot) -> Iterator[bytes]:
    """Return what a member without a disk is sent: the rows that it lacks in its trace, and a snapshot."""
    yield LENGTH.pack(sum(map(len, rows)))
    yield from rows
    yield from snapshot.pieces()


def split_state(data: bytes) -> tuple[bytes, bytes]:
    """Return the rows and the snapshot in what such a member has received."""
    end = LENGTH.size + LENGTH.unpack_from(data)[0]
    return data[LENGTH.size : end], data[end:]


class DiskHost(Protocol):
    """The node, as its disk sees it."""

    config: ClusterConfig
    me: Member
    log: Log
    machine: Machine
    metrics: Metrics

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
        self._stopped = False  # no other commit begins
        self._failed = False  # and what is in memory must not get to the disk any more

    def open(self, *, new: bool, rejoin: bool = False) -> int:
        """Lock the data folder; return how often a process has started in it, this time included."""
        config, me = self._host.config, self._host.me
        self.storage = Storage(me.data, f"{config.name} {me.name}", self._host.machine, new=new, rejoin=rejoin)
        try:
            self.described = described(me.data, self.storage.description, config.identity)
        except UsageError:
            self.keep_no_records()
            raise
        if rejoin:
            self.storage.begin_rejoin()
        self.space.measure()
        self._look_at_space()
        return self.storage.count_start()

    def describe(self, app_version: int) -> None:
        """Write down whose data this is, unless the folder says so already."""
        if self.described is None and self.storage is not None:
            self.described = Described(cluster=self._host.config.identity, app_version=app_version)
            self.storage.describe(self.described.encoded())

    def open_history(self, position: int = 0, *, on_disk: bool = True) -> None:
        """Go on with the ordered log at this position."""
        folder = self._host.me.data / "history" if on_disk else None
        self.history = History(folder, position, self._host.machine)

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
        if self._committing:
            return
        ticks, self._waiting = self._waiting, []
        for tick in ticks:
            self._unsynced += tick.records
            self._unsettled += tick.deliveries
        urgent = any(tick.urgent for tick in ticks)
        if self._unsynced and urgent:
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
        if unwritten and not self._committing and not self._stopped:
            self._write_behind([], cut=False)

    @property
    def _snapshot_is_due(self) -> bool:
        saving = self.storage is not None and self.storage.saving
        return self._since_snapshot > self._limits.snapshot_every and not saving

    def _write_behind(self, ticks: list[Tick], *, cut: bool) -> None:
        """Begin a commit in the thread of the disk; when it is done, release these steps."""
        self._committing = True
        records, deliveries = self._unsynced, self._unsettled
        self._unsynced, self._unsettled = [], []
        blocks = self.history.take_unwritten()
        snapshot = None
        if cut and self._snapshot_is_due:
            self._since_snapshot = 0
            snapshot = self._host.snapshot()  # here, not in the thread: the next step changes the state
        self._since_snapshot += sum(map(len, records))
        began = self._clock.monotonic_ns()
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._write, records, blocks, snapshot)
        future.add_done_callback(lambda done: self._committed(done, ticks, deliveries, began))

    def _write(self, records: list[bytes], blocks: list[bytes], snapshot: NodeSnapshot | None) -> None:
        """Write what one commit holds, in the thread of the disk, and begin a snapshot of the state behind it."""
        self.history.write(blocks)
        self.space.measure()
        if self.storage is None:
            return
        if records:
            self.storage.commit(records)
        if snapshot is not None:
            self.history.sync()  # first: rows before a snapshot are not delivered again after a restart
            self.storage.begin_snapshot(snapshot.pieces())

    def _committed(self, done: "asyncio.Future[None]", ticks: list[Tick], deliveries: Deliveries, began: int) -> None:
        self._committing = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._host.fail(error)
            return
        self._host.metrics.commits.observe((self._clock.monotonic_ns() - began) / 1e9)
        self._look_at_space()
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
            self._go_on(saved=True)
        except Exception as problem:
            self._host.fail(problem)

    # The end

    def fail(self) -> None:
        """Begin no other commit: the node is broken, and what it has in memory may be, too."""
        self._stopped = self._failed = True

    async def settle(self) -> None:
        """Finish the commit under way, and keep a snapshot so that the next start is quick."""
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
        await loop.run_in_executor(self._thread, self._write, self._unsynced, blocks, self._host.snapshot())
        while self.storage.saving:
            await loop.run_in_executor(self._thread, self.storage.save_some)
        self._host.delivered_for_good(self._unsettled)

    def close(self) -> None:
        if self._look_at is not None:
            self._look_at.cancel()
        self._thread.shutdown()
        self.keep_no_records()
        self.history.close()
