"""What became of a multicast is noted under the id that the trace has for it, whatever it ended with."""

import asyncio
from typing import cast

from amcast.apps.teller import Outcomes
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.client import Answers, Client, answered


class Asked:
    """Like a client, of which nothing is answered before the test says so."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Answers[int]]] = []

    def submit(self, dest: tuple[int, ...], payload: bytes) -> "asyncio.Future[Answers[int]]":
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


def test_every_way_to_end_is_counted() -> None:
    async def main() -> None:
        outcomes, fake = Outcomes(), Asked()
        for dest in ((0,), (1,), (0, 1), (0,), (1,), (0,), (0,)):
            outcomes.submit(cast(Client, fake), dest, b"")
        one, two, late, unsent, refused, broken, cancelled = fake.futures
        two.set_result(answered("c7", 0, {1: b""}))  # numbered by destination, not in the order of the calls
        one.set_result(answered("c7", 1, {0: b""}))
        late.set_exception(OutcomeUnknown("late", "c7:2"))
        unsent.set_exception(OutcomeUnknown("closed"))
        refused.set_exception(MulticastFailed("no"))
        broken.set_exception(ValueError("a bug"))
        cancelled.cancel()
        await asyncio.sleep(0)
        assert outcomes.acknowledged == {"c7:1": (0,), "c7:0": (1,)}
        assert outcomes.undecided == {"c7:2"} and (outcomes.unknown, outcomes.failed) == (2, 1)
        assert outcomes.unexpected == ["ValueError('a bug')", "CancelledError()"]

    asyncio.run(main())
