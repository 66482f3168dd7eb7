"""Mutants of what a node reads again while it runs."""

from tests.mutants.shell import shell_mutant

RENEWAL, SERVING = "amcast.runtime.renewal", "amcast.runtime.serving"
CHANGE = "tests/runtime/test_renewal.py::test_clients_come_change_and_go_while_nodes_run"

MUTANTS = [
    shell_mutant(
        "who_is_there_is_not_judged_anew", RENEWAL,
        ("    node.serving.look_again()\n", ""), caught_by=CHANGE, slow=True,
    ),
    shell_mutant("new_clients_stay_outside", RENEWAL, ("    node.config = config\n", ""), caught_by=CHANGE, slow=True),
    shell_mutant(
        "who_waits_for_rows_gets_them", SERVING,
        ("        if grant is None or self.host.me.group not in grant.read:\n", "        if False:\n"),
        caught_by=CHANGE, slow=True,
    ),
]  # fmt: skip
