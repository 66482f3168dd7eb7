"""Careless changes that no mutant of tests/mutants makes: `amcast explore PROTOCOL --scope all` finds them.

Its scopes were not made for them, so they show whether the scopes are wide enough. (One was: `views`, after it had
missed the LCR that acknowledges with one state missing.)
"""

import pytest

from amcast.core.protocol import Protocol
from amcast.explorer.exploration import explore
from amcast.explorer.scopes import scopes_of
from amcast.explorer.search import Limits
from tests.mutants import Mutant, mutant, test_allconcur, test_black_box, test_optimistic, test_ordering, test_white_box
from tests.tools import some_now

FEWER_VOTES = ("in self.votes]) > len(seats) // 2", "in self.votes]) >= len(seats) // 2")
PLANTED = {
    "multi_paxos": [
        mutant("leads_with_one_vote_less", FEWER_VOTES),
        mutant("rows_of_a_log_that_lacks_what_was_learned", (
            "if log is None or not knows or not", "if log is None or not")),
    ],
    "paxos_amcast": [mutant("leads_with_one_vote_less", FEWER_VOTES)],
    "fifo": [
        mutant("the_last_member_gets_no_ok", (
            "        return self.topology.members_of(m.dest)\n\n    def f_deliver_next",
            "        return self.topology.members_of(m.dest)[:-1]\n\n    def f_deliver_next")),
    ],
    "causal": [
        mutant("past_off_by_one", ("past[i + 2] > self.nb_del.get(past[i + 1])",
                                   "past[i + 2] > self.nb_del.get(past[i + 1]) + 1")),
        mutant("count_not_raised", ("        if n > self.known(g, q):\n            self.counts",
                                    "        if n > self.known(g, q) + 1:\n            self.counts")),
    ],
    "baseline": [
        mutant("stamp_not_above_the_last", ("ts = timestamp(max(t, time_of(last) + 1), self.g0)",
                                            "ts = timestamp(max(t, time_of(last)), self.g0)")),
        mutant("barrier_one_too_low", ("if ts > activation and self.barrier[x] < ts:  # l.34",
                                       "if ts > activation and time_of(self.barrier[x]) + 1 < time_of(ts):  # l.34")),
    ],
    "allconcur_plus": [mutant("complete_one_short", ("        if self.got < len(self.members) or",
                                                     "        if self.got < len(self.members) - 1 or"))],
    "lcr": [
        mutant("merges_what_it_delivered_last", ("msg.clock[msg.origin] <= self.delivered[msg.origin]",
                                                 "msg.clock[msg.origin] < self.delivered[msg.origin]")),
        mutant("acknowledges_with_one_state_missing", ("        if len(self.states) == len(self.target):",
                                                       "        if len(self.states) >= len(self.target) - 1:")),
    ],
    "white_box": [
        mutant("clock_not_raised_by_a_delivery", (
            "        if time_of(gts) > self.clock:\n            self.clock = time_of(gts)  # l.29\n", "")),
        mutant("a_request_again_gets_a_new_timestamp", ("        if entry.phase == START:  # l.5",
                                                        "        if entry.phase <= PROPOSED:  # l.5")),
        mutant("acknowledged_twice", ("        if acks.members[i] & bit:\n            return\n", "")),
        mutant("floor_of_the_fastest", (
            "sorted([self.delivered_by[rank] for rank in self.seats])[-self.enough]",
            "sorted([self.delivered_by[rank] for rank in self.seats])[-1]")),
        mutant("session_of_before_a_snapshot", (
            "            entry.session = self.prefix.done.session(entry.m.mid)\n"
            "            if entry.session.contains(seq_of(entry.m.mid)):\n",
            "            if self.prefix.done.contains(entry.m.mid):\n")),
    ],
}  # fmt: skip
BROKEN = {f"{name}: {broken.name}": (name, broken) for name, mutants in PLANTED.items() for broken in mutants}
QUICK = (
    "fifo: the_last_member_gets_no_ok",
    "allconcur_plus: complete_one_short",
)


def broken_table(name: str, broken: Mutant) -> Protocol:
    for case, cls, modules, _ in test_black_box.CASES:
        if case == name:
            return test_black_box.broken_table(name, cls, modules, broken)
    if name == "white_box":
        return test_white_box.broken_table(broken)
    if name == "baseline":
        return test_optimistic.table(name, broken)
    return (test_ordering if name in ("fifo", "causal") else test_allconcur).table_of(name, broken)


@pytest.mark.parametrize("case", some_now(BROKEN, QUICK))
def test_what_is_planted_is_found(case: str) -> None:
    table = broken_table(*BROKEN[case])
    for scope in scopes_of(table).values():
        found = explore(table, scope, Limits(states=3000), follow=300)
        if found.violation is not None:
            print(
                f"{scope.name}: {found.violation.property}, {found.delayed} walks, {len(found.violation.moves)} moves"
            )
            return
    raise AssertionError(f"{case} survived all scopes")
