"""The node of a Maelstrom test without its process: many seeds in virtual time, on a network that also loses and
repeats lines, with partitions of any shape, one-way ones too."""

import heapq
import json
import random
from typing import Any

import pytest

from amcast.apps.maelstrom import WORKLOADS, MaelstromNode
from amcast.protocols import protocol
from tests.apps.maelstrom_driver import Body, Op
from tests.apps.maelstrom_histories import check_lists, check_registers

MS = 1_000_000
DELTA = 20 * MS
CALM = 6000 * MS  # from then on the network behaves
END = 30_000 * MS
CALLS = 200


class Virtual:
    """Nodes, the lines between them, and clients that call one after the other until the network is calm."""

    def __init__(self, workload: str, size: int, seed: int, node: type[MaelstromNode] = MaelstromNode) -> None:
        self.chance = random.Random(seed)
        self.names = [f"n{i}" for i in range(size)]
        self.logged: list[str] = []
        self.nodes = {
            name: node(
                WORKLOADS[workload](), protocol("white_box"), DELTA, boot, self.chance.randint, self.logged.append
            )
            for boot, name in enumerate(self.names)
        }
        self.now = 0
        self.events: list[tuple[int, int, str, bytes]] = []  # when, in which order, to whom, line
        self.count = 0
        self.cut: set[tuple[str, str]] = set()
        self.open: dict[tuple[str, int], tuple[str, Body, int]] = {}
        self.history: list[Op] = []
        self.requests: Any = None
        for name in self.names:
            self.call("c", name, {"type": "init", "node_id": name, "node_ids": self.names})

    def put(self, line: bytes, dest: str) -> None:
        self.count += 1
        delay = self.chance.randrange(30 * MS) if self.now < CALM else self.chance.randrange(10 * MS)
        heapq.heappush(self.events, (self.now + delay, self.count, dest, line))

    def call(self, client: str, node: str, request: Body) -> None:
        self.count += 1
        self.open[client, self.count] = (node, request, self.now)
        message = {"src": client, "dest": node, "body": {**request, "msg_id": self.count}}
        self.put(json.dumps(message).encode(), node)

    def sent(self, line: bytes) -> None:
        message = json.loads(line)
        src, dest = message["src"], message["dest"]
        if dest in self.nodes and self.now < CALM:
            if (src, dest) in self.cut or self.chance.random() < 0.02:
                return
            if self.chance.random() < 0.02:
                self.put(line, dest)
        self.put(line, dest)

    def answer(self, client: str, line: bytes) -> None:
        body = json.loads(line)["body"]
        node, request, invoked = self.open.pop((client, body["in_reply_to"]))
        if request["type"] != "init":
            self.history.append(Op(node, request, body, invoked, self.now))
        if client != "c" and self.now < CALM and len(self.history) < CALLS:
            self.call(client, self.chance.choice(self.names), self.requests())

    def repartition(self) -> None:
        pairs = [(a, b) for a in self.names for b in self.names if a != b]
        minority = self.chance.sample(self.names, len(self.names) // 2)
        self.cut = set(self.chance.choice([
            [],
            [(a, b) for a, b in pairs if (a in minority) != (b in minority)],
            [(a, b) for a, b in pairs if a in minority and b not in minority],
            self.chance.sample(pairs, len(pairs) // 3),
        ]))  # fmt: skip

    def run(self, end: int, until_answered: bool) -> None:
        next_cut = 0
        while self.now < end and (self.open or self.now < CALM or not until_answered):
            times = [due for node in self.nodes.values() if (due := node.due()) is not None]
            self.now = max(self.now, min([*times, *[event[0] for event in self.events[:1]], end]))
            if self.now >= next_cut:
                self.repartition()
                next_cut = self.now + self.chance.randrange(200 * MS, 1500 * MS)
            while self.events and self.events[0][0] <= self.now:
                _, _, dest, line = heapq.heappop(self.events)
                if dest in self.nodes:
                    self.nodes[dest].receive(self.now, line)
                else:
                    self.answer(dest, line)
            for node in self.nodes.values():
                node.tick(self.now)
                node.flush(self.now)
                for line in node.out:
                    self.sent(line)
                node.out.clear()

    def everything_answered(self) -> None:
        self.run(END, until_answered=True)
        assert not self.open, self.open
        self.run(self.now + 2000 * MS, until_answered=False)  # followers get what leaders have
        assert not any(line.startswith("malformed") for line in self.logged), self.logged


def registers(seed: int, node: type[MaelstromNode] = MaelstromNode) -> list[str]:
    chance = random.Random(seed)

    def request() -> Body:
        key, one, other = chance.randrange(3), chance.randrange(3), chance.randrange(3)
        return chance.choice([
            {"type": "read", "key": key},
            {"type": "write", "key": key, "value": one},
            {"type": "cas", "key": key, "from": one, "to": other},
        ])  # fmt: skip

    world = Virtual("lin-kv", chance.choice([2, 3, 4, 5]), seed, node)
    world.requests = request
    for i in range(4):
        world.call(f"c{i}", world.names[i % len(world.names)], {"type": "write", "key": 0, "value": i})
    world.everything_answered()
    assert len(world.history) > 4
    return check_registers([op for op in world.history if (op.reply or {}).get("code") != 11])


@pytest.mark.parametrize("seed", range(6))
def test_registers(seed: int) -> None:
    assert registers(seed) == []


class ReadsItsOwnState(MaelstromNode):
    """A broken one: what it has delivered may be old."""

    def _request(self, now: int, envelope: Any, head: Any) -> None:
        if head.type == "read":
            self._answer(envelope.src, head.msg_id, self.workload.apply(bytes(envelope.body)))
        else:
            super()._request(now, envelope, head)


def test_a_broken_node_is_caught() -> None:
    assert any(registers(seed, ReadsItsOwnState) for seed in range(10))


@pytest.mark.parametrize("seed", range(6))
def test_lists(seed: int) -> None:
    chance = random.Random(seed)
    numbers = iter(range(1_000_000))

    def request() -> Body:
        keys = [chance.randrange(4) for _ in range(chance.randint(1, 3))]
        return {
            "type": "txn",
            "txn": [["r", k, None] if chance.random() < 0.5 else ["append", k, next(numbers)] for k in keys],
        }

    world = Virtual("txn-list-append", chance.choice([3, 5]), seed)
    world.requests = request
    for i in range(4):
        world.call(f"c{i}", world.names[i % len(world.names)], request())
    world.everything_answered()
    states = {json.dumps(node.workload.lists, default=lambda raw: bytes(raw).decode()) for node in world.nodes.values()}
    assert len(states) == 1  # all nodes executed the same
    lists = {int(key): [json.loads(v) for v in values] for key, values in json.loads(states.pop()).items()}
    history = [op for op in world.history if (op.reply or {}).get("code") != 11]
    assert len(history) > 4
    assert check_lists(history, lists) == []
