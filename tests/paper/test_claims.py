"""Every claim of a paper that `amcast claims` measures holds exactly."""

import pytest

from amcast.lab.claims import CLAIMS, Scenario
from amcast.protocols import protocol

ALL = [(name, scenario) for name, scenarios in CLAIMS.items() for scenario in scenarios]


@pytest.mark.parametrize(("name", "scenario"), ALL, ids=[f"{name}: {scenario.claim}" for name, scenario in ALL])
def test_claim(name: str, scenario: Scenario) -> None:
    assert scenario.measure(protocol(name)) == scenario.expected
