"""The mutants that the explorer reaches in a scope: random schedules show them, and a short one is left of each."""

import pytest

from amcast.explorer.exploration import explore
from amcast.explorer.search import Limits
from amcast.protocols import protocol
from tests.explorer.hunting import DEPTH, TABLES, hunt, moves_before, scope_for
from tests.explorer.table import AFTER, EQUAL, FOUND, UNREACHED
from tests.tools import FULL, some_now

QUICK = (  # a second together, one of each kind of scope
    "skeen: delivered_when_committed",
    "white_box: quorum_too_small",
    "white_box: old_ballot_joined",
    "white_box: duplicate_not_answered",
    "white_box: snapshot_without_sessions",
    "multi_paxos: stuck_follower_not_heard",
    "baseline: refused_messages_ordered",
    "baseline: forgotten_before_all_have_it",
    "fifo: ok_out_of_order",
    "causal: too_little_of_the_past",
    "lcr: pending_not_exchanged",
    "allconcur: reliable_not_passed_on",
    "allconcur_plus: newcomers_without_a_past",
    "allconcur_plus: previous_round_delivered_again",
    "allconcur: failed_means_lost",
)
USED = FOUND if FULL else QUICK


def test_every_mutant_has_one_entry() -> None:
    names = [*FOUND, *{**EQUAL, **UNREACHED}]
    assert sorted(names) == sorted(TABLES) and len(names) >= 215
    assert len(QUICK) == 15 and len(EQUAL) >= 10
    assert set(QUICK) <= set(FOUND) and set(AFTER) <= set(FOUND)


@pytest.mark.parametrize("name", some_now(FOUND, QUICK))
def test_mutant_is_found(name: str) -> None:
    found = hunt(name, FOUND[name])
    assert found.violation is not None, f"{name} survived in scope {FOUND[name]}"
    print(f"{found.violation.property}, {found.found_after} moves shrunk to {len(found.violation.moves)}")
    assert len(found.violation.moves) <= found.found_after
    assert found.found_after > len(moves_before(name)), "what comes before shows it: then nothing was explored"


@pytest.mark.parametrize("name", EQUAL)
def test_every_state_is_right_although_the_protocol_is_broken(name: str) -> None:
    table = TABLES[name]()
    found = explore(table, scope_for(table, EQUAL[name]), follow=1000)
    assert found.complete and found.violation is None and found.evidence.deliveries > 0


@pytest.mark.parametrize(
    ("name", "scope", "after"), sorted({(name.partition(":")[0], FOUND[name], moves_before(name)) for name in USED})
)
def test_unbroken_protocols_pass_the_scopes_of_the_hunt(name: str, scope: str, after: tuple[str, ...]) -> None:
    """Else a mutant would be found whatever is broken."""
    table = protocol(name)
    found = explore(table, scope_for(table, scope), Limits(depth=DEPTH), walks=300 if FULL else 3, after=after)
    assert found.violation is None, found.violation
    assert found.evidence.deliveries > 0 and found.evidence.multicasts > 0
