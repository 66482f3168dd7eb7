"""Guards the server: real sockets, redis-py, redis-cli and redis-benchmark, over three groups in this process."""

import asyncio
import subprocess
from collections.abc import Iterator

import pytest
import redis
import redis.asyncio
from redis.exceptions import ResponseError, WatchError

from amcast.apps.kv import batching
from amcast.apps.kv.gateway import Gateway, serve
from amcast.apps.kv.slots import even
from amcast.apps.kv.wire import Prepare, StoreRequest, encode
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.machine import Limits
from tests.apps.in_process import Held, InProcess, Lagging, gateway, gateway_in_thread
from tests.pace import allow

GROUPS = 3
KEYS = [f"k{n}" for n in range(12)]
A, B = next((a, b) for a in KEYS for b in KEYS if even(3).of_key(a.encode()) != even(3).of_key(b.encode()))


@pytest.fixture(scope="module")
def running() -> Iterator[Gateway]:
    with gateway_in_thread(GROUPS) as found:
        yield found


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(running: Gateway, request: pytest.FixtureRequest) -> Iterator["redis.Redis[bytes]"]:
    with redis.Redis(port=running.server.port, protocol=request.param) as found:
        found.flushall()
        yield found


def port_of(found: Gateway) -> int:
    return found.server.port


# redis-py


def test_strings(client: "redis.Redis[bytes]") -> None:
    assert client.set("a", "1") is True
    assert client.set("a", "2", nx=True) is None
    assert client.set("a", "2", xx=True, get=True) == b"1"
    assert client.get("a") == b"2" and client.get("none") is None
    assert client.incr("a") == 3 and client.decrby("a", 5) == -2
    assert client.append("a", "x") == 3 and client.strlen("a") == 3
    assert client.getset("a", "new") == b"-2x" and client.getdel("a") == b"new"
    assert client.setnx("a", "1") is True and client.setnx("a", "1") is False
    assert client.type("a") == b"string"
    with pytest.raises(ResponseError, match="value is not an integer or out of range"):
        client.set("a", "x")
        client.incr("a")


def test_expiry(client: "redis.Redis[bytes]") -> None:
    client.set("a", "1", ex=100)
    assert 99 <= client.ttl("a") <= 100 and client.pttl("a") > 99_000
    assert client.persist("a") is True and client.ttl("a") == -1 and client.ttl("none") == -2
    assert client.pexpire("a", 1) is True
    with pytest.raises(ResponseError, match="invalid expire time in 'set' command"):
        client.set("a", "1", ex=0)


def test_many_keys_over_all_groups(client: "redis.Redis[bytes]") -> None:
    assert {even(GROUPS).of_key(key.encode()) for key in KEYS} == set(range(GROUPS))
    client.mset({key: str(n) for n, key in enumerate(KEYS)})
    assert client.mget([*KEYS, "none"]) == [*(b"%d" % n for n in range(12)), None]
    assert client.dbsize() == 12 and client.exists(*KEYS, "k1") == 13
    assert sorted(client.keys("k*")) == sorted(client.scan_iter(count=2)) == sorted(key.encode() for key in KEYS)
    assert client.msetnx({"new": "1", "k3": "1", "k4": "1"}) is False and client.get("new") is None
    assert client.msetnx({"new": "1", "newer": "1", "newest": "1"}) is True and client.get("newest") == b"1"
    assert client.delete(*KEYS) == 12 and client.dbsize() == 3
    assert client.flushall() is True and client.dbsize() == 0


def test_pipelines_and_transactions(client: "redis.Redis[bytes]") -> None:
    for transaction in (False, True):
        client.flushall()
        with client.pipeline(transaction=transaction) as pipe:
            for n in range(200):
                pipe.incr(KEYS[n % 12]).set("z", n).get("z").mget(KEYS[:3])
            found = pipe.execute()
        assert found[2::4] == [b"%d" % n for n in range(200)]
        assert found[0::4] == [n // 12 + 1 for n in range(200)]
        assert found[-1] == [b"17"] * 3


def test_a_watched_key_that_changes(client: "redis.Redis[bytes]") -> None:
    for other in (A, B):  # in the group of what is written, and in another one
        for change in (["SET", other, 1], ["DEL", other], ["EXPIRE", other, 100], ["PING"]):
            client.set(other, "1")
            with client.pipeline() as pipe:
                pipe.watch(other)
                client.execute_command(*change)
                pipe.multi()
                pipe.set(A, "written")
                pipe.get(A)
                if change == ["PING"]:
                    assert pipe.execute() == [True, b"written"]
                else:
                    with pytest.raises(WatchError):
                        pipe.execute()


def test_an_absent_watched_key_that_came_and_went(client: "redis.Redis[bytes]") -> None:
    with client.pipeline() as pipe:
        pipe.watch(A)
        client.set(A, 1)
        client.delete(A)
        pipe.multi()
        pipe.set(B, 1)
        with pytest.raises(WatchError):
            pipe.execute()


def test_connection_commands(client: "redis.Redis[bytes]") -> None:
    assert client.ping() is True and client.echo("x") == b"x"
    assert client.client_setname("me") is True and client.client_getname() in (b"me", "me")
    assert client.client_id() > 0 and client.info("server")["redis_mode"] == "standalone"
    assert client.command_count() > 50 and "get" in client.command()
    assert client.config_get("save") == {"save": ""}
    with pytest.raises(ResponseError, match="unknown command 'LPUSH', with args beginning with: 'a' 'b'"):
        client.lpush("a", "b")
    with pytest.raises(ResponseError, match="DB index is out of range"):
        client.execute_command("SELECT", 1)


# Raw bytes


async def talk(port: int, data: bytes, *, until_closed: bool = True) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if until_closed:
        writer.write_eof()
    reply = await asyncio.wait_for(reader.read(-1 if until_closed else 65536), allow(10))
    writer.close()
    return reply


@pytest.mark.parametrize(
    ("lines", "replies"),
    [
        (["MULTI", "MULTI", "DISCARD"], ["+OK", "-ERR MULTI calls can not be nested", "+OK"]),
        (["EXEC"], ["-ERR EXEC without MULTI"]),
        (["DISCARD"], ["-ERR DISCARD without MULTI"]),
        (["MULTI", "WATCH a", "EXEC"], ["+OK", "-ERR WATCH inside MULTI is not allowed", "*0"]),
        (
            ["MULTI", "SET a", "EXEC"],
            ["+OK", "-ERR wrong number of arguments for 'set' command",
             "-EXECABORT Transaction discarded because of previous errors."],
        ),
        (
            ["MULTI", "SET a x", "INCR a", "PING", "EXEC"],
            ["+OK", *["+QUEUED"] * 3, "*3", "+OK", "-ERR value is not an integer or out of range", "+PONG"],
        ),
        (["HELLO 4"], ["-NOPROTO unsupported protocol version"]),
        (["PING", "QUIT", "PING"], ["+PONG", "+OK"]),
        (["RESET"], ["+RESET"]),
        (["AUTH a b c"], ["-ERR syntax error"]),
        (["SELECT 0", "SELECT 1"], ["+OK", "-ERR DB index is out of range"]),
        (["SET \"a b\" 'c'", 'GET "a b"'], ["+OK", "$1", "c"]),
        (["GET"], ["-ERR wrong number of arguments for 'get' command"]),
        (["GET 'a"], ["-ERR Protocol error: unbalanced quotes in request"]),
    ],
)  # fmt: skip
def test_conversations(running: Gateway, lines: list[str], replies: list[str]) -> None:
    found = asyncio.run(talk(port_of(running), "".join(f"{line}\n" for line in lines).encode()))
    assert found.decode().splitlines() == replies


def test_a_large_request_is_refused_and_others_go_on() -> None:
    async def run() -> None:
        async with gateway(1, largest_request=1000) as found:
            port = port_of(found)
            assert await talk(port, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2000\r\n") == (
                b"-ERR Protocol error: invalid bulk length\r\n"
            )
            queued = b"SET a " + b"x" * 400 + b"\n"
            replies = (await talk(port, b"MULTI\n" + queued * 3 + b"EXEC\n")).split(b"\r\n")
            assert replies[3] == b"-ERR transaction larger than 1000 bytes" and replies[4].startswith(b"-EXECABORT")
            assert await talk(port, b"PING\n") == b"+PONG\r\n"

    asyncio.run(run())


def test_a_client_that_does_not_read_is_not_read() -> None:
    async def run() -> None:
        async with gateway(1, limits=Limits(commands_read_ahead=64)) as found:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(found), limit=1024)
            await talk(port_of(found), b"SET big " + b"x" * 50_000 + b"\n")
            total = 3000
            writer.write(b"GET big\n" * total)
            other = await asyncio.open_connection("127.0.0.1", port_of(found))
            before = -1
            while before != found.server.commands:  # until it stands still
                before = found.server.commands
                for _ in range(20):
                    other[1].write(b"PING\n")
                    await other[0].readline()
                before += 20
            assert found.server.commands < total
            assert len(found.connections) == 2 and all(len(one._commands) < 3000 for one in found.connections)
            size = total * (50_000 + len(b"$50000\r\n\r\n"))
            while size:
                size -= len(await reader.read(2**20))
            writer.close()
            other[1].close()

    asyncio.run(asyncio.wait_for(run(), allow(30)))


# Failures


def test_what_the_client_hears_of_failures() -> None:
    async def run() -> None:
        async with gateway(1) as found:
            cluster = found.batcher.client
            assert isinstance(cluster, InProcess)
            cluster.fails = lambda dest: OutcomeUnknown("no answer in 5 s")
            assert await talk(port_of(found), b"SET a 1\n") == b"-TRYAGAIN outcome unknown: no answer in 5 s\r\n"
            cluster.fails = lambda dest: MulticastFailed("no quorum")
            assert await talk(port_of(found), b"SET a 1\n") == b"-TRYAGAIN not executed: no quorum\r\n"
            assert await talk(port_of(found), b"PING\nWATCH a\n") == b"+PONG\r\n-TRYAGAIN not executed: no quorum\r\n"
            cluster.fails = lambda dest: None
            assert await talk(port_of(found), b"GET a\n") == b"$-1\r\n"

    asyncio.run(run())


async def leave_a_lock(cluster: batching.ClusterClient) -> None:
    dest = tuple(sorted(even(GROUPS).of_key(key.encode()) for key in (A, B)))
    lock = Prepare(b"dead", list(dest), [[b"MSET", A.encode(), b"1", B.encode(), b"2"]], [], [])
    await cluster.submit(dest, encode(StoreRequest(0, [lock])))


def test_what_waits_for_a_lock_is_never_called_not_executed() -> None:
    async def run() -> None:
        async with gateway(GROUPS) as found:
            cluster = found.batcher.client
            assert isinstance(cluster, InProcess)
            await leave_a_lock(cluster)
            cluster.fails = lambda dest: MulticastFailed("no quorum") if len(dest) == 1 else None
            reply = await talk(port_of(found), f"MSET {A} 3 {B} 4\n".encode())
            assert reply == b"-TRYAGAIN outcome unknown: while it waited for a lock: no quorum\r\n"

    asyncio.run(run())


def test_the_lock_of_a_gateway_that_died_is_broken() -> None:
    async def run() -> None:
        async with gateway(GROUPS, limits=Limits(lock_seconds=0.02)) as found:
            await leave_a_lock(found.batcher.client)
            lines = f"MSET {A} 3 {B} 4\nMGET {A} {B}\n".encode()
            assert await talk(port_of(found), lines) == b"+OK\r\n*2\r\n$1\r\n3\r\n$1\r\n4\r\n"

    asyncio.run(run())


def test_a_client_that_leaves_leaves_no_lock() -> None:
    async def run() -> None:
        async with gateway(GROUPS) as found:
            cluster = found.batcher.client
            assert isinstance(cluster, InProcess)
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(found))
            writer.write(f"MSETNX {A} 1 {B} 2\n".encode())
            while not any(machine._locks for machine in cluster.machines):
                await asyncio.sleep(0)
            for connection in list(found.connections):
                connection._transport.abort()
            while found.connections or found.batcher.tasks:
                await asyncio.sleep(0)
            assert not any(machine._locks for machine in cluster.machines)
            assert await talk(port_of(found), f"MGET {A} {B}\n".encode()) == b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n"

    asyncio.run(run())


@pytest.mark.parametrize("two_rounds", [False, True])
def test_real_time_over_groups(two_rounds: bool) -> None:
    """A read after a read: with one round it may be older, as the multicast allows; with two rounds it is not."""
    first, second = (key.encode() for key in sorted((A, B), key=lambda key: even(GROUPS).of_key(key.encode())))

    async def run() -> None:
        cluster = Held(GROUPS)
        found = Gateway(cluster, two_rounds=two_rounds)
        port = await found.listen("127.0.0.1", 0)
        cluster.held = []
        write = asyncio.create_task(talk(port, b"MSET %b new %b new\n" % (first, second)))
        while not cluster.held:
            await asyncio.sleep(0)
        read = asyncio.create_task(talk(port, b"GET %b\n" % first))
        if two_rounds:
            done, _ = await asyncio.wait([read], timeout=0.05)
            assert not done
            cluster.release()
        assert await read == b"$3\r\nnew\r\n"
        assert await talk(port, b"GET %b\n" % second) == (b"$3\r\nnew\r\n" if two_rounds else b"$-1\r\n")
        cluster.release()
        assert await write == b"+OK\r\n"
        assert sum(found.latency.counts) == 3, "each command is measured"
        await found.close()

    asyncio.run(run())


@pytest.mark.parametrize("two_rounds", [False, True])
def test_many_gateways_move_money(two_rounds: bool) -> None:
    """Optimistic transfers over groups, through two gateways of one cluster, with readers: the sum is always right."""

    async def move(port: int, number: int) -> int:
        done = 0
        async with redis.asyncio.Redis(port=port) as client:
            for step in range(15):
                one, other = KEYS[(number + step) % 5], KEYS[(2 * number + step + 1) % 5]
                async with client.pipeline() as pipe:
                    try:
                        await pipe.watch(one, other)
                        balances = int(await pipe.get(one)), int(await pipe.get(other))
                        pipe.multi()
                        pipe.set(one, balances[0] - 1)
                        if one != other:
                            pipe.set(other, balances[1] + 1)
                        else:
                            pipe.incr(one)
                        await pipe.execute()
                        done += 1
                    except WatchError:
                        pass
                assert sum(map(int, await client.mget(KEYS[:5]))) == 500
        return done

    async def run() -> None:
        cluster = Lagging(GROUPS, seed=1)
        gateways = [Gateway(cluster, two_rounds=two_rounds) for _ in range(2)]
        ports = [await found.listen("127.0.0.1", 0) for found in gateways]
        async with redis.asyncio.Redis(port=ports[0]) as client:
            await client.mset(dict.fromkeys(KEYS[:5], 100))
            done = await asyncio.gather(*(move(ports[number % 2], number) for number in range(8)))
            assert 0 < sum(done) < 8 * 15
        for found in gateways:
            await found.close()

    asyncio.run(run())


def test_serving_until_cancelled() -> None:
    async def run() -> None:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(Gateway(InProcess(1)), "127.0.0.1", 0, ready.set_result))
        port = await ready
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PING\r\n")
        assert await reader.readline() == b"+PONG\r\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(run())


# The tools


@pytest.mark.tool("redis-benchmark")
def test_redis_benchmark(running: Gateway) -> None:
    command = f"redis-benchmark -p {port_of(running)} -t set,get,incr,mset -n 2000 -c 50 -P 16 -r 1000 --csv"
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=allow(60), check=True)
    assert [line.split('"')[1] for line in done.stdout.splitlines()[1:]] == ["SET", "GET", "INCR", "MSET (10 keys)"]
    assert "rror" not in done.stdout + done.stderr


@pytest.mark.tool("redis-cli")
@pytest.mark.parametrize("version", ["-2", "-3"])
def test_redis_cli(running: Gateway, version: str) -> None:
    lines = "FLUSHALL\nSET a 1\nMULTI\nINCR a\nMGET a b\nEXEC\nNONSENSE x\nDBSIZE\n"
    command = ["redis-cli", version, "-p", str(port_of(running))]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=allow(30), check=True)
    assert done.stdout.split("\n") == [
        "OK", "OK", "OK", "QUEUED", "QUEUED", "2", "2", "",
        "ERR unknown command 'NONSENSE', with args beginning with: 'x' ", "", "1", "",
    ]  # fmt: skip
