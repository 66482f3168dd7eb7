"""Runs one process for a driver that moves bytes: batches of messages in, batches of messages out.

It owns the outbox, sorts what a step sends by destination, encodes each message once, and handles what a process sends
to itself. No I/O: the driver reads and writes, keeps the clock, and makes records durable before it releases anything.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from amcast.core.errors import WireError
from amcast.core.process import Effects, Params, Protocol
from amcast.core.requests import ANSWERS, ANSWERS_PACKED, NOTHING, REQUESTS, Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage, Codec, Message, Reader, pack_app, pack_blob, pack_long

BATCH_BYTES: Final = 256 * 1024  # a batch is closed when it is this long


@final
@mypyc_attr(acyclic=True)
class Tick:
    """What the steps since the last one want done; `release`d by the driver when `records` are durable."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.urgent = False
        self.batches: list[tuple[int, bytes]] = []  # to members
        self.to_self: list[Message] = []
        self.answers: list[tuple[int, Message]] = []  # to clients: these depend on no record
        self.timers: list[tuple[str, int, int]] = []
        self.deliveries: list[tuple[AppMessage, int]] = []
        self.notes: list[tuple[str, str]] = []


@final
class Engine:
    def __init__(self, protocol: Protocol, pid: int, topology: Topology, params: Params) -> None:
        self.out = Effects()
        self.process = protocol.replica(pid, topology, params, self.out)
        self.codec = Codec(protocol.messages, protocol.packed, len(topology.groups))
        self.pid = pid
        self._members = topology.replicas
        self._waits = params.durable  # what a process sends to itself waits for its records, like all it sends
        self._writers = [BytesWriter() for _ in range(topology.replicas)]
        self._scratch = BytesWriter()
        self._requests = Codec(REQUESTS, (Multicast(NOTHING),), len(topology.groups))
        self._answers = Codec(ANSWERS, ANSWERS_PACKED, len(topology.groups))

    def start(self, now: int, records: list[bytes] | None) -> None:
        if records is None:
            self.process.start(now)
        else:
            self.process.recover(now, records)

    def rejoin(self, now: int, records: list[bytes], floor: int) -> None:
        self.process.rejoin(now, records, floor)

    def receive(self, now: int, sender: int, batch: bytes) -> int:
        """Messages from another member, all handled; their number. Raises WireError before any is handled."""
        messages = self.codec.read(batch)
        process = self.process
        for msg in messages:
            process.receive(now, sender, msg)
        return len(messages)

    def requests(
        self, batch: bytes, client: int, permitted: dict[tuple[int, ...], bool], largest: int
    ) -> tuple[list[Message], list[Message]]:
        """The requests of a client in these bytes, and those that are not for it to make. Raises WireError.

        `permitted` has an answer for every set of destinations that this client has used.
        """
        wanted: list[Message] = []
        unwanted: list[Message] = []
        for msg in self._requests.read(batch):
            assert isinstance(msg, Multicast)
            if sender_of(msg.m.mid) != client:
                raise WireError(f"a message of session {sender_of(msg.m.mid):x} in session {client:x}")
            if len(msg.m.payload) <= largest and permitted.get(msg.m.dest, False):
                wanted.append(msg)
            else:
                unwanted.append(msg)
        return wanted, unwanted

    def ask(self, now: int, client: int, requests: list[Message]) -> None:
        """Handle requests of a client."""
        process = self.process
        for msg in requests:
            process.receive(now, client, msg)

    def encode_answers(self, answers: list[tuple[int, Message]], results: dict[Mid, bytes]) -> list[tuple[int, bytes]]:
        """Batches for clients, each answer followed by what the application said to it."""
        writers: dict[int, BytesWriter] = {}
        for client, msg in answers:
            w = writers.get(client)
            if w is None:
                w = BytesWriter()
                writers[client] = w
            self._answers.write(w, msg)
            pack_blob(w, results.get(msg.mid, b"") if isinstance(msg, Reply) else b"")
        return [(client, w.getvalue()) for client, w in writers.items()]

    def receive_own(self, now: int, messages: list[Message]) -> None:
        process = self.process
        pid = self.pid
        for msg in messages:
            process.receive(now, pid, msg)

    def timer(self, now: int, name: str) -> None:
        self.process.timer(now, name)

    def drain(self, now: int) -> Tick:
        """Everything that the steps so far want done. Without durability, to oneself included."""
        tick = Tick()
        self._sort(tick)
        while tick.to_self and not self._waits:
            messages = tick.to_self
            tick.to_self = []
            self.receive_own(now, messages)
            self._sort(tick)
        for pid in range(self._members):
            w = self._writers[pid]
            if len(w):
                tick.batches.append((pid, w.getvalue()))
                w.truncate(0)
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
            for pid in to:
                if pid == self.pid:
                    tick.to_self.append(msg)
                else:
                    self._writers[pid].write(encoded)
                    self._close_long(tick, pid)
        tick.records += out.records
        tick.urgent = tick.urgent or out.urgent
        tick.timers += out.timers
        tick.deliveries += out.deliveries
        tick.notes += out.notes
        out.clear()

    def _send(self, tick: Tick, pid: int, msg: Message) -> None:
        if pid == self.pid:
            tick.to_self.append(msg)
        elif pid >= self._members:
            tick.answers.append((pid, msg))
        else:
            self.codec.write(self._writers[pid], msg)
            self._close_long(tick, pid)

    def _close_long(self, tick: Tick, pid: int) -> None:
        w = self._writers[pid]
        if len(w) > BATCH_BYTES:
            tick.batches.append((pid, w.getvalue()))
            w.truncate(0)


@final
class ClientEngine:
    """The same for the process of a client, which no one else's messages reach but the replicas' answers."""

    def __init__(self, protocol: Protocol, session: int, topology: Topology, params: Params) -> None:
        self.out = Effects()
        self.process = protocol.client(session, topology, params, self.out)
        self._groups = len(topology.groups)
        self._group_of = topology.group_of
        self._requests = Codec(REQUESTS, (Multicast(NOTHING),), self._groups)
        self._answers = Codec(ANSWERS, ANSWERS_PACKED, self._groups)
        self._writers: dict[int, BytesWriter] = {}
        self._scratch = BytesWriter()
        self.results: dict[Mid, dict[int, bytes]] = {}

    def start(self, now: int) -> None:
        self.process.start(now)

    def multicast(self, now: int, m: AppMessage) -> None:
        self.results[m.mid] = {}
        self.process.multicast(now, m)

    def timer(self, now: int, name: str) -> None:
        self.process.timer(now, name)

    def suspect(self, now: int) -> None:
        self.process.suspect(now)

    def abandon(self, now: int, mid: Mid) -> None:
        self.results.pop(mid, None)
        self.process.abandon(now, mid)

    def receive(self, now: int, sender: int, batch: bytes) -> None:
        """Answers of a replica. Raises WireError."""
        r = Reader(batch, self._groups)
        while r.at < r.size:
            msg = self._answers.read_one(r)
            try:
                result = r.blob()
            except (ValueError, IndexError) as error:
                raise WireError(f"malformed answers of {r.size} bytes: {error}") from None
            assert isinstance(msg, Reply | Hint)
            if not 0 <= msg.leader < len(self._group_of) or self._group_of[msg.leader] != msg.g:
                raise WireError(f"process {msg.leader} as leader of group {msg.g}: expected one of its members")
            if isinstance(msg, Reply):
                found = self.results.get(msg.mid)
                if found is not None and msg.g not in found:
                    found[msg.g] = result
            self.process.receive(now, sender, msg)

    def drain(self) -> tuple[list[tuple[int, bytes]], list[Mid], list[tuple[str, int, int]]]:
        """Batches for replicas, the multicasts that are complete, timers to set."""
        out = self.out
        for to, msg in out.sends:
            self._scratch.truncate(0)
            self._requests.write(self._scratch, msg)
            encoded = self._scratch.getvalue()
            for pid in to:
                w = self._writers.get(pid)
                if w is None:
                    w = BytesWriter()
                    self._writers[pid] = w
                w.write(encoded)
        batches: list[tuple[int, bytes]] = []
        for pid, w in self._writers.items():
            if len(w):
                batches.append((pid, w.getvalue()))
                w.truncate(0)
        completed = out.completed
        timers = out.timers
        out.completed = []
        out.timers = []
        out.clear()
        return batches, completed, timers


# Rows of a group's ordered log, on disk and on the way to readers


def pack_rows(w: BytesWriter, deliveries: list[tuple[AppMessage, int]], time: int) -> None:
    for m, ts in deliveries:
        pack_long(w, ts)
        pack_long(w, time)
        pack_app(w, m)


def unpack_rows(data: bytes, groups: int) -> list[tuple[int, int, AppMessage]]:
    """Timestamp, time of delivery at this replica, message. Raises WireError."""
    r = Reader(data, groups)
    found: list[tuple[int, int, AppMessage]] = []
    try:
        while r.at < r.size:
            found.append((r.long(), r.long(), r.app()))
    except (ValueError, IndexError) as error:
        raise WireError(f"malformed rows of {r.size} bytes: {error}") from None
    return found
