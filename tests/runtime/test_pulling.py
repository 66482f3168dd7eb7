"""Guards how a replica comes by the state of another: in parts, checked, resumed, and all of it or nothing."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from laggards import ROW, Laggard, Running, laggards
from nodes import cluster, logged, until

from amcast.checks import check
from amcast.errors import StorageCorrupt, UsageError
from amcast.runtime.config import ClusterConfig
from amcast.runtime.durability import OFFERED, PULLED
from amcast.runtime.links import BURST, LinkHost, Outgoing
from amcast.runtime.machine import REAL, Files, Limits, Machine
from amcast.runtime.node import Node
from amcast.runtime.snapshots import SnapshotSource
from amcast.runtime.supply import Supplied
from amcast.service import connect_sync
from amcast.tracefile import read_events

SMALL = Limits(part_bytes=100, rows_at_once=300, seconds_of_pull=2.0, most_kept=2000)
MACHINE = Machine(limits=SMALL)
NAMES = ("g0/0", "g0/1", "g0/2")


def multicast(config: ClusterConfig, count: int, text: bytes = b"payload") -> None:
    with connect_sync(config.path, "dev", deadline=20) as client:
        for number in range(count):
            client.multicast(["g0"], b"%s %d" % (text, number))


def behind(config: ClusterConfig, running: Running, machine: Machine = MACHINE) -> None:
    """Have g0/2 stay away until nobody keeps what it lacks."""
    for name in NAMES:
        running.start(name, machine)
    multicast(config, 10)
    assert running.level() and running.stop("g0/2") is None
    multicast(config, 60, b"missed")
    assert until(lambda: running.nodes["g0/0"].links[2].dropped), "the channel was given up, and nobody waits for it"


def positions(path: Path) -> list[int]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["position"] for row in rows if row["kind"] == "deliver"]


def test_a_laggard_takes_over_a_snapshot_and_goes_on(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with laggards(config, tmp_path / "trace") as running:
        behind(config, running)
        node = running.start("g0/2", MACHINE)
        assert running.level()
        assert len(running.lines("g0/2")) == 70 == node.history.end == node.chain.position
        assert node.history.earliest == 70, "it has no rows before"
        assert '"state taken over"' in logged(node) and "torn" not in logged(node)
        assert node.chain.end == running.nodes["g0/0"].chain.end
        assert not (node.me.data / PULLED).exists()
        multicast(config, 5, b"later")
        assert running.level()
        assert until(lambda: positions(tmp_path / "trace" / "g0-2.jsonl") == list(range(75)))
        assert running.stop("g0/2") is None
        again = running.start("g0/2", MACHINE)
        assert again.history.end == 75 and running.level()
        process = again.engine.process
        assert isinstance(process, Laggard) and (process.lives, process.clean) == (3, True)
    events = [event for path in sorted((tmp_path / "trace").iterdir()) for event in read_events(path)]
    delivered = {event.process: [] for event in events if event.kind == "deliver"}  # type: ignore[var-annotated]
    for event in events:
        if event.kind == "deliver":
            delivered[event.process].append((event.message, event.ts))
    assert delivered["g0/2"] == delivered["g0/0"] and len(delivered["g0/2"]) == 75


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "in memory"])
def test_a_replica_without_a_disk_comes_back_by_the_same_path(tmp_path: Path, durable: bool) -> None:
    config = cluster(tmp_path / "c", durable=durable)
    with laggards(config) as running:
        behind(config, running)
        node = running.start("g0/2", MACHINE, rejoin=durable)
        assert running.level() and len(running.lines("g0/2")) == 70
        process = node.engine.process
        assert isinstance(process, Laggard) and process.lives == 2
        assert until(lambda: not node.durability.rejoining) or not durable
        assert not (node.me.data / "rejoining").exists()
        if durable:
            assert running.stop("g0/2") is None
            assert running.start("g0/2", MACHINE).history.end == 70
            assert "rejoining" not in logged(running.nodes["g0/2"])


def test_an_interrupted_rejoin_goes_on_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path / "c")
    with laggards(config) as running:
        behind(config, running)
        with monkeypatch.context() as patch:
            patch.setattr(Node, "install", lambda *_: None)
            node = running.start("g0/2", MACHINE, rejoin=True)
            assert until(lambda: "snapshot begun" in logged(node))
            assert running.stop("g0/2") is None
            assert (node.me.data / "rejoining").exists(), "a snapshot that it took when it stopped is not enough"
        again = running.start("g0/2", MACHINE)
        assert "rejoining again" in logged(again)
        assert running.level() and until(lambda: not (node.me.data / "rejoining").exists())


def test_a_copy_that_is_cut_off_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path / "c")
    cuts = [5, 9]
    take = Supplied.take

    def cut(supplied: Supplied, kind: int, number: int, body: bytes) -> None:
        if supplied._transport.is_closing():
            return  # asked for in one piece with the frame at which it was cut: one cut each connection
        if cuts and number >= cuts[0]:
            cuts.pop(0)
            supplied._transport.abort()
        else:
            take(supplied, kind, number, body)

    monkeypatch.setattr(Supplied, "take", cut)
    # So small that neither cut is near the end: what was sent before a cut may still arrive, and leave nothing to ask.
    small = Machine(limits=replace(SMALL, part_bytes=40))
    with laggards(config) as running:
        behind(config, running, small)
        node = running.start("g0/2", small)
        assert running.level()
        begun = [json.loads(line)["part"] for line in logged(node).splitlines() if "snapshot begun" in line]
        assert begun[0] == 0 and begun[1] > 0 and len(begun) == 3 and begun == sorted(set(begun)), begun
        assert logged(node).count("snapshot not had") == 2


def test_a_part_that_is_not_as_it_was_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cluster(tmp_path / "c")
    wrong = [3]
    piece = SnapshotSource.piece

    def damaged(source: SnapshotSource, number: int) -> bytes:
        found = piece(source, number)
        if number in wrong:
            wrong.clear()
            return found[:-1] + bytes([found[-1] ^ 1])
        return found

    monkeypatch.setattr(SnapshotSource, "piece", damaged)
    with laggards(config) as running:
        behind(config, running)
        node = running.start("g0/2", MACHINE)
        assert running.level()
        said = [json.loads(line) for line in logged(node).splitlines()]
        assert any("part 3 of snapshot" in line.get("error", "") for line in said)
        assert [line["part"] for line in said if line["event"] == "snapshot begun"] == [0, 0], "begun from the start"


class Full(Files):
    """A disk with as much room as one says."""

    room = 0

    def free(self, path: Path) -> int:
        return self.room


def test_a_copy_leaves_the_reserve_of_the_disk_alone(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    files = Full()
    with laggards(config) as running:
        behind(config, running)
        node = running.start("g0/2", Machine(files=files, limits=replace(SMALL, reserve=10_000, alarm=10_000)))
        assert until(lambda: "which are its reserve" in logged(node))
        assert not (node.me.data / PULLED).exists(), "nothing stays of it"
        assert len(running.lines("g0/2")) == 10
        files.room = 10**9
        assert running.level()


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "in memory"])
def test_a_snapshot_stays_while_it_is_copied_and_a_while_longer(
    tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster(tmp_path / "c", durable=durable)
    slow = replace(SMALL, seconds_pinned=1.0, snapshot_every=500)
    take = Supplied.take
    held: list[tuple[Supplied, int, int, bytes]] = []

    def hold(supplied: Supplied, kind: int, number: int, body: bytes) -> None:
        if number >= 2 and not released:
            held.append((supplied, kind, number, body))
        else:
            take(supplied, kind, number, body)

    released: list[bool] = []
    monkeypatch.setattr(Supplied, "take", hold)
    with laggards(config) as running:
        behind(config, running, Machine(limits=slow))
        node = running.start("g0/2", Machine(limits=replace(SMALL, seconds_of_pull=30.0)), rejoin=durable)
        assert until(lambda: held)
        source = running.nodes["g0/0"]
        (copied,) = [pinned.saved for pinned in source.supply._pinned.values()]
        assert copied.path.name.startswith("snapshot-" if durable else OFFERED)
        multicast(config, 60, b"meanwhile")
        storage = source.durability.storage
        assert storage is None or until(lambda: storage.newest > copied.number)
        assert copied.path.exists()
        running.in_loop("g0/0", lambda: (released.append(True), [take(*one) for one in held]))
        assert running.level()
        assert "snapshot not had" not in logged(node), "the snapshot that it had begun to copy was still there"
        if durable:
            multicast(config, 60, b"more")
            assert until(lambda: not copied.path.exists()), "and goes when it is not needed"


def test_a_source_that_is_no_use_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there: the protocol asks again, and may ask somebody else."""
    config = cluster(tmp_path / "c")
    with laggards(config) as running:
        behind(config, running)
        assert running.stop("g0/1") is None
        monkeypatch.setattr(Laggard, "asks_first", 1)
        node = running.start("g0/2", MACHINE)
        assert until(lambda: logged(node).count("snapshot not had") > 2)
        assert len(running.lines("g0/2")) == 10 and not (node.me.data / PULLED).exists()
        process = node.engine.process
        assert isinstance(process, Laggard)
        process.source = 0
        assert running.level()


def test_rows_that_nobody_keeps_end_a_trace_honestly(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    forgetful = Machine(limits=replace(SMALL, file_bytes=500, kept_on_disk=1000, kept_in_memory=500))
    with laggards(config, tmp_path / "trace") as running:
        behind(config, running, forgetful)
        for _ in range(4):
            multicast(config, 20, b"more")
            assert until(lambda: not any(node.durability.unfinished for node in running.nodes.values()))
        node = running.start("g0/2", forgetful)
        assert running.level() and until(lambda: "trace ends" in logged(node))
        multicast(config, 5, b"later")
        assert running.level() and running.stop("g0/2") is None
        running.start("g0/2", forgetful)
        multicast(config, 5, b"again")
        assert running.level()
    path = tmp_path / "trace" / "g0-2.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert positions(path) == list(range(10)), "nothing behind the hole"
    assert rows[-1]["kind"] == "crash"
    assert sum("missing" in row.get("detail", "") for row in rows) == 1, "it says so once"
    missing = json.loads(rows[-1]["detail"])["missing"]
    assert missing["from"] == 10 and 10 < missing["to"] <= 150
    sent = [
        {"run": config.name, "kind": "multicast", "process": "c", "group": None, "seq": number, "sender": "c",
         "message": row["message"], "dest": ["g0"]}
        for number, row in enumerate(json.loads(line) for line in (tmp_path / "trace" / "g0-0.jsonl").open())
        if row["kind"] == "deliver"
    ]  # fmt: skip
    (tmp_path / "trace" / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sent))
    events = [event for one in sorted((tmp_path / "trace").iterdir()) for event in read_events(one)]
    verdicts = {verdict.property: verdict.status for verdict in check(events, ["integrity", "order", "validity"])}
    assert set(verdicts.values()) == {"ok"}, verdicts


# What a disk forgot


def test_a_replica_that_forgot_does_not_come_back_but_by_a_rejoin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster(tmp_path / "c")
    with laggards(config) as running:
        behind(config, running)
        monkeypatch.setattr(Laggard, "forgets", "g1/0 heard record 12 of it, its disk has 9")
        running.start("g0/2", MACHINE)
        said = str(running.ended("g0/2"))
        assert "forgot what it said: g1/0 heard record 12 of it, its disk has 9;" in said and "--rejoin" in said
        monkeypatch.setattr(Laggard, "forgets", "")
        for how in ({}, {"accept_loss": True}):
            running.start("g0/2", MACHINE, **how)
            error = running.ended("g0/2")
            assert isinstance(error, StorageCorrupt) and str(error) == said, "a supervisor's restart changes nothing"
        running.start("g0/2", MACHINE, rejoin=True)
        assert running.level()
        assert until(lambda: not (config.members[2].data / "rejoining").exists())
        assert running.stop("g0/2") is None
        assert running.start("g0/2", MACHINE).history.end == 70


def test_an_operator_accepts_the_loss(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    with laggards(config) as running:
        behind(config, running)
        node = running.start("g0/2", MACHINE, accept_loss=True)
        process = node.engine.process
        assert isinstance(process, Laggard) and process.trusted
        assert '"LOSS ACCEPTED"' in logged(node)
        assert running.stop("g0/2") is None
        process = running.start("g0/2", MACHINE).engine.process
        assert isinstance(process, Laggard) and not process.trusted
    with pytest.raises(UsageError, match="exclude each other"):
        running.start("g0/2", accept_loss=True, rejoin=True)


@pytest.mark.parametrize("under_way", [0, 10**6])
def test_what_is_kept_for_a_member_is_bounded_by_what_is_under_way(tmp_path: Path, under_way: int) -> None:
    """A vote has all that is under way: a channel that gives it up whenever it is sent would end the group for good."""
    assert REAL.limits.most_kept == 16 * 2**20 and REAL.limits.congested == 6 * 2**20
    config = replace(cluster(tmp_path), largest_message=1000)
    machine = Machine(limits=replace(REAL.limits, most_kept=100_000))
    log = SimpleNamespace(warning=lambda *_, **__: None)
    host = SimpleNamespace(config=config, machine=machine, protocol=ROW, log=log, under_way=lambda: under_way)
    link = Outgoing(cast(LinkHost, host), config.members[1], None)
    other = Outgoing(cast(LinkHost, host), config.members[2], None)
    host.links = {1: link, 2: other}

    def kept() -> int:
        link.forget()
        while not link.dropped:
            before = link.kept_bytes
            link.send(bytes(1000))
        link.dropped = 0
        return before

    assert 48_000 < kept() <= 50_000, "two who are away share it"
    other.connection = cast(Any, SimpleNamespace(transport=Mock()))
    assert 98_000 < kept() <= 100_000, "for one that is away, however much is under way"
    link.connection = cast(Any, SimpleNamespace(transport=Mock()))
    most = BURST * max(100_000, under_way)
    assert most - 2000 < kept() <= most
