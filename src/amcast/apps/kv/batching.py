"""From many connections to few multicasts: what goes to the same groups at the same time travels together.

All that decides what goes together is here. `Together` holds the commands of one connection that may be under way at
the same time; the `Batcher` joins what many connections have for the same groups.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from amcast.apps.kv.strings import Command
from amcast.apps.kv.wire import Answer, Decide, Done, Execute, Fetch, StoreRequest, Unit, Waits, decode_answers, encode
from amcast.errors import AmcastError, OutcomeUnknown
from amcast.runtime.machine import Machine

Dest = tuple[int, ...]
T = TypeVar("T")


class ClusterClient(Protocol):
    """What the gateway needs of a client of the cluster."""

    @property
    def groups(self) -> int: ...

    @property
    def machine(self) -> Machine: ...

    def submit(self, dest: Dest, payload: bytes) -> "asyncio.Future[Any]":
        """Multicast; return the answers of the groups. Raises OutcomeUnknown or MulticastFailed by its deadline."""
        ...


GroupAnswers = dict[int, list[Answer]]
Calls = list[tuple[int, Command]]  # commands with the places of their replies
Jobs = list[tuple[int, "asyncio.Future[GroupAnswers]"]]  # how many units, and who waits for their answers


class Together:
    """Commands of one connection that go out together, as one multicast for each set of groups.

    Sets that overlap do not go together, for two multicasts may be delivered in any order: so the commands of a
    connection on one key are executed in their order.
    """

    def __init__(self, most_bytes: int) -> None:
        self.calls: dict[Dest, Calls] = {}
        self._most_bytes = most_bytes
        self.size = 0
        self._sets: dict[int, Dest] = {}  # by group, the one set with which something goes there

    def add(self, place: int, command: Command, dest: Dest) -> bool:
        """Take a command along; return False if it has to wait until those before it are answered."""
        size = sum(map(len, command)) + 8 * len(command)
        if self.calls and (self.size + size > self._most_bytes or self._overlaps(dest)):
            return False
        self.size += size
        calls = self.calls.get(dest)
        if calls is not None:
            calls.append((place, command))
        else:
            self.calls[dest] = [(place, command)]
            self._sets.update(dict.fromkeys(dest, dest))
        return True

    def _overlaps(self, dest: Dest) -> bool:
        """Return whether something goes to a part of these groups, but not to all of them and no other."""
        if len(dest) == 1:
            return self._sets.get(dest[0], dest) != dest
        return any(self._sets.get(group, dest) != dest for group in dest)


class Lane:
    """What waits to go to one set of groups."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[list[Unit], int, asyncio.Future[GroupAnswers]]] = deque()
        self.under_way = 0


class Batcher:
    """All that the connections of a gateway ask of the cluster passes here."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self.groups = client.groups
        self.limits = client.machine.limits
        self._clock = client.machine.clock
        self._lanes: defaultdict[Dest, Lane] = defaultdict(Lane)
        self._ready: dict[Dest, Lane] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._seen: dict[bytes, int] = {}  # locks of others: since when

    def send(self, dest: Dest, units: list[Unit], size: int = 0) -> "asyncio.Future[GroupAnswers]":
        """Have groups execute these units in this order. The answers may be tickets; `collect` makes values of them."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[GroupAnswers] = loop.create_future()
        lane = self._lanes[dest]
        lane.jobs.append((units, size, done))
        if not self._ready:
            loop.call_soon(self._flush)
        self._ready[dest] = lane
        return done

    async def collect(self, done: "asyncio.Future[GroupAnswers]") -> dict[int, list[Any]]:
        """Return the values of the units, per group, also of those that wait behind a lock."""
        answers = await done
        return {
            group: [part.value if isinstance(part, Done) else await self._fetch(group, part) for part in parts]
            for group, parts in answers.items()
        }

    async def execute(self, together: Together) -> list[tuple[Calls, dict[int, list[Any]] | AmcastError]]:
        """Return, for each set of groups, its commands, and what each group says to each, or why nobody knows."""
        sent = []
        for dest, calls in together.calls.items():
            units: list[Unit] = [Execute([command]) for _, command in calls]
            sent.append((calls, self.send(dest, units, together.size)))
        found: list[tuple[Calls, dict[int, list[Any]] | AmcastError]] = []
        for calls, done in sent:
            try:
                found.append((calls, await self.collect(done)))
            except AmcastError as error:
                found.append((calls, error))
        return found

    async def call(self, dest: Dest, unit: Unit) -> dict[int, Any]:
        """Have groups execute one unit; return its value, per group."""
        values = await self.collect(self.send(dest, [unit]))
        return {group: parts[0] for group, parts in values.items()}

    async def to_the_end(self, steps: Coroutine[Any, Any, T]) -> T:
        """Go on when the caller is cancelled: what is prepared must be decided, also if its client left."""
        task = asyncio.get_running_loop().create_task(steps)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has heard of it, if there still is one

    # Batches

    def _flush(self) -> None:
        ready, self._ready = self._ready, {}
        for dest, lane in ready.items():
            self._depart(dest, lane)

    def _depart(self, dest: Dest, lane: Lane) -> None:
        while lane.jobs and lane.under_way < self.limits.under_way:
            jobs: Jobs = []
            batch: list[Unit] = []
            total = 0
            while lane.jobs and (not jobs or total + lane.jobs[0][1] <= self.limits.gateway_batch_bytes):
                units, size, done = lane.jobs.popleft()
                batch += units
                total += size
                jobs.append((len(units), done))
            lane.under_way += 1
            try:
                now_ms = self._clock.wall_ns() // 1_000_000
                future = self.client.submit(dest, encode(StoreRequest(now_ms, batch)))
            except AmcastError as refused:
                lane.under_way -= 1
                self._hand_out(jobs, {}, refused)
            else:
                future.add_done_callback(partial(self._arrive, dest, lane, jobs))
        if not lane.jobs and not lane.under_way:
            self._lanes.pop(dest, None)

    def _arrive(self, dest: Dest, lane: Lane, jobs: Jobs, future: "asyncio.Future[dict[int, bytes]]") -> None:
        lane.under_way -= 1
        answers: GroupAnswers = {}
        failure = OutcomeUnknown("the client was closed") if future.cancelled() else future.exception()
        if failure is not None and not isinstance(failure, AmcastError):
            failure = OutcomeUnknown(f"{type(failure).__name__}: {failure}")
        if failure is None:
            try:
                answers = {group: decode_answers(part) for group, part in future.result().items()}
            except msgspec.MsgspecError as error:
                failure = OutcomeUnknown(f"an answer that cannot be read: {error}")
            units = sum(count for count, _ in jobs)
            if failure is None and {group: len(part) for group, part in answers.items()} != dict.fromkeys(dest, units):
                failure = OutcomeUnknown("not one answer per group and unit")
        self._hand_out(jobs, answers, failure)
        self._depart(dest, lane)

    @staticmethod
    def _hand_out(jobs: Jobs, answers: GroupAnswers, failure: BaseException | None) -> None:
        at = 0
        for count, done in jobs:
            if not done.done():
                if failure is not None:
                    done.set_exception(failure)
                else:
                    done.set_result({group: part[at : at + count] for group, part in answers.items()})
            at += count

    # Locks

    async def _fetch(self, group: int, answer: Answer) -> Any:
        """Return the value of a unit that waits. It is in the log: no failure here means that it is not executed."""
        delay = 0.001
        deadline = self._clock.monotonic_ns() + self.limits.seconds_to_get_a_lock * 1e9
        try:
            while isinstance(answer, Waits) and self._clock.monotonic_ns() < deadline:
                await self._break_if_old(answer)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 0.1)
                answer = (await self.send((group,), [Fetch(answer.ticket)]))[group][0]
        except AmcastError as error:
            raise OutcomeUnknown(f"while it waited for a lock: {error}") from error
        if isinstance(answer, Done):
            return answer.value
        raise OutcomeUnknown("it waited for a lock for too long")

    async def _break_if_old(self, lock: Waits) -> None:
        now = self._clock.monotonic_ns()
        while len(self._seen) > 1024:
            del self._seen[next(iter(self._seen))]
        if now - self._seen.setdefault(lock.txn, now) > self.limits.lock_seconds * 1e9:
            await self.send(tuple(lock.dest), [Decide(lock.txn, commit=False)])
