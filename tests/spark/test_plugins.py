"""A sweep on Spark runs a protocol that another package brings: its workers find it as the driver does."""

import json
from pathlib import Path

import pytest

from tests.plugged import Plugged

SPEC = """
    protocol = ["sequencer", "skeen"]
    groups = 2
    clients = 2
    messages = 20
    seeds = 2
"""


@pytest.mark.slow  # a JVM of its own; tests/test_plugins.py has the other commands
def test_a_sweep_of_a_plugged_protocol(tmp_path: Path) -> None:
    plugged = Plugged(tmp_path)
    plugged.install_example()
    (tmp_path / "spec.toml").write_text(SPEC)
    done = plugged("sweep", "spec.toml", "--out", "rows", "--master", "local[1]", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["statuses"] == {"ok": 4}, document
