"""Takes a backup of a running cluster: the state of all groups at one place of the total order.

One replica of each group is asked to prepare, a mark is ordered by the leaders, and each of those replicas gives out
what it had when it delivered the mark (`runtime/cuts.py`). The file gets its name when all of it is on disk. Whatever
happens before leaves nothing that looks like a backup, and the next one writes over it.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from amcast.core.plural import count
from amcast.core.protocol import Protocol
from amcast.errors import AmcastError, PeerError, UsageError, WireError
from amcast.runtime import frames
from amcast.runtime.backup import NUMBER, Backup, Manifest, backup_pieces
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.cuts import DRAWN_BITS, mark_number, why_no_backup
from amcast.runtime.frames import OURS, Hello, Made
from amcast.runtime.framing import FrameReader, frame
from amcast.runtime.greeting import say_hello
from amcast.runtime.machine import REAL
from amcast.runtime.seats import current
from amcast.runtime.serving import CLIENT, SESSION_BITS, session_of
from amcast.runtime.snapshots import Pieces, SnapshotWriter
from amcast.runtime.tls import client_context

ATTEMPTS: Final = 3  # a replica that is copied may stop
MARK_EVERY: Final = 0.5  # seconds: a mark may be lost with its leader
SECONDS_OF_SILENCE: Final = 10.0  # of a replica that is copied
SECONDS_TO_ELECT: Final = 5.0  # after which a group that has no leader is taken for one that will not have one soon
WINDOW: Final = 4  # parts that are asked for ahead
T = TypeVar("T")


TOLD: Final = (frames.ANSWERS, frames.CONDITION, frames.MEMBERS)  # without being asked


class Source:
    """A connection to a replica, as a client of the cluster."""

    def __init__(self, config: ClusterConfig, member: Member, client: str) -> None:
        self.member = member
        self.made = Made()
        self.refusal = ""  # of the last mark
        self._config = config
        self._client = client
        self._frames = FrameReader(frames.LARGEST_PEER)
        self._found: deque[tuple[int, int, bytes]] = deque()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> tuple[str, ...]:
        """Connect and greet; return why requests to each group are refused. Raises OSError, TimeoutError, PeerError."""
        config, member = self._config, self.member
        context = client_context(config, self._client) if config.tls is not None else None
        name = "" if context is not None else None
        async with asyncio.timeout(REAL.limits.seconds_to_greet):
            self._reader, self._writer = await asyncio.open_connection(
                member.client.host, member.client.port, ssl=context, server_hostname=name
            )
        session = session_of(self._client, secrets.randbits(SESSION_BITS))
        hello = Hello(frames.VERSION, config.name, self._client, 0, session, member.name, config.identity, formats=OURS)
        say_hello(self._writer.transport, config, member.name, hello)
        _, body = await self.receive(frames.WELCOME, REAL.limits.seconds_to_greet)
        return frames.decode(frames.welcome_decoder, body).refusals

    def send(self, kind: int, number: int) -> None:
        if self._writer is not None:
            self._writer.write(frame(kind, b"", number))

    async def receive(self, kind: int, seconds: float) -> tuple[int, bytes]:
        """Return the number and the body of the next frame, which is of this kind. Raises as `open`."""
        while True:
            while not self._found:
                async with asyncio.timeout(seconds):
                    data = await self._reader.read(2**18)
                if not data:
                    raise ConnectionError(f"{self.member.name} hung up")
                self._found += [found for found in self._frames.feed(data) if found[0] not in TOLD]
            found, number, body = self._found.popleft()
            if found == frames.REFUSED:
                raise WireError(f"{self.member.name} refused {self._client}: {body.decode(errors='replace')}")
            if found == frames.FAILED:
                raise WireError(frames.decode(frames.refusal_decoder, body).reason)
            if found != kind:
                raise WireError(f"a frame of kind {found} from {self.member.name}, expected {kind}")
            return number, body

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


class Taking:
    """One attempt to take a backup. The event loop runs only while something is waited for."""

    def __init__(self, config: ClusterConfig, client: str, seconds: float) -> None:
        self._config = config
        self._client = client
        self._seconds = seconds
        self._runner = asyncio.Runner()
        self._sources: dict[int, Source] = {}  # by pid: all replicas that answer
        self._of_group: dict[int, Source] = {}  # whose state is copied
        self._number = mark_number(secrets.randbits(DRAWN_BITS), config)
        self.parts = 0  # of all

    def wait_for(self, work: Awaitable[T]) -> T:
        async def waiting() -> T:
            return await work

        return self._runner.run(waiting())

    def begin(self) -> None:
        """Have all groups take their state at one mark. Raises UsageError for what cannot be, before it changes."""
        self.wait_for(self._begin())

    async def _begin(self) -> None:
        number = self._number
        await self._connect()
        for g in self._config.groups:
            self._of_group[g] = await self._prepared(self._config.group(g), number)
        followers = {source.member.pid for source in self._of_group.values()}
        deadline = asyncio.get_running_loop().time() + self._seconds
        waiting = {asyncio.ensure_future(self._made(source)) for source in self._of_group.values()}
        refusals = [
            asyncio.ensure_future(self._refused(source))
            for pid, source in self._sources.items()
            if pid not in followers
        ]
        try:
            while waiting:
                for source in self._sources.values():
                    source.send(frames.MARK, number)
                done, waiting = await asyncio.wait(waiting, timeout=MARK_EVERY, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
                if waiting and asyncio.get_running_loop().time() > deadline:
                    raise AmcastError(self._late())
        finally:
            for one in [*waiting, *refusals]:
                one.cancel()
        self.parts = sum(source.made.parts for source in self._of_group.values())

    def _late(self) -> str:
        missing = [f"g{g}" for g, source in self._of_group.items() if not source.made.parts]
        why = next((source.refusal for source in self._sources.values() if source.refusal), "")
        said = f": {why}" if why else ""
        return f"{', '.join(missing)} did not come to the mark within {self._seconds:g} s{said}; try again"

    async def _connect(self) -> None:
        """Connect to all replicas that answer. Raises UsageError if a group does not serve."""
        config = self._config
        sources = [Source(config, member, self._client) for member in config.members]
        found = await asyncio.gather(*[source.open() for source in sources], return_exceptions=True)
        silent: dict[int, str] = {}
        for source, said in zip(sources, found, strict=True):
            if isinstance(said, PeerError | OSError | TimeoutError):
                source.close()
                silent.setdefault(source.member.group, str(said) or "no answer in time")
            elif isinstance(said, BaseException):
                raise said
            else:
                self._sources[source.member.pid] = source
                for reason in said:
                    if reason:
                        raise UsageError(
                            f"{config.path}: {reason}; a backup takes all groups: bring that one back first"
                        )
        for g, reason in silent.items():
            if not any(source.member.group == g for source in self._sources.values()):
                raise UsageError(f"{config.path}: no replica of g{g} answers: {reason}; start it first")

    async def _prepared(self, members: tuple[Member, ...], number: int) -> Source:
        """Return a replica that is ready to give out its state. The last ones lead least often."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SECONDS_TO_ELECT
        while True:
            reason = ""
            for member in reversed(members):
                source = self._sources.get(member.pid)
                if source is None:
                    continue
                try:
                    source.send(frames.CUT, number)
                    await source.receive(frames.CUT, SECONDS_OF_SILENCE)
                    return source
                except (PeerError, OSError, TimeoutError) as error:
                    reason = f"{source.member.name}: {str(error) or 'no answer in time'}"
            if loop.time() > until:
                raise UsageError(f"{self._config.path}: no replica gives out its state: {reason}")
            await asyncio.sleep(MARK_EVERY)

    async def _made(self, source: Source) -> None:
        """Wait until a replica has written its state. It may also say that it does not order the mark."""
        while not source.made.parts:
            try:
                _, body = await source.receive(frames.CUT, self._seconds + SECONDS_OF_SILENCE)
                source.made = frames.decode(frames.made_decoder, body)
            except WireError as error:
                if str(error).startswith(f"{source.member.name}:"):  # it cannot
                    raise
                source.refusal = str(error)

    async def _refused(self, source: Source) -> None:
        """Take note of why a replica does not order the mark."""
        while True:
            try:
                await source.receive(frames.CUT, self._seconds + SECONDS_OF_SILENCE)
            except PeerError as error:
                source.refusal = str(error)
            except (OSError, TimeoutError):
                return

    def groups(self, progress: Callable[[], None]) -> Iterator[Iterator[bytes]]:
        """Yield, for each group, what its replica wrote. `progress` is called at each part."""
        for g in sorted(self._of_group):
            yield self._copied(self._of_group[g], progress)

    def _copied(self, source: Source, progress: Callable[[], None]) -> Iterator[bytes]:
        pieces: Pieces | None = None
        asked = 0
        while pieces is None or not pieces.whole:
            while asked < min((pieces.count if pieces is not None else 0) + WINDOW, source.made.parts):
                source.send(frames.WANT, asked)
                asked += 1
            _, data = self.wait_for(source.receive(frames.PART, SECONDS_OF_SILENCE))
            if pieces is None:
                pieces = Pieces(self._number)
            body = pieces.body(data)
            progress()
            yield body

    def close(self) -> None:
        """Hang up: what replicas have written for this goes away."""

        async def hang_up() -> None:
            for source in self._sources.values():
                source.close()
            await asyncio.sleep(0)

        self.wait_for(hang_up())
        self._runner.close()


def refuse_backup(config: ClusterConfig, protocol: Protocol, client: str | None, out: Path) -> str:
    """Raise UsageError for a backup that cannot be; return the name of the client that takes it."""
    if reason := why_no_backup(protocol):
        raise UsageError(f"{config.path}: no backup: {reason}")
    if out.exists():
        raise UsageError(f"{out}: is there already; a backup is written to a new file: give another name")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent}: no such folder; make it first")
    if client is None and len(config.clients) != 1:
        raise UsageError(
            f"{config.path} has these clients: {', '.join(config.clients) or 'none'}; name one by --client"
        )
    name = client or next(iter(config.clients))
    if name not in config.clients:
        raise UsageError(f"no client {name!r} in {config.path}: expected one of {', '.join(config.clients) or 'none'}")
    return CLIENT + name


def take_backup(
    config: ClusterConfig,
    protocol: Protocol,
    out: Path,
    client: str | None = None,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Backup:
    """Write a backup of a running cluster; return it, its manifest read. `progress` is told parts, and how many."""
    name = refuse_backup(config, protocol, client, out)
    config = current(config, protocol)
    for attempt in range(ATTEMPTS):
        try:
            return take_once(config, name, out, seconds, progress)
        except (ConnectionError, TimeoutError) as error:
            if attempt == ATTEMPTS - 1:
                why = str(error) or "a replica does not answer"
                raise AmcastError(f"no backup after {count(ATTEMPTS, 'attempt')}: {why}; try again") from None
    raise AssertionError("the last attempt returns or raises")


def take_once(
    config: ClusterConfig, client: str, out: Path, seconds: float, progress: Callable[[int, int], None]
) -> Backup:
    taking = Taking(config, client, seconds)
    writer: SnapshotWriter | None = None
    try:
        taking.begin()
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, taking.parts)

        sizes = [len(config.group(g)) for g in config.groups]
        now = REAL.clock.wall_ns() // 1_000_000
        manifest = Manifest(
            config.name, config.protocol, config.app, len(sizes), max(sizes), config.largest_message, now
        )
        writer = SnapshotWriter(REAL, out, NUMBER, backup_pieces(manifest, taking.groups(step)))
        while not writer.write_some():
            pass
        writer = None
    except (ConnectionError, TimeoutError):  # of a replica
        raise
    except OSError as error:
        raise AmcastError(
            f"{error.filename or out}: cannot be written ({error.strerror}); no backup was made"
        ) from error
    except WireError as error:
        raise AmcastError(f"no backup was made: {error}") from error
    finally:
        if writer is not None:
            writer.give_up()
        taking.close()
    whole = Backup(out)
    for _ in whole.groups(states=False):  # as it is on disk now
        pass
    return whole
