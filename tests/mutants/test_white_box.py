"""Every guard of White-Box that we know to matter, broken one at a time."""

import sys

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.parts import collection, leader_candidate
from amcast.protocols.white_box import messages as white_box_messages
from amcast.protocols.white_box import replica as white_box
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.scenarios import test_white_box as scenarios

MODULES = (leader_candidate, collection, white_box_messages, white_box)
SEEDS = range(400)

MUTANTS = [
    mutant(
        "delivered_not_cleared_at_a_new_leader",
        ("            entry.delivered = False\n            entry.vectors = None", "            entry.vectors = None"),
        (
            "            if entry.phase == COMMITTED:\n                self.queue.commit(Slot",
            "            if entry.phase == COMMITTED and not entry.delivered:\n                self.queue.commit(Slot",
        ),
    ),
    mutant(
        "no_wait_for_new_state_acks",
        ("        if len(self.followers) + 1 < self.majority:\n            return False\n", ""),
    ),
    mutant("acks_counted_without_comparing_vectors", ("if acks.bal is bal or acks.bal == bal:", "if True:")),
    mutant("clock_not_raised_at_accept", ("            self.clock = time_of(gts)  # l.14", "            pass")),
    mutant("own_clock_at_recovery", ("clock = max([ack.clock for ack in acks.values()])", "clock = self.clock")),
    mutant(
        "duplicates_forgotten_too_early",
        ("            if session.contains(seq_of(m.mid)):\n                return None\n", ""),
        ('        assert entry is not None, "a message above max_delivered_gts was delivered before"\n', ""),
    ),
    mutant("third_vote_counts", (" or self.cballot == b:  # l.43, once per ballot", ":")),
    mutant("gap_in_deliveries_accepted", ("if msg.prev_gts > self.max_delivered_gts:", "if False:")),
    mutant(
        "no_retry_after_recovery",
        (
            "            self.retry(entry)\n            self.retry_later(entry, RETRY",
            "            self.retry_later(entry, 10**6 * RETRY",
        ),
    ),
    mutant("no_retry_by_timer", ("            if entry.retry_at <= self.now:", "            if False:")),
    mutant("collection_by_own_floor", ("if self.floors[g] < entry.gts", "if False")),
    mutant("stuck_follower_not_heard", ("        self.seen_ballot = max(self.seen_ballot, msg.ballot)\n", "")),
    mutant("accepts_of_other_ballots_taken", (" or entry.bal[i] != self.candidate.cballot:  # l.11", ":")),
    mutant(
        "accepted_in_any_ballot_survives",
        ("elif ack.cballot == newest and m.mid not in merged:", "elif m.mid not in merged:"),
    ),
    mutant("delivered_twice", (" or msg.gts <= self.max_delivered_gts:  # l.25", ":")),
    mutant("timestamp_used_twice", ("            self.clock += 1  # l.6\n", "")),
    mutant("duplicate_not_answered", ("        elif entry.delivered:\n            self.reply(m.mid)\n", "")),
    mutant("old_ballot_joined", ("        if b <= self.ballot:  # l.38", "        if b <= self.cballot:")),
    mutant(
        "quorum_too_small", ("if acks.counts[i] == self.quorum[msg.g]:", "if acks.counts[i] == self.quorum[msg.g] - 1:")
    ),
    mutant(
        "own_acceptance_not_needed",
        ("if acks.mine and acks.quorums == len(msg.bal):", "if acks.quorums == len(msg.bal):"),
    ),
    mutant(
        "committed_forgotten_at_a_new_state",
        (
            "            if entry.phase != COMMITTED:\n                entry.phase = START",
            "            entry.phase = START",
        ),
        ("if known is not None and known.phase != COMMITTED:", "if known is not None:"),
    ),
    mutant(
        "forgotten_message_delivered",
        (
            "            entry = self.entries.get(mid)\n            if entry is not None:  # else",
            "            entry = self.entries[mid]\n            if entry is not None:  # else",
        ),
    ),
    mutant(
        "old_acks_count_again",
        (
            "        self.votes = {}\n        self.followers = {}\n        return",
            "        self.votes = {}\n        return",
        ),
    ),
    mutant(
        "leads_again_in_its_old_ballot",
        ("        recovers = self.process.pid in self.votes", "        recovers = True"),
    ),
    mutant(
        "snapshot_leaves_out_what_counts_as_recorded",
        ("            entry.recorded = entry.phase >= ACCEPTED\n", "            pass\n"),
        ("if e.recorded]", "if e.phase >= ACCEPTED]"),
    ),
    mutant("promise_not_durable", ("                self.save(Promised(b))\n", "                pass\n")),
    mutant(
        "acceptance_not_durable", ("            self.save(Accepted(m, entry.lts, self.clock))\n", "            pass\n")
    ),
    mutant(
        "delivery_not_durable",
        ("            self.save_later(Delivered(m.mid, msg.lts, msg.gts))\n", "            pass\n"),
    ),
    mutant(
        "heartbeat_before_what_it_tells_is_durable",
        ("        self.out.urgent = self.params.durable  # a heartbeat tells what is delivered\n", ""),
    ),
    mutant(
        "promises_while_it_joins",
        ("        if self.rejoining:\n            return False\n        if b <= self", "        if b <= self"),
    ),
    mutant("joins_any_ballot", ("if self.rejoining and b > self.rejoin_above:", "if self.rejoining:")),
    mutant(
        "forgets_that_it_joins",
        ("records.append(Rejoining(candidate.rejoin_above))\n", "pass\n"),
    ),
    mutant("old_answers_count_after_a_loss", ("        self.votes.pop(pid, None)\n", "")),
    mutant(
        "old_deliveries_count_after_a_loss",
        ("        self.collection.delivered_by[self.topology.rank_of[pid]] = BOTTOM\n", ""),
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
        "a_member_that_missed_a_delivery_is_not_helped",
        ("            self.bring_up(sender, msg.delivered)", "            pass"),
    ),
    mutant(
        "a_member_that_missed_the_new_state_is_not_helped",
        (
            "        if self.lagged(rank):\n            self.must_recover = True",
            "        if False:\n            pass",
        ),
    ),
    mutant(
        "snapshot_without_sessions",
        ("            records.append(Remembered(sender, done, above))", "            pass"),
    ),
    mutant("snapshot_without_entries", ("            records.append(Held(", "            (Held(")),
]


# Seeds that are tried first, because they are known to show a mutant that few others show.
SHOWN_BY = {
    "a_member_that_missed_a_delivery_is_not_helped": [142],
    "joins_any_ballot": [181],
    "promises_while_it_joins": [127],
}


def broken_table(broken: Mutant) -> Protocol:
    replica = load(broken, *MODULES).WhiteBox
    messages = sys.modules[f"mutant_{broken.name}_messages"].MESSAGES
    return replace(protocol("white_box"), replica=replica, messages=messages)


def caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> str:
    table = broken_table(broken)
    monkeypatch.setattr(scenarios, "UNDER_TEST", [table])
    for name in scenarios.SCENARIOS:
        try:
            scenarios.run(name)
        except CRASHES as error:
            return f"{name}: {type(error).__name__}"
    return caught_by_swarm(table, [*SHOWN_BY.get(broken.name, ()), *SEEDS])


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    how = caught(broken, monkeypatch)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds"


def test_unbroken_protocol_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery itself finds nothing wrong with the shipped source."""
    monkeypatch.setattr("tests.mutants.test_white_box.SEEDS", range(20))
    assert caught(mutant("unbroken"), monkeypatch) == ""
