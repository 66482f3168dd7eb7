"""Leaders are restarted, killed and changed by command under load: each change is one election, and no call fails."""

from pathlib import Path

import pytest

from amcast.apps import teller
from amcast.cli import run
from amcast.local.trial import Trial
from tests.pace import allow, until


def ballot(trial: Trial) -> int:
    """Return the number of elections so far, when all replicas agree on it."""
    found: set[object] = set()

    def agree() -> bool:
        found.clear()
        found.update(status.get("ballot") for status in trial.statuses().values())
        return len(found) == 1 and len(trial.statuses()) == len(trial.alive())

    assert until(agree, 30), found
    number = found.pop()
    assert isinstance(number, int)
    return number


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_change_of_leader_is_one_election(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "cluster", groups=1, secure=False)
    first = trial.config.member("g0/0")
    ballots: list[int] = []

    def change() -> None:
        ballots.append(ballot(trial))
        trial.stop(first)
        trial.start(first)  # it does not take the lead back
        ballots.append(ballot(trial))
        leader = trial.leader(0)
        trial.kill(leader)
        assert until(lambda: any(status["leads"] for status in trial.statuses().values()), 30)
        trial.start(leader)
        ballots.append(ballot(trial))
        for name in ("g0/0", "g0/1", "g0/2"):
            if trial.leader(0).name != name:
                assert run(["cluster", "lead", str(trial.config.path), name]) == 0
                ballots.append(ballot(trial))

    with trial:
        takings = teller.run(trial.client(deadline=allow(30)), 1.0, 100.0, actions=[(0.3, change)], seed=1)
        trial.judge(tmp_path / "trace", takings)
    assert ballots == list(range(ballots[0], ballots[0] + len(ballots))) and len(ballots) >= 5, ballots
    assert not takings.failed and not takings.unknown
