"""From many connections to few multicasts: what goes to the same groups at the same time travels together."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec

from amcast.apps.kv.wire import Answer, Decide, Done, Fetch, Request, Unit, Waits, decode_answers, encode
from amcast.errors import AmcastError, OutcomeUnknown

BATCH_BYTES: Final = 256 * 1024
UNDER_WAY: Final = 8  # multicasts to the same groups; while there are so many, the next one grows
LOCK_SECONDS: Final = 2.0  # a lock that is seen for longer belongs to a gateway that is gone
PATIENCE_SECONDS: Final = 10.0

Dest = tuple[int, ...]
T = TypeVar("T")


class Client(Protocol):
    """What the gateway needs of a client of the cluster."""

    @property
    def groups(self) -> int: ...

    def submit(self, dest: Dest, payload: bytes) -> "asyncio.Future[Any]":
        """Multicast: the answers of the groups. Raises OutcomeUnknown or MulticastFailed at the client's deadline."""
        ...


Answers = dict[int, list[Answer]]
Jobs = list[tuple[int, "asyncio.Future[Answers]"]]  # how many units, and who waits for their answers


class Lane:
    """What waits to go to one set of groups."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[list[Unit], int, asyncio.Future[Answers]]] = deque()
        self.under_way = 0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Funnel:
    def __init__(self, client: Client, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.client = client
        self.groups = client.groups
        self._clock_ms = clock_ms
        self._lanes: dict[Dest, Lane] = {}
        self._ready: dict[Dest, Lane] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._seen: dict[bytes, float] = {}  # locks of others: since when

    def send(self, dest: Dest, units: list[Unit], size: int = 0) -> "asyncio.Future[Answers]":
        """Units that a group executes in this order. The answers may be tickets; `collect` turns them into values."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answers] = loop.create_future()
        lane = self._lanes.get(dest)
        if lane is None:
            lane = self._lanes[dest] = Lane()
        lane.jobs.append((units, size, done))
        if not self._ready:
            loop.call_soon(self._flush)
        self._ready[dest] = lane
        return done

    async def collect(self, done: "asyncio.Future[Answers]") -> dict[int, list[Any]]:
        """The values of the units, per group; waits for those that wait behind a lock."""
        answers = await done
        return {
            group: [part.value if isinstance(part, Done) else await self._fetch(group, part) for part in parts]
            for group, parts in answers.items()
        }

    async def call(self, dest: Dest, unit: Unit) -> dict[int, Any]:
        values = await self.collect(self.send(dest, [unit]))
        return {group: parts[0] for group, parts in values.items()}

    async def to_the_end(self, steps: Coroutine[Any, Any, T]) -> T:
        """Steps that go on when the caller is cancelled: what is prepared must be decided, also if its client left."""
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
        while lane.jobs and lane.under_way < UNDER_WAY:
            jobs: Jobs = []
            batch: list[Unit] = []
            total = 0
            while lane.jobs and (not jobs or total + lane.jobs[0][1] <= BATCH_BYTES):
                units, size, done = lane.jobs.popleft()
                batch += units
                total += size
                jobs.append((len(units), done))
            lane.under_way += 1
            try:
                future = self.client.submit(dest, encode(Request(self._clock_ms(), batch)))
            except AmcastError as refused:
                lane.under_way -= 1
                self._hand_out(jobs, {}, refused)
            else:
                future.add_done_callback(partial(self._arrive, dest, lane, jobs))
        if not lane.jobs and not lane.under_way:
            self._lanes.pop(dest, None)

    def _arrive(self, dest: Dest, lane: Lane, jobs: Jobs, future: "asyncio.Future[dict[int, bytes]]") -> None:
        lane.under_way -= 1
        answers: Answers = {}
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
    def _hand_out(jobs: Jobs, answers: Answers, failure: BaseException | None) -> None:
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
        """The value of a unit that waits. It is in the log: no failure here means that it is not executed."""
        delay = 0.001
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            while isinstance(answer, Waits) and time.monotonic() < deadline:
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
        now = time.monotonic()
        while len(self._seen) > 1024:
            del self._seen[next(iter(self._seen))]
        if now - self._seen.setdefault(lock.txn, now) > LOCK_SECONDS:
            await self.send(tuple(lock.dest), [Decide(lock.txn, commit=False)])
