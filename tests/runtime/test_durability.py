"""Guards the order in which a node writes and speaks: nothing leaves before what it depends on is on disk."""

import asyncio
import io
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amcast.core.application import Delivery, state_in_pieces
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.runtime.durability import Deliveries, Durability, NodeSnapshot, read_snapshot
from amcast.runtime.engine import Tick
from amcast.runtime.frames import OURS
from amcast.runtime.identity import ClusterIdentity
from amcast.runtime.log import Log
from amcast.runtime.machine import REAL, Files, Limits, Machine
from amcast.runtime.snapshots import in_parts
from amcast.runtime.storage import Storage

IDENTITY = ClusterIdentity("white_box", "1 group of 3 replicas", "a digest", True, "log")


class Host:
    """A node of which only what its disk does to it is seen."""

    def __init__(self, folder: Path, machine: Machine = REAL) -> None:
        self.config = cast(Any, SimpleNamespace(name="test", identity=IDENTITY))
        self.me = cast(Any, SimpleNamespace(name="g0/0", data=folder))
        self.machine = machine
        self.said = io.StringIO()
        self.log = Log("g0/0", stream=self.said)
        self.metrics = cast(Any, SimpleNamespace(commits=SimpleNamespace(observe=lambda seconds: None)))
        self.leading = cast(Any, SimpleNamespace(give_up=lambda reason: None))
        self.formats = cast(Any, SimpleNamespace(knows=OURS, level=OURS.oldest))
        self.seen: list[str] = []
        self.errors: list[BaseException] = []
        self.handled = False  # something that is not applied yet
        self.disk = Durability(self)

    def release(self, tick: Tick) -> None:
        self.seen += [f"release {batch.decode()}" for _, batch in tick.batches]

    def delivered_for_good(self, deliveries: Deliveries) -> None:
        self.seen += [f"deliver {m.payload.decode()}" for m, _ in deliveries]

    def flush(self) -> None:
        self.handled = False
        self.disk.take(Tick())

    def snapshot(self) -> NodeSnapshot:
        assert not self.handled, "the protocol is ahead of the application"
        return NodeSnapshot(self.disk.history.end, [b"state"], [b"app"], [(1, 2, b"answer")])

    def committed(self, nanoseconds: int) -> None:
        assert nanoseconds >= 0

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.disk.fail()


def step(name: str, *, records: int = 0, urgent: bool = False, delivers: bool = False) -> Tick:
    tick = Tick()
    tick.batches = [(1, name.encode())]
    tick.records = [name.encode()] * records
    tick.urgent = urgent
    if delivers:
        tick.deliveries = [(AppMessage(message_id(9, 0), (0,), name.encode()), 1)]
    return tick


class Gate:
    """Stands before each commit until it is opened."""

    def __init__(self, storage: Storage) -> None:
        self._commit = storage.commit
        self.free = threading.Semaphore(0)
        self.error: OSError | None = None
        storage.commit = self.commit  # type: ignore[method-assign]

    def commit(self, records: list[bytes]) -> None:
        assert self.free.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self._commit(records)


def tried(
    folder: Path,
    test: Callable[[Host, Gate], Awaitable[None]],
    limits: Limits = REAL.limits,
    host_of: Callable[[Path, Machine], Host] = Host,
) -> tuple[NodeSnapshot | None, list[bytes]]:
    """Return what a node finds on its disk after the test: the snapshot and the records behind it."""

    async def main() -> None:
        host = host_of(folder, Machine(limits=limits))
        assert host.disk.open(new=True) == 1 and host.disk.storage is not None
        host.disk.storage.recover()
        host.disk.open_history()
        try:
            await test(host, Gate(host.disk.storage))
        finally:
            host.disk.close()

    asyncio.run(main())
    storage = Storage(folder, "test g0/0")
    try:
        found = storage.recover()
        return (read_snapshot(found.snapshot) if found.snapshot is not None else None), found.records
    finally:
        storage.close()


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.001)


def test_nothing_leaves_before_what_it_depends_on_is_on_disk(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        host.disk.take(step("first", records=1, urgent=True, delivers=True))
        host.disk.take(step("second"))  # needs no sync, but must not overtake
        host.disk.take(step("third", records=1, urgent=True))
        await asyncio.sleep(0.05)
        assert host.seen == [] and host.disk.unfinished
        gate.free.release()
        await until(lambda: host.seen)
        assert host.seen == ["deliver first", "release first"]
        gate.free.release()
        await until(lambda: len(host.seen) == 4)
        assert host.seen[2:] == ["release second", "release third"] and not host.errors

    assert tried(tmp_path, test) == (None, [b"first", b"third"])


def test_what_nothing_depends_on_goes_at_once_and_to_disk_later(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        gate.free.release()
        host.disk.take(step("calm", records=1, delivers=True))
        assert host.seen == ["release calm"], "a restart may still deliver it again"
        await until(lambda: not host.disk.unfinished)
        assert host.seen == ["release calm", "deliver calm"]

    assert tried(tmp_path, test, Limits(sync_after=0.01)) == (None, [b"calm"])


def test_without_records_nothing_waits(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        host.disk.keep_no_records()
        host.disk.take(step("in memory", records=1, urgent=True, delivers=True))
        assert host.seen == ["release in memory", "deliver in memory"]

    assert tried(tmp_path, test) == (None, [])


def test_a_failed_commit_releases_nothing_and_is_the_last(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        gate.error = OSError("no space")
        host.disk.take(step("lost", records=1, urgent=True, delivers=True))
        host.disk.take(step("after", records=1, urgent=True))
        gate.free.release(2)
        await until(lambda: host.errors)
        await host.disk.settle()
        assert host.seen == [] and len(host.errors) == 1

    assert tried(tmp_path, test) == (None, [])


def test_a_node_that_stops_keeps_what_waited_and_a_snapshot(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        host.disk.take(step("first", records=1, urgent=True))
        host.disk.take(step("waits", records=1, urgent=True, delivers=True))
        gate.free.release(2)
        await host.disk.settle()
        assert host.seen == ["release first", "deliver waits"], "it is on disk, but nobody hears of it"

    snapshot, records = tried(tmp_path, test)
    assert snapshot == NodeSnapshot(0, [b"state"], [b"app"], [(1, 2, b"answer")]) and records == []


def test_a_snapshot_takes_the_place_of_many_records(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        gate.free.release(3)
        for name in ("more than ten bytes", "behind", "last"):
            host.disk.take(step(name, records=1, urgent=True))
            await until(lambda: not host.disk.unfinished)

    snapshot, records = tried(tmp_path, test, Limits(snapshot_every=10))
    assert snapshot is not None and records == [b"last"]


def test_what_was_handled_while_the_disk_was_busy_is_applied_before_a_snapshot(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        host.disk.take(step("more than ten bytes", records=1, urgent=True))
        host.disk.take(step("behind", records=1, urgent=True))
        host.handled = True
        gate.free.release(2)
        await until(lambda: not host.disk.unfinished)
        assert not host.errors and not host.handled

    snapshot, records = tried(tmp_path, test, Limits(snapshot_every=10))
    assert snapshot is not None and records == []


def test_the_state_is_that_at_the_time_of_the_call() -> None:
    class Counter:
        count = 0

        def apply(self, delivery: Delivery) -> bytes:
            self.count += 1
            return b""

        def snapshot(self) -> bytes:
            return b"".join(self.snapshot_parts())

        def snapshot_parts(self) -> Iterator[bytes]:
            count = self.count  # in a generator: not before its first piece is asked for
            yield b"count "
            yield b"%d" % count

        def restore(self, state: bytes) -> None: ...

    app = Counter()
    pieces = state_in_pieces(app)
    app.count = 1
    assert b"".join(pieces) == b"count 0"


class Large(Host):
    """A node whose application has a state of fifty pieces."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        super().__init__(folder, machine)
        self.taken: list[str] = []  # the threads that took the pieces
        self.broken = False

    def snapshot(self) -> NodeSnapshot:
        return NodeSnapshot(self.disk.history.end, [b"state"], self.pieces(len(self.seen)), [])

    def pieces(self, released: int) -> Iterator[bytes]:
        for i in range(50):
            self.taken.append(threading.current_thread().name)
            if self.broken and i == 20:
                raise ValueError("a state that cannot be written")
            yield b"%9d," % (released * 1000 + i)


PIECEMEAL = Limits(snapshot_every=10, part_bytes=10, written_at_once=10)


def test_a_large_snapshot_holds_up_neither_the_loop_nor_commits(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        assert isinstance(host, Large)
        gate.free.release(10)
        host.disk.take(step("more than ten bytes", records=1, urgent=True))
        await until(lambda: not host.disk.unfinished)
        for number in range(1, 6):
            host.disk.take(step(f"behind it {number}", records=1, urgent=True))
            await until(lambda number=number: len(host.seen) > number)
            assert host.disk.storage is not None and host.disk.storage.saving and len(host.taken) < 4 * number + 4
        await until(lambda: not host.disk.unfinished)
        assert {name.partition("_")[0] for name in host.taken} == {"disk"}

    snapshot, records = tried(tmp_path, test, PIECEMEAL, Large)
    assert snapshot is not None and b"".join(snapshot.app) == b"".join(b"%9d," % (1000 + i) for i in range(50))
    assert records == [b"behind it %d" % number for number in range(2, 6)]


def test_a_node_that_stops_while_it_writes_a_snapshot_writes_another(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        gate.free.release(10)
        host.disk.take(step("more than ten bytes", records=1, urgent=True))
        await until(lambda: not host.disk.unfinished)
        host.disk.take(step("begins it", records=1, urgent=True))
        await until(lambda: len(host.seen) == 2)
        assert host.disk.storage is not None and host.disk.storage.saving
        await host.disk.settle()
        assert not host.disk.storage.saving

    snapshot, records = tried(tmp_path, test, PIECEMEAL, Large)
    assert snapshot is not None and b"".join(snapshot.app).startswith(b"     2000,") and records == []
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("every, records", [(10, [b"behind", b"last"]), (5000, [])])
def test_a_node_with_a_large_state_stops_without_writing_it_again(
    tmp_path: Path, every: int, records: list[bytes]
) -> None:
    """It has a snapshot, and a start reads less behind that than another one has. A small state is written."""

    async def test(host: Host, gate: Gate) -> None:
        assert isinstance(host, Large)
        gate.free.release(10)
        await host.disk.snapshot_above(-1, 0)
        host.disk.take(step("behind", records=1, urgent=True))
        await until(lambda: not host.disk.unfinished)
        pieces = len(host.taken)
        host.disk.take(step("last", records=1))
        await host.disk.settle()
        assert (len(host.taken) == pieces) == bool(records)

    limits = replace(PIECEMEAL, snapshot_every=every, sync_after=1000.0)
    snapshot, left = tried(tmp_path, test, limits, Large)
    assert snapshot is not None and left == records


def test_a_large_state_of_another_member_is_written_before_a_node_stops(tmp_path: Path) -> None:
    """Its records do not follow what the disk has: a start without it would read them behind the old state."""

    async def test(host: Host, gate: Gate) -> None:
        gate.free.release(10)
        await host.disk.snapshot_above(-1, 0)
        await until(lambda: not host.disk.unfinished)
        host.disk.begin_again(70)
        await host.disk.settle()

    snapshot, records = tried(tmp_path, test, PIECEMEAL, Large)
    assert snapshot is not None and snapshot.position == 70 and records == []


def test_a_state_that_cannot_be_written_stops_the_node_and_harms_nothing(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        assert isinstance(host, Large)
        host.broken = True
        gate.free.release(10)
        host.disk.take(step("more than ten bytes", records=1, urgent=True))
        await until(lambda: not host.disk.unfinished)
        host.disk.take(step("begins it", records=1, urgent=True))
        await until(lambda: host.errors)
        assert "a state that cannot be written" in str(host.errors)

    assert tried(tmp_path, test, PIECEMEAL, Large) == (None, [b"more than ten bytes", b"begins it"])


class Filling(Files):
    """A disk with as much room as one says."""

    room = 1000

    def free(self, path: Path) -> int:
        assert path.is_dir()
        return self.room


def test_clients_are_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    files = Filling()
    limits = Limits(alarm=500, reserve=100, measure_every=0.01)

    async def test(host: Host, gate: Gate) -> None:
        def events() -> list[str]:
            return [json.loads(line)["event"] for line in host.said.getvalue().splitlines()]

        async def commit(room: int) -> str | None:
            files.room = room
            gate.free.release()
            host.disk.take(step("more", records=1, urgent=True))
            await until(lambda: not host.disk.unfinished)
            return host.disk.short_of_space()

        assert await commit(500) is None and events() == []
        assert await commit(499) is None and events() == ["disk nearly full"]
        assert await commit(510) is None and events() == ["disk nearly full"], "not enough to call it over"
        assert await commit(99) == "0 MiB free on its disk, expected at least 0; make room there"
        files.room = 110
        await asyncio.sleep(0.05)
        assert host.disk.short_of_space() is not None
        files.room = 125
        await until(lambda: host.disk.short_of_space() is None)
        files.room = 625
        await until(lambda: not host.disk.space.low)
        assert events() == [
            "disk nearly full", "disk full but for the reserve", "disk nearly full", "disk has room again",
        ]  # fmt: skip
        files.room = 0
        host.disk.keep_no_records()
        assert host.disk.short_of_space() is None, "what lives in memory needs no room"

    tried(tmp_path, test, limits, lambda folder, machine: Host(folder, Machine(files=files, limits=limits)))


def test_a_state_of_others_is_durable_before_anything_leaves(tmp_path: Path) -> None:
    """Also what needs no record, and in many parts: until then the disk leads to the state before."""

    async def test(host: Host, gate: Gate) -> None:
        host.disk.take(step("before", records=1, urgent=True, delivers=True))
        host.disk.begin_again(70)
        host.disk.take(step("after"))
        host.disk.take(step("later", records=1))
        assert host.disk.storage is not None and host.disk.history.end == 70
        storage, release = host.disk.storage, host.release

        def durable(tick: Tick) -> None:
            if tick.batches and tick.batches[0][1] != b"before":
                assert storage.newest >= 0 and not storage.saving, "a snapshot comes first"
            release(tick)

        host.release = durable  # type: ignore[method-assign]
        gate.free.release(5)
        await until(lambda: len(host.seen) >= 4)
        assert host.seen == ["release before", "deliver before", "release after", "release later"] or host.seen == [
            "deliver before", "release before", "release after", "release later",
        ]  # fmt: skip
        host.disk.take(step("last", records=1, urgent=True))
        await until(lambda: "release last" in host.seen)
        assert not host.errors

    limits = replace(REAL.limits, part_bytes=5, written_at_once=5)
    snapshot, records = tried(tmp_path, test, limits)
    assert snapshot is not None and snapshot.position == 70 and records == [b"last"]


@pytest.mark.parametrize("part_bytes", [1, 7, 10**6])
def test_a_snapshot_is_the_same_in_parts_of_any_size(part_bytes: int) -> None:
    snapshot = NodeSnapshot(3, [b"state"], [b"app", b"", b"lication"], [(1, 2, b"answer")])
    found = read_snapshot(list(in_parts(snapshot.pieces(), part_bytes)))
    assert b"".join(found.app) == b"application"
    assert replace(found, app=()) == replace(snapshot, app=())
