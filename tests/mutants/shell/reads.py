"""Mutants of reads outside of the order: who may ask, who answers, and what the store answers so."""

from tests.mutants.shell import shell_mutant

QUERIES, MACHINE, TESTS = "amcast.runtime.queries", "amcast.apps.kv.machine", "tests/runtime/test_reads.py"
STORE = f"{TESTS}::test_the_store_answers_only_what_may_be_answered_so"

MUTANTS = [
    shell_mutant(
        "a_leader_answers_reads_at_once", QUERIES,
        ("        process.confirm(self._host.now(), self._next)", "        self.confirmed([self._next])"),
        caught_by=f"{TESTS}::test_a_leader_that_stood_still_never_gives_an_old_value", slow=True,
    ),
    shell_mutant(
        "anybody_reads", QUERIES, ("if host.me.group not in asker.grant.read:", "if False:"),
        caught_by=f"{TESTS}::test_where_there_are_no_reads_one_line_says_so",
    ),
    shell_mutant(
        "reads_are_cancelled_with_their_client", "amcast.runtime.client",
        ("fail([*connection.reads.values(), *connection.queries.values()], OutcomeUnknown(CLOSED))",
         "[one.cancel() for one in [*connection.reads.values(), *connection.queries.values()]]"),
        caught_by=f"{TESTS}::test_calls_end_when_their_client_is_closed",
    ),
    shell_mutant(
        "reads_look_behind_locks", MACHINE,
        ("if self._conflicts(keys) or any(self.store.expires", "if any(self.store.expires"), caught_by=STORE,
    ),
    shell_mutant(
        "reads_see_what_has_expired", MACHINE,
        ("if self._conflicts(keys) or any(self.store.expires(key, now) for key in keys):", "if self._conflicts(keys):"),
        caught_by=STORE,
    ),
    shell_mutant(
        "reads_may_write", MACHINE, ("            if not is_read(unit):\n", "            if False:\n"), caught_by=STORE,
    ),
]  # fmt: skip
