"""Data belongs to one cluster with its groups, protocol and application: with another file nothing starts."""

import asyncio
import io
import os
import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from nodes import Raw, cluster, greeting, logged, multicast_works, running, until
from tests.pace import allow

from amcast.apps import application, same_application
from amcast.cli import run
from amcast.errors import MulticastFailed, StorageCorrupt, UsageError
from amcast.local.files import create_cluster
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.identity import identity_of_cluster, sealed
from amcast.runtime.log import Log
from amcast.runtime.node import Node
from amcast.runtime.storage import Storage
from amcast.service import connect_sync, run_node

COUNTERS = '''
class Counter:
    """Counts each word that it is sent."""

    def __init__(self, group, groups):
        self.counts = {}

    def apply(self, delivery):
        word = delivery.payload.decode()
        self.counts[word] = self.counts.get(word, 0) + 1
        return b"%d" % self.counts[word]

    def snapshot(self):
        return repr(sorted(self.counts.items())).encode()

    def restore(self, state):
        import ast

        self.counts = dict(ast.literal_eval(state.decode()))


def nothing(group, groups):
    return None


def itself(group, groups):
    return Counter


class Half:
    def __init__(self, group, groups):
        pass

    def apply(self, delivery):
        return b""


def raises(group, groups):
    raise KeyError("no\\nroom")


def one(group):
    return Counter(group, 1)


seven = 7
'''


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of the data, but for locks, which say nothing."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def edited(config: ClusterConfig, *changes: tuple[str, str]) -> None:
    text = config.path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    config.path.write_text(text)


def refusal(config: ClusterConfig, name: str = "g0/0") -> str:
    """What a node says that does not start."""
    node = Node(config, name, protocol(config.protocol), log=Log(name, "info", io.StringIO()))
    with pytest.raises(UsageError) as caught:
        asyncio.run(node.run(node.stop))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_another_group(config: ClusterConfig) -> None:
    rows = re.findall(r"\[\[replica\]\]\n(?:.+\n)+", config.path.read_text())
    more = [row.replace("g0", "g1").replace("127.0.0.1", "127.0.0.2") for row in rows]
    config.path.write_text(config.path.read_text() + "\n" + "\n".join(more))


OTHER_FILES = {
    "a group more": (with_another_group, "data of 1 group of 1 replica, but cluster.toml says 2 groups of 1 replica"),
    "another application": (
        lambda config: edited(config, ('app = "log"', 'app = "bank"')),
        "data of application log, but cluster.toml says application bank",
    ),
    "not durable": (
        lambda config: edited(config, ("durable = true", "durable = false")),
        "data of durable = true, but cluster.toml says durable = false",
    ),
    "two at once": (
        lambda config: edited(config, ("durable = true", "durable = false"), ('app = "log"', 'app = "my.app:App"')),
        "durable = true and application log, but cluster.toml says durable = false and application my.app:App",
    ),
    "another protocol": (
        lambda config: edited(config, ("durable = true", "durable = false"), ("white_box", "skeen")),
        "data of protocol white_box and durable = true, but",
    ),
}


@pytest.mark.parametrize("how", OTHER_FILES)
def test_another_file_is_refused_and_the_old_one_works_again(tmp_path: Path, how: str) -> None:
    config = cluster(tmp_path / "c", replicas=1)
    with running(config):
        assert multicast_works(config)
    before, text = contents(tmp_path / "c" / "data"), config.path.read_text()
    change, difference = OTHER_FILES[how]
    change(config)
    said = refusal(load_config(config.path))
    assert difference in said and said.endswith("; put back what the file said, or make a new cluster")
    assert contents(tmp_path / "c" / "data") == before
    config.path.write_text(text)
    with running(load_config(config.path)) as nodes:
        assert nodes["g0/0"].history.end == 1
        assert multicast_works(config)


def test_the_folders_of_two_replicas_exchanged(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with running(config):
        assert multicast_works(config)
    text = config.path.read_text()
    swapped = {"data/g0-0": "data/g0-1", "data/g0-1": "data/g0-0"}
    config.path.write_text(re.sub("data/g0-[01]", lambda found: swapped[found[0]], text))
    before = contents(tmp_path / "data")
    said = refusal(load_config(config.path))
    assert f"data of {config.name} g0/1, expected {config.name} g0/0; check the data folder" in said
    assert contents(tmp_path / "data") == before
    config.path.write_text(text)
    with running(load_config(config.path)):
        assert multicast_works(config)


def test_an_identity_of_a_later_format_or_a_damaged_one(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    path = config.members[0].data / "identity"
    written = path.read_bytes()
    who, _, rest = written.partition(b"\n")
    later = rest.rpartition(b"checksum")[0].replace(b'"format": 3', b'"format": 4, "more": [1]')
    path.write_bytes(sealed(who.decode(), later))
    assert refusal(config).endswith("identity of format 4, expected 3; run the amcast that wrote it")
    path.write_bytes(sealed(who.decode(), later[:-20] + b"\n"))
    assert "cannot be read" in refusal(config) and "--rejoin" in refusal(config)


def test_damage_to_an_identity_is_not_taken_for_another_cluster_and_a_rejoin_mends_it(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "test g0/0")
    storage.describe(b'{"format": 2}\n')
    storage.close()
    written = (tmp_path / "identity").read_bytes()
    damaged = [written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :] for at in range(len(written))]
    for data in (*damaged, *(written[:end] for end in range(len(written)))):
        (tmp_path / "identity").write_bytes(data)
        (tmp_path / "starts").write_bytes(b"\x11")
        if b"\n" in data or data == b"test g0/0":
            with pytest.raises(StorageCorrupt, match="identity: damaged; start this node with --rejoin"):
                Storage(tmp_path, "test g0/0")
            storage = Storage(tmp_path, "test g0/0", rejoin=True)
            storage.begin_rejoin()
            assert storage.description == b"" and storage.count_start() == 2 and storage.rejoining
            storage.close()
        else:
            with pytest.raises(UsageError, match=r"data of .*, expected test g0/0"):
                Storage(tmp_path, "test g0/0")


def test_groups_are_told_apart_by_a_digest_and_shown_for_people() -> None:
    def of(sizes: list[int], spare: int = 0) -> tuple[str, str]:
        found = identity_of_cluster("p", sizes, spare, True, "kv")
        return found.groups, found.topology

    said = [of([3, 3]), of([3, 3, 3]), of([3, 5]), of([5, 3]), of([3, 3], 1), of([1]), of([3] * 999 + [1])]
    assert [groups for groups, _ in said[:6]] == [
        "2 groups of 3 replicas", "3 groups of 3 replicas", "groups of 3, 5 replicas", "groups of 5, 3 replicas",
        "2 groups of 3 replicas, 1 of each spare", "1 group of 1 replica",
    ]  # fmt: skip
    assert len({digest for _, digest in said}) == len(said) and of([3, 3]) == of([3, 3])
    assert max(len(groups) for groups, _ in said) <= 200


# Greetings


def test_who_has_another_file_is_not_let_in(tmp_path: Path) -> None:
    """A client with fewer groups numbers them wrongly; a member with another application gives other answers."""
    config = cluster(tmp_path / "here", replicas=1)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    other = load_config(tmp_path / "there")
    edited(other, ('app = "log"', 'app = "bank"'))
    other = load_config(tmp_path / "there")
    said = "has application bank, g0/0 has application log; give both the same cluster.toml"
    with running(config) as nodes:
        with connect_sync(other.path, deadline=allow(20)) as client, pytest.raises(MulticastFailed, match=said):
            client.multicast(["g0"], b"x")
        for address, name in ((config.members[0].client, "client/dev"), (config.members[0].peer, "g0/1")):
            with Raw(address) as raw:
                assert said in raw.send(greeting(other, name)).refusal()
        assert said in logged(nodes["g0/0"])
        assert multicast_works(config)


def test_who_expects_another_is_told_where_it_is(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with running(config, ["g0/0"]), Raw(config.members[0].peer) as raw:
        said = raw.send(greeting(config, "g0/1", to="g0/2")).receive()
        assert said == (frames.REFUSED, b"greeting for 'g0/2', but this is g0/0; check its address")


def test_members_with_different_files_do_not_take_each_other_for_a_quorum(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    text = config.path.read_text()
    edited(config, ('app = "log"', 'app = "bank"'))
    other = load_config(config.path)
    config.path.write_text(text)
    shutil.rmtree(other.members[1].data)
    with running(config, ["g0/0"]) as nodes:
        stranger = Node(other, "g0/1", protocol("white_box"), log=Log("g0/1", "info", io.StringIO()), new=True)
        task = asyncio.run_coroutine_threadsafe(stranger.run(), nodes["g0/0"]._loop)
        assert until(lambda: "has application bank, g0/0 has application log" in logged(nodes["g0/0"]))
        assert until(lambda: nodes["g0/0"].links[1].refusal)
        assert "no quorum" in str(nodes["g0/0"].readiness())
        assert "; g0/1 refused it: g0/0 has application log, g0/1 has" in str(nodes["g0/0"].readiness())
        nodes["g0/0"]._loop.call_soon_threadsafe(stranger.stop)
        task.result(allow(20))


# The application of a cluster


def counting(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str = "counters") -> None:
    """Let there be this module, here and in processes that are started from here."""
    (folder / f"{module}.py").write_text(COUNTERS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.delitem(sys.modules, module, raising=False)


def count(folder: Path, word: bytes) -> bytes:
    with connect_sync(folder, deadline=allow(20)) as client:
        return client.multicast(["g0"], word)["g0"]


def test_a_cluster_runs_the_application_of_its_file_and_never_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    counting(tmp_path, monkeypatch)
    folder = tmp_path / "c"
    options = ["--groups", "1", "--replicas", "1", "--insecure-dev", "--app", "counters:Counter"]
    assert run(["cluster", "init", str(folder), *options]) == 0
    config = load_config(folder)
    assert config.app == "counters:Counter"
    processes = Processes(config)
    try:
        assert run(["cluster", "up", str(folder)]) == 0
        assert [count(folder, b"a") for _ in range(3)] == [b"1", b"2", b"3"]
        assert run(["cluster", "kill", str(folder), "g0/0"]) == run(["cluster", "up", str(folder)]) == 0
        assert count(folder, b"a") == b"4"
        text, pid = config.path.read_text(), processes.running(config.members[0])
        edited(config, ('"counters:Counter"', '"kv"'))
        said = "data of application counters:Counter, but cluster.toml says application kv; put back"
        another_app = config.path.read_text()
        config.path.write_text(text)
        with_another_group(config)
        another_group = config.path.read_text()
        groups = "data of 1 group of 1 replica, but cluster.toml says 2 groups of 1 replica; put back"
        for command in (["cluster", "restart", str(folder), "g0/0"], ["cluster", "up", str(folder)]):
            for other, why in ((another_group, groups), (another_app, said)):
                config.path.write_text(other)
                capfd.readouterr()
                assert run(command) == 2
                out, err = capfd.readouterr()
                assert out == "" and why in err and err.count("\n") == 1
        assert pid is not None and processes.running(config.members[0]) == pid, "it was not even stopped"
        assert run(["cluster", "down", str(folder)]) == 0
        assert run(["node", str(folder), "g0/0"]) == 2 and said in capfd.readouterr().err
        config.path.write_text(text)
        assert run(["cluster", "restart", str(folder), "g0/0"]) == 0
        assert count(folder, b"a") == b"5"
    finally:
        processes.stop(config.members)


WRONG_APPS = {
    "counters:nothing": "counters:nothing(0, 1) returned None; expected an object with apply, snapshot and restore",
    "counters:itself": "counters:itself(0, 1) returned the class Counter itself; expected",
    "counters:Half": "counters:Half(0, 1) returned a Half without snapshot, restore; expected",
    "counters:raises": "counters:raises(0, 1) failed: KeyError: 'no\\nroom'; correct it",
    "counters:one": "counters:one(0, 1) failed: TypeError: one() takes 1 positional argument but 2 were given",
    "counters:seven": "application counters:seven is a int; expected a class",
    "counters:Nobody": "AttributeError: module 'counters' has no attribute 'Nobody'; correct it",
    "nowhere.at_all:App": "No module named 'nowhere'; install it, or name its folder in PYTHONPATH",
    "counters:": "expected a path such as package.module:Class",
    "counter": "unknown application 'counter': ",
}


@pytest.mark.parametrize("app", WRONG_APPS)
def test_what_is_no_application_is_said_in_one_line_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str
) -> None:
    counting(tmp_path, monkeypatch)
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    assert run(["cluster", "init", str(tmp_path / "c"), "--groups", "1", "--replicas", "1", "--app", app]) == 2
    said = err.getvalue()
    assert WRONG_APPS[app] in said and said.count("\n") == 1 and not (tmp_path / "c").exists()


def test_a_program_runs_what_the_file_says_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting(tmp_path, monkeypatch)
    counting(tmp_path, monkeypatch, "program")
    config = create_cluster(tmp_path / "c", protocol("white_box"), 1, 1, "counters:Counter", secure=False)
    counter = application("counters:Counter").machine
    assert counter is not None and same_application(counter, counter)
    other = application("program:Counter").machine
    assert other is not None and not same_application(other, counter)
    monkeypatch.setattr("amcast.service.serve", lambda node: None)
    run_node(config.path, "g0/0", counter)
    before = contents(tmp_path / "c" / "data")
    with pytest.raises(UsageError, match=r'app = "counters:Counter", but the program runs program:Counter; expected'):
        run_node(config.path, "g0/0", other)
    assert contents(tmp_path / "c" / "data") == before
    again = spec_from_file_location("as_a_program", tmp_path / "counters.py")
    assert again is not None and again.loader is not None
    program = module_from_spec(again)
    monkeypatch.setitem(sys.modules, "as_a_program", program)
    again.loader.exec_module(program)
    assert program.Counter is not counter and same_application(program.Counter, counter), "as in: python counters.py"
    assert not same_application(program.Half, counter)
