"""Every guard of White-Box that we know to matter, broken one at a time."""

import sys
from collections.abc import Callable

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.parts import collection, leader_candidate
from amcast.protocols.white_box import (
    client,
    configurations,
    message_state,
    messages,
    prefix,
    probation,
    reads,
    recent,
    records,
    state_parts,
)
from amcast.protocols.white_box import replica as white_box
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.protocols import test_white_box_steps as steps
from tests.scenarios import test_white_box as scenarios
from tests.scenarios import test_white_box_recovery as scenarios_of_recovery

MODULES = (  # in the order of their imports
    leader_candidate, collection, messages, configurations, client, recent, records, message_state, state_parts, prefix,
    probation, reads, white_box,
)  # fmt: skip
SEEDS = range(400)

NORMAL = [
    mutant("acks_counted_without_comparing_vectors", ("if acks.bal is bal or acks.bal == bal:", "if True:")),
    mutant("clock_not_raised_at_accept", ("            self.clock = time_of(gts)  # l.14", "            pass")),
    mutant(
        "duplicates_forgotten_too_early",
        ("            if session.contains(seq_of(m.mid)):\n                return None\n", ""),
        ('        assert entry is not None, "a message was delivered before, at another position"\n', ""),
    ),
    mutant("no_retry_by_timer", ("            if entry.retry_at <= self.now and left > 0:", "            if False:")),
    mutant("accepts_of_other_ballots_taken", (" or entry.bal[i] != self.candidate.cballot:  # l.11", ":")),
    mutant("timestamp_used_twice", ("            self.clock += 1  # l.6\n", "")),
    mutant("duplicate_not_answered", ("                self.reply(mid)\n", "                pass\n")),
    mutant("quorum_too_small", ("if acks.counts[i] == members.quorum:", "if acks.counts[i] == members.quorum - 1:")),
    mutant(
        "own_acceptance_not_needed",
        ("if not acks.mine or self.candidate.status", "if self.candidate.status"),
    ),
    mutant(
        "forgotten_message_delivered",
        (
            "            entry = self.entries.get(mid)\n            if entry is not None:  # else",
            "            entry = self.entries[mid]\n            if entry is not None:  # else",
        ),
    ),
    mutant(
        "gap_in_deliveries_accepted",
        ("if msg.position != self.prefix.position:  # l.25", "if msg.position < self.prefix.position:"),
    ),
    mutant(
        "delivered_twice",
        ("if msg.position != self.prefix.position:  # l.25", "if msg.position > self.prefix.position:"),
    ),
]

OUTCOMES = [
    mutant("outcome_counts_without_a_quorum", ("if acks.counts[i] < self.list.quorum or acks", "if acks")),
    mutant("outcome_with_another_timestamp_counts", (" or acks.gts != entry.outcome:  # see", ":  # see")),
    mutant(
        "acknowledgements_behind_an_outcome_do_not_count",
        ("if acks.quorums == len(msg.bal) or entry.outcome != BOTTOM:", "if acks.quorums == len(msg.bal):"),
    ),
    mutant(
        "acknowledgements_before_an_outcome_do_not_count",
        (
            "            entry.outcome = msg.gts\n            for acks in entry.vectors or ():\n",
            "            entry.outcome = msg.gts\n            for acks in ():\n",
        ),
    ),
    mutant(
        "outcome_believed_by_a_leader_that_was_replaced",
        ("entry.confirmed.bit_count() >= self.list.quorum", "entry.confirmed.bit_count() >= 1"),
    ),
    mutant(
        "confirms_a_ballot_that_it_has_left",
        ("if msg.b == candidate.ballot and not candidate.rejoining:", "if not candidate.rejoining:"),
    ),
    mutant("nobody_asked_who_leads", ("self.send(self.list.pids, Confirm(", "(Confirm(")),
    mutant("collection_by_own_floor", ("if self.floors.get(g, BOTTOM) < entry.gts", "if False")),
    mutant("no_outcome_told", ("                self.send_one(asker, Outcome(", "                (Outcome(")),
    mutant(
        "outcome_of_a_proposal_ignored",
        ("entry is not None and PROPOSED <= entry.phase <= ACCEPTED", "entry is not None and entry.phase == ACCEPTED"),
    ),
    mutant(
        "clock_not_raised_at_an_outcome",
        ("                self.clock = time_of(entry.outcome)\n", "                pass\n"),
    ),
    mutant(
        "outcomes_kept_for_ever", ("                    forgotten.append(queue[n].mid)\n", "                    pass\n")
    ),
]

ELECTIONS = [
    mutant(
        "third_vote_counts",
        (" or self.cballot == b:  # l.43, once per ballot", ":"),
        (" and self.cballot < self.ballot and", " and"),
    ),
    mutant(
        "no_wait_for_new_state_acks",
        ("        if len(self.followers) + 1 < self.majority:\n            return False\n", ""),
    ),
    mutant("own_clock_at_recovery", ("clock = max([vote.clock for vote in votes.values()])", "clock = self.clock")),
    mutant(
        "no_retry_after_recovery",
        (
            "            self.retry(entry)\n            self.retry_later(entry, RETRY",
            "            self.retry_later(entry, 10**6 * RETRY",
        ),
    ),
    mutant("stuck_follower_not_heard", ("        self.saw(msg.ballot)\n", "")),
    mutant(
        "accepted_in_any_ballot_survives",
        ("elif vote.cballot == newest and m.mid not in merged:", "elif m.mid not in merged:"),
    ),
    mutant("old_ballot_joined", ("        if b <= self.ballot:  # l.38", "        if b <= self.cballot:")),
    mutant(
        "old_acks_count_again",
        (
            "        self.votes = {}\n        self.followers = {}\n        return",
            "        self.votes = {}\n        return",
        ),
    ),
    mutant(
        "a_member_that_missed_the_new_state_is_not_helped",
        (
            "        if behind and not self.probation.active:\n            self.send_state((sender,))",
            "        if False:\n            pass",
        ),
    ),
    mutant(
        "proposals_of_a_replaced_leader_dropped",
        ("        for m in proposed + self.kept.take():", "        for m in self.kept.take():"),
    ),
    mutant(
        "requests_kept_by_a_follower_dropped",
        ("        for m in proposed + self.kept.take():", "        for m in proposed:"),
    ),
    mutant(
        "requests_kept_by_a_leader_dropped",
        ("        for m in self.kept.take():\n            self.on", "        for m in ():\n            self.on"),
    ),
    mutant(
        "refusal_is_no_news",
        ("            self.detector.suspected[rank] = True\n            self.proc", "            self.proc"),
    ),
    mutant(
        "refused_and_stands_later",
        ("True))\n        self.stand_if_nominated()\n\n    def prom", "True))\n\n    def prom"),
    ),
    mutant("nobody_tells_the_clients", ("        process.out.news.append(", "        str(")),
    mutant(
        "requests_wait_for_another_election",
        ("            for m in self.kept.take():  # it was", "            for m in ():  # it was"),
    ),
    mutant("incumbent_is_replaced", ("        if incumbent in trusted:\n", "        if False:\n")),
    mutant(
        "heartbeats_of_a_leader_that_hears_nobody",
        ("        elif self.status != LEADER or self.hears_a_quorum():\n", "        else:\n"),
    ),
    mutant("outbids_its_heir", ("        candidate.step_back()\n", "")),
    mutant(
        "hand_over_not_heard",
        ("            candidate.stand()\n\n    def on_new_leader", "            pass\n\n    def on_new_leader"),
    ),
]

PREFIXES = [
    mutant(
        "what_waited_for_the_deliveries_of_others_waits_on",
        ("        if learnt and self.candidate.status == LEADER:", "        if False:"),
    ),
    mutant(
        "acknowledges_before_it_has_the_prefix",
        (
            "            self.prefix.fetch(self.pending_from)\n            return\n",
            "            self.prefix.fetch(self.pending_from)\n",
        ),
    ),
    mutant(
        "forms_a_ballot_without_the_longest_prefix",
        ("            self.prefix.fetch(furthest)\n            return\n", "            self.prefix.fetch(furthest)\n"),
    ),
    mutant(
        "a_member_that_missed_a_delivery_is_not_helped",
        ("            self.fetch(sender)\n        self.position_at", "            pass\n        self.position_at"),
    ),
    mutant("deliveries_kept_for_ever", ("        self.recent.drop_before(min(positions))\n", "        pass\n")),
    mutant("deliveries_kept_without_bound", ("while self._bytes > self._most_bytes and", "while False and")),
    mutant("never_pulled", ("        process.out.pulls.append(sender)\n", "")),
    mutant(
        "asks_for_a_snapshot_once", ("self.fetch_after = process.now + PULL_AGAIN *", "self.fetch_after = (1 << 62) *")
    ),
    mutant(
        "install_without_sessions",
        (
            "        for record in found:\n",
            "        for record in [r for r in found if type(r).__name__ != 'Remembered']:\n",
        ),
    ),
    mutant(
        "install_without_outcomes",
        (
            "        for record in found:\n",
            "        for record in [r for r in found if type(r).__name__ != 'Outcomes']:\n",
        ),
    ),
    mutant(
        "install_keeps_what_it_delivers",
        (
            "            if entry.session.contains(seq_of(entry.m.mid)):\n                self.drop(entry)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "part_of_a_vote_counts",
        ("> most_bytes and parts[-1]:", "> 1 and parts[-1]:"),
        ("        if msg.part + 1 < msg.parts:\n            return None\n", ""),
        ("        del self.parts[sender]\n        return tuple(known.rows)", "        return tuple(known.rows)"),
    ),
]

RECORDS = [
    mutant(
        "leads_again_in_its_old_ballot",
        ("        recovers = self.process.pid in self.votes", "        recovers = True"),
    ),
    mutant(
        "snapshot_leaves_out_what_counts_as_recorded",
        ("            entry.recorded = entry.phase >= ACCEPTED\n", ""),
        (
            "            if entry.recorded:\n                records.append(Held",
            "            if entry.phase >= ACCEPTED:\n                records.append(Held",
        ),
    ),
    mutant("promise_not_durable", ("                self.save(Promised(b))\n", "                pass\n")),
    mutant(
        "acceptance_not_durable", ("            self.save(Accepted(m, entry.lts, self.clock))\n", "            pass\n")
    ),
    mutant("delivery_not_durable", ("            self.save_later(Delivered(m.mid, lts, gts))\n", "            pass\n")),
    mutant(
        "heartbeat_before_what_it_tells_is_durable",
        ("        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered\n", ""),
    ),
    mutant("new_state_not_durable", ("            self.save(Adopted(b, clock, state))\n", "            pass\n")),
    mutant(
        "leads_on_after_a_restart",
        (
            "self.status = RECOVERING if leads or self.rejoining or self.ballot != self.cballot else FOLLOWER\n",
            "self.status = LEADER if leads and self.ballot == self.cballot else FOLLOWER\n",
        ),
    ),
    mutant(
        "snapshot_without_sessions",
        ("            records.append(Remembered(sender, done, above))", "            pass"),
    ),
    mutant("snapshot_without_entries", ("                records.append(Held(", "                (Held(")),
    mutant(
        "snapshot_without_outcomes",
        ("            records.append(Outcomes(tuple(outcomes", "            (Outcomes(tuple(outcomes"),
    ),
]

FORGETTING = [
    mutant("waits_for_deliveries_of_the_dead", ("            candidate.watch()\n", "")),
    mutant("marks_not_told", ("            self.send(self.candidate.others, news)\n", "            pass\n")),
    mutant("released_at_once", ("        if not self.unanswered:\n            return True\n", "        return True\n")),
    mutant("what_is_missing_at_the_end_is_not_waited_for", (" or not self.clean or now", " or now")),
    mutant(
        "only_the_own_group_asked",
        ("self.group if void else self.everybody", "self.group"),
    ),
    mutant("marks_not_judged", (" or msg.known_mark > self.asked_mark:", ":")),
    mutant(
        "word_counts_without_its_record",
        ("bal, self.probation.mark))  # l.15", "bal, self.probation.mark - 1))  # l.15"),
    ),
    mutant("marks_in_acknowledgements_not_heard", ("        self.probation.heard(sender, msg.mark)\n", "")),
    mutant(
        "what_was_heard_is_not_on_disk",
        (
            "            self.out.records.append(encoded(probation.record()))\n        news",
            "            pass\n        news",
        ),
    ),
    mutant(
        "what_a_ballot_is_founded_on_is_not_on_disk",
        ("            self.out.records.append(encoded(self.probation.record()))\n", "            pass\n"),
    ),
    mutant(
        "what_others_accepted_is_not_taken_back",
        ("                self.take_back(rows, msg.clock)\n", "                pass\n"),
    ),
    mutant(
        "only_a_leader_takes_back",
        (
            "            else:\n                rows = [",
            "            elif leader_of(candidate.cballot) == rank:\n                rows = [",
        ),
    ),
    mutant(
        "takes_back_from_other_ballots",
        (
            "            if msg.cballot == candidate.cballot and not probation.void:",
            "            if not probation.void:",
        ),
    ),
    mutant("released_without_the_prefix", (" or self.lacks_deliveries():", ":")),
    mutant(
        "promises_while_it_joins",
        ("        if self.rejoining:\n            return False\n        if b <= self", "        if b <= self"),
    ),
    mutant("joins_above_no_ballot", ("candidate.rejoin(candidate.seen_ballot)", "candidate.rejoin(BOTTOM)")),
    mutant("forgets_in_a_snapshot_that_it_joins", ("            if record.rejoining:\n", "            if False:\n")),
    mutant("forgets_that_it_joins", ("        self.save(Rejoining(BOTTOM, starts, self.probation.mark))\n", "")),
    mutant(
        "forgets_above_which_ballot_it_joins",
        ("            self.save(Rejoining(candidate.rejoin_above, probation.starts, probation.mark))\n", ""),
    ),
    mutant(
        "loss_of_a_disk_told_to_nobody",
        (
            "        if not self.unanswered:\n            return True\n",
            "        if self.void or not self.unanswered:\n            return True\n",
        ),
    ),
    mutant("old_answers_count_after_a_loss", ("        self.votes.pop(pid, None)\n", "")),
    mutant("old_entries_count_after_a_loss", ("        self.followers.pop(pid, None)\n", "")),
    mutant(
        "old_deliveries_count_after_a_loss",
        ("                self.prefix.collection.delivered_by[rank] = BOTTOM\n", ""),
    ),
    mutant(
        "records_counted_from_nothing_after_a_loss",
        ("            self.mark = max(self.mark, (self.most_mark // NEW_DISK + 1) * NEW_DISK)\n", ""),
    ),
]

MUTANTS = [*NORMAL, *OUTCOMES, *ELECTIONS, *PREFIXES, *RECORDS, *FORGETTING]

# Seeds that are tried first, because they are known to show a mutant that few others show.
SHOWN_BY: dict[str, list[int]] = {}

# What no schedule of a correct protocol leads to is shown by a single step.
BY_STEPS: dict[str, tuple[Mutant, Callable[[], None]]] = {
    "only_the_leader_matters_to_a_client": (
        mutant(
            "only_the_leader_matters_to_a_client", (" if other or msg.mid == NOBODY else ():", " if other else ():")
        ),
        steps.test_a_client_asks_a_new_leader_for_everything_at_once,
    ),
    "who_answers_may_lack_the_rest": (
        mutant(
            "who_answers_may_lack_the_rest",
            ("        self.follow(msg)\n\n", "        self.cur_leader[msg.g] = msg.leader\n\n"),
        ),
        steps.test_a_client_asks_a_new_leader_for_everything_at_once,
    ),
    "late_leader_believed": (
        mutant("late_leader_believed", ("        if msg.ballot < b:\n            return False\n", "")),
        steps.test_a_leader_that_was_replaced_does_not_mislead_a_client,
    ),
    "the_same_ballot_is_over": (
        mutant(
            "the_same_ballot_is_over",
            ("            return other\n        self.ballots", "            return False\n        self.ballots"),
        ),
        steps.test_a_leader_that_was_replaced_does_not_mislead_a_client,
    ),
    "requests_do_not_wait_for_a_dead_leader": (
        mutant(
            "requests_do_not_wait_for_a_dead_leader",
            ("        return lost or self.status == RECOVERING\n", "        return self.status == RECOVERING\n"),
        ),
        steps.test_so_many_requests_wait_for_a_leader,
    ),
    "answered_requests_asked_again": (
        mutant(
            "answered_requests_asked_again",
            (
                "            if self.heeds(request, g):\n                self.begin_again",
                "            if True:\n                self.begin_again",
            ),
        ),
        steps.test_a_client_asks_a_new_leader_for_everything_at_once,
    ),
    "slow_after_news": (
        mutant(
            "slow_after_news",
            (
                "                self.begin_again(request)\n                self.send_one",
                "                self.send_one",
            ),
        ),
        steps.test_a_client_waits_no_longer_for_a_new_leader_than_for_the_first,
    ),
    "slow_after_a_disconnect": (
        mutant(
            "slow_after_a_disconnect",
            ("            self.begin_again(request)\n            self.send(self", "            self.send(self"),
        ),
        steps.test_a_client_waits_no_longer_for_a_new_leader_than_for_the_first,
    ),
    "other_deliveries_in_a_vote_go_unnoticed": (
        mutant(
            "other_deliveries_in_a_vote_go_unnoticed",
            (
                "            if digests.setdefault(vote.position, vote.digest) != vote.digest:\n",
                "            if False:\n",
            ),
        ),
        steps.test_members_that_delivered_other_messages_stop,
    ),
    "other_deliveries_in_a_new_state_go_unnoticed": (
        mutant(
            "other_deliveries_in_a_new_state_go_unnoticed",
            (" and pending.digest != self.prefix.digest:", " and False:"),
        ),
        steps.test_members_that_delivered_other_messages_stop,
    ),
    "parts_in_any_order": (
        mutant("parts_in_any_order", ("        return same and msg.part == self.part + 1", "        return same")),
        steps.test_a_vote_has_what_is_not_delivered_and_comes_in_parts,
    ),
    "older_snapshot_installed": (
        mutant(
            "older_snapshot_installed",
            ("        if summary.position <= self.prefix.position:\n            return\n", ""),
        ),
        steps.test_a_snapshot_of_another_is_taken_over_if_it_is_ahead,
    ),
    "a_life_after_a_lost_disk_is_not_written_down": (
        mutant(
            "a_life_after_a_lost_disk_is_not_written_down",
            (
                "            self.out.records.append(encoded(probation.record()))\n        self.on_start()",
                "        self.on_start()",
            ),
        ),
        steps.test_a_replica_that_lost_its_disk_once_counts_each_life_after_that,
    ),
    "lives_not_judged": (
        mutant("lives_not_judged", ("msg.known_starts >= self.starts or ", "")),
        steps.test_a_replica_that_forgot_is_found_out_by_what_others_remember,
    ),
    "deliveries_on_probation_hide_what_is_missing": (
        mutant(
            "deliveries_on_probation_hide_what_is_missing",
            ("msg.known_mark > self.asked_mark:", "msg.known_mark > self.mark:"),
        ),
        steps.test_deliveries_on_probation_do_not_hide_what_is_missing,
    ),
    "one_that_forgot_vouches": (
        mutant(
            "one_that_forgot_vouches",
            ("        if candidate.rejoining:\n            starts = BOTTOM\n", ""),
        ),
        steps.test_one_that_forgot_does_not_vouch_for_others,
    ),
    "joins_any_ballot": (
        mutant("joins_any_ballot", (" or (self.rejoining and b <= self.rejoin_above):", ":")),
        steps.test_a_replica_without_a_disk_enters_no_ballot_in_which_it_may_have_had_a_part,
    ),
    "what_the_group_remembers_is_not_judged": (
        mutant(
            "what_the_group_remembers_is_not_judged",
            ("if not self.void and (starts, mark)", "if False and (starts, mark)"),
        ),
        steps.test_a_life_that_others_remember_is_judged_at_any_time,
    ),
    "marks_leave_before_their_records": (
        mutant("marks_leave_before_their_records", ("        self.process.out.urgent = True\n", "")),
        steps.test_a_mark_that_is_told_is_on_disk_before,
    ),
    "answers_to_an_earlier_life_count": (
        mutant("answers_to_an_earlier_life_count", (" or msg.starts != self.starts:", ":")),
        steps.test_an_answer_to_an_earlier_life_does_not_count,
    ),
}


def broken_table(broken: Mutant) -> Protocol:
    replica = load(broken, *MODULES).WhiteBox
    all_messages = sys.modules[f"mutant_{broken.name}_messages"].MESSAGES
    sending = sys.modules[f"mutant_{broken.name}_client"].WhiteBoxClient
    return replace(protocol("white_box"), replica=replica, client=sending, messages=all_messages)


def caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> str:
    table = broken_table(broken)
    monkeypatch.setattr(scenarios, "UNDER_TEST", [table])
    for module in (scenarios, scenarios_of_recovery):
        for name in module.SCENARIOS:
            try:
                module.run(name)
            except CRASHES as error:
                return f"{name}: {type(error).__name__}"
    return caught_by_swarm(table, [*SHOWN_BY.get(broken.name, ()), *SEEDS])


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    how = caught(broken, monkeypatch)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds"


@pytest.mark.parametrize("name", BY_STEPS)
def test_mutant_is_caught_by_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, step = BY_STEPS[name]
    load(broken, *MODULES)
    for module in MODULES:
        made = sys.modules[f"mutant_{name}_{module.__name__.rpartition('.')[2]}"]
        for known in vars(steps).keys() & vars(made).keys():
            if getattr(made, known) is not getattr(steps, known) and not known.startswith("__"):
                monkeypatch.setattr(steps, known, getattr(made, known))
    with pytest.raises((*CRASHES, pytest.fail.Exception)) as caught:
        step()
    print(repr(caught.value)[:200])


def test_unbroken_protocol_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery itself finds nothing wrong with the shipped source, nor with states in the smallest parts."""
    monkeypatch.setattr("tests.mutants.test_white_box.SEEDS", range(20))
    assert caught(mutant("unbroken"), monkeypatch) == ""
    small = mutant("small_parts", ("> most_bytes and parts[-1]:", "> 1 and parts[-1]:"))
    assert caught(small, monkeypatch) == ""
