"""Mutants of `amcast watch` and of the stream's source and sink: rows lost or repeated, silence taken for health."""

from tests.mutants.shell import shell_mutant

CLI = "amcast.cli.watch"
SEEN = "amcast.spark.stream.seen"
JUDGE = "amcast.spark.stream.watch"
ONLINE = "amcast.checks.online"
COLUMNS = "amcast.verify.online"
LOG = "amcast.spark.stream.log"
SOURCE = "amcast.spark.stream.source"
SINK = "amcast.spark.stream.sink"
VERDICTS = "tests/spark/test_watch_verdicts.py"
ROWS = "tests/spark/test_stream_rows.py"
CHECKS = "tests/checks/test_check_online.py"
BOTH = "tests/verify/test_online.py::test_rows_and_columns_say_the_same"

BATCH_IS_FULL = "                start = position\n                columns = Columns()\n        if columns.count"

MUTANTS = [
    # The verdict
    shell_mutant(
        "watch_never_exits_1", CLI, ("return exit_code(verdicts)", "return exit_code(verdicts) & 2"),
        caught_by=f"{VERDICTS}::test_whatever_is_wrong_is_exit_code_1",
    ),
    shell_mutant(
        "watch_exits_0_when_nothing_was_seen", CLI,
        ("return exit_code(verdicts)", "return exit_code(verdicts) if view.batches else 0"),
        caught_by=f"{VERDICTS}::test_an_idle_cluster",
    ),
    shell_mutant(
        "watch_forgets_who_does_not_answer", SEEN,
        ("if process in answers.silent]", "if process in answers.silent and False]"),
        caught_by=f"{VERDICTS}::test_who_dies_during_the_watch_is_named",
    ),
    shell_mutant(
        "watch_expects_who_was_seen", CLI,
        ("cluster.members(cluster.at_start))", "{})"),
        ("self.runs[self.cluster.config.name].group_of |= self.cluster.members(answers.ends)", "pass"),
        caught_by=f"{VERDICTS}::test_the_dead_are_named",
    ),
    shell_mutant(
        "watch_expects_every_spare", "amcast.spark.stream.watched",
        ("if not config.is_spare(m) or m.name in answering", "if m"),
        caught_by=f"{VERDICTS}::test_a_spare_is_expected_when_it_has_joined",
    ),
    shell_mutant(
        "watch_forgets_members_that_start_rows_state", JUDGE,
        ('stated_members(row["detail"])', "0"),
        caught_by=f"{VERDICTS}::test_what_a_trace_shows",
    ),
    shell_mutant(
        "watch_takes_any_folder", JUDGE,
        ('    others = sorted(path.name + "/" * path.is_dir()', '    return ""\n    others = sorted(path.name + ""'),
        caught_by=f"{VERDICTS}::test_a_folder_without_traces",
    ),
    shell_mutant(
        "watch_skips_rows_that_it_cannot_read", SEEN, ('if self.counts["unreadable"]:', "if False:"),
        caught_by=f"{VERDICTS}::test_what_a_trace_shows",
    ),
    shell_mutant(
        "watch_overlooks_that_its_query_ended", JUDGE, ("if not once and not ran_on:", "if False:"),
        caught_by=f"{VERDICTS}::test_a_query_that_ends_too_early",
    ),
    shell_mutant(
        "watch_once_does_not_miss_what_it_did_not_read", SEEN,
        ("for process in known if whole else ():", "for process in ():"),
        caught_by=f"{VERDICTS}::test_what_was_there_and_not_read",
    ),
    shell_mutant(
        "watch_forgets_that_the_order_was_broken", SEEN,
        ('if name == "order" and self.broken:', "if False:"),
        caught_by=f"{VERDICTS}::test_an_order_that_was_broken_before_is_not_ok",
    ),
    shell_mutant(
        "watch_overlooks_a_group_of_which_nobody_is_seen", SEEN, ("if self.absent:", "if False:"),
        caught_by=f"{VERDICTS}::test_what_a_trace_shows",
    ),
    # The check
    shell_mutant(
        "watch_ignores_lost_rows", JUDGE, ('pa.array(["deliver", "lost"])', 'pa.array(["deliver"])'),
        caught_by=f"{VERDICTS}::test_rows_that_could_not_be_read",
    ),
    shell_mutant(
        "watch_does_not_say_that_rows_are_lost", SEEN, ("self.lost[row.name] += row.amount", "pass"),
        caught_by=f"{VERDICTS}::test_rows_that_could_not_be_read",
    ),
    shell_mutant(
        "watch_of_a_cluster_allows_gaps", JUDGE, ("Judge(gapless=True,", "Judge(gapless=False,"),
        caught_by=f"{VERDICTS}::test_positions_that_a_replica_has_not_are_a_violation",
    ),
    shell_mutant(
        "online_check_sees_no_gap", ONLINE, ("if self._gapless and chain.last >= 0", "if False and chain.last >= 0"),
        caught_by=f"{CHECKS}::test_positions_are_gapless_where_that_is_promised",
    ),
    shell_mutant(
        "online_check_counts_what_was_not_compared", ONLINE, ("if len(needed) > 1:", "if needed:"),
        caught_by=f"{CHECKS}::test_what_was_compared_is_counted",
    ),
    shell_mutant(
        "online_check_waits_for_who_is_behind", ONLINE, ("while not wait and self._leave_behind():", "while False:"),
        caught_by=f"{CHECKS}::test_who_has_nothing_more_is_left_behind_if_nothing_more_comes",
    ),
    shell_mutant(
        "online_check_believes_two_destinations_of_a_message", ONLINE,
        ("if pending.dest is not None and row.group not in pending.dest:", "if False:"),
        caught_by=f"{CHECKS}::test_rows_that_say_different_destinations_of_a_message",
    ),
    # The same over columns
    shell_mutant(
        "columns_wait_for_who_is_behind", COLUMNS, ("while not wait and self._leave_behind():", "while False:"),
        caught_by=f"{VERDICTS}::test_who_is_behind_does_not_hide_what_others_did",
    ),
    *(
        shell_mutant(name, COLUMNS, (text, text.replace(guard, instead)), caught_by=f"{BOTH}[{faults}]")
        for name, guard, text, instead, faults in (
            ("columns_see_no_cycle", "bool((self.rank[self.before] < self.rank[self.after]).all())",
             "return bool((self.rank[self.before] < self.rank[self.after]).all())", "True", 1),
            ("columns_take_a_row_that_goes_back", "(place <= before).any()", "if (place <= before).any()", "False", 3),
            ("columns_see_no_gap", "gap.any()", "or gap.any():", "False", 3),
            ("columns_take_what_was_passed", "len(recent)", "if len(recent) and", "False", 1),
            ("columns_take_what_is_for_others", "not len(self.dests)", "return not len(self.dests) or", "True", 1),
            ("columns_believe_two_destinations", "(of_message[known] != of_row[known]).any()",
             "if (of_message[known] != of_row[known]).any():", "False", 1),
            ("columns_pass_what_some_lack", "(self.many < need)", "| (self.many < need))", "False", 0),
            ("columns_take_lost_rows", 'new["message"].null_count', 'if new["message"].null_count or', "False", 3),
            ("columns_wait_for_who_is_silent", "chain.waits and not there[chain.number]",
             "if chain.waits and not there[chain.number] and", "False", 0),
        )
    ),
    shell_mutant(
        "columns_see_nothing_behind_what_waits", COLUMNS,
        ("lacking = self._lacking(number)", "lacking = self._lacking(number)[:0]"), caught_by=f"{BOTH}[1]",
    ),
    shell_mutant(
        "columns_overlook_a_process_that_is_back", COLUMNS,
        ("if not all(self.chains[number].waits for number in np.unique(chain)):", "if False:"), caught_by=f"{BOTH}[0]",
    ),
    shell_mutant(
        "columns_forget_what_a_multicast_says", COLUMNS,
        ('if told.num_rows and waiting["known"].null_count:', "if False:"), caught_by=f"{BOTH}[0]",
    ),
    shell_mutant(
        "online_check_looks_only_at_what_is_next", ONLINE,
        ("deque(chain.queue[chain.at :]) for", "deque(chain.queue[chain.at : chain.at + 1]) for"),
        caught_by=f"{CHECKS}::test_what_waits_for_a_silent_group_hides_nothing_behind_it",
    ),
    shell_mutant(
        "online_check_takes_one_group_for_the_destination", ONLINE,
        ("return tuple(self.latest) if self.dest is None", "return tuple(self.latest)[:1] if self.dest is None"),
        caught_by=f"{CHECKS}::test_destinations_that_become_known_later",
    ),
    shell_mutant(
        "online_check_passes_what_it_knows_too_little_of", ONLINE,
        ("        if pending.dest is None:\n            return []\n",
         "        if pending.dest is None:\n            pending.dest = (row.group,)\n"),
        caught_by=f"{CHECKS}::test_destinations_that_become_known_later",
    ),
    shell_mutant(
        "online_check_overlooks_what_a_late_process_left_out", ONLINE,
        ("if 0 <= chain.nth < nth - 1 and not chain.lost:", "if False:"),
        caught_by=f"{CHECKS}::test_a_process_that_is_silent_for_long_is_not_waited_for_and_compared_later",
    ),
    shell_mutant(
        "online_check_waits_too_soon_for_who_is_back", ONLINE,
        ("if row is None and chain.nth >= self.state.counts.get(chain.group, 0):", "if row is None:"),
        caught_by=f"{CHECKS}::test_who_is_back_in_pieces_is_waited_for_when_it_is_level",
    ),
    shell_mutant(
        "watch_once_is_ok_while_deliveries_wait", SEEN,
        ('final = now if not (whole or self.counts["end"])', 'final = now if not self.counts["end"]'),
        caught_by=f"{VERDICTS}::test_what_still_waits_is_not_ok",
    ),
    shell_mutant(
        "watch_never_finds_a_wait_too_long", SEEN, ("now - self._since[oldest][1] > UNDER_WAY", "False"),
        caught_by=f"{VERDICTS}::test_what_waits_for_long_is_not_under_way",
    ),
    shell_mutant(
        "watch_overlooks_unknown_destinations", SEEN,
        ('self.unresolved if self.unresolved and due("unresolved")', "0 if True"),
        caught_by=f"{VERDICTS}::test_a_trace_without_multicasts",
    ),
    shell_mutant(
        "watch_overlooks_messages_without_a_multicast", SEEN,
        ('self.unsent if self.unsent and due("unsent")', "0 if True"),
        caught_by=f"{VERDICTS}::test_a_message_without_a_multicast",
    ),
    shell_mutant(
        "watch_does_not_say_that_groups_are_judged_apart", SEEN, ("        if self.apart:\n", "        if False:\n"),
        caught_by=f"{VERDICTS}::test_too_many_messages_without_destinations",
    ),
    shell_mutant(
        "watch_overlooks_what_came_too_late", SEEN, ('if self.counts["unchecked"]:', "if False:"),
        caught_by=f"{VERDICTS}::test_deliveries_that_come_too_late_to_be_compared",
    ),
    shell_mutant(
        "watch_passes_over_other_traces", JUDGE, ("    if strays:\n", "    if False:\n"),
        caught_by=f"{VERDICTS}::test_what_looks_like_a_trace_is_not_passed_over",
    ),
    shell_mutant(
        "watch_passes_over_hidden_traces", JUDGE, ("(hidden or path not in wanted)", "path not in wanted"),
        caught_by=f"{VERDICTS}::test_what_looks_like_a_trace_is_not_passed_over",
    ),
    shell_mutant(
        "watch_passes_over_what_comes_later", CLI,
        ('came and was not read" if others else ""', 'came" if False else ""'),
        caught_by=f"{VERDICTS}::test_what_comes_later_and_is_not_read",
    ),
    # The source
    shell_mutant(
        "source_loses_a_row_at_every_full_batch", LOG,
        (BATCH_IS_FULL, BATCH_IS_FULL.replace("start = position", "start = position = position + 1")),
        caught_by=f"{ROWS}::test_any_stretch_of_a_log",
    ),
    shell_mutant(
        "source_repeats_a_row_at_every_full_batch", LOG,
        (BATCH_IS_FULL, BATCH_IS_FULL.replace("start = position", "start = position = position - (columns.count > 1)")),
        caught_by=f"{ROWS}::test_any_stretch_of_a_log",
    ),
    shell_mutant(
        "source_loses_the_last_row_of_a_micro_batch", SOURCE,
        ("[Part({name: low}, {name: high}) for", "[Part({name: low}, {name: high - 1}) for"),
        caught_by=f"{ROWS}::test_micro_batches_have_every_row_once",
    ),
    shell_mutant(
        "nobody_is_silent", "amcast.spark.stream.watched",
        (" - found.keys()", " & set()"),
        caught_by=f"{VERDICTS}::test_every_replica_has_a_row_and_the_silent_ones_say_so",
    ),
    shell_mutant(
        "a_query_begins_after_its_time", LOG, ("(times < when)", "(times <= when)"),
        caught_by=f"{ROWS}::test_a_query_begins_at_a_time",
    ),
    shell_mutant(
        "source_ignores_what_is_final", SOURCE, ("named(w.log.cut(start, ends) if w.merge else ends)", "named(ends)"),
        caught_by=f"{ROWS}::test_the_merged_order_waits_for_the_group_that_is_behind",
    ),
    shell_mutant(
        "source_merges_without_all_groups", LOG, ("return start  # a log", "return ends  # a log"),
        caught_by=f"{ROWS}::test_an_empty_log_holds_the_merged_order_back",
    ),
    shell_mutant(
        "a_checkpoint_of_any_cluster_will_do", SOURCE, ("        if cluster != here:\n", "        if False:\n"),
        caught_by=f"{ROWS}::test_a_checkpoint_of_another_cluster_is_refused",
    ),
    shell_mutant(
        "watch_reads_a_new_member_from_the_start", "amcast.spark.stream.replicas",
        ("reached[group] = max(reached.get(group, 0), position)", "reached[group] = 0"),
        caught_by=f"{ROWS}::test_a_member_that_joined_after_a_checkpoint_is_read_from_there",
    ),
    shell_mutant(
        "merged_rows_come_for_every_group", "amcast.spark.stream.rows",
        ("pc.not_equal(key[1:], key[:-1])", "pc.equal(key[1:], key[1:])"),
        caught_by=f"{ROWS}::test_the_merged_order_of_a_batch",
    ),
    shell_mutant(
        "a_replica_that_stops_is_not_told", "amcast.spark.stream.replicas",
        ("            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)", "            yield from ()"),
        caught_by=f"{ROWS}::test_a_replica_that_stops_in_the_middle_is_told",
    ),
    shell_mutant(
        "nobody_says_that_executors_are_missing", "amcast.spark.shipping", ("    timer.start()\n", "    pass\n"),
        caught_by="tests/spark/test_session.py::test_a_master_that_gives_no_executor_is_named",
    ),
    # The sink
    shell_mutant(
        "sink_loses_the_last_row", SINK, ("    if payloads:\n", "    if len(payloads) > 1:\n"),
        caught_by=f"{ROWS}::test_a_sink_multicasts_every_row_once",
    ),
    shell_mutant(
        "sink_repeats_a_row_at_every_run", SINK, ("payloads, size = [], 0", "payloads, size = payloads[-1:], 0"),
        caught_by=f"{ROWS}::test_a_sink_multicasts_every_row_once",
    ),
    shell_mutant(
        "sink_forgets_the_micro_batch", SINK, ("first=batch << ROW_BITS", "first=0"),
        caught_by=f"{ROWS}::test_a_sink_multicasts_every_row_once",
    ),
    shell_mutant(
        "sink_forgets_the_partition", SINK, ("{query}/{context.partitionId()}", "{query}"),
        caught_by=f"{ROWS}::test_a_sink_multicasts_every_row_once",
    ),
]  # fmt: skip
