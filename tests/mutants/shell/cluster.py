"""Mutants of what runs and judges real processes: trials, their judge, `cluster trace` and `status`, the demo."""

from tests.mutants.shell import shell_mutant

TRIAL, LEVEL, GATHER = "amcast.local.trial", "amcast.local.level", "amcast.local.gather"
TELLER, DEMO, TRACING = "amcast.apps.teller", "amcast.cli.demo", "amcast.runtime.tracing"
IN_TRIAL, IN_TRACE, IN_DEMO = "tests/cli/test_trial.py", "tests/cli/test_cluster_trace.py", "tests/cli/test_demo.py"
WRONG = f"{IN_TRIAL}::test_what_is_wrong_is_said"
BACK = "tests/runtime/test_tracing.py::test_a_process_that_comes_back_keeps_its_rows"
WAYS_TO_END = "tests/apps/test_teller.py::test_every_way_to_end_is_counted"
NAMED = f"{IN_TRACE}::test_missing_members_are_named[a group]"
RESTLESS = f"{IN_TRACE}::test_a_cluster_that_is_not_at_rest_gets_no_end"

TRIALS = [
    shell_mutant(
        "nodes_write_no_trace", "amcast.local.processes",
        ('["--trace", str(self.trace)] if self.trace is not None else []', "[]"),
        caught_by=f"{IN_TRIAL}::test_nodes_are_told_where_to_write_whatever_folder_they_run_in",
    ),
    shell_mutant(
        "nodes_write_traces_relative_to_their_own_folder", "amcast.local.processes",
        ("trace.absolute() if trace is not None", "trace.relative_to(Path.cwd()) if trace is not None"),
        caught_by=f"{IN_TRIAL}::test_nodes_are_told_where_to_write_whatever_folder_they_run_in",
    ),
    shell_mutant(
        "a_trial_is_always_level", TRIAL,
        ("        end = time.monotonic() + SECONDS_TO_CATCH_UP\n", "        return True\n"),
        caught_by=f"{IN_TRIAL}::test_what_is_not_level[g1/0 is at position 3, g1/1 at 4]",
    ),
    shell_mutant(
        "one_look_is_enough_to_be_level", TRIAL, ("if now is not None and now == before:", "if now is not None:"),
        caught_by=f"{IN_TRIAL}::test_level_is_what_two_looks_agree_on",
    ),
    shell_mutant(
        "silent_nodes_are_level", LEVEL,
        ('            return f"{member.name} does not answer at {member.admin}"\n', "            continue\n"),
        caught_by=f"{IN_TRIAL}::test_what_is_not_level[g0/0 does not answer]",
    ),
    shell_mutant(
        "a_node_of_another_cluster_counts", LEVEL,
        ('!= (config.name, member.name)', "== ()"), caught_by=f"{RESTLESS}[g1/0 does not answer]",
    ),
    shell_mutant(
        "clients_have_nothing_under_way", LEVEL, ('if said.get("clients")]', "if False]"),
        caught_by=f"{IN_TRIAL}::test_what_is_not_level[clients are connected to g0/0]",
    ),
    shell_mutant(
        "a_trial_finds_no_problem", TRIAL, ("        if problems:\n", "        if False:\n"),
        caught_by=f"{IN_TRIAL}::test_a_trial_names_no_more_problems_than_fit_in_a_line",
    ),
    shell_mutant(
        "the_judge_ignores_what_nobody_delivered", TRIAL,
        ("if not must <= set(by) <= must | may", "if by and not must <= set(by) <= must | may"),
        caught_by=f"{WRONG}[c1:2 to ('g1',) was acknowledged, but it was delivered by []]",
    ),
    shell_mutant(
        "the_judge_ignores_acknowledged_ones_that_the_trace_lacks", TRIAL,
        ("if dests.get(name) != named:", "if dests.get(name, named) != named:"),
        caught_by=f"{WRONG}[c1:2 to ('g1',) was acknowledged, but the trace has it to None]",
    ),
    shell_mutant(
        "the_judge_takes_unknown_for_ok", TRIAL, ('if v.status != "ok"]', 'if v.status == "violated"]'),
        caught_by=f"{WRONG}[agreement is unknown]",
    ),
    shell_mutant(
        "the_judge_needs_no_deliveries_of_a_member", TRIAL,
        ("for member in up if not deliverers[member.name]]", "for member in up if not deliverers]"),
        caught_by=f"{WRONG}[g0/1 delivered nothing]",
    ),
    shell_mutant(
        "the_judge_is_content_without_load", TRIAL, ("    if not pairs:\n", "    if pairs < 0:\n"),
        caught_by=f"{WRONG}[nothing was acknowledged]",
    ),
    shell_mutant(
        "unexpected_errors_of_the_teller_are_swallowed", TELLER,
        ("            self.unexpected.append(repr(error))", "            pass"),
        caught_by=WAYS_TO_END,
    ),
    shell_mutant(
        "acknowledgements_under_the_ids_of_others", "amcast.runtime.client",
        ("self._result(first + i, part)", "self._result(first, part)"),
        caught_by="tests/runtime/test_client_batches.py::test_each_message_has_its_place_its_answer_and_its_id",
    ),
]  # fmt: skip

TRACES = [
    shell_mutant(
        "cluster_trace_does_not_miss_members", GATHER, ("if missing and not partial:", "if missing and partial:"),
        caught_by=NAMED,
    ),
    shell_mutant(
        "cluster_trace_expects_who_is_there", GATHER,
        ("if member.name in began or member.pid in needed]", "if member.name in began]"), caught_by=NAMED,
    ),
    shell_mutant(
        "cluster_trace_always_ends", GATHER, ("        if not found.not_ended:\n", "        if found:\n"),
        caught_by=f"{IN_TRACE}::test_whether_stopped_nodes_were_done_only_the_user_knows",
    ),
    shell_mutant(
        "a_partial_trace_ends", GATHER,
        ("found.not_ended = lack or why_not_ended(found)", 'found.not_ended = ""'), caught_by=NAMED,
    ),
    shell_mutant(
        "cluster_trace_takes_copies", GATHER, ("        if other != file:\n", "        if False:\n"),
        caught_by=f"{IN_TRACE}::test_a_file_that_is_there_twice_is_named[g0-1-g0/1]",
    ),
    shell_mutant(
        "cluster_trace_exits_0_without_an_end", "amcast.cli.cluster",
        ("return 3 if found.not_ended else 0", "return 0"), caught_by=f"{RESTLESS}[no node answers]",
    ),
    shell_mutant(
        "cluster_trace_looks_only_before", LEVEL, ("for said in (before, after):", "for said in (before,):"),
        caught_by=f"{RESTLESS}[g1/2 does not answer]",
    ),
    shell_mutant(
        "cluster_trace_does_not_count_rows", LEVEL, ("        if rows != position:\n", "        if False:\n"),
        caught_by=f"{RESTLESS}[g0/0 delivered 5 messages, its file has 4]",
    ),
    shell_mutant(
        "a_restart_loses_a_row", TRACING,
        ('data = data[: data.rfind(b"\\n") + 1]', 'data = data[: data[:-1].rfind(b"\\n", 0, -60) + 1]'), caught_by=BACK,
    ),
    shell_mutant(
        "a_torn_row_counts_as_written", TRACING,
        ('            data = data[: data.rfind(b"\\n") + 1]  #', "            pass  #"),
        caught_by=BACK,
    ),
    shell_mutant(
        "a_start_row_does_not_say_how_many_there_are", TRACING, ('{{"members": {members}}}', "{{}}"), caught_by=BACK
    ),
]  # fmt: skip

COMMANDS = [
    shell_mutant(
        "status_exits_0_whoever_is_down", "amcast.cli.cluster",
        ('return 0 if all(row["state"] in ("ready", "spare") for row in rows) else 1', "return 0"),
        caught_by="tests/cli/test_cluster_init.py::test_spare_replicas",
    ),
    shell_mutant(
        "ledger_does_not_miss_the_silent", "amcast.cli.ledger",
        ('    if status == "ok" and unheard:\n', "    if False:\n"),
        caught_by="tests/apps/test_ledger_command.py::test_a_server_that_does_not_answer_may_differ",
    ),
    shell_mutant(
        "ledger_takes_the_silent_for_gone", "amcast.apps.chains",
        ("if said == {len(answering)} else set()", "if said else set()"),
        caught_by="tests/apps/test_ledger_command.py::test_who_left_is_known_if_the_others_are_all_there",
    ),
    shell_mutant(
        "demo_exits_0", DEMO, ("return 1 if problems else exit_code(verdicts)", "return 0"),
        caught_by=f"{IN_DEMO}::test_the_exit_code",
    ),
    shell_mutant(
        "demo_ignores_its_problems", DEMO, ("return 1 if problems else exit_code(", "return exit_code("),
        caught_by=f"{IN_DEMO}::test_the_exit_code",
    ),
    shell_mutant(
        "demo_ignores_missing_deliveries", DEMO,
        ("if not implied <= evidence.deliveries <= most or evidence.replicas != sum(sizes):",
         "if evidence.deliveries > most:"),
        caught_by=f"{IN_DEMO}::test_deliveries_that_do_not_match_the_transfers[imply 9 of 6]",
    ),
    shell_mutant(
        "demo_ignores_unknown_outcomes", DEMO,
        ("    if takings.unknown and not trial.quorum_lost:\n", "    if False:\n"),
        caught_by=f"{IN_DEMO}::test_deliveries_that_do_not_match_the_transfers[1 transfers have an unknown outcome]",
    ),
    shell_mutant(
        "demo_does_not_count_the_money", DEMO,
        ("    if takings.total != takings.expected:\n", "    if takings.total < takings.expected:\n"),
        caught_by=f"{IN_DEMO}::test_deliveries_that_do_not_match_the_transfers[the bank holds 11, expected 10]",
    ),
]  # fmt: skip

FOUNDED = "tests/apps/test_ledger_command.py::test_a_ledger_is_founded_though_a_server_is_behind"
LEDGERS = [
    shell_mutant(
        "a_ledger_is_founded_on_what_one_server_lacks", "amcast.apps.chains",
        ("    return max(ends)", "    return ends[0]"), caught_by=FOUNDED,
    ),
    shell_mutant(
        "a_founded_ledger_is_read_from_a_server", "amcast.cli.ledger",
        ('msgspec.msgpack.decode(client.multicast(["g0"], last)["g0"], type=tuple[int, bytes])',
         '(client.multicast(["g0"], last), chain(client.read("g0", 0) and []))[1]'), caught_by=FOUNDED,
    ),
]  # fmt: skip

MUTANTS = [*LEDGERS, *TRIALS, *TRACES, *COMMANDS]
