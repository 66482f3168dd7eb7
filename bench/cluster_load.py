"""The processes of cluster_bench.py beside amcast's own: one closed loop of clients for each system, and the peers.

    python bench/cluster_load.py ROLE '{"argument": ...}'

A load keeps `outstanding` operations of 20 bytes under way, leaves a fifth of its time to warm up, and prints one line:
operations per second, and the median and the 99th percentile of their latencies in microseconds.
"""

import asyncio
import base64
import gc
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

PAYLOAD = b"twenty bytes of load"
WARM_UP = 0.2  # of the seconds of a point, before it
HEAD = 4  # bytes in front of a frame of the naive chain: its length
TUNED = {
    "autoTickPeriod": 0.001,
    "appendEntriesPeriod": 0.002,
    "appendEntriesUseBatch": True,
    "appendEntriesBatchSizeBytes": 2**20,
    "commandsQueueSize": 1_000_000,
    "sendBufferSize": 2**20,
    "recvBufferSize": 2**20,
}


class Point:
    """What ends between the warm-up and the end of a measurement."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.perf_counter() + WARM_UP * seconds
        self.end = self.begin + seconds
        self.last = self.begin
        self.latencies: list[float] = []

    def ended(self, began: float, now: float) -> bool:
        """Whether there is to be another one."""
        if self.begin <= now < self.end:
            self.latencies.append(now - began)
            self.last = now
        return now < self.end

    def print(self, **more: object) -> None:
        found = sorted(self.latencies)
        if not found:
            raise SystemExit("nothing ended in time")
        p50, p99 = (found[int(len(found) * share)] * 1e6 for share in (0.50, 0.99))
        say({"ops": len(found) / (self.last - self.begin), "p50": p50, "p99": p99, **more})


def say(document: object) -> None:
    print(json.dumps(document), flush=True)


def tune_gc() -> None:
    """As a node does."""
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)


def run(main: Any, on_uvloop: bool = True) -> None:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if on_uvloop:
        import uvloop

        tune_gc()
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


# ---------------------------------------------------------------- amcast


async def multicasts(
    config: str, dest: list[int], outstanding: int, seconds: float = 0, count: int = 0, parts: int = 0
) -> None:
    """For so many seconds; or `count` of them, with a line after each of so many parts."""
    import amcast

    groups = tuple(dest)
    clock = time.perf_counter
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with amcast.connect(config, deadline=60) as client:
        submit = client.submit
        point = Point(seconds)

        class Slot:
            __slots__ = ("began",)

            def start(self) -> None:
                self.began = clock()
                submit(groups, PAYLOAD).add_done_callback(self.ended)

            def ended(self, future: asyncio.Future[Any]) -> None:
                if future.exception() is not None:
                    stop(future.exception())
                elif point.ended(self.began, now := clock()):
                    self.began = now
                    submit(groups, PAYLOAD).add_done_callback(self.ended)
                else:
                    stop(None)

        numbers = itertools.count(1)

        def counted(future: asyncio.Future[Any]) -> None:
            number = next(numbers)
            if future.exception() is not None:
                stop(future.exception())
                return
            if number % (count // parts) == 0:
                say(number)
            if number >= count:
                stop(None)
            elif number <= count - outstanding:
                submit(groups, PAYLOAD).add_done_callback(counted)

        def stop(error: BaseException | None) -> None:
            if not finished.done():
                finished.set_exception(error) if error is not None else finished.set_result(None)

        for _ in range(outstanding):
            if count:
                submit(groups, PAYLOAD).add_done_callback(counted)
            else:
                Slot().start()
        await finished
    if not count:
        point.print(compiled=amcast.compiled())


# ---------------------------------------------------------------- the naive chain: one frame and one write per message


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(HEAD), "big"))


async def write_frame(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(len(body).to_bytes(HEAD, "big") + body)
    await writer.drain()


async def naive_follower(port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await write_frame(writer, await read_frame(reader))

    await serve_for_ever(serve, port)


async def naive_leader(port: int, followers: list[int]) -> None:
    """Answers a client when one of two followers has answered: a quorum of three."""
    peers = [await asyncio.open_connection("127.0.0.1", follower) for follower in followers]
    acks: dict[bytes, int] = {}
    client: list[asyncio.StreamWriter] = []

    async def collect(reader: asyncio.StreamReader) -> None:
        while True:
            body = await read_frame(reader)
            acks[body] = acks.get(body, 0) + 1
            if acks[body] == 1:
                await write_frame(client[-1], body)
            elif acks[body] == len(peers):
                del acks[body]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client.append(writer)
        while True:
            body = await read_frame(reader)
            for _, peer in peers:
                await write_frame(peer, body)

    tasks = [asyncio.create_task(collect(reader)) for reader, _ in peers]
    await asyncio.gather(serve_for_ever(serve, port), *tasks)


async def serve_for_ever(serve: Any, port: int) -> None:
    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", port)
    say("ready")
    await server.serve_forever()


async def naive_client(port: int, outstanding: int, seconds: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began: dict[bytes, float] = {}
    numbers = itertools.count(time.time_ns())

    async def start(now: float) -> None:
        body = PAYLOAD[:-8] + next(numbers).to_bytes(8, "big")
        began[body] = now
        await write_frame(writer, body)

    point = Point(seconds)
    for _ in range(outstanding):
        await start(time.perf_counter())
    while began:  # at the end, what is still under way
        body = await read_frame(reader)
        now = time.perf_counter()
        if point.ended(began.pop(body), now):
            await start(now)
    point.print()
    writer.close()


# ---------------------------------------------------------------- PySyncObj: the load is in the process of the leader


def pysyncobj(me: str, others: list[str], tuned: bool, seconds: float, outstanding: list[int]) -> None:
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Appended(SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(me, others, SyncObjConf(**(TUNED if tuned else {})))
            self.count = 0

        @replicated  # type: ignore[untyped-decorator]
        def append(self, payload: bytes) -> None:
            self.count += 1

    appended = Appended()
    while not appended.isReady():
        time.sleep(0.05)
    time.sleep(1)
    if tuned:
        tune_gc()
    if not appended._isLeader():
        sys.stdin.read()  # until the bench ends it
        return
    clock = time.perf_counter
    for number in outstanding:
        point = Point(seconds)
        open_ones, failed = [number], [0]

        def start(
            began: float, point: Point = point, open_ones: list[int] = open_ones, failed: list[int] = failed
        ) -> None:
            def ended(result: object, error: int) -> None:
                now = clock()
                if error:
                    failed[0] += 1
                    start(now)
                elif point.ended(began, now):
                    start(now)
                else:
                    open_ones[0] -= 1

            appended.append(PAYLOAD, callback=ended)

        for _ in range(number):
            start(clock())
        while open_ones[0]:
            time.sleep(0.05)
        told = [f"{failed[0]} failed"] * bool(failed[0]) + ["lost the lead"] * (not appended._isLeader())
        point.print(note=", ".join(told))
    sys.stdin.read()


# ---------------------------------------------------------------- etcd: HTTP gateway, one connection per operation


class EtcdConnection(asyncio.Protocol):
    def __init__(self, point: Point, stop: Callable[[], None]) -> None:
        self.point, self.stop = point, stop
        body = json.dumps({"key": base64.b64encode(b"key").decode(), "value": base64.b64encode(PAYLOAD).decode()})
        self.request = (
            f"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.start(time.perf_counter())

    def start(self, now: float) -> None:
        self.began = now
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
        if len(body) < int(length.split(b":")[1]) if length is not None else not body.endswith(b"0\r\n\r\n"):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"etcd: {self.data[:300]!r}")
        self.data = b""
        now = time.perf_counter()
        if self.point.ended(self.began, now):
            self.start(now)
        else:
            self.stop()


async def etcd_client(port: int, outstanding: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    point = Point(seconds)
    for _ in range(outstanding):
        await loop.create_connection(lambda: EtcdConnection(point, finished.set), "127.0.0.1", port)
    await finished.wait()
    point.print()


# ---------------------------------------------------------------- NATS: JetStream, acknowledged publications


class Nats(asyncio.Protocol):
    """As much of the text protocol as is needed; what is said in one turn of the loop is one write."""

    def __init__(self) -> None:
        self.data = b""
        self.answers: Callable[[bytes, bytes], None] = lambda subject, body: None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(b'CONNECT {"verbose":false}\r\nSUB _I.> 1\r\n')

    def publish(self, subject: str, reply: int, body: bytes) -> bytes:
        return f"PUB {subject} _I.{reply} {len(body)}\r\n".encode() + body + b"\r\n"

    def data_received(self, data: bytes) -> None:
        data = self.data + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            after = end + 2
            if line.startswith(b"MSG "):
                words = line.split()
                after += int(words[-1]) + 2
                if after > len(data):
                    break
                self.answers(words[1], data[end + 2 : after - 2])
            elif line == b"PING":
                self.transport.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise SystemExit(f"NATS: {line!r}")
            at = after
        self.data = data[at:]


async def nats_client(port: int, outstanding: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    _, nats = await loop.create_connection(Nats, "127.0.0.1", port)
    limits = {"retention": "limits", "discard": "old", "max_msgs": 100_000, "storage": "memory", "num_replicas": 3}
    stream = json.dumps({"name": "bench", "subjects": ["bench"], **limits}).encode()
    created = asyncio.Event()
    nats.answers = lambda subject, body: None if "error" in json.loads(body) else created.set()
    for attempt in itertools.count():  # until the servers have found each other
        nats.transport.write(nats.publish("$JS.API.STREAM.CREATE.bench", attempt, stream))
        try:
            async with asyncio.timeout(1):
                await created.wait()
                break
        except TimeoutError:
            if attempt == 30:
                raise SystemExit("NATS: no stream after 30 s") from None
    began: dict[bytes, float] = {}
    numbers = itertools.count(1_000)
    finished = asyncio.Event()
    out: list[bytes] = []

    def start(now: float) -> None:
        number = next(numbers)
        began[b"_I.%d" % number] = now
        if not out:
            loop.call_soon(flush)
        out.append(nats.publish("bench", number, PAYLOAD))

    def flush() -> None:
        nats.transport.write(b"".join(out))
        out.clear()

    def answered(subject: bytes, body: bytes) -> None:
        if subject not in began:
            return  # of an attempt to make the stream
        if b'"error"' in body:
            raise SystemExit(f"NATS: {body!r}")
        now = time.perf_counter()
        if point.ended(began.pop(subject), now):
            start(now)
        else:
            finished.set()

    nats.answers = answered
    point = Point(seconds)
    for _ in range(outstanding):
        start(time.perf_counter())
    await finished.wait()
    point.print()


def main(role: str, arguments: str) -> None:
    wanted = json.loads(arguments)
    if role == "pysyncobj":
        pysyncobj(**wanted)
        return
    roles = {
        "amcast": multicasts,
        "naive-follower": naive_follower,
        "naive-leader": naive_leader,
        "naive-client": naive_client,
        "etcd": etcd_client,
        "nats": nats_client,
    }
    on_uvloop = wanted.pop("uvloop", not role.startswith("naive"))
    run(roles[role](**wanted), on_uvloop)


if __name__ == "__main__":
    main(*sys.argv[1:])
