"""Users of the store who speak Redis with its gateways."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from amcast.apps.kv.slots import even
from amcast.apps.kv.strings import Result
from amcast.checks.serializable import Outcome
from amcast.errors import CommandRefused, MulticastFailed, OutcomeUnknown
from amcast.swarm.cluster.load.book import Book
from amcast.swarm.cluster.load.store import PAUSE
from amcast.swarm.cluster.load.wishes import Wish, answered, destinations

NOT_EXECUTED: Final = ("-TRYAGAIN not executed", "-BUSY", "-EXECABORT", "-ERR max number of clients")
MAYBE_EXECUTED: Final = "-TRYAGAIN"


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
        attempt = self.book.begin(self.name, asked.steps, self._due, destinations(asked, even(self._groups)))
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
