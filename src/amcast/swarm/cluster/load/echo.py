"""An application that only repeats, and its users: multicasts of many sizes to sets of groups."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from amcast.checks.serializable import Append, Outcome
from amcast.checks.serializable.calls import Step
from amcast.core.application import Delivery
from amcast.errors import MulticastFailed, OutcomeUnknown, Rejected
from amcast.runtime.client import Client
from amcast.swarm.cluster.load.book import Book

RAISES: Final = b"!"  # how a payload begins that the application of an echo cannot execute


class Echo:
    """An application that answers with the position and the payload. Its state is a count and the last payloads.

    It raises if a payload asks for it: that takes a position and changes nothing.
    """

    def __init__(self, group: int, groups: int) -> None:
        self.count = 0
        self.sizes = 0
        self.last: list[bytes] = []

    def apply(self, delivery: Delivery) -> bytes:
        if delivery.payload.startswith(RAISES):
            raise ValueError("as it was asked to")
        self.count += 1
        self.sizes += len(delivery.payload)
        self.last = [*self.last[-9:], delivery.payload]
        return msgspec.msgpack.encode((delivery.position, delivery.payload))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.count, self.sizes, self.last))

    def restore(self, state: bytes) -> None:
        self.count, self.sizes, self.last = msgspec.msgpack.decode(state, type=tuple[int, int, list[bytes]])


@dataclass
class EchoUser:
    """Multicasts payloads of many sizes to sets of groups; each group's log is a list to which a multicast appends."""

    name: str
    client: Client
    book: Book
    random: Random
    deadline: float
    largest: int = 4096
    shape: float = 0.8  # of the distribution of sizes: the less, the more large ones
    sent: int = field(default=0)

    async def use(self, multicasts: int, think: float) -> None:
        for _ in range(multicasts):
            await asyncio.sleep(self.random.expovariate(1 / think))
            size = min(self.largest, int(min(self.random.paretovariate(self.shape), 1e6) * 16))
            groups = self.random.sample(range(self.client.groups), self.random.randint(1, self.client.groups))
            begin = RAISES if self.random.random() < 0.03 else b""
            await self.multicast(tuple(sorted(groups)), begin + self.book.value().encode() + b"." * size)

    async def multicast(self, dest: tuple[int, ...], payload: bytes) -> Outcome:
        topology = self.client.config.topology
        names = [topology.group_name(g) for g in dest]
        attempt = self.book.begin(self.name, (), self.deadline, dest)
        self.sent += 1
        try:
            answers = await self.client.submit(dest, payload, self.deadline)
        except MulticastFailed:
            self.book.refused_payloads.append(payload)
            return self.book.end(attempt, Outcome.REFUSED)
        except OutcomeUnknown as error:
            steps = tuple([Append(name, error.message) for name in names]) if error.message is not None else ()
            return self.book.end(attempt, Outcome.UNKNOWN, steps)
        except Rejected as error:
            if not payload.startswith(RAISES) or set(error.reasons) != set(names) or error.message is None:
                raise self.book.alarm("malformed answer", f"{self.name}: {error.message}: {error}") from error
            self.book.acknowledged[error.message] = tuple(names)
            return self.book.end(attempt, Outcome.DONE, tuple([Append(name, error.message) for name in names]))
        if payload.startswith(RAISES):
            raise self.book.alarm("malformed answer", f"{self.name}: {answers.message} should have been rejected")
        self.book.acknowledged[answers.message] = tuple(names)
        appended: list[Step] = []
        for group, name in zip(dest, names, strict=True):
            raw = answers.get(group)
            if not raw:
                raise self.book.alarm(
                    "empty answer", f"{self.name}: {answers.message} is answered by {name} with {raw!r}"
                )
            with suppress(msgspec.MsgspecError):
                position, echo = msgspec.msgpack.decode(raw, type=tuple[int, bytes])
                if echo == payload:
                    appended.append(Append(name, answers.message, position + 1))
                    continue
            text = f"{self.name}: {answers.message} is answered by {name} with {raw[:60]!r}"
            raise self.book.alarm("malformed answer", text)
        return self.book.end(attempt, Outcome.DONE, tuple(appended))
