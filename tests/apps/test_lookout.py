"""Guards time in the store: no gateway and no replica with a wrong clock ends other people's keys.

And: a gateway knows which groups cannot be used, and says so.
"""

import asyncio
import io
import json
from dataclasses import dataclass

import pytest

from amcast.apps.kv.gateway import Gateway
from amcast.apps.kv.lookout import Lookout
from amcast.runtime.frames import Condition
from amcast.runtime.log import Log
from amcast.runtime.machine import REAL, Clock, Machine
from tests.apps.in_process import InProcess
from tests.apps.test_gateway import talk
from tests.pace import allow

DAYS_400 = 400 * 86_400 * 1000  # milliseconds


class OffBy(Clock):
    """A clock that somebody set wrong."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ms * 1_000_000


def joined(cluster: InProcess, clock: Clock) -> InProcess:
    """Return another client of the same cluster, on a machine with this clock."""
    other = InProcess(cluster.groups, Machine(clock=clock))
    other.machines = cluster.machines
    return other


@pytest.mark.parametrize("days", [400, -400])
def test_a_gateway_with_a_wrong_clock_ends_nobodys_keys(days: int) -> None:
    async def go() -> None:
        cluster = InProcess(1)
        right, wrong = Gateway(cluster), Gateway(joined(cluster, OffBy(days * 86_400_000)), log=quiet())
        port, other = await right.listen("127.0.0.1", 0), await wrong.listen("127.0.0.1", 0)
        assert await talk(port, b"SET a 1 EX 1000\n") == b"+OK\r\n"
        await talk(other, b"GET b\nSET c 1 EX 1000\n")
        for where in (port, other):
            left = int((await talk(where, b"TTL a\n"))[1:]), int((await talk(where, b"TTL c\n"))[1:])
            assert all(990 <= seconds <= 1000 for seconds in left), left
        assert await talk(port, b"SET d 1 PX 20\n") == b"+OK\r\n"
        await asyncio.sleep(0.05)
        assert await talk(port, b"GET d\n") == b"$-1\r\n", "the time stands still"
        assert abs(int((await talk(other, b"TIME\n")).split()[2]) - REAL.clock.wall_ns() / 1e9) < 100
        await right.close()
        await wrong.close()

    asyncio.run(go())


def quiet() -> Log:
    return Log("kv", stream=io.StringIO())


@dataclass
class Replicas:
    """Replicas that say what they are told to say; those that are absent say nothing."""

    said: dict[str, Condition | None]
    groups: int = 1
    machine: Machine = REAL

    async def conditions(self, seconds: float) -> dict[str, Condition]:
        now, heard = REAL.clock.wall_ns() // 1_000_000, REAL.clock.monotonic_ns()
        return {
            name: Condition(now + one.wall_ms, one.unready, heard) for name, one in self.said.items() if one is not None
        }


def off_by(*offsets: int) -> Replicas:
    return Replicas({f"g0/{rank}": Condition(ms, None) for rank, ms in enumerate(offsets)})


@pytest.mark.parametrize(
    "offsets",
    [(0, 0, DAYS_400), (DAYS_400, 0), (0, -DAYS_400, 0), (DAYS_400, 0, -DAYS_400), (0, 0, 0, DAYS_400, DAYS_400, 0)],
)
def test_a_replica_with_a_wrong_clock_changes_no_time(offsets: tuple[int, ...]) -> None:
    async def go() -> None:
        lookout = Lookout(off_by(*offsets), quiet())
        assert lookout.now_ms() is None
        await lookout.look()
        now = lookout.now_ms()
        assert now is not None and abs(now - REAL.clock.wall_ns() // 1_000_000) < allow(1000)

    asyncio.run(go())


def test_the_time_goes_on_between_looks_and_when_nobody_answers() -> None:
    async def go() -> None:
        replicas = off_by(0, 0, 0)
        lookout = Lookout(replicas, quiet())
        await lookout.look()
        replicas.said = {}
        before = lookout.now_ms()
        await asyncio.sleep(0.02)
        await lookout.look()
        after = lookout.now_ms()
        assert before is not None and after is not None and 10 <= after - before < allow(1000)

    asyncio.run(go())


def test_a_clock_that_is_off_is_named_once() -> None:
    async def go() -> None:
        log = io.StringIO()
        replicas = off_by(0, DAYS_400, 1000)
        lookout = Lookout(replicas, Log("kv", stream=log))
        await lookout.look()
        await lookout.look()
        (line,) = [json.loads(line) for line in log.getvalue().splitlines()]
        assert line["clock_of"] == "g0/1" and abs(line["seconds_ahead"] - DAYS_400 / 1000) < 10

    asyncio.run(go())


# Groups that cannot be used


def test_a_group_that_cannot_be_used_is_named() -> None:
    async def go() -> None:
        log = io.StringIO()
        said: dict[str, Condition | None] = {
            "g0/0": Condition(0, "no quorum"), "g0/1": None, "g1/0": Condition(0, "no leader"),
            "g1/1": Condition(0, None),
        }  # fmt: skip
        replicas = Replicas(said, groups=3)
        lookout = Lookout(replicas, Log("kv", stream=log))
        await lookout.look()
        assert lookout.unusable == {0: "no quorum", 2: "none of its replicas answers"}
        said |= {"g0/0": Condition(0, None), "g2/0": Condition(0, None)}
        await lookout.look()
        events = [(json.loads(line)["event"], json.loads(line)["group"]) for line in log.getvalue().splitlines()]
        assert events == [
            ("a group cannot be used", "g0"), ("a group cannot be used", "g2"), ("a group can be used", "g0"),
            ("a group can be used", "g2"),
        ]  # fmt: skip

    asyncio.run(go())


def test_nothing_is_sent_before_the_time_is_known() -> None:
    class Stopped(InProcess):
        async def conditions(self, seconds: float) -> dict[str, Condition]:
            return {}

    async def go() -> None:
        cluster = Stopped(1)
        found = Gateway(cluster, log=quiet())
        port = await found.listen("127.0.0.1", 0)
        said = await talk(port, b"PING\nGET a\nMULTI\nSET a 1\nEXEC\n")
        refused = "-TRYAGAIN not executed: no replica of the cluster has answered yet"
        assert said.decode().splitlines() == ["+PONG", refused, "+OK", "+QUEUED", refused]
        assert cluster.position == 0
        await found.close()

    asyncio.run(go())
