"""Mutants of the store's gateway: time, deadlines, HTTP, users, permissions, TLS."""

from dataclasses import replace

from tests.mutants.shell import shell_mutant

USERS = "tests/apps/test_users.py"
MACHINE = "tests/apps/test_machine.py"
WRONG_PASSWORD = f"{USERS}::test_a_wrong_password[reader-secret of default]"
PERMISSIONS = f"{USERS}::test_permissions"

DOOR = [
    shell_mutant(
        "http_is_executed", "amcast.apps.kv.resp", ("first[0].upper() in WORDS_OF_HTTP", "first[0] == b'NEVER'"),
        caught_by=f"{USERS}::test_a_web_page_cannot_write[post]",
    ),
    shell_mutant(
        "what_came_with_http_is_executed", "amcast.apps.kv.resp", ("            commands.clear()\n", ""),
        ("            self.http = True\n", ""),
        caught_by=f"{USERS}::test_a_web_page_cannot_write[line_breaks_in_the_path]",
    ),
    shell_mutant(
        "strangers_may_say_much", "amcast.apps.kv.resp",
        ("if self.guarded and self._missing > STRANGERS_ARGUMENTS:", "if False:"),
        caught_by=f"{USERS}::test_a_stranger_gets_little_and_not_for_long",
    ),
    shell_mutant(
        "strangers_are_not_counted", "amcast.apps.kv.gateway",
        ("if not session.stranger:", "if True:"),
        caught_by=f"{USERS}::test_a_stranger_gets_little_and_not_for_long",
    ),
    shell_mutant(
        "open_without_users", "amcast.apps.kv.gateway",
        ("loopback or (users and where.tls)", "loopback or where.tls"),
        caught_by=f"{USERS}::test_nothing_is_open_to_others_by_mistake",
    ),
    shell_mutant(
        "open_without_tls", "amcast.apps.kv.gateway", ("loopback or (users and where.tls)", "loopback or users"),
        caught_by=f"{USERS}::test_nothing_is_open_to_others_by_mistake",
    ),
    shell_mutant(
        "any_certificate_of_the_cluster", "amcast.apps.kv.gateway", ("if not name.startswith(CLIENT):", "if False:"),
        caught_by=f"{USERS}::test_clients_may_be_asked_for_a_certificate",
    ),
    shell_mutant(
        "no_certificate_is_asked_for", "amcast.runtime.tls", ("    if not ask_clients:\n", "    if ask_clients:\n"),
        caught_by=f"{USERS}::test_clients_may_be_asked_for_a_certificate",
    ),
    shell_mutant(
        "the_store_may_pose_as_a_client", "amcast.runtime.certificates",
        ("[ExtendedKeyUsageOID.CLIENT_AUTH] if name != STORE else []", "[ExtendedKeyUsageOID.CLIENT_AUTH]"),
        caught_by=f"{USERS}::test_a_store_is_no_replica_and_a_client_no_store",
    ),
]  # fmt: skip

LOGINS = [
    shell_mutant(
        "any_password", "amcast.apps.kv.users",
        ("if user is None or not right or", "if user is None or"), caught_by=WRONG_PASSWORD,
    ),
    shell_mutant(
        "half_of_a_password", "amcast.apps.kv.users_file",
        ("hmac.compare_digest(_scrypt(password, cost, salt), expected)", "True"),
        caught_by=WRONG_PASSWORD,
    ),
    shell_mutant(
        "an_unknown_name_is_quick", "amcast.apps.kv.users",
        ("if self._waiting >= self._most_waiting:", "if user is None:\n            return ''\n        if False:"),
        caught_by=f"{USERS}::test_a_password_is_hashed_once_per_gateway",
    ),
    shell_mutant(
        "a_changed_password_still_opens", "amcast.apps.kv.users", ("        self._right = {}\n\n", "\n"),
        ('digest = hmac.digest(self._key, f"{kept} {password}"', "kept = name; digest = hmac.digest(b'', password"),
        caught_by=f"{USERS}::test_a_password_is_hashed_once_per_gateway",
    ),
    shell_mutant(
        "endless_logins", "amcast.apps.kv.users", ("if self._waiting >= self._most_waiting:", "if False:"),
        caught_by=f"{USERS}::test_logins_that_wait_are_bounded",
    ),
    shell_mutant(
        "names_in_the_log", "amcast.apps.kv.session", ('user=name if known else "unknown"', "user=name"),
        caught_by=f"{USERS}::test_no_password_in_the_log",
    ),
    shell_mutant(
        "others_read_the_users", "amcast.apps.kv.users_file", ("if status.st_mode & 0o077 and", "if False and"),
        caught_by=f"{USERS}::test_a_file_that_others_read_is_refused",
    ),
    shell_mutant(
        "reset_stays_logged_in", "amcast.apps.kv.session",
        ('self.name, self.resp3, self.user = b"", False, None', 'self.name, self.resp3 = b"", False'),
        caught_by=f"{USERS}::test_a_failed_login_leaves_who_was_there_and_reset_nobody",
    ),
]  # fmt: skip

RIGHTS = [
    shell_mutant(
        "strangers_may_do_everything", "amcast.apps.kv.server_commands",
        ("return None if name in FOR_STRANGERS else NOT_LOGGED_IN", "return None"),
        caught_by=f"{USERS}::test_every_command_needs_a_login",
    ),
    shell_mutant(
        "rights_are_not_looked_at", "amcast.apps.kv.users", ("if not needs <= self.may:", "if False:"),
        caught_by=f"{PERMISSIONS}[reader]",
    ),
    shell_mutant(
        "one_key_of_many_is_enough", "amcast.apps.kv.users", ("fits = all(any(matches", "fits = any(any(matches"),
        caught_by=f"{PERMISSIONS}[some]",
    ),
    shell_mutant(
        "all_keys_with_any_pattern", "amcast.apps.kv.users", ('return None if "*" in self.keys else', "return None if"
         " self.keys else"), caught_by=f"{PERMISSIONS}[some]",
    ),
    shell_mutant(
        "who_writes_may_read", "amcast.apps.kv.commands",
        ("frozenset((READ, WRITE) if tells else (WRITE,))", "frozenset((WRITE,))"), caught_by=f"{PERMISSIONS}[writer]",
    ),
    shell_mutant(
        "who_writes_may_empty", "amcast.apps.kv.commands",
        ("return frozenset((WRITE, ADMIN))", "return frozenset((WRITE,))"),
        caught_by=f"{PERMISSIONS}[writer]",
    ),
    shell_mutant(
        "a_transaction_goes_around", "amcast.apps.kv.session",
        ("                self._broken = True  # the transaction, if there is one\n", ""),
        caught_by=f"{USERS}::test_a_transaction_has_no_way_around",
    ),
    shell_mutant(
        "a_transaction_outlives_its_user", "amcast.apps.kv.session",
        ("if broken or any(server_commands.forbidden(self, command) for command in queued):", "if broken:"),
        caught_by=f"{USERS}::test_a_user_who_is_removed_can_do_no_more",
    ),
]  # fmt: skip

LOOKOUT = "tests/apps/test_lookout.py"
DEADLINES = "tests/apps/test_deadlines.py"
TIME = [
    shell_mutant(
        "the_clock_of_the_gateway", "amcast.apps.kv.lookout",
        ("(self._clock.monotonic_ns() + self._offset) // MS", "self._clock.wall_ns() // MS"),
        caught_by=f"{LOOKOUT}::test_a_gateway_with_a_wrong_clock_ends_nobodys_keys[400]",
    ),
    shell_mutant(
        "the_clock_that_is_most_ahead", "amcast.apps.kv.lookout", ("[(len(fresh) - 1) // 2]", "[-1]"),
        caught_by=f"{LOOKOUT}::test_a_replica_with_a_wrong_clock_changes_no_time",
    ),
    shell_mutant(
        "the_upper_median", "amcast.apps.kv.lookout", ("[(len(fresh) - 1) // 2]", "[len(fresh) // 2]"),
        caught_by=f"{LOOKOUT}::test_a_replica_with_a_wrong_clock_changes_no_time",
    ),
    shell_mutant(
        "requests_from_the_future", "amcast.runtime.serving", ("if ahead <= self.serving", "if True or self.serving"),
        caught_by="tests/runtime/test_stated_time.py::test_requests_from_the_future_are_refused",
    ),
    shell_mutant(
        "client_batches_from_the_future", "amcast.runtime.serving",
        ("m.payload if m.count == 1 else Reader(m.payload, 0).blob()", "m.payload"),
        caught_by="tests/runtime/test_stated_time.py::test_requests_from_the_future_are_refused",
    ),
    shell_mutant(
        "sent_before_the_time_is_known", "amcast.apps.kv.batching",
        ("        if now_ms is None:\n", "        now_ms = now_ms or 0\n        if False:\n"),
        caught_by=f"{LOOKOUT}::test_nothing_is_sent_before_the_time_is_known",
    ),
]  # fmt: skip

OUTCOMES = [
    shell_mutant(
        "nothing_is_late", "amcast.apps.kv.batching", ("if job.until <= now and not", "if False and not"),
        caught_by=f"{DEADLINES}::test_what_waits_for_its_turn_has_the_same_deadline",
    ),
    shell_mutant(
        "sent_after_it_was_given_up", "amcast.apps.kv.batching",
        ("                if not job.done.done():  # nobody waits", "                if True:  # nobody waits"),
        caught_by=f"{DEADLINES}::test_what_waits_for_its_turn_has_the_same_deadline",
    ),
    shell_mutant(
        "what_was_sent_is_called_not_executed", "amcast.apps.kv.batching",
        ("        if self.sent:", "        if False:"),
        caught_by=f"{DEADLINES}::test_a_transaction_in_two_rounds_has_one_deadline",
    ),
    shell_mutant(
        "a_decision_has_a_deadline_of_its_own", "amcast.apps.kv.session",
        ("call(dest, Decide(txn, commit), until)", "call(dest, Decide(txn, commit), self._batcher.deadline() + 9)"),
        caught_by=f"{DEADLINES}::test_a_transaction_in_two_rounds_has_one_deadline",
    ),
    shell_mutant(
        "an_abort_behind_a_commit", "amcast.apps.kv.session",
        ("if commit and not isinstance(error, MulticastFailed):", "if False:"),
        caught_by=f"{DEADLINES}::test_a_transaction_in_two_rounds_has_one_deadline",
    ),
    shell_mutant(
        "an_empty_answer", "amcast.apps.kv.batching", ("        if not part:\n", "        if False:\n"),
        caught_by=f"{DEADLINES}::test_an_answer_that_is_none_is_an_error_that_says_so",
    ),
    shell_mutant(
        "any_value", "amcast.apps.kv.batching", ("if not all(map(fits, job.units, found)):", "if False:"),
        caught_by=f"{DEADLINES}::test_an_answer_that_is_none_is_an_error_that_says_so",
    ),
    shell_mutant(
        "one_group_speaks_for_all", "amcast.apps.kv.batching",
        ("if all(parts.get(group) == MALFORMED", "if any(parts.get(group) == MALFORMED"),
        caught_by=f"{DEADLINES}::test_one_group_that_cannot_read_is_no_proof_that_nothing_is_executed",
    ),
    shell_mutant(
        "busy_nodes_are_not_asked_again", "amcast.apps.kv.batching", ("if isinstance(failure, Busy):", "if False:"),
        caught_by=f"{DEADLINES}::test_busy_nodes_are_asked_again",
    ),
    shell_mutant(
        "busy_nodes_have_no_rest", "amcast.apps.kv.batching",
        ("call_later(pause, self._go_on", "call_later(0, self._go_on"),
        caught_by=f"{DEADLINES}::test_nodes_that_stay_busy",
    ),
]  # fmt: skip

BOUNDS = [
    shell_mutant(
        "a_list_of_any_size_is_told", "amcast.apps.kv.commands",
        ("if size > store.room and not spec.writes:", "if False:"),
        caught_by=f"{MACHINE}::test_what_a_request_can_have_told_is_bounded",
    ),
    shell_mutant(
        "who_writes_is_told_anything", "amcast.apps.kv.commands",
        ("if store.room <= 0 and READ in rights_for(command):", "if False:"),
        caught_by=f"{MACHINE}::test_what_a_request_can_have_told_is_bounded",
    ),
    shell_mutant(
        "a_pattern_may_take_hours", "amcast.apps.kv.glob", ("if left < 0:", "if left < -(10**6):"),
        caught_by=f"{MACHINE}::test_no_pattern_takes_for_ever",
    ),
    shell_mutant(
        "all_keys_are_looked_at_for_nothing", "amcast.apps.kv.store", ("self.room -= len(self.data)", "pass"),
        caught_by=f"{MACHINE}::test_a_transaction_looks_at_all_keys_only_so_often",
    ),
    shell_mutant(
        "room_is_not_made_again", "amcast.apps.kv.machine",
        ("        self.store.room = ROOM\n        answers =", "        answers ="),
        caught_by=f"{MACHINE}::test_what_a_request_can_have_told_is_bounded",
    ),
]  # fmt: skip

IN_EVERY_RUN = {
    "http_is_executed", "open_without_users", "open_without_tls", "any_password", "strangers_may_do_everything",
    "rights_are_not_looked_at", "one_key_of_many_is_enough", "the_clock_of_the_gateway", "the_upper_median",
    "requests_from_the_future", "nothing_is_late", "what_was_sent_is_called_not_executed", "an_empty_answer",
    "busy_nodes_are_not_asked_again", "a_list_of_any_size_is_told",
}  # fmt: skip
ALL = [*TIME, *OUTCOMES, *DOOR, *LOGINS, *RIGHTS, *BOUNDS]
MUTANTS = [replace(mutant, slow=mutant.name not in IN_EVERY_RUN) for mutant in ALL]
assert IN_EVERY_RUN <= {mutant.name for mutant in ALL}
