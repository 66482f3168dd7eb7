"""Members of groups are replaced while a cluster runs, is loaded and is disturbed: nobody notices but by latency."""

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.errors import AmcastError
from amcast.local import membership
from amcast.local.trial import Trial
from amcast.protocols import protocol
from amcast.runtime.config import Member
from tests.chaos.test_rolling import percentile
from tests.pace import allow

ROUNDS = max(2, int(os.environ.get("CHAOS_ROUNDS", "8")) // 2)
SEED = int(os.environ.get("CHAOS_SEED", "1"))
RATE = 60.0
DEADLINE = 60.0


def changing(trial: Trial, group: int) -> membership.Changing:
    table = protocol(trial.config.protocol)
    return membership.Changing(trial.processes, table, group, None, allow(60.0), lambda line: print(line, flush=True))


def at_once(*work: Callable[[], None]) -> None:
    """Do all of it at the same time; raise what went wrong."""
    errors: list[BaseException] = []

    def guarded(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def judged(trial: Trial, tmp_path: Path, disturb: Callable[[], None]) -> teller.Takings:
    with trial:
        takings = teller.run(trial.client(deadline=DEADLINE), 1.0, RATE, actions=[(0.5, disturb)], seed=SEED)
        trial.look_again()
        evidence = trial.judge(tmp_path / "trace", takings)
    took = [seconds for _, seconds in takings.latencies]
    print(f"{evidence}; {takings.done} transfers, {takings.unknown} with unknown outcome, {takings.failed} refused")
    print(", ".join(f"p{percent} {1000 * percentile(took, percent):.0f} ms" for percent in (50, 99, 99.9, 100)))
    assert takings.total == takings.expected
    return takings


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_of_three_members_of_each_group_are_replaced(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "cluster", groups=2, secure=False)

    def replace_two(group: int) -> Callable[[], None]:
        def act() -> None:
            for seat in (0, 1):  # first the one that leads
                membership.replace(changing(trial, group), f"g{group}/{seat}", None)

        return act

    takings = judged(trial, tmp_path, lambda: at_once(replace_two(0), replace_two(1)))
    assert [member.name for member in trial.config.members] == ["g0/2", "g0/3", "g0/4", "g1/2", "g1/3", "g1/4"]
    assert not takings.failed and not takings.unknown, "a call failed, though a quorum was there all the time"


@pytest.mark.slow
@pytest.mark.timeout(400 + 240 * ROUNDS)
def test_members_change_in_the_middle_of_kills_and_restarts(tmp_path: Path) -> None:
    """Who dies is the leader, any member or the one that comes; commands are given again until they get through."""
    trial = Trial(tmp_path / "cluster", groups=2, secure=False)
    chance = random.Random(SEED)
    over = threading.Event()

    def insist(group: int, act: Callable[[membership.Changing, tuple[Member, ...]], None]) -> None:
        until = time.monotonic() + allow(180.0)
        while True:
            change = changing(trial, group)
            change.until = time.monotonic() + allow(20.0)
            try:
                act(change, change.members)
                return
            except AmcastError as error:
                print(f"again: {error}", flush=True)
                if "no member any more" in str(error):
                    return
                assert time.monotonic() < until, error

    def change_all() -> None:
        try:
            for turn in range(ROUNDS):
                group, seat = turn % 2, chance.randrange(3)
                trial.look_again()
                victim = trial.config.group(group)[seat]
                insist(group, lambda change, _, name=victim.name: membership.replace(change, name, None))  # type: ignore[misc]
        finally:
            over.set()

    def disturb() -> None:
        while not over.wait(chance.uniform(0.5, 3.0)):
            trial.look_again()
            joins = [one.member for one in membership.joining_in(trial.config)]
            victim = chance.choice([*trial.config.members, *joins])
            trial.kill(victim)
            trial.look_again()
            if victim in trial.config.members:
                trial.start(victim, wait=False)
                trial.processes.wait_until_ready([victim], allow(20.0))
            trial.killed = [one for one in trial.killed if one in trial.config.known.values()]

    takings = judged(trial, tmp_path, lambda: at_once(change_all, disturb))
    assert takings.done > 20
