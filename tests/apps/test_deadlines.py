"""Guards the one deadline of a command, what is said of its outcome, and what the gateway makes of busy nodes.

Nothing that reaches a user may be late, and none of it may call unknown what was not sent, or not executed what was.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from amcast.apps.kv.gateway import Gateway
from amcast.apps.kv.wire import MALFORMED, Decide, Prepare, StoreRequest, decode_request, encode
from amcast.errors import Busy, MulticastFailed, OutcomeUnknown, Rejected
from amcast.runtime.machine import Limits, Machine
from tests.apps.in_process import LOOK, InProcess
from tests.apps.test_gateway import A, B, leave_a_lock, talk
from tests.pace import allow

SHORT = allow(0.3)


class Moody(InProcess):
    """Answers what `answers` lets it; of the rest nothing is heard again. Two groups of three are used."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(3, Machine(limits=limits or Limits()))
        self.deadline = SHORT
        self.delivers = True
        self.answers: Callable[[StoreRequest], bool] = lambda request: False
        self.seen: list[StoreRequest] = []
        self.deadlines: list[float | None] = []
        self.silent: list[asyncio.Future[dict[int, bytes]]] = []

    def submit(
        self, dest: tuple[int, ...], payload: bytes, deadline: float | None = None
    ) -> "asyncio.Future[dict[int, bytes]]":
        request = decode_request(payload)
        if payload == LOOK:
            return super().submit(dest, payload, deadline)
        self.seen.append(request)
        self.deadlines.append(deadline)
        if self.answers(request):
            return super().submit(dest, payload, deadline)
        if self.delivers:
            super().submit(dest, payload, deadline)
        self.silent.append(asyncio.get_running_loop().create_future())
        return self.silent[-1]


def has(kind: type) -> Callable[[StoreRequest], bool]:
    return lambda request: any(isinstance(unit, kind) for unit in request.units)


def served(cluster: InProcess, lines: str, two_rounds: bool = True) -> tuple[list[str], float]:
    """What is answered to these lines, and how long that took."""

    async def go() -> tuple[list[str], float]:
        found = Gateway(cluster, two_rounds=two_rounds)
        port = await found.listen("127.0.0.1", 0)
        began = time.monotonic()
        said = await talk(port, lines.encode())
        took = time.monotonic() - began
        for connection in list(found.connections):
            connection._transport.abort()
        await found.close()
        return said.decode().splitlines(), took

    return asyncio.run(go())


UNKNOWN = "-TRYAGAIN outcome unknown: no answer from all its groups by its deadline"
NOT_EXECUTED = "-TRYAGAIN not executed: no answer from all its groups by its deadline"


@pytest.mark.parametrize(
    ("lines", "two_rounds", "answer"),
    [
        ("GET a", True, UNKNOWN),
        (f"MGET {A} {B}", False, UNKNOWN),
        (f"MGET {A} {B}", True, NOT_EXECUTED),  # nothing was to be executed before it was prepared
        (f"MSETNX {A} 1 {B} 1", False, NOT_EXECUTED),
        ("SCAN 0", True, UNKNOWN),
        ("WATCH a", True, UNKNOWN),
    ],
)
def test_a_command_that_nobody_answers(lines: str, two_rounds: bool, answer: str) -> None:
    said, took = served(Moody(), lines + "\n", two_rounds)
    assert said == [answer]
    assert SHORT <= took < SHORT + allow(0.5)


def test_a_transaction_in_two_rounds_has_one_deadline() -> None:
    """The second round does not begin a deadline of its own, and its outcome is unknown, for it was asked for."""
    cluster = Moody()
    cluster.answers = has(Prepare)
    said, took = served(cluster, f"MSET {A} 1 {B} 2\n")
    assert said == [UNKNOWN] and took < SHORT + allow(0.5)
    assert [deadline is not None and 0 < deadline <= SHORT for deadline in cluster.deadlines] == [True, True]
    decides = [unit for request in cluster.seen for unit in request.units if isinstance(unit, Decide)]
    assert [unit.commit for unit in decides] == [True], "an abort behind a commit that may be under way"


def test_what_is_prepared_and_not_decided_is_released() -> None:
    cluster = Moody()
    cluster.answers = has(Decide)
    said, _ = served(cluster, f"MSET {A} 1 {B} 2\n")
    assert said == [NOT_EXECUTED]
    assert not any(machine._locks for machine in cluster.machines)
    assert not any(machine.store.data for machine in cluster.machines)


def test_what_waits_for_its_turn_has_the_same_deadline() -> None:
    """It waits behind a multicast that nobody answers, and is not sent when nobody waits for it any more."""

    async def go() -> None:
        cluster = Moody(Limits(under_way=1))
        found = Gateway(cluster)
        port = await found.listen("127.0.0.1", 0)
        first = asyncio.ensure_future(talk(port, b"SET a 1\n"))
        while not cluster.seen:
            await asyncio.sleep(0.001)
        began = time.monotonic()
        second = await talk(port, b"SET a 2\n")
        took = time.monotonic() - began
        assert second == b"-TRYAGAIN not executed: its turn did not come by its deadline\r\n"
        assert took < SHORT + allow(0.5)
        assert (await first).decode().strip() == UNKNOWN
        cluster.silent[0].set_exception(OutcomeUnknown("much later"))
        await asyncio.sleep(0.01)
        assert len(cluster.seen) == 1, "what was given up is sent all the same"
        await found.close()

    asyncio.run(go())


def test_a_lock_that_nobody_releases() -> None:
    class Locked(InProcess):
        deadline = SHORT

        def _execute(self, dest: tuple[int, ...], payload: bytes, future: "asyncio.Future[dict[int, bytes]]") -> None:
            units = decode_request(payload).units
            if not any(isinstance(unit, Decide) for unit in units):
                super()._execute(dest, payload, future)

    cluster = Locked(3)
    asyncio.run(leave_a_lock(cluster))
    said, took = served(cluster, f"GET {A}\n")
    assert said[0].startswith("-TRYAGAIN outcome unknown: ") and "lock" in said[0]
    assert took < SHORT + allow(0.5)


# Answers that are none


def spoilt(spoil: Callable[[bytes], bytes | None], groups: tuple[int, ...] = (0, 1, 2)) -> InProcess:
    class Spoilt(InProcess):
        def _execute(self, dest: tuple[int, ...], payload: bytes, future: "asyncio.Future[Any]") -> None:
            inner: asyncio.Future[dict[int, bytes]] = asyncio.get_running_loop().create_future()
            super()._execute(dest, payload, inner)
            changed = {g: spoil(part) if g in groups else part for g, part in inner.result().items()}
            future.set_result({g: part for g, part in changed.items() if part is not None})

    return Spoilt(3)


UNREADABLE = "has sent an answer that cannot be read; run the same amcast everywhere"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda part: b"", "outcome unknown: gN has sent no answer"),
        (lambda part: None, "outcome unknown: gN has sent no answer"),
        (lambda part: part[:-1], f"outcome unknown: gN {UNREADABLE}"),
        (lambda part: part + b"x", f"outcome unknown: gN {UNREADABLE}"),
        (lambda part: encode([]), f"outcome unknown: gN {UNREADABLE}"),
        (lambda part: MALFORMED, "not executed: gN cannot read the request; run the same amcast everywhere"),
        (lambda part: encode([[0, None]]), "outcome unknown: gN answered something else than was asked; run the same"),
        (lambda part: encode([[0, []]]), "outcome unknown: gN answered something else than was asked; run the same"),
        (lambda part: encode([[0, 7]]), "outcome unknown: gN answered something else than was asked; run the same"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_says_so(spoil: Callable[[bytes], bytes | None], said: str) -> None:
    for line in ("GET a\n", f"MGET {A} {B}\n", f"MSET {A} 1 {B} 2\n"):
        (answer,), _ = served(spoilt(spoil), line, two_rounds=False)
        for group in range(3):
            answer = answer.replace(f"g{group} ", "gN ")
        assert answer.startswith(f"-TRYAGAIN {said}"), answer
        (answer,), _ = served(spoilt(spoil), line)
        assert answer.startswith("-TRYAGAIN ") and "truncated" not in answer


def test_one_group_that_cannot_read_is_no_proof_that_nothing_is_executed() -> None:
    (answer,), _ = served(spoilt(lambda part: MALFORMED, (0,)), "MGET k0 k1 k2 k3 k4 k5\n", two_rounds=False)
    assert answer.startswith("-TRYAGAIN outcome unknown: g0 ")


@pytest.mark.parametrize(("answers", "what"), [({}, "not executed"), ({"g1": b"x"}, "outcome unknown")])
def test_what_the_application_rejects(answers: dict[str, bytes], what: str) -> None:
    cluster = InProcess(3)
    cluster.fails = lambda dest: Rejected("g0 rejected it: ValueError", "c:1", {"g0": "ValueError"}, answers)
    assert served(cluster, "SET a 1\n")[0] == [f"-TRYAGAIN {what}: g0 rejected it: ValueError"]


# Busy nodes


def busy(times: float) -> InProcess:
    cluster = InProcess(3)
    cluster.deadline = SHORT
    refused: list[int] = []

    def fails(dest: tuple[int, ...]) -> Exception | None:
        if len(refused) < times:
            refused.append(1)
            return Busy("g0 has too much to do")
        return None

    cluster.fails = fails
    return cluster


def test_busy_nodes_are_asked_again() -> None:
    said, _ = served(busy(3), f"SET a 1\nGET a\nMSET {A} 1 {B} 2\n")
    assert said == ["+OK", "$1", "1", "+OK"]


def test_nodes_that_stay_busy() -> None:
    cluster = busy(float("inf"))
    said, took = served(cluster, f"SET a 1\nMSET {A} 1 {B} 2\nMULTI\nSET a 1\nEXEC\n")
    line = "-BUSY not executed: g0 has too much to do"
    assert said == [line, line, "+OK", "+QUEUED", line]
    assert took < 3 * (SHORT + allow(0.5))
    assert 3 * 4 <= cluster.position <= 3 * 20, "it is asked too rarely, or too often"


def test_a_refusal_is_not_tried_again() -> None:
    cluster = InProcess(3)
    cluster.fails = lambda dest: MulticastFailed("may not")
    assert served(cluster, "SET a 1\n")[0] == ["-TRYAGAIN not executed: may not"] and cluster.position == 1
