"""A cluster in one process: state machines fed in one total order, each multicast whole before the next."""

import asyncio
import queue
import random
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ssl import SSLContext
from typing import IO, Any

from amcast.apps.kv.gateway import Gateway
from amcast.apps.kv.machine import KV
from amcast.apps.kv.resp import LARGEST_REQUEST
from amcast.apps.kv.users import User, Users
from amcast.apps.kv.users_file import is_right
from amcast.apps.kv.wire import Look, StoreRequest, encode
from amcast.core.application import Delivery
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Condition
from amcast.runtime.log import Log
from amcast.runtime.machine import REAL, Limits, Machine
from tests.pace import allow


def delivery(group: int, dest: tuple[int, ...], payload: bytes, position: int = 0) -> Delivery:
    names = tuple(f"g{number}" for number in dest)
    return Delivery(f"g{group}", position, (position, names[0]), f"c0:{position}", "c0", names, payload)


LOOK = encode(StoreRequest(0, [Look()]))
Multicast = tuple[tuple[int, ...], bytes, dict[int, bytes], "asyncio.Future[dict[int, bytes]]"]


class InProcess:
    """The client that a gateway uses."""

    def __init__(self, groups: int, machine: Machine = REAL) -> None:
        self.groups = groups
        self.machine = machine
        self.machines = [KV(group, groups) for group in range(groups)]
        self.position = 0
        self.fails: Callable[[tuple[int, ...]], Exception | None] = lambda dest: None

    deadline = 30.0
    reads = False

    async def conditions(self, seconds: float) -> dict[str, Condition]:
        """Return what replicas say whose clocks are right."""
        now, heard = REAL.clock.wall_ns() // 1_000_000, self.machine.clock.monotonic_ns()
        return {f"g{group}/0": Condition(now, None, heard) for group in range(len(self.machines))}

    def submit(
        self, dest: tuple[int, ...], payload: bytes, deadline: float | None = None
    ) -> "asyncio.Future[dict[int, bytes]]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[int, bytes]] = loop.create_future()
        if payload == LOOK:  # what a gateway asks before it serves: no test is about that
            future.set_result({group: self.machines[group].apply(delivery(group, dest, payload)) for group in dest})
        else:
            loop.call_soon(self._execute, dest, payload, future)
        return future

    def _execute(self, dest: tuple[int, ...], payload: bytes, future: "asyncio.Future[dict[int, bytes]]") -> None:
        self.position += 1
        failure = self.fails(dest)
        if failure is not None:
            future.set_exception(failure)
            return
        answers = {group: self.machines[group].apply(delivery(group, dest, payload, self.position)) for group in dest}
        if not future.done():
            future.set_result(answers)


class Lagging(InProcess):
    """Orders what is under way at random, and delivers it in the groups at different times."""

    def __init__(self, groups: int, seed: int) -> None:
        super().__init__(groups)
        self._choose = random.Random(seed)
        self._pool: list[Multicast] = []
        self._logs: list[deque[Multicast]] = [deque() for _ in range(groups)]

    def _execute(self, dest: tuple[int, ...], payload: bytes, future: "asyncio.Future[dict[int, bytes]]") -> None:
        self._pool.append((dest, payload, {}, future))
        self._step()

    def _step(self) -> None:
        if self._pool and self._choose.random() < 0.3:
            chosen = self._pool.pop(self._choose.randrange(len(self._pool)))
            for group in chosen[0]:
                self._logs[group].append(chosen)
        group = self._choose.randrange(self.groups)
        if self._logs[group]:
            dest, payload, answers, future = self._logs[group].popleft()
            answers[group] = self.machines[group].apply(delivery(group, dest, payload))
            if len(answers) == len(dest) and not future.done():
                future.set_result(answers)
        if self._pool or any(self._logs):
            asyncio.get_running_loop().call_soon(self._step)


class Held(InProcess):
    """What has several groups is delivered in the first of them at once, in the others when released: a legal order."""

    held: list[Multicast] | None = None

    def _execute(self, dest: tuple[int, ...], payload: bytes, future: "asyncio.Future[dict[int, bytes]]") -> None:
        if self.held is None or len(dest) == 1:
            super()._execute(dest, payload, future)
            return
        answers = {dest[0]: self.machines[dest[0]].apply(delivery(dest[0], dest, payload))}
        self.held.append((dest, payload, answers, future))

    def release(self) -> None:
        held, self.held = self.held or [], None
        for dest, payload, answers, future in held:
            for group in dest[1:]:
                answers[group] = self.machines[group].apply(delivery(group, dest, payload))
            future.set_result(answers)


@asynccontextmanager
async def gateway(
    groups: int,
    largest_request: int = LARGEST_REQUEST,
    users: Mapping[str, User] | None = None,
    context: SSLContext | None = None,
    members: ClusterConfig | None = None,
    log: IO[str] | None = None,
    limits: Limits = REAL.limits,
) -> AsyncIterator[Gateway]:
    found = Gateway(
        InProcess(groups, Machine(limits=limits)),
        largest_request=largest_request,
        users=Users(users, is_right, Machine(limits=limits)) if users is not None else None,
        members=members,
        log=Log("kv", stream=log) if log is not None else None,
    )
    await found.listen("127.0.0.1", 0, context)
    try:
        yield found
    finally:
        await found.close()


@contextmanager
def gateway_in_thread(groups: int, **options: Any) -> Iterator[Gateway]:
    """For clients that block."""
    ready: queue.Queue[Gateway] = queue.Queue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with gateway(groups, **options) as found:
            ready.put(found)
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        yield ready.get(timeout=allow(10))
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=allow(10))
        loop.close()
