"""Guards: the answers are those of Redis 7, for thousands of random commands, in one group and in three."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.connection import Connection, UnixDomainSocketConnection
from redis.exceptions import ResponseError

from tests.apps.in_process import gateway_in_thread
from tests.pace import until

pytestmark = pytest.mark.tool("redis-server")

KEYS = ["a", "b", "c", "d", "{t}1", "{t}2", ""]
FAR = 4_000_000_000
VALUES = ["", "0", "1", "-1", "007", " 5", "5 ", "+5", "abc", "9223372036854775807", "-9223372036854775808", "3.5"]
NUMBERS = [*VALUES, "10", "-10", "9223372036854775808", str(FAR), "9223372036854775", "100000000000000000000"]


def random_command(choose: random.Random) -> list[str]:
    key, value, number = choose.choice(KEYS), choose.choice(VALUES), choose.choice(NUMBERS)
    late = number if number not in ("1", "10") else "500000"  # nothing expires while it is compared
    some = [choose.choice(KEYS) for _ in range(choose.randint(0, 4))]
    pairs = [word for k in some for word in (k, choose.choice(VALUES))]
    options: list[str] = []
    for _ in range(choose.choice((0, 0, 1, 1, 2, 3))):
        options.append(choose.choice("EX PX EXAT PXAT NX XX GET KEEPTTL nx FOO PERSIST".split()))
        if options[-1] in ("EX", "PX", "EXAT", "PXAT") and choose.random() < 0.9:
            options.append(choose.choice((late, "500000", str(FAR * 1000))))
    flags = choose.choices(("NX", "XX", "GT", "LT", "zz"), k=choose.choice((0, 0, 1, 2)))
    when = [choose.choice((late, "500000", "-5", "0")), *flags]
    span = [str(choose.randint(-6, 6)), str(choose.randint(-6, 6))]
    return choose.choice((
        ["GET", key], ["SET", key, value], ["SET", key, value, *options], ["SETNX", key, value], ["GETSET", key, value],
        ["GETDEL", key], ["GETEX", key, *options[:3]], ["SETEX", key, late, value], ["PSETEX", key, late, value],
        ["DEL", *some], ["EXISTS", *some], ["UNLINK", *some], ["TOUCH", *some], ["INCR", key], ["DECR", key],
        ["INCRBY", key, number], ["DECRBY", key, number], ["APPEND", key, value], ["STRLEN", key], ["MGET", *some],
        ["MSET", *pairs], ["MSETNX", *pairs], ["MSET", *pairs, "odd"], ["MSETNX", *pairs, "odd"],
        ["EXPIRE", key, *when], ["PEXPIRE", key, *when], ["EXPIREAT", key, str(FAR), *flags], ["PEXPIREAT", key, *when],
        ["EXPIRETIME", key], ["PEXPIREAT", key, str(FAR * 1000 + 499)], ["PEXPIRETIME", key], ["TTL", key],
        ["PTTL", key], ["PERSIST", key], ["TYPE", key], ["DBSIZE"],
        ["KEYS", choose.choice(("*", "?", "[a-c]", "{t}*", "[^a]", "\\a"))],
        ["GETRANGE", key, *span], ["SETRANGE", key, span[0], value],
        ["SCAN", choose.choice(("17", "99999", "abc", "1x"))], ["SCAN", "0", *options],
        ["FLUSHALL", *some[:2]] if choose.random() < 0.1 else ["GET"], ["PING", *some[:3]], ["ECHO", value],
        ["SELECT", value], ["nonsense", *some], ["x" * 200, "y" * 200], ["CLIENT", "nonsense"], ["MULTI"], ["EXEC"],
        ["DISCARD"], ["EXEC", value], ["DISCARD", value], ["MULTI", value], ["WATCH", *some], ["UNWATCH"], ["EXEC"],
        ["get", key], ["set", key, value, "px"],
    ))  # fmt: skip


def answer(connection: Connection, command: list[str]) -> Any:
    connection.send_command(*command)
    try:
        return connection.read_response()
    except ResponseError as error:
        return f"-{error}"


def comparable(command: list[str], reply: Any) -> Any:
    match command[0], reply:
        case "KEYS", list():
            return sorted(reply)
        case ("TTL" | "EXPIRETIME", int()) if reply > 0 and reply != FAR:
            return round(reply, -2)
        case ("PTTL" | "PEXPIRETIME", int()) if reply > 0 and reply != FAR * 1000 + 499:
            return round(reply, -5)
        case "DBSIZE", int():
            return "counted"  # Redis counts what has expired until it comes across it
        case "SCAN", list():
            return "keys"
        case _, ResponseError():
            return str(reply)
    return reply


@pytest.fixture(scope="module")
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("redis")
    path = folder / "socket"
    with subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--databases", "1"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert until(path.exists, 10), "redis-server does not listen"
        yield path
        process.terminate()


@pytest.mark.parametrize(("groups", "seed", "two_rounds"), [(1, 1, False), (3, 2, False), (3, 3, True)])
def test_same_answers(redis_socket: Path, groups: int, seed: int, two_rounds: bool) -> None:
    choose = random.Random(seed)
    theirs = UnixDomainSocketConnection(path=str(redis_socket))
    answer(theirs, ["FLUSHALL"])
    history: list[str] = []
    queued: list[list[str]] = []
    with gateway_in_thread(groups) as found:
        found.server.two_rounds = two_rounds
        ours = Connection(host="127.0.0.1", port=found.server.port)
        for _ in range(3000):
            command = random_command(choose)
            if groups > 1 and command[0] == "MSETNX" and len(set(command[1::2])) > 1:
                command = [word if place % 2 == 0 else "{t}" + word for place, word in enumerate(command)]
            replies = [answer(side, command) for side in (theirs, ours)]
            if replies[0] == b"QUEUED":
                queued.append(command)
            elif command[0] == "EXEC" and isinstance(replies[0], list):
                replies = [list(map(comparable, queued, reply)) for reply in replies]
            else:
                replies = [comparable(command, reply) for reply in replies]
            if command[0] in ("EXEC", "DISCARD"):
                queued = []
            history.append(f"{command} -> {replies[0]!r}")
            assert replies[0] == replies[1], "\n".join([*history[-15:], f"ours: {replies[1]!r}"])
        ours.disconnect()
    theirs.disconnect()
