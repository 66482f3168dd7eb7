"""Mutants of what keeps data, processes and applications of one cluster together."""

from tests.mutants.shell import shell_mutant

IDENTITY, GREETING, CLI = "amcast.runtime.identity", "amcast.runtime.greeting", "amcast.cli.cluster"
APPS, APPLICATION, DURABILITY = "amcast.apps", "amcast.core.application", "amcast.runtime.durability"
TESTS = "tests/runtime/test_identity.py"
OTHER_FILE = f"{TESTS}::test_another_file_is_refused_and_the_old_one_works_again"
WITH_PROCESSES = f"{TESTS}::test_a_cluster_runs_the_application_of_its_file_and_never_another"
NOT_LET_IN = f"{TESTS}::test_who_has_another_file_is_not_let_in"
WRONG_APP = f"{TESTS}::test_what_is_no_application_is_said_in_one_line_before_anything_is_made"
PROGRAM = f"{TESTS}::test_a_program_runs_what_the_file_says_or_is_refused"

DATA = [
    shell_mutant(
        "data_of_other_groups_is_taken", IDENTITY, ("if self.topology != other.topology:", "if False:"),
        caught_by=f"{OTHER_FILE}[a group more]",
    ),
    shell_mutant(
        "data_of_another_application_is_taken", IDENTITY, ("if self.app != other.app:", "if False:"),
        caught_by=f"{OTHER_FILE}[another application]",
    ),
    shell_mutant(
        "durable_data_is_set_aside_without_a_word", IDENTITY, ("if self.durable != other.durable:", "if False:"),
        caught_by=f"{OTHER_FILE}[not durable]",
    ),
    shell_mutant(
        "data_of_another_protocol_is_taken", IDENTITY, ("if self.protocol != other.protocol:", "if False:"),
        caught_by=f"{OTHER_FILE}[another protocol]",
    ),
    shell_mutant(
        "data_of_another_replica_is_taken", IDENTITY, ("if found != who.encode():", "if False:"),
        caught_by=f"{TESTS}::test_the_folders_of_two_replicas_exchanged",
    ),
    shell_mutant(
        "a_later_format_is_read_as_this_one", IDENTITY, ("if not oldest <= form <= newest:", "if False:"),
        caught_by=f"{TESTS}::test_an_identity_of_a_later_format_or_a_damaged_one",
    ),
    shell_mutant(
        "groups_in_another_order_have_the_same_digest", IDENTITY,
        ("msgspec.json.encode([list(sizes), spare])", "msgspec.json.encode([sorted(sizes), spare])"),
        caught_by=f"{TESTS}::test_groups_are_told_apart_by_a_digest_and_shown_for_people",
    ),
    shell_mutant(
        "a_start_is_counted_before_the_data_is_looked_at", DURABILITY,
        (
            "        try:\n            self.described = described(",
            "        self.storage.count_start()\n        try:\n            self.described = described(",
        ),
        caught_by=f"{OTHER_FILE}[another application]",
    ),
    shell_mutant(
        "new_data_does_not_say_whose_it_is", DURABILITY,
        ("            self.storage.describe(self.described.encoded())\n", ""),
        caught_by="tests/runtime/test_versions.py::test_data_says_with_which_version_it_began",
    ),
]  # fmt: skip

GREETINGS = [
    shell_mutant(
        "whoever_has_another_file_is_let_in", GREETING,
        ("if reason := refusal_of(hello.name", "if False and refusal_of(hello.name"), caught_by=NOT_LET_IN,
    ),
    shell_mutant(
        "whoever_expects_another_is_let_in", GREETING, ("if hello.to != self.host.me.name:", "if False:"),
        caught_by=f"{TESTS}::test_who_expects_another_is_told_where_it_is",
    ),
    shell_mutant(
        "readiness_does_not_say_who_refuses", "amcast.runtime.pulse",
        ("for link in links if link.refusal)", "for link in ())"),
        caught_by=f"{TESTS}::test_members_with_different_files_do_not_take_each_other_for_a_quorum",
    ),
]  # fmt: skip

APPLICATIONS = [
    shell_mutant(
        "a_restart_stops_first_and_looks_then", CLI,
        ("    refuse_unfit(processes, member)\n    options", "    options"),
        ("        processes.stop([member])\n        processes.start",
         "        processes.stop([member])\n        refuse_unfit(processes, member)\n        processes.start"),
        caught_by=WITH_PROCESSES,
    ),
    shell_mutant(
        "up_does_not_look_at_the_data", CLI, ("    refuse_unfit(processes, *members)\n", ""), caught_by=WITH_PROCESSES,
    ),
    shell_mutant(
        "init_does_not_try_the_application", CLI,
        ("version_of(made(found.machine, found.name, 0, groups))", "1"),
        caught_by=f"{WRONG_APP}[counters:nothing]",
    ),
    shell_mutant(
        "half_an_application_is_taken", APPLICATION, ("if lacks or isinstance(found, type):", "if found is None:"),
        caught_by=f"{WRONG_APP}[counters:Half]",
    ),
    shell_mutant(
        "a_class_is_taken_for_its_object", APPLICATION, ("if lacks or isinstance(found, type):", "if lacks:"),
        caught_by=f"{WRONG_APP}[counters:itself]",
    ),
    shell_mutant(
        "a_program_may_run_another_application", "amcast.service",
        ("if app is not None and not same_application(app, named):", "if False:"), caught_by=PROGRAM,
    ),
    shell_mutant(
        "applications_of_one_name_are_the_same", APPS,
        ('(getattr(found, "__qualname__", None), _file_of(found))', '(getattr(found, "__qualname__", None), "")'),
        caught_by=PROGRAM,
    ),
]  # fmt: skip

EXECUTION = "amcast.runtime.execution"
EXECUTING = "tests/runtime/test_execution.py"
NOTHING_LEFT = f"{EXECUTING}::test_what_raises_leaves_nothing_behind"
IN_A_CLUSTER = f"{EXECUTING}::test_a_message_that_raises_is_answered_and_the_cluster_goes_on"
REASON = f"{EXECUTING}::test_a_reason_is_one_short_line_and_what_is_certain_of_it_is_its_kind"
REJECTIONS = [
    shell_mutant(
        "half_of_what_raises_stays", EXECUTION,
        ("(found, Exception):\n            self._undo()\n", "(found, Exception):\n"),
        caught_by=NOTHING_LEFT,
    ),
    shell_mutant(
        "what_was_executed_since_is_forgotten", EXECUTION,
        ("for delivery, deep in since:", "for delivery, deep in []:"),
        caught_by=NOTHING_LEFT,
    ),
    shell_mutant(
        "a_restored_state_is_not_known", EXECUTION,
        ("            self._know(state)\n\n", "            pass\n\n"),
        caught_by=NOTHING_LEFT,
    ),
    shell_mutant(
        "messages_are_executed_again_for_every_exception", EXECUTION,
        ("from found\n        self.snapshot()\n", "from found\n        self._since = since\n"),
        caught_by=f"{EXECUTING}::test_no_message_is_executed_again_twice",
    ),
    shell_mutant(
        "no_memory_is_an_answer", EXECUTION, ("if isinstance(error, OURS_ALONE):", "if isinstance(error, OSError):"),
        caught_by=f"{EXECUTING}::test_what_is_not_of_the_message_stops_the_replica[MemoryError]",
    ),
    shell_mutant(
        "the_depth_of_the_caller_decides", EXECUTION, ("if isinstance(found, RecursionError):", "if False:"),
        caught_by=f"{EXECUTING}::test_how_deep_the_caller_is_changes_nothing",
    ),
    shell_mutant(
        "what_was_deep_is_tried_on_the_callers_stack", EXECUTION, ("            deep = True\n", ""),
        caught_by=f"{EXECUTING}::test_what_was_deep_is_executed_again_as_it_was",
    ),
    shell_mutant(
        "none_is_an_answer", EXECUTION,
        ("        if not isinstance(answer, bytes):\n            return TypeError(f\"apply",
         "        if answer is ...:\n            return TypeError(f\"apply"),
        caught_by=NOTHING_LEFT,
    ),
    shell_mutant(
        "an_answer_looks_like_a_rejection", EXECUTION,
        ("return ANSWER + answer if answer.startswith(MARK) else answer", "return answer"),
        caught_by=f"{EXECUTING}::test_every_answer_comes_back_as_it_was",
    ),
    shell_mutant(
        "replicas_differ_by_the_text_of_an_exception", EXECUTION,
        ('return outcome.partition(b"\\n")[0] if outcome.startswith(REJECTION) else outcome', "return outcome"),
        caught_by=REASON,
    ),
    shell_mutant("a_reason_has_no_end", EXECUTION, ("if len(text) <= LONGEST_TEXT", "if True"), caught_by=REASON),
    shell_mutant(
        "the_client_takes_a_rejection_for_an_answer", "amcast.runtime.client",
        ("                    future.set_exception(result)", "                    future.set_result({})"),
        caught_by=IN_A_CLUSTER,
    ),
    shell_mutant(
        "rejections_in_a_batch_are_not_missed", "amcast.runtime.client", ("if done.whole:  #", "if False:  #"),
        caught_by=f"{EXECUTING}::test_messages_that_travel_as_one_are_rejected_one_by_one",
    ),
    shell_mutant(
        "up_does_not_say_why_a_node_stopped", CLI, ("{first}: {state[first]}; see", "see"),
        caught_by=f"{EXECUTING}::test_up_says_which_node_stopped_over_what_it_recovers",
    ),
    shell_mutant(
        "one_look_is_enough_to_be_ready", "amcast.local.processes",
        ("if (not waiting and state == before) or", "if not waiting or"),
        caught_by="tests/cli/test_cluster_processes.py::test_a_node_that_was_ready_and_stopped_is_not_ready",
    ),
    shell_mutant(
        "nodes_look_for_the_application_elsewhere", "amcast.local.processes",
        ("map(os.path.abspath, path", "map(str, path"),
        caught_by=f"{EXECUTING}::test_up_says_which_node_stopped_over_what_it_recovers",
    ),
    shell_mutant(
        "the_chain_has_the_text", "amcast.runtime.node",
        ("                answer = joined([certain(one) for one in answers])\n", ""), caught_by=IN_A_CLUSTER,
    ),
]  # fmt: skip

VERSIONS = "amcast.runtime.versions"
CHANGING = "tests/runtime/test_versions.py"
DUE = f"{CHANGING}::test_a_version_is_due_when_all_members_are_here_and_know_it"
TOGETHER = f"{CHANGING}::test_who_cannot_take_part"
NEWER = f"{CHANGING}::test_what_is_newer_than_the_code_is_refused_in_one_line"
ONE_MACHINE = f"{CHANGING}::test_the_state_of_an_older_version_is_gone_on_with_as_that_one_and_migrated_when_it_is_time"
CHANGES = [
    shell_mutant(
        "a_newer_state_is_taken", EXECUTION, ("        if version > self.newest:\n            raise UsageError(",
        "        if False:\n            raise UsageError("), caught_by=NEWER,
    ),
    shell_mutant(
        "a_change_to_an_unknown_version_is_ignored", EXECUTION,
        ("        if version > self.newest:\n            raise ApplicationFailed(",
        "        if False:\n            raise ApplicationFailed("), caught_by=NEWER,
    ),
    shell_mutant(
        "a_state_is_not_migrated", EXECUTION, ("migrate(old, state) if migrate is not None else state", "state"),
        caught_by=ONE_MACHINE,
    ),
    shell_mutant(
        "a_change_is_made_twice", EXECUTION, ("        if version > self.version:\n", "        if True:\n"),
        caught_by=ONE_MACHINE,
    ),
    shell_mutant(
        "the_first_who_knows_a_version_changes", VERSIONS,
        ("min([executor.newest, *self._known.values()])", "executor.newest"), caught_by=DUE,
    ),
    shell_mutant(
        "a_version_is_due_while_members_are_away", VERSIONS,
        ("if any(pid not in self._known for pid in others):", "if False:"), caught_by=DUE,
    ),
    shell_mutant(
        "snapshots_do_not_say_their_version", "amcast.runtime.durability",
        ("self.results, self.chain, self.app_version)", "self.results, self.chain)"),
        caught_by=f"{CHANGING}::test_a_snapshot_says_its_version_and_one_of_another_format_is_refused",
    ),
    shell_mutant(
        "data_does_not_say_with_which_version_it_began", VERSIONS,
        ("            self.began = described.app_version\n", "            pass\n"),
        caught_by=f"{CHANGING}::test_data_says_with_which_version_it_began",
    ),
    shell_mutant(
        "old_code_is_let_in", VERSIONS, ("if theirs.newest < ours.active:", "if False:"), caught_by=TOGETHER,
    ),
    shell_mutant(
        "whoever_began_otherwise_is_let_in", VERSIONS, ("theirs.began != ours.began", "False"), caught_by=TOGETHER,
    ),
    shell_mutant(
        "there_is_no_rehearsal", VERSIONS,
        ("            self.executor.rehearse(version, self._made(self._factory))\n", "            pass\n"),
        caught_by=f"{CHANGING}::test_a_version_that_fails_its_rehearsal_does_not_take_over",
    ),
    shell_mutant(
        "any_version_will_do", APPLICATION, ("if type(version) is not int or version < 1:", "if version is ...:"),
        caught_by=f"{CHANGING}::test_a_version_is_a_number[0]",
    ),
]  # fmt: skip

MUTANTS = [*CHANGES, *REJECTIONS, *DATA, *GREETINGS, *APPLICATIONS]
