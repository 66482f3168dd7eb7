"""Guards what is promised to operators: a data folder that version 0.1.0 wrote is read by every later version.

tests/data/cluster-0.1.0 was written by six real nodes with the store. Two stopped in order (a snapshot and an empty
log), four were killed (a snapshot and a log behind it). `expected.json` has what a client read last.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio

from amcast import connect
from amcast.apps.kv.gateway import Gateway
from amcast.local.compare import compare, status_of_all
from amcast.local.files import free_ports
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.config import load_config

FOLDER = Path(__file__).parents[1] / "data" / "cluster-0.1.0"
EXPECTED: dict[str, str] = json.loads((FOLDER / "expected.json").read_text())
PORT = re.compile(r"127\.0\.0\.1:(\d+)")
SECONDS_TO_START = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    """A copy of the folder, on ports that are free here, with its six nodes running."""
    folder = shutil.copytree(FOLDER, tmp_path / "cluster")
    path = folder / "cluster.toml"
    ports = sorted({int(port) for port in PORT.findall(path.read_text())})
    first = free_ports(len(ports), None)
    path.write_text(PORT.sub(lambda found: f"127.0.0.1:{first + ports.index(int(found[1]))}", path.read_text()))
    processes = Processes(load_config(path))
    members = processes.config.members
    try:
        with processes.alone():
            for member in members:
                processes.start(member)
        state = processes.wait_until_ready(members, SECONDS_TO_START)
        assert set(state.values()) == {None}, state
        yield processes
    finally:
        assert not processes.stop(members)


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


def test_a_cluster_goes_on_from_the_data_of_0_1_0(cluster: Processes) -> None:
    found, takes_writes = asyncio.run(everything(cluster.config.path))
    assert found == EXPECTED
    assert takes_writes
    assert status_of_all(compare(cluster.config, protocol("white_box"), SECONDS_TO_START)) == "ok"
    for member in cluster.config.members:
        who, _, rest = (member.data / "identity").read_bytes().partition(b"\n")
        assert who == f"{cluster.config.name} {member.name}".encode()
        assert json.loads(rest.rpartition(b"checksum")[0])["cluster"]["app"] == "kv", (
            "adopted: from now on it is nobody else's"
        )
