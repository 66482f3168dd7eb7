"""Every guard of Baseline and Optimistic that we know to matter, broken one at a time."""

import pytest

from amcast.claims import optimistic as claims_oam
from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.black_box import replicated_log
from amcast.protocols.optimistic import baseline, clients, log_learners, optimistic, senders_to, wait_window
from amcast.protocols.optimistic import messages as oam_messages
from amcast.protocols.optimistic import reliable_multicast as fifo_reliable_multicast
from amcast.protocols.parts import leader_candidate
from amcast.protocols.white_box import client as white_box_client
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.scenarios import test_optimistic as scenarios

MODULES = (
    white_box_client,
    leader_candidate,
    replicated_log,
    log_learners,
    fifo_reliable_multicast,
    senders_to,
    wait_window,
    oam_messages,
    clients,
    baseline,
    optimistic,
)
SEEDS = range(30)
TELLS = "            self.send_one(client, Refusal(m.mid, self.g0, self.log.leader()))\n\n    def unblock"
TWICE = "        if self.done[x].contains(m.mid):\n            return  # a client asked two members, and"
REFUSES = "if copy.epochs[i] < self.left[h]:"

IN_BOTH = [
    mutant("timestamp_used_twice", ("timestamp(max(t, time_of(last) + 1), self.g0)", "timestamp(t, self.g0)")),
    mutant("waits_for_the_next_message", ("and self.barrier[x] < ts:  # l.34", "and self.barrier[x] <= ts:")),
    mutant("own_group_does_not_count", ("return [(h, BOTTOM), *sorted(found)]", "return sorted(found)")),
    mutant("no_barrier_needed", ("and self.barrier[x] < ts:  # l.34", "and False:")),
    mutant("nobody_asks_for_missing_barriers", ("            self.pull()\n", "")),
    mutant("not_asked_again_for_a_final_timestamp", ("and ts != copy.ts and not self.options.on_final", "and False")),
    mutant("no_relay", ("            self.relay()\n", "")),
    mutant("new_leader_proposes_nothing", ("        for _, _, key in sorted(due):", "        for _, _, key in ():")),
    mutant("refused_messages_ordered", (REFUSES, "if False:")),
    mutant("every_message_refused", (REFUSES, "if True:")),
    mutant(
        "join_not_waited_for",
        ("            self.required = self.senders.required(h)\n            self.let_in", "            self.let_in"),
    ),
    mutant("joins_told_to_the_joiner_only", ("dest = tuple(sorted({g, *members}))", "dest = (g,)")),
    mutant("old_leave_removes_a_new_membership", ("if membership.asked > ts]", "if False]")),
    mutant("only_the_newest_membership_counts", ("memberships[0].since)", "memberships[-1].since)")),
    mutant("a_leave_compared_by_two_clocks", ("if membership.asked > ts]", "if membership.since > ts]")),
    mutant("an_answer_survives_a_leave", ("        if self.ended(h, g, asked):\n            return\n", "")),
    mutant("requests_stay_with_followers", ("            self.pass_requests_on()\n", "")),
    mutant("clients_not_told_of_a_refusal", (TELLS, "\n    def unblock"),
           ("        if m.mid in self.refusals:", "        if False:"),
           ("            if self.g0 in m.dest and m.mid not in self.learning:",
            "            if m.mid not in self.refusals:")),
    mutant("refused_and_delivered", (TWICE, "        if False:\n            return  #")),
    mutant("joins_again_while_a_member", (" and g not in self.senders.of[self.g0]:", ":")),
    mutant("stamps_below_the_membership", ("t = max(t, time_of(membership.since) + 1)", "pass")),
    mutant("ordered_twice_delivered_twice",
           ("        if self.done[x].contains(m.mid):\n            return  # a client asked two members\n", "")),
    mutant("quorum_too_small", ("self.quorum = size // 2 + 1", "self.quorum = size // 2")),
    mutant("ballots_mixed", ("        while tally is not None and tally.b != b:", "        while False:")),
    mutant(
        "forgotten_before_all_have_it",
        ("for p in self.members + self.outside(dest))", "for p in self.members)"),
    ),
    mutant("announced_to_the_group_only", ("self.members + self.outside(entries[0][2].dest)", "self.members")),
]  # fmt: skip

IN_OPTIMISTIC = [
    mutant("fifo_not_kept", ("        if self.previous(copy) > last:", "        if False:")),
    mutant("guessed_after_the_order", ("        self.let_go(ts)\n        self.guess", "        self.guess")),
    mutant("guessed_twice", ("if m.mid not in self.guessed and m.mid", "if m.mid")),
    mutant(
        "never_guessed_if_ordered_first",
        ("        self.guess(m, x)\n        self.guessed.pop", "        self.guessed.pop"),
    ),
    mutant("no_window", ("return self.clock() - self.window.length", "return self.clock()")),
    mutant("requests_do_not_wait", ("self.requests[h] if time_of(due) <= horizon]", "self.requests[h]]")),
    mutant("order_of_arrival", ("(self.waits_until(copy.ts, self.most), copy.p, key))", "(0, 0, key))")),
    mutant("least_delay_wins", ("self.length = max(waited_for)", "self.length = min(waited_for)")),
]
IN_OPTIMISTIC += [
    mutant("waits_for_wrong_clocks", (" if each.estimate < self.most]", "]"), ("min(delay, self.most)", "delay")),
    mutant("waits_for_the_future", ("return min(ts, timestamp(self.clock() + at_most, 0))", "return ts")),
    mutant("the_silent_count_for_ever", ("if each.heard_at < before or p in suspected]", "if False]")),
    mutant("the_dead_are_not_stopped", ("            self.stop_the_dead()\n", "")),
    mutant(
        "the_living_do_not_send_again",
        ("            self.unordered = {}\n", "            self.unordered = {}\n            again = []\n"),
    ),
    mutant("guesses_of_the_dead_not_undone", ("                self.on_void(undecided.copy)\n", "")),
    mutant("guessed_again_after_it_was_undone", (" and m.mid not in self.undone and", " and")),
    mutant("stopped_before_others_could_help", ("STOP_AFTER: Final = 40", "STOP_AFTER: Final = 0")),
]
REFUSING = [  # too much, and everybody agrees: only the reason of each refusal shows it
    mutant("every_message_refused", (REFUSES, "if True:")),
    mutant("refused_after_any_leave", (REFUSES, "if max(self.left) > BOTTOM:")),
    mutant("refused_after_a_return", (REFUSES, "if self.left[h] > BOTTOM:")),
]


def table(name: str, broken: Mutant) -> Protocol:
    module = load(broken, *MODULES)
    replica = module.Optimistic if name == "optimistic" else module.Baseline
    messages = __import__(f"mutant_{broken.name}_messages").MESSAGES
    client = __import__(f"mutant_{broken.name}_baseline").OamClient
    return replace(protocol(name), replica=replica, client=client, messages=messages)


def caught(under_test: Protocol, seeds: range) -> str:
    for name, (protocols, _) in scenarios.SCENARIOS.items():
        if under_test.name in protocols:
            try:
                scenarios.run(name, under_test)
            except CRASHES as error:
                return f"{name}: {error}"
    for claim in claims_oam.OPTIMISTIC[under_test.name]:
        if claim.measure is not claims_oam.window_pays:
            try:
                measured = claim.measure(under_test)
            except CRASHES as error:
                return f"{claim.claim}: {error}"
            if measured != claim.expected:
                return f"{claim.claim}: {measured}"
    return caught_by_swarm(under_test, seeds)


@pytest.mark.parametrize("broken", IN_BOTH, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant) -> None:
    assert caught(table("baseline", broken), SEEDS), f"{broken.name} survived"


@pytest.mark.parametrize("broken", IN_OPTIMISTIC, ids=lambda broken: broken.name)
def test_mutant_of_optimistic_is_caught(broken: Mutant) -> None:
    assert caught(table("optimistic", broken), SEEDS), f"{broken.name} survived"


@pytest.mark.parametrize("name", ["baseline", "optimistic"])
@pytest.mark.parametrize("broken", REFUSING, ids=lambda broken: broken.name)
def test_mutant_that_refuses_too_much_is_caught_by_the_swarm(broken: Mutant, name: str) -> None:
    found = caught_by_swarm(table(name, broken), SEEDS)
    assert " refused " in found and "had left" in found, found or f"{broken.name} survived"


@pytest.mark.parametrize("name", ["baseline", "optimistic"])
def test_unbroken_protocol_is_not_caught(name: str) -> None:
    assert caught(table(name, mutant(f"unbroken_{name}")), range(5)) == ""
