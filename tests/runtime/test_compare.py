"""Guards the claim of `amcast cluster verify`: it says of each group whether its replicas applied the same and have the
same state, at one position, also while they go on; and it never says so of what it has not seen."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.pace import allow
from tests.runtime.nodes import SECONDS, cluster, running, until
from tests.runtime.test_comparison import NEVER, Counting, make_odd, multicast

from amcast.cli import run
from amcast.errors import UsageError
from amcast.local import compare as comparing
from amcast.local.compare import Comparison, Fingerprint, compare, compare_group, status_of_all
from amcast.local.processes import ask
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.execution import Executor
from amcast.runtime.fingerprints import hash_of
from amcast.runtime.node import Node
from amcast.service import connect_sync

WHITE_BOX = protocol("white_box")


class Secretive(Counting):
    """Its answers never differ, but its state may."""

    secret = b""

    def snapshot(self) -> bytes:
        return super().snapshot() + self.secret


def found(config: ClusterConfig) -> list[Comparison]:
    return compare(config, WHITE_BOX, allow(5.0))


def level(nodes: dict[str, Node], position: int) -> bool:
    return until(lambda: {node.history.end for node in nodes.values()} == {position})


def exit_code(config: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(["cluster", "verify", str(config.path), "--timeout", "1"])
    return code, capsys.readouterr().out


def test_equal_replicas_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path / "c", groups=2)
    with running(config, app=Secretive, machine=NEVER) as nodes:
        multicast(config, 4)
        assert until(lambda: [node.history.end for node in nodes.values()] == [4, 4, 4, 0, 0, 0])
        code, said = exit_code(config, capsys)
        chain = f"{nodes['g0/0'].chain.value:016x}"
        first, second = said.splitlines()
        assert code == 0
        assert first.startswith(f"g0: 3 of 3 replicas agree at position 4: chain {chain}, state ")
        assert second.startswith("g1: 3 of 3 replicas agree at position 0: chain 0000000000000000, state ")
        assert run(["cluster", "verify", str(config.path), "--json"]) == 0
        groups = json.loads(capsys.readouterr().out)["groups"]
        assert [one["status"] for one in groups] == ["ok", "ok"]


def test_nodes_of_another_cluster_are_not_compared(tmp_path: Path) -> None:
    """They may be at the same addresses, one stopped and one started; their verdict would be about the wrong data."""
    config = cluster(tmp_path / "c")
    with running(config, app=Secretive, machine=NEVER) as nodes:
        multicast(config, 4)
        assert level(nodes, 4) and found(config)[0].status == "ok"
        (one,) = found(replace(config, name="amcast-other"))
        assert one.status == "unknown" and f"g0/1: g0/1 of {config.name} is at {config.members[1].admin}" in one.line


def test_states_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path / "c")
    with running(config, app=Secretive, machine=NEVER) as nodes:
        multicast(config, 4)
        assert level(nodes, 4)
        executor = nodes["g0/2"].app
        assert isinstance(executor, Executor) and isinstance(executor.app, Secretive)
        executor.app.secret = b"!"
        code, said = exit_code(config, capsys)
        assert code == 1
        assert said.startswith("g0: replicas differ at position 4: g0/0 and g0/1 have state ")
        assert ", g0/2 has state " in said and said.count("\n") == 1


def test_chains_that_differ(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with running(config, app=Counting, machine=NEVER) as nodes:
        make_odd(nodes["g0/1"], 7)
        multicast(config, 12)
        assert level(nodes, 12)
        (one,) = found(config)
        assert one.status == "violated"
        assert one.line.startswith("g0: replicas differ at position 12: g0/0 and g0/2 have chain ")
        assert one.line.endswith("; they agree up to position 7")


def test_who_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path / "c")
    with running(config, ["g0/0", "g0/2"], app=Counting, machine=NEVER) as nodes:
        multicast(config, 3)
        assert level(nodes, 3)
        code, said = exit_code(config, capsys)
        assert code == 3
        assert said.startswith("g0: 2 of 3 replicas agree at position 3: ") and said.endswith("; g0/1: no answer\n")
    code, said = exit_code(config, capsys)
    assert (code, said.partition(";")[0]) == (3, "g0: nothing to compare")


def test_replicas_are_compared_while_they_go_on(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with running(config, app=Counting, machine=NEVER) as nodes:
        done = threading.Event()

        def write() -> None:
            with connect_sync(config.path, "dev", deadline=allow(SECONDS)) as client:
                while not done.is_set():
                    client.multicast_batches(((0,), [b"x"] * 5) for _ in range(10))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert until(lambda: nodes["g0/0"].history.end > 50)
            before = nodes["g0/0"].history.end
            (one,) = found(config)
            assert one.status == "ok", one.line
            assert int(one.line.partition("position ")[2].partition(":")[0]) >= before
        finally:
            done.set()
            writer.join()


def test_a_state_is_taken_when_its_position_is_reached(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c", replicas=1)
    with running(config, app=Counting, machine=NEVER) as nodes:
        admin = nodes["g0/0"].me
        early = comparing.fingerprint_of(config, admin, 3)
        assert isinstance(early, Fingerprint)
        assert (early.position, early.pending, early.state, early.chain) == (0, True, None, None)
        multicast(config, 5)
        late, never = comparing.fingerprint_of(config, admin, 3), comparing.fingerprint_of(config, admin, 2)
        assert isinstance(late, Fingerprint) and isinstance(never, Fingerprint)
        assert (late.position, late.link, late.pending, late.state) == (5, 3, False, hash_of([b"3"]))
        assert (never.link, never.passed, never.state) == (2, True, None) and never.chain is not None
        assert ask(admin.admin, "/fingerprint?at=-1") == ask(admin.admin, "/fingerprint?at=x")
        assert ask(admin.admin, "/fingerprint?at=x") == (
            400,
            b"expected /fingerprint, or /fingerprint?at=POSITION\n",
        )


def test_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path / "c", durable=False, protocol_name="fifo")
    assert run(["cluster", "verify", str(config.path)]) == 2
    assert "promises no total order" in capsys.readouterr().err
    assert run(["cluster", "verify", str(tmp_path / "none")]) == 2
    with pytest.raises(UsageError, match="may join late"):
        compare(cluster(tmp_path / "d", durable=False, protocol_name="allconcur"), protocol("allconcur"), 1.0)


# Without a cluster: replicas that answer what a test wants


def members(count: int = 3) -> list[Member]:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    return [Named(f"g0/{n}") for n in range(count)]  # type: ignore[misc]


class Moving:
    """A replica that delivers `step` messages between any two questions, and takes its state where it was asked."""

    def __init__(self, step: int, position: int = 0, stops: int = 10**9, state: str = "s") -> None:
        self.step = step
        self.position = position
        self.stops = stops
        self.state = state
        self.wanted: set[int] = set()

    def ask(self, at: int | None) -> Fingerprint:
        before, self.position = self.position, min(self.position + self.step, max(self.position, self.stops))
        where = self.position if at is None else at
        taken = (where in self.wanted and before <= where <= self.position) or where == self.position
        known = where <= self.position
        if not known:
            self.wanted.add(where)
        return Fingerprint(
            self.position, 0, where, where if known else None, 0 if known else None, "c" if known else None,
            self.state if taken else None, passed=known and not taken, pending=not known,
        )  # fmt: skip


def asked(replicas: list[Moving]) -> Callable[[Member, int | None], Fingerprint | str]:
    return lambda member, at: replicas[int(member.name[-1])].ask(at)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comparing, "PAUSE", 0.001)
    yield


def test_a_replica_that_stands_behind_is_waited_for_and_named() -> None:
    replicas = [Moving(0, 9), Moving(0, 9), Moving(1, 2)]
    assert compare_group(members(), 5.0, asked(replicas)).status == "ok"
    replicas = [Moving(0, 9), Moving(0, 9), Moving(0, 2)]
    one = compare_group(members(), 0.05, asked(replicas))
    assert (one.status, one.line.partition("; ")[2]) == ("unknown", "g0/2: it is at position 2")


def test_states_that_could_not_be_taken_are_not_said_to_agree() -> None:
    class Racing(Moving):
        def ask(self, at: int | None) -> Fingerprint:
            self.wanted.clear()
            return super().ask(at)

    one = compare_group(members(), 0.1, asked([Racing(7), Racing(5), Racing(3)]))
    assert one.status == "unknown" and "states not compared" in one.line


def test_those_who_come_to_rest_are_compared_where_they_rest() -> None:
    replicas = [Moving(50, 0, stops=400) for _ in range(3)]
    one = compare_group(members(), 5.0, asked(replicas))
    assert (one.status, "position 400" in one.line) == ("ok", True), one.line


def test_chains_of_different_beginnings_are_not_compared_but_states_are() -> None:
    """As where the data of some replicas is older than chains are."""

    class Older(Moving):
        def ask(self, at: int | None) -> Fingerprint:
            return msgspec.structs.replace(super().ask(at), since=7, chain="d")

    one = compare_group(members(), 5.0, asked([Moving(0, 9), Moving(0, 9), Older(0, 9)]))
    assert (one.status, "chains of different beginnings, state s" in one.line) == ("ok", True), one.line
    one = compare_group(members(), 5.0, asked([Moving(0, 9), Moving(0, 9), Older(0, 9, state="t")]))
    assert one.status == "violated"


def test_the_worst_counts() -> None:
    rows = [Comparison("g0", "ok", "", 1), Comparison("g1", "unknown", ""), Comparison("g2", "violated", "")]
    assert status_of_all([Comparison("g0", "ok", "", 0)]) == "unknown", "nothing was delivered"
    assert [status_of_all(rows[:n]) for n in range(4)] == ["unknown", "ok", "unknown", "violated"]
