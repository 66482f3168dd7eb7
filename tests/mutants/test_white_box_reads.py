"""Every guard of reads outside of the order, broken one at a time: a test of the protocol alone finds each."""

import pytest

from tests.mutants import CRASHES, Mutant, load, mutant
from tests.mutants.test_white_box import MODULES
from tests.protocols import test_reads

MUTANTS = [
    mutant("one_is_a_quorum", ("if self.asked[number].bit_count() >= self.process.list.quorum:", "if True:")),
    mutant(
        "who_has_joined_a_higher_ballot_confirms",
        ("            if msg.b == candidate.ballot and not candidate.rejoining:", "            if True:"),
    ),
    mutant(
        "nothing_is_inherited",
        ("for mid, entry in process.entries.items() if entry.phase >= ACCEPTED", "for mid in ()"),
    ),
    mutant("followers_are_asked", ("        if process.candidate.status != LEADER:\n            return\n", "")),
]


def caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(test_reads, "UNDER_TEST", load(broken, *MODULES).WhiteBox)
    for name in dir(test_reads):
        if name.startswith("test_"):
            try:
                getattr(test_reads, name)()
            except CRASHES:
                return True
    return False


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_mutant_is_caught(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(broken, monkeypatch), broken.name


def test_unbroken_protocol_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(mutant("unbroken_reads"), monkeypatch)
