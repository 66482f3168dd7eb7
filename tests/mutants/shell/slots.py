"""Mutants of slots that move: what is stale, who waits, who forgets, who goes on."""

from tests.mutants.shell import shell_mutant

MACHINE, MOVING, STORE = "amcast.apps.kv.machine", "amcast.apps.kv.moving", "amcast.apps.kv.store"
BATCHING, SESSION, SLOTS = "amcast.apps.kv.batching", "amcast.apps.kv.session", "amcast.apps.kv.slots"
TESTS = "tests/apps/test_moving.py"
ORDER = "tests/apps/test_serializable.py::test_as_if_executed_at_once_while_slots_move"
OLD_MAP = f"{TESTS}::test_what_was_routed_by_an_old_map_is_executed_nowhere"
READS = f"{TESTS}::test_reads_outside_of_the_order_know_whose_the_slots_are"
ALONG = f"{TESTS}::test_versions_ends_and_clocks_move_along"
COUNTS = f"{TESTS}::test_only_a_move_by_the_map_of_now_to_all_groups_counts"
NOTHING = f"{TESTS}::test_clients_notice_nothing"
NEXT = f"{TESTS}::test_whoever_comes_next_goes_on_with_what_a_mover_left"

MUTANTS = [
    shell_mutant(
        "old_maps_are_good_enough", SLOTS,
        ("return any(self.changed[slot] > version for slot in slots)", "return False"),
        caught_by=OLD_MAP,
    ),
    shell_mutant("maps_of_later_are_believed", SLOTS, ("if version > self.version or (", "if ("), caught_by=OLD_MAP),
    shell_mutant(
        "all_groups_are_those_of_before", SLOTS, ("(everywhere and self.regrouped > version)", "False"),
        caught_by=f"{TESTS}::test_a_group_that_came_later_gets_slots",
    ),
    shell_mutant(
        "reads_by_an_old_map", MACHINE,
        ("if found.version != self.slots.version and self._outdated(found):", "if False:"), caught_by=READS,
    ),
    shell_mutant(
        "nobody_waits_for_keys_that_are_to_come", MACHINE,
        ("return bool(self._blocked) and any(", "return False and any("), caught_by=READS,
    ),
    shell_mutant(
        "what_is_locked_leaves", MACHINE,
        ("return {slot_of(key) for key in self._held}.isdisjoint(slots)", "return True"),
        caught_by=f"{TESTS}::test_what_is_locked_is_decided_before_its_keys_leave",
    ),
    shell_mutant(
        "keys_come_before_what_counts_all_of_before", MACHINE,
        ("if self._closed or not self._blocked.isdisjoint(slots):", "if not self._blocked.isdisjoint(slots):"),
        caught_by=ORDER, slow=True,
    ),
    shell_mutant(
        "what_waits_goes_by_the_new_map", MACHINE,
        ("        self._waiting = {ticket: self._reduced(job) for ticket, job in self._waiting.items()}\n", ""),
        caught_by=ORDER, slow=True,
    ),
    shell_mutant(
        "locks_go_by_the_new_map", MACHINE,
        ("        self._locks = {txn: self._reduced(job) for txn, job in self._locks.items()}\n", ""),
        caught_by=ORDER, slow=True,
    ),
    shell_mutant(
        "time_goes_back_where_slots_arrive", MACHINE,
        ("self.clock = max(self.clock, wire.decode_stamp(arriving.data()).now)", "pass"), caught_by=ALONG,
    ),
    shell_mutant(
        "time_goes_back_for_who_waited_for_slots", MACHINE,
        ("msgspec.structs.replace(waiter, clock=self._not_before(waiter, since)) if since else waiter", "waiter"),
        caught_by=f"{TESTS}::test_time_goes_on_for_who_waited",
    ),
    shell_mutant(
        "what_expires_is_reclaimed_before_it_leaves", MACHINE,
        ("HeldOrIn(self._held, self._blocked) if self._blocked else self._held", "self._held"),
        caught_by=f"{TESTS}::test_nothing_ends_early_because_a_lock_kept_it_from_leaving",
    ),
    shell_mutant(
        "a_move_is_known_before_it_comes", MACHINE,
        ("return wire.Done(version <= self.slots.version)", "return wire.Done(True)"),
        caught_by=f"{TESTS}::test_a_part_that_comes_before_its_move_is_not_taken_for_known",
    ),
    shell_mutant(
        "a_move_by_any_map", MACHINE, ("or unit.base != slots.version or", "or"), caught_by=COUNTS,
    ),
    shell_mutant("a_move_that_not_all_hear_of", MACHINE, (" or dest != set(slots.groups):", ":"), caught_by=COUNTS),
    shell_mutant("slots_of_others_move", MACHINE, ("if whose != {unit.source} or", "if"), caught_by=COUNTS),
    shell_mutant(
        "a_map_that_there_never_was", MACHINE, ("if unit.base + 1 > slots.version and (", "if ("),
        caught_by=f"{TESTS}::test_who_came_later_does_not_go_back_to_a_map_that_was_refused",
    ),
    shell_mutant(
        "versions_count_on_from_the_lower_number", STORE,
        ("self.changes = max(self.changes, changes) + 1", "self.changes += 1"), caught_by=ORDER, slow=True,
    ),
    shell_mutant(
        "absent_keys_were_never_there", STORE,
        ("        self.arrivals.update(dict.fromkeys(slots, self.changes))\n", ""),
        caught_by=f"{TESTS}::test_a_key_that_came_and_went_before_the_move_is_noticed",
    ),
    shell_mutant(
        "a_backup_in_a_move_has_no_keys", MACHINE,
        ("while any(old._locks or old._arriving for old in olds):", "while any(old._locks for old in olds):"),
        caught_by=f"{TESTS}::test_keys_on_their_way_are_in_a_backup",
    ),
    shell_mutant(
        "the_first_version_moves_slots", MACHINE,
        ("if self.version < 2 and any(isinstance(unit, wire.OfTheMap) for unit in request.units):", "if False:"),
        caught_by=f"{TESTS}::test_the_first_version_moves_nothing_and_its_state_is_taken_over",
    ),
    shell_mutant(
        "keys_are_forgotten_by_an_old_view", MOVING, ("if version <= known:", "if True:"),
        caught_by=f"{TESTS}::test_keys_stay_with_the_giver_until_the_other_group_has_come_to_the_move",
    ),
    shell_mutant(
        "gateways_carry_nothing", BATCHING,
        ("                    self._carry_if_old(group)\n", "                    pass\n"),
        caught_by=f"{NEXT}[Import]",
    ),
    shell_mutant(
        "different_maps_in_one_request", BATCHING,
        ("if version is not None and versions and version not in versions:", "if False:"),
        caught_by=f"{TESTS}::test_what_was_routed_by_different_maps_does_not_go_together",
    ),
    shell_mutant(
        "a_gateway_keeps_its_map", BATCHING, ("        self._renew(stale)\n", ""), caught_by=NOTHING,
    ),
    shell_mutant(
        "msetnx_in_parts", SESSION,
        ("raise CommandRefused(MSETNX_APART)", "pass"),
        caught_by=f"{TESTS}::test_msetnx_in_a_transaction_whose_keys_have_come_apart",
    ),
]  # fmt: skip
