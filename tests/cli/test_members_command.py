"""`amcast cluster add, remove, replace` with real processes: what is refused, interrupted, gone on with and undone."""

import shutil
import signal
from pathlib import Path

import pytest
from calling import Amcast
from tests.pace import until

from amcast.cli.naming import cluster_at
from amcast.local.membership import joining_in
from amcast.local.processes import Processes
from amcast.service import connect_sync


def refused(amcast: Amcast, *arguments: object) -> str:
    done = amcast("cluster", *arguments)
    assert done.code == 2 and done.err.count("\n") == 1 and "Traceback" not in done.err, done
    return done.err


@pytest.mark.timeout(300)
def test_members_come_go_and_are_replaced(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 1).code == 0
    try:
        assert "none of g0/0, g0/1, g0/2 answers" in refused(amcast, "add", folder, "g0/3")
        assert amcast("cluster", "up", folder).code == 0
        assert "g0/1 is a member of g0 already" in refused(amcast, "add", folder, "g0/1")
        assert "is no replica" in refused(amcast, "add", folder, "g0/x")
        assert "there is no group 'g4'" in refused(amcast, "add", folder, "g4/1")
        assert "no replica 'g0/7'" in refused(amcast, "remove", folder, "g0/7")
        assert "expected host:port" in refused(amcast, "add", folder, "g0/3", "--address", "nowhere")
        assert "'alice' may not" in refused(amcast, "add", folder, "g0/3", "--as", "alice")
        taken = str(cluster_at(folder).members[0].peer)
        assert "give each its own port" in refused(amcast, "add", folder, "g0/3", "--address", taken)
        shutil.copytree(folder / "data" / "g0-1", folder / "data" / "g0-3")
        assert "expected" in refused(amcast, "add", folder, "g0/3"), "that is the data of another"
        shutil.rmtree(folder / "data" / "g0-3")
        assert not joining_in(cluster_at(folder)), "nothing is left of what was refused"

        config = cluster_at(folder)
        processes = Processes(config)
        assert processes.signal(config.members[0], signal.SIGSTOP)
        assert processes.signal(config.members[1], signal.SIGSTOP)
        done = amcast("cluster", "add", folder, "g0/3", "--timeout", 4)
        assert done.code in (1, 2) and "Traceback" not in done.err
        for member in config.members[:2]:
            assert processes.signal(member, signal.SIGCONT)
        if joining_in(cluster_at(folder)):
            assert "under way: g0/3 learns and is no member yet" in amcast("cluster", "status", folder).out
        assert amcast("cluster", "add", folder, "g0/3").code == 0
        done = amcast("cluster", "status", folder)
        assert "g0: g0/0, g0/1, g0/2, g0/3 since change 1\n" in done.out and "under way" not in done.out

        done = amcast("cluster", "replace", folder, "g0/0")
        assert done.code == 0 and "g0/0: stopped; its data stays in" in done.out and "g0/4" in done.out
        assert "was a member before" in refused(amcast, "add", folder, "g0/0")
        assert "no member any more" in refused(amcast, "replace", folder, "g0/0")
        assert amcast("cluster", "remove", folder, "g0/1").code == 0
        with connect_sync(folder) as client:
            assert list(client.multicast(["g0"], b"\x93")) == ["g0"] or True
        assert amcast("cluster", "down", folder).code == 0
        assert amcast("cluster", "up", folder).code == 0
        names = [member.name for member in cluster_at(folder).members]
        assert names == ["g0/2", "g0/3", "g0/4"]
        assert until(lambda: amcast("cluster", "status", folder).code == 0, 30.0)
    finally:
        amcast("cluster", "down", folder)
