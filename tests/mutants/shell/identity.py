"""Mutants of what keeps data, processes and applications of one cluster together."""

from tests.mutants.shell import shell_mutant

IDENTITY, GREETING, CLI = "amcast.runtime.identity", "amcast.runtime.greeting", "amcast.cli.cluster"
APPS, APPLICATION, DURABILITY = "amcast.apps", "amcast.core.application", "amcast.runtime.durability"
TESTS = "tests/runtime/test_identity.py"
OTHER_FILE = f"{TESTS}::test_another_file_is_refused_and_the_old_one_works_again"
WITH_PROCESSES = f"{TESTS}::test_a_cluster_runs_the_application_of_its_file_and_never_another"
ADOPTED = f"{TESTS}::test_a_folder_of_0_1_0_is_adopted_but_only_if_it_can_be_read"
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
        "a_later_format_is_read_as_this_one", IDENTITY, ("if form != FORMAT:", "if False:"),
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
        "old_data_is_not_adopted", DURABILITY, ("            self.storage.describe(self.described.encoded())\n", ""),
        caught_by=ADOPTED,
    ),
    shell_mutant(
        "what_cannot_be_read_is_adopted", DURABILITY,
        ("        return self.storage", "        self.describe(1)\n        return self.storage"),
        caught_by=ADOPTED,
    ),
]  # fmt: skip

GREETINGS = [
    shell_mutant(
        "whoever_has_another_file_is_let_in", GREETING,
        ("            raise WireError(reason)\n", "            pass\n"), caught_by=NOT_LET_IN,
    ),
    shell_mutant(
        "whoever_expects_another_is_let_in", GREETING, ("if hello.to != self.host.me.name:", "if False:"),
        caught_by=f"{TESTS}::test_who_expects_another_is_told_where_it_is",
    ),
    shell_mutant(
        "readiness_does_not_say_who_refuses", "amcast.runtime.node", ("no quorum{refused}", "no quorum"),
        caught_by=f"{TESTS}::test_members_with_different_files_do_not_take_each_other_for_a_quorum",
    ),
]  # fmt: skip

APPLICATIONS = [
    shell_mutant(
        "a_restart_stops_first_and_looks_then", CLI,
        ("    refuse_unfit(processes, member)\n    with processes.alone():\n        processes.stop([member])\n",
         "    with processes.alone():\n        processes.stop([member])\n        refuse_unfit(processes, member)\n"),
        caught_by=WITH_PROCESSES,
    ),
    shell_mutant(
        "up_does_not_look_at_the_data", CLI, ("    refuse_unfit(processes, *members)\n", ""), caught_by=WITH_PROCESSES,
    ),
    shell_mutant(
        "init_does_not_try_the_application", CLI,
        ("        made(found.machine, found.name, 0, groups)", "        pass"),
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

MUTANTS = [*DATA, *GREETINGS, *APPLICATIONS]
