"""Mutants of how a replica comes back: pulls, rejoins, forgetful disks, the lead, data of 0.1."""

from tests.mutants.shell import shell_mutant

PULLING, LEADING = "tests/runtime/test_pulling.py", "tests/runtime/test_leading.py"
OLD, SAVED = "tests/runtime/test_data_of_0_1_0.py", "tests/runtime/test_durability.py"
LAGGARD = f"{PULLING}::test_a_laggard_takes_over_a_snapshot_and_goes_on"
FORGOT = f"{PULLING}::test_a_replica_that_forgot_does_not_come_back_but_by_a_rejoin"
PINNED = f"{PULLING}::test_a_snapshot_stays_while_it_is_copied_and_a_while_longer"
FIRST = f"{SAVED}::test_a_state_of_others_is_durable_before_anything_leaves"
CONVERTED = f"{OLD}::test_a_cluster_goes_on_from_the_data_of_0_1_0"
BACK = "tests/runtime/test_coming_back.py"
TORN = "tests/runtime/test_storage.py::test_a_torn_end_is_clean_if_the_seal_knows_all_before_it"
IN_PLACE = "tests/runtime/test_storage.py::test_files_that_are_put_back_in_place_are_doubted_until_they_are_confirmed"
COPY = "tests/runtime/test_storage.py::test_a_copy_of_a_folder_is_doubted_until_it_is_confirmed"
HOLE = f"{PULLING}::test_rows_that_nobody_keeps_end_a_trace_honestly"
FAILOVER = "tests/runtime/test_failover.py"
REFUSED, STANDS = (
    f"{FAILOVER}::test_a_refusal_is_news_once_and_only_where_somebody_was",
    f"{FAILOVER}::test_a_node_tells_all",
)
FULL_DISK = f"{LEADING}::test_a_leader_whose_disk_is_full_but_for_the_reserve_hands_over"
SLOW = f"{LEADING}::test_a_leader_with_a_slow_disk_hands_over_but_not_again_at_once"

MUTANTS = [
    shell_mutant(
        "who_was_never_there_is_missed", "amcast.runtime.links",
        ("                if was_there:\n", "                if True:\n"), caught_by=REFUSED,
    ),
    shell_mutant(
        "each_refusal_is_news", "amcast.runtime.links",
        ("                was_there = False\n                self.host", "                self.host"),
        caught_by=REFUSED,
    ),
    shell_mutant(
        "a_refusal_tells_the_protocol_nothing", "amcast.runtime.leading",
        ("            process.gone(self._now(), pid)\n", "            pass\n"), caught_by=STANDS,
    ),
    shell_mutant(
        "a_new_leader_tells_nobody", "amcast.runtime.node",
        ("            if tick.news:\n", "            if False:\n"), caught_by=STANDS,
    ),
    shell_mutant(
        "a_part_is_not_checked", "amcast.runtime.snapshots",
        ("if self.whole or not sound or checksum != expected:", "if self.whole or not sound:"),
        caught_by=f"{PULLING}::test_a_part_that_is_not_as_it_was_written_is_not_used",
    ),
    shell_mutant(
        "a_copy_begins_from_the_start_each_time", "amcast.runtime.pulling",
        ("if self._copy is None or self._from != (pid, offer):", "if True:"),
        caught_by=f"{PULLING}::test_a_copy_that_is_cut_off_goes_on_where_it_stopped",
    ),
    shell_mutant(
        "what_does_not_fit_is_gone_on_with", "amcast.runtime.pulling",
        ("            if not isinstance(error, OSError | TimeoutError):\n", "            if False:\n"),
        caught_by=f"{PULLING}::test_a_part_that_is_not_as_it_was_written_is_not_used",
    ),
    shell_mutant(
        "a_copy_fills_the_disk", "amcast.runtime.pulling",
        ("if free - len(part) < self._limits.reserve:", "if False:"),
        caught_by=f"{PULLING}::test_a_copy_leaves_the_reserve_of_the_disk_alone",
    ),
    shell_mutant(
        "nothing_is_pinned", "amcast.runtime.storage",
        ('and not (prefix == "snapshot-" and old in self._pins):', "and prefix:"), caught_by=f"{PINNED}[durable]",
    ),
    shell_mutant(
        "a_pin_stays_for_ever", "amcast.runtime.supply",
        ("        durability.in_thread(durability.unpin, self._pinned.pop(offer).saved)", "        pass"),
        caught_by=f"{PINNED}[durable]", slow=True,
    ),
    shell_mutant(
        "the_application_stays_behind", "amcast.runtime.node",
        ("            self._use(executor)\n", "            pass\n"), caught_by=LAGGARD, slow=True,
    ),
    shell_mutant(
        "the_chain_stays_behind", "amcast.runtime.node",
        ("        self._adopt(snapshot)\n        self.durability", "        self.durability"), caught_by=LAGGARD,
    ),
    shell_mutant(
        "rows_that_were_skipped_are_not_traced", "amcast.runtime.node",
        ("        self.filling.look(self._source)\n", ""), caught_by=LAGGARD, slow=True,
    ),
    shell_mutant(
        "a_state_of_others_is_not_durable_first", "amcast.runtime.durability",
        ("        self._must_save = self.storage is not None\n", "        pass\n"), caught_by=FIRST, slow=True,
    ),
    shell_mutant(
        "a_state_of_others_is_half_durable", "amcast.runtime.durability",
        ("            while whole and not self.storage.save_some():\n", "            while False:\n"), caught_by=FIRST,
    ),
    shell_mutant(
        "a_rejoin_ends_before_there_is_a_snapshot", "amcast.runtime.durability",
        ("            if whole and self.rejoining:\n", "            if self.rejoining:\n"),
        caught_by=f"{PULLING}::test_an_interrupted_rejoin_goes_on_as_one",
    ),
    shell_mutant(
        "a_rejoin_never_ends", "amcast.runtime.durability",
        ("                self.storage.end_rejoin()  #", "                pass  #"),
        caught_by=f"{PULLING}::test_a_replica_without_a_disk_comes_back_by_the_same_path[durable]",
    ),
    shell_mutant(
        "a_first_start_is_believed", "amcast.runtime.starting",
        (
            "    node.durable_process().recover(node.now(), records, starts, not recovered.doubt)\n",
            "    if records or starts > 1:\n"
            "        node.durable_process().recover(node.now(), records, starts, not recovered.doubt)\n"
            "    else:\n"
            "        node.engine.process.start(node.now())\n",
        ),
        caught_by=f"{BACK}::test_one_that_ran_before_is_not_new_whatever_an_operator_says",
    ),
    shell_mutant(
        "who_is_dialled_waits_for_its_turn", "amcast.runtime.links",
        ("            link.dialled_by(hello.boot)\n", "            pass\n"),
        caught_by=f"{BACK}::test_who_is_dialled_dials_back_at_once",
    ),
    shell_mutant(
        "a_process_that_is_gone_is_spoken_to", "amcast.runtime.links",
        ("if self.connection is not None and self.boot != boot:", "if False:"),
        caught_by=f"{BACK}::test_a_connection_to_a_process_that_is_gone_is_dropped",
    ),
    shell_mutant(
        "what_is_under_way_may_not_fit_a_channel", "amcast.runtime.links",
        ("return BURST * max(self._most_kept, self.host.under_way())", "return BURST * self._most_kept"),
        caught_by=f"{PULLING}::test_what_is_kept_for_a_member_is_bounded_by_what_is_under_way[1000000]",
    ),
    shell_mutant(
        "each_who_is_away_costs_as_much_as_all", "amcast.runtime.links",
        ("self._most_kept // max(1, away)", "self._most_kept"),
        caught_by=f"{PULLING}::test_what_is_kept_for_a_member_is_bounded_by_what_is_under_way[0]",
    ),
    shell_mutant(
        "a_majority_may_rejoin", "amcast.local.rejoining",
        ("if joining and len(group) - len(joining) - 1 <= len(group) // 2:", "if False:"),
        caught_by=f"{BACK}::test_a_majority_is_not_let_rejoin_at_once",
    ),
    shell_mutant(
        "what_was_forgotten_is_forgotten", "amcast.runtime.node",
        ("            self.durability.storage.forget(reason)\n", "            pass\n"), caught_by=FORGOT, slow=True,
    ),
    shell_mutant(
        "a_plain_start_forgets_that_it_forgot", "amcast.runtime.storage",
        ('if self._files.exists(self.folder / "forgot") and not', "if False and not"), caught_by=FORGOT,
    ),
    shell_mutant(
        "a_loss_is_not_accepted", "amcast.runtime.starting",
        ("        node.durable_process().trust(node.now())\n", "        pass\n"),
        caught_by=f"{PULLING}::test_an_operator_accepts_the_loss",
    ),
    shell_mutant(
        "a_torn_end_is_always_clean", "amcast.runtime.storage",
        ("if cut and seal.frame != self.next_frame - 1 and not doubt:", "if False:"), caught_by=TORN,
    ),
    shell_mutant(
        "a_torn_end_is_clean_at_the_next_start", "amcast.runtime.storage",
        ('self._write_whole(self.folder / "place", b"")  # first: when', "pass  # when"), caught_by=TORN,
    ),
    shell_mutant(
        "a_copy_of_a_folder_is_believed", "amcast.runtime.storage",
        ('return "" if found == self._place_text() else', 'return "" if found else'), caught_by=COPY,
    ),
    shell_mutant(
        "files_that_are_put_back_are_believed", "amcast.runtime.storage",
        ("if not doubt and self._put_back():", "if False:"), caught_by=IN_PLACE,
    ),
    shell_mutant(
        "files_that_are_put_back_are_believed_at_the_second_start", "amcast.runtime.storage",
        ('b"")  # first: they are written anew below', 'self._place_text())'), caught_by=IN_PLACE,
    ),
    shell_mutant(
        "a_copy_is_believed_before_it_is_confirmed", "amcast.runtime.node",
        ("            if self.durability.doubted and self._takes_part():\n", "            if True:\n"),
        caught_by=f"{BACK}::test_an_older_copy_waits_for_all_who_may_know_better",
    ),
    shell_mutant(
        "a_copy_is_never_believed", "amcast.runtime.node",
        ("                self.durability.confirm()\n", "                pass\n"),
        caught_by=f"{BACK}::test_a_folder_that_moved_is_believed_when_all_have_confirmed_it",
    ),
    shell_mutant(
        "a_trace_goes_on_behind_a_hole", "amcast.runtime.tracing", ("        self.ended = True\n", ""), caught_by=HOLE,
    ),
    shell_mutant(
        "a_trace_counts_rows_as_positions", "amcast.runtime.tracing",
        ("return position + 1 if isinstance(position, int) else data.count(DELIVER)", "return data.count(DELIVER)"),
        caught_by="tests/runtime/test_tracing.py::test_a_process_that_comes_back_keeps_its_rows",
    ),
    shell_mutant(
        "a_slow_member_holds_up_clients", "amcast.runtime.links",
        ("return slow and not self.host.protocol.durable", "return slow"),
        caught_by="tests/runtime/test_busy.py::test_a_group_that_does_not_keep_up",
    ),
    shell_mutant(
        "what_is_under_way_holds_up_nobody", "amcast.runtime.pulse",
        ("congested = backlog > self._limits.congested or (self._waits", "congested = (self._waits"),
        caught_by="tests/runtime/test_busy.py::test_a_group_that_does_not_keep_up", slow=True,
    ),
    shell_mutant(
        "a_leader_stops_without_a_word", "amcast.runtime.node",
        ("                await self.leading.give_up_to_stop()\n", "                pass\n"),
        caught_by=f"{LEADING}::test_a_leader_hands_over_before_it_stops",
    ),
    shell_mutant(
        "a_leader_hands_over_each_time_it_is_asked", "amcast.runtime.leading",
        ("self.leads and (to != pid or self._now() - when > self._suspect_after)", "self.leads"),
        caught_by=f"{LEADING}::test_a_leader_hands_over_once_to_who_asks_often",
    ),
    shell_mutant(
        "one_slow_commit_is_enough", "amcast.runtime.leading",
        ("nanoseconds > self._suspect_after // 2 else 0", "nanoseconds > self._suspect_after // 2 else self._slow"),
        caught_by=SLOW,
    ),
    shell_mutant(
        "a_slow_leader_hands_over_again_and_again", "amcast.runtime.leading",
        ("self._now() >= self._not_before and self.leads", "self.leads"), caught_by=SLOW,
    ),
    shell_mutant(
        "a_leader_with_a_full_disk_stays", "amcast.runtime.durability",
        ("            self._host.leading.give_up(reason)\n", "            pass\n"), caught_by=FULL_DISK,
    ),
    shell_mutant(
        "data_of_0_1_is_taken_for_damaged", "amcast.runtime.storage",
        ('        if self._files.exists(self.folder / "seal"):\n            return Storage',
         "        if True:\n            return Storage"),
        caught_by=f"{OLD}::test_a_plain_start_says_what_to_do",
    ),
    shell_mutant(
        "a_running_node_is_converted", "amcast.local.convert",
        ("            REAL.files.lock(lock)\n", "            pass\n"),
        caught_by=f"{OLD}::test_nothing_is_converted_while_a_node_runs_or_if_anything_is_damaged",
    ),
    shell_mutant(
        "conversions_are_not_finished", "amcast.local.convert",
        ("            finish(member)\n", ""),
        caught_by=f"{OLD}::test_a_conversion_that_ended_between_its_two_renames_is_finished",
    ),
    shell_mutant(
        "a_later_log_is_damaged", "amcast.runtime.sectors",
        ("return magic[:3] == MAGIC[:3] and magic[3:4].isdigit()", "return False"),
        caught_by=f"{OLD}::test_what_a_later_version_wrote_is_refused",
    ),
]  # fmt: skip
