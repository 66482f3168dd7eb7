"""Guards when a node lets another one lead: told by people, before it stops, and when its disk is slow."""

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from laggards import Laggard, laggards
from nodes import cluster, logged, until

from amcast.cli import run
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.leading import Leading
from amcast.runtime.links import Outgoing
from amcast.runtime.machine import Clock, Limits, Machine

NAMES = ("g0/0", "g0/1", "g0/2")


def test_a_replica_that_is_told_to_lead_does(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with laggards(config) as running:
        for name in NAMES:
            running.start(name)
        asks = running.nodes["g0/2"]
        assert until(lambda: len(asks.leading.others) == 2)
        running.in_loop("g0/2", asks.leading.ask)
        assert until(lambda: asks.leading.leads)
        assert until(lambda: not running.nodes["g0/0"].leading.leads)
        assert logged(running.nodes["g0/0"]).count("it was asked for") == 1, "it asks more than once"
        assert "handed over" not in logged(running.nodes["g0/1"])


def test_a_leader_hands_over_before_it_stops(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    with laggards(config) as running:
        for name in NAMES:
            running.start(name)
        leader = running.nodes["g0/0"]
        assert until(lambda: len(leader.leading.others) == 2)
        assert running.stop("g0/0") is None
        assert "this node stops" in logged(leader) and until(lambda: running.nodes["g0/1"].leading.leads)
        assert running.stop("g0/2") is None
        alone = running.nodes["g0/1"]
        assert running.stop("g0/1") is None
        assert "this node stops" not in logged(alone), "to whom?"


class Hand(Clock):
    """A clock that somebody sets."""

    now = 0

    def monotonic_ns(self) -> int:
        return self.now


def test_a_leader_with_a_slow_disk_hands_over_but_not_again_at_once(tmp_path: Path) -> None:
    config = cluster(tmp_path)
    clock = Hand()
    handed: list[int] = []
    process = Laggard.__new__(Laggard)
    said: list[str] = []
    host = SimpleNamespace(
        config=config, me=config.members[0], machine=Machine(clock=clock), engine=SimpleNamespace(process=process),
        log=SimpleNamespace(warning=lambda event, reason: said.append(reason)), links={}, act=lambda: None,
    )  # fmt: skip
    process.leader = process.pid = 0
    process.hand_over = lambda now, to: handed.append(to)  # type: ignore[method-assign]
    leading = Leading(cast(Any, host))
    slow, quick = round(0.5e9), round(0.3e9)
    for _ in range(9):
        leading.committed(slow)
    assert not handed, "nobody else is there"
    host.links[1] = cast(Outgoing, SimpleNamespace(peer=config.members[1], connection=object()))
    for took in (quick, slow, slow, quick, slow, slow):
        leading.committed(took)
    assert not handed, "not three in a row"
    leading.committed(slow)
    assert handed == [-1] and said == ["its disk is slow: the last commit took 0.5 s"]
    for _ in range(9):
        leading.committed(slow)
    assert handed == [-1], "not again so soon"
    clock.now += round(30e9)
    leading.committed(slow)
    assert handed == [-1, -1]
    process.leader = 1
    clock.now += round(60e9)
    for _ in range(9):
        leading.committed(slow)
    assert handed == [-1, -1], "it does not lead"


def test_a_leader_whose_disk_is_full_but_for_the_reserve_hands_over(tmp_path: Path) -> None:
    """Else a group would refuse clients, though a majority has room."""
    config = cluster(tmp_path)
    with laggards(config) as running:
        for name in NAMES:
            full = Machine(limits=Limits(reserve=2**62)) if name == "g0/0" else Machine()
            running.start(name, full)
        leader = running.nodes["g0/0"]
        assert until(lambda: len(leader.leading.others) == 2 and leader.leading.leads)
        running.in_loop("g0/0", leader.durability._look_at_space)
        assert until(lambda: running.nodes["g0/1"].leading.leads or running.nodes["g0/2"].leading.leads)
        assert "expected at least" in logged(leader) and not leader.leading.leads


def test_a_leader_hands_over_once_to_who_asks_often(tmp_path: Path) -> None:
    config = cluster(tmp_path, groups=2)
    clock = Hand()
    handed: list[int] = []
    process = Laggard.__new__(Laggard)
    process.leader = process.pid = 0
    process.hand_over = lambda now, to: handed.append(to)  # type: ignore[method-assign]
    host = SimpleNamespace(
        config=config, me=config.members[0], machine=Machine(clock=clock), engine=SimpleNamespace(process=process),
        log=SimpleNamespace(info=lambda event, **facts: None), links={}, act=lambda: None,
    )  # fmt: skip
    leading = Leading(cast(Any, host))
    for pid in (1, 1, 2, 2, 4):
        leading.asked(pid)
    assert handed == [1, 2], "of its own group only"
    clock.now += round(0.9e9)
    leading.asked(2)
    assert handed == [1, 2, 2], "nothing came of it"


@pytest.mark.timeout(120)
def test_the_command_waits_until_it_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path)
    path = str(config.path)
    for arguments, complaint in (
        ([path, "g0/7"], "no replica 'g0/7'"),
        ([path, "g0/1"], "g0/1 is not running; start it, and wait until it is ready"),
        ([str(tmp_path / "nowhere"), "g0/1"], "nowhere"),
    ):
        assert run(["cluster", "lead", *arguments]) == 2
        said = capsys.readouterr().err.splitlines()
        assert complaint in said[-1] and len(said) == 1
    processes = Processes(config)
    try:
        with processes.alone():
            for member in config.members:
                processes.start(member)
        assert set(processes.wait_until_ready(config.members, 60).values()) == {None}
        for name in ("g0/1", "g0/1", "g0/0"):
            assert run(["cluster", "lead", path, name, "--timeout", "30"]) == 0
            assert capsys.readouterr().out == f"{name}: leads\n"
    finally:
        assert not processes.stop(config.members)


def test_a_follower_that_wakes_lets_the_leader_lead(tmp_path: Path) -> None:
    """It has heard nobody for long, and may not take that for the silence of the others."""
    config = cluster(tmp_path)
    processes = Processes(config)
    sleeper = config.members[2]
    try:
        with processes.alone():
            for member in config.members:
                processes.start(member)
        assert set(processes.wait_until_ready(config.members, 60).values()) == {None}
        assert processes.signal(sleeper, signal.SIGSTOP)
        others = [processes.log(member) for member in config.members[:2]]
        assert until(lambda: all('"suspect"' in log.read_text() for log in others))
        assert processes.signal(sleeper, signal.SIGCONT)
        assert until(lambda: all('"trust"' in log.read_text() for log in others))
        assert set(processes.wait_until_ready(config.members, 60).values()) == {None}
        assert '"suspect"' not in processes.log(sleeper).read_text()
    finally:
        assert not processes.stop(config.members)


def test_a_protocol_without_leaders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = cluster(tmp_path, replicas=1, durable=False, protocol_name="skeen")
    assert not protocol("skeen").elects
    assert run(["cluster", "lead", str(config.path), "g0/0"]) == 2
    assert "skeen has no leaders" in capsys.readouterr().err


def test_limits_fit_each_other() -> None:
    limits = replace(Limits())
    assert limits.most_kept > 2 * limits.congested, "a vote has all that is under way, and must fit what a link keeps"
