"""A running cluster seen from outside: leaders, lag, rates and commits, from nodes that only answer like nodes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.errors import UsageError
from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime.admin import Admin
from amcast.runtime.config import Address
from amcast.runtime.latency import ClientNumbers, Latency
from amcast.runtime.seats import FILE, Agreed, Listed, place_of, written
from amcast.web.live import SeenClient, Watch, percentile


class StandIn:
    """What one node says."""

    def __init__(self, cluster: str, name: str) -> None:
        self.status: dict[str, object] = {"cluster": cluster, "id": name, "pid": 1, "role": "follower", "ballot": 1}
        self.status |= {"position": 100, "peers": {"g0/1": True, "g0/2": False}, "clients": 2, "uptime": 5.0}
        self.commits = 0
        self.ready: str | None = None
        self.chain, self.state, self.asked = "aa", "ff", list[int | None]()
        self.admin = Admin(lambda: self.status, lambda: self.ready, self.metrics, fingerprint=self.fingerprint)

    async def fingerprint(self, at: int | None) -> dict[str, object]:
        """As a node answers: it has a state at its end only."""
        self.asked.append(at)
        end = self.status["position"]
        here = end if at is None else at
        state = self.state if at == end else None
        return {"position": end, "link": here, "since": 0, "chain": self.chain, "state": state}

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


def test_hashes_are_compared_where_all_have_been(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        nodes[1].status["position"] = 60
        await watch.look()
        agreed = {"position": 59, "agree": 3, "differ": ()}
        assert watch.document()["groups"][0]["agreement"] == agreed  # type: ignore[index]
        assert all(node.asked == [59] for node in nodes), "not at the end of any: there it would hash its state"
        nodes[2].chain = "bb"
        for _ in range(2):
            await watch.look()
        assert watch.document()["groups"][0]["agreement"] == {**agreed, "agree": 2, "differ": ("g0/2",)}  # type: ignore[index]
        said = "g0: g0/2 did not apply the same as the others, up to position 59"
        assert [item["text"] for item in watch.news] == [said], "told once"
        for node in nodes[1:]:
            await node.admin.stop()
        await watch.look()
        assert watch.document()["groups"][0]["agreement"] is None, "one alone says nothing"  # type: ignore[index]

    watched(tmp_path, scenario)


def test_states_are_compared_for_this_page_only(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        await watch.look()
        assert json.loads((await watch.states({"token": watch.token}))[1]) == [
            {"group": "g0", "of": 3, "position": 100, "agree": 3, "differ": []}
        ]
        nodes[0].state = "00"
        ((found,),) = [json.loads((await watch.states({"token": watch.token}))[1])]
        assert (found["agree"], found["differ"]) == (2, ["g0/0"])
        for query in ({}, {"token": "0"}):
            with pytest.raises(UsageError, match="token of this page"):
                await watch.states(query)

    watched(tmp_path, scenario)


def test_who_led_when_and_who_became_a_member(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        await watch.look()
        nodes[1].status |= {"guests": {"g0/3": 40}}
        await nodes[0].admin.stop()
        await watch.look()
        nodes[1].status |= {"leads": True, "ballot": 2, "guests": {}}
        began = watch.config.group(0)
        places = (*map(place_of, began[1:]), msgspec.structs.replace(place_of(began[0]), seat=3))
        agreed = Agreed(watch.config.name, (Listed(0, 1, True, places),))
        (watch.config.path.parent / FILE).write_bytes(written(agreed))
        await watch.look()
        document = watch.document()
        (group,) = document["groups"]  # type: ignore[misc]
        assert group["led"] == ["g0/0", None, "g0/1"]
        assert [row["id"] for row in document["nodes"]] == ["g0/1", "g0/2", "g0/3"]  # type: ignore[attr-defined]
        assert [item["text"] for item in watch.news] == [
            "g0/0 does not answer",
            "g0/3 learns, to become a member of g0",
            "g0/3 is a member now",
            "g0/0 is no member any more",
            "g0/1 leads g0 instead of g0/0, ballot 2",
        ]

    watched(tmp_path, scenario)


def test_clients_tell_how_long_things_take(tmp_path: Path) -> None:
    async def scenario(watch: Watch, nodes: list[StandIn]) -> None:
        clock = [10.0]
        watch.clock = lambda: clock[0]
        ours, other = (ClientNumbers(name, "dev", Address("127.0.0.1", 0)) for name in (watch.config.name, "other"))
        commands = Latency("amcast_command_seconds", "…")
        ours.latencies.append(commands)
        for numbers in (ours, other):
            numbers.multicasts.add(900_000_000, 1000)  # long before anybody looked
            await numbers.start()
            assert numbers.address is not None
            watch.clients.append(SeenClient(numbers.address))
        await watch.look()
        assert [client.row()["multicast_p50"] for client in watch.clients] == [None, None]
        ours.multicasts.add(15_000_000, 8)
        clock[0] += 2
        await watch.look()
        row, stranger = (client.row() for client in watch.clients)
        assert (row["multicasts"], row["multicast_p50"]) == (4, pytest.approx(0.015))
        assert row["p99"] == [None, pytest.approx(0.0199)] and row["answers"] is True
        assert stranger["answers"] is False and stranger["p99"] == [None, None], "a client of another cluster"
        commands.add(3_000_000, 100)
        clock[0] += 2
        await watch.look()
        assert watch.clients[0].row()["p50"] == [None, pytest.approx(0.015), pytest.approx(0.0035)], (
            "what its users see"
        )
        await ours.stop()
        clock[0] += 2
        await watch.look()
        assert watch.clients[0].row()["answers"] is False
        await other.stop()

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
