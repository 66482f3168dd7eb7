"""A running cluster seen from outside: leaders, lag, rates and commits, from nodes that only answer like nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime.admin import Admin
from amcast.web.live import Watch, percentile


class StandIn:
    """What one node says."""

    def __init__(self, cluster: str, name: str) -> None:
        self.status: dict[str, object] = {"cluster": cluster, "id": name, "pid": 1, "role": "follower", "ballot": 1}
        self.status |= {"position": 100, "peers": {"g0/1": True, "g0/2": False}, "clients": 2, "uptime": 5.0}
        self.commits = 0
        self.ready: str | None = None
        self.admin = Admin(lambda: self.status, lambda: self.ready, self.metrics)

    def metrics(self) -> bytes:
        return (
            f"# TYPE amcast_requests counter\namcast_requests_total {self.status['position']}\n"
            f'# TYPE amcast_commit_seconds histogram\namcast_commit_seconds_bucket{{le="0.001"}} 0\n'
            f'amcast_commit_seconds_bucket{{le="0.01"}} {self.commits}\n'
            f'amcast_commit_seconds_bucket{{le="+Inf"}} {self.commits}\n'
        ).encode()


def watched(folder: Path, scenario: Callable[[Watch, list[StandIn]], Awaitable[None]]) -> None:
    config = create_cluster(folder, protocol("white_box"), 1, 3, "log", secure=False)

    async def main() -> None:
        nodes = [StandIn(config.name, member.name) for member in config.members]
        nodes[0].status |= {"role": "leader", "leads": True}
        for node, member in zip(nodes, config.members, strict=True):
            await node.admin.start(member.admin)
        try:
            await scenario(Watch(config), nodes)
        finally:
            for node in nodes:
                await node.admin.stop()

    asyncio.run(main())


def rows(watch: Watch) -> Any:
    return watch.document()["nodes"]


def test_lag_rates_and_commits(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        clock = [10.0]
        watch.clock = lambda: clock[0]
        await watch.look()
        assert [row["deliveries"] for row in rows(watch)] == [None] * 3 and rows(watch)[0]["commit_p50"] is None
        clock[0] += 2
        nodes[0].status["position"], nodes[1].status["position"] = 300, 160
        nodes[0].commits = 8
        nodes[2].ready = "joining"
        await watch.look()
        first, second, third = rows(watch)
        assert (first["lag"], second["lag"], third["lag"]) == (0, 140, 200)
        assert (first["deliveries"], second["deliveries"], third["deliveries"]) == (100, 30, 0)
        assert first["requests"] == 100 and first["peers"] == [1, 2]
        assert first["commit_p50"] == pytest.approx(0.0055) and second["commit_p50"] is None
        assert (first["state"], third["state"]) == ("ready", "joining")
        (group,) = watch.document()["groups"]  # type: ignore[misc]
        assert group["leader"] == "g0/0" and group["rate"] == [None, 100] and group["lag"] == [0, 200]

    watched(tmp_path, scenario)


def test_changes_are_told_once(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        for _ in range(3):
            await watch.look()
        assert not watch.news, "nothing changed"
        nodes[1].status |= {"role": "leader", "leads": True, "ballot": 2}  # and g0/0 does not know it yet
        for _ in range(2):
            await watch.look()
        assert [item["text"] for item in watch.news] == ["g0/1 leads g0 instead of g0/0, ballot 2"]
        await nodes[0].admin.stop()
        for _ in range(2):
            await watch.look()
        assert [item["text"] for item in watch.news][1:] == ["g0/0 does not answer"]
        assert rows(watch)[0] == {"id": "g0/0", "group": "g0", "state": "no answer"}
        await nodes[0].admin.start(watch.nodes[0].member.admin)
        nodes[0].status |= {"pid": 2, "position": 0}
        await watch.look()
        assert [item["text"] for item in watch.news][2:] == ["g0/0 answers again"]
        assert rows(watch)[0]["deliveries"] is None, "a new process has no rate yet"

    watched(tmp_path, scenario)


def test_somebody_else_at_the_address_is_not_the_node(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        nodes[1].status["cluster"] = "other"
        nodes[2].status = {"role": ["no"]}
        await watch.look()
        assert [row["state"] for row in rows(watch)] == ["ready", "no answer", "no answer"]

    watched(tmp_path, scenario)


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ({}, 0.5, None),
        ({0.1: 0.0, float("inf"): 0.0}, 0.5, None),
        ({0.1: 10.0, 0.2: 10.0, float("inf"): 10.0}, 0.5, 0.05),
        ({0.1: 0.0, 0.2: 10.0, float("inf"): 10.0}, 0.5, 0.15),
        ({0.1: 5.0, 0.2: 9.0, float("inf"): 10.0}, 0.99, 0.2),
    ],
)
def test_percentiles_lie_within_their_bucket(buckets: dict[float, float], share: float, expected: float | None) -> None:
    assert percentile(buckets, share) == (None if expected is None else pytest.approx(expected))
