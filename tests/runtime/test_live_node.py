"""Two groups in this process: what a client is told, what /metrics and /readyz say, beside what really happened."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import cluster, running, until
from prometheus_client.parser import text_string_to_metric_families
from tests.pace import allow

from amcast.cli import run
from amcast.core.application import Delivery
from amcast.errors import MulticastFailed, OutcomeUnknown
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Condition
from amcast.runtime.node import Node
from amcast.service import connect, connect_sync

Live = tuple[ClusterConfig, dict[str, Node]]


class Echo:
    """Answers with its group and what it was told."""

    def __init__(self, group: int, groups: int) -> None:
        pass

    def apply(self, delivery: Delivery) -> bytes:
        return delivery.group.encode() + b" has " + delivery.payload

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    config = cluster(tmp_path, groups=2, replicas=1)
    with running(config, app=Echo) as nodes:
        yield config, nodes


def asked(node: Node, path: str) -> tuple[int, str]:
    """Status and text of a page of a node's admin listener."""
    try:
        with urllib.request.urlopen(f"http://{node.me.admin}{path}", timeout=allow(20)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(node: Node) -> dict[str, float]:
    """The samples of /metrics, by name and labels."""
    families = text_string_to_metric_families(asked(node, "/metrics")[1])
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


def test_each_group_answers_for_itself(live: Live) -> None:
    with connect_sync(live[0].path, "dev", deadline=allow(20)) as client:
        for dest in (["g0"], ["g1"], ["g1", "g0"]):
            expected = {group: f"{group} has it".encode() for group in sorted(dest)}
            assert client.multicast(dest, b"it") == expected


def test_metrics_say_what_was_asked_and_delivered(live: Live) -> None:
    config, nodes = live
    to = {"g0": 5, "g1": 3, "both": 4}
    with connect_sync(config.path, "dev", deadline=allow(20)) as client:
        for name, count in to.items():
            for _ in range(count):
                client.multicast(["g0", "g1"] if name == "both" else [name], b"x")
        for group, peer in (("g0", "g1"), ("g1", "g0")):
            node = nodes[f"{group}/0"]
            count = to[group] + to["both"]
            found = numbers(node)
            assert node.history.end == count
            assert found["amcast_deliveries_total"] == found["amcast_position"] == count
            assert count <= found["amcast_requests_total"] <= 2 * count, "a client may ask again"
            assert found["amcast_messages_received_total"] == node.metrics.messages_in >= to["both"]
            assert found["amcast_elections_won_total"] == 1
            assert found["amcast_clients"] == 1
            assert found[f"amcast_connected {peer}/0"] == 1
            assert found["amcast_commit_seconds_count"] > 0
    for node in nodes.values():
        assert until(lambda node=node: numbers(node)["amcast_clients"] == 0)


def test_ready_only_with_a_quorum(tmp_path: Path) -> None:
    config = cluster(tmp_path, replicas=3)
    with running(config, ["g0/0"]) as nodes:
        assert asked(nodes["g0/0"], "/livez") == (200, "ok\n")
        assert asked(nodes["g0/0"], "/readyz") == (503, "g0 has no quorum: nothing is heard of g0/1, g0/2\n")
    with running(config) as nodes:
        for node in nodes.values():
            assert until(lambda node=node: asked(node, "/readyz") == (200, "ok\n"))


def test_replicas_say_how_they_are(tmp_path: Path) -> None:
    """Those that run: their clocks, and why they are of no use. The others say nothing, and nobody waits for them."""
    config = cluster(tmp_path / "c")

    async def conditions(enough: Callable[[dict[str, Condition]], bool]) -> dict[str, Condition]:
        async with connect(config.path, "dev") as client:
            for _ in range(100):
                found = await client.conditions(allow(0.2))
                if enough(found):
                    break
            return found

    before = time.time_ns() // 1_000_000
    with running(config, ["g0/0"]):
        found = asyncio.run(conditions(lambda found: bool(found)))
        assert list(found) == ["g0/0"] and "no quorum" in (found["g0/0"].unready or "")
        assert before <= found["g0/0"].wall_ms <= time.time_ns() // 1_000_000
    with running(config, ["g0/0", "g0/2"]):
        found = asyncio.run(
            conditions(lambda found: all(one.unready is None for one in found.values()) and len(found) > 1)
        )
        assert list(found) == ["g0/0", "g0/2"] and found["g0/2"].unready is None


def test_who_stops_asking_how_replicas_are_leaves_nothing_behind(tmp_path: Path) -> None:
    """A gateway that was told to stop complained about answers that nobody waited for any more."""
    config = cluster(tmp_path / "c")

    async def asked_and_cancelled() -> list[object]:
        async with connect(config.path, "dev") as client:
            asking = asyncio.create_task(client.conditions(allow(20)))
            await asyncio.sleep(0)
            futures = [future for connection in client._connections.values() for future in connection.asked.values()]
            assert len(futures) == len(config.members)
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled() and all(future.cancelled() for future in futures)
            await asyncio.sleep(0)
            return [connection.asked for connection in client._connections.values() if connection.asked]

    assert asyncio.run(asked_and_cancelled()) == []


def test_a_client_without_asyncio_hides_no_error(live: Live) -> None:
    config, nodes = live
    with connect_sync(config.path, "dev", deadline=allow(20)) as client:
        with pytest.raises(MulticastFailed, match="unknown group 'g7'"):
            client.multicast(["g7"], b"x")
        with pytest.raises(MulticastFailed, match="expected at most"):
            client.multicast(["g0"], b"x" * (config.largest_message + 1))
        with pytest.raises(MulticastFailed, match="unknown group 'g7'"):
            client.rows("g7", 0)
        with pytest.raises(MulticastFailed, match="unknown group 'g7'"):
            next(client.deliveries("g7"))
        assert client.multicast_batches([((0,), [b"a", b"b"]), ((0, 1), [b"c"])]) == 3
        assert [node.history.end for node in nodes.values()] == [3, 1]
    for node in nodes.values():
        node._loop.call_soon_threadsafe(node.stop)
    assert until(lambda: not any(node.ready for node in nodes.values()))
    with connect_sync(config.path, "dev", deadline=allow(20)) as client:
        with pytest.raises(MulticastFailed, match=r"nobody of g0 can be reached: g0/0 at .* refused"):
            client.multicast(["g0"], b"x")
        with pytest.raises(MulticastFailed, match="nobody of g0 can be reached"):
            client.multicast_batches([((0,), [b"a", b"b"])])


def test_a_node_that_cannot_write_ends_with_an_error(tmp_path: Path) -> None:
    """Not as one that was told to stop: whoever started it must see that it failed."""
    config = cluster(tmp_path, replicas=1)
    with pytest.raises(OSError, match="No space left"), running(config) as nodes:
        node = nodes["g0/0"]

        def full(blocks: list[bytes]) -> None:
            raise OSError(28, "No space left on device")

        node.history.write = full
        with connect_sync(config.path, "dev", deadline=1) as client, pytest.raises(OutcomeUnknown):
            client.multicast(["g0"], b"x")


def test_the_exit_codes_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path, replicas=1)
    (config.members[0].data / "history").touch()  # a folder cannot be made there
    for options, code, complaint in (
        ("g0/7", 2, "no replica 'g0/7'"),
        ("g0/0 --level loud", 2, "--level loud: expected one of debug"),
        ("g0/0", 1, "g0/0 stopped: "),
    ):
        assert run(["node", str(config.path), *options.split()]) == code, options
        out, err = capsys.readouterr()
        assert complaint in err.splitlines()[-1] and "Traceback" not in out + err, err
