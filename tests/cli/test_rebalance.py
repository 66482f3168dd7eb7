"""`amcast cluster rebalance` with real processes: what it says, and what is refused before anything moves."""

from pathlib import Path

import pytest
from calling import Amcast


def refused(amcast: Amcast, *arguments: object) -> str:
    done = amcast("cluster", "rebalance", *arguments)
    assert done.code == 2 and done.err.count("\n") == 1 and "Traceback" not in done.err and not done.out, done
    return done.err


def test_what_cannot_be_is_refused(amcast: Amcast, tmp_path: Path) -> None:
    assert amcast("cluster", "init", tmp_path / "b", "--groups", 2, "--app", "bank", "--insecure-dev").code == 0
    assert "its nodes run 'bank', expected 'kv'" in refused(amcast, tmp_path / "b")
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 2, "--replicas", 1, "--insecure-dev").code == 0
    assert "--onto g2: no such group; expected one of g0, g1" in refused(amcast, folder, "--onto", "g2")
    assert "--from 1: no such group" in refused(amcast, folder, "--from", "1")
    assert "expected two groups" in refused(amcast, folder, "--onto", "g1", "--from", "g1")
    assert "expected --onto GROUP as well" in refused(amcast, folder, "--slots", "5")
    assert "cannot be used" in refused(amcast, folder), "nobody runs"


@pytest.mark.timeout(120)
def test_slots_move(amcast: Amcast, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert amcast("cluster", "init", folder, "--groups", 2, "--replicas", 1, "--insecure-dev").code == 0
    try:
        assert amcast("cluster", "up", folder).code == 0
        assert amcast("cluster", "rebalance", folder, "--show").out == "g0: 8192 slots, g1: 8192 slots\n"
        assert "g1 owns 8192 slots, more than 5" in refused(amcast, folder, "--onto", "g1", "--slots", "5")
        done = amcast("cluster", "rebalance", folder, "--onto", "g1", "--slots", "8300")
        assert (done.code, done.out) == (0, "g0: 8084 slots, g1: 8300 slots\n"), done
        amcast("cluster", "kill", folder, "g1/0")
        assert "g1 cannot be used" in refused(amcast, folder, "--onto", "g0")
        assert amcast("cluster", "up", folder).code == 0
        assert amcast("cluster", "rebalance", folder, "--show").out == "g0: 8084 slots, g1: 8300 slots\n"
    finally:
        amcast("cluster", "down", folder)
