"""Guards how a replica of White-Box comes back among others that run: it is asked, and heard, before it is believed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from laggards import Running, laggards
from nodes import cluster, until

from amcast.errors import StorageCorrupt, UsageError
from amcast.local import rejoining
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.machine import REAL, Machine
from amcast.service import connect_sync

WHITE_BOX = protocol("white_box")
NAMES = ("g0/0", "g0/1", "g0/2")


def up(config: ClusterConfig, running: Running) -> None:
    for name in NAMES:
        running.start(name)
    with connect_sync(config.path, "dev", deadline=20) as client:
        for number in range(5):
            client.multicast(["g0"], b"%d" % number)
    assert running.level()


def test_one_that_ran_before_is_not_new_whatever_an_operator_says(tmp_path: Path) -> None:
    """An empty folder and --new are a lost disk, if somebody heard of the replica: else it votes as if it knew all."""
    config = cluster(tmp_path / "c")
    data = config.members[2].data
    with laggards(config, row=WHITE_BOX) as running:
        up(config, running)
        assert running.stop("g0/2") is None
        shutil.rmtree(data)
        running.start("g0/2", new=True)
        error = running.ended("g0/2")
        assert isinstance(error, StorageCorrupt) and "forgot what it said" in str(error) and "--rejoin" in str(error)
        running.start("g0/2", rejoin=True)
        assert running.level()


def test_a_folder_as_it_was_before_the_first_start_is_an_older_copy(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    data = config.members[2].data
    shutil.copytree(data, tmp_path / "pristine")
    with laggards(config, row=WHITE_BOX) as running:
        up(config, running)
        assert running.stop("g0/2") is None
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "pristine", data)
        running.start("g0/2")
        assert "forgot what it said" in str(running.ended("g0/2"))


def put_back(copy: Path, data: Path) -> None:
    shutil.rmtree(data)
    shutil.copytree(copy, data)


@pytest.mark.slow
def test_an_older_copy_waits_for_all_who_may_know_better(tmp_path: Path) -> None:
    """A majority that heard nothing newer is not enough: the one who counted on what is missing may be away."""
    config = cluster(tmp_path / "c")
    data = config.members[1].data
    with laggards(config, row=WHITE_BOX) as running:
        up(config, running)
        assert running.stop("g0/1") is None
        shutil.copytree(data, tmp_path / "older")
        running.start("g0/1")
        assert running.level() and running.stop("g0/2") is None
        with connect_sync(config.path, "dev", deadline=20) as client:
            client.multicast(["g0"], b"known to g0/0 and g0/1")
        assert running.level() and running.stop("g0/1") is None and running.stop("g0/0") is None
        put_back(tmp_path / "older", data)
        running.start("g0/2")
        older = running.start("g0/1")
        assert not until(lambda: not older.durable_process().rejoining(), 3 * config.suspect_ms / 1000)
        assert older.durability.doubted and "waits for g0/0" in older.engine.process.unready()
        assert running.stop("g0/1") is None
        older = running.start("g0/1")  # once more: it is as doubtful as before
        assert not until(lambda: not older.durable_process().rejoining(), 3 * config.suspect_ms / 1000)
        running.start("g0/0")
        error = running.ended("g0/1")
        assert isinstance(error, StorageCorrupt) and "forgot what it said" in str(error)
        running.start("g0/1", rejoin=True)
        assert running.level() and running.nodes["g0/1"].history.end == 6


def test_a_folder_that_moved_is_believed_when_all_have_confirmed_it(tmp_path: Path) -> None:
    config = cluster(tmp_path / "c")
    data = config.members[1].data
    with laggards(config, row=WHITE_BOX) as running:
        up(config, running)
        assert running.stop("g0/1") is None
        shutil.copytree(data, tmp_path / "moved")
        put_back(tmp_path / "moved", data)
        node = running.start("g0/1")
        assert running.level() and until(lambda: not node.durability.doubted)
        assert running.stop("g0/1") is None and running.stop("g0/0") is None
        node = running.start("g0/1")
        assert not node.durability.doubted
        with connect_sync(config.path, "dev", deadline=20) as client:
            client.multicast(["g0"], b"g0/0 is not needed")


def test_who_is_dialled_dials_back_at_once(tmp_path: Path) -> None:
    """Who restarts must hear the others within `suspect_ms`, however long their pause between two attempts is."""
    patient = Machine(limits=replace(REAL.limits, first_pause=600.0, longest_pause=600.0))
    config = cluster(tmp_path / "c")
    with laggards(config, row=WHITE_BOX) as running:
        for name in NAMES:  # each dials the next ones before they are there
            running.start(name, patient)
        links = [link for node in running.nodes.values() for link in node.links.values()]
        assert until(lambda: all(link.connection is not None for link in links), 4.0)


def test_a_connection_to_a_process_that_is_gone_is_dropped(tmp_path: Path) -> None:
    """A machine that lost its power says nothing; the process that is there now does, when it dials."""
    config = cluster(tmp_path / "c")
    with laggards(config, row=WHITE_BOX) as running:
        up(config, running)
        link = running.nodes["g0/0"].links[2]
        before = link.connection
        running.in_loop("g0/0", lambda: link.dialled_by(link.boot))
        assert not until(lambda: link.connection is not before, 0.3), "it is the same process"
        running.in_loop("g0/0", lambda: link.dialled_by(link.boot + 1))
        assert until(lambda: link.connection not in (None, before), 4.0)


@pytest.mark.parametrize(("replicas", "joining", "refused"), [(3, 0, False), (3, 1, True), (5, 1, False), (5, 2, True)])
def test_a_majority_is_not_let_rejoin_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, joining: int, refused: bool
) -> None:
    """Each of them sets its data aside: an operator who says it to one after the other would lose the group."""
    config = cluster(tmp_path / "c", groups=2, replicas=replicas)
    roles = ["joining"] * joining + ["follower"] * (replicas - joining)

    def status_of(_: ClusterConfig, member: Member) -> dict[str, object] | str:
        return {"role": roles[member.rank]} if member.group == 0 else {"role": "joining"}

    monkeypatch.setattr(rejoining, "status_of", status_of)
    last = config.members[replicas - 1]
    if not refused:
        rejoining.refuse_too_many(config, last)
        return
    with pytest.raises(UsageError, match=r"g0/0.* rejoins, too; .* would be lost"):
        rejoining.refuse_too_many(config, last)
