"""Two ways to call the command line: in this process (quick), and as the real program (signals, pipes, purity)."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from calling import PROGRAM, Amcast, Program, Result

from amcast.cli import run


@pytest.fixture
def amcast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amcast:
    """Run a command in this process."""
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Start the program in an empty folder. Ctrl-C works in it even where the tests run in the background."""

    def start(*arguments: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *(str(argument) for argument in arguments)],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start
