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
FOUND = {
    "white_box: delivered_not_cleared_at_a_new_leader": "ticks",
    "white_box: acks_counted_without_comparing_vectors": "storm",
    "white_box: third_vote_counts": "fallen",
    "white_box: no_retry_after_recovery": "ticks",
    "white_box: accepts_of_other_ballots_taken": "ticks",
    "white_box: delivered_twice": "fallen",
    "white_box: timestamp_used_twice": "pair",
    "white_box: committed_forgotten_at_a_new_state": "ticks",
    "white_box: collection_by_own_floor": "storm",
    "multi_paxos: any_log_of_the_highest_ballot": "fallen",
    "multi_paxos: quorum_too_small": "ticks",
    "paxos_amcast: log_not_announced_again": "ticks",
    "paxos_amcast: old_ballot_appends_stored": "ticks",
    "paxos_amcast: second_place_for_a_repeated_message": "ticks",
    "paxos_amcast: forgotten_before_all_learned": "ticks",
    "paxos_amcast: delivered_everywhere": "chain",
    "ft_skeen: any_log_of_the_highest_ballot": "storm",
    "ft_skeen: third_vote_counts": "fallen",
    "ft_skeen: clock_not_raised": "pair",
    "ft_skeen: clock_not_recovered": "ticks",
    "ft_skeen: timestamp_used_twice": "pair",
    "ft_skeen: one_group_missing": "pair",
    "ft_skeen: lowest_timestamp_wins": "pair",
    "ft_skeen: committed_messages_wait_for_nobody": "pair",
    "ft_skeen: hard_before_it_is_decided": "storm",
    "ft_skeen: no_retry_after_recovery": "storm",
    "ft_skeen: no_retry_by_timer": "pair",
    "ft_skeen: delivered_twice": "fallen",
    "ft_skeen: pending_messages_not_recovered": "storm",
    "fastcast: soft_taken_for_hard": "storm",
    "baseline: timestamp_used_twice": "pair",
    "baseline: waits_for_the_next_message": "pair",
    "baseline: own_group_does_not_count": "chain",
    "baseline: no_barrier_needed": "pair",
    "baseline: nobody_asks_for_missing_barriers": "storm",
    "baseline: new_leader_proposes_nothing": "ticks",
    "baseline: ordered_twice_delivered_twice": "ticks",
    "baseline: quorum_too_small": "ticks",
    "baseline: announced_to_the_group_only": "pair",
    "optimistic: guessed_twice": "pair",
    "white_box: duplicates_forgotten_too_early": "disk",
    "white_box: stuck_follower_not_heard": "disk",
    "white_box: promise_not_durable": "disk",
    "white_box: acceptance_not_durable": "disk",
    "white_box: delivery_not_durable": "disk",
    "white_box: leads_on_after_a_restart": "disk",
    "white_box: a_member_that_missed_a_delivery_is_not_helped": "disk",
    "white_box: a_member_that_missed_the_new_state_is_not_helped": "disk",
    "optimistic: never_guessed_if_ordered_first": "ticks",
    "optimistic: no_window": "chain",
}


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
