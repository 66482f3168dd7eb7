"""Clients of a simulated cluster, and what they write down: direct ones, and Redis clients of the gateway.

All of them do what a user would: think, ask, take an answer, an error or silence for what it is, and go on. Everything
goes through the running loop and a `Random` that is handed in. A `Book` has what they did and heard, in the one true
time of the world, which no process knows; `judge.check_calls` judges its calls.

Keys tell what they hold by their first letter: r a register, s one that is swapped, m one that is written with others,
c a counter, l a list. The store has no lists, so these are strings to which elements of one width are appended. No two
attempts write the same value.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Final

import msgspec

from amcast.apps.kv.commands import groups_of, merge
from amcast.apps.kv.strings import Command, Result
from amcast.apps.kv.wire import Answer, Done, Execute, Fetch, StoreRequest, Unit, Waits, decode_answers, encode
from amcast.checks.serializable import Append, Call, Get, Increment, Outcome, Put
from amcast.checks.serializable.calls import Answer as Heard
from amcast.checks.serializable.calls import Step
from amcast.core.application import Delivery
from amcast.errors import Alarm, CommandRefused, MulticastFailed, OutcomeUnknown, Rejected
from amcast.runtime.client import Client
from amcast.swarm.cluster.judge import Journal

WIDTH: Final = 8  # of an element of a list, in bytes
RAISES: Final = b"!"  # how a payload begins that the application of an echo cannot execute
PAUSE: Final = 0.2  # seconds before somebody who must succeed tries again
NOT_EXECUTED: Final = ("-TRYAGAIN not executed", "-BUSY", "-EXECABORT", "-ERR max number of clients")
MAYBE_EXECUTED: Final = "-TRYAGAIN"


@dataclass(eq=False)
class Attempt:
    """A call that is under way."""

    client: str
    began: float
    due: float
    steps: tuple[Step, ...]
    groups: tuple[int, ...]


class Book:
    """What clients of one kind did and heard. `now` is the time of the world, in seconds."""

    def __init__(self, now: Callable[[], float], *, slack: float = 1.0) -> None:
        self.calls: list[Call] = []
        self.alarms: list[Alarm] = []
        self.acknowledged: dict[str, tuple[str, ...]] = {}  # multicasts by their ids, with the names of their groups
        self.refused_payloads: list[bytes] = []
        self.open: dict[Attempt, None] = {}
        self._now = now
        self._slack = slack
        self._numbers = count(1)

    def value(self) -> str:
        """Return a value that nobody wrote before."""
        return f"{next(self._numbers):0{WIDTH}d}"

    def alarm(self, kind: str, reason: str) -> Alarm:
        """Return an alarm, for the caller to raise, and keep it for whoever runs the world."""
        found = Alarm(kind, reason)
        self.alarms.append(found)
        return found

    def begin(
        self, client: str, steps: tuple[Step, ...], deadline: float = float("inf"), groups: tuple[int, ...] = ()
    ) -> Attempt:
        """Write down that a call begins, which must end within `deadline` seconds."""
        began = self._now()
        attempt = Attempt(client, began, began + deadline + self._slack, steps, groups)
        self.open[attempt] = None
        return attempt

    def end(self, attempt: Attempt, outcome: Outcome, steps: tuple[Step, ...] | None = None) -> Outcome:
        """Write down how a call ended, and with what answers."""
        del self.open[attempt]
        self._look_at_the_clock(attempt)
        told = attempt.steps if steps is None else steps
        self.calls.append(Call(attempt.client, attempt.began, self._now(), told, outcome, attempt.groups))
        return outcome

    def check_open(self) -> None:
        """Alarm if a call that is under way should have ended."""
        for attempt in self.open:
            self._look_at_the_clock(attempt)

    def _look_at_the_clock(self, attempt: Attempt) -> None:
        if self._now() > attempt.due:
            took = f"{self._now() - attempt.began:.1f} s, due after {attempt.due - attempt.began:.1f}"
            raise self.alarm("late answer", f"{attempt.client}: {'; '.join(map(str, attempt.steps))}: {took}")

    def abandon(self) -> None:
        """Write down that nobody will hear how the calls that are under way end: their client is dead."""
        for attempt in list(self.open):
            del self.open[attempt]
            self.calls.append(
                Call(attempt.client, attempt.began, self._now(), attempt.steps, Outcome.UNKNOWN, attempt.groups)
            )

    def read_logs(self, journal: Journal, groups: Sequence[str]) -> None:
        """Write down the ordered logs at the end, as if a client had read them all."""
        steps = tuple([Get(group, journal.log(group)) for group in groups])
        numbers = tuple(range(len(groups)))
        self.calls.append(Call("the journal", self._now(), self._now(), steps, Outcome.DONE, numbers))


# What users of the store want


@dataclass(frozen=True)
class Wish:
    """Commands that are to be executed as one, and what they mean as steps of a history."""

    commands: tuple[tuple[bytes, ...], ...]
    steps: tuple[Step, ...]

    @property
    def writes(self) -> bool:
        return any(not isinstance(step, Get) for step in self.steps)


@dataclass(frozen=True)
class Keys:
    """How many keys of each kind there are. `prefix` keeps those of one family of clients from those of another."""

    prefix: str = ""
    registers: int = 3
    swapped: int = 1
    together: int = 3
    counters: int = 2
    lists: int = 4

    def named(self, kind: str, number: int) -> str:
        return f"{kind}:{self.prefix}{number}"

    def everything(self) -> Iterator[Wish]:
        """Yield wishes that read all there is."""
        singles = (("r", self.registers), ("s", self.swapped), ("c", self.counters))
        for kind, size in singles:
            for n in range(size):
                yield wish(get(self.named(kind, n)))
        if self.together:
            yield mget([self.named("m", n) for n in range(self.together)])
        if self.lists:
            yield wish(*(get(self.named("l", n)) for n in range(self.lists)))


Part = tuple[tuple[bytes, ...], tuple[Step, ...]]


def wish(*parts: Part) -> Wish:
    return Wish(tuple([command for command, _ in parts]), tuple([step for _, steps in parts for step in steps]))


def get(key: str) -> Part:
    return (b"GET", key.encode()), (Get(key),)


def append(key: str, value: str) -> Part:
    return (b"APPEND", key.encode(), value.encode()), (Append(key, value),)


def mget(keys: Sequence[str]) -> Wish:
    return wish(((b"MGET", *(key.encode() for key in keys)), tuple([Get(key) for key in keys])))


def draw_wish(random: Random, keys: Keys, value: Callable[[], str]) -> Wish:
    """Draw what a user may want of the store."""
    kinds = "r" * bool(keys.registers) + "s" * bool(keys.swapped) + "m" * (keys.together > 1)
    kinds += "cc" * bool(keys.counters) + "ll" * bool(keys.lists) + "ttw" * (keys.lists > 1)
    kind, reads = random.choice(kinds), random.random() < 0.4
    if kind == "r":
        key = keys.named(kind, random.randrange(keys.registers))
        new = value()
        return wish(get(key) if reads else ((b"SET", key.encode(), new.encode()), (Put(key, new),)))
    if kind == "s":
        key = keys.named(kind, random.randrange(keys.swapped))
        new = value()
        return wish(get(key) if reads else ((b"GETSET", key.encode(), new.encode()), (Put(key, new),)))
    if kind == "c":
        key = keys.named(kind, random.randrange(keys.counters))
        return wish(get(key) if reads else ((b"INCR", key.encode()), (Increment(key),)))
    if kind == "m":
        chosen = [keys.named(kind, n) for n in sorted(random.sample(range(keys.together), 2))]
        if reads:
            return mget(chosen)
        new = value()
        words = [word for key in chosen for word in (key.encode(), new.encode())]
        return wish(((b"MSET", *words), tuple([Put(key, new) for key in chosen])))
    names = [keys.named("l", random.randrange(keys.lists)) for _ in range(1 if kind == "l" else random.randint(2, 4))]
    if kind == "w":  # what is written may depend on what was read
        return wish(*map(get, names[:-1]), append(names[random.randrange(len(names))], value()))
    return wish(*(get(name) if random.random() < 0.4 else append(name, value()) for name in names))


def answered(asked: Wish, results: Sequence[Result]) -> tuple[Step, ...]:
    """Return the steps with what the store answered. Raises ValueError if no store answers so."""
    if len(results) != len(asked.commands):
        raise ValueError(f"{len(results)} answers to {len(asked.commands)} commands")
    following = iter(asked.steps)
    steps: list[Step] = []
    for command, result in zip(asked.commands, results, strict=True):
        values: Sequence[Result] = [result]
        if command[0] == b"MGET":
            if not isinstance(result, list) or len(result) != len(command) - 1:
                raise ValueError(f"{command!r} is answered with {result!r}")
            values = result
        elif command[0] == b"MSET":
            values = [result] * (len(command) // 2)
        steps += [heard(command[0], next(following), value) for value in values]
    return tuple(steps)


def heard(name: bytes, step: Step, result: Result) -> Step:
    match step:
        case Get():
            return replace(step, found=value_of(step.key, result))
        case Put() if name == b"GETSET":
            return replace(step, before=value_of(step.key, result))
        case Put() if result == "OK":
            return step
        case Increment() if isinstance(result, int):
            return replace(step, total=result)
        case Append() if isinstance(result, int) and result > 0 and result % WIDTH == 0:
            return replace(step, length=result // WIDTH)
    raise ValueError(f"‘{step}’ is answered with {result!r}")


def value_of(key: str, result: Result) -> Heard:
    if result is None:
        return None
    if not isinstance(result, bytes):
        raise ValueError(f"{key} holds {result!r}")
    text = result.decode()
    if key.startswith("c"):
        return int(text)
    if not key.startswith("l"):
        return text
    if len(text) % WIDTH:
        raise ValueError(f"{key} holds {len(text)} bytes, expected elements of {WIDTH}")
    return tuple([text[at : at + WIDTH] for at in range(0, len(text), WIDTH)])


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


def destinations(asked: Wish, groups: int) -> tuple[int, ...]:
    """Return the groups, of so many, that the commands of a wish go to."""
    return tuple(sorted({g for command in asked.commands for g in groups_of(list(command), groups)}))


# By direct multicasts


class DirectUser:
    """Asks the groups of the store by itself, as a gateway would, and looks at every answer of theirs."""

    def __init__(self, name: str, client: Client, book: Book, deadline: float) -> None:
        self.name = name
        self.client = client
        self.book = book
        self.deadline = deadline

    async def execute(self, asked: Wish) -> Outcome:
        commands: list[Command] = [list(command) for command in asked.commands]
        dest = destinations(asked, self.client.groups)
        attempt = self.book.begin(self.name, asked.steps, 2 * self.deadline, dest)  # it may have to wait for a lock
        try:
            parts = await self._ask(dest, Execute(commands), asked.writes)
        except MulticastFailed:
            return self.book.end(attempt, Outcome.REFUSED)
        except OutcomeUnknown:
            return self.book.end(attempt, Outcome.UNKNOWN)
        except Rejected as error:
            raise self.book.alarm("error answer", f"{self.name}: {asked.commands}: {error}") from error
        try:
            results = []
            for at, command in enumerate(commands):
                involved = groups_of(command, self.client.groups)
                results.append(merge(command, {g: parts[g].value[at] for g in involved}, self.client.groups))
            steps = answered(asked, results)
        except (LookupError, TypeError, ValueError) as error:
            raise self.book.alarm("malformed answer", f"{self.name}: {asked.commands}: {error}") from error
        return self.book.end(attempt, Outcome.DONE, steps)

    async def _ask(self, dest: tuple[int, ...], unit: Unit, writes: bool) -> dict[int, Done]:
        """Return what each group found in the end. Raises MulticastFailed and OutcomeUnknown."""
        payload = encode(StoreRequest(self.client.machine.clock.wall_ns() // 1_000_000, [unit]))
        try:
            raw = await self.client.submit(dest, payload, self.deadline)
        except MulticastFailed:
            if writes:
                self.book.refused_payloads.append(payload)
            raise
        self.book.acknowledged[raw.message] = self._names(dest)
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


# Through the gateway


class RespUser:
    """A Redis client: one connection, dialled again when it is lost, to one of the gateways."""

    def __init__(
        self,
        name: str,
        gateways: Sequence[tuple[str, int]],
        book: Book,
        random: Random,
        *,
        groups: int,
        patience: float,
        due: float,
    ) -> None:
        """Prepare a client that waits `patience` seconds for an answer, and complains if it takes more than `due`."""
        self.name = name
        self.book = book
        self._groups = groups
        self._gateways = gateways
        self._random = random
        self._patience = patience
        self._due = due
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def execute(self, asked: Wish) -> Outcome:
        await self._connected()
        attempt = self.book.begin(self.name, asked.steps, self._due, destinations(asked, self._groups))
        reads = reads_before_writes(asked)
        try:
            async with asyncio.timeout(self._patience):
                if reads and self._random.random() < 0.5:
                    results = await self._if_unchanged(asked.commands[:reads], asked.commands[reads:])
                else:
                    results = await self._at_once(asked.commands)
        except MulticastFailed:
            return self.book.end(attempt, Outcome.REFUSED)
        except (OSError, EOFError, TimeoutError, OutcomeUnknown) as error:
            if not isinstance(error, OutcomeUnknown):
                self.hang_up()
            return self.book.end(attempt, Outcome.UNKNOWN)
        except CommandRefused as error:
            raise self.book.alarm("error answer", f"{self.name}: {asked.commands}: {error}") from error
        try:
            steps = answered(asked, results)
        except ValueError as error:
            raise self.book.alarm("malformed answer", f"{self.name}: {asked.commands}: {error}") from error
        return self.book.end(attempt, Outcome.DONE, steps)

    async def _at_once(self, commands: Sequence[tuple[bytes, ...]]) -> list[Result]:
        """Execute commands as one. Raises MulticastFailed, OutcomeUnknown and CommandRefused for errors in replies."""
        if len(commands) == 1:
            return [executed(result) for result in await self._ask(commands)]
        replies = await self._ask([(b"MULTI",), *commands, (b"EXEC",)])
        result = executed(replies[-1])
        if result is None:
            raise MulticastFailed("a watched key has changed")
        if not isinstance(result, list):
            raise CommandRefused(f"EXEC is answered with {result!r}")
        return result

    async def _if_unchanged(
        self, reads: Sequence[tuple[bytes, ...]], writes: Sequence[tuple[bytes, ...]]
    ) -> list[Result]:
        """Read, then write if what was read is still so: as one, if it is executed."""
        try:
            watch = (b"WATCH", *dict.fromkeys(command[1] for command in reads))
            found = [executed(result) for result in await self._ask([watch, *reads])][1:]
        except (OSError, EOFError, TimeoutError, OutcomeUnknown, MulticastFailed) as error:
            self.hang_up()  # what is watched would be so for ever
            raise MulticastFailed(f"nothing was written: {error}") from error
        return found + (await self._at_once([*writes, (b"PING",)]))[: len(writes)]  # EXEC also for a single one

    async def _ask(self, commands: Sequence[tuple[bytes, ...]]) -> list[Result]:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(b"".join(map(request, commands)))
        return [await reply_from(reader) for _ in commands]

    async def _connected(self) -> None:
        while self._streams is None:
            host, port = self._random.choice(self._gateways)
            try:
                async with asyncio.timeout(self._patience):
                    self._streams = await asyncio.open_connection(host, port)
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE * self._random.uniform(0.5, 1.5))

    def hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def reads_before_writes(asked: Wish) -> int:
    """Return how many reads a wish begins with, if nothing but writes follows, and one of each at least; else 0."""
    names = [command[0] for command in asked.commands]
    reads = names.count(b"GET")
    return reads if reads < len(names) and set(names[:reads]) == {b"GET"} else 0


def executed(result: Result) -> Result:
    """Return a reply that is no error. Raises what the error says that became of the command."""
    if not isinstance(result, str) or not result.startswith("-"):
        return result
    if result.startswith(NOT_EXECUTED):
        raise MulticastFailed(result)
    if result.startswith(MAYBE_EXECUTED):
        raise OutcomeUnknown(result)
    raise CommandRefused(result)


def request(command: Sequence[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in command])


async def reply_from(reader: asyncio.StreamReader) -> Result:
    """Return the next reply: bytes, a number, a list, None, or text, which begins with - if it is an error."""
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError("the connection ended")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest.decode()
        case b"-":
            return "-" + rest.decode(errors="replace")
        case b":":
            return int(rest)
        case b"$":
            return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
        case b"*":
            return None if rest == b"-1" else [await reply_from(reader) for _ in range(int(rest))]
    raise ConnectionError(f"a reply that begins with {kind!r}")


# Of an application that only repeats


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
