"""The commands of docs/view.md, on a shorter run."""

import re
import shlex
from pathlib import Path

import pytest

from amcast.cli import run

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "view.md"


def test_its_commands_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    amcast (.*?)(?:  #.*)?$", DOCUMENT.read_text(), re.MULTILINE)
    ran = []
    for command in commands:
        words = shlex.split(command.replace("--messages 1500", "--messages 100"))
        if words[0] != "view":  # tests of its own
            assert run(words) == 0, command
            ran.append(words[0])
    assert ran == ["sim", "verify", "export", "export", "export"] and len(commands) == len(ran) + 4
    files = {"found/verdicts.json", "run1.pftrace", "run1.shiviz", "m.svg"}
    assert all((tmp_path / file).stat().st_size > 0 for file in files)
    assert not (tmp_path / "found/violation.svg").exists()
