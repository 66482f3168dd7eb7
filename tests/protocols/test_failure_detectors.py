"""Who is suspected when: P never forgives, ◇P does, and only those who are watched count."""

from amcast.core.process import Params
from amcast.protocols.parts.failure_detectors import CALM, LONGEST_TIMEOUT, FailureDetector

PARAMS = Params(1, 10, 100)


def test_perfect_never_forgives() -> None:
    detector = FailureDetector((1, 2), 4, PARAMS, 0, forgives=False)
    detector.heard(2, 90)
    assert detector.newly_suspected(100) == [] and detector.newly_suspected(101) == [1]
    assert not detector.heard(1, 102) and detector.suspected == [False, True, False, False]
    assert detector.newly_suspected(103) == []


def test_eventually_perfect_waits_longer_the_next_time() -> None:
    detector = FailureDetector((1,), 2, PARAMS, 0)
    assert detector.newly_suspected(101) == [1]
    assert detector.heard(1, 150) and not detector.suspected[1]
    assert detector.newly_suspected(350) == [] and detector.newly_suspected(351) == [1]


def test_who_is_new_has_time() -> None:
    detector = FailureDetector((1,), 4, PARAMS, 0)
    detector.watch((2, 3), 1000)
    assert detector.newly_suspected(1100) == [] and detector.newly_suspected(1101) == [2, 3]


def test_who_stood_still_blames_nobody() -> None:
    detector = FailureDetector((1, 2), 4, PARAMS, 0, forgives=False)
    for now in range(10, 80, 10):
        detector.look(now)
        assert detector.newly_suspected(now) == []
    detector.heard(2, 70)
    detector.look(500)  # woken: what the others said meanwhile waits to be read
    assert detector.newly_suspected(500) == []
    detector.look(510)
    assert detector.newly_suspected(510) == [] and detector.newly_suspected(512) == [1]


def fail_over(detector: FailureDetector, now: int) -> int:
    """How long a silent leader goes unsuspected."""
    began = now
    while not detector.newly_suspected(now):
        now += 1
    return now - began


def test_patience_grows_with_a_late_member_up_to_a_bound_and_shrinks_when_all_is_calm() -> None:
    detector = FailureDetector((0,), 2, PARAMS, 0)
    now, waits = 0, []
    for _ in range(10):  # crashes and comes back
        waits.append(fail_over(detector, now))
        now += waits[-1] + 1
        assert detector.heard(0, now)
    assert waits[:4] == [101, 201, 401, 801] and waits[-1] == LONGEST_TIMEOUT * 100 + 1
    while now < 2 * waits[-1] * (CALM + 1) + 10_000:
        now += 10
        assert not detector.heard(0, now)
    assert fail_over(detector, now) == 101


def test_a_restart_is_no_reason_for_more_patience() -> None:
    """Else a leader that was restarted three times is missed only after eight times as long, when it dies."""
    detector = FailureDetector((0,), 2, PARAMS, 0)
    now, waits = 0, []
    for _ in range(5):
        waits.append(fail_over(detector, now))
        now += waits[-1] + 1
        detector.restarted(0)
        assert detector.heard(0, now)
    assert waits == [101] * 5
    now += fail_over(detector, now) + 1
    assert detector.heard(0, now), "late, and did not restart this time"
    assert fail_over(detector, now) == 201
