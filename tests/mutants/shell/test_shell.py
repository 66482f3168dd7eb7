"""Guards the tests of the shell around the protocols: each of its mutants is caught by the test that it names."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import Forks
from tests.mutants.shell import ShellMutant, all_mutants, edited, run_tests, shell_mutant

MUTANTS = all_mutants()
QUICK = (0, 3)  # of twelve parts
# Their tests fail only when a time limit has passed.
LATE = {
    "a_broken_certificate_ends_a_node", "a_new_leader_tells_nobody", "a_refusal_tells_the_protocol_nothing",
    "a_disk_with_room_again_stays_full", "a_first_start_is_believed", "a_leader_with_a_full_disk_stays",
    "a_full_disk_is_not_said", "a_process_that_is_gone_is_spoken_to",
    "a_restart_stops_first_and_looks_then", "a_snapshot_is_taken_wherever_the_disk_is_free",
    "calls_to_dead_groups_wait_for_their_deadline", "clients_are_not_told", "links_to_those_who_left_stay",
    "a_link_to_others_who_founded_a_group_stays", "a_list_of_any_size_is_told",
    "members_are_not_written_down", "nothing_is_late", "probes_are_locked_out",
    "strangers_are_not_limited_before_the_handshake", "strangers_stay_for_ever", "up_does_not_look_at_the_data",
    "up_does_not_say_why_a_node_stopped", "what_cannot_be_delivered_is_ordered", "who_is_dialled_waits_for_its_turn",
}  # fmt: skip


def only_where_everything_runs(mutant: ShellMutant) -> bool:
    """Return whether a quick run leaves this one out: it tries a sixth, always the same."""
    return mutant.slow or mutant.name in LATE or zlib.crc32(mutant.name.encode()) % 12 not in QUICK


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=pytest.mark.slow if only_where_everything_runs(mutant) else (), id=mutant.name)
        for mutant in MUTANTS
    ],
)
def test_mutant_is_caught(mutant: ShellMutant, tmp_path: Path, forks: Forks) -> None:
    edited(mutant)
    code, output = run_tests(forks, [mutant.caught_by], tmp_path / "seen", mutant)
    # 1 is "a test failed"; a file that cannot be collected or an id that names no test catches nothing
    assert code != 0, f"{mutant.name} survived {mutant.caught_by}\n{output}"
    assert code == 1, f"{mutant.name}: pytest's exit code is {code}\n{output}"
    assert (tmp_path / "seen").exists(), f"{mutant.name}: {mutant.caught_by} never imported {mutant.module}"


@pytest.mark.slow  # the tests run in every test run; here it is seen that none is skipped
@pytest.mark.timeout(1200)
def test_what_catches_mutants_passes_without_them(tmp_path: Path, forks: Forks) -> None:
    """A test that always fails would catch everything, and so would one that skips be taken for one that passes."""
    ids = sorted({mutant.caught_by for mutant in MUTANTS})
    code, output = run_tests(forks, ids, tmp_path / "seen")
    assert code == 0, output
    summary = output.splitlines()[-1]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", summary)}
    assert counts.get("passed", 0) >= len(ids), summary
    assert not counts.keys() & {"skipped", "xfailed", "xpassed", "deselected"}, summary


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 300
    assert {mutant.name for mutant in MUTANTS} >= LATE
    assert sum(not only_where_everything_runs(mutant) for mutant in MUTANTS) >= 60


BROKEN_AT_IMPORT = shell_mutant(
    "broken_at_import", "amcast.runtime.http", ("import asyncio\n", "raise RuntimeError('edited')\n"),
    caught_by="tests/runtime/test_admin.py",
)  # fmt: skip


@pytest.mark.parametrize("where", ["in the test", "in a process that it starts"])
def test_the_hook_edits_what_is_imported(where: str, tmp_path: Path, forks: Forks) -> None:
    line = "import amcast.runtime.http"
    if where != "in the test":
        line = f"subprocess.run([sys.executable, '-c', '{line}'], check=True)"
    file = tmp_path / "test_it.py"
    file.write_text(f"import subprocess, sys\ndef test_it():\n    {line}\n", encoding="utf-8")
    assert run_tests(forks, [str(file)], tmp_path / "seen")[0] == 0
    assert not (tmp_path / "seen").exists()
    code, output = run_tests(forks, [str(file)], tmp_path / "seen", BROKEN_AT_IMPORT)
    assert code == 1 and "RuntimeError: edited" in output, output
    assert (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    ("mutant", "complaint"),
    [
        (shell_mutant("a", "amcast.runtime.http", ("no such line", ""), caught_by=""), "has 0 places for 'no such"),
        (shell_mutant("a", "amcast.runtime.http", ("import", ""), caught_by=""), "places for 'import', expected one"),
        (shell_mutant("a", "amcast.runtime.http", ("import asyncio", "import"), caught_by=""), "invalid syntax"),
        (shell_mutant("a", "amcast.runtime.no_such", ("a", "b"), caught_by=""), "there is no module"),
        (shell_mutant("a", "amcast.runtime.http", caught_by=""), "edits nothing"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(mutant: ShellMutant, complaint: str) -> None:
    with pytest.raises((AssertionError, SyntaxError), match=complaint):
        edited(mutant)
