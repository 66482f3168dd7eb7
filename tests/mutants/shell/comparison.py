"""Mutants of what replicas of a group know of each other's past, and of what they conclude."""

from tests.mutants.shell import shell_mutant

TESTS = "tests/runtime/test_comparison.py"
ODD = f"{TESTS}::test_a_replica_whose_application_differs_stops_and_the_others_go_on"
MAJORITY = f"{TESTS}::test_who_differs_from_a_majority_stops_and_nobody_else[0]"
RESTARTS = f"{TESTS}::test_equal_replicas_go_on_through_restarts"

CHAINS = [
    shell_mutant(
        "answers_are_not_in_the_chain", "amcast.runtime.node",
        ("self.chain.add(m, ts, answer)", 'self.chain.add(m, ts, b"")'), caught_by=ODD,
    ),
    shell_mutant(
        "payloads_are_not_in_the_chain", "amcast.runtime.chain",
        ("        found.update(m.payload)\n", ""),
        caught_by=f"{TESTS}::test_whatever_differs_changes_the_chain_for_good[payload]",
    ),
    shell_mutant(
        "the_chain_forgets_what_was_before", "amcast.runtime.chain",
        ("LINK.pack(self.value, ", "LINK.pack(0, "),
        caught_by=f"{TESTS}::test_whatever_differs_changes_the_chain_for_good[answer]",
    ),
    shell_mutant(
        "the_chain_is_not_in_snapshots", "amcast.runtime.node",
        ("app, rows, self.chain.end, version, self", "app, rows, None, version, self"), caught_by=RESTARTS,
    ),
    shell_mutant(
        "a_chain_that_began_late_never_begins_anew", "amcast.runtime.chain",
        ("if self.since and self.position // ANEW", "if False and self.position // ANEW"),
        caught_by=f"{TESTS}::test_chains_from_data_without_one_can_be_compared_from_some_position_on",
    ),
]  # fmt: skip

CONCLUSIONS = [
    shell_mutant(
        "who_differs_from_a_majority_goes_on", "amcast.runtime.comparison",
        ("        elif agree >= self._majority:\n", "        elif agree > len(self._names):\n"), caught_by=MAJORITY,
    ),
    shell_mutant(
        "without_a_majority_all_go_on", "amcast.runtime.comparison",
        ("elif len(votes) == len(self._names) or dispute", "elif len(votes) > len(self._names) and dispute"),
        caught_by=f"{TESTS}::test_without_a_majority_all_stop[0]",
    ),
    shell_mutant(
        "two_wait_for_the_third_for_ever", "amcast.runtime.comparison",
        ("        return TICKS_TO_AGREE\n", "        return 10**9\n"),
        caught_by=f"{TESTS}::test_two_that_differ_wait_for_the_third_but_not_for_ever[0]",
    ),
    shell_mutant(
        "who_is_asked_does_not_answer", "amcast.runtime.comparison",
        ("            self._host.state(pid, Statement(ours))\n", "            pass\n"), caught_by=MAJORITY,
    ),
    shell_mutant(
        "what_is_ahead_is_forgotten", "amcast.runtime.comparison",
        ("            ahead[link.position] = statement\n", ""),
        caught_by=f"{TESTS}::test_who_is_behind_is_judged_when_it_gets_there[0]",
    ),
    shell_mutant(
        "who_was_wrong_still_has_a_vote", "amcast.runtime.comparison",
        ("            self._drop_votes()\n", "            del self._disputes[position]\n"), caught_by=MAJORITY,
    ),
]  # fmt: skip

ASKED = "tests/runtime/test_compare.py"
COMMAND = [
    shell_mutant(
        "states_are_not_compared", "amcast.local.compare",
        ('("state", by(there, "state")))', '("state", by({}, "state")))'),
        caught_by=f"{ASKED}::test_states_that_differ",
    ),
    shell_mutant(
        "chains_are_not_compared", "amcast.local.compare",
        ('(("chain", by(there, "chain")),', '(("chain", by({}, "chain")),'),
        caught_by=f"{ASKED}::test_chains_that_differ",
    ),
    shell_mutant(
        "who_is_silent_agrees", "amcast.local.compare",
        ("whole = len(there) == len(members) and", "whole ="),
        caught_by=f"{ASKED}::test_who_does_not_answer_is_named",
    ),
    shell_mutant(
        "states_that_were_not_taken_agree", "amcast.local.compare",
        ("unknown = any(one.passed or one.pending for one in there.values())", "unknown = False"),
        caught_by=f"{ASKED}::test_states_that_could_not_be_taken_are_not_said_to_agree",
    ),
    shell_mutant(
        "nodes_of_another_cluster_are_compared", "amcast.local.compare",
        ("    if isinstance(said, str):\n        return said\n", ""),
        caught_by=f"{ASKED}::test_nodes_of_another_cluster_are_not_compared",
    ),
    shell_mutant(
        "replicas_that_differ_exit_0", "amcast.cli.cluster",
        ('{"ok": 0, "violated": 1,', '{"ok": 0, "violated": 0,'), caught_by=f"{ASKED}::test_states_that_differ",
    ),
    shell_mutant(
        "a_state_of_another_position", "amcast.runtime.fingerprints",
        ("        self.wanted = None in self._hashes.values()\n", "        self.wanted = False\n"),
        caught_by=f"{ASKED}::test_a_state_is_taken_when_its_position_is_reached",
    ),
]  # fmt: skip

MUTANTS = [*CHAINS, *CONCLUSIONS, *COMMAND]
