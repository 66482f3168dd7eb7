"""Every guard of Skeen's protocol, broken one at a time."""

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import protocol, skeen
from tests.mutants import Mutant, caught_by_swarm, load, mutant, replace

MUTANTS = [
    mutant("clock_not_raised", ("self.clock = max(self.clock, time_of(gts))", "pass")),
    mutant("timestamp_used_twice", ("        self.clock += 1  # l.9\n", "")),
    mutant("lowest_proposal_wins", ("gts = max(entry.proposals.values())", "gts = min(entry.proposals.values())")),
    mutant("own_proposal_wins", ("gts = max(entry.proposals.values())", "gts = entry.slot.lts")),
    mutant(
        "one_proposal_missing",
        ("len(entry.proposals) < len(entry.m.dest)", "len(entry.proposals) < len(entry.m.dest) - 1"),
    ),
    mutant(
        "delivered_when_committed",
        (
            "        self.deliver_committed()\n\n",
            "        self.done.add(entry.m)\n        self.deliver(entry.m, gts)\n"
            "        self.send_one(sender_of(msg.mid), Reply(msg.mid, self.g0, self.pid))\n"
            "        del self.entries[msg.mid]\n\n",
        ),
    ),
    mutant("no_reply", ("            self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid))\n", "")),
]


def table(broken: Mutant) -> Protocol:
    module = load(broken, skeen)
    return replace(protocol("skeen"), replica=module.Skeen, client=module.SkeenClient, messages=module.MESSAGES)


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant) -> None:
    assert caught_by_swarm(table(broken), range(100)), f"{broken.name} survived 100 seeds"


def test_unbroken_protocol_is_not_caught() -> None:
    assert caught_by_swarm(table(mutant("unbroken")), range(20)) == ""
