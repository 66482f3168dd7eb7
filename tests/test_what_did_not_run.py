"""The end of a test run: what did not run is said, and where everything has to run it is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CASES = {  # a file; what is said of it; whether a run that has to run everything fails
    "test_skipped.py": (
        "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): pytest.skip('too slow')\n",
        "    3  test_skipped.py: too slow", True,
    ),
    "test_tool.py": (
        "import pytest\n@pytest.mark.tool('strace')\ndef test_it(): pass\n",
        "    1  test_tool.py: strace is not installed: make tools", True,
    ),
    "test_within.py": (
        "from tests.tools import tool\ndef test_it(): tool('redis-cli')\n",
        "    1  test_within.py: redis-cli is not installed: make tools", True,
    ),
    "test_part.py": (
        "def test_it(record_property): record_property('left out', '2 of 3 files')\n",
        "    1  a part of test_part.py: 2 of 3 files", True,
    ),
    "test_other.py": (
        "import pytest\ndef test_it(): pytest.skip('compiled here')\ndef test_that(): pass\n",
        "    1  test_other.py: compiled here", False,
    ),
}  # fmt: skip
NO_CASES = "import pytest\n@pytest.mark.parametrize('n', [])\ndef test_it(n): pass\n"


def run(folder: Path, *options: str, full: bool = False) -> tuple[int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "AMCAST_FULL"}
    environment |= {"PATH": str(folder), "PYTHONPATH": str(ROOT)} | ({"AMCAST_FULL": "1"} if full else {})
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_says_what_did_not_run(tmp_path: Path, workers: str) -> None:
    for name, (text, _, _) in CASES.items():
        (tmp_path / name).write_text(text)
    code, lines = run(tmp_path, "-n", workers)
    assert code == 0 and {line for _, line, _ in CASES.values()} <= set(lines), lines


@pytest.mark.parametrize("name", CASES)
def test_where_everything_has_to_run_that_is_a_failure(tmp_path: Path, name: str) -> None:
    text, _, fails = CASES[name]
    (tmp_path / name).write_text(text)
    code, lines = run(tmp_path, full=True)
    assert code == fails, lines


def test_a_test_without_cases_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(NO_CASES)
    code, lines = run(tmp_path)
    assert code == 1 and "    1  test_it.py: got empty parameter set for (n)" in lines, lines
