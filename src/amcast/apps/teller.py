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
from amcast.core.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.client import Client
from amcast.runtime.loop import new_event_loop

ACCOUNTS: Final = 60
OPENING: Final = 1000
TURN: Final = 0.02  # seconds between looks at the clock
encode = msgspec.msgpack.encode


@dataclass
class Takings:
    """What came of it."""

    done: int = 0
    failed: int = 0
    unknown: int = 0
    expected: int = 0
    total: int = 0
    latencies: list[tuple[float, float]] = field(default_factory=list)  # when it was asked for, how long it took


def run(
    client: Client,
    seconds: float,
    rate: float,
    *,
    actions: Sequence[tuple[float, Callable[[], None]]] = (),
    progress: Callable[[float, Takings, int], None] = lambda now, takings, under_way: None,
    most_open: int = 500,
    seed: int = 0,
) -> Takings:
    """So many transfers per second for so long, and until all `actions` are done; they are called in threads.

    Every transfer gets an answer by its deadline. The books must balance in the end: see `expected` and `total`.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(client, seconds, rate, actions, progress, most_open, random.Random(seed)))


async def _run(
    client: Client,
    seconds: float,
    rate: float,
    actions: Sequence[tuple[float, Callable[[], None]]],
    progress: Callable[[float, Takings, int], None],
    most_open: int,
    chance: random.Random,
) -> Takings:
    takings = Takings()
    groups = client.groups
    accounts = [f"account-{i}" for i in range(ACCOUNTS)]
    async with client:
        for account in accounts:
            await client.submit((group_of(account, groups),), encode(("open", account, OPENING)))
        takings.expected = ACCOUNTS * OPENING
        began = time.monotonic()
        under_way: set[asyncio.Future[dict[int, bytes]]] = set()
        waiting = [asyncio.create_task(_later(began + after, action)) for after, action in actions]
        asked = 0

        def ended(when: float, future: asyncio.Future[dict[int, bytes]]) -> None:
            under_way.discard(future)
            error = future.exception()
            if error is None:
                takings.done += 1
            elif isinstance(error, OutcomeUnknown):
                takings.unknown += 1
            elif isinstance(error, MulticastFailed):
                takings.failed += 1
            takings.latencies.append((when, time.monotonic() - began - when))

        while (now := time.monotonic() - began) < seconds or not all(task.done() for task in waiting):
            due = min(int(now * rate) - asked, most_open - len(under_way))
            for _ in range(due):
                one, other = chance.sample(accounts, 2)
                dest = tuple(sorted({group_of(one, groups), group_of(other, groups)}))
                future = client.submit(dest, encode(("transfer", one, other, chance.randint(1, 100))))
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
        totals = await client.submit(tuple(range(groups)), encode(("total",)))
        takings.total = sum(msgspec.msgpack.decode(total, type=int) for total in totals.values())
    return takings


async def _later(when: float, action: Callable[[], None]) -> None:
    await asyncio.sleep(max(0.0, when - time.monotonic()))
    await asyncio.get_running_loop().run_in_executor(None, action)
