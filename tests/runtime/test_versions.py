"""A newer version of an application takes over at one position of every group, when all replicas know it."""

import asyncio
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from nodes import cluster, logged, running, until
from tests.pace import allow

from amcast.core.application import AllOrNothing, Delivery, Factory, StateMachine, made
from amcast.errors import AmcastError, ApplicationFailed, MulticastFailed, UsageError
from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig
from amcast.runtime.durability import NodeSnapshot, read_snapshot
from amcast.runtime.execution import Executor
from amcast.runtime.frames import AppVersions, Hello
from amcast.runtime.log import Log
from amcast.runtime.node import Node
from amcast.runtime.versions import SENDER, Versions, VersionsHost
from amcast.service import connect_sync


class First:
    """Counts by ones. Its state is a number."""

    def __init__(self, group: int = 0, groups: int = 1) -> None:
        self.count = 0

    def apply(self, delivery: Delivery) -> bytes:
        if delivery.payload == b"boom":
            self.count += 1000
            raise ValueError("boom")
        self.count += 1
        return b"%d" % self.count

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state)


class Second(First):
    """Counts by tens, and keeps its state as JSON; it still knows how the first one did."""

    version = 2

    def apply(self, delivery: Delivery) -> bytes:
        super().apply(delivery)
        self.count += 9 if self.version >= 2 else 0
        return b"%d" % self.count

    def snapshot(self) -> bytes:
        return json.dumps({"count": self.count}).encode() if self.version >= 2 else super().snapshot()

    def restore(self, state: bytes) -> None:
        self.count = json.loads(state)["count"] if self.version >= 2 else int(state)

    def migrate(self, old: int, state: bytes) -> bytes:
        assert (old, self.version) == (1, 2)
        return json.dumps({"count": int(state)}).encode()


class CannotMigrate(Second):
    def migrate(self, old: int, state: bytes) -> bytes:
        raise KeyError("count")


def delivered(position: int, payload: bytes = b"") -> Delivery:
    return Delivery("g0", position, (position, "g0"), f"c1:{position}", "c1", ("g0",), payload)


# One machine


def test_the_state_of_an_older_version_is_gone_on_with_as_that_one_and_migrated_when_it_is_time() -> None:
    executor = Executor(Second(), "counter")
    executor.begin(1)
    executor.restore(b"5")
    assert executor.apply(delivered(0)) == b"6"
    assert executor.apply(delivered(1, b"boom")).startswith(b"\xc1") and executor.snapshot() == b"6"
    executor.switch(2, 2)
    assert executor.snapshot() == b'{"count": 6}' and executor.apply(delivered(3)) == b"16"
    assert executor.apply(delivered(4, b"boom")).startswith(b"\xc1") and executor.snapshot() == b'{"count": 16}'
    executor.switch(2, 5)
    assert executor.snapshot() == b'{"count": 16}', "once is enough"


def test_what_is_newer_than_the_code_is_refused_in_one_line() -> None:
    executor = Executor(First(), "counter")
    with pytest.raises(UsageError, match="its state is of version 2, but the code here knows versions up to 1; "):
        executor.begin(2)
    with pytest.raises(ApplicationFailed, match="version 2 takes over at position 7, but the code here knows"):
        executor.switch(2, 7)


class Fixed(First, AllOrNothing):
    """Cannot be told what to be."""

    version = property(lambda self: 2)


@pytest.mark.parametrize(
    ("app", "why"),
    [
        (CannotMigrate(), "failed at position 3, while it migrated to version 2: KeyError: 'count'"),
        (type("Odd", (Second,), {"migrate": lambda self, old, state: 7})(), "TypeError: migrate returned int"),
    ],
)
def test_a_state_that_cannot_be_migrated(app: StateMachine, why: str) -> None:
    executor = Executor(app, "counter")
    executor.begin(1)
    with pytest.raises(ApplicationFailed, match=why):
        executor.switch(2, 3)


def test_an_application_that_cannot_be_told_its_version() -> None:
    with pytest.raises(ApplicationFailed, match="when it was told to be of version 1: AttributeError"):
        Executor(Fixed(), "counter").begin(1)


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, True, None])
def test_a_version_is_a_number(version: object) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 1 on"):
        made(lambda group, groups: type("App", (First,), {"version": version})(), "counter", 0, 1)


# What members say


def versions_of(config: ClusterConfig, app: Factory | None) -> Versions:
    return Versions(cast(VersionsHost, SimpleNamespace(config=config, me=config.members[0])), app)


def hello(name: str, *versions: int) -> Hello:
    return Hello(frames.VERSION, "c", name, 1, versions=AppVersions(*versions))


def test_a_version_is_due_when_all_members_are_here_and_know_it(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2, replicas=1)
    versions = versions_of(config, Second)
    executor = versions.executor
    assert executor is not None and versions.ours() == AppVersions(2, 2, 0) and not versions.due()
    executor.begin(1)
    assert versions.ours() == AppVersions(2, 1, 0) and not versions.due(), "the other one is not here"
    for newest, due in ((1, 0), (2, 2), (3, 2)):
        assert versions.greeted(1, hello("g1/0", newest, 1, 0)) is None
        assert versions.due() == due
    versions.left(1)
    assert not versions.due()
    executor.switch(2, 0)
    assert versions.greeted(1, hello("g1/0", 3, 2, 0)) is None and not versions.due(), "it is in force"
    assert versions_of(config, None).due() == 0


def test_who_cannot_take_part(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=3)
    versions = versions_of(config, Second)
    versions.began = 1
    old = "g0/2 has version 1 of application log, g0/0 is at version 2; install it"
    assert versions.greeted(2, hello("g0/2", 1, 1, 1)) == old
    other = "g0/2 began with version 2 of application log, g0/0 with 1; begin with the same"
    assert versions.greeted(2, hello("g0/2", 2, 2, 2)) == other
    assert versions.greeted(2, hello("g0/2", 2, 1, 0)) is None, "it began with a state of ours"


def test_a_snapshot_says_its_version_and_one_of_another_format_is_refused() -> None:
    written = NodeSnapshot(7, [b"r"], [b"app"], [(1, 2, b"a")], None, 3)
    assert read_snapshot(list(written.pieces())).app_version == 3
    old = msgspec.msgpack.encode((7, [b"r"], b"app", [(1, 2, b"a")]))
    for other in (old, b"amn2" + bytes(20)):
        with pytest.raises(UsageError, match=r"a snapshot of format .*, expected .*; run the amcast that wrote it"):
            read_snapshot([other])


def test_data_says_with_which_version_it_began(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config, app=Second) as nodes:
        assert nodes["g0/0"].versions.began == 1, "as cluster init wrote it"
    shutil.rmtree(config.members[0].data)
    node = Node(config, "g0/0", protocol("white_box"), Second, log=Log("g0/0", "info", io.StringIO()), new=True)
    asyncio.run(node.run(node.stop))
    assert node.versions.began == 2
    assert '"app_version": 2' in (config.members[0].data / "identity").read_text()


# In a cluster


@contextmanager
def with_apps(config: ClusterConfig, **apps: type[First]) -> Iterator[dict[str, Node]]:
    """The nodes of these replicas, each with its own code."""
    with ExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name, app in apps.items():
            nodes |= stack.enter_context(running(config, [name], app=app))
        yield nodes


def count(config: ClusterConfig, *groups: str) -> list[int]:
    with connect_sync(config.path, deadline=allow(20)) as client:
        while True:
            try:
                return [int(answer) for answer in client.multicast(groups or ["g0"], b"").values()]
            except MulticastFailed:  # nobody leads yet
                continue


def version_of(node: Node) -> int:
    return node.versions.ours().active


def test_all_change_at_one_position_when_the_last_one_knows_it(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    names = [member.name for member in config.members]
    with running(config, app=First) as nodes:
        assert count(config, "g0", "g1") == [1, 1]
        assert until(lambda: [node.history.end for node in nodes.values()] == [1] * 6)  # else one may pull a snapshot
    with with_apps(config, **{**dict.fromkeys(names, Second), "g1/2": First}) as nodes:
        assert count(config, "g0", "g1") == [2, 2] and count(config, "g1") == [3]
        assert until(lambda: [node.history.end for node in nodes.values()] == [2] * 3 + [3] * 3)
        assert until(lambda: all(len(node.versions._known) == 5 for node in nodes.values()))
        assert [version_of(node) for node in nodes.values()] == [1] * 6 and not nodes["g0/0"].versions.due()
    before = {name: tmp_path / "data" / name.replace("/", "-") for name in names}
    with with_apps(config, **dict.fromkeys(names, Second)) as nodes:
        assert until(lambda: {version_of(node) for node in nodes.values()} == {2})
        assert count(config, "g0", "g1") == [12, 13] and count(config, "g0") == [22]
        assert until(lambda: [node.history.end for node in nodes.values()] == [5] * 3 + [5] * 3)
        for group in ("g0", "g1"):
            ours = [node for name, node in nodes.items() if name.startswith(group)]
            assert len({node.chain.end for node in ours}) == 1
            assert {node.app.snapshot() for node in ours if node.app} == {
                b'{"count": %d}' % {"g0": 22, "g1": 13}[group]
            }
        changes = [
            json.loads(line) for node in nodes.values() for line in logged(node).splitlines() if "changed" in line
        ]
        assert {(one["node"][:2], one["position"]) for one in changes} == {("g0", 2), ("g1", 3)} and len(changes) == 6
        with connect_sync(config.path, deadline=allow(20)) as client:
            rows = client.deliveries("g0")
            seen = [next(rows) for _ in range(5)]
            assert [row.sender == f"c{SENDER:x}" for row in seen] == [False, False, True, False, False]
        crashed = {name: shutil.copytree(folder, tmp_path / "crashed" / folder.name) for name, folder in before.items()}
    with running(config, app=Second) as nodes:
        assert {version_of(node) for node in nodes.values()} == {2}
        assert count(config, "g0", "g1") == [32, 23]
    said = refusal(config, First)
    assert "its state is of version 2, but the code here knows versions up to 1; install the newer one" in said
    # What a crash leaves: the state before the change, and the change among the records behind it
    for name, folder in before.items():
        shutil.rmtree(folder)
        crashed[name].rename(folder)
    said = refusal(config, First)
    assert "version 2 takes over at position 2, but the code here knows versions up to 1" in said
    with running(config, app=Second) as nodes:
        assert {version_of(node) for node in nodes.values()} == {2}
        assert count(config, "g0", "g1") == [32, 23]


def refusal(config: ClusterConfig, app: Callable[[int, int], StateMachine], name: str = "g0/0") -> str:
    node = Node(config, name, protocol(config.protocol), app, log=Log(name, "info", io.StringIO()))
    with pytest.raises(AmcastError) as caught:
        asyncio.run(node.run(node.stop))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_version_that_fails_its_rehearsal_does_not_take_over(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config, app=First):
        assert count(config) == [1]
    with running(config, app=CannotMigrate) as nodes:
        said = ("application stays as it is", "stopping")
        assert until(lambda: any(word in logged(nodes["g0/0"]) for word in said))
        assert "KeyError" in logged(nodes["g0/0"]) and "stopping" not in logged(nodes["g0/0"])
        assert version_of(nodes["g0/0"]) == 1 and count(config) == [2]
    with running(config, app=Second) as nodes:
        assert until(lambda: count(config)[0] > 10 and version_of(nodes["g0/0"]) == 2)


def test_members_whose_versions_cannot_go_together(tmp_path: Path) -> None:
    """One with old code while the others have changed; and one that began with another version than they did."""
    config = cluster(tmp_path)
    with with_apps(config, **dict.fromkeys(["g0/0", "g0/1", "g0/2"], Second)) as nodes:
        assert until(lambda: {version_of(node) for node in nodes.values()} == {2})
        assert count(config) == [10]
    shutil.rmtree(config.members[2].data)
    with running(config, ["g0/0", "g0/1"], app=Second) as nodes:
        fresh = Node(config, "g0/2", protocol("white_box"), First, log=Log("g0/2", "info", io.StringIO()), new=True)
        task = asyncio.run_coroutine_threadsafe(fresh.run(), nodes["g0/0"]._loop)
        said = "g0/2 has version 1 of application log, g0/0 is at version 2; install it"
        assert until(lambda: said in logged(nodes["g0/0"]))
        nodes["g0/0"]._loop.call_soon_threadsafe(fresh.stop)
        task.result(allow(20))
        shutil.rmtree(config.members[2].data)
        fresh = Node(config, "g0/2", protocol("white_box"), Second, log=Log("g0/2", "info", io.StringIO()), new=True)
        task = asyncio.run_coroutine_threadsafe(fresh.run(), nodes["g0/0"]._loop)
        said = "g0/2 began with version 2 of application log, g0/0 with 1; begin with the same"
        assert until(lambda: said in logged(nodes["g0/0"]))
        nodes["g0/0"]._loop.call_soon_threadsafe(fresh.stop)
        task.result(allow(20))
