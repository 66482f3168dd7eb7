"""Guards the order in which a node writes and speaks: nothing leaves before what it depends on is on disk."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.runtime.durability import Deliveries, Durability, NodeSnapshot
from amcast.runtime.engine import Tick
from amcast.runtime.machine import REAL, Limits, Machine
from amcast.runtime.storage import Storage


class Host:
    """A node of which only what its disk does to it is seen."""

    def __init__(self, folder: Path, machine: Machine = REAL) -> None:
        self.config = cast(Any, SimpleNamespace(name="test"))
        self.me = cast(Any, SimpleNamespace(name="g0/0", data=folder))
        self.machine = machine
        self.metrics = cast(Any, SimpleNamespace(commits=SimpleNamespace(observe=lambda seconds: None)))
        self.seen: list[str] = []
        self.errors: list[BaseException] = []
        self.disk = Durability(self)

    def release(self, tick: Tick) -> None:
        self.seen.append(f"release {tick.batches[0][1].decode()}")

    def delivered_for_good(self, deliveries: Deliveries) -> None:
        self.seen += [f"deliver {m.payload.decode()}" for m, _ in deliveries]

    def snapshot(self) -> NodeSnapshot:
        return NodeSnapshot(self.disk.history.end, [b"state"], b"app", [(1, 2, b"answer")])

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
    folder: Path, test: Callable[[Host, Gate], Awaitable[None]], limits: Limits = REAL.limits
) -> tuple[NodeSnapshot | None, list[bytes]]:
    """Return what a node finds on its disk after the test: the snapshot and the records behind it."""

    async def main() -> None:
        host = Host(folder, Machine(limits=limits))
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
        return (
            msgspec.msgpack.decode(found.snapshot, type=NodeSnapshot) if found.snapshot is not None else None
        ), found.records
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
    assert snapshot == NodeSnapshot(0, [b"state"], b"app", [(1, 2, b"answer")]) and records == []


def test_a_snapshot_takes_the_place_of_many_records(tmp_path: Path) -> None:
    async def test(host: Host, gate: Gate) -> None:
        gate.free.release(3)
        for name in ("more than ten bytes", "behind", "last"):
            host.disk.take(step(name, records=1, urgent=True))
            await until(lambda: not host.disk.unfinished)

    snapshot, records = tried(tmp_path, test, Limits(snapshot_every=10))
    assert snapshot is not None and records == [b"last"]
