"""Guards that a transcript without a scenario, or under another name, is noticed."""

from pathlib import Path

from tests.scenarios import (
    test_allconcur,
    test_black_box,
    test_black_box_recovery,
    test_optimistic,
    test_ordering,
    test_primcast,
    test_white_box,
    test_white_box_groups,
    test_white_box_members,
    test_white_box_recovery,
)
from tests.scenarios.golden import golden_file


def test_every_transcript_is_of_one_scenario() -> None:
    white_box = (test_white_box, test_white_box_recovery, test_white_box_members, test_white_box_groups)
    pairs = [("white_box", name) for module in white_box for name in module.SCENARIOS]
    pairs += [("primcast", name) for name in test_primcast.SCENARIOS]
    for module in (test_allconcur, test_ordering):
        pairs += [(protocol, name) for name, (protocol, _) in module.SCENARIOS.items()]
    for module in (test_black_box, test_black_box_recovery, test_optimistic):
        pairs += [(protocol, name) for name, (protocols, _) in module.SCENARIOS.items() for protocol in protocols]
    assert sorted(Path(__file__).parent.glob("*.txt")) == sorted(golden_file(*pair) for pair in pairs)
