"""Members get a new release one by one; what it writes otherwise is written from one position of the order on."""

import asyncio
import io
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from librt.strings import BytesWriter
from nodes import Load, cluster, connected, logged, running, until
from tests.pace import allow

from amcast.apps.bank import Bank
from amcast.core.capabilities import Electing
from amcast.core.topology import message_id, sender_of, seq_of
from amcast.core.wire import AppMessage, Codec
from amcast.errors import AmcastError, MulticastFailed, WireError
from amcast.local.backup import take_backup
from amcast.local.files import create_cluster
from amcast.local.membership import Changing
from amcast.local.restore import restore_cluster
from amcast.local.status import line_about_formats
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.protocols.white_box.messages import Deliver
from amcast.protocols.white_box.records import RECORDS, Accepted
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig
from amcast.runtime.durability import NodeSnapshot, read_snapshot
from amcast.runtime.formats import RAISER, Formats, FormatsHost
from amcast.runtime.frames import OURS, Spoken
from amcast.runtime.identity import FORMAT
from amcast.runtime.log import Log
from amcast.runtime.node import Node
from amcast.runtime.seats import seated
from amcast.service import connect, connect_sync
from amcast.swarm.cluster.next_release import NEXT, next_release

NEW = NEXT.newest
ROW = next_release(protocol("white_box"))


# Layouts


def test_a_table_reads_all_layouts_and_writes_one() -> None:
    old, new = protocol("white_box").messages, ROW.messages
    message = Deliver(AppMessage(message_id(900, 1), (0,), b"word"), 1, 2, 3)
    before, after = Codec(old, 1), Codec(new, 1)
    assert before.at(FORMAT) is before, "there is nothing to choose"
    assert after.at(FORMAT).written([message]) == before.written([message]) == after.written([message])
    other = after.at(NEW).written([message])
    assert len(other) == len(before.written([message])) + 3
    assert after.read(other + before.written([message])) == [message, message]
    with pytest.raises(WireError, match="message type"):
        before.read(other)
    with pytest.raises(WireError, match="ends in 0, expected 4711"):
        after.read(other[:-2] + bytes(2))


def test_records_are_put_into_the_format_in_use_and_back() -> None:
    formats = formats_of(NEXT)
    w = BytesWriter()
    RECORDS.write(w, Accepted(AppMessage(message_id(900, 1), (0,), b"word"), 1, 2))
    record = w.getvalue()
    formats.use(FORMAT)
    assert formats.written([record]) == [record]
    formats.use(NEW)
    (other,) = formats.written([record])
    assert other != record and formats.read([other, record]) == [record, record]
    assert formats_of(OURS, protocol("white_box").records).written([other]) == [other], "nothing to choose"


# What is said


def formats_of(knows: Spoken, records: Codec | None = ROW.records) -> Formats:
    config = SimpleNamespace(members=[SimpleNamespace(pid=0), SimpleNamespace(pid=1), SimpleNamespace(pid=2)])
    host = SimpleNamespace(
        config=config,
        me=SimpleNamespace(name="g0/0", pid=0),
        protocol=SimpleNamespace(records=records),
        engine=SimpleNamespace(speak=lambda format: None),
        durability=SimpleNamespace(describe_format=lambda format: None),
    )
    return Formats(cast(FormatsHost, host), knows)


def test_who_can_take_part() -> None:
    formats = formats_of(Spoken(3, 4))
    formats.use(3)
    assert formats.greeted("c", Spoken(4, 5)) is None and formats.greeted("c", Spoken(3, 3)) is None
    follow = "run releases that follow on each other, or the same"
    assert formats.greeted("c", Spoken(5, 6)) == f"c knows formats 5 to 6, g0/0 3 to 4; {follow}"
    assert formats.greeted("c", Spoken(2, 2)) == f"c knows formats 2 to 2, g0/0 3 to 4; {follow}"

    def said(theirs: Spoken) -> str | None:
        return formats.member_greeted(1, "g0/1", theirs)

    for fine in (Spoken(3, 3), Spoken(3, 3, 3), Spoken(3, 4, 4), Spoken(2, 3)):
        assert said(fine) is None
    newer = "g0/1 knows formats 4 to 5, but g0/0 writes format 3; start g0/1 with an older amcast"
    assert said(Spoken(4, 5)) == newer
    assert (
        said(Spoken(3, 5, 5)) == "g0/0 knows formats 3 to 4, but g0/1 writes format 5; start g0/0 with a newer amcast"
    )
    formats.use(4)
    older = "g0/1 knows formats 3 to 3, but g0/0 writes format 4; start g0/1 with a newer amcast"
    assert said(Spoken(3, 3, 3)) == older and said(Spoken(3, 3)) == older
    assert said(Spoken(4, 5)) is None, "it has nothing of its own, and goes by us"
    formats.use(3)
    assert formats.used == 4


class Leads(Electing):
    def leads(self) -> bool:
        return True


class Follows(Electing):
    def leads(self) -> bool:
        return False


def test_when_it_is_time() -> None:
    formats = formats_of(Spoken(3, 4))
    host = cast(SimpleNamespace, formats._host)
    host.config.topology, host.config.groups = SimpleNamespace(sizes=(2, 1)), (0, 1)
    host.engine.process = SimpleNamespace(leads=lambda: True)
    formats.use(3)

    def due(**known: Spoken | None) -> int:
        for name, theirs in known.items():
            if theirs is None:
                formats.left(int(name[1]))
            else:
                assert formats.member_greeted(int(name[1]), name, theirs) is None
        host.engine.process = Leads.__new__(Leads)
        proposed = formats.proposal(formats._wait_until)
        assert proposed is None or (sender_of(proposed.m.mid), proposed.m.dest) == (RAISER, (0, 1))
        return seq_of(proposed.m.mid) if proposed is not None else 0

    assert due(p1=Spoken(3, 4)) == 0, "nobody knows of the third"
    assert due(p2=Spoken(3, 3)) == 0
    assert due(p2=Spoken(3, 4)) == 4 and formats.proposal(formats._wait_until - 1) is None, "it takes a while"
    assert due(p2=None) == 0 and due(p2=Spoken(3, 5)) == 4
    host.engine.process = SimpleNamespace(leads=lambda: True)
    assert formats.proposal(formats._wait_until) is None, "it has no leaders"
    host.engine.process = Follows.__new__(Follows)
    assert formats.proposal(formats._wait_until) is None
    formats.use(4)
    assert due() == 0


def test_who_has_nothing_goes_by_what_others_say() -> None:
    formats = formats_of(Spoken(3, 4))
    formats.begin(None, rejoins=True)
    assert (formats.used, formats.level, formats.ours()) == (0, 3, Spoken(3, 4, 0))
    formats.heard(Spoken(3, 3, 0))
    assert formats.used == 0
    formats.heard(Spoken(5, 6, 5))
    assert formats.used == 0, "it could not read it"
    formats.heard(Spoken(3, 4, 4))
    assert formats.used == 4
    formats.heard(Spoken(3, 3, 3))
    assert formats.used == 4
    fresh = formats_of(Spoken(3, 4))
    fresh.begin(None, rejoins=False)
    assert fresh.used == 3, "a cluster begins with what the release before knows"
    fresh.heard(Spoken(3, 4, 4))
    assert fresh.used == 3, "it has a place in the order of its own"


def test_a_snapshot_says_in_which_format_it_is() -> None:
    written = list(NodeSnapshot(7, [b"r"], [b"app"], [], None, 1, 4).pieces())
    with pytest.raises(
        AmcastError, match=r"a snapshot of format b'amn4', expected b'amn3'; run the amcast that wrote it"
    ):
        read_snapshot(written)
    assert read_snapshot(written, 3, 4).format == 4 and read_snapshot(written, 4, 5).format == 4
    with pytest.raises(AmcastError, match=r"expected b'amn5' or b'amn6'"):
        read_snapshot(written, 5, 6)


# In a cluster


@contextmanager
def with_releases(config: ClusterConfig, old: set[str], new: set[str]) -> Iterator[dict[str, Node]]:
    with ExitStack() as stack:
        nodes: dict[str, Node] = {}
        for name in sorted(old | new):
            nodes |= stack.enter_context(running(config, [name], coming=name in new))
        yield nodes


def multicast(config: ClusterConfig, *groups: str) -> None:
    with connect_sync(config.path, deadline=allow(20)) as client:
        while True:
            try:
                client.multicast(groups, b"word")
                return
            except MulticastFailed:  # nobody leads yet
                continue


def format_on_disk(config: ClusterConfig, name: str) -> int:
    text = (config.member(name).data / "identity").read_text()
    return int(json.loads(text[text.index("{") : text.rindex("}") + 1])["format"])


def refusal(config: ClusterConfig, name: str) -> str:
    node = Node(config, name, protocol(config.protocol), log=Log(name, "info", io.StringIO()))
    with pytest.raises(AmcastError) as caught:
        asyncio.run(node.run(node.stop))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_format_is_raised_when_the_last_member_knows_it(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    names = {member.name for member in config.members}
    groups = ["g0", "g1"]
    with running(config) as nodes:
        multicast(config, *groups)
    last = names - {"g1/2"}
    for new in (last, last - {"g0/0"}, last):  # one goes back, and comes again
        with with_releases(config, names - new, new) as nodes:
            multicast(config, *groups)
            assert until(lambda nodes=nodes: all(len(node.formats._known) == 5 for node in nodes.values()))  # type: ignore[misc]
            multicast(config, *groups)
            assert {node.formats.used for node in nodes.values()} == {FORMAT}
    assert {format_on_disk(config, name) for name in names} == {FORMAT}
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "data" / "g0-2", before)
    with with_releases(config, set(), names) as nodes:
        assert until(lambda: {node.formats.used for node in nodes.values()} == {NEW})
        multicast(config, *groups)
        assert until(lambda: [node.history.end for node in nodes.values()] == [9] * 6)
        assert len({node.chain.end for node in nodes.values() if node.me.group == 0}) == 1
        raised = [json.loads(line) for node in nodes.values() for line in logged(node).splitlines() if "raised" in line]
        assert {(one["node"][:2], one["position"]) for one in raised} == {("g0", 7), ("g1", 7)}
        assert len(raised) == 6
        with connect_sync(config.path, deadline=allow(20)) as client:
            rows = client.deliveries("g0", 7)  # a member that was away may keep those from its snapshot on
            assert [next(rows).sender == f"c{RAISER:x}" for _ in range(2)] == [True, False]
        message = Deliver(AppMessage(message_id(900, 1), (0,), b"word"), 1, 2, 3)
        written = Codec(ROW.messages, 2).at(NEW).written([message])
        assert {node.engine.codec.written([message]) for node in nodes.values()} == {written}
        with connected(config, config.members[0].client, "client/dev") as raw:  # of this release
            assert (raw.receive() or (0,))[0] == frames.WELCOME
    assert {format_on_disk(config, name) for name in names} == {NEW}
    said = f"identity of format {NEW}, expected {FORMAT}; run the amcast that wrote it"
    assert all(said in refusal(config, name) for name in names)
    with with_releases(config, set(), names) as nodes:
        assert {node.formats.used for node in nodes.values()} == {NEW}
        multicast(config, *groups)


def test_every_node_is_upgraded_under_load(tmp_path: Path) -> None:
    """Processes of their own, one by one, one of them killed; and one goes back before the last one comes."""
    with Trial(tmp_path / "c", groups=2, replicas=3, app="bank", traced=False) as trial:
        config = trial.config
        members = {member.name: member for member in config.members}
        this, coming = trial.processes.command, (sys.executable, "-P", str(Path(__file__).parent / "next_node.py"))

        def restart(name: str, command: Sequence[str], *, kill: bool = False) -> None:
            (trial.kill if kill else trial.stop)(members[name])
            trial.processes.command = command
            trial.start(members[name])

        def formats() -> set[object]:
            return {str(status["format"]) for status in trial.statuses().values()}

        async def upgrade() -> Load:
            async with connect(config.path, deadline=allow(30)) as client:
                load = Load(client, ["g0", "g1"])
                await load.more()
                for name in ["g0/0", "g0/1", "g0/2", "g1/0", "g1/1"]:
                    await asyncio.to_thread(restart, name, coming, kill=name == "g0/1")
                    await load.more()
                await asyncio.to_thread(restart, "g0/2", this)
                await load.more()
                await asyncio.to_thread(restart, "g0/2", coming)
                assert len(formats()) == 2, "one knows no more than what is in use"
                await asyncio.to_thread(restart, "g1/2", coming)
                raised = str({"used": NEW, "knows": [FORMAT, NEW]})
                assert await asyncio.to_thread(until, lambda: formats() == {raised})
                await load.more()
                await asyncio.to_thread(restart, "g0/0", coming, kill=True)
                await load.more()
                await load.stop()
                return load

        load = asyncio.run(upgrade())
        print(f"{load.done} calls, the longest {load.longest:.2f} s")
        trial.stop(members["g0/0"])
        trial.processes.command = this
        trial.processes.start(members["g0/0"])
        assert trial.processes.wait_until_gone([members["g0/0"]], allow(20)) == []
        assert f"identity of format {NEW}, expected {FORMAT}" in trial.processes.last_words(members["g0/0"])
        assert trial.processes.children["g0/0"].returncode == 2


def test_status_says_what_is_in_use() -> None:
    rows: list[dict[str, object]] = [
        {"id": "g0/0", "format": {"used": 3, "knows": [3, 4]}},
        {"id": "g0/1", "format": {"used": 3, "knows": [3, 3]}},
        {"id": "g0/2"},
    ]
    assert line_about_formats(rows[2:]) == ""
    assert line_about_formats(rows[1:]) == "format in use: 3; known: 3"
    assert line_about_formats(rows) == "format in use: 3; known: 3 (g0/1), 3 to 4 (g0/0)"
    rows[2]["format"] = {"used": 0, "knows": [3, 4]}
    assert (
        line_about_formats(rows) == "format in use: 3 (g0/0 g0/1), none yet (g0/2); known: 3 (g0/1), 3 to 4 (g0/0 g0/2)"
    )


def test_who_has_not_heard_of_the_raise_and_goes_back_is_refused(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    names = {member.name for member in config.members}
    with running(config):
        multicast(config, "g0")
    before = tmp_path / "before"
    shutil.copytree(config.members[2].data, before)
    with with_releases(config, set(), names) as nodes:
        assert until(lambda: {node.formats.used for node in nodes.values()} == {NEW})
    shutil.rmtree(config.members[2].data)
    before.rename(config.members[2].data)
    with with_releases(config, {"g0/2"}, {"g0/0", "g0/1"}) as nodes:
        multicast(config, "g0")
        said = "g0/2 knows formats 3 to 3, but g0/0 writes format 4; start g0/2 with a newer amcast"
        assert until(lambda: said in logged(nodes["g0/2"]) and said in logged(nodes["g0/0"]))
        assert nodes["g0/2"].formats.used == FORMAT


def test_a_member_that_comes_begins_with_what_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = seated(cluster(tmp_path), protocol("white_box"))
    said: dict[str, object] = {"format": {"used": NEW}, "app": {"began": 2}}
    monkeypatch.setattr("amcast.local.membership.status_of", lambda config, member: said)
    changing = Changing.__new__(Changing)
    changing.config, changing.group = config, 0
    changing._prepare(changing._made("g0/3", 3, None), "")
    text = (tmp_path / "data" / "g0-3" / "identity").read_text()
    assert f'"format": {NEW}' in text and '"app_version": 2' in text


def test_a_restored_cluster_raises_its_format_anew(tmp_path: Path) -> None:
    config = create_cluster(tmp_path / "c", protocol("white_box"), 2, 1, "bank", secure=False)
    with running(config, app=Bank, coming=True) as nodes:
        assert until(lambda: {node.formats.used for node in nodes.values()} == {NEW})
        take_backup(config, protocol("white_box"), tmp_path / "bank.amb", seconds=allow(20))
        assert {node.metrics.rejected for node in nodes.values()} == {0}, "no application sees it"
    again = restore_cluster(tmp_path / "bank.amb", tmp_path / "r", protocol, secure=False)
    with running(again, app=Bank) as nodes:
        assert {node.formats.used for node in nodes.values()} == {FORMAT}
    with running(again, app=Bank, coming=True) as nodes:
        assert until(lambda: {node.formats.used for node in nodes.values()} == {NEW})


def test_a_replica_without_its_disk_goes_by_what_is_in_use(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    names = {member.name for member in config.members}
    with with_releases(config, set(), names) as nodes:
        assert until(lambda: {node.formats.used for node in nodes.values()} == {NEW})
        multicast(config, "g0")
    shutil.rmtree(config.members[2].data)
    with with_releases(config, set(), {"g0/0", "g0/1"}) as nodes:
        row = next_release(protocol("white_box"))
        log = Log("g0/2", "info", io.StringIO())
        node = Node(config, "g0/2", row, log=log, rejoin=True, knows=NEXT)
        task = asyncio.run_coroutine_threadsafe(node.run(), nodes["g0/0"]._loop)
        try:
            assert until(lambda: node.formats.used == NEW and node.history.end >= 2), logged(node)
            multicast(config, "g0")
            assert until(lambda: not node.durability.rejoining)
        finally:
            nodes["g0/0"]._loop.call_soon_threadsafe(node.stop)
            task.result(allow(20))
    assert format_on_disk(config, "g0/2") == NEW
    newest = max(config.members[2].data.glob("snapshot-*"), key=lambda path: int(path.name.partition("-")[2]))
    assert b"amn%d" % NEW in newest.read_bytes()
