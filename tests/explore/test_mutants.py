"""The mutants that the explorer reaches in a scope: random schedules show them, and a short one is left of each."""

import os

import pytest

from amcast.lab.exploration import explore
from amcast.protocols import protocol
from tests.explore.hunting import TABLES, hunt, scopes_for

# Found within a second or so: mutant -> scope.
QUICK = {
    "skeen: delivered_when_committed": "chain",
    "white_box: clock_not_raised_at_accept": "pair",
    "white_box: no_retry_by_timer": "pair",
    "white_box: quorum_too_small": "pair",
    "white_box: own_clock_at_recovery": "fallen",
    "white_box: old_ballot_joined": "fallen",
}
# What else is found: `make explore` looks for all of them.
FOUND: dict[str, str] = {}


def is_found(name: str, scope: str) -> None:
    found = hunt(name, only=scope)
    assert found is not None and found.violation is not None, f"{name} survived in scope {scope}"
    print(f"{found.violation.property}, {found.found_after} moves shrunk to {len(found.violation.moves)}")
    assert len(found.violation.moves) <= found.found_after


@pytest.mark.parametrize("name", QUICK)
def test_mutant_is_found(name: str) -> None:
    is_found(name, QUICK[name])


@pytest.mark.skipif("EXPLORE_ALL" not in os.environ, reason="takes minutes: make explore")
@pytest.mark.parametrize("name", FOUND)
def test_mutant_is_found_at_leisure(name: str) -> None:
    is_found(name, FOUND[name])


@pytest.mark.parametrize("name", ["skeen", "white_box", "fastcast", "paxos_amcast", "baseline"])
def test_unbroken_protocols_pass_the_scopes_of_the_hunt(name: str) -> None:
    for scope in scopes_for(protocol(name)):
        found = explore(protocol(name), scope, walks=3)
        assert found.violation is None, f"{scope.name}: {found.violation}"


def test_the_names_are_those_of_mutants() -> None:
    assert {*QUICK, *FOUND} <= set(TABLES)
