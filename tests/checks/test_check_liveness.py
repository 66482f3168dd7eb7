"""Agreement and termination, which need an `end` row, and what a crash excuses."""

import pytest
from trace_rows import Trace, told


def one_missing() -> Trace:
    trace = Trace().start("g0/0", "g0/1", "g1/0").multicast("c1", "a", "g0", "g1")
    return trace.deliver("g0/0", "a").deliver("g1/0", "a")


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_liveness_of_a_run_that_was_cut_off_is_unknown(name: str) -> None:
    verdict = one_missing().verdict(name)
    assert verdict.status == "unknown"
    assert "no end row" in verdict.reason
    assert verdict.counterexample == ()


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_liveness_holds_when_everybody_delivered(name: str) -> None:
    assert one_missing().deliver("g0/1", "a").end().verdict(name).status == "ok"


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform"])
def test_a_replica_that_only_started_is_missed(name: str) -> None:
    verdict = one_missing().end().verdict(name)
    assert verdict.status == "violated"
    assert told(verdict) == [("multicast", "c1", "a"), ("deliver", "g0/0", "a")]
    assert verdict.reason == "g0/0 delivered a (to g0, g1), but g0/1 of g0, which is up, never did"


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_a_process_that_crashed_need_not_deliver(name: str) -> None:
    assert one_missing().crash("g0/1").end().verdict(name).status == "ok"


@pytest.mark.parametrize("name", ["agreement", "agreement-nonuniform", "termination"])
def test_a_process_that_restarted_must_deliver_after_all(name: str) -> None:
    trace = one_missing().crash("g0/1").restart("g0/1")
    assert trace.end().verdict(name).status == "violated"


def test_a_second_crash_after_the_restart_excuses_again() -> None:
    trace = one_missing().crash("g0/1").restart("g0/1").crash("g0/1").end()
    assert trace.verdict("agreement").status == "ok"


def test_uniform_agreement_counts_what_a_crashed_process_delivered_and_nonuniform_does_not() -> None:
    trace = Trace().start("g0/0", "g0/1").multicast("c1", "a", "g0").crash("c1")
    trace.deliver("g0/0", "a").crash("g0/0").end()
    uniform = trace.verdict("agreement")
    assert uniform.status == "violated"
    assert told(uniform) == [("multicast", "c1", "a"), ("deliver", "g0/0", "a")]
    assert "g0/1 of g0" in uniform.reason
    assert trace.multicast("c2", "b", "g0").deliver("g0/1", "b").verdict("agreement-nonuniform").status == "ok"
    assert trace.verdict("termination").status == "ok"


def test_termination_misses_a_message_that_nobody_delivered() -> None:
    trace = Trace().start("g0/0", "g0/1").multicast("c1", "a", "g0").end()
    verdict = trace.verdict("termination")
    assert verdict.status == "violated"
    assert told(verdict) == [("multicast", "c1", "a")]
    assert verdict.reason == "c1 multicast a to g0 and did not crash, but g0/0 of g0, which is up, never delivered it"
    assert trace.verdict("agreement").status == "unknown"  # nobody has anything to agree on


def test_termination_excuses_what_the_sender_multicast_before_its_crash_but_not_after_its_restart() -> None:
    trace = Trace().start("g0/0").multicast("c1", "a", "g0").crash("c1").restart("c1")
    excused = Trace().start("g0/0").multicast("c1", "a", "g0").crash("c1").end()
    assert "every sender or every destination crashed" in excused.verdict("termination").reason
    assert excused.multicast("c2", "b", "g0").deliver("g0/0", "b").verdict("termination").status == "ok"
    verdict = trace.multicast("c1", "b", "g0").end().verdict("termination")
    assert verdict.status == "violated"
    assert told(verdict) == [("multicast", "c1", "b")]
