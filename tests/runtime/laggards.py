"""A protocol that needs its driver: one leader, rows in its order, and whoever misses one can only pull a snapshot.

It tolerates nothing. So each test that uses it is about what the runtime does with `pulls`, `install`, `forgot`,
`trust` and `hand_over`, whatever the protocols of the product make of them.
"""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from librt.strings import BytesWriter
from nodes import until
from tests.pace import allow

from amcast.core.application import Delivery
from amcast.core.capabilities import Durable, Electing
from amcast.core.order import timestamp
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Hint, Multicast, Reply
from amcast.core.topology import MOST, Topology, sender_of
from amcast.core.wire import AppMessage, Codec, Message
from amcast.protocols.white_box.client import WhiteBoxClient
from amcast.runtime.config import ClusterConfig
from amcast.runtime.log import Log
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.node import Node

SECONDS = 20.0


@dataclass
class Placed(Message):
    """A message and its position; also as a record."""

    m: AppMessage
    position: int


@dataclass
class Leads(Message):
    """Who leads from now on, and how far it has got."""

    pid: int
    position: int


@dataclass
class Reached(Message):
    """In a snapshot: how many rows were delivered."""

    position: int


RECORDS: Final = Codec((Placed, Reached), MOST)


def encoded(record: Message) -> bytes:
    w = BytesWriter()
    RECORDS.write(w, record)
    return w.getvalue()


class Laggard(Process, Durable, Electing):
    """A member of the only group."""

    asks_first = 0
    forgets = ""  # why the next one that recovers must stop

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.members = topology.groups[0]
        self.leader = 0
        self.rows = 0
        self.seen = 0  # rows that there are
        self.rejoins = False
        self.lives = 1
        self.clean = True
        self.trusted = False
        self.under_way = 0
        self.source = Laggard.asks_first  # whom it asks

    def on_start(self) -> None:
        self.on_timer("tick")

    def on_timer(self, name: str) -> None:
        self.set_timer("tick", 50_000_000, 60_000_000)
        self.out.urgent = self.params.durable
        if self.leads():
            self.send(self.members, Leads(self.pid, self.rows))
        elif self.seen > self.rows or self.rejoins:
            self.out.pulls.append(self.source)

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Multicast):
            if not self.leads():
                self.send_one(sender, Hint(msg.m.mid, 0, self.leader))
                return
            self.send(tuple([p for p in self.members if p != self.pid]), Placed(msg.m, self.rows))
            self.take(msg.m)
        elif isinstance(msg, Placed):
            self.seen = max(self.seen, msg.position + msg.m.count)
            if msg.position == self.rows:
                self.take(msg.m)
        elif isinstance(msg, Leads):
            self.leader = msg.pid
            self.seen = max(self.seen, msg.position)

    def take(self, m: AppMessage) -> None:
        self.out.records.append(encoded(Placed(m, self.rows)))
        self.out.urgent = True
        self.deliver(m, timestamp(self.rows + 1, 0))
        self.rows += m.count
        self.seen = max(self.seen, self.rows)
        self.rejoins = False
        self.send_one(sender_of(m.mid), Reply(m.mid, 0, self.pid))

    def on_recover(self, records: list[bytes], starts: int, clean: bool) -> None:
        self.lives, self.clean = starts, clean
        for data in records:
            for record in RECORDS.read(data):
                if isinstance(record, Reached):
                    self.rows = record.position
                elif isinstance(record, Placed):
                    assert record.position == self.rows
                    self.deliver(record.m, timestamp(self.rows + 1, 0))
                    self.rows += record.m.count
        self.out.forgot = Laggard.forgets
        self.on_timer("tick")

    def on_rejoin(self, starts: int) -> None:
        self.lives, self.rejoins = starts, True
        self.on_timer("tick")

    def on_install(self, records: list[bytes]) -> None:
        reached = next(iter(RECORDS.read(records[0])))
        assert isinstance(reached, Reached)
        if reached.position > self.rows:
            self.rows = reached.position
            self.rejoins = False

    def on_trust(self) -> None:
        self.trusted = True

    def on_hand_over(self, to: int) -> None:
        if self.leads():
            self.leader = to if to >= 0 else next(p for p in self.members if p != self.pid)
            self.send(self.members, Leads(self.leader, self.rows))

    def on_suspect(self) -> None:
        pass

    def snapshot(self) -> list[bytes]:
        return [encoded(Reached(self.rows))]

    def position(self) -> int:
        return self.rows

    def rejoining(self) -> bool:
        return self.rejoins

    def backlog(self) -> int:
        return self.under_way

    def leads(self) -> bool:
        return self.leader == self.pid


ROW = Protocol(
    name="laggard", title="Laggards", replica=Laggard, client=WhiteBoxClient, messages=(Placed, Leads),
)  # fmt: skip


class Lines:
    """Keeps what it was told."""

    def __init__(self, group: int, groups: int) -> None:
        self.lines: list[bytes] = []

    def apply(self, delivery: Delivery) -> bytes:
        self.lines.append(delivery.payload)
        return b"%d" % len(self.lines)

    def snapshot(self) -> bytes:
        return b"\n".join(self.lines)

    def restore(self, state: bytes) -> None:
        self.lines = state.split(b"\n") if state else []


class Running:
    """Nodes in threads, each started and stopped as the test wants."""

    def __init__(self, config: ClusterConfig, traces: Path | None = None, row: Protocol = ROW) -> None:
        self.config = replace(config, largest_message=900)  # a link keeps two of them, whatever its limit
        self.nodes: dict[str, Node] = {}
        self._traces = traces
        self._row = row
        self._threads: dict[str, tuple[threading.Thread, list[BaseException]]] = {}

    def start(self, name: str, machine: Machine = REAL, *, wait: bool = True, **how: bool) -> Node:
        trace = self._traces / f"{name.replace('/', '-')}.jsonl" if self._traces is not None else None
        log = Log(name, "info", io.StringIO())
        node = Node(self.config, name, self._row, Lines, trace, log, machine=machine, **how)
        ready = threading.Event()
        ends: list[BaseException] = []

        def main() -> None:
            try:
                asyncio.run(node.run(ready.set))
            except BaseException as error:
                ends.append(error)
            ready.set()

        thread = threading.Thread(target=main, daemon=True)
        thread.start()
        self.nodes[name] = node
        self._threads[name] = thread, ends
        if wait:
            assert ready.wait(allow(SECONDS))
        return node

    def in_loop(self, name: str, act: Callable[[], object]) -> None:
        self.nodes[name]._loop.call_soon_threadsafe(act)

    def stop(self, name: str) -> BaseException | None:
        """Stop a node; return what it ended with."""
        thread, ends = self._threads.pop(name)
        node = self.nodes.pop(name)
        if thread.is_alive() and hasattr(node, "_stopping"):
            node._loop.call_soon_threadsafe(node.stop)
        thread.join(allow(SECONDS))
        assert not thread.is_alive(), "it does not stop"
        return ends[0] if ends else None

    def ended(self, name: str) -> BaseException:
        """Wait until a node stops by itself; return what it ended with."""
        thread, ends = self._threads.pop(name)
        del self.nodes[name]
        thread.join(allow(SECONDS))
        assert not thread.is_alive() and ends
        return ends[0]

    def lines(self, name: str) -> list[bytes]:
        executor = self.nodes[name].executor
        assert executor is not None and isinstance(executor.app, Lines)
        return executor.app.lines

    def level(self) -> bool:
        """Wait until all have the same."""
        return until(lambda: len({tuple(self.lines(name)) for name in self.nodes}) == 1, SECONDS)


@contextmanager
def laggards(config: ClusterConfig, traces: Path | None = None, row: Protocol = ROW) -> Iterator[Running]:
    found = Running(config, traces, row)
    try:
        yield found
    finally:
        ends = [found.stop(name) for name in list(found.nodes)]
    for end in ends:
        if end is not None:
            raise end
