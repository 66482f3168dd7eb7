"""`amcast maelstrom` under a driver of its own: real processes, late lines, a partition that heals; what clients saw is
checked, and each check is shown to fail."""

import asyncio
import io
import itertools
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amcast.apps.maelstrom import serve
from amcast.apps.maelstrom.channels import Channel
from amcast.apps.maelstrom.workloads import DEEPEST, WORKLOADS
from amcast.errors import WorkloadRefused
from tests.apps.maelstrom_driver import PROGRAM, Body, Network, network
from tests.apps.maelstrom_histories import (
    check_broadcast,
    check_lists,
    check_logs,
    check_registers,
    op,
)
from tests.pace import allow

SEED = 7


async def disturbed(net: Network, request: Callable[[], Body], calls: int = 24) -> None:
    """Two clients per node; the first leader is cut off for a while, then another node."""
    net.nemesis = [(20, lambda: net.cut("n0")), (60, net.heal), (80, lambda: net.cut("n1")), (100, net.heal)]
    await net.clients(2 * len(net.nodes), calls, request)
    assert not net.nemesis and net.dropped > 0  # it did happen
    answered = sum(op.reply is not None and op.reply["type"] != "error" for op in net.history)
    assert answered > len(net.history) // 2 >= calls, "a history without answers has no mistakes"
    net.heal()


async def ask(net: Network, node: str, request: Body) -> Body:
    reply = await net.call(node, request, timeout=allow(20))
    assert reply is not None, request
    return reply


# with real processes


def test_echo(tmp_path: Path) -> None:
    async def run() -> None:
        async with network("echo", 3, SEED, tmp_path / "stderr") as net:
            values = [1, None, "δ\n", {"a": [1.5, {"b": True}]}, 2**70, "x" * 100_000]
            for node, value in itertools.product(net.nodes, values):
                reply = await ask(net, node, {"type": "echo", "echo": value})
                assert (reply["type"], reply["echo"]) == ("echo_ok", value)

    asyncio.run(run())


def test_broadcast(tmp_path: Path) -> None:
    numbers = itertools.count()

    def request() -> Body:
        n = next(numbers)
        return {"type": "read"} if n % 5 == 0 else {"type": "broadcast", "message": n}

    async def run() -> None:
        async with network("broadcast", 3, SEED, tmp_path / "stderr") as net:
            topology = {name: [] for name in net.nodes}
            assert (await ask(net, "n0", {"type": "topology", "topology": topology}))["type"] == "topology_ok"
            await disturbed(net, request)
            final = {node: (await ask(net, node, {"type": "read"}))["messages"] for node in net.nodes}
        assert check_broadcast(net.history, final) == []
        assert len(set(map(str, final.values()))) == 1  # more than Maelstrom asks: one order

    asyncio.run(run())


def test_registers(tmp_path: Path) -> None:
    chance = random.Random(SEED)

    def request() -> Body:
        key, one, other = chance.randrange(4), chance.randrange(4), chance.randrange(4)
        return chance.choice([
            {"type": "read", "key": key},
            {"type": "write", "key": key, "value": one},
            {"type": "cas", "key": key, "from": one, "to": other},
        ])  # fmt: skip

    async def run() -> None:
        async with network("lin-kv", 3, SEED, tmp_path / "stderr") as net:
            assert (await ask(net, "n1", {"type": "read", "key": "none"}))["code"] == 20
            await disturbed(net, request)
        assert check_registers(net.history) == []
        kinds = {(op.reply["type"], op.reply.get("code")) for op in net.history if op.reply is not None}
        assert kinds >= {("read_ok", None), ("write_ok", None), ("cas_ok", None), ("error", 22)}

    asyncio.run(run())


def test_lists(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    numbers = itertools.count()

    def operation() -> list[Any]:
        key = chance.randrange(5)
        return ["r", key, None] if chance.random() < 0.5 else ["append", key, next(numbers)]

    async def run() -> None:
        async with network("txn-list-append", 5, SEED, tmp_path / "stderr") as net:
            await disturbed(net, lambda: {"type": "txn", "txn": [operation() for _ in range(chance.randint(1, 4))]}, 14)
            reply = await ask(net, "n2", {"type": "txn", "txn": [["r", key, None] for key in range(5)]})
        assert check_lists(net.history, {key: values or [] for _, key, values in reply["txn"]}) == []

    asyncio.run(run())


def test_logs(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    numbers = itertools.count()

    def request() -> Body:
        key, other = chance.sample("abc", 2)
        return chance.choice([
            {"type": "send", "key": key, "msg": next(numbers)},
            {"type": "send", "key": key, "msg": next(numbers)},
            {"type": "poll", "offsets": {key: chance.randrange(20), other: 0}},
            {"type": "commit_offsets", "offsets": {key: chance.randrange(20)}},
            {"type": "list_committed_offsets", "keys": [key, other]},
        ])  # fmt: skip

    async def run() -> None:
        async with network("kafka", 3, SEED, tmp_path / "stderr") as net:
            await disturbed(net, request)
            final = (await ask(net, "n1", {"type": "poll", "offsets": dict.fromkeys("abc", 0)}))["msgs"]
        assert max(map(len, final.values())) < 100  # else one poll is not all
        assert check_logs(net.history, final) == []

    asyncio.run(run())


def test_bad_lines_are_answered_and_harm_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with network("lin-kv", 1, SEED, tmp_path / "stderr") as net:
            pipe = net._inputs["n0"]
            pipe.write(b"nonsense\n\n\xff\xfe\n[]\n{}\n" + b"[" * 5000 + b"\n")
            pipe.write(b'{"src":"n9","dest":"n0","body":{"type":"amcast","boot":1,"n":1}}\n')
            nested: Any = None
            for _ in range(2 * DEEPEST):
                nested = [nested]
            for request, code in [
                ({"type": "append"}, 10),
                ({"type": "read"}, 12),
                ({"type": 5}, 12),
                ({}, 12),
                ({"type": "write", "key": nested, "value": 1}, 12),
                ({"type": "init", "node_id": "n0", "node_ids": ["n0"]}, 12),
                ({"type": "cas", "key": 1, "from": 1, "to": 2}, 20),
            ]:
                reply = await ask(net, "n0", request)
                assert (reply["type"], reply["code"]) == ("error", code), request
            assert (await ask(net, "n0", {"type": "write", "key": 1, "value": [1]}))["type"] == "write_ok"
            assert (await ask(net, "n0", {"type": "read", "key": 1}))["value"] == [1]
        lines = (tmp_path / "stderr").read_text().splitlines()
        assert sum(line.startswith("malformed line") for line in lines) == 7
        assert any("n9" in line for line in lines)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["nope"], "expected one of echo, broadcast, lin-kv"), (["echo", "--delta", "0"], "--delta")],
)
def test_bad_options(arguments: list[str], complaint: str) -> None:
    done = subprocess.run([*PROGRAM, *arguments], input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


def test_who_waits_is_told_when_a_node_must_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(machine: object, request: object) -> Body:
        raise OverflowError("a bug")

    monkeypatch.setattr(WORKLOADS["echo"], "execute", fail)
    source, pipe = os.pipe()
    init = {"type": "init", "msg_id": 1, "node_id": "n0", "node_ids": ["n0"]}
    for body in (init, {"type": "echo", "msg_id": 2, "echo": 1}):
        os.write(pipe, json.dumps({"src": "c", "dest": "n0", "body": body}).encode() + b"\n")
    os.close(pipe)
    sink = io.BytesIO()
    with pytest.raises(OverflowError):
        serve("echo", 20, source, sink, lambda text: None)
    os.close(source)
    last = json.loads(sink.getvalue().splitlines()[-1])["body"]
    assert (last["type"], last["code"], last["in_reply_to"]) == ("error", 13, 2)


# the machines, alone


def apply(workload: str, *bodies: str) -> list[Body]:
    machine = WORKLOADS[workload]()
    return [machine.apply(body.encode()) for body in bodies]


def test_values_that_python_takes_for_equal_are_not() -> None:
    replies = apply(
        "lin-kv",
        '{"type":"write","key":1,"value":1}',
        '{"type":"read","key":true}',
        '{"type":"read","key":"1"}',
        '{"type":"cas","key":1,"from":true,"to":2}',
        '{"type":"cas","key":1,"from":1,"to":{"b":1,"a":2}}',
        '{"type":"cas","key":1,"from":{"a":2, "b":1},"to":3}',
        '{"type":"cas","key":2,"from":0,"to":3,"create_if_not_exists":true}',
    )
    assert [reply.get("code", reply["type"]) for reply in replies] == [
        "write_ok", 20, 20, 22, "cas_ok", "cas_ok", "cas_ok",
    ]  # fmt: skip


def test_a_commit_never_goes_back() -> None:
    *_, reply = apply(
        "kafka",
        '{"type":"commit_offsets","offsets":{"a":5}}',
        '{"type":"commit_offsets","offsets":{"a":3}}',
        '{"type":"list_committed_offsets","keys":["a","b"]}',
    )
    assert reply["offsets"] == {"a": 5}


def test_a_request_of_another_workload_is_refused() -> None:
    with pytest.raises(WorkloadRefused, match="expected one of echo"):
        WORKLOADS["echo"]().parse("read", b'{"type":"read"}')


# the channel


@pytest.mark.parametrize("seed", range(20))
def test_a_channel_keeps_order_and_loses_nothing(seed: int) -> None:
    """Lines are lost for a while, repeated and overtaken; in the end all arrived, once, in order."""
    chance = random.Random(seed)
    ends = [Channel(boot, 10) for boot in (1, 2)]
    arrived: list[list[bytes]] = [[], []]
    under_way: list[tuple[int, int, Any]] = []  # when, to whom
    lines = 0
    for now in range(4000):
        for i, end in enumerate(ends):
            if now < 2000 and chance.random() < 0.1:
                end.send(now, "", str(now).encode())
            end.tick(now)
            lines += len(end.out)
            for body in end.out:
                for _ in range(chance.choice([1, 1, 2])):
                    if not 500 < now < 1500 and chance.random() < 0.9:
                        under_way.append((now + chance.randrange(100), 1 - i, body))
            end.out.clear()
        for _, to, body in [row for row in under_way if row[0] <= now]:
            ready = ends[to].receive(now, body)
            assert ready is not None
            arrived[to] += [data for _, data in ready]
        under_way = [row for row in under_way if row[0] > now]
    for i, end in enumerate(ends):
        assert len(arrived[1 - i]) == end._next - 1 > 100
        assert arrived[i] == sorted(arrived[i], key=int)
        assert end.due() is None and not end._early  # nothing is sent again or kept for ever
    assert lines < 15 * (len(arrived[0]) + len(arrived[1])), "a storm"


def test_a_node_that_started_again_is_not_heard() -> None:
    one, other, again = Channel(1, 10), Channel(2, 10), Channel(3, 10)
    for end in (other, again):
        end.send(0, "", b"x")
    assert one.receive(0, other.out[0]) == [("", b"x")]
    assert one.receive(0, again.out[0]) is None


# each check can fail


def read(key: int, value: Any, *times: float) -> Any:
    return op({"type": "read", "key": key}, {"type": "read_ok", "value": value}, *times)


def write(key: int, value: Any, *times: float, known: bool = True) -> Any:
    return op({"type": "write", "key": key, "value": value}, {"type": "write_ok"} if known else None, *times)


def cas(key: int, old: Any, new: Any, reply: Body, *times: float) -> Any:
    return op({"type": "cas", "key": key, "from": old, "to": new}, reply, *times)


FAILED = {"type": "error", "code": 22}
ABSENT = {"type": "error", "code": 20}


@pytest.mark.parametrize(
    ("history", "good"),
    [
        ([write(1, 5, 0, 1), read(1, 5, 2, 3)], True),
        ([write(1, 5, 0, 1), read(1, 6, 2, 3)], False),
        ([write(1, 5, 0, 1), write(1, 6, 2, 3), read(1, 5, 4, 5)], False),  # stale
        ([write(1, 5, 0, 1), write(1, 6, 2, 5), read(1, 5, 3, 4)], True),  # concurrent
        ([write(1, 6, 0, known=False), read(1, 6, 3, 4)], True),
        ([write(1, 6, 5, known=False), read(1, 6, 3, 4)], False),  # from the future
        ([write(1, 5, 0, 9), read(1, 5, 1, 2), op({"type": "read", "key": 1}, ABSENT, 3, 4)], False),  # back again
        ([write(1, 5, 0, 1), cas(1, 5, 6, FAILED, 2, 3)], False),
        ([write(1, 5, 0, 1), cas(1, 4, 6, FAILED, 2, 3)], True),
        ([write(1, 5, 0, 1), cas(1, 5, 6, {"type": "cas_ok"}, 2, 3), cas(1, 5, 7, {"type": "cas_ok"}, 2, 3)], False),
    ],
)
def test_register_check(history: list[Any], good: bool) -> None:
    assert (check_registers(history) == []) == good


def txn(request: list[Any], result: list[Any] | None, *times: float) -> Any:
    return op({"type": "txn", "txn": request}, None if result is None else {"type": "txn_ok", "txn": result}, *times)


def appended(key: int, value: int, *times: float) -> Any:
    return txn([["append", key, value]], [["append", key, value]], *times)


def seen(values: dict[int, list[int] | None], *times: float) -> Any:
    return txn([["r", key, None] for key in values], [["r", key, found] for key, found in values.items()], *times)


@pytest.mark.parametrize(
    ("history", "final", "good"),
    [
        ([appended(1, 1, 0, 1), appended(1, 2, 2, 3), seen({1: [1]}, 1, 4)], {1: [1, 2]}, True),
        ([appended(1, 1, 0, 1), appended(1, 2, 2, 3)], {1: [2, 1]}, False),  # against real time
        ([appended(1, 1, 0, 1)], {1: []}, False),  # lost
        ([appended(1, 1, 0, 1)], {1: [1, 1]}, False),  # twice
        ([appended(1, 1, 0, 1), seen({1: None}, 2, 3)], {1: [1]}, False),  # stale
        ([appended(1, 1, 0, 9), appended(1, 2, 0, 9), seen({1: [2]}, 2, 3)], {1: [1, 2]}, False),  # no prefix
        ([txn([["append", 1, 1], ["append", 2, 2]], None, 0)], {1: [1]}, False),  # half of it
        ([txn([["append", 1, 1], ["append", 2, 2]], None, 0)], {}, True),
        ([txn([["append", 1, 1], ["r", 1, None]], [["append", 1, 1], ["r", 1, []]], 0, 1)], {1: [1]}, False),
        (
            [appended(1, 1, 0, 9), appended(2, 2, 0, 9), seen({1: [1], 2: []}, 0, 9), seen({1: [], 2: [2]}, 0, 9)],
            {1: [1], 2: [2]},
            False,  # two readers, two orders
        ),
        ([], {1: [7]}, False),  # from nowhere
    ],
)
def test_list_check(history: list[Any], final: dict[int, list[int]], good: bool) -> None:
    assert (check_lists(history, final) == []) == good


def sent(key: str, msg: int, offset: int, *times: float) -> Any:
    return op({"type": "send", "key": key, "msg": msg}, {"type": "send_ok", "offset": offset}, *times)


def polled(key: str, first: int, rows: list[tuple[int, int]], *times: float) -> Any:
    return op({"type": "poll", "offsets": {key: first}}, {"type": "poll_ok", "msgs": {key: rows}}, *times)


def committed(key: str, offset: int, *times: float) -> Any:
    return op({"type": "commit_offsets", "offsets": {key: offset}}, {"type": "commit_offsets_ok"}, *times)


def listed(key: str, offset: int, *times: float) -> Any:
    reply = {"type": "list_committed_offsets_ok", "offsets": {key: offset}}
    return op({"type": "list_committed_offsets", "keys": [key]}, reply, *times)


TWO = [sent("a", 10, 0, 0, 1), sent("a", 11, 1, 2, 3)]
ROWS = [(0, 10), (1, 11)]


@pytest.mark.parametrize(
    ("history", "final", "good"),
    [
        ([*TWO, polled("a", 0, ROWS, 4, 5)], ROWS, True),
        (TWO, ROWS[:1], False),  # lost
        (TWO, [*ROWS, (2, 11)], False),  # twice
        ([*TWO, sent("a", 12, 1, 0, 9)], ROWS, False),  # one offset for two
        ([sent("a", 10, 1, 0, 1), sent("a", 11, 0, 2, 3)], [(0, 11), (1, 10)], False),  # against real time
        ([*TWO, polled("a", 0, ROWS[1:], 4, 5)], ROWS, False),  # skipped one
        ([*TWO, polled("a", 0, ROWS[::-1], 4, 5)], ROWS, False),  # out of order
        ([*TWO, polled("a", 0, [(0, 11)], 4, 5)], ROWS, False),  # another message there
        ([*TWO, committed("a", 1, 4, 5), listed("a", 1, 6, 7)], ROWS, True),
        ([*TWO, committed("a", 1, 4, 5), listed("a", 0, 6, 7)], ROWS, False),  # forgotten
        ([*TWO, listed("a", 0, 6, 7)], ROWS, False),  # never committed
    ],
)
def test_log_check(history: list[Any], final: list[tuple[int, int]], good: bool) -> None:
    assert (check_logs(history, {"a": final}) == []) == good


@pytest.mark.parametrize(("final", "good"), [([1, 2], True), ([1], False), ([1, 2, 2], False), ([1, 2, 3], False)])
def test_broadcast_check(final: list[int], good: bool) -> None:
    history = [op({"type": "broadcast", "message": n}, {"type": "broadcast_ok"}, n, n + 1) for n in (1, 2)]
    assert (check_broadcast(history, {"n0": [1, 2], "n1": final}) == []) == good
