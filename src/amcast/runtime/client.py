"""The client of a cluster: multicasts to any set of groups, and reads of any group's ordered log."""

import asyncio
import concurrent.futures
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from amcast.core.application import Delivery, delivery
from amcast.core.capabilities import Detecting, Listing, MemberLists
from amcast.core.protocol import Protocol
from amcast.core.requests import NOBODY
from amcast.core.topology import Mid, message_id, seq_of
from amcast.errors import (
    AmcastError,
    AnswerGone,
    MulticastFailed,
    OutcomeUnknown,
    Rejected,
    UsageError,
)
from amcast.runtime import frames
from amcast.runtime.admission import Admission, Asked, fail
from amcast.runtime.client_connection import Connection
from amcast.runtime.client_detector import ClientDetector
from amcast.runtime.client_engine import ClientBatch, ClientEngine
from amcast.runtime.config import Address, ClusterConfig, Member
from amcast.runtime.execution import MARK, answer_or_reason
from amcast.runtime.frames import Change, Condition, Read, Refusal, Rows
from amcast.runtime.framing import frame
from amcast.runtime.latency import ClientNumbers
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.rows import unpack_rows
from amcast.runtime.seats import FILE, agreed_on, lists_of, read_agreed, seated
from amcast.runtime.serving import CLIENT, SESSION_BITS, session_of
from amcast.runtime.tls import Renewable, trusted
from amcast.runtime.tracing import TraceWriter

DEADLINE: Final = 30.0
FIRST_PAUSE: Final = 0.02  # seconds, when no replica of a group answers reads …
LONGEST_PAUSE: Final = 0.5
CLOSED: Final = "the client was closed"
MORE_IN_BATCH: Final = 2**19  # bytes above `largest_message` that several may have together; a replica takes twice that
G = TypeVar("G")
T = TypeVar("T")


class Answers(dict[G, bytes]):
    """What each group's application answered. `message` is the multicast's id, as deliveries and traces have it."""

    __slots__ = ("number", "sender")
    number: int
    sender: str

    @property
    def message(self) -> str:
        return f"{self.sender}:{self.number}"


def answered(sender: str, number: int, by_group: dict[G, bytes]) -> Answers[G]:
    """Return the answers to a message. (A constructor of its own would take longer than all the rest.)"""
    answers = Answers(by_group)
    answers.sender = sender
    answers.number = number
    return answers


class Client:
    """A client of a cluster, made by `amcast.connect`. One connection to each replica that it needs carries everything.

    A multicast ends in one of four ways. It returns: every replica of its groups delivers it. Rejected: so they do, but
    the application of a group did not execute it. MulticastFailed: nobody delivers it; that is Busy if the cluster had
    no room for it. OutcomeUnknown: its deadline passed first, and `error.message` is the id under which it may be
    delivered. It is sent again for as long as the client lives, also after its deadline, and never delivered twice.

    Multicasts to groups that do not serve, or are busy, are held back and fail in time (`admission.py`).
    """

    def __init__(
        self,
        config: ClusterConfig,
        protocol: Protocol,
        name: str,
        deadline: float = DEADLINE,
        session: int | None = None,
        trace: Path | None = None,
        first: int = 0,
        machine: Machine = REAL,
        admin: Address | None = None,
    ) -> None:
        """Prepare a client; it begins with `async with`.

        A program that may send the same again names a `session`, and the number of its `first` message then.
        """
        config = seated(config, protocol)
        if config.tls is None and name not in config.clients:
            known = ", ".join(config.clients) or "none"
            raise UsageError(f"no client {name!r} in {config.path}: expected one of {known}")
        self.config = config
        self._there = len(config.groups)  # by now
        self.machine = machine
        self.name = CLIENT + name
        self.session = session_of(self.name, machine.random.getrandbits(SESSION_BITS) if session is None else session)
        self.sender = config.topology.name(self.session)  # of all its messages, in deliveries and traces
        self.groups = len(config.topology.sizes)  # at first; applications divide what they hold among these
        self.reads = protocol.confirms  # whether `read` works
        self.deadline = deadline
        self.numbers = ClientNumbers(config.name, name, admin)
        self._now = machine.clock.monotonic_ns
        self._protocol = protocol
        alone = session is not None  # the same numbers whenever the program runs again
        self._engine = ClientEngine(protocol, self.session, config.topology, config.params(), alone, first)
        self._context = Renewable.of_client(config, self.name) if config.tls is not None else None
        self._connections: dict[int, Connection] = {}
        self._scheduled = False
        self._reads = itertools.count()
        self._leaders: dict[int, int] = {}  # of groups, so far as reads know: ranks
        self._seconds_to_ask = max(1.0, 2.5 * config.suspect_ms / 1000)  # one replica, before another one is asked
        self._closed = False
        self._welcome = False  # somewhere, at least once: something may have been sent
        self._refusals: dict[int, str] = {}  # by replicas
        self._admission = Admission(self, alone=session is not None)
        process: object = self._engine.process
        self._detector = ClientDetector(self, process) if isinstance(process, Detecting) else None
        self._loop: asyncio.AbstractEventLoop
        self._sweep: asyncio.TimerHandle | None = None
        self._trace = TraceWriter(trace, config.name, self.sender, None, machine) if trace is not None else None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self.numbers.start()
        self._engine.process.start(self._now())
        process: object = self._engine.process
        if isinstance(process, Listing) and self.config.lists:
            process.learn_lists(self._now(), self.config.lists)
        self._watch_deadlines()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the client. The outcome of what is still open is unknown."""
        self._closed = True
        await self.numbers.stop()
        if self._sweep is not None:
            self._sweep.cancel()
        self._give_up(self._engine.waiting(), CLOSED)
        self._admission.drop(CLOSED)
        for connection in self._connections.values():
            fail([*connection.reads.values(), *connection.queries.values()], OutcomeUnknown(CLOSED))
            connection.close()
        if self._trace is not None:
            if self._engine.open:  # nobody sends these again: they may be lost with it, as with one that crashes
                self._trace.row("crash")
            self._trace.close()
            self._trace = None
        await asyncio.sleep(0)

    # Multicasts

    async def multicast(self, dest: Iterable[str], payload: bytes, deadline: float | None = None) -> Answers[str]:
        """Deliver the payload to these groups; return what the application of each group answers, by its name."""
        numbers = tuple(sorted({self._group(name) for name in dest}))
        answers = await self.submit(numbers, payload, deadline)
        by_name = {self.config.topology.group_name(g): answers[g] for g in numbers}
        return answered(answers.sender, answers.number, by_name)

    def submit(
        self, dest: tuple[int, ...], payload: bytes, deadline: float | None = None
    ) -> asyncio.Future[Answers[int]]:
        """Multicast to group numbers in increasing order, without a task for each multicast."""
        future: asyncio.Future[Answers[int]] = self._loop.create_future()
        if not dest or dest[0] < 0 or dest[-1] >= self._there or len(payload) > self.config.largest_message:
            future.set_exception(MulticastFailed(self._why_not(dest, payload)))
            return future
        if self._closed:
            future.set_exception(MulticastFailed(CLOSED))
            return future
        until = self._loop.time() + (self.deadline if deadline is None else deadline)
        if self._admission.wary():
            self._admission.take(Asked(dest, [payload], False, future, until))
        else:
            self._engine.ask(dest, payload, future, until)
        if not self._scheduled:
            self._schedule()
        return future

    def submit_batch(
        self, dest: tuple[int, ...], payloads: list[bytes], deadline: float | None = None
    ) -> asyncio.Future[list[Answers[int]]]:
        """Multicast several, that are ordered and delivered one after the other with nothing in between."""
        future: asyncio.Future[list[Answers[int]]] = self._loop.create_future()
        size = sum(map(len, payloads))
        if size > self.config.largest_message + MORE_IN_BATCH:
            most = f"at most {self.config.largest_message + MORE_IN_BATCH} together"
            future.set_exception(MulticastFailed(f"{len(payloads)} messages of {size} bytes: expected {most}"))
            return future
        until = self._loop.time() + (self.deadline if deadline is None else deadline)
        self._admission.take(Asked(dest, payloads, True, future, until))
        self._schedule()
        return future

    def _group(self, name: str) -> int:
        names = [self.config.topology.group_name(g) for g in range(self._there)]
        if name not in names:
            raise MulticastFailed(f"unknown group {name!r}: expected one of {', '.join(names)}")
        return names.index(name)

    def _why_not(self, dest: tuple[int, ...], payload: bytes) -> str:
        if len(payload) > self.config.largest_message:
            return f"a message of {len(payload)} bytes: expected at most {self.config.largest_message}"
        return f"destination groups {list(dest)}: expected one or more of 0 to {self._there - 1}"

    def _watch_deadlines(self) -> None:
        now = self._loop.time()
        if self._detector is not None:
            self._detector.look()
        self._admission.expire(now)
        late = self._engine.late(now)
        if late:
            self._give_up(late, "no answer from all its groups by its deadline")
        self._sweep = self._loop.call_later(self.machine.limits.sweep_every, self._watch_deadlines)

    def _give_up(self, waiting: list[tuple[object, Mid]], reason: str) -> None:
        for future, mid in waiting:
            message = f"{self.sender}:{seq_of(mid)}" if mid != NOBODY else None
            fail([future], OutcomeUnknown(reason, message))

    def _record(self, trace: TraceWriter, batches: list[ClientBatch]) -> None:
        for batch in batches:
            dest = [self.config.topology.group_name(g) for g in batch.dest]
            first = seq_of(batch.mid)
            for seq in range(first, first + batch.count):
                trace.row("multicast", message=f"{self.sender}:{seq}", sender=self.sender, dest=dest)
        trace.flush()

    # Turns of the loop

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        begun = self._engine.begin(self._now())
        if begun and self._trace is not None:
            self._record(self._trace, begun)
        batches, completed, timers = self._engine.drain()
        for name, earliest, latest in timers:
            self._loop.call_later(self.machine.random.uniform(earliest, latest) / 1e9, self._on_timer, name)
        for pid, batch, mids in batches:
            if connection := self._connection(pid):
                connection.send(frame(frames.REQUESTS, batch), mids)
        for done in completed:
            self._admission.completed(done.dest)
            self.numbers.multicasts.add(self._now() - done.begun, done.count)
            first = seq_of(done.mid)
            results: list[object] = [self._result(first + i, part) for i, part in enumerate(done.answers())]
            if done.whole:  # one waits for all: all were delivered, but it must not miss that some were rejected
                results = [next((found for found in results if isinstance(found, Rejected)), results)]
            for future, result in zip(cast("list[asyncio.Future[object]]", done.waiting), results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Rejected):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _result(self, number: int, outcomes: dict[int, bytes]) -> Answers[int] | Rejected:
        """Return what the groups answered to a message, or that some of them rejected it."""
        if not any(outcome.startswith(MARK) for outcome in outcomes.values()):  # as is nearly always
            return answered(self.sender, number, outcomes)
        found = {g: answer_or_reason(outcome) for g, outcome in sorted(outcomes.items())}
        answers = {g: answer for g, answer in found.items() if isinstance(answer, bytes)}
        if len(answers) == len(found):
            return answered(self.sender, number, answers)
        name = self.config.topology.group_name
        reasons = {name(g): reason for g, reason in found.items() if isinstance(reason, str)}
        text = "; ".join([f"{group} rejected it: {reason}" for group, reason in reasons.items()])
        return Rejected(text, f"{self.sender}:{number}", reasons, {name(g): answer for g, answer in answers.items()})

    def _on_timer(self, name: str) -> None:
        if not self._closed:
            self._engine.process.timer(self._now(), name)
            self._schedule()

    def _connection(self, pid: int) -> Connection | None:
        """Return the connection to a replica; None if it is not known where that is."""
        connection = self._connections.get(pid)
        if connection is None and (member := self.config.at(pid)) is not None:
            connection = self._connections[pid] = Connection(self, member, self._context)
        return connection

    def _listed(self, lists: MemberLists) -> None:
        """Go by what a replica says of who the members are."""
        process: object = self._engine.process
        if self._closed or not isinstance(process, Listing):
            return
        before = process.known()
        process.learn_lists(self._now(), lists)
        if process.known() == before:
            return
        self.config = agreed_on(self.config, process.lists())
        self._there = len(self.config.groups)
        left = [pid for pid in self._connections if pid not in self.config.needed]
        for g in {self._connections[pid].member.group for pid in left}:
            for member in self.config.group(g):  # who is idle is to hear of the next change, before all are gone
                if connection := self._connection(member.pid):
                    connection.connect()
        for pid in left:
            self._connections.pop(pid).close()
        self._disconnected()

    def _unreachable(self, member: Member, reason: str) -> None:
        """Take note that a replica is not connected. It may have gone, and all others that this client knows."""
        self._admission.unreachable(member, reason)
        if self._protocol.change is not None:
            with suppress(UsageError):
                agreed = read_agreed(self.config.path.parent / FILE, self.config, self.machine.files)
                if agreed is not None:
                    self._listed(lists_of(agreed))

    def _answered(self, pid: int, batch: bytes) -> None:
        self._engine.receive(self._now(), pid, batch)
        self._schedule()

    def _failed(self, member: Member, failure: Refusal) -> None:
        mid = message_id(self.session, failure.seq)
        batch = self._engine.open.get(mid)
        if failure.kind == frames.FORBIDDEN:
            self._forbidden(member, mid, failure.reason)
        elif batch is not None and failure.kind == frames.GONE:
            for i, future in enumerate(self._engine.gone(self._now(), member.pid, mid)):
                fail([future], AnswerGone(failure.reason, f"{self.sender}:{failure.seq + i}"))
            self._schedule()
        elif batch is not None:
            self._admission.refused(member, batch, failure)

    def _forbidden(self, member: Member, mid: Mid, reason: str) -> None:
        """Give up a batch that all who were asked refuse: they may have read cluster.toml at different times."""
        batch = self._engine.open.get(mid)
        if batch is None:
            self._engine.forbidden(self._now(), member.pid, mid)
            return
        batch.refused(member.pid, for_good=True)
        batch.reason = reason
        if batch.untaken():
            self._withdraw(batch, MulticastFailed(reason))

    def _refused(self, member: Member, text: str) -> None:
        """Ask the others, unless most of the group refuse us and nothing has been sent to anybody."""
        if self._closed:
            return
        self._refusals[member.pid] = text
        group = self.config.group(member.group)
        hopeless = sum(one.pid in self._refusals for one in group) > len(group) // 2
        if not self._welcome and hopeless:
            for batch in reversed(list(self._engine.open.values())):  # the last first: its number may be given back
                self._withdraw(batch, MulticastFailed(text))
            self._admission.drop(text)
        elif self._engine.open and not self._welcome:
            self._disconnected()

    def _turned_away(self, reason: str) -> None:
        """Take note that a replica hung up without a word; it, or another one, may let us in later."""
        for batch in self._engine.open.values():
            batch.reason = batch.reason or reason

    def _withdraw(self, batch: ClientBatch, error: MulticastFailed) -> None:
        """Give up a batch that nobody has, and see to it that nobody gets it."""
        for connection in self._connections.values():
            connection.backlog = [entry for entry in connection.backlog if batch.mid not in entry[1]]
        fail(self._engine.abandon(self._now(), batch.mid), error)
        if self._trace is not None:
            for seq in range(seq_of(batch.mid), seq_of(batch.mid) + batch.count):
                self._trace.row("withdraw", message=f"{self.sender}:{seq}")
            self._trace.flush()
        self._schedule()  # later messages may have waited for this one

    def _disconnected(self) -> None:
        """Ask everybody: whoever was asked may be gone."""
        if not self._closed and self._engine.open:
            self._engine.process.disconnect(self._now())
            self._schedule()

    def renew_certificate(self) -> None:
        """Read certificate and CAs again, as new connections do once they have changed; hang up on who is not trusted.

        Raises UsageError and keeps the old ones if they are broken.
        """
        if self._context is not None:
            authorities = self._context.read_again()
            for connection in self._connections.values():
                if not trusted(connection.transport, authorities) and connection.transport is not None:
                    connection.transport.abort()

    async def conditions(self, seconds: float) -> dict[str, Condition]:
        """Ask every replica how it is; return what those say, by name, that answer within so many seconds."""
        connections = {member.name: self._connection(member.pid) for member in self.config.members}
        asked = {name: connection.ask() for name, connection in connections.items() if connection is not None}
        try:
            await asyncio.wait(asked.values(), timeout=seconds)
        finally:  # also if the caller is cancelled: nobody else looks at what became of them
            told = {name: future for name, future in asked.items() if not future.cancel() and not future.cancelled()}
            heard = {name: future for name, future in told.items() if future.exception() is None}
        return {name: future.result() for name, future in heard.items()}

    # Reads

    async def read(self, group: str, request: bytes, deadline: float | None = None) -> bytes:
        """Return what the application of a group answers to a question, by `query`, from its state as it is now.

        The leader answers, after a quorum has said that it still leads: so the answer has all that was acknowledged to
        anybody before this call, and nothing takes a place in the order. Raises UsageError where the protocol has no
        such reads, Rejected if `query` raised, AmcastError if it may not be asked, OutcomeUnknown at the deadline.
        """
        if not self._protocol.confirms:
            raise UsageError(f"{self._protocol.name} answers no reads outside of the order: multicast them")
        if len(request) > self.config.largest_message:
            raise UsageError(f"a read of {len(request)} bytes: expected at most {self.config.largest_message}")
        g = self._group(group)
        within = self.deadline if deadline is None else deadline
        until = self._loop.time() + within
        pause, why = FIRST_PAUSE, "no answer"
        while (left := until - self._loop.time()) > 0:
            members = self.config.group(g)
            rank = self._leaders.get(g, 0) % len(members)
            try:
                outcome = answer_or_reason(await self._ask(members[rank].pid, request, min(left, self._seconds_to_ask)))
            except TimeoutError as error:  # another replica may answer
                why = str(error) or f"no answer from {members[rank].name}"
                self._leaders[g] = (rank + 1) % len(members)
                if self._leaders[g] == 0:  # all were asked: somebody may be about to lead
                    await asyncio.sleep(min(pause, max(0.0, until - self._loop.time())))
                    pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if isinstance(outcome, bytes):
                return outcome
            raise Rejected(f"{group} rejected it: {outcome}", None, {group: outcome})
        raise OutcomeUnknown(f"no leader of {group} answered within {within:g} s: {why}")

    async def _ask(self, pid: int, request: bytes, seconds: float) -> bytes:
        if self._closed:
            raise OutcomeUnknown(CLOSED)
        number = next(self._reads)
        future: asyncio.Future[bytes] = self._loop.create_future()
        connection = self._connection(pid)
        assert connection is not None
        connection.queries[number] = future
        try:
            connection.send(frame(frames.QUERY, request, number), [])
            async with asyncio.timeout(seconds):
                return await future
        finally:
            del connection.queries[number]

    async def rows(
        self,
        group: str,
        position: int,
        *,
        wait_ms: int = 0,
        replica: int = 0,
        most_bytes: int | None = None,
        deadline: float | None = None,
    ) -> Rows:
        """Return a stretch of a group's log from the block with this position on, as one of its replicas has it.

        Raises TimeoutError if that replica does not answer by the deadline, nor within two seconds after the wait.
        """
        if self._closed:
            raise OutcomeUnknown(CLOSED)
        g = self._group(group)
        members = self.config.group(g)
        number = next(self._reads)
        future: asyncio.Future[Rows] = self._loop.create_future()
        most = self.machine.limits.most_read if most_bytes is None else most_bytes
        read = Read(number, position, most, wait_ms)
        connection = self._connection(members[replica % len(members)].pid)
        assert connection is not None
        connection.reads[number] = future
        try:
            connection.send(frame(frames.READ, frames.encode(read)), [])
            seconds = wait_ms / 1000 + 2.0
            async with asyncio.timeout(seconds if deadline is None else min(seconds, deadline)):
                return await future
        finally:
            del connection.reads[number]

    async def change_members(self, replica: int, change: Change, seconds: float) -> None:
        """Ask a replica to have the members of its group change; return when that is under way, or is so already.

        Raises Refused if it is refused for good, AmcastError and TimeoutError if another replica may do it, or later.
        """
        connection = self._connection(replica)
        if connection is None:
            raise AmcastError(f"it is not known where {self.config.topology.name(replica)} is")
        change = msgspec.structs.replace(change, id=next(self._reads))
        future: asyncio.Future[Rows] = self._loop.create_future()
        connection.reads[change.id] = future
        try:
            connection.send(frame(frames.CHANGE, frames.encode(change)), [])
            async with asyncio.timeout(seconds):
                await future
        finally:
            connection.reads.pop(change.id, None)

    async def deliveries(self, group: str, start: int | str = 0) -> AsyncIterator[Delivery]:
        """Yield the ordered log of a group from a position, "earliest" or "latest" on, and all that comes."""
        position = start if isinstance(start, int) else 0
        replica = self.machine.random.getrandbits(6)
        if isinstance(start, str):
            if start not in ("earliest", "latest"):
                raise UsageError(f"start {start!r}: expected a position, 'earliest' or 'latest'")
            rows = await self._read_from_any(group, 2**40, 0, replica)
            position = rows.earliest if start == "earliest" else rows.end
        while True:
            rows = await self._read_from_any(group, position, self.machine.limits.read_wait_ms, replica)
            place = rows.first
            for ts, index, _, m in unpack_rows(rows.rows, len(self.config.topology.groups)):
                if place >= position:
                    yield delivery(self.config.topology, group, place, ts, index, m)
                place += 1
            position = max(position, rows.next if rows.rows else position)

    async def _read_from_any(self, group: str, position: int, wait_ms: int, replica: int) -> Rows:
        """Try the replicas of a group in turn until one answers, by the deadline."""
        until = self._loop.time() + self.deadline
        for attempt in itertools.count(replica):
            left = until - self._loop.time()
            if left <= 0:
                raise OutcomeUnknown(f"no replica of {group} answered within {self.deadline} s")
            with suppress(TimeoutError):
                return await self.rows(group, position, wait_ms=wait_ms, replica=attempt, deadline=left)
        raise AssertionError("an endless loop ended")


class SyncClient:
    """A client for programs without asyncio, made by `amcast.connect_sync`: an event loop in a thread of its own."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="amcast", daemon=True)
        self._thread.start()
        self._client = make()
        self._run(self._client.__aenter__())

    def multicast(self, dest: Iterable[str], payload: bytes, deadline: float | None = None) -> Answers[str]:
        """Deliver the payload to these groups; return what the application of each group answers, by its name."""
        return self._run(self._client.multicast(dest, payload, deadline))

    def deliveries(self, group: str, start: int | str = 0) -> Iterator[Delivery]:
        """Yield the log of a group, without end: leave the loop when you have enough."""
        rows = self._client.deliveries(group, start)
        try:
            while True:
                yield self._run(cast(Coroutine[Any, Any, Delivery], anext(rows)))
        finally:
            if not self._loop.is_closed():  # else the client ended first, and its readers with it
                with suppress(Exception):
                    self._run(cast(Coroutine[Any, Any, None], rows.aclose()))  # type: ignore[attr-defined]

    def read(self, group: str, request: bytes, deadline: float | None = None) -> bytes:
        """Return what the application of a group answers to a question, from its state as it is now: see `Client`."""
        return self._run(self._client.read(group, request, deadline))

    def rows(
        self, group: str, position: int, wait_ms: int = 0, replica: int = 0, most_bytes: int | None = None
    ) -> Rows:
        """Return a stretch of a group's log, as one replica has it. Raises TimeoutError if it does not answer."""
        return self._run(self._client.rows(group, position, wait_ms=wait_ms, replica=replica, most_bytes=most_bytes))

    def multicast_batches(self, batches: Iterable[tuple[tuple[int, ...], list[bytes]]], most_open: int = 8) -> int:
        """Multicast each as one client batch, in this order, so many at a time; return how many messages they were."""
        count = 0
        open_ones: deque[concurrent.futures.Future[None]] = deque()
        for dest, payloads in batches:
            if len(open_ones) == most_open:
                open_ones.popleft().result()
            open_ones.append(asyncio.run_coroutine_threadsafe(self._multicast_batch(dest, payloads), self._loop))
            count += len(payloads)
        for future in open_ones:
            future.result()
        return count

    async def _multicast_batch(self, dest: tuple[int, ...], payloads: list[bytes]) -> None:
        with suppress(AnswerGone):  # an earlier client of this session has multicast them
            await self._client.submit_batch(dest, payloads)

    def close(self) -> None:
        """End the client. The outcome of what is still open is unknown."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise MulticastFailed(CLOSED)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
