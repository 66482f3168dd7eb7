"""Mutants of what runs a cluster and asks it: client, history, metrics, admin, permissions, apps, exit codes."""

from tests.mutants.shell import shell_mutant

LIVE = "tests/runtime/test_live_node.py"
HISTORY = "tests/runtime/test_history.py"
DURABILITY = "tests/runtime/test_durability.py"
LEDGER = "tests/apps/test_ledger_command.py::test_verify_says_what_it_compared"
ROLES = "tests/runtime/test_authorization.py"

CLIENT = [
    shell_mutant(
        "what_is_delivered_together_is_one_block", "amcast.runtime.history",
        ("            if size > MOST_TOGETHER and i > first:\n", "            if False:\n"),
        caught_by=f"{HISTORY}::test_what_is_delivered_together_may_be_long",
    ),
    shell_mutant(
        "answer_of_the_lowest_group_for_all", "amcast.runtime.client",
        ("group_name(g): answers[g] for g", "group_name(g): answers[numbers[0]] for g"),
        caught_by=f"{LIVE}::test_each_group_answers_for_itself",
    ),
    shell_mutant(
        "sync_client_hides_errors", "amcast.runtime.client",
        (
            "        return asyncio.run_coroutine_threadsafe(work, self._loop).result()",
            "        future = asyncio.run_coroutine_threadsafe(work, self._loop)\n"
            "        return {} if future.exception() is not None else future.result()",
        ),
        caught_by=f"{LIVE}::test_a_client_without_asyncio_hides_no_error",
    ),
    shell_mutant(
        "batches_are_not_waited_for", "amcast.runtime.client",
        ("            future.result()\n        return count", "            future.exception()\n        return count"),
        caught_by=f"{LIVE}::test_a_client_without_asyncio_hides_no_error",
    ),
]  # fmt: skip

# What a reader is told of the ordered log.
EVERY_ROW = f"{HISTORY}::test_every_row_from_every_position[1000000]"
HISTORIES = [
    shell_mutant(
        "history_skips_blocks_on_disk", "amcast.runtime.history",
        ("if start + count <= position:", "if start + count <= position or (found and start % 3 == 0):"),
        caught_by=EVERY_ROW,
    ),
    shell_mutant(
        "history_skips_a_row_after_a_read", "amcast.runtime.history",
        ("blocks[-1][0] + blocks[-1][1], b", "blocks[-1][0] + blocks[-1][1] + 1, b"), caught_by=EVERY_ROW,
    ),
    shell_mutant(
        "history_stops_at_the_end_of_a_file", "amcast.runtime.history",
        ("            self._files.append(first)\n", "            self._files = [first]\n"), caught_by=EVERY_ROW,
    ),
    shell_mutant(
        "history_in_memory_starts_a_block_late", "amcast.runtime.history",
        ("key=lambda block: block[0]) - 1", "key=lambda block: block[0])"),
        caught_by=f"{HISTORY}::test_in_memory_alone",
    ),
    shell_mutant(
        "history_keeps_what_will_come_again", "amcast.runtime.history",
        ("            self._disk.truncate(file, at)\n", "            pass\n"),
        caught_by=f"{HISTORY}::test_a_restart_goes_on_where_its_snapshot_ends",
    ),
    shell_mutant(
        "history_hides_damage", "amcast.runtime.history",
        ("if not length or zlib.crc32(rows) != checksum:", "if not length:"),
        caught_by=f"{HISTORY}::test_a_damaged_or_missing_block_is_an_error_and_not_a_gap",
    ),
]  # fmt: skip

NODE = [
    shell_mutant(
        "deliveries_times_1000", "amcast.runtime.metrics",
        ('"Messages delivered", self.deliveries)', '"Messages delivered", 1000 * self.deliveries)'),
        caught_by=f"{LIVE}::test_metrics_say_what_was_asked_and_delivered",
    ),
    shell_mutant(
        "requests_always_0", "amcast.runtime.metrics", ('by clients", self.requests)', 'by clients", 0)'),
        caught_by=f"{LIVE}::test_metrics_say_what_was_asked_and_delivered",
    ),
    shell_mutant(
        "always_ready", "amcast.runtime.admin", ("reason = self._ready()", "reason = None"),
        caught_by="tests/runtime/test_admin.py::test_what_each_path_answers",
    ),
    shell_mutant(
        "ready_without_a_quorum", "amcast.runtime.pulse",
        ("if len(group) - len(silent) > len(group) // 2:", "if len(group) > 0:"),
        caught_by=f"{LIVE}::test_ready_only_with_a_quorum",
    ),
    shell_mutant(
        "a_failed_node_ends_as_one_that_was_stopped", "amcast.runtime.node",
        ("            raise self._error\n", "            pass\n"),
        caught_by=f"{LIVE}::test_a_node_that_cannot_write_ends_with_an_error",
    ),
    shell_mutant(
        "node_exits_0_when_its_disk_fails", "amcast.runtime.node",
        ("            raise StorageFailure(", "            StorageFailure("),
        (" {error.strerror or error}\") from error", " {error.strerror or error}\")"),
        caught_by=f"{LIVE}::test_the_exit_codes_of_a_node",
    ),
    shell_mutant(
        "messages_leave_before_their_records_are_durable", "amcast.runtime.durability",
        ("if (self._unsynced and urgent) or waited_for:", "if False:"),
        caught_by=f"{DURABILITY}::test_nothing_leaves_before_what_it_depends_on_is_on_disk",
    ),
    shell_mutant(
        "a_commit_begins_after_a_failure", "amcast.runtime.durability",
        ("        self._stopped = self._failed = True\n", "        pass\n"),
        caught_by=f"{DURABILITY}::test_a_failed_commit_releases_nothing_and_is_the_last",
    ),
    shell_mutant(
        "what_waits_at_the_end_is_forgotten", "amcast.runtime.durability",
        ("            self._unsettled += tick.deliveries\n        blocks", "            pass\n        blocks"),
        caught_by=f"{DURABILITY}::test_a_node_that_stops_keeps_what_waited_and_a_snapshot",
    ),
    shell_mutant(
        "a_snapshot_is_taken_wherever_the_disk_is_free", "amcast.runtime.durability",
        ("        if self._snapshot_is_due:  # messages may", "        if False:  # messages may"),
        ("            self._commit(cut=False)\n", "            self._commit(cut=True)\n"),
        caught_by=f"{DURABILITY}::test_what_was_handled_while_the_disk_was_busy_is_applied_before_a_snapshot",
    ),
    shell_mutant(
        "a_rejoin_is_forgotten", "amcast.runtime.storage",
        ('        return self._files.exists(self.folder / "rejoining")\n', "        return False\n"),
        caught_by="tests/runtime/test_storage_power.py"
        "::test_a_rejoin_that_is_cut_short_is_not_taken_for_a_replica_that_promised_nothing[disk-kept]",
    ),
    shell_mutant(
        "a_new_folder_is_whole_before_it_rejoins", "amcast.runtime.storage",
        ("            if rejoin:  # before the folder", "            if False:  # before the folder"),
        caught_by="tests/runtime/test_storage_power.py"
        "::test_a_rejoin_that_is_cut_short_is_not_taken_for_a_replica_that_promised_nothing[disk-lost]",
    ),
    shell_mutant(
        "commits_are_not_synced", "amcast.runtime.storage", ("            self._files.sync(self._segment)\n", ""),
        caught_by="tests/runtime/test_storage.py::test_a_failed_write_is_final[sync]",
    ),
]  # fmt: skip

CROWDS = "tests/runtime/test_crowds.py"
DOORS = [
    shell_mutant(
        "the_newest_makes_room", "amcast.runtime.doors",
        ("place = next(iter(self._places[address]))", "place = next(reversed(self._places[address]))"),
        caught_by=f"{CROWDS}::test_the_oldest_of_the_largest_crowd_makes_room",
    ),
    shell_mutant(
        "a_crowd_throws_out_others", "amcast.runtime.doors",
        ("self._drop_oldest(max(crowd, key=lambda known: len(self._places[known])))", "self._drop_oldest(crowd[0])"),
        caught_by=f"{CROWDS}::test_the_oldest_of_the_largest_crowd_makes_room",
    ),
    shell_mutant(
        "no_place_is_reserved", "amcast.runtime.doors",
        ("for known in self._places if known not in self.reserved]", "for known in self._places]"),
        caught_by=f"{CROWDS}::test_reserved_addresses_have_places_of_their_own",
    ),
    shell_mutant(
        "strangers_are_not_limited_before_the_handshake", "amcast.runtime.tls",
        ("            place.drop = task.cancel\n", ""), caught_by=f"{CROWDS}::test_handshakes_are_limited",
    ),
    shell_mutant(
        "strangers_stay_for_ever", "amcast.runtime.greeting",
        ("        self._place.drop = self.transport.abort\n", ""),
        caught_by="tests/runtime/test_listeners.py::test_who_does_not_greet_in_time_is_dropped",
    ),
    shell_mutant(
        "probes_are_locked_out", "amcast.runtime.http",
        ("        place.drop = task.cancel\n", ""),
        caught_by="tests/runtime/test_admin.py::test_connections_are_bounded",
    ),
]  # fmt: skip

HEARD = "tests/runtime/test_pulse.py"
PULSES = [
    shell_mutant(
        "who_has_just_started_judges", "amcast.runtime.pulse",
        ("self._judges_from = self._last_tick + patience", "self._judges_from = 0"),
        caught_by=f"{HEARD}::test_a_replica_that_has_just_started_judges_nobody",
    ),
    shell_mutant(
        "who_stood_still_judges", "amcast.runtime.pulse",
        ("self._judges_from = max(self._judges_from, now + self._silence)", "pass"),
        caught_by=f"{HEARD}::test_a_replica_that_stood_still_judges_nobody",
    ),
    shell_mutant(
        "one_replica_refuses_for_its_group", "amcast.runtime.pulse",
        ("if said and all(said)", "if said and any(said)"),
        caught_by=f"{HEARD}::test_a_group_is_refused_when_all_of_it_that_is_heard_refuse",
    ),
    shell_mutant(
        "an_election_fails_calls", "amcast.runtime.pulse",
        ("if now - self._unready_since > self._limits.seconds_unready * SECOND:", "if unready:"),
        caught_by=f"{HEARD}::test_an_election_is_waited_for",
    ),
    shell_mutant(
        "ready_without_progress", "amcast.runtime.pulse",
        ("or self._host.engine.process.unready() or self._stuck(now)", "or self._host.engine.process.unready()"),
        caught_by=f"{HEARD}::test_what_waits_while_nothing_is_delivered",
    ),
    shell_mutant(
        "ready_without_a_leader", "amcast.runtime.pulse",
        ("or self._host.engine.process.unready() or self._stuck(now)", "or self._stuck(now)"),
        caught_by=f"{HEARD}::test_an_election_is_waited_for",
    ),
    shell_mutant(
        "a_full_disk_of_a_follower_does_not_matter", "amcast.runtime.pulse",
        ("self.busy = busy or self._mates_busy(now)", "self.busy = busy"),
        caught_by=f"{HEARD}::test_busy_when_too_few_members_have_room",
    ),
]  # fmt: skip

AGAIN = "tests/runtime/test_asked_again.py"
RESULTS = [
    shell_mutant(
        "answers_before_the_message_is_executed", "amcast.runtime.node",
        ("self.serving.with_results(tick.answers) if self.app is not None else tick.answers", "tick.answers"),
        caught_by=f"{AGAIN}::test_no_answer_before_the_message_is_executed",
    ),
    shell_mutant(
        "an_answer_that_is_gone_is_not_said_to_be", "amcast.runtime.serving",
        ("self.answer_is_gone(client, msg.mid)", "found.append((client, msg))"),
        caught_by=f"{AGAIN}::test_an_answer_that_is_gone_is_said_to_be",
    ),
    shell_mutant(
        "batches_that_nobody_takes_are_sent_for_ever", "amcast.runtime.client",
        ("if size > self.config.largest_message + MORE_IN_BATCH:", "if size < 0:"),
        caught_by=f"{AGAIN}::test_messages_that_are_too_large_together_are_refused_at_once",
    ),
    shell_mutant(
        "answers_are_kept_for_ever", "amcast.runtime.serving",
        ("while self.size > self._most_bytes and len(self.by_mid) > 1:", "while False:"),
        caught_by="tests/runtime/test_results.py::test_clients_that_are_gone_leave_no_more_than_there_is_room_for",
    ),
]  # fmt: skip

RENEWAL = [
    shell_mutant(
        "new_certificates_wait_for_a_restart", "amcast.runtime.renewal",
        ("[context.take(new) for", "[False for"),
        caught_by="tests/runtime/test_tls.py::"
        "test_a_node_takes_up_new_certificates_and_keeps_the_old_ones_if_they_are_broken",
    ),
    shell_mutant(
        "a_broken_certificate_ends_a_node", "amcast.runtime.renewal",
        ("    except UsageError as error:\n", "    except KeyError as error:\n"),
        caught_by="tests/runtime/test_tls.py::"
        "test_a_node_takes_up_new_certificates_and_keeps_the_old_ones_if_they_are_broken",
    ),
]  # fmt: skip

QUORUM = "tests/runtime/test_without_quorum.py"
OVERLOAD = "tests/runtime/test_busy.py"
FLOW = [
    shell_mutant(
        "what_cannot_be_delivered_is_ordered", "amcast.runtime.serving",
        ("if reason is not None else self.host.pulses.refusal_of(request.m.dest)", "if reason is not None else None"),
        caught_by=f"{QUORUM}::test_a_node_without_a_quorum_takes_nothing",
    ),
    shell_mutant(
        "failed_although_somebody_may_have_it", "amcast.runtime.admission",
        ("for batch in client._engine.untaken(dest, 0.0):", "for batch in list(client._engine.open.values()):"),
        caught_by=f"{QUORUM}::test_what_one_replica_may_have_taken_is_not_said_to_have_failed",
    ),
    shell_mutant(
        "calls_to_dead_groups_wait_for_their_deadline", "amcast.runtime.admission",
        ("            self._inquire(batch.dest)  # this one", "            pass  # this one"),
        ("        self._inquire(dest)\n        return True", "        return False"),
        caught_by=f"{QUORUM}::test_refused_by_all_is_refused_at_once",
    ),
    shell_mutant(
        "one_cut_off_replica_speaks_for_all", "amcast.runtime.inquiry",
        ("in missing for pid in self._unheard)", "in missing for pid in self._unheard) and not self._reasons"),
        caught_by=f"{QUORUM}::test_one_replica_that_is_cut_off_does_not_speak_for_its_group",
    ),
    shell_mutant(
        "one_group_speaks_for_another", "amcast.runtime.inquiry",
        ("self._serving.add(self._topology.group_of[pid])", "self._serving.update(self.dest)"),
        caught_by=f"{QUORUM}::test_every_group_must_see_all_of_them_serve",
    ),
    shell_mutant(
        "clients_wait_for_ever_for_a_slow_member", "amcast.runtime.pulse",
        ("serving.pause(congested and not self._long_congested())", "serving.pause(congested)"),
        caught_by=f"{OVERLOAD}::test_a_group_that_does_not_keep_up",
    ),
    shell_mutant(
        "a_full_disk_is_not_said", "amcast.runtime.pulse",
        ("return (self._host.durability.short_of_space() or \"\")", "return \"\""),
        caught_by=f"{OVERLOAD}::test_busy_until_the_deadline_and_why",
    ),
    shell_mutant(
        "clients_do_not_back_off", "amcast.runtime.admission",
        ("            self._back_off(member.group, failure.reason)  #", "            pass  #"),
        caught_by=f"{OVERLOAD}::test_who_is_patient_gets_through",
    ),
]  # fmt: skip

PERMISSIONS = [
    shell_mutant(
        "clients_may_write_everywhere", "amcast.runtime.serving",
        ("self.grant.write.issuperset(m.dest) and ours", "ours"),
        caught_by=f"{ROLES}::test_what_is_forbidden_is_delivered_nowhere",
    ),
    shell_mutant(
        "clients_may_read_everything", "amcast.runtime.serving",
        ("if self.host.me.group not in self.grant.read:", "if False:"),
        caught_by=f"{ROLES}::test_every_request_of_every_role[read g0-nobody]",
    ),
    shell_mutant(
        "a_certificate_is_good_for_any_name", "amcast.runtime.greeting", ("if name != hello.name:", "if not name:"),
        caught_by=f"{ROLES}::test_the_wrong_door_or_name[a client as another]",
    ),
]  # fmt: skip

APPS = [
    shell_mutant(
        "ledger_verify_exits_0", "amcast.cli.ledger", ('"violated": 1', '"violated": 0'),
        caught_by=LEDGER,
    ),
    shell_mutant(
        "ledger_chain_compared_with_itself", "amcast.apps.chains",
        ("!= chain(logs[longest][: len(log)])", "!= chain(log)"), caught_by=LEDGER,
    ),
    shell_mutant(
        "ledger_agrees_on_nothing", "amcast.apps.chains", ("if len(logs) < 2:", "if len(logs) < 0:"),
        ("max(logs, key=lambda name: len(logs[name]))", "max(logs, key=lambda name: len(logs[name]), default='')"),
        caught_by=LEDGER,
    ),
    shell_mutant(
        "kv_says_ok_and_sets_nothing", "amcast.apps.kv.strings",
        ("        store.put(key, value)\n        return OK\n", "        return OK\n"),
        caught_by="tests/apps/test_gateway.py::test_strings[RESP2]",
    ),
    shell_mutant(
        "kv_sets_only_the_first_of_many", "amcast.apps.kv.strings",
        ("    for at in range(1, len(args), 2):\n        store.put(", "    for at in (1,):\n        store.put("),
        caught_by="tests/apps/test_gateway.py::test_many_keys_over_all_groups[RESP2]",
    ),
]  # fmt: skip

EXIT_CODES = [
    shell_mutant(
        "a_users_mistake_exits_1", "amcast.errors",
        ("Nothing was changed.\n    \"\"\"\n\n    exit_code = 2",
         "Nothing was changed.\n    \"\"\"\n\n    exit_code = 1"),
        caught_by="tests/cli/test_bad_input.py::test_a_mistake_is_one_line[sim whitebox]",
    ),
    shell_mutant(
        "an_error_exits_0", "amcast.cli",
        ("return error.exit_code", "return 0"),
        caught_by=f"{LIVE}::test_the_exit_codes_of_a_node",
    ),
    shell_mutant(
        "a_wrong_option_exits_0", "amcast.cli",
        ("""--help')")\n    return 2""", """--help')")\n    return 0"""),
        caught_by="tests/cli/test_bad_input.py::test_a_mistake_is_one_line[sim white_box --nonsense]",
    ),
    shell_mutant(
        "what_a_command_found_is_not_its_exit_code", "amcast.cli",
        ("        return int(code or 0)", "        return 0"), caught_by=LEDGER,
    ),
]  # fmt: skip

MUTANTS = [*CLIENT, *HISTORIES, *NODE, *DOORS, *FLOW, *PULSES, *RESULTS, *RENEWAL, *PERMISSIONS, *APPS, *EXIT_CODES]
