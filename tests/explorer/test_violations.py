"""Broken protocols: the explorer finds them and shrinks what it found to a schedule that a person can read."""

import pytest

from amcast.checks import check
from amcast.core.protocol import Protocol
from amcast.core.trace import ListRecorder
from amcast.explorer.exploration import Exploration, explore, retell
from amcast.explorer.scope import Scope
from amcast.explorer.scopes import scope_named
from amcast.protocols import protocol
from tests.mutants import Mutant, test_skeen, test_white_box

TWICE = Scope("twice", "a client sends one after the other", (1, 1), (("c0", (0, 1)), ("c0", (0, 1))), at_once=True)
FALLEN = Scope(
    "fallen", "the client crashes, and one of two members tries to lead", (3,), (("c0", (0,)),),
    elections=("g0/1",), crashes=("c0",), at_once=True, mute=("Reply",),
)  # fmt: skip

SKEEN = {
    "clock_not_raised": ("small", "order", 8),
    "timestamp_used_twice": ("small", "order", 7),
    "lowest_proposal_wins": ("small", "order", 8),
    "own_proposal_wins": ("small", "order", 8),
    "one_proposal_missing": ("small", "order", 2),
    "delivered_when_committed": ("small", "order", 6),
    "no_reply": (TWICE, "completion", 0),
}


def skeen_mutant(name: str) -> Protocol:
    return test_skeen.table(next(mutant for mutant in test_skeen.MUTANTS if mutant.name == name))


def white_box_mutant(name: str) -> Protocol:
    broken: Mutant = next(mutant for mutant in test_white_box.MUTANTS if mutant.name == name)
    return test_white_box.broken_table(broken)


def shown_by(table: Protocol, found: Exploration) -> str:
    """What the shrunk schedule violates when it is run again, from its text alone, and judged by its trace."""
    assert found.violation is not None
    recorder = ListRecorder(full=True)
    problem = retell(table, found.violation, recorder)
    if problem:
        return problem.partition(":")[0]
    bad = [verdict.property for verdict in check(recorder.events) if verdict.status == "violated"]
    return bad[0] if bad else ""


@pytest.mark.parametrize("name", SKEEN)
def test_mutants_of_skeen_are_found(name: str) -> None:
    scope, property, most = SKEEN[name]
    table = skeen_mutant(name)
    found = explore(table, scope if isinstance(scope, Scope) else scope_named(table, scope))
    assert found.violation is not None and found.violation.property == property
    assert len(found.violation.moves) <= most
    assert shown_by(table, found) == (property if property != "completion" else "")


def test_unbroken_protocols_pass_the_same_scopes() -> None:
    for table, scope in ((protocol("skeen"), TWICE), (protocol("white_box"), FALLEN)):
        found = explore(table, scope, follow=50)
        assert found.complete and found.verdict == ("ok", "")


def test_the_error_of_the_paper_on_causal_multicast_is_found_and_its_repair_passes() -> None:
    """A message that is lost with its sender holds back what follows from the sender's next one (see causal.py)."""
    scope = scope_named(protocol("causal_stable"), "blind")
    found = explore(protocol("causal"), scope)
    assert found.violation is not None and found.violation.property == "agreement"
    assert len(found.violation.moves) <= 6
    mended = explore(protocol("causal_stable"), scope, follow=50)
    assert mended.complete and mended.verdict == ("ok", "")
