"""Runs one process for a driver that moves bytes: batches of messages in, batches of messages out.

It owns the outbox, sorts what a step sends by destination, encodes each message once, and handles what a process sends
to itself. No I/O: the driver reads and writes, keeps the clock, and makes records durable before it releases anything.
"""

import math
from typing import Final, final

from librt.strings import BytesWriter, write_i16_le, write_i32_le, write_i64_le
from mypy_extensions import i16, i32, i64, mypyc_attr

from amcast.core.errors import WireError
from amcast.core.process import Effects, Params, Protocol
from amcast.core.requests import ANSWERS, NOTHING, Hint, Reply, Request, codec_of
from amcast.core.topology import Mid, Topology, message_id, sender_of, seq_of
from amcast.core.wire import (
    MOST_IN_RUN,
    AppMessage,
    Codec,
    Message,
    Reader,
    check_run,
    joined,
    pack_app,
    pack_blob,
    pack_long,
    pack_short,
    split,
)

BATCH_BYTES: Final = 256 * 1024  # a batch is closed when it is this long
RUN_BYTES: Final = 64 * 1024  # and a run of messages


@final
@mypyc_attr(acyclic=True)
class Tick:
    """What the steps since the last one want done; `release`d by the driver when `records` are durable."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.urgent = False
        self.batches: list[tuple[int, bytes]] = []  # to members
        self.patient = False  # there is more for members, which can wait for the next tick
        self.to_self: list[Message] = []
        self.answers: list[tuple[int, Message]] = []  # to clients: these depend on no record
        self.timers: list[tuple[str, int, int]] = []
        self.optimistic: list[AppMessage] = []
        self.deliveries: list[tuple[AppMessage, int]] = []
        self.notes: list[tuple[str, str]] = []
        self.halted = False  # nothing else may be done but to send what is here


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
        self._urgent = [False] * topology.replicas  # something in the writer cannot wait
        self._scratch = BytesWriter()
        self._groups = len(topology.groups)
        self._requests = codec_of(protocol.requests, self._groups)
        self._answers = codec_of(ANSWERS, self._groups)

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
            assert isinstance(msg, Request)
            if sender_of(msg.m.mid) != client:
                raise WireError(f"a message of session {sender_of(msg.m.mid):x} in session {client:x}")
            if not msg.sound(self._groups):
                raise WireError(f"a {type(msg).__name__} that means nothing")
            m = msg.m
            if m.count != 1:
                check_run(m, largest)
            if (m.count != 1 or len(m.payload) <= largest) and permitted.get(m.dest, False):
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

    def drain(self, now: int, patience: bool = False) -> Tick:
        """Everything that the steps so far want done. Without durability, to oneself included.

        With `patience`, what nobody waits for may stay behind for a while, to travel with something else.
        """
        tick = Tick()
        self._sort(tick)
        while tick.to_self and not self._waits:
            messages = tick.to_self
            tick.to_self = []
            self.receive_own(now, messages)
            self._sort(tick)
        for pid in range(self._members):
            w = self._writers[pid]
            if not len(w):
                continue
            if patience and not self._urgent[pid]:
                tick.patient = True
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
            urgent = not msg.patient()
            for pid in to:
                if pid == self.pid:
                    tick.to_self.append(msg)
                else:
                    self._writers[pid].write(encoded)
                    if urgent:
                        self._urgent[pid] = True
                    self._close_long(tick, pid)
        tick.records += out.records
        tick.urgent = tick.urgent or out.urgent
        tick.timers += out.timers
        tick.optimistic += out.optimistic
        tick.deliveries += out.deliveries
        tick.notes += out.notes
        tick.halted = tick.halted or out.halted
        out.clear()

    def _send(self, tick: Tick, pid: int, msg: Message) -> None:
        if pid == self.pid:
            tick.to_self.append(msg)
        elif pid >= self._members:
            tick.answers.append((pid, msg))
        else:
            self.codec.write(self._writers[pid], msg)
            if not msg.patient():
                self._urgent[pid] = True
            self._close_long(tick, pid)

    def _close_long(self, tick: Tick, pid: int) -> None:
        w = self._writers[pid]
        if len(w) > BATCH_BYTES:
            tick.batches.append((pid, w.getvalue()))
            w.truncate(0)


@final
class Run:
    """What a client asked for in one turn, to the same groups; and who waits for it until when."""

    def __init__(self, dest: tuple[int, ...]) -> None:
        self.mid = NOTHING.mid  # of the first message, once it is sent
        self.dest = dest
        self.payloads: list[bytes] = []
        self.size = 0
        self.count = 0
        self.whole = False  # one waits for all of it, else one for each message
        self.waiting: list[object] = []
        self.until: list[float] = []
        self.results: dict[int, list[bytes]] = {}

    def take(self, g: int, result: bytes) -> None:
        """What group g said. Raises WireError."""
        if g not in self.results:
            count = self.count
            self.results[g] = [result] if count == 1 else split(result, count) if result else [b""] * count

    def answers(self) -> list[dict[int, bytes]]:
        """What each group said to each of the messages."""
        found: list[dict[int, bytes]] = [{} for _ in range(self.count)]
        for g, parts in self.results.items():
            for i in range(len(parts)):
                found[i][g] = parts[i]
        return found


@final
class ClientEngine:
    """The same for the process of a client, which no one else's messages reach but the replicas' answers.

    Multicasts to the same groups in one turn travel as one run, unless each is to have an id that does not depend on
    how they fall into turns (`alone`).
    """

    def __init__(
        self, protocol: Protocol, session: int, topology: Topology, params: Params, alone: bool = False, first: int = 0
    ) -> None:
        self.out = Effects()
        self.process = protocol.client(session, topology, params, self.out)
        self._groups = len(topology.groups)
        self._group_of = topology.group_of
        self._requests = codec_of(protocol.requests, self._groups)
        self._answers = codec_of(ANSWERS, self._groups)
        self._writers: dict[int, BytesWriter] = {}
        self._scratch = BytesWriter()
        self._session = session
        self._next = first  # number of the next message
        self._alone = alone
        self._asked: dict[tuple[int, ...], Run] = {}
        self._full: list[Run] = []
        self.open: dict[Mid, Run] = {}

    def start(self, now: int) -> None:
        self.process.start(now)

    def ask(self, dest: tuple[int, ...], payload: bytes, waiting: object, until: float) -> None:
        """Multicast this, with the next `begin`."""
        run = self._asked.get(dest)
        if run is None:
            run = Run(dest)
            self._asked[dest] = run
        run.payloads.append(payload)
        run.count += 1
        run.size += len(payload)
        run.waiting.append(waiting)
        run.until.append(until)
        if self._alone or run.size > RUN_BYTES or len(run.waiting) == MOST_IN_RUN:
            del self._asked[dest]
            self._full.append(run)

    def ask_run(self, dest: tuple[int, ...], payloads: list[bytes], waiting: object, until: float) -> None:
        """Multicast these as one run, with the next `begin`."""
        run = Run(dest)
        run.payloads = payloads
        run.count = len(payloads)
        run.whole = True
        run.waiting.append(waiting)
        run.until.append(until)
        self._full.append(run)

    def begin(self, now: int) -> list[Run]:
        """Send what was asked for."""
        runs = self._full
        if self._asked:
            runs = runs + list(self._asked.values())
            self._asked = {}
        self._full = []
        for run in runs:
            count = run.count
            run.mid = message_id(self._session, self._next)
            self._next += count
            self.open[run.mid] = run
            payload = run.payloads[0] if count == 1 else joined(run.payloads)
            run.payloads = []
            self.process.multicast(now, AppMessage(run.mid, run.dest, payload, 0, count))
        return runs

    def waiting(self) -> list[object]:
        """All who wait."""
        runs = list(self.open.values()) + self._full + list(self._asked.values())
        return [one for run in runs for one in run.waiting]

    def late(self, now: float) -> list[object]:
        """Those who wait no longer."""
        found: list[object] = []
        for run in self.open.values():
            for i in range(len(run.until)):
                if run.until[i] <= now:
                    run.until[i] = math.inf
                    found.append(run.waiting[i])
        return found

    def timer(self, now: int, name: str) -> None:
        self.process.timer(now, name)

    def suspect(self, now: int) -> None:
        self.process.suspect(now)

    def abandon(self, now: int, mid: Mid) -> list[object]:
        """Those who wait for this run, which was refused."""
        self.process.abandon(now, mid)
        run = self.open.pop(mid, None)
        return run.waiting if run is not None else []

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
                run = self.open.get(msg.mid)
                if run is not None:
                    run.take(msg.g, result)
            self.process.receive(now, sender, msg)

    def drain(self) -> tuple[list[tuple[int, bytes]], list[Run], list[tuple[str, int, int]]]:
        """Batches for replicas, the runs that are complete, timers to set."""
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
        completed = [self.open.pop(mid) for mid in out.completed if mid in self.open]
        timers = out.timers
        out.timers = []
        out.clear()
        return batches, completed, timers


# Rows of a group's ordered log, on disk and on the way to readers


def pack_rows(w: BytesWriter, deliveries: list[tuple[AppMessage, int]], time: int) -> int:
    """How many positions they take."""
    count = 0
    for m, ts in deliveries:
        pack_row(w, ts, 0, time, m)
        count += m.count
    return count


def pack_row(w: BytesWriter, ts: int, index: int, time: int, m: AppMessage) -> None:
    pack_long(w, ts)
    pack_short(w, index)
    pack_long(w, time)
    pack_app(w, m)


def unpack_rows(data: bytes, groups: int) -> list[tuple[int, int, int, AppMessage]]:
    """Timestamp, place among those with this timestamp, time of delivery at this replica, message. Raises WireError."""
    r = Reader(data, groups)
    found: list[tuple[int, int, int, AppMessage]] = []
    try:
        while r.at < r.size:
            ts = r.long()
            index = r.short()
            time = r.long()
            for m in r.app().messages():
                found.append((ts, index, time, m))
                index += 1
    except (ValueError, IndexError) as error:
        raise WireError(f"malformed rows of {r.size} bytes: {error}") from None
    return found


@final
class Columns:
    """Rows as columns of fixed width, for tools that take them whole: each a buffer of little-endian numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.ts = BytesWriter()  # 8 bytes each …
        self.times = BytesWriter()
        self.senders = BytesWriter()
        self.numbers = BytesWriter()
        self.indices = BytesWriter()  # … 2 …
        self.dests = BytesWriter()  # … 4: which of `sets`
        self.ends = BytesWriter()  # … 4: of each payload in `payloads`, behind a zero
        self.payloads = BytesWriter()
        self.sets: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}
        write_i32_le(self.ends, 0)

    def add(self, data: bytes, groups: int, skip: int, most: int) -> int:
        """Rows of a block without the first ones, and not more than so many: how many they are. Raises WireError."""
        r = Reader(data, groups)
        before = self.count
        try:
            while r.at < r.size and self.count - before < most:
                ts = r.long()
                index = r.short()
                time = r.long()
                m = r.app()
                if skip >= m.count:
                    skip -= m.count
                    continue
                self._add_message(ts, index, time, m, skip, most - (self.count - before))
                skip = 0
        except (ValueError, IndexError) as error:
            raise WireError(f"malformed rows of {r.size} bytes: {error}") from None
        return self.count - before

    def _add_message(self, ts: int, index: int, time: int, m: AppMessage, skip: int, most: int) -> None:
        place = self._known.get(m.dest)
        if place is None:
            place = len(self.sets)
            self._known[m.dest] = place
            self.sets.append(m.dest)
        sender = i64(sender_of(m.mid))
        number = i64(seq_of(m.mid))
        parts = [m.payload] if m.count == 1 else split(m.payload, m.count)
        stamp = i64(ts)
        when = i64(time)
        for i in range(skip, min(m.count, skip + most)):
            write_i64_le(self.ts, stamp)
            write_i64_le(self.times, when)
            write_i64_le(self.senders, sender)
            write_i64_le(self.numbers, number + i)
            write_i16_le(self.indices, i16(index + i))
            write_i32_le(self.dests, i32(place))
            self.payloads.write(parts[i])
            write_i32_le(self.ends, i32(len(self.payloads)))
            self.count += 1
