"""Moves money between the accounts of a bank, and counts it: the load of the demonstration and of chaos tests."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from amcast.apps.bank import group_of
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.client import Answers, Client
from amcast.runtime.loop import new_event_loop

ACCOUNTS: Final = 60
OPENING: Final = 1000
MOST_OPEN: Final = 500  # transfers at a time
TURN: Final = 0.02  # seconds between looks at the clock
encode = msgspec.msgpack.encode
Pending = asyncio.Future[Answers[int]]


@dataclass
class Outcomes:
    """What became of multicasts, by the ids that they have in the trace."""

    acknowledged: dict[str, tuple[int, ...]] = field(default_factory=dict)  # and their destination groups
    undecided: set[str] = field(default_factory=set)  # nobody answered in time: these may be delivered or not
    unknown: int = 0
    failed: int = 0
    unexpected: list[str] = field(default_factory=list)  # errors with which no multicast may end

    def submit(self, client: Client, dest: tuple[int, ...], payload: bytes) -> Pending:
        """Multicast, and note the outcome."""
        future = client.submit(dest, payload)
        future.add_done_callback(partial(self._ended, dest))
        return future

    def _ended(self, dest: tuple[int, ...], future: Pending) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self.acknowledged[future.result().message] = dest
        elif isinstance(error, OutcomeUnknown):
            self.unknown += 1
            if error.message is not None:
                self.undecided.add(error.message)
        elif isinstance(error, MulticastFailed):
            self.failed += 1
        else:
            self.unexpected.append(repr(error))


@dataclass
class Takings(Outcomes):
    """What came of it. The ids are those of transfers, openings and the count of all money."""

    done: int = 0  # transfers
    expected: int = 0
    total: int = 0
    latencies: list[tuple[float, float]] = field(default_factory=list)  # of transfers: when asked for, how long it took


def run(
    client: Client,
    seconds: float,
    rate: float,
    *,
    actions: Sequence[tuple[float, Callable[[], None]]] = (),
    progress: Callable[[float, Takings, int], None] = lambda now, takings, under_way: None,
    seed: int = 0,
) -> Takings:
    """Make so many transfers per second for so long, and until all `actions` are done, which are called in threads.

    Every transfer gets an answer by its deadline. The books must balance in the end: see `expected` and `total`.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(client, seconds, rate, actions, progress, random.Random(seed)))


async def _run(
    client: Client,
    seconds: float,
    rate: float,
    actions: Sequence[tuple[float, Callable[[], None]]],
    progress: Callable[[float, Takings, int], None],
    chance: random.Random,
) -> Takings:
    takings = Takings()
    groups = client.groups
    accounts = [f"account-{i}" for i in range(ACCOUNTS)]
    async with client:
        for account in accounts:
            await takings.submit(client, (group_of(account, groups),), encode(("open", account, OPENING)))
        takings.expected = ACCOUNTS * OPENING
        began = time.monotonic()
        under_way: set[Pending] = set()
        waiting = [asyncio.create_task(_later(began + after, action)) for after, action in actions]
        asked = 0

        def ended(when: float, future: Pending) -> None:
            under_way.discard(future)
            if not future.cancelled() and future.exception() is None:
                takings.done += 1
                takings.latencies.append((when, time.monotonic() - began - when))

        while (now := time.monotonic() - began) < seconds or not all(task.done() for task in waiting):
            due = min(int(now * rate) - asked, MOST_OPEN - len(under_way))
            for _ in range(due):
                one, other = chance.sample(accounts, 2)
                dest = tuple(sorted({group_of(one, groups), group_of(other, groups)}))
                future = takings.submit(client, dest, encode(("transfer", one, other, chance.randint(1, 100))))
                under_way.add(future)
                future.add_done_callback(partial(ended, now))
                asked += 1
            progress(now, takings, len(under_way))
            await asyncio.sleep(TURN)
        for task in waiting:
            task.result()
        if under_way:
            await asyncio.wait(under_way)
        progress(seconds, takings, 0)
        totals = await takings.submit(client, tuple(range(groups)), encode(("total",)))
        takings.total = sum(msgspec.msgpack.decode(total, type=int) for total in totals.values())
    return takings


async def _later(when: float, action: Callable[[], None]) -> None:
    await asyncio.sleep(max(0.0, when - time.monotonic()))
    await asyncio.get_running_loop().run_in_executor(None, action)
