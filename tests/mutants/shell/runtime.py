"""Mutants of what runs a cluster and asks it: client, history, metrics, admin, permissions, exit codes."""

from tests.mutants.shell import shell_mutant

MUTANTS = [
    shell_mutant(
        "always_ready", "amcast.runtime.admin", ("reason = self._ready()", "reason = None"),
        caught_by="tests/runtime/test_admin.py::test_what_each_path_answers",
    ),
]  # fmt: skip
