"""What the round-based broadcast protocols share: batches, their messages, delivery, and the client.

In a round every server broadcasts one batch of application messages, and all batches of a round are delivered by
origin. Servers multicast themselves or take messages of clients; a client that hears nothing asks another server, so a
message of a client may be in two batches, and only its first copy is delivered.
"""

from dataclasses import dataclass, field
from typing import Final, final

from amcast.core.capabilities import Rounds
from amcast.core.order import BOTTOM
from amcast.core.process import Effects, Params, Process, Supply
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message, wired
from amcast.protocols.parts.sessions import DeliveredMessages

BATCH: Final = 4096  # messages in one batch at most
RETRY: Final = 60  # in δ: a client that has no reply by then asks another server

Batch = tuple[AppMessage, ...]
Control = tuple[tuple[int, ...], ...]  # agreed upon with the batch: revocations, reconfigurations


@dataclass
class RoundMessage(Message):
    """What `origin` broadcasts in round r of epoch e."""

    eon: int
    e: int
    r: int
    origin: int
    batch: Batch = field(metadata=wired(Batch))
    control: Control = field(metadata=wired(Control))
    rows: list[tuple[AppMessage, int]] = field(init=False, compare=False, repr=False, default_factory=list)

    def rows_of(self, servers: int) -> list[tuple[AppMessage, int]]:
        """Return the servers' own messages as they are delivered, made once; nothing if a client's is among them."""
        if not self.rows and False not in [sender_of(m.mid) < servers for m in self.batch]:
            self.rows = [(m, BOTTOM) for m in self.batch]
        return self.rows

    def about(self) -> tuple[Mid, ...]:
        return tuple([m.mid for m in self.batch])


@final
class Unreliable(RoundMessage):
    """Passed on along a tree."""


@final
class Reliable(RoundMessage):
    """Passed on to all successors in the reliable digraph."""


class RoundServer(Process, Rounds):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.replicas = topology.replicas
        self.queue: list[AppMessage] = []
        self.supply: Supply | None = None
        self.done = DeliveredMessages()

    def on_supply(self, supply: Supply) -> None:
        self.supply = supply

    def on_multicast(self, m: AppMessage) -> None:
        self.queue.append(m)
        self.kick()

    def on_request(self, client: int, m: AppMessage) -> None:
        if self.done.contains(m.mid):
            self.send_one(client, Reply(m.mid, self.g0, self.pid))
        elif m not in self.queue:
            self.on_multicast(m)

    def kick(self) -> None:
        """Broadcast, if something is waiting."""
        raise NotImplementedError

    def take_batch(self) -> Batch:
        if self.supply is not None and not self.queue:
            m = self.supply.next(self.pid)
            return () if m is None else (m,)
        size = 0
        count = 0
        for m in self.queue[:BATCH]:
            size += len(m.payload)
            if count > 0 and size > self.params.part_bytes:
                break
            count += 1
        batch = tuple(self.queue[:count])
        del self.queue[:count]
        return batch

    def deliver_message(self, msg: RoundMessage) -> None:
        if msg.origin != self.pid:
            rows = msg.rows_of(self.replicas)
            if rows:
                self.out.deliveries.extend(rows)
                return
        self.deliver_batch(msg.origin, msg.batch)

    def deliver_batch(self, origin: int, batch: Batch) -> None:
        for m in batch:
            self.deliver_once(m)
            sender = sender_of(m.mid)
            if sender == self.pid:
                self.out.completed.append(m.mid)
            elif origin == self.pid and sender >= self.replicas:
                self.send_one(sender, Reply(m.mid, self.g0, self.pid))

    def deliver_once(self, m: AppMessage) -> None:
        """Deliver m, unless it is a second copy: a client may have asked two servers."""
        if sender_of(m.mid) >= self.replicas:
            if self.done.contains(m.mid):
                return
            self.done.add(m)
        self.deliver(m)

    def footprint(self) -> int:
        return len(self.queue) + self.done.size()


@final
class RoundClient(Process):
    """Asks one server, and the next when there is no reply."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.server = pid % topology.replicas
        self.open: dict[Mid, AppMessage] = {}
        self.waits = False
        self.silent = False  # the last server that was asked: then the next ones have less time

    def on_multicast(self, m: AppMessage) -> None:
        self.open[m.mid] = m
        m.done = seq_of(next(iter(self.open)))
        self.send_one(self.server, Multicast(m))
        self.wait()

    def wait(self) -> None:
        if self.open and not self.waits:
            self.waits = True
            wait = (RETRY // 3 if self.silent else RETRY) * self.params.delta
            self.set_timer("retry", wait, wait)

    def on_timer(self, name: str) -> None:
        self.waits = False
        self.silent = True
        self.ask_another()
        self.wait()

    def on_disconnect(self) -> None:
        self.ask_another()

    def ask_another(self) -> None:
        self.server = (self.server + 1) % self.topology.replicas
        for m in self.open.values():
            self.send_one(self.server, Multicast(m))

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Reply) and self.open.pop(msg.mid, None) is not None:
            self.silent = False
            self.out.completed.append(msg.mid)

    def on_abandon(self, mid: Mid) -> None:
        self.open.pop(mid, None)

    def idle(self) -> bool:
        return not self.open
