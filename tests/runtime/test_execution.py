"""Whatever an application raises: one outcome per message, equal at all replicas, and a state as if it had not been."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nodes import cluster, running, until
from tests.pace import allow

from amcast.cli import run
from amcast.core.application import AllOrNothing, Delivery, Speculator
from amcast.errors import ApplicationFailed, OutcomeUnknown, Rejected
from amcast.local.processes import Processes
from amcast.runtime import execution
from amcast.runtime.client import Client
from amcast.runtime.config import load_config
from amcast.runtime.execution import Executor, answer_or_reason, certain, outcome_of, rejection
from amcast.service import connect, connect_sync


def delivered(position: int, payload: bytes) -> Delivery:
    return Delivery("g0", position, (position, "g0"), f"c1:{position}", "c1", ("g0",), payload)


class Careless:
    """Adds up the numbers that it is sent, one by one; a word makes it raise when it gets there."""

    def __init__(self, group: int = 0, groups: int = 1) -> None:
        self.group = group
        self.sums: list[int] = [0]
        self.applied = 0  # in this life, again or not

    def apply(self, delivery: Delivery) -> bytes:
        self.applied += 1
        for word in delivery.payload.decode().split():
            if word == "deep":
                json.loads("[" * 100_000)
            if word == "none":
                return None  # type: ignore[return-value]
            if word.startswith("g"):
                if word == f"g{self.group}":
                    raise Rejected("not in this group")
                continue
            if word == "itself":
                raise ValueError(f"{self!r} is number {id(self)}")
            self.sums.append(self.sums[-1] + int(word))
        return b"%d" % self.sums[-1]

    def snapshot(self) -> bytes:
        return json.dumps(self.sums).encode()

    def restore(self, state: bytes) -> None:
        self.sums = json.loads(state)


WORDS = st.lists(st.sampled_from(["1", "20", "boom", "none", "g0", "deep"]), max_size=3)


@settings(max_examples=150, deadline=None)
@example([(["1"], "restart"), (["1", "boom"], "")], 700)
@given(
    st.lists(st.tuples(WORDS, st.sampled_from(["", "", "snapshot", "restart"])), max_size=12),
    st.sampled_from([0, 700, 10**6]),
)
def test_what_raises_leaves_nothing_behind(steps: list[tuple[list[str], str]], kept: int) -> None:
    """Against a model that never began what raises; with the last known state old, recent, or just taken."""
    execution_kept, execution.KEPT_AT_LEAST = execution.KEPT_AT_LEAST, kept  # type: ignore[misc]
    try:
        executor = Executor(Careless(), "careless")
        sums = [0]
        for position, (words, then) in enumerate(steps):
            outcome = executor.apply(delivered(position, " ".join(words).encode()))
            fine = all(word.isdigit() for word in words)
            if fine:
                for word in words:
                    sums.append(sums[-1] + int(word))
            assert isinstance(answer_or_reason(outcome), bytes) == fine
            assert executor.app.snapshot() == json.dumps(sums).encode()
            if then == "snapshot":
                executor.snapshot()
            if then == "restart":
                state, executor = executor.snapshot(), Executor(Careless(), "careless")
                executor.restore(state)
    finally:
        execution.KEPT_AT_LEAST = execution_kept  # type: ignore[misc]


def test_no_message_is_executed_again_twice() -> None:
    """So a crowd of messages that raise costs a look at the state each, and not all that was executed before."""
    app = Careless()
    executor = Executor(app, "careless")
    for position in range(100):
        executor.apply(delivered(position, b"1"))
    assert app.applied == 100
    for position in range(100, 150):
        executor.apply(delivered(position, b"1 boom"))
    assert app.applied == 100 + 50 + 100
    assert app.sums == [*range(101)]


class Careful(Careless, AllOrNothing):
    def snapshot(self) -> bytes:
        raise AssertionError("nobody needs it")


def test_who_promises_all_or_nothing_is_left_alone() -> None:
    app = Careful()
    executor = Executor(app, "careful")
    assert answer_or_reason(executor.apply(delivered(0, b"1"))) == b"1"
    assert answer_or_reason(executor.apply(delivered(1, b"boom"))) == (
        "ValueError: invalid literal for int() with base 10: 'boom'"
    )
    assert app.applied == 2 and app.sums == [0, 1]


class Deep(Careless):
    """Calls itself as often as it is told."""

    def apply(self, delivery: Delivery) -> bytes:
        self.sums.append(1)

        def down(levels: int) -> int:
            return 1 + down(levels - 1) if levels else 0

        return b"%d" % down(int(delivery.payload))


def below(levels: int, call: Callable[[], bytes]) -> bytes:
    return below(levels - 1, call) if levels else call()


def test_how_deep_the_caller_is_changes_nothing() -> None:
    """A replica that recovers has another stack than one that runs: both must come to the same."""
    limit = sys.getrecursionlimit()
    for levels in (limit // 3, limit - 100, limit + 100, 10 * limit):
        outcomes = []
        for caller in (0, limit // 2):
            found: list[bytes] = []
            executor = Executor(Deep(), "deep")

            def call(executor: Executor = executor, levels: int = levels) -> bytes:
                return executor.apply(delivered(0, b"%d" % levels))

            thread = threading.Thread(target=lambda: found.append(below(caller, call)))  # noqa: B023
            thread.start()
            thread.join()
            outcomes.append((found[0], executor.snapshot()))
        assert outcomes[0] == outcomes[1], levels
        assert isinstance(answer_or_reason(outcomes[0][0]), bytes) == (levels < limit), levels
    executor.apply(delivered(1, b"boom"))  # what needed a deep stack before needs it again


def test_what_was_deep_is_executed_again_as_it_was() -> None:
    limit = sys.getrecursionlimit()
    executor = Executor(Deep(), "deep")
    found: list[bytes] = []

    def steps() -> bytes:
        executor.apply(delivered(0, b"%d" % (limit - 200)))
        return executor.apply(delivered(1, b"boom"))

    thread = threading.Thread(target=lambda: found.append(below(limit // 2, steps)))
    thread.start()
    thread.join()
    assert "invalid literal" in str(answer_or_reason(found[0])) and executor.snapshot() == b"[0, 1]"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        OSError(28, "No space left"),
        SystemExit(3),
        ModuleNotFoundError("no module"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_of_the_message_stops_the_replica(error: BaseException) -> None:
    class Failing(Careless):
        def apply(self, delivery: Delivery) -> bytes:
            raise error

    with pytest.raises(ApplicationFailed) as caught:
        Executor(Failing(), "mine").apply(delivered(7, b""))
    said = str(caught.value)
    assert said.startswith(f"application mine failed at position 7 (c1:7): {type(error).__name__}:")
    assert said.count("\n") == 0


def test_an_application_that_is_not_deterministic_is_noticed_when_it_is_undone() -> None:
    class Moody(Careless):
        def apply(self, delivery: Delivery) -> bytes:
            if self.applied == 3:
                raise ValueError("not again")
            return super().apply(delivered(delivery.position, delivery.payload))

    executor = Executor(Moody(), "moody")
    for position in range(2):
        executor.apply(delivered(position, b"1"))
    with pytest.raises(ApplicationFailed, match="at position 0, which it had executed before: it is not determin"):
        executor.apply(delivered(2, b"boom"))


def test_a_state_that_cannot_be_taken_or_restored_is_said_in_one_line() -> None:
    class Broken(Careful):
        def snapshot(self) -> bytes:
            return "text"  # type: ignore[return-value]

        def restore(self, state: bytes) -> None:
            raise KeyError("sums")

    executor = Executor(Broken(), "mine")
    with pytest.raises(
        ApplicationFailed, match=r"mine failed while it took a snapshot: TypeError: snapshot returned str"
    ):
        executor.snapshot()
    with pytest.raises(ApplicationFailed, match="restored a snapshot of 2 bytes: KeyError: 'sums'"):
        executor.restore(b"{}")


# Outcomes


@given(st.binary(max_size=5) | st.binary(max_size=5).map(lambda tail: b"\xc1" + tail))
@example(b"\xc1\x01KeyError\n1")
@example(b"\xc1\x00")
def test_every_answer_comes_back_as_it_was(answer: bytes) -> None:
    assert answer_or_reason(outcome_of(answer)) == answer


def test_a_reason_is_one_short_line_and_what_is_certain_of_it_is_its_kind() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    here, there = object(), object()
    found = rejection(ValueError(f"{here!r}\n" + "x" * 1000))
    reason = answer_or_reason(found)
    assert isinstance(reason, str) and reason.startswith("ValueError: <object object at 0x…> xxx") and len(reason) < 600
    assert "\n" not in reason
    assert certain(found) == certain(rejection(ValueError(f"{there!r}"))) != certain(rejection(KeyError("a")))
    assert answer_or_reason(rejection(Unspeakable())) == "Unspeakable"
    assert answer_or_reason(rejection(Rejected("too late"))) == "too late"
    assert answer_or_reason(rejection(ValueError("\ud800"))) == "ValueError: ?"
    assert certain(b"\xc1\x00a\nb") == b"\xc1\x00a\nb" and certain(b"a\nb") == b"a\nb"


def test_guesses_that_raise() -> None:
    """An application that speculates ends as one that waits, whatever raises and whatever was guessed wrong."""
    plain, ahead = Executor(Careless(), "plain"), Speculator(Executor(Careless(), "ahead"))
    messages = [delivered(position, payload) for position, payload in enumerate((b"1", b"2 boom", b"3", b"none", b"4"))]
    for guessed in (messages[1], messages[0], messages[3], messages[2]):
        ahead.optimistic(guessed)
    assert [ahead.apply(one) for one in messages] == [plain.apply(one) for one in messages]
    assert ahead.snapshot() == plain.snapshot() == b"[0, 1, 4, 8]" and ahead.rollbacks


# In a cluster


def state_of(node: object) -> bytes:
    return node.app.snapshot()  # type: ignore[attr-defined,no-any-return]


def test_a_message_that_raises_is_answered_and_the_cluster_goes_on(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    with running(config, app=Careless) as nodes:
        with connect_sync(config.path, deadline=allow(20)) as client:
            assert client.multicast(["g0", "g1"], b"1") == {"g0": b"1", "g1": b"1"}
            with pytest.raises(
                Rejected, match=r"g0 rejected it: ValueError: invalid literal .* 'boom'; g1 rejected"
            ) as all_:
                client.multicast(["g0", "g1"], b"5 boom")
            with pytest.raises(Rejected) as one:
                client.multicast(["g0", "g1"], b"5 g1")
            with pytest.raises(Rejected, match="RecursionError"):
                client.multicast(["g0"], b"7 deep")
            with pytest.raises(Rejected, match="apply returned NoneType, expected bytes"):
                client.multicast(["g0"], b"7 none")
            with pytest.raises(Rejected, match="Careless object at 0x…>"):
                client.multicast(["g0"], b"itself")
            assert sorted(all_.value.reasons) == ["g0", "g1"] and all_.value.answers == {} and all_.value.message
            assert (one.value.reasons, one.value.answers) == ({"g1": "not in this group"}, {"g0": b"6"})
            assert client.multicast(["g1"], b"2") == {"g1": b"3"}
        for g, end, state in (("g0", 6, b"[0, 1, 6]"), ("g1", 4, b"[0, 1, 3]")):
            ours = [node for name, node in nodes.items() if name.startswith(g)]
            assert until(lambda ours=ours, end=end: all(node.history.end == end for node in ours))
            assert {state_of(node) for node in ours} == {state}
            assert len({node.chain.end for node in ours}) == 1, "or they would think that they differ"
            assert ours[0].metrics.rejected == {"g0": 4, "g1": 2}[g]
    with running(config, app=Careless) as nodes:
        assert {state_of(nodes[f"g0/{rank}"]) for rank in range(3)} == {b"[0, 1, 6]"}
        with connect_sync(config.path, deadline=allow(20)) as client:
            assert client.multicast(["g0"], b"1") == {"g0": b"7"}


def test_messages_that_travel_as_one_are_rejected_one_by_one(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)

    async def main(client: Client) -> tuple[list[object], object, list[object]]:
        async with client:
            few = [client.submit((0,), payload) for payload in (b"1", b"boom", b"2", b"none")]
            found = await asyncio.gather(*few, return_exceptions=True)
            try:
                whole: object = await client.submit_batch((0,), [b"3", b"5 boom", b"4"])
            except Rejected as error:
                whole = error
            return found, whole, list(await client.submit_batch((0,), [b"1", b"1"]))

    with running(config, app=Careless) as nodes:
        found, whole, last = asyncio.run(main(connect(config.path, deadline=allow(20))))
        assert [found[0], found[2]] == [{0: b"1"}, {0: b"3"}]
        assert isinstance(found[1], Rejected) and isinstance(found[3], Rejected)
        assert isinstance(whole, Rejected) and "boom" in str(whole)
        assert last == [{0: b"11"}, {0: b"12"}]
        assert nodes["g0/0"].history.end == 9 and state_of(nodes["g0/0"]) == b"[0, 1, 3, 6, 10, 11, 12]"


class OutOfRoom(Careless):
    def apply(self, delivery: Delivery) -> bytes:
        if delivery.payload == b"much":
            raise MemoryError("no room\nfor it")
        return super().apply(delivery)


def test_a_replica_that_cannot_go_on_says_where_it_stopped(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    where = r"application log failed at position 1 \(c[0-9a-f]+:1\): MemoryError: no room for it"
    with (
        pytest.raises(ApplicationFailed, match=where), running(config, app=OutOfRoom),
        connect_sync(config.path, deadline=allow(20)) as client,
    ):  # fmt: skip
        client.multicast(["g0"], b"1")
        with pytest.raises(OutcomeUnknown):
            client.multicast(["g0"], b"much", deadline=0.5)
    with running(config, app=Careless), connect_sync(config.path, deadline=allow(20)) as client:
        assert client.multicast(["g0"], b"1") == {"g0": b"2"}


ROOMY = """
class Roomy:
    def __init__(self, group, groups):
        self.count = 0

    def apply(self, delivery):
        if delivery.payload == b"much":
            raise MemoryError("no room")
        self.count += 1
        return b"%d" % self.count

    def snapshot(self):
        return b"%d" % self.count

    def restore(self, state):
        self.count = int(state)
"""


def test_up_says_which_node_stopped_over_what_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "roomy.py").write_text(ROOMY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])]))
    options = ["--groups", "1", "--replicas", "1", "--insecure-dev", "--app", "roomy:Roomy"]
    assert run(["cluster", "init", "c", *options]) == 0
    processes = Processes(load_config("c"))
    (member,) = processes.config.members
    try:
        assert run(["cluster", "up", "c"]) == 0, (
            "although nodes run in another folder than the one that PYTHONPATH means"
        )
        with connect_sync("c", deadline=allow(20)) as client:
            client.multicast(["g0"], b"1")
            with pytest.raises(OutcomeUnknown):
                client.multicast(["g0"], b"much", deadline=1.0)
        assert not processes.wait_until_gone([member], allow(20))
        stored = [path for path in member.data.glob("log-*") if b"much" in path.read_bytes()]
        assert stored, "it is what a start recovers"
        capfd.readouterr()
        assert run(["cluster", "up", "c"]) == 1
        last = capfd.readouterr().err.splitlines()[-1]
        assert last.startswith(
            "amcast: 1 node of 1 not ready; g0/0: stopped: amcast: application roomy:Roomy failed at "
        )
        assert "position 1 " in last and "MemoryError: no room" in last
    finally:
        processes.stop([member])
