"""Runs one process for a driver that moves bytes: batches of messages in, batches of messages out.

It owns the outbox, sorts what a step sends by destination, encodes each message once, and handles what a process sends
to itself. No I/O: the driver reads and writes, keeps the clock, and makes records durable before it releases anything.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.notes import Note
from amcast.core.process import Effects, Memory, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import ANSWERS, Answer, Reply, Request, replica_codec
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Codec, Message, check_batch, pack_blob
from amcast.errors import WireError

BATCH_BYTES: Final = 256 * 1024  # a batch is closed when it is this long


@final
@mypyc_attr(acyclic=True)
class Tick:
    """What the steps since the last one want done; `release`d by the driver when `records` are durable."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.urgent = False
        self.batches: list[tuple[int, bytes]] = []  # to members
        self.holds = False  # there is more for members, which may wait for the next tick
        self.to_self: list[Message] = []
        self.answers: list[tuple[int, Message]] = []  # to clients: these depend on no record
        self.news: list[Message] = []  # to all clients that are connected
        self.timers: list[tuple[str, int, int]] = []
        self.optimistic: list[AppMessage] = []
        self.undone: list[Mid] = []
        self.deliveries: list[tuple[AppMessage, int]] = []
        self.notes: list[Note] = []
        self.confirmed: list[int] = []
        self.halted = False  # nothing else may be done but to send what is here
        self.pulls: list[int] = []  # members whose snapshot is needed
        self.forgot = ""  # why nothing may be done at all
        self.memories: dict[Mid, Memory] = {}  # of marks among the deliveries: what was delivered before each


@final
class Engine:
    def __init__(self, protocol: Protocol, pid: int, topology: Topology, params: Params) -> None:
        self.out = Effects()
        self.process = protocol.make(pid, topology, params, self.out)
        self.codec = self._codec = replica_codec(protocol.messages, len(topology.groups))
        self.pid = pid
        self._members = topology.replicas
        self._used = 0  # no writer from this one on has ever had anything: most of those who may come later never do
        self._waits = params.durable  # what a process sends to itself waits for its records, like all it sends
        self._writers = [BytesWriter() for _ in range(topology.replicas)]
        self._urgent = [False] * topology.replicas  # something in the writer cannot wait
        self._scratch = BytesWriter()
        self._groups = len(topology.groups)
        self._requests = Codec(protocol.requests, self._groups)
        self._answers = Codec(ANSWERS, self._groups)

    def speak(self, format: int) -> None:
        """Write to members in this format from now on."""
        self.codec = self._codec.at(format)

    def receive(self, now: int, sender: int, batch: bytes) -> int:
        """Handle a batch of another member; return how many messages it had. Raises WireError before any is handled."""
        messages = self.codec.read(batch)
        self.handle(now, sender, messages)
        return len(messages)

    def requests(self, batch: bytes, client: int, largest: int) -> list[Request]:
        """Return the requests in these bytes, well-formed and of this client. Raises WireError.

        Whether the client may make them is not looked at; nor is the size of a message that travels alone.
        """
        found: list[Request] = []
        for msg in self._requests.read(batch):
            assert isinstance(msg, Request)
            if sender_of(msg.m.mid) != client:
                raise WireError(f"a message of session {sender_of(msg.m.mid):x} in session {client:x}")
            if not msg.sound(self._groups):
                raise WireError(f"a {type(msg).__name__} that means nothing")
            if msg.m.count != 1:
                check_batch(msg.m, largest)
            found.append(msg)
        return found

    def handle(self, now: int, sender: int, messages: Sequence[Message]) -> None:
        """Handle messages of a member, of a client, or of the process itself."""
        process = self.process
        for msg in messages:
            process.receive(now, sender, msg)

    def encode_answers(self, answers: list[tuple[int, Message]], results: dict[Mid, bytes]) -> list[tuple[int, bytes]]:
        """Return batches for clients: each answer, followed by what the application said to it."""
        writers: defaultdict[int, BytesWriter] = defaultdict(BytesWriter)
        for client, msg in answers:
            w = writers[client]
            self._answers.write(w, msg)
            pack_blob(w, results.get(msg.mid, b"") if isinstance(msg, Reply) else b"")
        return [(client, w.getvalue()) for client, w in writers.items()]

    def encode_news(self, news: list[Message]) -> bytes:
        """Return a batch of answers that no client has asked for."""
        w = BytesWriter()
        for msg in news:
            self._answers.write(w, msg)
            pack_blob(w, b"")
        return w.getvalue()

    def drain(self, now: int, may_wait: bool = False) -> Tick:
        """Return everything that the steps so far want done. Without durability, to oneself included.

        With `may_wait`, messages that can travel with the next batch stay behind until there is one.
        """
        tick = Tick()
        self._sort(tick)
        while tick.to_self and not self._waits:
            messages = tick.to_self
            tick.to_self = []
            self.handle(now, self.pid, messages)
            self._sort(tick)
        for pid in range(self._used):
            w = self._writers[pid]
            if not len(w):
                continue
            if may_wait and not self._urgent[pid]:
                tick.holds = True
                continue
            tick.batches.append((pid, w.getvalue()))
            w.truncate(0)
            self._urgent[pid] = False
        return tick

    def _sort(self, tick: Tick) -> None:
        out = self.out
        codec = self.codec
        scratch = self._scratch
        sends = out.sends
        out.sends = []
        for to, msg in sends:
            if len(to) == 1:
                self._send(tick, to[0], msg)
                continue
            scratch.truncate(0)
            codec.write(scratch, msg)
            encoded = scratch.getvalue()
            urgent = not msg.may_wait()
            for pid in to:
                if pid == self.pid:
                    tick.to_self.append(msg)
                else:
                    self._used = max(self._used, pid + 1)
                    self._writers[pid].write(encoded)
                    if urgent:
                        self._urgent[pid] = True
                    self._close_long(tick, pid)
        tick.records += out.records
        tick.urgent = tick.urgent or out.urgent
        tick.timers += out.timers
        tick.optimistic += out.optimistic
        tick.undone += out.undone
        tick.deliveries += out.deliveries
        tick.notes += out.notes
        tick.news += out.news
        tick.halted = tick.halted or out.halted
        tick.pulls += out.pulls
        if out.confirmed:
            tick.confirmed += out.confirmed
        tick.forgot = tick.forgot or out.forgot
        if out.memories:
            tick.memories.update(out.memories)
        out.clear()

    def _send(self, tick: Tick, pid: int, msg: Message) -> None:
        if pid == self.pid:
            tick.to_self.append(msg)
        elif pid >= self._members:
            if isinstance(msg, Answer):  # the driver tells clients who the members are
                tick.answers.append((pid, msg))
        else:
            self._used = max(self._used, pid + 1)
            self.codec.write(self._writers[pid], msg)
            if not msg.may_wait():
                self._urgent[pid] = True
            self._close_long(tick, pid)

    def _close_long(self, tick: Tick, pid: int) -> None:
        w = self._writers[pid]
        if len(w) > BATCH_BYTES:
            tick.batches.append((pid, w.getvalue()))
            w.truncate(0)
