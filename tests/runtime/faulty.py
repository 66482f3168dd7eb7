"""Real processes in trouble: load with a record of what was acknowledged, and a network that can be cut."""

import asyncio
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tests.pace import allow, until
from tests.tools import cannot_run, tool

from amcast.apps.teller import Outcomes
from amcast.local.processes import Processes
from amcast.local.trial import Trial
from amcast.runtime.client import Client
from amcast.runtime.config import Member, file_name

SECONDS = 40.0  # for anything that is waited for
DEADLINE = 25.0  # of a multicast
TURN = 0.01


class Load:
    """Multicasts from a thread of its own, each with an outcome by its deadline."""

    def __init__(self, client: Client, rate: float = 150.0, most_open: int = 60) -> None:
        self.client = client
        self.rate = rate
        self.most_open = most_open
        self.outcomes = Outcomes()
        self._open = 0
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        self.more(20)
        return self

    def __exit__(self, kind: object, error: object, stack: object) -> None:
        self._ending.set()
        if error is None:
            self.end()

    def end(self) -> None:
        """Send nothing more, and wait for the outcome of all that was sent."""
        self._ending.set()
        self._thread.join(allow(DEADLINE) + 10)
        assert not self._thread.is_alive(), "a multicast without outcome"
        if self._error is not None:
            raise self._error

    def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        done = self.outcomes.acknowledged
        goal = len(done) + count
        wait_until(lambda: len(done) >= goal or self._error is not None, f"{count} more multicasts")

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._error = error

    async def _run(self) -> None:
        chance = random.Random(1)
        groups = self.client.groups
        began = time.monotonic()
        sent = 0

        def ended(future: asyncio.Future[dict[int, bytes]]) -> None:
            self._open -= 1

        async with self.client as client:
            while not self._ending.is_set() or self._open:
                due = int((time.monotonic() - began) * self.rate) - sent
                for _ in range(0 if self._ending.is_set() else min(due, self.most_open - self._open)):
                    dest = tuple(sorted(chance.sample(range(groups), chance.randint(1, groups))))
                    self._open += 1
                    self.outcomes.submit(client, dest, b"%d" % sent).add_done_callback(ended)
                    sent += 1
                await asyncio.sleep(TURN)


def load_on(trial: Trial) -> Load:
    """Return multicasts to this cluster, which have an outcome in time however busy the machine is."""
    return Load(trial.client(deadline=allow(DEADLINE)))


def wait_until(what: Callable[[], object], name: str) -> None:
    assert until(what, SECONDS), f"waited {allow(SECONDS):.0f} s in vain for {name}"


@contextmanager
def traced(trial: Trial, member: Member, *options: str) -> Iterator[None]:
    """strace on a node that runs; it lets go at the end."""
    pid = trial.processes.running(member)
    command = [tool("strace"), "-f", "-qq", "-o", str(trial.folder / "strace"), "-p", str(pid), *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: tracer_of(pid) or process.poll() is not None, "strace")
            if process.poll() is not None and trial.processes.running(member) is not None:
                assert process.stderr is not None
                cannot_run(f"strace cannot trace here: {process.stderr.read().decode()[:200]}")
            yield
        finally:
            process.terminate()
            process.wait(allow(SECONDS))


def tracer_of(pid: int | None) -> int:
    """Of all threads."""
    found = [0]
    try:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            found.append(int(status.read_text().partition("TracerPid:")[2].split()[0]))
    except OSError:
        return 0
    return min(found[1:], default=0)


# A network that can be cut

State = Literal["open", "held", "cut"]


class Network:
    """Between each two members a relay for what the first one dials. `held`: nothing moves, and all that was under way
    moves on later, as when packets are lost. `cut`: connections end and none begins."""

    def __init__(self, trial: Trial) -> None:
        self.config = trial.config
        self.injected = trial.injected
        self.states: dict[tuple[str, str], State] = {}
        self.ports: dict[tuple[str, str], int] = {}
        self._writers: dict[tuple[str, str], set[asyncio.StreamWriter]] = {}
        self._dead: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(allow(SECONDS))

    def close(self) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(allow(SECONDS))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(allow(SECONDS))
        self._loop.close()

    def config_of(self, me: Member) -> Path:
        """The cluster as this member sees it, beside the common file."""
        text = self.config.path.read_text()
        for other in self.config.members:
            if other is not me:
                text = text.replace(f'peer = "{other.peer}"', f'peer = "127.0.0.1:{self.ports[me.name, other.name]}"')
        path = self.config.path.with_name(f"{file_name(me.name)}.toml")
        path.write_text(text)
        return path

    def set(self, state: State, pairs: Sequence[tuple[str, str]]) -> None:
        def change() -> None:
            if state != "open":  # which hurts nobody if there was no connection
                self.injected[state] += any(self._writers[pair] for pair in pairs)
            for pair in pairs:
                self.states[pair] = state
                if state == "cut":
                    for writer in self._writers[pair]:
                        writer.transport.abort()

        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (change(), done.set()))
        assert done.wait(allow(SECONDS))

    def connected(self) -> int:
        """Return how many pairs have a connection."""
        return sum(map(bool, self._writers.values()))

    def silence(self) -> None:
        """Nothing moves any more on the connections that there are; new ones are as good as ever."""

        def change() -> None:
            for writers in self._writers.values():
                self._dead.update(writers)
            self.injected["silence"] += bool(self._dead)

        self._loop.call_soon_threadsafe(change)

    def around(self, name: str) -> list[tuple[str, str]]:
        """All pairs with this member."""
        return [pair for pair in self.ports if name in pair]

    async def _open(self) -> None:
        for one in self.config.members:
            for other in self.config.members:
                if one is not other:
                    pair = one.name, other.name
                    self._writers[pair] = set()
                    server = await asyncio.start_server(
                        lambda r, w, pair=pair, to=other: self._relay(r, w, pair, to), "127.0.0.1", 0
                    )
                    self.ports[pair] = server.sockets[0].getsockname()[1]

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: tuple[str, str], to: Member
    ) -> None:
        writers = self._writers[pair]
        try:
            if self.states.get(pair) == "cut":
                raise ConnectionRefusedError
            back, on = await asyncio.open_connection(to.peer.host, to.peer.port)
        except OSError:  # cut, or the other one does not listen yet: who dialled is told, and tries again
            writer.transport.abort()
            return
        if self.states.get(pair) == "cut":
            writer.transport.abort()
            on.transport.abort()
            return
        both = {writer, on}
        writers |= both
        try:
            await asyncio.gather(self._pump(reader, on, pair), self._pump(back, writer, pair))
        except OSError:
            pass
        finally:
            for each in both:
                each.transport.abort()
            writers -= both

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: tuple[str, str]) -> None:
        while data := await reader.read(2**16):
            while self.states.get(pair) == "held" or writer in self._dead:
                await asyncio.sleep(TURN)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class Relayed(Processes):
    """Nodes that reach each other through a network of ours."""

    def __init__(self, processes: Processes, network: Network) -> None:
        super().__init__(processes.config, processes.command, processes.trace)
        self.network = network

    def start(self, member: Member, *options: str) -> int:
        common = self.config
        self.config = replace(common, path=self.network.config_of(member))
        try:
            return super().start(member, *options)
        finally:
            self.config = common


@contextmanager
def relayed(trial: Trial) -> Iterator[Network]:
    network = Network(trial)
    trial.processes = Relayed(trial.processes, network)
    try:
        with trial:
            yield network
    finally:
        network.close()
