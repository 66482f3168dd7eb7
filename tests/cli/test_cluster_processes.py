"""`amcast cluster` with processes that only answer like nodes: started, seen, killed, and never mistaken for others."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Amcast
from tests.pace import allow

from amcast.local.files import create_cluster
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.config import Member, load_config

STAND_IN = """
import asyncio, os, signal, sys
from amcast.runtime.admin import Admin
from amcast.runtime.config import load_config

async def main(config, member):
    said = {"cluster": config.name, "id": member.name, "pid": os.getpid(), "role": "leader", "ballot": "(1, 0)",
            "position": 1000 + member.rank, "peers": {"g0/8": True, "g0/9": False}, "clients": 2, "uptime": 3725.5}
    admin = Admin(lambda: said, lambda: None, lambda: b"")
    await admin.start(member.admin)
    print(f"{member.name} serves", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await admin.stop()
    print(f"{member.name} stops", flush=True)

if os.path.exists("refuse"):
    sys.exit("amcast: port 4100 is in use")
config = load_config(sys.argv[1])
asyncio.run(main(config, config.member(sys.argv[2])))
"""


@pytest.fixture
def processes(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.chdir(tmp_path)
    assert amcast("cluster", "init", tmp_path, "--groups", 1, "--insecure-dev").code == 0
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    found = Processes(load_config(tmp_path / "cluster.toml"), (sys.executable, str(tmp_path / "stand_in.py")))
    monkeypatch.setattr(sys.modules["amcast.cli.cluster"], "processes_of", lambda cluster: found)
    yield found
    for process in found.children.values():
        process.kill()
        process.wait()


def test_up_status_logs_kill_restart_down(amcast: Amcast, processes: Processes) -> None:
    done = amcast("cluster", "up", ".")
    assert done.code == 0 and done.err == "" and done.out.count("ready") == 3
    pids = [processes.running(member) for member in processes.config.members]
    assert None not in pids and len(set(pids)) == 3
    assert all(os.getsid(pid) == pid for pid in pids if pid), "not in the session of the terminal"

    done = amcast("cluster", "up", ".")
    assert done.code == 0 and [processes.running(member) for member in processes.config.members] == pids

    done = amcast("cluster", "status", ".", "--json")
    rows = json.loads(done.out)["nodes"]
    assert done.code == 0 and [row["lag"] for row in rows] == [2, 1, 0] and [row["pid"] for row in rows] == pids
    done = amcast("cluster", "status", ".")
    assert done.code == 0 and all(part in done.out for part in ("1:02:05", "1,002", " 1/2 "))

    done = amcast("cluster", "kill", ".", "g0/1")
    assert done.code == 0 and done.out == f"g0/1: SIGKILL to {pids[1]}\n"
    done = amcast("cluster", "status", ".")
    assert done.code == 1 and "stopped" in done.out

    done = amcast("cluster", "restart", ".", "g0/1")
    assert done.code == 0 and processes.running(processes.config.members[1]) not in (None, *pids)
    done = amcast("cluster", "logs", ".", "g0/1")
    assert done.out == "g0/1 serves\ng0/1 serves\n"
    done = amcast("cluster", "logs", ".", "-n", 1)
    assert done.out == "".join(f"g0/{n}  g0/{n} serves\n" for n in range(3))

    amcast("cluster", "kill", ".", "g0/2", "--signal", "sigstop")
    done = amcast("cluster", "down", ".")
    assert (done.code, done.out, done.err) == (0, "stopped 3 nodes\n", "")
    assert amcast("cluster", "logs", ".", "g0/2", "-n", 1).out == "g0/2 stops\n", (
        "one that was paused stops in order too"
    )
    assert not list((processes.folder / "run").glob("*.pid"))
    assert amcast("cluster", "down", ".").out == "no node is running\n"


def test_a_node_that_does_not_start_says_why(amcast: Amcast, processes: Processes) -> None:
    (processes.folder / "refuse").touch()
    done = amcast("cluster", "up", ".")
    assert done.code == 1 and done.out.count("stopped: amcast: port 4100 is in use") == 3
    why = "g0/0: stopped: amcast: port 4100 is in use"
    assert done.err == f"amcast: 3 nodes of 3 not ready; {why}; see 'amcast cluster logs . g0/0'\n"


def test_a_pid_that_was_given_to_another_process_is_left_alone(amcast: Amcast, processes: Processes) -> None:
    """Of the three things in a pid file, each one that differs means: not ours."""
    member = processes.config.members[0]
    with processes.alone():
        processes.start(member)
    assert processes.wait_until_ready([member], 30) == {"g0/0": None}  # so that the two do not begin in the same tick
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        file = processes.pid_file(member)
        ours = json.loads(file.read_text())
        for changed in ({"pid": stranger.pid}, {"began": "1"}, {"boot": "another"}):
            file.write_text(json.dumps(ours | changed))
            assert processes.running(member) is None
            assert not processes.signal(member, signal.SIGKILL)
            assert amcast("cluster", "kill", ".", "g0/0").code == 2
        for junk in ("", "[]", "{}", '{"pid": "x"}'):
            file.write_text(junk)
            assert processes.running(member) is None
        assert stranger.poll() is None
        file.write_text(json.dumps(ours))
        assert processes.running(member) == ours["pid"]
        stranger.communicate(b"\n")


def test_one_that_does_not_listen_is_killed(processes: Processes) -> None:
    deaf = Processes(processes.config, ["sh", "-c", "exec sleep 30"])
    member = deaf.config.members[0]
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a child begins with it
    try:
        with deaf.alone():
            deaf.start(member)
            assert deaf.stop([member], seconds=0.1) == [member]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert deaf.running(member) is None


def test_a_node_that_was_ready_and_stopped_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look is not enough: it may stop over what the others tell it when they are up."""
    config = create_cluster(tmp_path, protocol("white_box"), 1, 3, "log", secure=False)
    looks: Counter[str] = Counter()

    def running(self: Processes, member: Member) -> int | None:
        looks[member.name] += 1
        return None if member.name == "g0/1" and looks["g0/1"] > 1 else 1

    monkeypatch.setattr(Processes, "running", running)
    monkeypatch.setattr(Processes, "why_not_ready", lambda self, member: None)
    monkeypatch.setattr(Processes, "last_words", lambda self, member: "no room")
    found = Processes(config).wait_until_ready(config.members, allow(10))
    assert found == {"g0/0": None, "g0/1": "stopped: no room", "g0/2": None}
