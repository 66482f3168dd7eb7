"""Real processes under load and in trouble: nothing acknowledged is lost, everybody delivers the same, once."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faulty import Load, State, load_on, relayed, traced, wait_until
from tests.pace import allow
from tests.tools import FULL, some_now, tool

from amcast.checks.evidence import Evidence
from amcast.local.trial import Trial
from amcast.runtime.config import Member
from amcast.tracefile import read_events

ROUNDS = 4 if FULL else 1


def trial_in(folder: Path, groups: int = 1) -> Trial:
    return Trial(folder / "cluster", groups=groups, app="log", secure=False)


def follower(trial: Trial, g: int = 0) -> Member:
    leader = trial.leader(g)
    return next(member for member in trial.config.members if member.group == g and member is not leader)


def ended(trial: Trial, member: Member) -> int:
    """The exit code of a node that has stopped or stops now."""
    return trial.processes.children[member.name].wait(allow(20))


def log_of(trial: Trial, member: Member) -> str:
    return trial.processes.log(member).read_text()


def judge(trial: Trial, load: Load) -> Evidence:
    """Every test here injects faults under load, and nothing may come of them."""
    evidence = trial.judge(trial.folder / "out", load.outcomes)
    print(f"{evidence}; injected: {dict(trial.injected)}")
    assert evidence.faults > 0
    return evidence


def test_kills_and_pauses(tmp_path: Path) -> None:
    with trial_in(tmp_path, groups=2) as trial:
        with load_on(trial) as load:
            for _ in range(ROUNDS):
                for member in (trial.leader(0), follower(trial)):
                    trial.kill(member)
                    load.more(50)
                    trial.start(member)
                    load.more(20)
                for member in (trial.leader(1), follower(trial, 1)):
                    trial.pause(member)
                    load.more(50)
                    trial.resume(member)
                    load.more(20)
                trial.kill(*trial.config.members)
                trial.start(*trial.config.members)
                load.more(50)
        assert load.outcomes.unknown == 0
        judge(trial, load)
    assert trial.injected == {"kill": ROUNDS * (2 + len(trial.config.members)), "pause": 2 * ROUNDS}
    restarts = sum(event.kind == "restart" for event in read_events(trial.folder / "out"))
    assert restarts == trial.injected["kill"]


CLIENT = """
import asyncio, sys
from amcast.service import connect
async def main():
    async with connect(sys.argv[1], trace=sys.argv[2]) as client:
        futures = []
        while True:
            futures += [client.submit((0, 1), b"x") for _ in range(20)]
            if len(futures) > 200:
                await futures.pop(0)
                print("acknowledged", flush=True)
            await asyncio.sleep(0.001)
asyncio.run(main())
"""


def test_a_client_that_is_killed(tmp_path: Path) -> None:
    """Its last messages are delivered by all groups or by none."""
    with trial_in(tmp_path, groups=2) as trial:
        for number in range(3 * ROUNDS):
            file = trial.traces / f"killed-{number}.jsonl"
            command = [sys.executable, "-c", CLIENT, str(trial.config.path), str(file)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None and process.stdout.readline() == b"acknowledged\n"
                time.sleep(0.01 * number)
                process.kill()
                trial.injected["killed client"] += 1
            lines = file.read_bytes().split(b"\n")[:-1]
            last = json.loads(lines[-1])
            crash = {key: last[key] for key in ("run", "process", "group", "time")} | {"kind": "crash"}
            file.write_bytes(b"\n".join([*lines, json.dumps(crash | {"seq": last["seq"] + 1}).encode()]) + b"\n")
        with load_on(trial) as load:
            load.more(20)
        judge(trial, load)


# Disks


@pytest.mark.parametrize("when", [2] if ROUNDS == 1 else range(1, 12))
def test_killed_in_the_middle_of_a_commit(tmp_path: Path, when: int) -> None:
    tool("strace")
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        for member in (trial.leader(0), follower(trial)):
            inject = f"inject=fdatasync:signal=KILL:when={when}"
            with traced(trial, member, "-e", "trace=fdatasync", "-e", inject):
                assert ended(trial, member) == -signal.SIGKILL
            trial.injected["kill"] += 1
            trial.start(member)
            load.more(20)
        load.end()
        judge(trial, load)


DISK = {
    "fsync fails": ("fdatasync", "error=EIO:when=3", "Input/output error; stopping, since the disk cannot be trusted"),
    "no space": ("write", "error=ENOSPC:when=5+", "No space left on device"),
}


@pytest.mark.parametrize("what", some_now(DISK, ("fsync fails",)))  # no space: also where readers ask for rows
def test_a_disk_that_fails_stops_the_node_which_comes_back(tmp_path: Path, what: str) -> None:
    tool("strace")
    call, fault, reason = DISK[what]
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        for member in (trial.leader(0), follower(trial)):
            only = [option for path in sorted(member.data.glob("log-*")) for option in ("-P", str(path))]
            with traced(trial, member, *only, "-e", f"trace={call}", "-e", f"inject={call}:{fault}"):
                assert ended(trial, member) == 1
            trial.injected["disk"] += 1
            assert "Traceback" not in log_of(trial, member)
            assert reason in trial.processes.last_words(member)
            trial.start(member)
            load.more(20)
        load.end()
        judge(trial, load)


def test_no_space_for_the_rows_that_readers_ask_for(tmp_path: Path) -> None:
    tool("strace")
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        member = follower(trial)
        path = next((member.data / "history").glob("rows-*"))
        with traced(trial, member, "-P", str(path), "-e", "trace=write", "-e", "inject=write:error=ENOSPC:when=2+"):
            assert ended(trial, member) == 1
        trial.injected["disk"] += 1
        assert "Traceback" not in log_of(trial, member)
        assert "No space left on device" in trial.processes.last_words(member)
        trial.start(member)
        load.end()
        judge(trial, load)


def test_a_slow_disk(tmp_path: Path) -> None:
    tool("strace")
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        slow_fsync = ("-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=200000")
        with traced(trial, trial.leader(0), *slow_fsync):
            load.more(60)
        with traced(trial, follower(trial), *slow_fsync):
            load.more(60)
        trial.injected["disk"] += 2
        load.end()
        assert load.outcomes.unknown == 0
        judge(trial, load)


def test_a_torn_tail_is_cut_and_a_damaged_middle_is_refused(tmp_path: Path) -> None:
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        load.more(100)
        member = follower(trial)
        trial.kill(member)
        log = max(member.data.glob("log-*"), key=lambda path: path.stat().st_size)
        with open(log, "ab") as file:
            file.write(log.read_bytes()[:30])  # of a frame that was being written
        trial.start(member)
        assert '"torn write cut off"' in log_of(trial, member) and '"bytes":30' in log_of(trial, member)
        load.more(50)

        trial.kill(member)
        whole = log.read_bytes()
        log.write_bytes(whole[: len(whole) // 2] + b"damage" + whole[len(whole) // 2 + 6 :])
        for _ in range(2):
            trial.start(member, wait=False)
            assert ended(trial, member) == 2
            said = trial.processes.last_words(member)
            assert f"{log}: damaged at byte" in said and "does not vote: start it with --rejoin" in said
            assert "Traceback" not in log_of(trial, member)
        load.more(20)
        log.write_bytes(whole)
        trial.start(member)
        load.end()
        judge(trial, load)


# The wall clock of a process, moved by the seconds in a file
JUMPING = """import os, time
real = time.time_ns
def moved():
    with open(os.environ["CLOCK_OFFSET"]) as file:
        return real() + int(file.read() or 0) * 10**9
time.time_ns = moved
time.time = lambda: moved() / 1e9
"""


def test_clocks_that_jump(tmp_path: Path) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(JUMPING)
    with trial_in(tmp_path) as trial, load_on(trial) as load:
        offset = tmp_path / "offset"
        offset.write_text("0")
        command = trial.processes.command
        settings = [f"PYTHONPATH={tmp_path / 'clock'}", f"CLOCK_OFFSET={offset}"]
        trial.processes.command = ("env", *settings, *command)
        moved = (trial.leader(0), follower(trial))
        for member in moved:
            trial.kill(member)
            trial.start(member)
            for jump in ("3600", "-86400", "0"):
                offset.write_text(jump)
                load.more(20)
        load.end()
        judge(trial, load)
        trace = trial.traces / f"{moved[0].name.replace('/', '-')}.jsonl"
        times = [json.loads(line)["time"] for line in trace.read_text().splitlines()]
        assert max(times) - min(times) > 80_000 * 10**9, "its clock did jump"


# The network


def test_partitions(tmp_path: Path) -> None:
    """Whole and one-way, with connections that end and such that only stay silent; around a leader and a follower."""
    trial = trial_in(tmp_path)
    with relayed(trial) as network, load_on(trial) as load:
        for number in range(4 if ROUNDS == 1 else 6 * ROUNDS):
            alone = (trial.leader(0) if number % 2 else follower(trial)).name
            state: State = "cut" if number // 2 % 2 else "held"
            pairs = [pair for pair in network.around(alone) if pair[0] == alone or number % 4 in (1, 2)]
            network.set(state, pairs)
            time.sleep(1.0)  # its group suspects it after less
            load.more(20)
            network.set("open", pairs)
            load.more(20)
        load.end()
        assert load.outcomes.unknown == 0
        judge(trial, load)


def test_a_storm_of_reconnects(tmp_path: Path) -> None:
    trial = trial_in(tmp_path, groups=2)
    with relayed(trial) as network, load_on(trial) as load:
        whole = network.connected()
        for _ in range(10 * ROUNDS):
            network.set("cut", list(network.ports))
            network.set("open", list(network.ports))
            wait_until(lambda: network.connected() > whole / 2, "connections")
        load.more(30)
        load.end()
        assert load.outcomes.unknown == 0
        judge(trial, load)
    text = "".join(log_of(trial, member) for member in trial.config.members)
    assert text.count('"disconnected"') > 30, "there was a storm"
    assert "expected batch" not in text and "Traceback" not in text


@pytest.mark.slow
def test_a_connection_that_has_died_in_silence_is_replaced(tmp_path: Path) -> None:
    """As when a firewall forgets it: nobody is told, new connections work."""
    trial = trial_in(tmp_path)
    with relayed(trial) as network, load_on(trial) as load:
        network.silence()
        trial.quorum_lost = True  # until they have noticed, members do not hear each other, and say so to clients
        load.more(30)
        load.end()
        judge(trial, load)
