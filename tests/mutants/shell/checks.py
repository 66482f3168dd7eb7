"""Mutants of the checks of a trace and of `amcast verify`: verdicts on nothing, and exit codes."""

from tests.mutants.shell import shell_mutant

EVIDENCE = "tests/checks/test_check_evidence.py"
VERIFY = "tests/cli/test_verify_command.py"

MUTANTS = [
    shell_mutant(
        "ok_needs_no_evidence", "amcast.checks.verdict",
        ('assert self.status != "ok" or self.evidence', 'assert self.status != "ok" or self.run'),
        caught_by=f"{EVIDENCE}::test_a_verdict_without_evidence_cannot_be_ok",
    ),
    shell_mutant(
        "multicasts_are_evidence", "amcast.checks.evidence",
        ("return self.deliveries > 0 or", "return self.multicasts > 0 or"),
        caught_by=f"{EVIDENCE}::test_a_verdict_without_evidence_cannot_be_ok",
    ),
    shell_mutant(
        "unknown_exits_0", "amcast.checks.verdict",
        ('3 if "unknown" in seen or not seen else 0', "0"),
        caught_by=f"{VERIFY}::test_nothing_is_not_ok",
    ),
    shell_mutant(
        "violated_exits_0", "amcast.checks.verdict",
        ('return 1 if "violated" in seen else', "return"),
        caught_by=f"{VERIFY}::test_exit_codes",
    ),
    shell_mutant(
        "no_verdict_exits_0", "amcast.checks.verdict",
        ("or not seen else 0", "else 0"),
        caught_by="tests/checks/test_check_api.py::test_exit_codes",
    ),
    shell_mutant(
        "absent_groups_are_not_missed", "amcast.checks.history",
        ("        return no_process_of(gone)\n", "        pass\n"),
        caught_by=f"{VERIFY}::test_nothing_is_not_ok",
    ),
    shell_mutant(
        "stated_members_are_not_read", "amcast.checks.history",
        ('size = document.get("members")', 'size = document.get("member")'),
        caught_by=f"{EVIDENCE}::test_start_rows_say_how_many_members_there_are",
    ),
    shell_mutant(
        "nobody_is_missed_for_want_of_start_rows", "amcast.checks.history",
        ("        return SOLITARY\n", '        return ""\n'),
        caught_by=f"{EVIDENCE}::test_one_process_per_group_may_be_all_that_is_left_of_it",
    ),
    shell_mutant(
        "replicas_are_those_that_are_known", "amcast.checks.history",
        ("bool(log.messages) and group != NO_GROUP", "group != NO_GROUP"),
        caught_by=f"{EVIDENCE}::test_what_a_verdict_rests_on",
    ),
    shell_mutant(
        "validity_of_what_nobody_multicast", "amcast.checks.validity",
        ("    if not known:\n", "    if not history.evidence.multicasts:\n"),
        caught_by=f"{EVIDENCE}::test_what_was_delivered_must_have_been_multicast_to_be_compared",
    ),
    shell_mutant(
        "fifo_order_of_strays", "amcast.checks.fifo",
        ("    if not pairs:\n", "    if not history.evidence.multicasts:\n"),
        caught_by=f"{EVIDENCE}::test_what_was_delivered_must_have_been_multicast_to_be_compared",
    ),
    shell_mutant(
        "first_row_of_a_multicast_counts", "amcast.checks.history",
        ("                if seq < log.seqs[index]:\n", "                if False:\n"),
        caught_by=f"{EVIDENCE}::test_a_repeated_multicast_counts_from_its_lowest_place_whatever_the_order_of_rows",
    ),
    shell_mutant(
        "verify_hides_what_a_verdict_rests_on", "amcast.cli.verify",
        ("Text(reason or rests_on(of_runs))", "Text(reason)"),
        caught_by=f"{VERIFY}::test_a_verdict_says_what_it_rests_on",
    ),
    shell_mutant(
        "verify_shows_the_best_of_many_runs", "amcast.cli.verify",
        ("worst = max(of_runs,", "worst = min(of_runs,"),
        caught_by=f"{VERIFY}::test_many_runs_are_counted_and_few_counterexamples_shown",
    ),
    shell_mutant(
        "page_trusts_a_file_without_evidence", "amcast.web.view",
        ('if verdict["status"] == "ok" and (doubt or not evidence):', 'if verdict["status"] == "ok" and doubt:'),
        caught_by="tests/web/test_web_server.py::test_verdicts_are_made_here_or_read",
    ),
]  # fmt: skip
