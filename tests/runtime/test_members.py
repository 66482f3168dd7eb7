"""Members change: what a leader refuses, what everybody is told, and what files say of it."""

import asyncio
import io
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.msgpack import decode, encode
from tests.pace import allow
from tests.runtime.nodes import Deaf, cluster, multicast_works, running, until

from amcast.core.application import Delivery
from amcast.errors import AmcastError, Refused, UsageError
from amcast.local.membership import lines_about
from amcast.protocols import protocol
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.frames import LARGEST_HELLO, MEMBERS, WELCOME, Change, Welcome
from amcast.runtime.framing import frame
from amcast.runtime.log import Log
from amcast.runtime.machine import Files
from amcast.runtime.membership import CHANGER
from amcast.runtime.node import Node
from amcast.runtime.seats import (
    FILE,
    LATER_SEATS,
    Place,
    about_of,
    agreed_of,
    agreed_on,
    current,
    lists_of,
    merged,
    place_of,
    read_agreed,
    seated,
    written,
)
from amcast.service import connect_sync

WHITE_BOX = protocol("white_box")
ALL = (0, 1, 2)


def asked(config: ClusterConfig, change: Change, to: int = 0, name: str = "dev") -> AmcastError | None:
    """Ask a replica for a change; return why not."""

    async def ask() -> AmcastError | None:
        async with Client(config, WHITE_BOX, name) as client:
            try:
                await client.change_members(to, change, allow(20.0))
            except AmcastError as error:
                return error
        return None

    return asyncio.run(ask())


def asked_leader(
    config: ClusterConfig, nodes: dict[str, Node], change: Change, name: str = "dev"
) -> AmcastError | None:
    """Ask whoever leads: on a busy machine that may change, before the question and while it is on its way."""
    answers: list[AmcastError | None] = []

    def settled() -> bool:
        for member in config.group(0):
            if member.name in nodes and leads(nodes, member.name):
                answers.append(asked(config, change, member.rank, name))
                return "does not lead" not in str(answers[-1])
        return False

    assert until(settled), answers
    return answers[-1]


def change_to(config: ClusterConfig, *seats: int, epoch: int = 0, about: bytes | None = None) -> Change:
    members = [member for member in config.group(0) if member.rank in seats]
    return Change(0, 0, epoch, seats, about_of(members) if about is None else about)


def leads(nodes: dict[str, Node], name: str) -> bool:
    return bool(nodes[name].status()["leads"])


def test_what_a_leader_refuses(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    twice = about_of([config.members[0], replace(config.members[0], rank=1), config.members[2]])
    far = about_of(
        [config.members[0], replace(config.members[1], peer=replace(config.members[1].peer, host="10.0.0.1"))]
    )
    cases = [
        (change_to(config), "g0 would have no member"),
        (replace_seats(change_to(config, 0, 1), (1, 0)), "expected increasing numbers below 32"),
        (replace_seats(change_to(config, 0, 1), (0, 40)), "expected increasing numbers below 32"),
        (change_to(config, 0, 1, about=b""), "it does not say where all members are"),
        (change_to(config, 0, 1, about=b"\xff"), "it does not say where all members are"),
        (change_to(config, *ALL, about=twice), "give each its own port"),
        (change_to(config, 0, 1, about=far), "plaintext is for loopback only"),
        (Change(0, 2, 0, (0, 1), b""), "the next group is g1"),
    ]
    with running(config) as nodes:
        for change, expected in cases:
            error = asked_leader(config, nodes, change)
            assert isinstance(error, Refused) and expected in str(error), error
        follower = next(rank for rank in ALL if not leads(nodes, f"g0/{rank}"))
        error = asked(config, change_to(config, 0, 1, about=b""), to=follower)
        assert not isinstance(error, Refused) and f"g0/{follower} does not lead g0" in str(error)
        error = asked_leader(config, nodes, change_to(config, 0, 1, epoch=3))
        assert not isinstance(error, Refused) and "has not got to that yet" in str(error)
        places = tuple([place_of(member) for member in config.members])
        stranger = (*places, Place(3, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"))
        error = asked_leader(config, nodes, Change(0, 0, 0, (0, 1, 2, 3), encode(stranger)))
        assert not isinstance(error, Refused) and "g0/3 is not there" in str(error)
        assert {node.engine.process.epoch() for node in nodes.values()} == {0}  # type: ignore[attr-defined]
        assert multicast_works(config)


def replace_seats(change: Change, seats: tuple[int, ...]) -> Change:
    return Change(change.id, change.group, change.from_epoch, seats, change.about)


def test_only_who_may_operate_changes_members(tmp_path: Path) -> None:
    cluster(tmp_path)
    path = tmp_path / "cluster.toml"
    path.write_text(path.read_text() + '\n[clients.alice]\nread = ["*"]\nwrite = ["*"]\n')
    config = load_config(path)
    with running(config) as nodes:
        error = asked_leader(config, nodes, change_to(config, 0, 1), "alice")
        assert isinstance(error, Refused) and "alice may not change members" in str(error)
        assert nodes["g0/0"].config.lists == ()


def test_a_group_is_not_left_without_a_quorum(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with running(config, ["g0/0", "g0/1"]) as nodes:
        assert until(lambda: nodes["g0/0"].pulses.hears(1) and nodes["g0/1"].pulses.hears(0))
        error = asked_leader(config, nodes, change_to(config, 0, 2))
        assert not isinstance(error, Refused)
        assert "g0 would have no quorum: of 2 members nothing is heard of g0/2" in str(error)
        assert asked_leader(config, nodes, change_to(config, 0, 1)) is None, "the one that is lost may go"
        assert until(lambda: nodes["g0/1"].config.lists and nodes["g0/1"].config.lists[0][3])
        assert multicast_works(config)


def test_a_change_is_agreed_once_and_everybody_knows(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    change = change_to(config, 0, 1)
    with running(config) as nodes, connect_sync(config.path, deadline=allow(20.0)) as client:
        client.multicast(["g0", "g1"], b"before")
        assert asked_leader(config, nodes, change) is None
        assert until(lambda: all(node.config.lists and node.config.lists[0][3] for node in nodes.values()))
        for name, node in nodes.items():
            assert [member.name for member in node.config.group(0)] == ["g0/0", "g0/1"], name
        assert asked_leader(config, nodes, change) is None, "it was asked for before"
        error = asked_leader(config, nodes, change_to(config, 0, 2))
        assert isinstance(error, Refused) and "have changed meanwhile: now g0/0, g0/1" in str(error)
        error = asked_leader(config, nodes, change_to(config, *ALL, epoch=1))
        assert isinstance(error, Refused) and "g0/2 was a member before" in str(error)
        assert nodes["g0/0"].status()["epoch"] == 1
        assert "removed: its group is g0/0, g0/1 now" in str(nodes["g0/2"].status()["unready"])
        client.multicast(["g0", "g1"], b"after")
        assert until(lambda: [member.name for member in client._client.config.group(0)] == ["g0/0", "g0/1"])
        seen = [one.sender for _, one in zip(range(3), client.deliveries("g0"), strict=False)]
        assert seen[1] == config.topology.name(CHANGER) and seen[0] == seen[2] == client._client.sender
        assert until(lambda: 2 not in nodes["g1/0"].links or 2 in nodes["g1/0"].incoming.current)
    assert until(lambda: all((member.data / FILE).exists() for member in config.members))
    again = current(load_config(config.path), WHITE_BOX)
    assert [member.name for member in again.group(0)] == ["g0/0", "g0/1"]
    with running(again, ["g0/0", "g0/1", "g0/2", "g1/0", "g1/1"]) as nodes:
        assert until(lambda: "removed" in str(nodes["g0/2"].status()["unready"]))
        assert multicast_works(again)

    text = config.path.read_text()
    config.path.write_text(text.replace(str(config.members[1].peer), "127.0.0.1:1"))
    node = Node(load_config(config.path), "g0/1", WHITE_BOX, log=Log("g0/1", stream=io.StringIO()))
    with pytest.raises(UsageError, match=r"g0/1 is at 127.0.0.1:1, .* but its group agreed on .*; put that back"):
        asyncio.run(node.run())


def test_what_is_agreed_on(tmp_path: Path) -> None:
    config = seated(cluster(tmp_path, groups=2), WHITE_BOX)
    assert config.params().spare == LATER_SEATS and config.identity == load_config(config.path).identity
    assert config.topology.name(6) == "g0/3" and config.topology.name(7) == "g1/3", "nobody else has another number"
    new = Place(3, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    first = (0, 1, (0, 1), True, about_of(config.members[:2]))
    places = (
        Place(1, *[str(a) for a in (config.members[1].peer, config.members[1].client, config.members[1].admin)]),
        new,
    )
    second = (0, 2, (1, 3), False, encode(places))
    found = agreed_on(config, (first, second))
    assert [member.name for member in found.members] == ["g0/1", "g0/3", "g1/0", "g1/1", "g1/2"]
    assert found.needed == {0, 1, 6, 3, 4, 5}, "those of the list before must vote"
    assert found.at(2) == config.members[2] and found.at(9) is None
    assert found.at(6) is not None and found.member("g0/3").data == tmp_path / "data" / "g0-3"
    done = agreed_on(found, merged(((*second[:3], True, second[4]),), found.lists))
    assert done.needed == {1, 6, 3, 4, 5} and done.began == config.members
    assert merged(found.lists, done.lists) == merged(done.lists, found.lists) == done.lists

    path = tmp_path / FILE
    path.write_bytes(written(agreed_of(done, done.lists, new, "g0/1")))
    agreed = read_agreed(path, config, Files())
    assert agreed is not None and lists_of(agreed) == done.lists and agreed.joins == new
    assert current(load_config(config.path), WHITE_BOX).lists == done.lists
    with pytest.raises(UsageError, match="expected other"):
        read_agreed(path, replace(config, name="other"), Files())
    path.write_bytes(path.read_bytes().replace(b"127.0.0.1:1", b"127.0.0.1:9"))
    assert read_agreed(path, config, Files()) is None, "it is damaged, and nodes know what was in it"


def test_a_replica_that_is_not_known_cannot_start(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with pytest.raises(UsageError, match="no replica 'g0/3' in"):
        Node(config, "g0/3", WHITE_BOX)


def test_a_client_that_comes_later_finds_the_members(tmp_path: Path) -> None:
    """All that it knows is cluster.toml."""
    config = cluster(tmp_path)
    with running(config) as nodes:
        assert asked_leader(config, nodes, change_to(config, 0, 1)) is None
        assert until(lambda: nodes["g0/1"].config.lists and nodes["g0/1"].config.lists[0][3])

        async def main() -> list[str]:
            async with Client(config, WHITE_BOX, "dev", allow(20.0)) as client:
                await client.multicast(["g0"], b"payload")
                return [member.name for member in client.config.group(0)]

        assert asyncio.run(main()) == ["g0/0", "g0/1"]


def test_a_client_comes_after_many_changes(tmp_path: Path) -> None:
    """It is told of all of them together with the greeting: more than a greeting has."""
    config = cluster(tmp_path)
    lists = tuple([(0, epoch, ALL, True, about_of(config.group(0))) for epoch in range(1, 2 * LATER_SEATS)])
    welcome, members = frame(WELCOME, encode(Welcome("g0/0", 1, 0))), frame(MEMBERS, encode(lists))
    assert len(members) > LARGEST_HELLO

    async def main() -> int:
        async with Client(config, WHITE_BOX, "dev") as client:
            connection = client._connection(0)
            assert connection is not None
            connection.connection_made(Deaf())
            connection.data_received(welcome + members)
            return len(client.config.lists)

    assert asyncio.run(main()) == len(lists)


def test_a_replacement_that_cannot_go_on_is_not_advised(tmp_path: Path) -> None:
    """Another one has taken the place meanwhile."""
    config = seated(cluster(tmp_path), WHITE_BOX)
    joins = Place(3, "127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9")
    left = agreed_on(config, ((0, 1, (0, 2), True, about_of([config.members[0], config.members[2]])),))
    path = config.members[0].data.with_name("g0-3") / FILE
    path.parent.mkdir()
    path.write_bytes(written(agreed_of(config, (), joins, "g0/1")))
    (line,) = [line for line in lines_about(config) if line.startswith("under way: g0/3 ")]
    assert "replace" in line and "g0/1' goes on" in line
    (line,) = [line for line in lines_about(left) if line.startswith("under way: g0/3 ")]
    assert "g0/1, whose place it was to take, is none any more, " in line and "g0/3' undoes it" in line


class Counts:
    """Answers with how many messages it has executed, and says where they were."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []

    def apply(self, delivery: Delivery) -> bytes:
        self.seen.append((delivery.position, delivery.payload))
        return b"%d" % len(self.seen)

    def snapshot(self) -> bytes:
        return encode(self.seen)

    def restore(self, state: bytes) -> None:
        self.seen = decode(state, type=list[tuple[int, bytes]])


def test_the_application_sees_no_change(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    apps: list[Counts] = []

    def made(group: int, groups: int) -> Counts:
        apps.append(Counts())
        return apps[-1]

    with running(config, app=made) as nodes, connect_sync(config.path, deadline=allow(20.0)) as client:
        assert client.multicast(["g0"], b"before") == {"g0": b"1"}
        assert asked_leader(config, nodes, change_to(config, 0, 1)) is None
        assert until(lambda: nodes["g0/1"].config.lists and nodes["g0/1"].config.lists[0][3])
        assert client.multicast(["g0"], b"after") == {"g0": b"2"}
        assert until(lambda: [(0, b"before"), (2, b"after")] in [app.seen for app in apps])
        assert until(lambda: nodes["g0/1"].history.end == 3)
