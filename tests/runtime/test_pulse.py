"""What a replica makes of what it hears of the others, and of what it does not hear."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from nodes import cluster

from amcast.protocols import protocol
from amcast.runtime import frames
from amcast.runtime.frames import Pulse
from amcast.runtime.machine import Clock, Machine
from amcast.runtime.pulse import PulseHost, Pulses

FINE = Pulse("", "")
QUORUM_GONE = "g0 has no quorum: nothing is heard of g0/1, g0/2"


class Hand(Clock):
    """A clock that is set by hand."""

    now = 10**12

    def monotonic_ns(self) -> int:
        return self.now


class Replica:
    """g0/0 of two groups of three. Time passes in steps, and the others are heard as the test says."""

    def __init__(self, folder: Path) -> None:
        config = cluster(folder, groups=2)
        self.clock = Hand()
        self.idle, self.unready, self.short = True, "", ""
        self.told = 0
        process = SimpleNamespace(idle=lambda: self.idle, unready=lambda: self.unready, backlog=lambda: 0)
        self.history = SimpleNamespace(end=0)
        host = SimpleNamespace(
            config=config,
            me=config.members[0],
            protocol=protocol("white_box"),
            log=SimpleNamespace(warning=lambda *said, **facts: None),
            machine=Machine(clock=self.clock),
            engine=SimpleNamespace(process=process),
            durability=SimpleNamespace(history=self.history, short_of_space=lambda: self.short or None),
            links={},
            serving=SimpleNamespace(pause=lambda congested: None, tell_condition=self._tell),
        )
        self.pulses = Pulses(cast(PulseHost, host))

    def _tell(self) -> None:
        self.told += 1

    def hear(self, said: dict[int, Pulse]) -> None:
        for pid, pulse in said.items():
            self.pulses.take(pid, pulse)

    def pass_time(self, seconds: float, said: dict[int, Pulse] | None = None, step: float = 0.2) -> None:
        for _ in range(round(seconds / step)):
            self.clock.now += round(step * 1e9)
            self.hear(said or {})
            self.pulses.stop()
            self.pulses._tick()


ALL = dict.fromkeys(range(1, 6), FINE)
OTHERS = dict.fromkeys(range(3, 6), FINE)


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[[Callable[[Replica], None]], None]:
    def run(act: Callable[[Replica], None]) -> None:
        async def main() -> None:
            replica = Replica(tmp_path)
            replica.pulses.start()
            act(replica)
            replica.pulses.stop()

        asyncio.run(main())

    return run


Scenario = Callable[[Callable[[Replica], None]], None]


def test_a_replica_that_has_just_started_judges_nobody(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        replica.pass_time(2.8, OTHERS)
        assert replica.pulses.why_unready() == QUORUM_GONE, "it is not ready, though"
        assert replica.pulses.refusals == ["", ""] and replica.pulses.refusal_of((0,)) is None
        replica.pass_time(1.0, OTHERS)
        assert replica.pulses.refusal_of((0,)) == replica.pulses.refusal_of((0, 1)) == (frames.UNAVAILABLE, QUORUM_GONE)
        assert replica.pulses.refusal_of((1,)) is None and replica.told == 1
        replica.pass_time(0.2, ALL)
        assert replica.pulses.refusals == ["", ""] and replica.pulses.why_unready() == "" and replica.told == 2

    scenario(act)


def test_a_replica_that_stood_still_judges_nobody(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        replica.pass_time(5.0, ALL)
        replica.pass_time(30.0, step=30.0)  # stopped, and continued
        assert replica.pulses.refusals == ["", ""]
        replica.pass_time(1.4)
        assert replica.pulses.refusals == ["", ""]
        replica.pass_time(0.6)
        assert replica.pulses.refusals == [QUORUM_GONE, "g1: g0/0 hears none of its replicas"]

    scenario(act)


def test_a_group_is_refused_when_all_of_it_that_is_heard_refuse(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        gone = Pulse("g1 has no quorum", "")
        replica.pass_time(5.0, {**ALL, 3: gone})
        assert replica.pulses.refusals == ["", ""], "one of them is cut off"
        replica.pass_time(2.0, {1: FINE, 3: gone})
        assert replica.pulses.refusals == ["", "g1 has no quorum"]

    scenario(act)


def test_an_election_is_waited_for(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        replica.pass_time(5.0, ALL)
        replica.unready = "no leader: an election is under way"
        replica.pass_time(4.8, ALL)
        assert replica.pulses.why_unready() == replica.unready and replica.pulses.refusals == ["", ""]
        replica.pass_time(0.6, ALL)
        assert replica.pulses.refusals == ["g0: no leader: an election is under way", ""]

    scenario(act)


def test_what_waits_while_nothing_is_delivered(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        replica.pass_time(5.0, ALL)
        replica.idle = False
        for _ in range(5):
            replica.history.end += 1
            replica.pass_time(2.0, ALL)
            assert replica.pulses.why_unready() == "", "it moves"
        replica.pass_time(1.4, ALL)
        assert replica.pulses.why_unready() == "g0 delivers nothing, though something waits"
        replica.pass_time(2.0, {1: FINE, 2: FINE})
        assert replica.pulses.why_unready() == "g0 waits for g1: g1: g0/0 hears none of its replicas"
        replica.idle = True
        replica.pass_time(1.2, ALL)
        assert replica.pulses.why_unready() == ""

    scenario(act)


def test_busy_when_too_few_members_have_room(scenario: Scenario) -> None:
    def act(replica: Replica) -> None:
        replica.pass_time(5.0, {**ALL, 1: Pulse("", "little disk")})
        assert replica.pulses.refusal_of((0,)) is None, "two of three have room"
        replica.pass_time(0.2, {**ALL, 1: Pulse("", "little disk"), 2: Pulse("", "little disk")})
        assert replica.pulses.refusal_of((0,)) == (frames.BUSY, "g0/1: little disk")
        replica.short = "no room"
        replica.pass_time(0.2, ALL)
        assert replica.pulses.refusal_of((0, 1)) == (frames.BUSY, "no room")

    scenario(act)
