"""Mutants of what draws, runs, judges and counts: swarm, explore, replay and claims."""

from tests.mutants.shell import shell_mutant

SWARM = "tests/cli/test_swarm_command.py"
JUDGING = "tests/swarm/test_judging.py"
EXPLORE = "tests/cli/test_explore_command.py"
CLAIMS = "tests/paper/test_claims.py"

SEEDS = [
    shell_mutant(
        "swarm_always_exits_0", "amcast.cli.swarm",
        ("return 130 if tally.interrupted else tally.exit_code()", "return 0"),
        caught_by=f"{SWARM}::test_a_failing_seed_prints_the_command_that_replays_it",
    ),
    shell_mutant(
        "failing_seeds_not_counted", "amcast.cli.swarm",
        ("            if result.problem:", "            if False:"),
        caught_by=f"{SWARM}::test_failures_in_json",
    ),
    shell_mutant(
        "excused_seeds_are_ok", "amcast.swarm.tally",
        ("        if outcome.excuse:", "        if False:"),
        caught_by=f"{SWARM}::test_excused_seeds_only_are_unknown",
    ),
    shell_mutant(
        "refused_messages_not_counted", "amcast.swarm.tally",
        ("        self.refused += outcome.refused\n", ""),
        caught_by=f"{SWARM}::test_the_line_says_what_was_delivered_refused_and_excused",
    ),
    shell_mutant(
        "swarm_that_delivered_nothing_is_ok", "amcast.swarm.tally",
        ('{"ok": 0, "violated": 1, "unknown": 3}', '{"ok": 0, "violated": 1, "unknown": 0}'),
        caught_by=f"{SWARM}::test_nothing_delivered_is_unknown",
    ),
    shell_mutant(
        "interrupted_swarms_are_ok", "amcast.swarm.tally",
        ("        if self.done < self.asked:", "        if False:"),
        caught_by=f"{SWARM}::test_what_was_interrupted_is_not_ok",
    ),
    shell_mutant(
        "floor_ignored", "amcast.checks.refusals",
        ("100 * delivered >= least * multicasts", "True"),
        caught_by=f"{SWARM}::test_too_few_deliveries_are_a_failure",
    ),
    shell_mutant(
        "every_refusal_is_right", "amcast.checks.refusals",
        ("        if not is_justified(row, sent, changes):", "        if False:"),
        caught_by="tests/mutants/test_optimistic.py"
        "::test_mutant_that_refuses_too_much_is_caught_by_the_swarm[every_message_refused-baseline]",
    ),
    shell_mutant(
        "refused_and_delivered", "amcast.checks.refusals",
        ("        if row.message in delivered:", "        if False:"),
        caught_by=f"{JUDGING}::test_a_refusal_needs_a_reason",
    ),
    shell_mutant(
        "anything_excuses_a_seed", "amcast.swarm.trial",
        ("        if any(group in (row.dest or ())", "        if True or any(group in (row.dest or ())"),
        caught_by=f"{JUDGING}::test_only_what_is_lost_with_its_sender_excuses",
    ),
    shell_mutant(
        "faults_not_counted", "amcast.swarm.trial",
        ("self.world.at(time, Counted(action, self.acted))", "self.world.at(time, action)"),
        caught_by=f"{JUDGING}::test_faults_are_counted_when_they_happen",
    ),
]  # fmt: skip

SCHEDULES = [
    shell_mutant(
        "explore_exits_0_on_a_violation", "amcast.cli.explore",
        ('return 1 if "violated" in found_out else 3 if', 'return 3 if'),
        caught_by=f"{EXPLORE}::test_a_violation_is_shrunk_and_written",
    ),
    shell_mutant(
        "explore_exits_0_on_nothing", "amcast.cli.explore",
        ('3 if "unknown" in found_out or not found_out else 4', "4"),
        caught_by=f"{EXPLORE}::test_a_search_that_saw_too_little_knows_nothing",
    ),
    shell_mutant(
        "cut_search_called_complete", "amcast.explorer.search",
        ("self.complete = self.found is None and not cut", "self.complete = self.found is None"),
        caught_by=f"{EXPLORE}::test_a_search_that_is_cut_goes_on_in_calm",
    ),
    shell_mutant(
        "explore_exits_0_on_a_part", "amcast.cli.explore",
        (" else 4 if cut else 0", " else 0"),
        caught_by=f"{EXPLORE}::test_a_search_that_is_cut_goes_on_with_slow_channels_and_has_an_exit_code_of_its_own",
    ),
    shell_mutant(
        "explore_hides_where_nothing_was_asserted", "amcast.cli.explore",
        ("if result.schedules < result.ways:", "if False:"),
        caught_by=f"{EXPLORE}::test_a_line_says_where_invariants_were_not_asserted",
    ),
    shell_mutant(
        "unseen_not_reported", "amcast.cli.explore",
        ("    if result.unseen:", "    if False:"),
        caught_by=f"{EXPLORE}::test_limits_and_random_schedules",
    ),
    shell_mutant(
        "scope_without_what_it_is_made_for_is_ok", "amcast.explorer.exploration",
        ("        if self.unseen:\n            where", "        if False:\n            where"),
        caught_by=f"{EXPLORE}::test_a_scope_that_does_not_show_what_it_is_made_for_is_unknown",
    ),
    shell_mutant(
        "states_not_judged", "amcast.explorer.properties",
        ('            if verdict.status == "violated":', "            if False:"),
        caught_by=f"{EXPLORE}::test_a_violation_is_shrunk_and_written",
    ),
    shell_mutant(
        "replay_always_exits_0", "amcast.cli.replay",
        ('return {"ok": 0, "violated": 1, "unknown": 3}[status]', "return 0"),
        caught_by=f"{EXPLORE}::test_a_violation_that_is_replayed_is_judged_again",
    ),
    shell_mutant(
        "replay_believes_its_file", "amcast.explorer.exploration",
        (
            "    if found is not None:\n        return",
            "    if schedule.problem:\n        return 'violated', schedule.problem\n"
            "    if found is not None:\n        return",
        ),
        caught_by=f"{EXPLORE}::test_a_violation_that_is_replayed_is_judged_again",
    ),
]  # fmt: skip

PAPERS = [
    shell_mutant(
        "claims_exit_0_if_one_is_not_met", "amcast.cli.claims",
        ("0 if all(claim.ok for claim in found) else 1", "0"),
        caught_by=f"{CLAIMS}::test_a_claim_that_is_not_met_fails_the_command",
    ),
    shell_mutant(
        "no_claims_are_all_met", "amcast.cli.claims",
        ("return 3 if not found else 0", "return 0"),
        caught_by=f"{CLAIMS}::test_no_claims_are_unknown",
    ),
    shell_mutant(
        "claim_met_on_nothing", "amcast.claims.table",
        (" and (bool(evidence) or scenario.computed)", ""),
        caught_by=f"{CLAIMS}::test_a_claim_that_was_measured_on_nothing_is_not_met",
    ),
]  # fmt: skip

MUTANTS = SEEDS + SCHEDULES + PAPERS
