"""A group comes while the cluster runs: what is refused, what everybody is told, and what files say of it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pace import allow
from tests.runtime.nodes import SESSION, Raw, cluster, logged, running, until
from tests.runtime.test_members import asked, asked_leader, leads

from amcast.core.order import BOTTOM
from amcast.core.requests import FOUND, Multicast
from amcast.core.topology import Topology, message_id
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError, MulticastFailed, Refused, UsageError
from amcast.local.files import free_ports
from amcast.protocols import protocol
from amcast.protocols.white_box.configurations import founding_of, founding_payload
from amcast.runtime import frames
from amcast.runtime.client import Client
from amcast.runtime.config import ADDRESSES, LATER_GROUPS, ClusterConfig, Member, load_config
from amcast.runtime.cuts import groups_of, mark_number
from amcast.runtime.formats import RAISER, raise_in
from amcast.runtime.frames import Change
from amcast.runtime.framing import frame
from amcast.runtime.identity import Described
from amcast.runtime.links import hello_of
from amcast.runtime.node import Node
from amcast.runtime.seats import (
    FILE,
    LATER_SEATS,
    Place,
    about_of,
    agreed_of,
    agreed_on,
    current,
    member_at,
    seated,
    written,
)
from amcast.runtime.storage import Storage
from amcast.runtime.versions import number_to_all
from amcast.service import connect_sync

WHITE_BOX = protocol("white_box")


def founders(config: ClusterConfig, group: int, size: int = 3) -> list[Member]:
    """Make the folders of a group that is to come, and return its members."""
    config = seated(config, WHITE_BOX)
    taken = {getattr(member, key).port for member in config.members for key in ADDRESSES}
    first = free_ports(3 * size, None)
    while not taken.isdisjoint(range(first, first + 3 * size)):  # nobody listens there yet
        first = free_ports(3 * size, None)
    places = [Place(i, *[f"127.0.0.1:{first + 3 * i + offset}" for offset in range(3)]) for i in range(size)]
    members = [member_at(config, group, place) for place in places]
    row = (group, 0, tuple(range(size)), True, about_of(members))
    for member in members:
        storage = Storage(member.data, f"{config.name} {member.name}")
        storage.describe(Described(cluster=config.identity, app_version=0).encoded())
        storage.close()
        (member.data / FILE).write_bytes(written(agreed_of(config, (*config.lists, row))))
    return members


def founding(members: list[Member]) -> Change:
    return Change(0, members[0].group, 0, tuple(range(len(members))), about_of(members))


@contextmanager
def two_groups_and_one_more(folder: Path) -> Iterator[tuple[ClusterConfig, list[Member], dict[str, Node]]]:
    """Two groups that run, and the replicas of a third, that is no part of the cluster yet."""
    config = cluster(folder, groups=2)
    members = founders(config, 2)
    with running(config, [member.name for member in (*config.members, *members)]) as nodes:
        yield config, members, nodes


def added(config: ClusterConfig, members: list[Member], nodes: dict[str, Node]) -> None:
    """Have the group added, and wait until all know."""

    def done() -> bool:
        return asked_leader(config, nodes, founding(members)) is None

    assert until(done), asked_leader(config, nodes, founding(members))
    assert until(lambda: all(node.config.groups == (0, 1, 2) for node in nodes.values()))


def test_what_the_first_group_refuses(tmp_path: Path) -> None:
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        change = founding(members)
        twice = about_of([members[0], replace(members[0], rank=1), members[2]])
        elsewhere = about_of([members[0], members[1], replace(config.members[0], rank=2)])
        cases = [
            (replace_change(change, group=3), "the next group is g2: groups are numbered without gaps"),
            (replace_change(change, group=1), "g0/{} is not of g1"),
            (replace_change(change, seats=()), "expected 0, 1, … without gaps"),
            (replace_change(change, seats=(0, 2, 3)), "expected 0, 1, … without gaps"),
            (replace_change(change, about=b""), "it does not say where all members are"),
            (replace_change(change, about=twice), "give each its own port"),
            (replace_change(change, about=elsewhere), "give each its own port"),
        ]
        for one, expected in cases:
            error = asked_leader(config, nodes, one)
            assert isinstance(error, Refused) and expected.rpartition("{}")[2] in str(error), error
        follower = next(rank for rank in range(3) if not leads(nodes, f"g0/{rank}"))
        error = asked(config, change, to=follower)
        assert not isinstance(error, Refused) and f"g0/{follower} does not lead g0" in str(error)
        error = asked(config, change, to=3)
        assert isinstance(error, Refused) and "g1/0 is not of g2" in str(error)
        assert {node.config.groups for name, node in nodes.items() if name[1] != "2"} == {(0, 1)}


def replace_change(
    change: Change, group: int | None = None, seats: tuple[int, ...] | None = None, about: bytes | None = None
) -> Change:
    return Change(
        change.id,
        change.group if group is None else group,
        change.from_epoch,
        change.seats if seats is None else seats,
        change.about if about is None else about,
    )


def test_a_group_is_added_once_and_everybody_knows(tmp_path: Path) -> None:
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        with connect_sync(config.path, deadline=allow(20.0)) as client:
            assert set(client.multicast(["g0", "g1"], b"before")) == {"g0", "g1"}
            with pytest.raises(MulticastFailed, match="unknown group 'g2': expected one of g0, g1"):
                client.multicast(["g2"], b"early")
            added(config, members, nodes)
            assert asked_leader(config, nodes, founding(members)) is None, "it was asked for before"
            others = [replace(member, peer=replace(member.peer, port=1)) for member in members]
            error = asked_leader(config, nodes, founding(others))
            assert isinstance(error, Refused) and "g2 is there already, at 127.0.0.1" in str(error)
            assert "the next group is g3" in str(error)
            assert until(lambda: client._client.config.groups == (0, 1, 2)), "it was connected before"
            assert client._client.groups == 2, "what applications divide among groups stays where it is"
            for dest in (["g2"], ["g0", "g2"], ["g0", "g1", "g2"], ["g1", "g2"]):
                assert set(client.multicast(dest, b"payload")) == set(dest)
            assert [one.payload for _, one in zip(range(4), client.deliveries("g2"), strict=False)] == [b"payload"] * 4
            with pytest.raises(MulticastFailed, match="unknown group 'g3'"):
                client.multicast(["g3"], b"never")
        assert nodes["g1/0"].status()["groups"] == nodes["g2/0"].status()["groups"] == ["g0", "g1", "g2"]
    assert until(lambda: all((member.data / FILE).exists() for member in (*config.members, *members)))
    again = current(load_config(config.path), WHITE_BOX)
    assert again.groups == (0, 1, 2) and [member.name for member in again.group(2)] == ["g2/0", "g2/1", "g2/2"]
    left = [member.name for member in again.members if member.rank < 2]
    with running(again, left) as nodes, connect_sync(config.path, deadline=allow(30.0)) as client:
        assert set(client.multicast(["g0", "g1", "g2"], b"after")) == {"g0", "g1", "g2"}
        assert all(node.config.groups == (0, 1, 2) for node in nodes.values())


def test_a_client_that_comes_later_finds_the_group(tmp_path: Path) -> None:
    """All that it knows is cluster.toml."""
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        added(config, members, nodes)

        async def main() -> set[str]:
            async with Client(config, WHITE_BOX, "dev", allow(20.0)) as client:
                await client.multicast(["g0"], b"payload")
                return set(await client.multicast(["g0", "g2"], b"payload"))

        assert asyncio.run(main()) == {"g0", "g2"}


def test_a_group_that_is_not_added_orders_nothing(tmp_path: Path) -> None:
    """Its replicas would have other groups wait for a group that may never be one."""
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        assert until(lambda: any(leads(nodes, member.name) for member in members))
        process = next(node.engine.process for name, node in nodes.items() if name[1] == "2" and leads(nodes, name))
        whole = agreed_on(seated(config, WHITE_BOX), ((2, 0, (0, 1, 2), True, about_of(members)),))

        async def main() -> None:
            async with Client(whole, WHITE_BOX, "dev", 1.5) as client:
                await client.multicast(["g0", "g2"], b"early")

        with pytest.raises(AmcastError):
            asyncio.run(main())
        assert process.idle() and not process.belongs  # type: ignore[attr-defined]
        assert nodes["g0/0"].history.end == 0
        with connect_sync(config.path, deadline=allow(20.0)) as client:
            client.multicast(["g0", "g1"], b"not held up")


def test_not_while_a_group_has_no_quorum(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    members = founders(config, 2)
    with running(config, ["g0/0", "g0/1", "g0/2", "g1/0", "g2/0", "g2/1", "g2/2"]) as nodes:

        def answer(change: Change) -> str:
            error = asked_leader(config, nodes, change)
            assert not isinstance(error, Refused), "it may do later"
            return str(error)

        assert until(lambda: "g1 has no quorum" in answer(founding(members)))
        assert nodes["g0/0"].config.groups == (0, 1)


def test_not_before_all_its_replicas_are_there(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    members = founders(config, 1)
    with running(config, ["g0/0", "g0/1", "g0/2", "g1/0", "g1/1"]) as nodes:
        assert until(lambda: "g1/2 is not there" in str(asked_leader(config, nodes, founding(members))))
        elsewhere = [members[0], replace(members[1], peer=replace(members[1].peer, port=2)), members[2]]
        error = asked_leader(config, nodes, founding(elsewhere))
        assert f"g1/1 is at {members[1].peer}, not at 127.0.0.1:2" in str(error)
        assert nodes["g0/0"].config.groups == (0,)


def test_who_founded_the_group_elsewhere_is_not_let_in(tmp_path: Path) -> None:
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        added(config, members, nodes)
        node = nodes["g2/0"]
        hello = hello_of(node, nodes["g0/0"].me)
        hello.boot, hello.at = 5, "127.0.0.1:1"
        raw = Raw(nodes["g0/0"].me.peer).send(frame(frames.HELLO, frames.encode(hello)))
        answer = raw.receive()
        assert answer is not None and b"not at 127.0.0.1:1: others founded g2" in answer[1]


def test_a_guest_is_parted_from_if_the_group_is_founded_by_others(tmp_path: Path) -> None:
    with two_groups_and_one_more(tmp_path) as (_, members, nodes):
        node, pid = nodes["g0/0"], members[0].pid
        assert until(lambda: pid in node.links and pid in node.incoming.current)
        others = [replace(member, peer=replace(member.peer, port=9)) for member in members]
        row = (2, 0, (0, 1, 2), True, about_of(others))
        before = node.links[pid]
        node._loop.call_soon_threadsafe(node.engine.process.learn_lists, node.now(), (row,))  # type: ignore[attr-defined]
        node._loop.call_soon_threadsafe(node.membership.look)
        assert until(lambda: pid in node.links and node.links[pid] is not before)
        assert node.links[pid].peer.peer.port == 9


def test_clients_cannot_add_groups_by_a_message() -> None:
    assert not Multicast(AppMessage(message_id(SESSION, 0), (0,), founding_payload(1, 3))).sound(17)


def test_what_founds_a_group() -> None:
    m = AppMessage(message_id(1, 0), (0,), founding_payload(2, 3, b"where"))
    found = founding_of(m)
    assert found is not None and (found.group, found.seats, found.about) == (2, (0, 1, 2), b"where")
    wrong = [
        AppMessage(m.mid, (0, 1), m.payload),
        AppMessage(m.mid, (1,), m.payload),
        AppMessage(m.mid, (0,), m.payload[:-1]),
        AppMessage(m.mid, (0,), m.payload + b"x"),
        AppMessage(m.mid, (0,), founding_payload(2, 0)),
        AppMessage(m.mid, (0,), FOUND),
        AppMessage(m.mid, (0,), b"payload"),
    ]
    assert [founding_of(one) for one in wrong] == [None] * len(wrong)


def test_numbers_stay_what_they_are(tmp_path: Path) -> None:
    """A cluster to which no group was added writes what it wrote before."""
    before = Topology((3, 3), later=LATER_SEATS)
    config = seated(cluster(tmp_path, groups=2), WHITE_BOX)
    topology = config.topology
    assert topology.names[: before.replicas] == before.names and topology.replicas_at_first == before.replicas
    assert topology.groups[:2] == before.groups and len(topology.groups) == 2 + LATER_GROUPS
    assert (
        config.groups == (0, 1)
        and config.size_at_first(1) == 3
        and config.identity == load_config(config.path).identity
    )
    assert number_to_all(config, 4) == 4
    members = founders(config, 2, size=5)
    more = agreed_on(config, ((2, 0, tuple(range(5)), True, about_of(members)),))
    assert more.groups == (0, 1, 2) and more.size_at_first(2) == 5 and more.began == config.members
    assert more.at(members[4].pid) == members[4] and members[4].pid in more.needed
    number = number_to_all(more, 4)
    assert number != 4 and raise_in(message_id(RAISER, number)) == 4, "to other groups it is another message"
    assert mark_number(77, config) == 77 and groups_of(77, config) == groups_of(77, more) == 2
    assert groups_of(mark_number(77, more), config) == 3
    may = [grant for grant in config.clients.values() if 17 in grant.write]
    assert may, "who may multicast to all groups, may to those that come later"


def test_a_snapshot_without_groups_that_came_says_nothing_of_them(tmp_path: Path) -> None:
    from amcast.core.process import Effects
    from amcast.protocols.white_box.records import RECORDS, Summary

    config = seated(cluster(tmp_path, groups=2), WHITE_BOX)
    process = WHITE_BOX.make(0, config.topology, config.params(), Effects())
    summary = next(RECORDS.read(process.snapshot()[0]).__iter__())  # type: ignore[attr-defined]
    assert isinstance(summary, Summary)
    assert summary.floors == (BOTTOM, BOTTOM) and len(summary.known_starts) == 6 + 2 * LATER_SEATS
    assert summary.lists == ()


def test_a_replica_of_a_group_that_is_not_there_cannot_start(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with pytest.raises(UsageError, match="no replica 'g1/0' in"):
        Node(config, "g1/0", WHITE_BOX)


def test_a_backup_is_of_all_groups_or_of_none(tmp_path: Path) -> None:
    """One that began before a group came is refused: it would have one part of a message to that group."""
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        added(config, members, nodes)
        node = nodes["g0/0"]
        assert node.cuts._other_groups(mark_number(1, node.config)) == ""
        assert "is of 2 groups, and there are 3" in node.cuts._other_groups(mark_number(1, config))


def test_the_log_says_who_came(tmp_path: Path) -> None:
    with two_groups_and_one_more(tmp_path) as (config, members, nodes):
        added(config, members, nodes)
        assert "g2/0, g2/1, g2/2" in logged(nodes["g1/1"])
