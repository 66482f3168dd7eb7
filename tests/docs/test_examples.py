"""The examples: their state machines on simulated clusters with faults, the web service and its kin on a real one."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.pace import allow, until

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "inventory" / "src"), str(EXAMPLES / "inventory" / "tests")]

from inventory.machine import Inventory, home  # noqa: E402
from lock import Locks, lead  # noqa: E402
from test_inventory import nothing_oversold, use  # noqa: E402
from work_queue import Queue, ask, put, take  # noqa: E402

from amcast import Client, Delivery, MulticastFailed, OutcomeUnknown, Rejected, StateMachine  # noqa: E402
from amcast.errors import Alarm  # noqa: E402
from amcast.local.trial import Trial  # noqa: E402
from amcast.swarm.cluster.application import try_application  # noqa: E402


def delivery(payload: object, position: int = 0) -> Delivery:
    return Delivery("g0", position, (position, "g0"), f"c:{position}", "c", ("g0",), json.dumps(payload).encode())


async def or_not(work: Coroutine[Any, Any, object]) -> object:
    """Wait for an answer, as somebody who gives up what fails or stays unknown."""
    try:
        return await work
    except (MulticastFailed, OutcomeUnknown, Rejected):
        return None


# Under the simulator


def test_the_inventory_sells_nothing_twice() -> None:
    assert try_application(Inventory, use, judge=nothing_oversold, seeds=2).applied > 50


def test_an_inventory_that_sells_what_it_has_not_is_found() -> None:
    class Careless(Inventory):
        def apply(self, delivery: Delivery) -> bytes:
            for item in json.loads(delivery.payload)["items"]:
                if home(item, self.groups) == self.group:
                    self.stock[item] = self.stock.get(item, 0) - 1
            return super().apply(delivery)

    with pytest.raises(Alarm, match="sold more than there was"):
        try_application(Careless, use, judge=nothing_oversold, seeds=3)


def test_the_queue_gives_a_job_to_one_worker() -> None:
    given: list[int] = []

    async def work(client: Client, random: Random) -> None:
        me = f"{client.sender}-{random.getrandbits(64)}"
        for number in range(4):
            await asyncio.sleep(random.random() / 4)
            await or_not(put(client, f"{me}-{number}"))
            job = await or_not(take(client, me))
            if isinstance(job, list):
                given.append(job[0])
                await or_not(ask(client, "done", me, job[0]))

    def once(machines: Mapping[str, StateMachine]) -> None:
        if "g0" in machines:
            assert len(given) == len(set(given)), "a job was given to two workers"
        given.clear()

    assert try_application(Queue, work, judge=once, seeds=2).applied > 20


def test_a_job_of_a_dead_worker_is_given_to_another_one() -> None:
    queue = Queue(0, 1)
    for place, words in enumerate((["put", "a"], ["put", "b"], ["take", "ann"], ["dead", "ann"], ["take", "bob"])):
        answer = queue.apply(delivery(words, place))
    assert json.loads(answer) == [0, "a"]
    with pytest.raises(Rejected, match="job 0 is not with ann"):
        queue.apply(delivery(["done", "ann", 0], 5))
    other = Queue(0, 1)
    other.restore(queue.snapshot())
    assert other.snapshot() == queue.snapshot()


def test_one_holds_a_lock_at_a_time_and_tokens_grow() -> None:
    locks = Locks(0, 1)

    def ask_for(owner: str, now: int, ms: int, place: int) -> object:
        return json.loads(locks.apply(delivery({"now": now, "lock": "x", "owner": owner, "ms": ms}, place)))

    assert ask_for("ann", 1000, 500, 3) == ["ann", 4]
    assert ask_for("bob", 1200, 500, 4) == ["ann", 0]
    assert ask_for("ann", 1300, 500, 5) == ["ann", 4]
    assert ask_for("bob", 1799, 500, 6) == ["ann", 0]
    assert ask_for("bob", 1800, 500, 7) == ["bob", 8]
    assert ask_for("ann", 1700, 500, 8) == ["bob", 0]  # time does not go back
    assert ask_for("bob", 1900, 0, 9) == ["bob", 10]  # given back
    assert ask_for("ann", 1900, 500, 10) == ["ann", 11]
    with pytest.raises(Rejected, match="expected"):
        locks.apply(delivery({"now": "late"}))
    other = Locks(0, 1)
    other.restore(locks.snapshot())
    assert other.snapshot() == locks.snapshot()


def test_leaders_under_faults_have_tokens_that_nobody_else_has() -> None:
    tokens: list[tuple[int, str]] = []

    async def stand(client: Client, random: Random) -> None:
        me = f"{client.sender}-{random.getrandbits(64)}"
        for _ in range(5):
            await asyncio.sleep(random.random() / 4)
            token = await or_not(lead(client, me, 0.2, asyncio.get_running_loop().time()))
            if isinstance(token, int) and token:
                tokens.append((token, me))

    def different(machines: Mapping[str, StateMachine]) -> None:
        assert len({token for token, _ in tokens}) == len(set(tokens)), "two leaders have one token"
        tokens.clear()

    assert try_application(Locks, stand, judge=different, seeds=2).applied > 20


# On a real cluster


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path[:3]))
    with Trial(tmp_path / "shop", groups=2, app="inventory.machine:Inventory", traced=False) as trial:
        yield trial


@pytest.mark.slow
def test_the_web_service(shop: Trial) -> None:
    """Two of them in front of one cluster; a leader is killed between an order and the next."""
    command = [sys.executable, "-m", "uvicorn", "inventory.web:app", "--port", "0"]
    environment = {**os.environ, "INVENTORY": str(shop.config.path)}
    services = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        ports = []
        for service in services:
            assert service.stderr is not None
            line = next(line for line in service.stderr if "running on" in line)
            ports.append(int(line.split("127.0.0.1:")[1].split()[0]))

        def call(port: int, path: str, body: object = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=allow(60)) as answer:
                return json.load(answer)

        assert call(ports[0], "/stock", {"apple": 3, "bread": 1}) == {"apple": 3, "bread": 1}
        assert call(ports[1], "/orders", {"apple": 2, "bread": 1}) == {"taken": True}
        shop.kill(shop.leader(0))
        assert until(lambda: call(ports[0], "/orders", {"apple": 1, "bread": 1}) == {"taken": False}, 60)
        assert call(ports[1], "/stock/apple") == {"apple": 1}
    finally:
        for service in services:
            service.terminate()
            service.communicate(timeout=allow(30))
