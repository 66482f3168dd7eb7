"""Where the explorer finds each mutant of tests/mutants, or why it does not."""

# The scope in which random schedules (seed 1) show it, from the start or after the moves below.
FOUND = {
    "skeen: clock_not_raised": "chain",
    "skeen: timestamp_used_twice": "chain",
    "skeen: lowest_proposal_wins": "chain",
    "skeen: own_proposal_wins": "chain",
    "skeen: one_proposal_missing": "chain",
    "skeen: delivered_when_committed": "chain",
    "skeen: no_reply": "chain",
    "white_box: no_wait_for_new_state_acks": "triangle",
    "white_box: delivered_not_cleared_at_a_new_leader": "ticks",
    "white_box: acks_counted_without_comparing_vectors": "storm",
    "white_box: clock_not_raised_at_accept": "pair",
    "white_box: own_clock_at_recovery": "fallen",
    "white_box: duplicates_forgotten_too_early": "disk",
    "white_box: third_vote_counts": "fallen",
    "white_box: gap_in_deliveries_accepted": "snapshots",
    "white_box: no_retry_after_recovery": "ticks",
    "white_box: no_retry_by_timer": "pair",
    "white_box: collection_by_own_floor": "storm",
    "white_box: stuck_follower_not_heard": "disk",
    "white_box: accepts_of_other_ballots_taken": "ticks",
    "white_box: accepted_in_any_ballot_survives": "reconnect",
    "white_box: delivered_twice": "fallen",
    "white_box: timestamp_used_twice": "pair",
    "white_box: duplicate_not_answered": "unanswered",
    "white_box: old_ballot_joined": "fallen",
    "white_box: quorum_too_small": "pair",
    "white_box: own_acceptance_not_needed": "gale",
    "white_box: committed_forgotten_at_a_new_state": "ticks",
    "white_box: forgotten_message_delivered": "forgetting",
    "white_box: old_acks_count_again": "return",
    "white_box: snapshot_leaves_out_what_counts_as_recorded": "dropped",
    "white_box: promise_not_durable": "disk",
    "white_box: acceptance_not_durable": "disk",
    "white_box: delivery_not_durable": "disk",
    "white_box: heartbeat_before_what_it_tells_is_durable": "forgets",
    "white_box: new_state_not_durable": "disk",
    "white_box: leads_on_after_a_restart": "disk",
    "white_box: a_member_that_missed_a_delivery_is_not_helped": "disk",
    "white_box: a_member_that_missed_the_new_state_is_not_helped": "disk",
    "white_box: snapshot_without_sessions": "alone",
    "white_box: snapshot_without_entries": "alone",
    "multi_paxos: longest_log_of_any_ballot": "overwritten",
    "multi_paxos: any_log_of_the_highest_ballot": "fallen",
    "multi_paxos: third_vote_counts": "duel",
    "multi_paxos: stuck_follower_not_heard": "stuck",
    "multi_paxos: old_ballot_joined": "longest",
    "multi_paxos: quorum_too_small": "ticks",
    "multi_paxos: duplicate_not_answered": "resend",
    "paxos_amcast: log_not_announced_again": "ticks",
    "paxos_amcast: ballots_counted_together": "storm",
    "paxos_amcast: old_ballot_appends_stored": "ticks",
    "paxos_amcast: second_place_for_a_repeated_message": "ticks",
    "paxos_amcast: forgotten_before_all_learned": "ticks",
    "paxos_amcast: delivered_everywhere": "chain",
    "paxos_amcast: duplicate_not_answered": "resend",
    "ft_skeen: no_wait_for_new_state_acks": "duel",
    "ft_skeen: longest_log_of_any_ballot": "overwritten",
    "ft_skeen: any_log_of_the_highest_ballot": "storm",
    "ft_skeen: third_vote_counts": "fallen",
    "ft_skeen: stuck_follower_not_heard": "stuck",
    "ft_skeen: old_ballot_joined": "longest",
    "ft_skeen: quorum_too_small": "ticks",
    "ft_skeen: clock_not_raised": "pair",
    "ft_skeen: clock_not_recovered": "ticks",
    "ft_skeen: timestamp_used_twice": "pair",
    "ft_skeen: committed_before_gts_is_decided": "ahead",
    "ft_skeen: one_group_missing": "pair",
    "ft_skeen: lowest_timestamp_wins": "pair",
    "ft_skeen: committed_messages_wait_for_nobody": "pair",
    "ft_skeen: hard_before_it_is_decided": "storm",
    "ft_skeen: no_retry_after_recovery": "storm",
    "ft_skeen: no_retry_by_timer": "pair",
    "ft_skeen: delivered_twice": "fallen",
    "ft_skeen: pending_messages_not_recovered": "storm",
    "ft_skeen: collection_by_own_floor": "forgetting",
    "ft_skeen: duplicates_forgotten_too_early": "resend",
    "fastcast: guess_trusted": "guess",
    "fastcast: guess_in_the_log_trusted": "guesses",
    "fastcast: guess_trusted_without_hard": "guess",
    "fastcast: wrong_guess_not_corrected": "storm",
    "fastcast: soft_taken_for_hard": "storm",
    "baseline: timestamp_used_twice": "pair",
    "baseline: waits_for_the_next_message": "pair",
    "baseline: own_group_does_not_count": "chain",
    "baseline: no_barrier_needed": "pair",
    "baseline: nobody_asks_for_missing_barriers": "storm",
    "baseline: new_leader_proposes_nothing": "ticks",
    "baseline: refused_messages_ordered": "lagging",
    "baseline: every_message_refused": "conflict",
    "baseline: join_not_waited_for": "lagging",
    "baseline: old_leave_removes_a_new_membership": "late",
    "baseline: stamps_below_the_membership": "joins",
    "baseline: ordered_twice_delivered_twice": "ticks",
    "baseline: quorum_too_small": "ticks",
    "baseline: ballots_mixed": "learners",
    "baseline: forgotten_before_all_have_it": "collect",
    "baseline: announced_to_the_group_only": "pair",
    "optimistic: fifo_not_kept": "relays",
    "optimistic: guessed_twice": "pair",
    "optimistic: never_guessed_if_ordered_first": "ticks",
    "optimistic: no_window": "chain",
    "fifo: ok_out_of_order": "predecessor",
    "fifo: no_relay_and_no_ok_later": "overtaking",
    "fifo: delivers_without_oks": "mortal",
    "fifo: one_ok_is_enough": "mortal",
    "fifo: own_group_is_enough": "predecessor",
    "fifo: waits_for_the_dead": "mortal",
    "fifo: change_of_theta_unnoticed": "mortal",
    "fifo: an_ok_does_not_introduce": "overtaking",
    "fifo: one_number_for_all_groups": "overtaking",
    "causal: merged_when_f_delivered": "exchange",
    "causal: past_not_tested": "blind",
    "causal: past_not_merged": "blind",
    "causal: own_message_not_merged": "exchange",
    "causal: only_rows_of_destinations": "blind",
    "causal: too_little_of_the_past": "oldest",
    "causal: messages_of_a_sender_overtake": "difference",
    "causal: tail_first": "difference",
    "causal_stable: casts_at_once": "loss",
    "causal_stable: no_ok_to_outsiders": "overtaking",
    "causal_stable: dead_groups_hold_a_sender": "mortal",
    "causal_stable: one_ok_is_stable": "mortal",
    "causal_stable: change_of_theta_unnoticed_by_a_sender": "mortal",
    "allgather: no_relay": "trio",
    "allgather: early_message_dropped": "trio",
    "allgather: early_message_at_once": "trio",
    "allgather: silent_without_load": "trio",
    "allgather: what_waits_is_forgotten": "trio",
    "allgather: by_arrival": "trio",
    "lcr: delivered_unstable": "trio",
    "lcr: stable_out_of_order": "trio",
    "lcr: by_arrival_on_the_ring": "trio",
    "lcr: clock_not_raised": "trio",
    "lcr: ack_stops_early": "trio",
    "lcr: pending_not_exchanged": "trio-crash",
    "lcr: installs_without_acks": "five-crash",
    "lcr: delivered_before_the_view": "trio-crash",
    "lcr: ring_goes_on_in_a_view_change": "trio-crash",
    "lcr: early_on_the_ring_lost": "four-crash",
    "lcr: views_not_intersected": "trio-crash",
    "lcr: older_view_last": "views",
    "allconcur_ea: no_votes": "halves",
    "allconcur_ea: not_frozen": "halves",
    "allconcur_ea: any_vote_counts": "halves",
    "allconcur: owner_may_have_it": "trio-crash",
    "allconcur: failed_means_lost": "trio-crash",
    "allconcur: no_expansion": "trio-crash",
    "allconcur: early_detector_not_deaf": "early",
    "allconcur: notification_not_passed_on": "trio-crash",
    "allconcur: reliable_not_passed_on": "trio-crash",
    "allconcur_plus: previous_round_delivered_again": "trio-crash",
    "allconcur_plus: own_message_redrawn": "trio-crash",
    "allconcur_plus: delivered_when_complete": "trio-crash",
    "allconcur_plus: last_round_never_delivered": "trio-crash",
    "allconcur_plus: no_rollback": "trio-crash",
    "allconcur_plus: completion_tried_once": "slow",
    "allconcur_plus: skip_delivers_nothing": "skip",
    "allconcur_plus: stash_of_another_state": "stash",
    "allconcur_plus: stash_lost": "four-crash",
    "allconcur_plus: no_marker": "join",
    "allconcur_plus: early_messages_of_an_eon_lost": "join",
    "allconcur_plus: newcomers_without_a_past": "join",
    "allconcur_plus: past_of_several_members": "join-slow",
    "allconcur_plus: joins_before_it_has_all": "join",
    "allconcur_plus: asks_once": "join-crash",
    "allconcur_plus: twice_for_a_client": "clients",
    "allconcur_plus_uniform: not_held": "skip",
    "allconcur_plus_uniform: held_not_released": "client-crash",
    "allconcur_plus_uniform: held_run_again": "skip",
    "allconcur_plus_uniform: delivers_before_it_sends": "trio-crash",
    "allconcur_plus_uniform: marker_forgotten": "join",
    "allconcur_plus_rerun: each_decides_alone": "trio-crash",
    "allconcur_plus_rerun: previous_round_delivered_again": "trio-crash",
    "allconcur_plus_rerun: own_message_redrawn": "trio-crash",
    "allconcur_plus_rerun: no_rollback": "trio-crash",
    "allconcur_plus_rerun: stash_lost": "four-crash",
    "allconcur_plus_merge: second_round_twice": "trio-crash",
    "allconcur_plus_merge: second_round_lost": "trio-crash",
    "allconcur_plus_merge: previous_round_delivered_again": "trio-crash",
    "allconcur_plus_merge: own_message_redrawn": "trio-crash",
    "allconcur_plus_merge: no_rollback": "trio-crash",
    "allconcur_plus_merge: stash_lost": "four-crash",
    "allconcur_plus_ea: no_votes": "halves",
    "allconcur_plus_ea: not_frozen": "halves",
    "allconcur_plus_ea: skipped_round_forgotten": "behind",
}

# The moves after which they begin, where schedules from the start hardly ever come that far.
AFTER = {
    # c0:0 is accepted by g0/2 and not by the others, c1:0 committed behind it, and g0/1 tries to lead
    "white_box: no_wait_for_new_state_acks": """
        deliver c0 g0/0; deliver c0 g1/0; deliver g0/0 g1/0; deliver g0/0 g0/2; deliver g1/0 g0/2;
        deliver c1 g0/0; deliver c1 g2/0; deliver g2/0 g0/0; deliver g0/0 g2/0; deliver g0/0 g0/2;
        deliver g2/0 g0/2; deliver g2/0 g0/0; deliver g0/2 g0/0; deliver g0/2 g0/0; suspect g0/1;
        deliver g0/1 g0/0""",
    # the same when g0/1 has led before
    "white_box: old_acks_count_again": """
        suspect g0/1; deliver g0/1 g0/0; deliver g0/0 g0/1; deliver g0/1 g0/0; deliver g0/0 g0/1; suspect g0/0;
        deliver g0/0 g0/1; deliver g0/1 g0/0; deliver g0/0 g0/1; deliver g0/1 g0/0; deliver g0/1 g0/2;
        deliver g0/1 g0/2; deliver g0/0 g0/2; deliver g0/0 g0/2; deliver g0/2 g0/0; deliver g0/2 g0/0;
        deliver c0 g0/0; deliver c0 g1/0; deliver g0/0 g1/0; deliver g0/0 g0/2; deliver g1/0 g0/2;
        deliver c1 g0/0; deliver c1 g2/0; deliver g2/0 g0/0; deliver g0/0 g2/0; deliver g0/0 g0/2;
        deliver g2/0 g0/2; deliver g2/0 g0/0; deliver g0/2 g0/0; deliver g0/2 g0/0; suspect g0/1;
        deliver g0/1 g0/0""",
    # all have delivered c1:0, and g0/1 tries to lead where c0:0, before it, is not committed
    "white_box: forgotten_message_delivered": """
        deliver c2 g1/0; deliver c0 g0/0; deliver c1 g0/0; deliver c0 g1/0; deliver g1/0 g0/0;
        deliver g1/0 g0/1; deliver g1/0 g0/2; deliver g0/0 g1/0; deliver g0/0 g0/1; deliver g0/0 g0/1;
        deliver g0/0 g0/2; deliver g0/0 g0/2; deliver g0/1 g0/0; deliver g0/1 g0/0; deliver g1/0 g0/0;
        deliver g0/0 g0/1; deliver g0/0 g0/2; suspect g0/1; deliver g0/1 g0/2""",
    # c0:0 was accepted by g0/2, dropped by g0/1, and left out of a snapshot
    "white_box: snapshot_leaves_out_what_counts_as_recorded": """
        deliver c0 g0/0; deliver c0 g1/0; deliver g0/0 g0/2; deliver g1/0 g0/2; suspect g0/1; deliver g0/1 g0/0;
        deliver g0/0 g0/1; deliver g0/0 g0/1; deliver g0/1 g0/0; deliver g0/1 g0/2; deliver g0/1 g0/2;
        deliver g0/0 g0/1; crash g0/2; restart g0/2; snapshot g0/2; suspect c0; deliver c0 g0/1""",
    # g0 has a guess in its log, and a new leader of g1 gives another timestamp
    "fastcast: guess_in_the_log_trusted": """
        deliver c1 g1/0; deliver c0 g1/0; deliver c0 g0/0; deliver g1/0 g0/0; deliver g0/0 g0/1;
        deliver g0/0 g0/1; suspect g1/1; deliver g1/1 g1/2; deliver g1/2 g1/1; deliver g1/1 g1/2;
        deliver g1/2 g1/1; suspect c0; deliver c0 g1/1""",
    # g0/2 learnt without storing, g0/1 knows that its group has learnt, and g1 has not
    "baseline: forgotten_before_all_have_it": """
        multicast g0/1; deliver g0/1 g0/0; deliver g0/0 g0/1; deliver g0/0 g0/1; deliver g0/1 g0/0;
        deliver g0/1 g0/2; deliver g0/1 g0/2; suspect g0/1; suspect g0/1; suspect g0/2; deliver g0/0 g0/2;
        deliver g0/0 g0/2; timer g0/0 tick; timer g0/2 tick; deliver g0/0 g0/1; deliver g0/2 g0/1;
        deliver g0/2 g0/1; timer g0/1 tick; crash g0/0""",
    # g0/2 has the next round of all others, who sent it past those that still owe it what ends the last one
    "allconcur_plus: completion_tried_once": """
        crash g0/4; settle g0/3>g0/2 g0/6>g0/2;
        detect g0/0 g0/4; detect g0/2 g0/4; detect g0/6 g0/4; settle g0/3>g0/2 g0/6>g0/2""",
    # the same, and g0/2 suspects one of these
    "allconcur_plus: stash_of_another_state": """
        crash g0/4; detect g0/0 g0/4; detect g0/2 g0/4; detect g0/6 g0/4; settle g0/3>g0/2 g0/6>g0/2;
        crash g0/3; detect g0/2 g0/3""",
}

# A scope of which every state was seen with this mutant, and none violates a property.
EQUAL = {
    "optimistic: requests_do_not_wait": "conflict",
    "optimistic: order_of_arrival": "conflict",
    "optimistic: least_delay_wins": "conflict",
    "optimistic: guessed_after_the_order": "conflict",
    "fifo: delivered_twice": "small",
    "baseline: no_relay": "client-crash",
    "multi_paxos: gap_in_the_log": "crash",
    "fastcast: guess_with_a_group_missing": "conflict",
    "baseline: not_asked_again_for_a_final_timestamp": "conflict",
    "baseline: joins_told_to_the_joiner_only": "reconfiguration",
}

# Why no schedule of a scope shows it, by what the mutant does.
DISK = "needs a lost disk"
ENDLESS = "rounds without end, in which everything is delivered: no property of a schedule"
GUESSES = "only the guesses change, and a guess may be wrong"
UNREACHED = {
    "allconcur_ea: never_revoked": ENDLESS,
    "allconcur_ea: removed_and_not_told": "who is removed and not told stops all the same, when no votes come",
    "allconcur_plus: no_sign_of_life_before_it_enters": "needs a detector that goes by silence",
    "allconcur_plus: proposal_of_an_older_eon": "as if somebody had asked for these members later",
    "allconcur_plus: leaving_asked_once": "needs a server that leaves: no move of a scope",
    "ft_skeen: gap_in_the_log": "needs a lost message of a sender that is up: not in crash-stop protocols",
    "ft_skeen: gap_in_deliveries_accepted": "needs a lost message of a sender that is up: not in crash-stop protocols",
    "allconcur_plus_ea: deaf_for_ever": "needs five servers, a revoked suspicion and crashes after it: too large",
    "allconcur_plus_ea: never_revoked": ENDLESS,
    "allconcur_plus_ea: removed_and_not_told": "who is removed and not told stops all the same, when no votes come",
    "white_box: leads_again_in_its_old_ballot": "needs a message that outlives its receiver: a crash loses them",
    "white_box: promises_while_it_joins": DISK,
    "white_box: joins_any_ballot": DISK,
    "white_box: forgets_that_it_joins": DISK,
    "white_box: old_answers_count_after_a_loss": DISK,
    "white_box: old_deliveries_count_after_a_loss": DISK,
    "multi_paxos: gap_in_the_log": "needs a lost message of a sender that is up: not in crash-stop protocols",
    "baseline: no_relay": "needed for messages of crashed senders only, which nobody has to deliver",
    "fifo: delivered_twice": "only memory grows: what comes late is kept, and its number is over",
    "allconcur: silent_member_kept": ENDLESS,
    "allconcur_plus: void_notifications_kept": ENDLESS,
    "allconcur_plus: stays_reliable": ENDLESS,
    "allconcur_plus: marker_kept": ENDLESS,
    "optimistic: requests_do_not_wait": GUESSES,
    "optimistic: order_of_arrival": GUESSES,
    "optimistic: least_delay_wins": GUESSES,
    "optimistic: guessed_after_the_order": GUESSES,
}
