"""What Maelstrom does for a test, as far as ours need it: starts nodes, routes their lines late and out of order, cuts
the network in two and heals it, and lets clients call."""

import asyncio
import json
import math
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.pace import allow

PROGRAM = (sys.executable, "-c", "from amcast.cli import main; main()", "maelstrom", "--workload")
Body = dict[str, Any]
INDEFINITE = (0, 13)  # error codes after which nobody knows whether it happened


@dataclass(frozen=True)
class Op:
    node: str
    request: Body
    reply: Body | None  # None: nobody knows whether it happened
    invoked: float
    returned: float = math.inf


@dataclass
class Network:
    nodes: list[str]
    chance: random.Random
    longest_delay: float
    history: list[Op] = field(default_factory=list)
    nemesis: list[tuple[int, Callable[[], None]]] = field(default_factory=list)  # after how many answers, what
    answered: int = 0
    routed: int = 0
    dropped: int = 0
    _side: dict[str, int] = field(default_factory=dict)
    _inputs: dict[str, asyncio.StreamWriter] = field(default_factory=dict)
    _calls: dict[tuple[str, int], "asyncio.Future[Body]"] = field(default_factory=dict)
    _number: int = 0

    def cut(self, *minority: str) -> None:
        self._side = {name: int(name in minority) for name in self.nodes}

    def heal(self) -> None:
        self._side = {}

    async def read(self, name: str, output: asyncio.StreamReader) -> None:
        async for line in output:
            message = json.loads(line)
            assert message["src"] == name, line
            self.later(message)

    def later(self, message: Body) -> None:
        delay = self.chance.uniform(0, self.longest_delay)
        asyncio.get_running_loop().call_later(delay, self.route, message)

    def route(self, message: Body) -> None:
        src, dest, body = message["src"], message["dest"], message["body"]
        self.routed += 1
        if dest not in self._inputs:
            call = self._calls.pop((dest, body["in_reply_to"]), None)
            if call is not None and not call.done():
                call.set_result(body)
        elif src in self._side and self._side[src] != self._side[dest]:
            self.dropped += 1
        else:
            self._inputs[dest].write(json.dumps(message).encode() + b"\n")

    async def call(self, node: str, request: Body, timeout: float) -> Body | None:
        self._number += 1
        client = f"c{self._number}"  # who gets no answer never calls again
        call: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._calls[client, self._number] = call
        self.later({"src": client, "dest": node, "body": {**request, "msg_id": self._number}})
        try:
            return await asyncio.wait_for(call, timeout)
        except TimeoutError:
            return None

    async def invoke(self, node: str, request: Body, timeout: float = 2.0) -> Body | None:
        """Call, and put it in the history."""
        clock = asyncio.get_running_loop().time
        invoked = clock()
        reply = await self.call(node, request, allow(timeout))
        if reply is None or reply.get("code") in INDEFINITE:
            self.history.append(Op(node, request, None, invoked))
            return None
        self.history.append(Op(node, request, reply, invoked, clock()))
        self.answered += 1
        while self.nemesis and self.answered >= self.nemesis[0][0]:
            self.nemesis.pop(0)[1]()
        return reply

    async def clients(self, count: int, calls: int, request: Callable[[], Body]) -> None:
        """Each at a node of its own choice, one call after the other."""

        async def client(node: str) -> None:
            for _ in range(calls):
                await self.invoke(node, request())

        await asyncio.gather(*[client(self.nodes[i % len(self.nodes)]) for i in range(count)])


@asynccontextmanager
async def network(
    workload: str, size: int, seed: int, errors: Path, longest_delay: float = 0.01
) -> AsyncIterator[Network]:
    """Real processes, initialized; their stderr is in `errors`."""
    net = Network([f"n{i}" for i in range(size)], random.Random(seed), longest_delay)
    with errors.open("wb") as stderr:
        started = [await start(workload, stderr) for _ in net.nodes]
        tasks = []
        for name, process in zip(net.nodes, started, strict=True):
            assert process.stdin is not None and process.stdout is not None
            net._inputs[name] = process.stdin
            tasks.append(asyncio.create_task(net.read(name, process.stdout)))
        try:
            inits = [{"type": "init", "node_id": name, "node_ids": net.nodes} for name in net.nodes]
            calls = [net.call(name, init, 20) for name, init in zip(net.nodes, inits, strict=True)]
            for reply in await asyncio.gather(*calls):
                assert reply is not None and reply["type"] == "init_ok"
            yield net
        finally:
            for process in started:
                assert process.stdin is not None
                process.stdin.close()
            codes = [await process.wait() for process in started]
            await asyncio.gather(*tasks)
    assert codes == [0] * size, errors.read_text()


async def start(workload: str, stderr: IO[bytes]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*PROGRAM, workload, stdin=pipe, stdout=pipe, stderr=stderr, limit=2**24)
