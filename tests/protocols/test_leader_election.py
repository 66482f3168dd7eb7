"""Who is suspected, and for how long one waits: patience grows with false suspicions, within bounds, and comes back."""

from amcast.core.process import Params
from amcast.protocols.parts.failure_detectors import CALM, MOST_PATIENCE
from amcast.protocols.parts.leader_election import LeaderElection

PARAMS = Params(1, 10, 100)


def fail_over(election: LeaderElection, now: int) -> int:
    """How long a silent leader goes unsuspected."""
    began = now
    while not election.newly_suspected(now):
        now += 1
    return now - began


def test_patience_grows_with_a_late_member_up_to_a_bound_and_shrinks_when_all_is_calm() -> None:
    election = LeaderElection(1, 2, PARAMS, 0)
    now, waits = 0, []
    for _ in range(10):  # crashes and comes back
        waits.append(fail_over(election, now))
        now += waits[-1] + 1
        assert election.heard(0, now)
    assert waits[:4] == [101, 201, 401, 801] and waits[-1] == MOST_PATIENCE * 100 + 1
    while now < 2 * waits[-1] * (CALM + 1) + 10_000:
        now += 10
        assert not election.heard(0, now)
    assert fail_over(election, now) == 101
