"""What became of a multicast is noted under the id that the trace has for it, whatever it ended with."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from amcast.apps.teller import Outcomes
from amcast.core.topology import message_id
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.client import Client
from amcast.runtime.client_engine import Run


class Numbering:
    """Like a client: what is asked for in one turn of the loop is numbered then, by destination."""

    def __init__(self) -> None:
        self.session = 7
        self.config = SimpleNamespace(topology=SimpleNamespace(name=lambda session: f"c{session}"))
        self._engine = SimpleNamespace(open={})
        self.asked: dict[tuple[int, ...], list[asyncio.Future[Any]]] = {}
        self.count = 0

    def submit(self, dest: tuple[int, ...], payload: bytes) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if payload == b"refuse":
            future.set_exception(MulticastFailed("at once"))
            return future
        if not self.asked:
            loop.call_soon(self.flush)
        self.asked.setdefault(dest, []).append(future)
        return future

    def flush(self) -> None:
        for dest, futures in self.asked.items():
            run = Run(dest)
            run.mid = message_id(self.session, self.count)
            run.waiting = cast(list[object], futures)
            self._engine.open[run.mid] = run
            self.count += len(futures)
        self.asked = {}


async def several() -> tuple[Outcomes, list[asyncio.Future[Any]]]:
    outcomes, fake = Outcomes(), Numbering()
    client = cast(Client, fake)
    futures = [outcomes.submit(client, dest, b"") for dest in ((0,), (1,), (0,), (0, 1))]
    asyncio.get_running_loop().call_soon(lambda: futures.append(outcomes.submit(client, (1,), b"")))  # the next turn
    refused = outcomes.submit(client, (0,), b"refuse")
    await asyncio.sleep(0.01)
    assert refused.exception()
    return outcomes, futures


def test_ids_are_those_of_the_trace() -> None:
    """Not the order of the calls: the third one joins the first, to the same group."""

    async def main() -> None:
        outcomes, futures = await several()
        for future in futures:
            future.set_result({})
        await asyncio.sleep(0.01)
        assert outcomes.acknowledged == {"c7:0": (0,), "c7:2": (1,), "c7:1": (0,), "c7:3": (0, 1), "c7:4": (1,)}
        assert (outcomes.failed, outcomes.unknown, outcomes.unexpected) == (1, 0, [])

    asyncio.run(main())


def test_every_way_to_end_is_counted() -> None:
    async def main() -> None:
        outcomes, futures = await several()
        futures[0].set_exception(OutcomeUnknown("late"))
        futures[1].set_exception(MulticastFailed("no"))
        futures[2].set_exception(ValueError("a bug"))
        futures[3].cancel()
        futures[4].set_result({})
        await asyncio.sleep(0.01)
        assert outcomes.acknowledged == {"c7:4": (1,)}
        assert outcomes.undecided == {"c7:0"} and (outcomes.unknown, outcomes.failed) == (1, 2)
        assert outcomes.unexpected == ["ValueError('a bug')", "CancelledError()"]

    asyncio.run(main())


def test_an_acknowledgement_that_no_row_can_be_found_for_is_unexpected() -> None:
    async def main() -> None:
        outcomes, fake = Outcomes(), Numbering()
        future = outcomes.submit(cast(Client, fake), (0,), b"")
        fake.asked.clear()
        future.set_result({})
        await asyncio.sleep(0.01)
        assert outcomes.acknowledged == {} and outcomes.unexpected == ["'acknowledged without an id'"]

    asyncio.run(main())
