"""The simulated network and loop beside the real ones: the same programs see the same."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from amcast.swarm.cluster.calendar import MILLISECOND, SECOND, Calendar
from amcast.swarm.cluster.clocks import HostClock
from amcast.swarm.cluster.jobs import Died
from amcast.swarm.cluster.loop import ProcessLoop
from amcast.swarm.cluster.network import Network, Weather

HOST = "127.0.0.1"
Seen = list[object]
Scenario = Callable[[Seen], Awaitable[None]]


class World:
    """A network and processes on it."""

    def __init__(self, seed: int, **weather: int) -> None:
        self.calendar = Calendar(Random(f"{seed} ties"))
        self.network = Network(self.calendar, str(seed), Weather(**weather))
        self.complaints: Seen = []

    def process(self, name: str, host: str = HOST) -> ProcessLoop:
        clock = HostClock(10**12, 0, 0)
        process = ProcessLoop(name, 1, host, self.calendar, clock, self.network, Random(name))  # type: ignore[abstract]
        process.on_death = lambda power: self.network.leave(process, power)
        process.on_complaint = self.complaints.append
        return process


def simulated(scenario: Scenario, seed: int) -> Seen:
    world = World(seed, window=64 * 1024)
    seen: Seen = []
    process = world.process("program")
    process.begin(scenario(seen))  # type: ignore[arg-type]
    world.calendar.run(60 * SECOND)
    assert process.dead and process.error is None and not world.complaints, (process.error, world.complaints)
    process.bury()
    return seen


def real(scenario: Scenario) -> Seen:
    seen: Seen = []

    async def main() -> None:
        await scenario(seen)

    asyncio.run(main())
    return seen


async def everything(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while data := await reader.read(3000):
        parts.append(data)
    return b"".join(parts)


async def half_closed(seen: Seen) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await everything(reader)
        writer.write(data[::-1])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
    sent = bytes(range(256)) * 2000
    writer.write(sent)
    writer.write_eof()
    seen.append((await everything(reader)) == sent[::-1])
    writer.close()
    await writer.wait_closed()
    server.close()


async def refused(seen: Seen) -> None:
    server = await asyncio.start_server(lambda *_: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError) as taken:
        await asyncio.start_server(lambda *_: None, HOST, port)
    seen.append(taken.value.errno)
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError) as nobody:
        await asyncio.open_connection(HOST, port)
    seen.append((type(nobody.value).__name__, nobody.value.errno))


class Watching(asyncio.Protocol):
    """Writes down what it is told, and what it did itself."""

    def __init__(self, name: str, seen: Seen, keep_open: bool = False) -> None:
        self.name = name
        self.seen = seen
        self.keep_open = keep_open
        self.size = 0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.seen.append((self.name, "made", transport.is_closing(), transport.is_reading()))

    def data_received(self, data: bytes) -> None:
        self.size += len(data)

    def eof_received(self) -> bool:
        self.seen.append((self.name, "end", self.size))
        return self.keep_open

    def pause_writing(self) -> None:
        self.seen.append((self.name, "pause"))

    def resume_writing(self) -> None:
        self.seen.append((self.name, "resume"))

    def connection_lost(self, error: Exception | None) -> None:
        self.seen.append((self.name, "lost", type(error).__name__, self.transport.is_closing()))
        self.lost.set_result(None)


async def pair(seen: Seen, keep_open: bool = False) -> tuple[Watching, Watching, asyncio.AbstractServer]:
    loop = asyncio.get_running_loop()
    accepted: list[Watching] = []

    def accept() -> Watching:
        accepted.append(Watching("server", [], keep_open))
        return accepted[0]

    server = await loop.create_server(accept, HOST, 0)
    _, client = await loop.create_connection(lambda: Watching("client", seen), HOST, server.sockets[0].getsockname()[1])
    while not accepted or not hasattr(accepted[0], "transport"):
        await asyncio.sleep(0.01)
    seen += accepted[0].seen
    accepted[0].seen = seen
    return client, accepted[0], server


async def closing(seen: Seen) -> None:
    """Everything that was written arrives before the end; then nothing more may be said."""
    client, server, listener = await pair(seen)
    client.transport.write(b"x" * 30_000)  # less than either network holds
    client.transport.close()
    client.transport.write(b"in vain")
    seen.append(client.transport.is_closing())
    await asyncio.gather(client.lost, server.lost)
    seen.append(server.size)
    listener.close()


async def back_pressure(seen: Seen) -> None:
    """Whoever does not read is not sent more than fits, and the writer is told."""
    client, server, listener = await pair(seen)
    server.transport.pause_reading()
    await asyncio.sleep(0.05)
    client.transport.write(b"x" * 30_000_000)
    await asyncio.sleep(0.3)
    seen.append(client.transport.get_write_buffer_size() > 1_000_000)
    seen.append(server.size)
    server.transport.resume_reading()
    while client.transport.get_write_buffer_size():
        await asyncio.sleep(0.01)
    client.transport.close()
    await asyncio.gather(client.lost, server.lost)
    seen.append(server.size)
    listener.close()


async def aborted(seen: Seen) -> None:
    """Whoever hangs up loses what it had not sent; the other end hears of it."""
    client, server, listener = await pair(seen)
    server.transport.pause_reading()
    await asyncio.sleep(0.05)
    client.transport.write(b"x" * 30_000_000)
    await asyncio.sleep(0.1)
    client.transport.abort()
    server.transport.resume_reading()
    await asyncio.gather(client.lost, server.lost)
    seen.append(0 < server.size < 30_000_000)
    seen[:] = [event for event in seen if not (isinstance(event, tuple) and event[1] == "end")]  # its size depends
    listener.close()


async def timers(seen: Seen) -> None:
    """Callbacks keep their order; a cancelled one does not come; a deadline ends a wait."""
    loop = asyncio.get_running_loop()
    for delay in (0.03, 0.01, 0.02):
        loop.call_later(delay, seen.append, delay)
    loop.call_later(0.015, seen.append, "cancelled").cancel()
    loop.call_soon(seen.append, "first")
    loop.call_soon(seen.append, "second")
    seen.append(await loop.run_in_executor(None, lambda: 6 * 7))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await loop.create_future()
    task = loop.create_task(asyncio.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    seen.append((await asyncio.gather(task, return_exceptions=True))[0].__class__.__name__)
    seen.remove(42)  # a thread ends when it likes
    seen.append(42)


SCENARIOS = (half_closed, refused, closing, back_pressure, aborted, timers)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_program_sees_what_it_sees_on_a_real_machine(scenario: Scenario) -> None:
    expected = real(scenario)
    assert expected
    for seed in range(3):
        assert simulated(scenario, seed) == expected


def two_machines(seed: int) -> tuple[World, ProcessLoop, ProcessLoop, Seen]:
    """Return a server that counts what arrives, and a client that sends a byte every 100 ms."""
    world = World(seed)
    server, client, seen = world.process("server"), world.process("client", "127.0.0.2"), []
    arrived: Seen = []

    async def serve() -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with_error = "end"
            try:
                while data := await reader.read(100):
                    arrived.append((round(world.calendar.now / SECOND, 1), len(data)))
            except OSError as error:
                with_error = type(error).__name__
            arrived.append(with_error)
            writer.close()

        await asyncio.start_server(take, HOST, 80)
        await asyncio.get_running_loop().create_future()

    async def send() -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, 80)
                while not writer.is_closing():
                    writer.write(b"x")
                    await asyncio.sleep(0.1)
            except OSError as error:
                seen.append(type(error).__name__)
                await asyncio.sleep(0.1)

    server.begin(serve())
    client.begin(send())
    seen.append(arrived)
    return world, server, client, seen


def count_of(arrived: object) -> int:
    assert isinstance(arrived, list)
    return sum(entry[1] for entry in arrived if isinstance(entry, tuple))


def test_a_cut_holds_what_is_sent_and_heals_in_order() -> None:
    world, *_, seen = two_machines(1)
    world.calendar.at(SECOND, world.network.cut, "127.0.0.2", HOST)
    world.calendar.run(3 * SECOND)
    assert 8 <= count_of(seen[0]) <= 12
    world.network.heal("127.0.0.2", HOST)
    world.calendar.run(5 * SECOND)
    assert count_of(seen[0]) >= 48
    assert "end" not in seen[0] and len(seen) == 1  # type: ignore[operator]  # one connection lived through it


def test_dialling_through_a_cut_goes_on_when_it_heals() -> None:
    world, *_, seen = two_machines(2)
    world.network.cut(HOST, "127.0.0.2")  # only the answers are lost
    world.calendar.run(2 * SECOND)
    assert count_of(seen[0]) == 0
    world.network.heal(HOST, "127.0.0.2")
    world.calendar.run(6 * SECOND)
    assert count_of(seen[0]) >= 15


def test_a_killed_server_is_noticed_and_one_without_power_is_not() -> None:
    world, server, _, seen = two_machines(3)
    world.calendar.run(SECOND)
    server.kill()
    world.calendar.run(2 * SECOND)
    assert "ConnectionRefusedError" in seen
    world, server, _, seen = two_machines(3)
    world.calendar.run(SECOND)
    world.network.power_off(HOST)
    server.kill(power=True)
    world.calendar.run(20 * SECOND)
    assert len(seen) == 1  # silence: the client sends, and nobody says anything
    world.network.power_on(HOST)
    world.calendar.run(22 * SECOND)
    assert "ConnectionRefusedError" in seen  # the machine that came back resets what it does not know


@pytest.mark.parametrize("power", [True, False])
def test_a_closed_window_does_not_hide_that_nobody_is_there(power: bool) -> None:
    """TCP asks again and again whether there is room: a writer that fills it learns that its reader is gone."""
    world = World(6, window=4000)
    server, client, seen = world.process("server"), world.process("client", "127.0.0.2"), []

    async def serve() -> None:
        def deaf() -> asyncio.Protocol:
            protocol = asyncio.Protocol()
            protocol.connection_made = lambda transport: transport.pause_reading()  # type: ignore[method-assign,attr-defined]
            return protocol

        await asyncio.get_running_loop().create_server(deaf, HOST, 80)
        await asyncio.get_running_loop().create_future()

    async def send() -> None:
        _, writer = await asyncio.open_connection(HOST, 80)
        writer.write(bytes(10_000))
        await asyncio.sleep(3)
        seen.append("open" if not writer.is_closing() else "closed")
        await asyncio.sleep(3)
        seen.append("open" if not writer.is_closing() else "closed")

    server.begin(serve())
    client.begin(send())
    world.calendar.run(SECOND)
    if power:
        world.network.power_off(HOST)
    else:
        world.network.cut(HOST, "127.0.0.2")  # nobody sends a reset twice
    server.kill(power=power)
    world.calendar.run(4 * SECOND)
    if power:
        world.network.power_on(HOST)
    else:
        world.network.heal(HOST, "127.0.0.2")
    world.calendar.run(8 * SECOND)
    assert seen == ["open", "closed"]


def test_a_paused_process_gets_everything_later() -> None:
    world, server, _, seen = two_machines(4)
    world.calendar.run(SECOND)
    server.pause()
    before = count_of(seen[0])
    world.calendar.run(3 * SECOND)
    assert count_of(seen[0]) == before
    server.go_on()
    world.calendar.run(4 * SECOND)
    assert count_of(seen[0]) >= 38


def test_death_ends_a_process_in_the_middle_of_a_call() -> None:
    world = World(5)
    process = world.process("program")
    done: Seen = []

    def work() -> None:
        for step in range(10):
            process.spend("call", 10 * MILLISECOND)
            done.append(step)

    async def main() -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            process.spend("call", 1)  # raises Died, for there is no process any more
            done.append("not reached")

    process.begin(main())
    world.calendar.at(35 * MILLISECOND, process.kill)
    world.calendar.run(SECOND)
    assert done == [0, 1, 2]
    process.bury()
    assert done == [0, 1, 2]
    with pytest.raises(Died):
        process.spend("call", 1)


def test_what_reaches_the_handler_of_a_loop_is_told() -> None:
    world = World(6)
    process = world.process("program")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.1)

    process.begin(main())
    world.calendar.run(SECOND)
    (context,) = world.complaints
    assert isinstance(context, dict) and isinstance(context["exception"], ZeroDivisionError)


@pytest.mark.parametrize("watched", [True, False])
def test_an_error_that_nobody_looks_at_is_told_unless_death_was_quicker(watched: bool) -> None:
    world = World(8)
    process = world.process("program")

    async def fails() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await (task if watched else asyncio.sleep(10))

    process.begin(main())
    while not any(task.done() for task in process._tasks):
        world.calendar.run(world.calendar.now + 1)
    process.kill()
    world.calendar.run(SECOND)
    assert [type(error) for error in process.forgotten_errors()] == ([] if watched else [ZeroDivisionError])
    process.bury()


def test_errors_have_their_numbers() -> None:
    world = World(7)
    with pytest.raises(OSError) as elsewhere:
        world.network.listen_at(world.process("program"), "127.0.0.9", 80)
    assert elsewhere.value.errno == errno.EADDRNOTAVAIL
