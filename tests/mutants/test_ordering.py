"""Every guard of fifo and causal multicast, broken one at a time."""

import sys
from collections.abc import Sequence

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol
from amcast.protocols.ordering import causal, fifo
from amcast.swarm.adversary.seeds import judge_adversary
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.scenarios import test_ordering as scenarios

SEEDS = range(120)
ADVERSARY = range(1, 201)

FIFO = [
    mutant("ok_out_of_order", ("            if seq == next_f_del:  # l.12", "            if True:")),
    mutant("no_relay_and_no_ok_later", ("                self.send_ok(entry)  # l.21", "                pass")),
    mutant("delivers_without_oks", ("self.theta & entry.addressees & ~entry.oks == 0", "True")),
    mutant("one_ok_is_enough", ("self.theta & entry.addressees & ~entry.oks == 0", "entry.oks")),
    mutant(
        "own_group_is_enough",
        (
            "self.theta & entry.addressees & ~entry.oks == 0",
            "all(entry.oks >> p & 1 or not self.theta >> p & 1 for p in self.topology.groups[self.g0])",
        ),
    ),
    mutant(
        "waits_for_the_dead", ("self.theta & entry.addressees & ~entry.oks == 0", "entry.addressees & ~entry.oks == 0")
    ),
    mutant(
        "change_of_theta_unnoticed",
        ("            self.f_deliver_next(sender)\n\n    # Task 1", "            pass\n\n    # Task 1"),
    ),
    mutant(
        "an_ok_does_not_introduce",
        (
            "    def on_ok(self, sender: int, msg: Numbered) -> None:\n        entry = ",
            "    def on_ok(self, sender: int, msg: Numbered) -> None:\n"
            "        if msg.seqs[msg.m.dest.index(self.g0)] not in self.msg_set.get(sender_of(msg.m.mid), {}):\n"
            "            return\n        entry = ",
        ),
    ),
    mutant("delivered_twice", ("        if seq < next_f_del:\n            return None\n", "")),
    mutant(
        "one_number_for_all_groups",
        (
            "        seqs = tuple([self.nb_cast[g] for g in m.dest])  # l.8",
            "        seqs = tuple([sum(self.nb_cast) for g in m.dest])",
        ),
    ),
    mutant("number_not_given_back", ("            self.nb_cast[g] -= 1", "            pass")),
    mutant("gap_left", ("            self.pass_over(sent.again)", "            pass")),
    mutant("given_back_behind_others", ("        if sent.cast == self.casts:", "        if True:")),
    mutant(
        "given_back_although_answered",
        ("        if sent is None or not sent.is_unknown():", "        if sent is None:"),
    ),
    mutant("void_delivered", ("        if entry.void:\n            return\n", "")),
    mutant(
        "void_passed_on_as_a_message",
        (
            "relayed = Void(m, msg.seqs, msg.past) if entry.void else Cast(m, msg.seqs, msg.past)",
            "relayed = Cast(m, msg.seqs, msg.past)",
        ),
    ),
    mutant(
        "ok_to_void_as_to_a_message",
        ("VoidOk(entry.m, entry.seqs, entry.past))", "Ok(entry.m, entry.seqs, entry.past))"),
    ),
    mutant(
        "void_never_said_again",
        ("            self.send(self.topology.members_of(void.m.dest), void)\n", "            pass\n"),
    ),
    mutant("void_forgotten_too_early", ("if key[0] != g or key[1] > number}", "if key[0] != g}")),
    mutant("void_kept_for_ever", ("if key[0] != g or key[1] > number}", "}")),
    mutant("refused_void_kept", ("                del self.voids[key]\n", "                pass\n")),
]

CAUSAL = [
    mutant(
        "merged_when_f_delivered",
        (
            "        self.msg_lst.append(entry)  # l.13\n",
            "        self.msg_lst.append(entry)\n"
            "        self.count(entry.m.dest[0], sender_of(entry.m.mid), entry.seqs[0] + 1)\n",
        ),
    ),
    mutant(
        "past_not_tested",
        (
            "        while self.c_deliver_first():  # l.14\n            pass",
            "        self.c_deliver(self.msg_lst.pop(0))",
        ),
    ),
    mutant(
        "past_not_merged",
        ("            self.count(entry.past[i], entry.past[i + 1], entry.past[i + 2])  # l.19", "            pass"),
    ),
    mutant("own_message_not_merged", ("            self.count(g, q, n)", "            pass")),
    mutant(
        "only_rows_of_destinations",
        (
            "            found += [key[0], key[1], n]",
            "            if key[0] in m.dest:\n                found += [key[0], key[1], n]",
        ),
    ),
    mutant(
        "too_little_of_the_past",
        ("since = min([self.told[g] for g in m.dest])", "since = max([self.told[g] for g in m.dest])"),
    ),
    mutant("messages_of_a_sender_overtake", ("                blocked[q] = True\n", "                pass\n")),
    mutant(
        "tail_first",
        (
            "        for i, entry in enumerate(self.msg_lst):\n",
            "        for i, entry in reversed(list(enumerate(self.msg_lst))):\n",
        ),
    ),
    mutant("void_without_its_past", ("(n,), again.past)", "(n,), ())")),
    mutant("refused_and_taken_as_told", ("            self.told[g] = told\n", "")),
    mutant(
        "refused_and_counted",
        ("                self.counts[g, self.pid] = (self.nb_cast[g], row[1])", "                pass"),
    ),
    mutant("old_counters_untold", ("        if since < self.old_until:", "        if False:")),
    mutant("old_counters_unknown", ("else self.old_counts[g].get(q)", "else 0")),
    mutant("old_counters_lost", ("            self.old_counts[g].put(q, n)\n", "")),
]

STABLE = [
    mutant("casts_at_once", ("        while self.unstable is None and self.waiting:", "        while self.waiting:")),
    mutant(
        "no_ok_to_outsiders",
        ("members if q in members or q >= self.topology.size else (*members, q)", "members"),
    ),
    mutant("dead_groups_hold_a_sender", ("            self.look_at_oks()  # nobody there may be trusted\n", "")),
    mutant("one_ok_is_stable", ("            if self.theta & ~self.oks & 1 << p:", "            if not self.oks:")),
    mutant(
        "change_of_theta_unnoticed_by_a_sender",
        ("        super().theta_changed()\n        self.check_stable()", "        super().theta_changed()"),
    ),
    mutant(
        "refused_and_unstable",
        (
            "            self.unstable = None\n            self.cast_next()\n\n    def idle",
            "            pass\n\n    def idle",
        ),
    ),
    mutant("refused_and_cast", ("        self.waiting = [m for m in self.waiting if m.mid != mid]\n", "")),
    mutant(
        "client_of_a_cluster_trusts_everybody",
        (
            "        m = self.unstable\n        if m is None:",
            "        m = self.unstable\n        if m is None or self.remote:",
        ),
    ),
]


def table_of(name: str, broken: Mutant) -> Protocol:
    module = load(broken, fifo, causal)
    role = {"fifo": "Fifo", "causal": "Causal", "causal_stable": "CausalStable"}[name]
    return replace(
        protocol(name), replica=getattr(module, role), client=getattr(module, role), messages=module_messages(broken)
    )


def module_messages(broken: Mutant) -> object:
    return sys.modules[f"mutant_{broken.name}_fifo"].MESSAGES


def caught(name: str, broken: Mutant, monkeypatch: pytest.MonkeyPatch, seeds: range) -> str:
    table = table_of(name, broken)
    monkeypatch.setitem(scenarios.UNDER_TEST, name, table)
    for scenario, (of, _) in scenarios.SCENARIOS.items():
        if of == name:
            try:
                scenarios.run(scenario)
            except CRASHES as error:
                return f"{scenario}: {type(error).__name__}"
    known = [seed for of, seed in scenarios.MENDED if of == name]
    for step in scenarios.STEPS.values():
        try:
            step(table)
        except CRASHES as error:
            return f"{step.__name__}: {type(error).__name__}"
    return caught_by_swarm(table, seeds) or caught_by_adversary(table, [*known, *ADVERSARY[: len(seeds)]])


def caught_by_adversary(table: Protocol, seeds: Sequence[int]) -> str:
    for seed in seeds:
        outcome = judge_adversary(table, seed)
        if outcome.problem:
            return f"adversary, seed {seed}: {outcome.problem}"
    return ""


ALL = [("fifo", m) for m in FIFO] + [("causal", m) for m in CAUSAL] + [("causal_stable", m) for m in STABLE]


@pytest.mark.parametrize(("name", "broken"), ALL, ids=[f"{name}: {m.name}" for name, m in ALL])
def test_mutant_is_caught(name: str, broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    how = caught(name, broken, monkeypatch, SEEDS)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds"


@pytest.mark.parametrize("name", ["fifo", "causal", "causal_stable"])
def test_unbroken_protocol_is_not_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(name, mutant(f"unbroken_{name}"), monkeypatch, range(8)) == ""
