"""Every guard of PrimCast that we know to matter, broken one at a time. What it shares with others is broken there."""

import sys

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.parts import collection, leader_candidate
from amcast.protocols.primcast import messages, records, undelivered
from amcast.protocols.primcast import replica as primcast
from amcast.protocols.white_box import messages as shared_messages
from amcast.protocols.white_box import prefix, probation, recent, state_parts
from amcast.protocols.white_box import records as shared_records
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.scenarios import test_primcast as scenarios
from tests.tools import some_now

MODULES = (  # in the order of their imports
    leader_candidate, collection, shared_messages, recent, shared_records, state_parts, prefix, probation,
    messages, records, undelivered, primcast,
)  # fmt: skip
SEEDS = range(400)

NORMAL = [
    mutant("words_of_different_epochs_add_up", ("                votes.members = 0\n", "")),
    mutant("quorum_too_small", (">= self.topology.quorum(g):\n", ">= self.topology.quorum(g) - 1:\n")),
    mutant("delivered_without_the_primarys_clock", ("min(self.primary_clock, self.quorum_clock)", "self.quorum_clock")),
    mutant(
        "delivered_without_the_quorums_clocks", ("min(self.primary_clock, self.quorum_clock)", "self.primary_clock")
    ),
    mutant(
        "undecided_messages_do_not_block",
        (
            "        entry.slot = self.queue.propose(entry.mid, lts)\n        if entry.gts != BOTTOM:",
            "        entry.slot = self.queue.propose(entry.mid, 1 << 60)\n        if entry.gts != BOTTOM:",
        ),
    ),
    mutant(
        "bumps_of_followers_only",
        (
            "            self.send(self.group, self.bump())\n\n    def bump",
            "            if self.candidate.status != LEADER:\n                self.send(self.group, self.bump())\n\n"
            "    def bump",
        ),
        ("            self.send(candidate.others, Report(", "            self.send((), Report("),
    ),
    mutant(
        "bumps_of_primaries_only",
        (
            "            self.send(self.group, self.bump())\n\n    def bump",
            "            if self.candidate.status == LEADER:\n                self.send(self.group, self.bump())\n\n"
            "    def bump",
        ),
        ("            self.send(candidate.others, Report(", "            self.send((), Report("),
    ),
    mutant(
        "reports_not_repeated", ("            self.send(candidate.others, Report(", "            self.send((), Report(")
    ),
    mutant(
        "acceptance_raises_no_clock",
        ("            self.clock = self.primary_clock\n        entry", "            pass\n        entry"),
    ),
    mutant("timestamp_used_twice", ("        return self.clock + 1\n", "        return self.clock\n")),
    mutant(
        "what_others_start_is_not_started",
        (
            "            if self.entry_with(msg.m) is not None and candidate.status == LEADER:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "message_delivered_twice",
        ("            if self.prefix.done.contains(mid):\n                return None\n", ""),
        ('        assert entry is not None, "a message was delivered before, at another position"\n', ""),
    ),
    mutant("copy_not_answered", ("            self.send_one(asker, self.reply_to(mid))", "            pass")),
    mutant(
        "log_goes_on_after_a_gap",
        ("candidate.status == FOLLOWER and 0 <= self.n == msg.n - 1:", "candidate.status == FOLLOWER:"),
    ),
    mutant(
        "primarys_clock_counts_past_a_gap",
        (
            "if e == candidate.cballot and n == self.n and candidate.status == FOLLOWER:",
            "if e == candidate.cballot and candidate.status == FOLLOWER:",
        ),
    ),
    mutant("gap_not_told", ("            self.send_one(primary, Gap(", "            (Gap(")),
    mutant(
        "gap_not_filled",
        (
            "        if self.candidate.status == LEADER and msg.e == self.candidate.cballot and msg.n < self.n:\n",
            "        if False:\n",
        ),
    ),
    mutant("nothing_kept_behind_a_gap", ("            self.early[msg.n] = msg\n", "            pass\n")),
    mutant("nobody_asks_again", (" or entry.retry_at > self.now or left <= 0:", " or True:")),
    mutant("no_outcome_told", ("                self.send_one(asker, Outcome(", "                (Outcome(")),
    mutant("outcome_ignored", ("            self.settle(entry, msg.gts)\n", "            pass\n")),
    mutant("collection_by_own_floor", ("if self.floors.get(g, BOTTOM) < entry.gts", "if False")),
]

EPOCHS = [
    mutant("reports_survive_an_epoch", ("self.reports = [c if later == e else 0 for later, c in heard]", "pass")),
    mutant(
        "reports_go_on_after_a_promise",
        (
            "        if self.candidate.status != RECOVERING:\n            if self.candidate.status == LEADER:\n",
            "        if True:\n            if self.candidate.status == LEADER:\n",
        ),
    ),
    mutant(
        "own_clock_at_a_new_epoch",
        ("        clock = max([vote.clock for vote in votes.values()])\n", "        clock = 0\n"),
    ),
    mutant(
        "acceptances_go_on_after_a_promise",
        (" and candidate.status == FOLLOWER and 0 <= self.n == msg.n - 1:", " and 0 <= self.n == msg.n - 1:"),
    ),
    mutant(
        "old_primarys_clock_counts_after_a_promise",
        ("if e == candidate.cballot and n == self.n and candidate.status == FOLLOWER:", "if e == candidate.cballot:"),
    ),
    mutant("all_logs_merged", ("if vote.cballot == newest and not self", "if not self")),
    mutant(
        "own_log_kept",
        (
            "        for vote in votes.values():\n            for row in vote.rows:\n",
            "        for vote in [votes[self.pid]]:\n            for row in vote.rows:\n",
        ),
        ("if vote.cballot == newest and not self", "if not self"),
    ),
    mutant(
        "log_not_acknowledged_again",
        ("        self.acknowledge_log(rows)\n", ""),
        ("        self.acknowledge_log(pending.rows)\n", ""),
    ),
    mutant("followers_do_not_acknowledge_the_log", ("        self.acknowledge_log(pending.rows)\n", "")),
    mutant(
        "known_messages_forgotten_by_a_new_primary",
        (
            "            if entry.m is not None and entry.lts == BOTTOM:\n                self.propose(entry.m)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "no_nack",
        ("            self.process.send_one(candidate, Nack(self.ballot))\n", ""),
        ("        self.saw(msg.ballot)\n", ""),
    ),
    mutant(
        "enters_before_it_has_the_prefix",
        (
            "            self.prefix.fetch(self.pending_from)\n            return\n",
            "            self.prefix.fetch(self.pending_from)\n",
        ),
    ),
    mutant(
        "forms_an_epoch_without_the_longest_prefix",
        ("            self.prefix.fetch(furthest)\n            return\n", "            self.prefix.fetch(furthest)\n"),
    ),
    mutant(
        "requests_kept_by_a_follower_dropped",
        ("        for m in left_out + self.kept.take():", "        for m in left_out:"),
    ),
    mutant(
        "requests_kept_by_a_primary_dropped",
        ("        for m in self.kept.take():\n            self.on", "        for m in ():\n            self.on"),
    ),
    mutant(
        "a_member_that_missed_the_state_is_not_helped",
        (
            "        if behind and not self.probation.active:\n            self.send_state((sender,))",
            "        if False:\n            pass",
        ),
        ("            self.send_one(primary, Gap(", "            (Gap("),
    ),
    mutant("hand_over_not_heard", ("                self.candidate.stand()\n", "                pass\n")),
]

DISK = [
    mutant("reported_clock_not_durable", ("            self.save(Ceiling(self.ceiling))\n", "            pass\n")),
    mutant("promise_not_durable", ("                self.save(Promised(b))\n", "                pass\n")),
    mutant(
        "acceptance_not_durable",
        (
            "                self.save(Accepted(m, lts, self.clock))\n        self.say_ack",
            "                pass\n        self.say_ack",
        ),
    ),
    mutant("delivery_not_durable", ("            self.save_later(Delivered(m.mid, lts, gts))\n", "            pass\n")),
    mutant("epoch_not_durable", ("            self.save(Adopted(e, self.clock, rows))\n", "            pass\n")),
    mutant(
        "primary_votes_before_its_disk_has_it",
        ("        if not self.params.durable:\n            mark = 0\n", "        if True:\n            mark = 0\n"),
    ),
    mutant("snapshot_without_the_log", ("                records.append(Held(", "                (Held(")),
    mutant(
        "snapshot_without_the_ceiling",
        (
            "                candidate.cballot,\n                self.ceiling,\n",
            "                candidate.cballot,\n                0,\n",
        ),
    ),
    mutant(
        "snapshot_leaves_out_what_counts_as_recorded",
        (
            "            entry.recorded = entry.lts != BOTTOM and entry.m is not None\n"
            "            if entry.recorded and entry.m",
            "            if entry.lts != BOTTOM and entry.m",
        ),
    ),
    mutant("what_others_have_is_not_taken_back", ("                self.take_back(rows)\n", "                pass\n")),
    mutant(
        "marks_in_words_not_heard",
        ("        self.probation.heard(sender, msg.mark)\n", ""),
        ("        self.probation.heard(sender, mark)\n", ""),
    ),
    mutant("released_without_the_prefix", (" or self.lacks_deliveries():", ":")),
    mutant(
        "install_keeps_what_it_delivers",
        (
            "            if self.prefix.done.contains(entry.mid):\n                self.drop(entry)\n",
            "            pass\n",
        ),
    ),
    mutant("forgets_that_it_joins", ("        self.save(Rejoining(BOTTOM, starts, self.probation.mark))\n", "")),
    mutant(
        "loss_of_a_disk_told_to_nobody",
        (
            "        if not self.unanswered:\n            return True\n",
            "        if self.void or not self.unanswered:\n            return True\n",
        ),
    ),
]

MUTANTS = [*NORMAL, *EPOCHS, *DISK]

# Where a mutant is looked for first: what is known to show it.
SHOWN_BY = {
    "nothing_kept_behind_a_gap": "p09_proposals_while_a_gap_is_filled",
    "primarys_clock_counts_past_a_gap": "p09_clock_past_a_gap",
    "what_others_have_is_not_taken_back": "r06_own_word_of_a_follower",
    "marks_in_words_not_heard": "r07_foreign_witness",
    "copy_not_answered": "s18_replies_lost",
    "gap_not_told": "p09_gap_in_the_proposals",
    "reports_survive_an_epoch": "p01_stale_reports",
    "reports_go_on_after_a_promise": "p02_report_after_a_promise",
    "own_clock_at_a_new_epoch": "p03_promised_clock",
    "reported_clock_not_durable": "p03_promised_clock_after_a_restart",
    "old_primarys_clock_counts_after_a_promise": "p04_old_primarys_clock",
    "forms_an_epoch_without_the_longest_prefix": "p12_candidate_behind_a_voter",
    "enters_before_it_has_the_prefix": "p11_prefix_before_the_epoch",
}
NOW = ("reports_survive_an_epoch", "reports_go_on_after_a_promise", "own_clock_at_a_new_epoch", "gap_not_told")
SEEDS_FIRST = {"promise_not_durable": [9], "delivery_not_durable": [9], "all_logs_merged": [45]}


def broken_table(broken: Mutant) -> Protocol:
    replica = load(broken, *MODULES).PrimCast
    all_messages = sys.modules[f"mutant_{broken.name}_primcast_messages"].MESSAGES
    return replace(protocol("primcast"), replica=replica, messages=all_messages)


def caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> str:
    table = broken_table(broken)
    monkeypatch.setattr(scenarios, "UNDER_TEST", [table])
    first = SHOWN_BY.get(broken.name)
    for name in sorted(scenarios.SCENARIOS, key=lambda name: name != first):
        try:
            scenarios.run(name)
        except CRASHES as error:
            return f"{name}: {type(error).__name__}"
    return caught_by_swarm(table, [*SEEDS_FIRST.get(broken.name, ()), *SEEDS])


@pytest.mark.parametrize("name", some_now([broken.name for broken in MUTANTS], NOW))
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = next(broken for broken in MUTANTS if broken.name == name)
    how = caught(broken, monkeypatch)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds"


@pytest.mark.slow
def test_unbroken_protocol_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery itself finds nothing wrong with the shipped source, nor with states in the smallest parts."""
    monkeypatch.setattr("tests.mutants.test_primcast.SEEDS", range(5))
    assert caught(mutant("small_parts", ("> most_bytes and parts[-1]:", "> 1 and parts[-1]:")), monkeypatch) == ""
