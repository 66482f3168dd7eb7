"""Mutants of backups: what is cut where, what is read again, what is founded, what is refused."""

from tests.mutants.shell import shell_mutant

NODE, CUTS, BACKUP = "amcast.runtime.node", "amcast.runtime.cuts", "amcast.runtime.backup"
TAKING, RESTORE, MACHINE = "amcast.local.backup", "amcast.local.restore", "amcast.apps.kv.machine"
TESTS = "tests/runtime/test_backup.py"
TURN = f"{TESTS}::test_what_comes_in_the_same_turn_is_not_in_the_cut"
RETRY = f"{TESTS}::test_a_retry_after_the_restore_gets_the_same_answer"
MONEY = f"{TESTS}::test_money_is_neither_lost_nor_made"
ALL_REMEMBER = f"{TESTS}::test_with_another_number_of_groups_all_remember_what_any_has_delivered"
BYTES = f"{TESTS}::test_each_changed_byte_and_each_cut_is_noticed"
ONE = f"{TESTS}::test_one_backup_at_a_time_and_none_of_an_earlier_life"
MAY_NOT = f"{TESTS}::test_a_client_that_may_not_do_everything_takes_no_backup"
NO_QUORUM = f"{TESTS}::test_a_group_that_does_not_serve_is_said_before_anything_is_ordered"
OVER = f"{TESTS}::test_what_is_there_is_not_written_over"
OTHER = f"{TESTS}::test_other_files_are_no_backups"
DROPPED = f"{TESTS}::test_what_is_prepared_and_not_decided_is_dropped_where_slots_go_to_other_groups"

MUTANTS = [
    shell_mutant(
        "what_is_remembered_is_that_of_the_end_of_the_turn", CUTS,
        ("        memory = memories[mid]", "        memory = host.engine.process.remembered()"), caught_by=TURN,
    ),
    shell_mutant(
        "marks_are_executed", NODE,
        ("            if is_mark(m.mid):\n", "            if False:\n"), caught_by=TURN, slow=True,
    ),
    shell_mutant(
        "marks_and_changes_are_remembered_of_clients", CUTS,
        ("sessions = [row for row in memory[0] if row[0] >> SESSION_BITS]", "sessions = list(memory[0])"),
        caught_by=f"{TESTS}::test_under_load_all_groups_are_cut_at_one_place[white_box]", slow=True,
    ),
    shell_mutant(
        "anybody_takes_a_backup", CUTS,
        ("        if not (asker.grant.read", "        if False and not (asker.grant.read"),
        caught_by=MAY_NOT,
    ),
    shell_mutant(
        "a_mark_is_ordered_that_cannot_be_delivered", CUTS,
        ("            raise WireError(refusal[1])\n", "            pass\n"), caught_by=NO_QUORUM, slow=True,
    ),
    shell_mutant(
        "two_backups_at_a_time", CUTS,
        ("        if self._cut is not None:\n            raise", "        if False:\n            raise"),
        caught_by=ONE,
    ),
    shell_mutant(
        "what_a_client_left_stays_on_disk", CUTS,
        ("        self._host.durability.in_thread(self._remove, path)", "        pass"), caught_by=MONEY, slow=True,
    ),
    shell_mutant(
        "what_an_earlier_life_left_stays_on_disk", "amcast.runtime.durability",
        ("name.startswith((OFFERED, CUT))", "name.startswith(OFFERED)"), caught_by=ONE,
    ),
    shell_mutant(
        "the_seal_is_not_read", BACKUP,
        ("if self._here or next(self._parts, None) is not None:", "if self._here:"), caught_by=BYTES,
    ),
    shell_mutant(
        "a_newer_backup_is_read", BACKUP,
        ("            if magic != MANIFEST:\n", "            if False:\n"), caught_by=OTHER,
    ),
    shell_mutant(
        "groups_that_do_not_serve_are_not_looked_at", TAKING,
        ("                    if reason:\n", "                    if False:\n"),
        caught_by=NO_QUORUM, slow=True,
    ),
    shell_mutant(
        "what_was_written_is_not_read", TAKING,
        ("    for _ in whole.groups(states=False):", "    for _ in ():"),
        caught_by=f"{TESTS}::test_what_was_written_is_read_again",
    ),
    shell_mutant(
        "a_file_that_is_there_is_written_over", TAKING, ("    if out.exists():\n", "    if False:\n"), caught_by=OVER,
    ),
    shell_mutant(
        "half_a_backup_stays", TAKING, ("            writer.give_up()\n", "            writer.close()\n"),
        caught_by=f"{TESTS}::test_a_replica_that_hangs_up_in_the_middle_is_asked_again_or_another_one",
    ),
    shell_mutant(
        "a_cluster_that_is_there_is_restored_over", RESTORE,
        ("    if folder.exists():\n        raise", "    if False:\n        raise"),
        caught_by=OVER,
    ),
    shell_mutant(
        "what_is_in_the_way_is_removed", RESTORE, ("if names and ORIGIN not in names:", "if False:"), caught_by=OVER,
    ),
    shell_mutant(
        "a_restored_cluster_remembers_no_client", RESTORE,
        ("    process.recall(memory)\n", "    pass\n"), caught_by=RETRY,
    ),
    shell_mutant(
        "a_restored_cluster_has_no_answers", RESTORE, ("return head.memory, head.results", "return head.memory, []"),
        caught_by=RETRY,
    ),
    shell_mutant(
        "only_the_last_group_is_remembered", RESTORE,
        (
            "done[sender] = max(before, low), more | set(above)",
            "done[sender] = low, set(above)",
        ),
        caught_by=ALL_REMEMBER,
    ),
    shell_mutant(
        "states_are_not_tried", RESTORE, ("    executor.restore(state)\n", "    pass\n"),
        caught_by=f"{TESTS}::test_an_application_that_does_not_take_the_state_is_refused",
    ),
    shell_mutant(
        "what_is_prepared_is_spread_as_it_is", MACHINE,
        ("                for ticket in list(old._locks):\n", "                for ticket in ():\n"), caught_by=DROPPED,
    ),
    shell_mutant(
        "tickets_begin_again", MACHINE,
        ("                machine._tickets = max(machine._tickets, old._tickets)\n", ""), caught_by=DROPPED,
    ),
]  # fmt: skip
