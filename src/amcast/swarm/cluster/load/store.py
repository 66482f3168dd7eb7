"""Users of the store: what all of them do, and those that ask its groups directly."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import msgspec

from amcast.apps.kv.commands import groups_of, merge
from amcast.apps.kv.slots import even
from amcast.apps.kv.strings import Command
from amcast.apps.kv.wire import (
    Answer,
    Done,
    Execute,
    Fetch,
    Stale,
    StoreRequest,
    Unit,
    Waits,
    decode_answers,
    encode,
)
from amcast.checks.serializable import Outcome
from amcast.errors import MulticastFailed, OutcomeUnknown, Rejected, SlotsMoved
from amcast.runtime.client import Client
from amcast.swarm.cluster.load.book import Book
from amcast.swarm.cluster.load.wishes import Keys, Wish, answered, destinations, draw_wish

PAUSE: Final = 0.2  # seconds before somebody who must succeed tries again
Execution = Callable[[Wish], Awaitable[Outcome]]


async def use_store(execute: Execution, book: Book, random: Random, *, wishes: int, think: float, keys: Keys) -> None:
    """Do what one user does: so many wishes, with pauses of `think` seconds in the mean; again what was refused."""
    for _ in range(wishes):
        if random.random() < 0.6:  # else it asks again at once, and may be faster than what others do
            await asyncio.sleep(random.expovariate(1 / think))
        for _ in range(3):
            if await execute(draw_wish(random, keys, book.value)) is not Outcome.REFUSED:
                break
            await asyncio.sleep(PAUSE * random.random())


async def read_everything(execute: Execution, keys: Keys, tries: int = 1000) -> None:
    """Read all keys, each until it is answered: what was acknowledged must be there."""
    for asked in keys.everything():
        for _ in range(tries):
            if await execute(asked) is Outcome.DONE:
                break
            await asyncio.sleep(PAUSE)


class DirectUser:
    """Asks the groups of the store by itself, as a gateway would, and looks at every answer of theirs."""

    def __init__(self, name: str, client: Client, book: Book, deadline: float) -> None:
        self.name = name
        self.client = client
        self.book = book
        self.deadline = deadline
        self.slots = even(client.groups)

    async def execute(self, asked: Wish) -> Outcome:
        commands: list[Command] = [list(command) for command in asked.commands]
        due = asyncio.get_running_loop().time() + self.deadline
        slots = self.slots
        attempt = self.book.begin(self.name, asked.steps, 2 * self.deadline)  # it may have to wait for a lock
        try:
            while True:
                slots = self.slots
                attempt.groups = destinations(asked, slots)
                try:
                    parts = await self._ask(attempt.groups, Execute(commands), asked.writes, slots.version)
                    break
                except SlotsMoved:
                    if asyncio.get_running_loop().time() > due:
                        raise
                    await asyncio.sleep(0.01)
        except MulticastFailed:
            return self.book.end(attempt, Outcome.REFUSED)
        except OutcomeUnknown:
            return self.book.end(attempt, Outcome.UNKNOWN)
        except Rejected as error:
            raise self.book.alarm("error answer", f"{self.name}: {asked.commands}: {error}") from error
        try:
            results = []
            for at, command in enumerate(commands):
                results.append(merge(command, {g: parts[g].value[at] for g in groups_of(command, slots)}, slots))
            steps = answered(asked, results)
        except (LookupError, TypeError, ValueError) as error:
            raise self.book.alarm("malformed answer", f"{self.name}: {asked.commands}: {error}") from error
        return self.book.end(attempt, Outcome.DONE, steps)

    async def _ask(self, dest: tuple[int, ...], unit: Unit, writes: bool, version: int) -> dict[int, Done]:
        """Return what each group found in the end. Raises SlotsMoved, MulticastFailed and OutcomeUnknown."""
        payload = encode(StoreRequest(self.client.machine.clock.wall_ns() // 1_000_000, [unit], version))
        try:
            raw = await self.client.submit(dest, payload, self.deadline)
        except MulticastFailed:
            if writes:
                self.book.refused_payloads.append(payload)
            raise
        self.book.acknowledged[raw.message] = self._names(dest)
        self._learn_map(raw.message, [self._answer(raw.message, group, raw.get(group)) for group in dest])
        found: dict[int, Done] = {}
        until = asyncio.get_running_loop().time() + self.deadline
        for group in dest:
            answer = self._answer(raw.message, group, raw.get(group))
            while isinstance(answer, Waits):
                if asyncio.get_running_loop().time() > until:
                    raise OutcomeUnknown("it waited for a lock for too long")
                await asyncio.sleep(0.01)
                try:
                    again = await self._fetch(group, answer.ticket)
                except MulticastFailed as error:  # what waits may run yet
                    raise OutcomeUnknown(str(error)) from error
                answer = self._answer(raw.message, group, again)
            if not isinstance(answer, Done):
                raise OutcomeUnknown("its ticket is not known")
            found[group] = answer
        return found

    def _learn_map(self, message: str, answers: list[Answer]) -> None:
        """Raise SlotsMoved if all groups say so, and take the newer map."""
        stale = [answer for answer in answers if isinstance(answer, Stale)]
        if not stale:
            return
        if stale != [answers[0]] * len(answers):
            raise self.book.alarm("executed in part", f"{self.name}: {message} is answered with {answers}")
        told = stale[0]
        if told.version > self.slots.version:
            self.slots = self.slots.updated(told.version, tuple(told.groups), told.regrouped, told.runs)
        raise SlotsMoved("slots have moved")

    async def _fetch(self, group: int, ticket: int) -> bytes | None:
        payload = encode(StoreRequest(self.client.machine.clock.wall_ns() // 1_000_000, [Fetch(ticket)]))
        return (await self.client.submit((group,), payload, self.deadline)).get(group)

    def _answer(self, message: str, group: int, raw: bytes | None) -> Answer:
        if not raw:
            raise self.book.alarm("empty answer", f"{self.name}: {message} is answered by g{group} with {raw!r}")
        try:
            (answer,) = decode_answers(raw)
        except (msgspec.MsgspecError, ValueError) as error:
            text = f"{self.name}: {message} is answered by g{group} with {raw[:60]!r}: {error}"
            raise self.book.alarm("malformed answer", text) from error
        return answer

    def _names(self, dest: tuple[int, ...]) -> tuple[str, ...]:
        return tuple([self.client.config.topology.group_name(g) for g in dest])
