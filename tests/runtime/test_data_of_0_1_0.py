"""Guards what is promised to operators: data that version 0.1.0 wrote can be converted, and nothing of it is lost.

tests/data/cluster-0.1.0 was written by six real nodes with the store. Two stopped in order (a snapshot and an empty
log), four were killed (a snapshot and a log behind it). `expected.json` has what a client read last.
"""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import redis.asyncio

from amcast import connect
from amcast.apps.kv.gateway import Gateway
from amcast.cli import run
from amcast.errors import StorageCorrupt, UsageError
from amcast.local.compare import compare, status_of_all
from amcast.local.convert import convert_cluster
from amcast.local.files import free_ports
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.machine import REAL, Files
from amcast.runtime.storage import Storage

FOLDER = Path(__file__).parents[1] / "data" / "cluster-0.1.0"
EXPECTED: dict[str, str] = json.loads((FOLDER / "expected.json").read_text())
PORT = re.compile(r"127\.0\.0\.1:(\d+)")
SECONDS_TO_START = 120.0
WHITE_BOX = protocol("white_box")


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    """A copy of the folder, on ports that are free here."""
    folder = shutil.copytree(FOLDER, tmp_path / "cluster")
    path = folder / "cluster.toml"
    ports = sorted({int(port) for port in PORT.findall(path.read_text())})
    first = free_ports(len(ports), None)
    path.write_text(PORT.sub(lambda found: f"127.0.0.1:{first + ports.index(int(found[1]))}", path.read_text()))
    return load_config(path)


async def everything(path: Path) -> tuple[dict[bytes | str, bytes | str | None], bool]:
    """Return all that is in the store, and whether it still takes a write."""
    async with connect(path) as client:
        gateway = Gateway(client)
        port = await gateway.listen("127.0.0.1", 0)
        try:
            async with redis.asyncio.Redis(port=port, decode_responses=True) as store:
                keys = await store.keys("*")
                found = dict(zip(keys, await store.mget(keys), strict=True))
                return found, await store.incr("counter") == int(EXPECTED["counter"]) + 1
        finally:
            await gateway.close()


def test_a_cluster_goes_on_from_the_data_of_0_1_0(config: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    before = {member.name: files_of(member.data) for member in config.members}
    assert run(["cluster", "convert", str(config.path)]) == 0
    said = capsys.readouterr().out
    assert said.count(": converted, ") == len(config.members)
    assert run(["cluster", "convert", str(config.path)]) == 0
    assert "nothing to convert" in capsys.readouterr().out
    for member in config.members:
        assert files_of(member.data.with_name(f"{member.data.name}.0.1")) == before[member.name], "the backup"
        who, _, rest = (member.data / "identity").read_bytes().partition(b"\n")
        assert who == f"{config.name} {member.name}".encode()
        assert json.loads(rest.rpartition(b"checksum")[0])["cluster"]["app"] == "kv"
    processes = Processes(config)
    try:
        with processes.alone():
            for member in config.members:
                processes.start(member)
        state = processes.wait_until_ready(config.members, SECONDS_TO_START)
        assert set(state.values()) == {None}, state
        found, takes_writes = asyncio.run(everything(config.path))
        assert found == EXPECTED
        assert takes_writes
        assert status_of_all(compare(config, WHITE_BOX, SECONDS_TO_START)) == "ok"
    finally:
        assert not processes.stop(config.members)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_a_plain_start_says_what_to_do(config: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(config.members[0].data)
    assert run(["node", str(config.path), "g0/0"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "written by amcast 0.1" in said and "'amcast cluster convert CLUSTER'" in said
    assert files_of(config.members[0].data) == before


def test_nothing_is_converted_while_a_node_runs_or_if_anything_is_damaged(config: ClusterConfig) -> None:
    before = files_of(config.path.parent)
    held = REAL.files.open(config.members[4].data / "lock")
    if pid := os.fork():  # locks of one process do not shut out itself
        REAL.files.close(held)
        assert os.waitpid(pid, 0)[1] == 0
    else:
        code = 1
        try:
            REAL.files.lock(held)
            code = os.waitstatus_to_exitcode(os.waitpid(os.fork() or child_converts(config), 0)[1])
        finally:
            os._exit(code)
    assert files_of(config.path.parent) == before
    log = next(config.members[5].data.glob("log-*"))
    data = bytearray(next(config.members[5].data.glob("snapshot-*")).read_bytes())
    data[len(data) // 2] ^= 1
    next(config.members[5].data.glob("snapshot-*")).write_bytes(data)
    with pytest.raises(StorageCorrupt, match="cannot be converted"):
        convert_cluster(config, WHITE_BOX)
    assert log.exists() and not list(config.path.parent.rglob("*.0.1")), "said before anything is changed"


def child_converts(config: ClusterConfig) -> int:
    """In a process of its own: it must find the folder locked."""
    try:
        convert_cluster(config, WHITE_BOX)
    except UsageError as error:
        os._exit(0 if "a process uses this data folder" in str(error) else 1)
    os._exit(1)


@pytest.mark.parametrize("place", range(14))
def test_an_interrupted_conversion_is_run_again(
    config: ClusterConfig, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before any of the renames and syncs of folders that the first replica takes, and some of the next."""
    calls = 0
    for name in ("replace", "sync_folder"):
        act = getattr(type(REAL.files), name)

        def counted(files: object, *arguments: object, act: object = act) -> None:
            nonlocal calls
            calls += 1
            if calls == 1 + place:
                raise KeyboardInterrupt
            act(files, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(type(REAL.files), name, counted)
    try:
        convert_cluster(config, WHITE_BOX)
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    convert_cluster(config, WHITE_BOX)
    for member in config.members:
        assert not member.data.with_name(f"{member.data.name}.converting").exists()
        assert (member.data.with_name(f"{member.data.name}.0.1") / "identity").exists()
        storage = Storage(member.data, f"{config.name} {member.name}", new=False)
        assert storage.count_start() > 1
        assert storage.recover().snapshot
        storage.close()


def test_a_conversion_that_ended_between_its_two_renames_is_finished(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = type(REAL.files).replace
    last = config.members[2].data

    def interrupted(files: Files, old: Path, new: Path) -> None:
        if new == last:
            raise KeyboardInterrupt
        replace(files, old, new)

    monkeypatch.setattr(type(REAL.files), "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert_cluster(config, WHITE_BOX)
    monkeypatch.undo()
    assert not last.exists()
    convert_cluster(config, WHITE_BOX)
    storage = Storage(last, f"{config.name} g0/2", new=False)
    assert storage.count_start() > 1 and storage.recover().snapshot
    storage.close()


def test_what_a_later_version_wrote_is_refused(tmp_path: Path) -> None:
    def fresh(name: str) -> Storage:
        storage = Storage(tmp_path / name, "test p0")
        storage.recover()
        storage.commit([b"one"])
        return storage

    fresh("log").close()
    path = tmp_path / "log" / "log-0"
    path.write_bytes(b"amf9" + path.read_bytes()[4:])
    with pytest.raises(UsageError, match="written in format 'amf9', expected 'amf2'; run the amcast that wrote it"):
        Storage(tmp_path / "log", "test p0", new=False).recover()
    storage = fresh("snapshot")
    storage.snapshot([b"state"])
    storage.close()
    path = next((tmp_path / "snapshot").glob("snapshot-*"))
    path.write_bytes(b"amp9" + path.read_bytes()[4:])
    with pytest.raises(UsageError, match="written in format 'amp9', expected 'amp1'; run the amcast that wrote it"):
        Storage(tmp_path / "snapshot", "test p0", new=False).recover()
