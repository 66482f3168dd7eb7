"""Every guard of White-Box by which members change, broken one at a time: scenarios or the adversary find each."""

import pytest

from amcast.swarm.adversary.seeds import judge_adversary
from tests.mutants import CRASHES, Mutant, mutant
from tests.mutants.test_white_box import broken_table
from tests.scenarios import test_white_box as scenarios
from tests.scenarios import test_white_box_groups as scenarios_of_groups
from tests.scenarios import test_white_box_members as scenarios_of_members

MUTANTS = [
    mutant(
        "one_list_votes",
        ("before = lists[epoch - 1].seats if epoch > configurations.established[self.g0] else ()", "before = ()"),
    ),
    mutant(
        "counted_by_the_newest_list",
        (
            "members = self.configurations.of(msg.g, epoch_of(msg.bal[i]))",
            "members = self.configurations.newest(msg.g)",
        ),
    ),
    mutant(
        "tables_not_carried",
        ("            if pid != self.pid and configurations.knows_less(pid):", "            if False:"),
    ),
    mutant("not_sealed", ("                    self.sealed = True\n", "")),
    mutant(
        "votes_before_the_epoch_has_begun",
        ("        if epoch_of(b) > candidate.epoch:  # it votes", "        if False:  # it votes"),
    ),
    mutant(
        "votes_in_an_epoch_that_is_over",
        ("        if epoch_of(b) < candidate.epoch or self.retired:", "        if self.retired:"),
    ),
    mutant(
        "enters_an_epoch_that_is_over",
        ("        if rows is None or epoch_of(msg.b) < self.candidate.epoch:", "        if rows is None:"),
        ("if epoch_of(pending.b) != self.candidate.epoch or not self", "if not self"),
    ),
    mutant("stale_change_takes_effect", (" or change.from_epoch != epoch:", ":")),
    mutant("seat_used_again", ("seat in current or seat > highest for seat", "True for seat")),
    mutant(
        "established_before_a_majority_follows",
        (
            "        self.save_what_was_heard()\n        self.adopt(self.candidate.ballot",
            "        self.configurations.establish(self.g0, self.epoch())\n        self.adopt(self.candidate.ballot",
        ),
    ),
    mutant("learns_nothing", ("                self.learn()\n", "")),
    mutant(
        "removed_are_not_told",
        (
            "                whom += configurations.lists[self.g0][self.candidate.epoch - 1].pids\n",
            "                pass\n",
        ),
    ),
    mutant(
        "acknowledgements_of_an_unknown_list_are_lost",
        (
            "                if entry.phase != COMMITTED:\n                    self.recount(entry, acks)\n",
            "                pass\n",
        ),
    ),
    mutant(
        "only_the_newest_list_is_told", ("for members in lists[self.established[g] :]:", "for members in lists[-1:]:")
    ),
    mutant(
        "snapshot_without_its_epoch",
        ("        if summary.epoch > self.candidate.epoch:\n            self.begin_epoch(summary.epoch)\n", ""),
    ),
    mutant(
        "leads_on_in_an_epoch_that_is_over",
        (
            "            candidate.status = RECOVERING\n            if candidate.listed:",
            "            if candidate.listed:",
        ),
    ),
    mutant(
        "ballot_of_an_epoch_that_is_over_begins",
        (" and epoch_of(self.ballot) == self.epoch\n", "\n"),
        ("counts = recovers and epoch_of(b) == self.epoch\n", "counts = recovers\n"),
    ),
    mutant(
        "removed_go_on_standing",
        ("if leads or self.rejoining or not self.listed or", "if leads or self.rejoining or"),
        (
            "        if self.rejoining or not self.listed:\n            return\n",
            "        if self.rejoining:\n            return\n",
        ),
        (
            "        if not candidate.listed:\n            candidate.schedule_tick()",
            "        if False:\n            candidate.schedule_tick()",
        ),
        ("        if not trusted:\n            return -1\n", "        if not trusted:\n            return self.rank\n"),
    ),
    mutant(
        "lists_not_on_disk",
        ("        elif isinstance(record, Listed):\n            if self", "        elif False:\n            if self"),
    ),
    mutant(
        "founders_are_believed", ("        if not configurations.has(group):  # it may", "        if False:  # it may")
    ),
    mutant("orders_before_it_is_added", ("        if not self.takes_part(sender):\n            return\n", "")),
    mutant("last_founding_counts", ("            and not self.lists[g]\n", "")),
    mutant("group_before_its_turn", ("            and bool(self.lists[g - 1])\n", "")),
    mutant(
        "founders_are_not_told_of",
        ("for members in lists[1:] if g < len(self.topology.sizes) else lists:", "for members in lists[1:]:"),
    ),
    mutant("does_not_hear_that_it_belongs", ("            self.belongs = True\n", "            pass\n")),
    mutant(
        "group_comes_unnoticed",
        (
            "            self.configurations.add(founding.group, 0, founding.seats, founding.about)\n",
            "            pass\n",
        ),
    ),
]
SHOWN_BY = {  # seeds of the adversary, for those that no scenario shows
    "not_sealed": 1,
    "snapshot_without_its_epoch": 11,
    "leads_on_in_an_epoch_that_is_over": 14,
    "established_before_a_majority_follows": 67,
    "only_the_newest_list_is_told": 14,
    "ballot_of_an_epoch_that_is_over_begins": 156,
    "lists_not_on_disk": 1225,
}
SEEDS = range(400)


def caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> str:
    table = broken_table(broken)
    monkeypatch.setattr(scenarios, "UNDER_TEST", [table])
    for module in (scenarios_of_members, scenarios_of_groups):
        for name in module.SCENARIOS:
            try:
                module.run(name)
            except CRASHES as error:
                return f"{name}: {type(error).__name__}"
    for seed in [SHOWN_BY[broken.name]] if broken.name in SHOWN_BY else SEEDS:
        try:
            problem = judge_adversary(table, seed).problem
        except CRASHES as error:
            return f"adversary, seed {seed}: {type(error).__name__}: {error}"
        if problem:
            return f"adversary, seed {seed}: {problem}"
    return ""


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    how = caught(broken, monkeypatch)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds of the adversary"


def test_unbroken_protocol_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SEEDS", range(30))
    assert caught(mutant("unbroken_members"), monkeypatch) == ""
