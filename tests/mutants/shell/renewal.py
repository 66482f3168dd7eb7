"""Mutants of what a node reads again while it runs."""

from tests.mutants.shell import shell_mutant

RENEWAL, SERVING = "amcast.runtime.renewal", "amcast.runtime.serving"
CHANGE = "tests/runtime/test_renewal.py::test_clients_come_change_and_go_while_nodes_run"

ROTATION = "tests/runtime/test_rotation.py"
UNDER_LOAD, STEPS = f"{ROTATION}::test_the_ca_is_replaced_under_load", f"{ROTATION}::test_the_steps_to_a_new_ca"
GATEWAY = "tests/apps/test_users.py::test_a_certificate_that_is_no_good_any_more_is_hung_up_on"
CERTIFICATES = "amcast.runtime.certificates"

MUTANTS = [
    shell_mutant(
        "who_came_by_a_dropped_ca_stays", RENEWAL, ("        hang_up(node, authorities)\n", "        pass\n"),
        caught_by=UNDER_LOAD, slow=True,
    ),
    shell_mutant(
        "strangers_by_a_dropped_ca_stay", RENEWAL,
        ("    node.serving.door.drop_all()  # who is half-way in came by what was trusted before\n", ""),
        caught_by=UNDER_LOAD, slow=True,
    ),
    shell_mutant(
        "a_dropped_ca_is_trusted", "amcast.runtime.tls",
        ("is_issued_by(x509.load_der_x509_certificate(shown), ", "bool("), caught_by=GATEWAY,
    ),
    shell_mutant(
        "contexts_are_never_replaced", "amcast.runtime.tls",
        ("        before, self.made = self.made, made\n", "        before = self.made\n"),
        caught_by=UNDER_LOAD, slow=True,
    ),
    shell_mutant(
        "a_client_reads_its_certificate_only_at_its_start", "amcast.runtime.tls",
        ("return written(self.files) != self.written", "return False"), caught_by=UNDER_LOAD, slow=True,
    ),
    shell_mutant(
        "gateways_keep_who_is_no_client", "amcast.apps.kv.gateway",
        ("            self._refuse_others(members)\n", ""), caught_by=GATEWAY,
    ),
    shell_mutant(
        "a_new_ca_before_the_last_is_dropped", CERTIFICATES, ("        if len(trusted) > 1:\n", "        if False:\n"),
        caught_by=STEPS,
    ),
    shell_mutant(
        "a_ca_that_signs_is_dropped", CERTIFICATES,
        ("    if ca == trusted[0]:\n        raise", "    if False:\n        raise"), caught_by=STEPS,
    ),
    shell_mutant(
        "certificates_of_the_old_ca_are_good", CERTIFICATES,
        ("    if not is_issued_by(own, [ca]):  # but by the one before it\n", "    if False:\n"), caught_by=STEPS,
    ),
    shell_mutant(
        "what_the_old_ca_signed_is_left_behind", CERTIFICATES,
        ("        if path.name != \"ca.crt\" and not", "        if False and not"), caught_by=STEPS,
    ),
    shell_mutant(
        "any_key_is_that_of_the_next_ca", CERTIFICATES,
        ("if not upcoming.exists() or public_of(upcoming) != trusted[-1].public_key():", "if False:"), caught_by=STEPS,
    ),
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
