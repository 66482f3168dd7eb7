"""A user's mistakes with a cluster: one clear line on the right side, exit code 2, and the other side goes on."""

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nodes import SECONDS, cluster, logged, multicast_works, running, until
from tests.pace import allow

from amcast.cli import run
from amcast.errors import AmcastError, MulticastFailed, UsageError
from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime import certificates, frames
from amcast.runtime.certificates import make_certificates
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig
from amcast.runtime.node import Node
from amcast.service import connect

Amcast = Callable[..., tuple[int, str]]

FOLLOW = "run releases that follow on each other, or the same"


@pytest.fixture
def node(capsys: pytest.CaptureFixture[str]) -> Amcast:
    """`amcast node`: its exit code, and what it complains of."""

    def call(path: Path, name: str = "g0/0") -> tuple[int, str]:
        capsys.readouterr()
        code = run(["node", str(path), name, "--level", "error"])
        return code, capsys.readouterr().err

    return call


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "starts"}


def refused(node: Amcast, path: Path, *parts: str, name: str = "g0/0") -> None:
    code, line = node(path, name)
    assert code == 2 and line.count("\n") == 1 and line.startswith("amcast: "), line
    for part in parts:
        assert part in line, line


@pytest.mark.parametrize("listener", ["peer", "client", "admin"])
def test_a_port_in_use(node: Amcast, tmp_path: Path, listener: str) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config):
        assert multicast_works(config)
    before = contents(config.members[0].data)
    address = getattr(config.members[0], listener)
    with socket.create_server((address.host, address.port)):
        refused(node, config.path, str(address), "in use")
    assert contents(config.members[0].data) == before
    with running(config):
        assert multicast_works(config)


def test_the_real_program_has_no_traceback_either(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    address = config.members[0].client
    command = [sys.executable, "-m", "amcast", "node", str(config.path), "g0/0", "--level", "error"]
    with socket.create_server((address.host, address.port)):
        done = subprocess.run(command, capture_output=True, text=True, timeout=allow(60))
    assert (done.returncode, done.stdout) == (2, "")
    reason = f"g0/0 cannot listen on {address}: Address already in use; free it or change {config.path}"
    assert done.stderr == f"amcast: {reason}\n"


def test_an_expired_certificate(node: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path, replicas=1)
    past = datetime.now(UTC) - timedelta(days=5000)

    class Then(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return past

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Then)
        make_certificates(tmp_path / "certs", config.name, ["g0/0", "client/dev"])
    config.path.write_text(config.path.read_text() + '\n[tls]\nca = "certs/ca.crt"\nfolder = "certs"\n')
    refused(node, config.path, "expired on 20")
    with pytest.raises(UsageError, match="expired on 20"):
        connect(config.path)


def test_a_certificate_for_another_name(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=3, secure=True)
    for suffix in ("crt", "key"):
        (tmp_path / "certs" / f"g0-0.{suffix}").write_bytes((tmp_path / "certs" / f"g0-1.{suffix}").read_bytes())
    refused(node, config.path, f"certificate of amcast://{config.name}/g0/1, expected", "g0/0")


def test_a_key_that_there_is_not(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    config.path.write_text(config.path.read_text().replace("durable", "durible"))
    refused(node, config.path, "unknown key 'durible': did you mean durable?")


def test_an_unknown_replica(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    refused(node, config.path, "no replica 'g7/0'", "expected one of g0/0", name="g7/0")
    refused(node, tmp_path / "none.toml", "cannot be read (No such file or directory)")


def test_data_of_another_cluster(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    with running(config):
        assert multicast_works(config)
    before = contents(config.members[0].data)
    config.path.write_text(config.path.read_text().replace(config.name, "another"))
    refused(node, config.path, f"data of {config.name} g0/0, expected another g0/0; check the data folder")
    assert contents(config.members[0].data) == before


def test_data_that_another_process_uses(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    command = [sys.executable, "-m", "amcast", "node", str(config.path), "g0/0", "--level", "error"]
    with running(config):
        done = subprocess.run(command, capture_output=True, text=True, timeout=allow(60))
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "another process uses this data folder; stop it first" in done.stderr
        assert multicast_works(config)


def test_data_that_cannot_be_written(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1)
    shutil.rmtree(config.members[0].data)
    config.members[0].data.write_text("no folder")
    refused(node, config.path, f"{config.members[0].data}", "cannot be used")


def damage(what: str, data: Path) -> None:
    if what == "the log":
        log = max(data.glob("log-*"), key=lambda path: path.stat().st_size)
        damaged = bytearray(log.read_bytes())
        damaged[len(damaged) // 3] ^= 0xFF
        log.write_bytes(damaged)
    else:
        path = next(data.glob(f"{what}*"))
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")


@pytest.mark.parametrize("what", ["the log", "snapshot-", "starts"])
def test_damaged_data_is_refused_again_and_again_and_left_as_it_is(node: Amcast, tmp_path: Path, what: str) -> None:
    config = cluster(tmp_path, replicas=1)
    data = config.members[0].data
    with running(config) as nodes:
        if what == "the log":
            nodes["g0/0"].durability.settle = nothing  # type: ignore[method-assign]
        for _ in range(3):
            assert multicast_works(config)
    damage(what, data)
    before = contents(data)
    for _ in range(2):
        refused(node, config.path, str(data), "may have forgotten what it promised", "start it with --rejoin")
        assert contents(data) == before


async def nothing() -> None:
    """As if it had been killed."""


def test_a_memory_only_node_does_not_come_back_alone(node: Amcast, tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=1, durable=False)
    with running(config):
        assert multicast_works(config)
    for _ in range(2):
        refused(node, config.path, "g0/0 is alone in its group", "nobody knows what it lost")


def test_a_crash_stop_replica_does_not_come_back(node: Amcast, tmp_path: Path) -> None:
    config = create_cluster(tmp_path, protocol("lcr"), 1, 3, "log", secure=False, durable=False)
    with running(config):
        assert multicast_works(config)
    for _ in range(2):
        refused(node, config.path, "a replica of lcr that stops is lost for good", "make a new cluster")


# Clients


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[ClusterConfig, dict[str, Node]]]:
    config = cluster(tmp_path, groups=1, replicas=3)
    with running(config) as nodes:
        assert multicast_works(config)
        yield config, nodes
        assert multicast_works(config)


Live = tuple[ClusterConfig, dict[str, Node]]


async def failure(client: Client, dest: list[str], payload: bytes = b"x") -> str:
    async with client:
        with pytest.raises(MulticastFailed) as caught:
            await client.multicast(dest, payload)
    return str(caught.value)


def test_what_no_cluster_can_deliver(live: Live) -> None:
    config, _ = live
    for dest, payload, reason in (
        (["g9"], b"x", "unknown group 'g9': expected one of g0"),
        ([], b"x", "destination groups []: expected one or more of 0 to 0"),
        (["g0"], bytes(2**20 + 1), "a message of 1048577 bytes: expected at most 1048576"),
    ):
        assert asyncio.run(failure(connect(config.path), dest, payload)) == reason
    with pytest.raises(UsageError, match=r"no client 'eve' in .*: expected one of dev"):
        connect(config.path, "eve")

    async def reads() -> None:
        async with connect(config.path) as client:
            with pytest.raises(AmcastError, match="unknown group 'g9'"):
                await client.rows("g9", 0)
            with pytest.raises(UsageError, match="start 'sometime': expected"):
                await anext(aiter(client.deliveries("g0", "sometime")))

    asyncio.run(reads())


def test_another_largest_message_than_the_cluster(live: Live) -> None:
    """What the client's own file allows, the node refuses."""
    config, _ = live
    client = Client(replace(config, largest_message=2**22), protocol("white_box"), "dev")
    assert asyncio.run(failure(client, ["g0"], bytes(2**20 + 1))) == "1048577 bytes, expected at most 1048576"


def test_a_client_of_another_version_or_cluster(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    config, nodes = live
    client = Client(replace(config, name="another"), protocol("white_box"), "dev", deadline=allow(SECONDS))
    line = asyncio.run(failure(client, ["g0"]))
    assert line.endswith(f"refused client/dev: greeting of cluster 'another', expected {config.name!r}")

    def hello(*rest: object, **more: object) -> frames.Hello:
        return frames.Hello(*rest, **{**more, "formats": frames.Spoken(5, 6)})  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("amcast.runtime.client_connection.Hello", hello)
        line = asyncio.run(failure(connect(config.path, deadline=allow(SECONDS)), ["g0"]))
    assert "refused client/dev: client/dev knows formats 5 to 6, g0/" in line and line.endswith(f"3 to 3; {FOLLOW}")
    assert any("client/dev knows formats 5 to 6" in logged(node) for node in nodes.values())


def test_a_member_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two others say so, once, and serve on; it says so too and does not give up."""
    config = cluster(tmp_path, groups=1, replicas=3)

    def hello(version: int, cluster: str, name: str, *rest: object) -> frames.Hello:
        *others, formats = rest
        formats = frames.Spoken(5, 6) if name == "g0/2" else formats
        return frames.Hello(version, cluster, name, *others, formats)  # type: ignore[arg-type]

    monkeypatch.setattr("amcast.runtime.links.Hello", hello)
    with running(config) as nodes:
        assert multicast_works(config)
        assert until(lambda: "g0/2 knows formats 5 to 6, g0/0 3 to 3" in logged(nodes["g0/0"]))
        assert until(lambda: logged(nodes["g0/2"]).count(FOLLOW) == 2), "once for each"
        assert multicast_works(config)


def test_a_replica_that_refuses_does_not_decide_for_the_others(tmp_path: Path) -> None:
    """A client that one replica does not know is served by those that do; one that most do not know has failed, and
    then nobody delivers its message."""
    config = cluster(tmp_path, groups=1, replicas=3)
    with running(config) as nodes:
        assert multicast_works(config)
        last = nodes["g0/2"].history
        assert until(lambda: last.end == 1)
        for names, served in ((("g0/2",), True), (("g0/0", "g0/1", "g0/2"), False)):
            for name in names:
                nodes[name].config = replace(config, clients={})

            async def tried() -> str:
                async with connect(config.path, deadline=allow(SECONDS)) as client:
                    client._engine.process.cur_leader[0] = 2  # type: ignore[attr-defined]
                    try:
                        await client.multicast(["g0"], b"x")
                    except MulticastFailed as error:
                        await asyncio.sleep(0.5)  # time to do what must not be done
                        return str(error)
                return "delivered"

            outcome = asyncio.run(tried())
            if served:
                assert outcome == "delivered"
                assert until(lambda: last.end == 2)
                nodes["g0/2"].config = config
            else:
                assert "refused client/dev: 'client/dev' is no client of" in outcome
                assert last.end == 2
                for name in names:
                    nodes[name].config = config
        assert multicast_works(config)
