"""Mutants of what shows numbers and verdicts: metrics, the report's page, sweeps and figures of papers."""

from tests.mutants.shell import shell_mutant

CELLS = "tests/spark/test_report_cells.py"
SEEN = "tests/spark/test_nothing_seen.py"
ONE_RUN = f"{CELLS}::test_every_cell_of_one_run"
RUNS = f"{CELLS}::test_every_cell_of_several_runs"
DOUBTS = f"{CELLS}::test_verdicts_that_do_not_hold_are_not_green"
FIGURES = f"{SEEN}::test_figures_that_are_not_reproduced"

SECTIONS = "amcast.report.sections"
VERDICTS = "amcast.report.verdicts"
PAGE = "amcast.report.page"
VERDICT_FILE = "amcast.checks.verdict_file"
IN_FILE = "tests/cli/test_verdict_file.py"

CELLS_THAT_LIE = [
    shell_mutant(
        "report_swaps_p50_and_p99", SECTIONS,
        ('("median latency", f"{number(only[\'p50_ms\'])} ms"', '("median latency", f"{number(only[\'p99_ms\'])} ms"'),
        caught_by=ONE_RUN,
    ),
    shell_mutant(
        "report_swaps_columns_of_latency", SECTIONS,
        ('**{f"{name}_ms": f"{name}, ms" for name in ("p50", "p95", "p99", "max", "mean")}',
         '**{f"{name}_ms": f"{of}, ms" for name, of in zip('
         '("p99", "p95", "p50", "max", "mean"), ("p50", "p95", "p99", "max", "mean"))}'),
        caught_by=ONE_RUN,
    ),
    shell_mutant(
        "report_says_all_delivered_always", SECTIONS, ("    if multicasts == delivered:", "    if multicasts:"),
        caught_by=RUNS,
    ),
    shell_mutant(
        "report_says_all_delivered_of_nothing", SECTIONS, ("    if not multicasts:", "    if multicasts < 0:"),
        caught_by=f"{CELLS}::test_a_run_that_shows_nothing",
    ),
    shell_mutant(
        "report_hides_silent_replicas", SECTIONS, ('f"of {seen.replicas:,} of', 'f"of {seen.expected:,} of'),
        caught_by=RUNS,
    ),
    shell_mutant(
        "report_adds_up_only_the_first_run", SECTIONS,
        ('number(sum(run["multicasts"] or 0 for run in runs))', 'number(runs[0]["multicasts"])'), caught_by=RUNS,
    ),
    shell_mutant(
        "report_drops_notes", SECTIONS, ("notes((*material.doubts, *material.notes))", "notes(())"), caught_by=ONE_RUN
    ),
    shell_mutant(
        "report_drops_digits", PAGE, ('decimals = 1 if abs(value) >= 100', 'decimals = 0 if abs(value) >= 100'),
        caught_by=f"{CELLS}::test_numbers_keep_their_digits",
    ),
    shell_mutant(
        "report_loses_the_first_row", PAGE, ("shown = rows[:MOST_ROWS]", "shown = rows[1:MOST_ROWS]"),
        caught_by=f"{CELLS}::test_every_cell_of_a_sweep",
    ),
    shell_mutant(
        "report_drops_rows_silently", PAGE, ("left = len(rows) - len(shown)", "left = 0"),
        caught_by=f"{CELLS}::test_long_tables_say_how_much_is_left_out",
    ),
]  # fmt: skip

VERDICTS_THAT_LIE = [
    shell_mutant(
        "verdict_tile_always_ok", VERDICTS,
        ("status, remark = worst_of(verdicts), tally(", 'status, remark = "ok", tally('),
        caught_by=RUNS,
    ),
    shell_mutant(
        "worst_verdict_is_the_best", VERDICTS,
        ("worst = max(found, key=lambda verdict:", "worst = min(found, key=lambda verdict:"), caught_by=RUNS,
    ),
    shell_mutant(
        "violations_are_green", PAGE, ('"violated": "bad"', '"violated": "good"'),
        caught_by=f"{CELLS}::test_colours_of_words",
    ),
    shell_mutant(
        "every_status_is_green", PAGE, ('class="status {STATUS_CLASSES[words]}"', 'class="status good"'), caught_by=RUNS
    ),
    shell_mutant(
        "verdicts_without_evidence_are_ok", VERDICTS,
        ("(doubt or not evidence)", "doubt"), caught_by=DOUBTS,
    ),
    shell_mutant(
        "verdicts_on_another_trace_are_ok", VERDICTS, ("(doubt or not evidence)", "not evidence"),
        caught_by=f"{CELLS}::test_verdicts_of_another_trace_are_not_green",
    ),
    shell_mutant(
        "a_changed_trace_is_the_same", VERDICT_FILE, ('"" if said == here else OTHER_TRACE', '""'),
        caught_by=f"{IN_FILE}::test_verdicts_are_of_what_was_judged_and_of_nothing_else",
    ),
    shell_mutant(
        "verdicts_on_no_trace_are_of_this_one", VERDICT_FILE,
        ('doubt = NO_TRACE if said is None', 'doubt = "" if not said'),
        caught_by=f"{IN_FILE}::test_verdicts_are_of_what_was_judged_and_of_nothing_else",
    ),
    shell_mutant(
        "the_digest_is_of_names_only", VERDICT_FILE, ("json.dumps([name, content])", "json.dumps([name])"),
        caught_by=f"{IN_FILE}::test_the_digest_of_a_folder[content]",
    ),
    shell_mutant(
        "the_digest_is_of_contents_only", VERDICT_FILE, ("json.dumps([name, content])", "json.dumps([content])"),
        caught_by=f"{IN_FILE}::test_the_digest_of_a_folder[a name]",
    ),
    shell_mutant(
        "view_believes_verdicts_on_another_trace", "amcast.web.view",
        ('"ok" and (doubt or not evidence)', '"ok" and not evidence'),
        caught_by="tests/web/test_web_server.py::test_verdicts_are_made_here_or_read",
    ),
    shell_mutant(
        "properties_that_were_not_judged_are_not_missed", VERDICTS, ("if name not in seen]:", "if not seen]:"),
        caught_by=f"{CELLS}::test_properties_that_were_not_judged_are_named",
    ),
    shell_mutant(
        "some_properties_are_all", VERDICTS, ("return text if set(ALWAYS) <= set(given.asked) else", "return text or"),
        caught_by=f"{CELLS}::test_properties_that_were_not_judged_are_named",
    ),
    shell_mutant(
        "verdicts_on_other_deliveries_are_ok", VERDICTS,
        ("(not self.says or here == self.evidence.deliveries)", "True"), caught_by=DOUBTS,
    ),
    shell_mutant(
        "verdicts_on_other_runs_are_ok", VERDICTS,
        ("here is not None and (", "here is None or ("), ("    if strangers:", "    if not verdicts:"),
        caught_by=DOUBTS,
    ),
    shell_mutant(
        "runs_without_verdicts_are_verified", VERDICTS, ("        if left:", "        if not deliveries:"),
        caught_by=f"{CELLS}::test_a_run_without_a_verdict_is_not_verified",
    ),
    shell_mutant(
        "counter_examples_are_dropped_silently", VERDICTS, ("    if left > 0:", "    if left > 9:"),
        caught_by=f"{CELLS}::test_counter_examples_that_are_left_out_are_counted",
    ),
]  # fmt: skip

EXIT_CODES_THAT_LIE = [
    shell_mutant(
        "report_exits_0_in_doubt", "amcast.cli.report", ("return 3 if done.doubts else 0", "return 0"),
        caught_by=f"{CELLS}::test_the_exit_code_is_that_of_what_is_shown",
    ),
    shell_mutant(
        "metrics_exits_0_on_nothing", "amcast.cli.metrics", ("return 3 if missing else 0", "return 0"),
        caught_by=f"{SEEN}::test_metrics_of_nothing",
    ),
    shell_mutant(
        "metrics_looks_at_one_run", "amcast.spark.seen", ("        if lack := _lack(run):",
        '        if (lack := _lack(run)) and len(runs) == 1:'), caught_by=f"{SEEN}::test_metrics_of_nothing",
    ),
    shell_mutant(
        "metrics_of_no_replica", "amcast.spark.seen", ('run.get("replicas_seen") == 0', "not run"),
        caught_by=f"{SEEN}::test_metrics_of_nothing",
    ),
    shell_mutant(
        "metrics_of_nothing_that_was_multicast", "amcast.spark.seen",
        ('OF_NO_MULTICAST if run.get("delivered_somewhere") == 0 else ""', '""'),
        caught_by=f"{SEEN}::test_metrics_of_nothing",
    ),
    shell_mutant(
        "sweep_counts_failed_rows_as_ok", "amcast.cli.sweep",
        ("if done.statuses.get(FAILED) or done.statuses.get(CRASHED):", "if done.statuses.get(CRASHED):"),
        caught_by=f"{SEEN}::test_sweeps_of_nothing",
    ),
    shell_mutant(
        "sweep_exits_0_on_nothing", "amcast.cli.sweep", ("0 if done.evidence and done", "0 if done"),
        caught_by=f"{SEEN}::test_sweeps_of_nothing",
    ),
    shell_mutant(
        "empty_rows_are_ok", "amcast.spark.row",
        ('if line["status"] == OK and not line["deliveries"]:', 'if line["status"] == EMPTY:'),
        caught_by=f"{SEEN}::test_a_row_in_which_nothing_is_delivered_is_not_ok",
    ),
    shell_mutant(
        "reproduce_exits_0_for_what_is_not_met", "amcast.cli.reproduce",
        ("any(figure.not_ok or figure.claims_that_are(NOT_MET) for", "any(figure.not_ok for"), caught_by=FIGURES,
    ),
    shell_mutant(
        "reproduce_exits_0_for_what_is_not_measured", "amcast.cli.reproduce",
        ("figure.evidence and figure.claims and not figure.claims_that_are(NOT_MEASURED)", "True"), caught_by=FIGURES,
    ),
    shell_mutant(
        "every_claim_is_met", "amcast.report.reproduce",
        ("        if self.claim.is_met_by(self.value):", "        if self.value:"),
        caught_by=f"{SEEN}::test_when_a_claim_is_met",
    ),
    shell_mutant(
        "upper_bounds_are_not_looked_at", "amcast.report.figure", ("value <= self.at_most", "value >= -self.at_most"),
        caught_by=f"{SEEN}::test_when_a_claim_is_met",
    ),
]  # fmt: skip

MUTANTS = [*CELLS_THAT_LIE, *VERDICTS_THAT_LIE, *EXIT_CODES_THAT_LIE]
