"""`amcast cluster add-group` with real processes: what is refused, interrupted, gone on with and undone."""

import signal
from pathlib import Path

import pytest
from calling import Amcast
from tests.cli.test_members_command import refused
from tests.pace import until

from amcast.cli.naming import cluster_at
from amcast.local.membership import founding_in
from amcast.local.processes import Processes
from amcast.service import connect_sync


def test_what_is_refused_without_a_cluster_that_runs(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 1).code == 0
    for name in ("1", "g", "gx", "g²", "group1"):
        assert "is no group; expected g and a number" in refused(amcast, "add-group", folder, name)
    assert "expected host:port" in refused(amcast, "add-group", folder, "g1", "--address", "nowhere")
    assert "'alice' may not" in refused(amcast, "add-group", folder, "g1", "--as", "alice")
    assert "none of g0/0, g0/1, g0/2 answers" in refused(amcast, "add-group", folder, "g1")
    other = tmp_path / "d"
    assert amcast("cluster", "init", other, "--groups", 1, "--protocol", "fastcast").code == 0
    assert "fastcast has fixed members" in refused(amcast, "add-group", other, "g1")
    assert not founding_in(cluster_at(folder)), "nothing is left of what was refused"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_group_comes(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 2).code == 0
    try:
        assert amcast("cluster", "up", folder).code == 0
        assert "the next group is g2" in refused(amcast, "add-group", folder, "g3")
        assert "g1 is a group already" in refused(amcast, "add-group", folder, "g1", "--address", "127.0.0.1:1")
        taken = str(cluster_at(folder).members[0].peer)
        assert "give each its own port" in refused(amcast, "add-group", folder, "g2", "--address", taken)
        assert "does not begin on this machine" in refused(amcast, "add-group", folder, "g2", "--undo")
        (folder / "data" / "g2-1").mkdir()
        (folder / "data" / "g2-1" / "identity").write_bytes((folder / "data" / "g0-1" / "identity").read_bytes())
        assert "expected" in refused(amcast, "add-group", folder, "g2"), "that is the data of another"
        (folder / "data" / "g2-1" / "identity").unlink()
        processes, config = Processes(cluster_at(folder)), cluster_at(folder)
        for member in config.group(1)[:2]:
            assert processes.signal(member, signal.SIGSTOP)
        assert until(lambda: "g1 does not serve" in refused(amcast, "add-group", folder, "g2", "--timeout", 20), 60.0)
        for member in config.group(1)[:2]:
            assert processes.signal(member, signal.SIGCONT)
        assert until(lambda: amcast("cluster", "status", folder).code == 0, 60.0)

        with connect_sync(folder, deadline=60.0) as client:
            assert set(client.multicast(["g0", "g1"], b"before")) == {"g0", "g1"}
            assert amcast("cluster", "add-group", folder, "g2").code == 0
            assert until(lambda: client._client.config.groups == (0, 1, 2), 30.0)
            assert set(client.multicast(["g0", "g1", "g2"], b"after")) == {"g0", "g1", "g2"}
        done = amcast("cluster", "status", folder)
        assert done.code == 0 and "g2: g2/0, g2/1, g2/2 added" in done.out and "under way" not in done.out
        assert amcast("cluster", "add-group", folder, "g2").code == 0, "it is there, and all know"
        assert "is a group of the cluster" in refused(amcast, "add-group", folder, "g2", "--undo")
        assert amcast("cluster", "replace", folder, "g2/0").code == 0, "its members change as those of others"
        assert amcast("cluster", "backup", folder, "--out", tmp_path / "b").code == 0
        assert "3 groups" in amcast("cluster", "backup-verify", tmp_path / "b").out

        assert amcast("cluster", "down", folder).code == 0
        assert amcast("cluster", "up", folder).code == 0
        assert cluster_at(folder).groups == (0, 1, 2)
        with connect_sync(folder, deadline=60.0) as client:
            assert set(client.multicast(["g1", "g2"], b"again")) == {"g1", "g2"}
    finally:
        amcast("cluster", "down", folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_interrupted_goes_on_or_is_undone(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 1).code == 0
    try:
        assert amcast("cluster", "up", folder).code == 0
        done = amcast("cluster", "add-group", folder, "g1", "--timeout", 0)
        assert done.code != 0 and "Traceback" not in done.err
        assert "under way: g1 runs and is no group of the cluster yet" in amcast("cluster", "status", folder).out
        assert len(founding_in(cluster_at(folder))) == 3
        assert amcast("cluster", "add-group", folder, "g1", "--undo").code == 0
        assert not founding_in(cluster_at(folder)) and list((folder / "data").glob("undone-*"))
        assert "under way" not in amcast("cluster", "status", folder).out

        assert amcast("cluster", "add-group", folder, "g1", "--timeout", 0).code != 0
        assert amcast("cluster", "add-group", folder, "g1").code == 0
        assert cluster_at(folder).groups == (0, 1)
    finally:
        amcast("cluster", "down", folder)
