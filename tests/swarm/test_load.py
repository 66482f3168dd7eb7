"""Guards the claim of swarm/cluster/load: what users write down is what happened, so that a right store is judged
right and every wrong answer raises an alarm; on a store in this process, which orders at random."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from amcast.apps.kv.gateway import Gateway
from amcast.apps.kv.machine import KV
from amcast.checks.serializable import Append, Call, Get, Increment, Outcome
from amcast.core.application import Delivery
from amcast.core.topology import Topology
from amcast.errors import Alarm, MulticastFailed, OutcomeUnknown, Rejected
from amcast.runtime.client import Answers, answered
from amcast.swarm.cluster.judge import Journal, check_acknowledged, check_calls, check_refused
from amcast.swarm.cluster.load.book import Book
from amcast.swarm.cluster.load.echo import Echo, EchoUser
from amcast.swarm.cluster.load.resp import RespUser
from amcast.swarm.cluster.load.store import DirectUser, read_everything, use_store
from amcast.swarm.cluster.load.wishes import Keys, Wish, append, get, wish
from tests.apps.in_process import InProcess, Lagging

GROUPS = 3
KEYS = Keys("t")


class Cluster(Lagging):
    """A store in this process, for those who multicast by themselves."""

    def __init__(self, seed: int) -> None:
        super().__init__(GROUPS, seed)
        self.config = SimpleNamespace(topology=Topology((1,) * GROUPS, 1))
        self.chance = Random(seed)
        self.number = 0
        self.lose = 0.0  # how often nobody hears the answer, or it was not even sent
        self.refuse = 0.0
        self.spoil: Callable[[dict[int, bytes]], dict[int, bytes]] = lambda answers: answers

    def submit(  # type: ignore[override]
        self, dest: tuple[int, ...], payload: bytes, deadline: float | None = None
    ) -> "asyncio.Future[Answers[int]]":
        return asyncio.ensure_future(self._submit(dest, payload))

    async def _submit(self, dest: tuple[int, ...], payload: bytes) -> Answers[int]:
        self.number += 1
        number = self.number
        if self.chance.random() < self.refuse:
            raise MulticastFailed("refused")
        if self.chance.random() < self.lose / 2:
            raise OutcomeUnknown("not heard", f"c:{number}")
        inner = super().submit(dest, payload)
        if self.chance.random() < self.lose:
            raise OutcomeUnknown("not heard", f"c:{number}")
        return answered("c", number, self.spoil(await inner))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def now() -> float:
    return asyncio.get_running_loop().time()


async def direct(cluster: Any, users: int = 4, wishes: int = 60, seed: int = 1, finish: bool = True) -> Book:
    book = Book(now)
    made = [DirectUser(f"u{n}", cluster, book, 5.0) for n in range(users)]
    async with asyncio.TaskGroup() as group:
        for n, user in enumerate(made):
            random = Random(f"{seed} {n}")
            group.create_task(use_store(user.execute, book, random, wishes=wishes, think=0.0003, keys=KEYS))
    if finish:
        await read_everything(made[0].execute, KEYS)
    return book


def test_direct_users_of_a_right_store() -> None:
    async def main() -> None:
        cluster = Cluster(1)
        cluster.lose, cluster.refuse = 0.05, 0.05
        book = await direct(cluster)
        outcomes = [call.outcome for call in book.calls]
        assert min(outcomes.count(outcome) for outcome in Outcome) > 3
        assert check_calls(book.calls, by_group=True).judged > 200
        assert not book.open and book.acknowledged and book.refused_payloads

    run(main)


def test_a_store_that_forgets() -> None:
    """A group goes back to an earlier state, as after a restart that loses what was acknowledged."""

    async def main() -> None:
        cluster = Cluster(2)
        book = await direct(cluster, wishes=30, finish=False)
        cluster.machines[1] = KV(1, GROUPS)
        await read_everything(DirectUser("u9", cluster, book, 5.0).execute, KEYS)
        with pytest.raises(Alarm):
            check_calls(book.calls, by_group=True)

    run(main)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda answers: {**answers, min(answers): b""}, "empty answer"),
        (lambda answers: dict(list(answers.items())[1:]), "empty answer"),
        (lambda answers: {**answers, min(answers): b"\xc1"}, "malformed answer"),
        (lambda answers: dict.fromkeys(answers, b"\x91\x92\x00\x91\xc4\x01x"), "malformed answer"),
    ],
)
def test_answers_that_are_none(spoil: Callable[[dict[int, bytes]], dict[int, bytes]], kind: str) -> None:
    async def main() -> None:
        cluster = Cluster(3)
        cluster.spoil = spoil
        book = Book(now)
        user = DirectUser("u0", cluster, book, 5.0)  # type: ignore[arg-type]
        with pytest.raises(Alarm) as raised:
            await user.execute(Wish(((b"INCR", b"c:0"),), (Increment("c:0"),)))
        assert raised.value.kind == kind
        assert book.alarms == [raised.value]

    run(main)


def test_late_answers() -> None:
    time = [0.0]
    book = Book(lambda: time[0], slack=1.0)
    attempt = book.begin("u0", (Get("r:0"),), deadline=5.0)
    time[0] = 6.0
    book.check_open()
    time[0] = 6.1
    with pytest.raises(Alarm, match=r"late answer: u0: get r:0 → \?: 6.1 s, due after 6.0"):
        book.check_open()
    with pytest.raises(Alarm, match="late answer"):
        book.end(attempt, Outcome.UNKNOWN)
    other = book.begin("u0", (Get("r:0"),), deadline=5.0)
    book.abandon()
    assert [call.outcome for call in book.calls] == [Outcome.UNKNOWN] and other not in book.open


async def through_gateway(client: InProcess, two_rounds: bool, wishes: int = 50) -> Book:
    gateway = Gateway(client, two_rounds=two_rounds)
    port = await gateway.listen("127.0.0.1", 0)
    book = Book(now)
    users = [
        RespUser(f"u{n}", [("127.0.0.1", port)], book, Random(n), groups=GROUPS, patience=20.0, due=15.0)
        for n in range(4)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for n, user in enumerate(users):
                group.create_task(
                    use_store(user.execute, book, Random(f"g{n}"), wishes=wishes, think=0.0003, keys=KEYS)
                )
        await read_everything(users[0].execute, KEYS)
    finally:
        for user in users:
            user.hang_up()
        await gateway.close()
    return book


def test_redis_clients_of_a_right_gateway() -> None:
    async def main() -> None:
        client = Lagging(GROUPS, 4)
        book = await through_gateway(client, two_rounds=True)
        assert check_calls(book.calls).judged > 200
        assert check_calls(book.calls, by_group=True).judged > 200
        assert any(len(call.steps) > 1 for call in book.calls)
        conditional = [call for call in book.calls if call.client != "u0" and len(call.groups) > 1 and call.heard]
        assert any(isinstance(call.steps[0], Get) and isinstance(call.steps[-1], Append) for call in conditional)

    run(main)


def test_redis_clients_hear_refusals_and_silence() -> None:
    async def main() -> None:
        client = InProcess(GROUPS)
        chance = Random(5)
        problems = [MulticastFailed("refused"), OutcomeUnknown("silence")]
        client.fails = lambda dest: chance.choice(problems) if chance.random() < 0.1 else None
        book = await through_gateway(client, two_rounds=False)
        outcomes = [call.outcome for call in book.calls]
        assert min(outcomes.count(outcome) for outcome in Outcome) > 3
        check_calls(book.calls)

    run(main)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(b"-ERR wrong\r\n", "error answer"), (b"+OK\r\n", "malformed answer"), (b"$1\r\nx\r\n", "malformed answer")],
)
def test_replies_that_are_none(reply: bytes, kind: str) -> None:
    async def main() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(reply)

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        book = Book(now)
        user = RespUser("u0", [("127.0.0.1", port)], book, Random(1), groups=GROUPS, patience=20.0, due=15.0)
        with pytest.raises(Alarm) as raised:
            await user.execute(Wish(((b"INCR", b"c:0"),), (Increment("c:0"),)))
        assert raised.value.kind == kind
        user.hang_up()
        server.close()

    run(main)


class Watching(Random):
    """Chance that always decides to watch."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ((b"+OK\r\n$-1\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:8\r\n+PONG\r\n"), Outcome.DONE),
        ((b"+OK\r\n$-1\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n"), Outcome.REFUSED),
        ((b"+OK\r\n$-1\r\n", b"+OK\r\n+QUEUED\r\n+QUEUED\r\n-TRYAGAIN outcome unknown: x\r\n"), Outcome.UNKNOWN),
        ((b"+OK\r\n$-1\r\n", b""), Outcome.UNKNOWN),
        ((b"-TRYAGAIN outcome unknown: x\r\n$-1\r\n", b""), Outcome.REFUSED),
        ((b"", b""), Outcome.REFUSED),
    ],
)
def test_what_is_written_if_nothing_changed(replies: tuple[bytes, bytes], outcome: Outcome) -> None:
    """Until EXEC was sent, nothing was written whatever else is not known; b"" ends the connection."""

    async def main() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for last, reply in zip((b"GET\r\n$3\r\nl:0\r\n", b"EXEC\r\n"), replies, strict=True):
                await reader.readuntil(last)
                if not reply:
                    break
                writer.write(reply)
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        book = Book(now)
        port = server.sockets[0].getsockname()[1]
        user = RespUser("u0", [("127.0.0.1", port)], book, Watching(1), groups=1, patience=20.0, due=15.0)
        assert await user.execute(wish(get("l:0"), append("l:1", "00000001"))) is outcome
        if outcome is Outcome.DONE:
            assert book.calls[-1].steps == (Get("l:0", None), Append("l:1", "00000001", 1))
        user.hang_up()
        server.close()

    run(main)


def test_a_connection_that_ends_is_dialled_again() -> None:
    async def main() -> None:
        seen = []

        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"GET\r\n$3\r\nr:0\r\n")
            seen.append(writer)
            if len(seen) > 1:
                writer.write(b"$8\r\n00000007\r\n")
            else:
                writer.transport.abort()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        book = Book(now)
        port = server.sockets[0].getsockname()[1]
        user = RespUser("u0", [("127.0.0.1", port)], book, Random(1), groups=GROUPS, patience=20.0, due=15.0)
        assert await user.execute(wish(get("r:0"))) is Outcome.UNKNOWN
        assert await user.execute(wish(get("r:0"))) is Outcome.DONE
        assert book.calls[-1].steps == (Get("r:0", "00000007"),)
        user.hang_up()
        server.close()

    run(main)


class EchoCluster(Cluster):
    """Groups that echo, with the journal of what they applied."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.journal = Journal()
        self.echoes = [self.journal.checked("p", f"g{g}", Echo)(g, GROUPS) for g in range(GROUPS)]
        self.positions = [0] * GROUPS
        self.rejects = False

    async def _submit(self, dest: tuple[int, ...], payload: bytes) -> Answers[int]:
        self.number += 1
        number = self.number
        if self.chance.random() < self.refuse:
            raise MulticastFailed("refused")
        await asyncio.sleep(0)
        found: dict[int, bytes] = {}
        reasons: dict[str, str] = {}
        for g in dest:
            names = tuple([f"g{other}" for other in dest])
            row = Delivery(f"g{g}", self.positions[g], (number, "g0"), f"c:{number}", "c", names, payload)
            self.positions[g] += 1
            try:
                found[g] = self.echoes[g].apply(row)
            except ValueError as error:
                reasons[f"g{g}"] = str(error)
        if self.chance.random() < self.lose:
            raise OutcomeUnknown("not heard", f"c:{number}")
        if reasons or self.rejects:
            raise Rejected("rejected", f"c:{number}", reasons, {})
        return answered("c", number, self.spoil(found))


def test_users_of_an_echo_judge_the_logs() -> None:
    async def main() -> None:
        cluster = EchoCluster(6)
        cluster.lose = cluster.refuse = 0.1
        book = Book(now)
        users = [EchoUser(f"u{n}", cluster, book, Random(n), 5.0) for n in range(3)]  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(user.use(60, 0.0003))
        names = [f"g{g}" for g in range(GROUPS)]
        book.read_logs(cluster.journal, names)
        assert check_calls(book.calls, by_group=True).judged > 100
        check_acknowledged(cluster.journal, book.acknowledged)
        check_refused(cluster.journal, book.refused_payloads)
        log = cluster.journal.log("g0")
        never = Call("u", 1e9, 1e9, (Append("g0", "c:never", 1 + len(log)),))
        with pytest.raises(Alarm, match="lost append"):
            check_calls([*book.calls, never, Call("u", 2e9, 2e9, (Get("g0", log),))])
        cluster.lose = cluster.refuse = 0.0
        cluster.spoil = lambda answers: dict.fromkeys(answers, b"")
        with pytest.raises(Alarm, match="empty answer"):
            await users[0].multicast((0,), b"once more")
        assert await users[0].multicast((0,), b"!") is Outcome.DONE
        cluster.rejects = True
        with pytest.raises(Alarm, match=r"malformed answer: u0: c:\d+: rejected"):
            await users[0].multicast((0,), b"nothing to reject")

    run(main)
