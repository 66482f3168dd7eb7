"""Shell completion: what bash is offered for commands, options, protocols, clusters and replicas."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from calling import PROGRAM, Amcast

OFFERED = {  # what is typed, up to the cursor: all that is offered
    "amcast cluster rest": ["restart", "restore"],
    "amcast sim --check": ["--checked"],
    "amcast claims skeen white": ["white_box"],
    "amcast cluster init new --protocol multi": ["multi_paxos"],
    "amcast kv ": ["store"],
    "amcast watch old/": ["old/store"],
    "amcast cluster logs store/cluster.toml g1": ["g1/0", "g1/1", "g1/2"],
    "amcast node nowhere g": [],
}


@pytest.fixture
def folder(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("store", "old/store"):
        assert amcast("cluster", "init", name, "--groups", 2, "--insecure-dev").code == 0
    (tmp_path / "stranger").mkdir()
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_is_offered_what_fits(folder: Path) -> None:
    """The script that --show-completion prints is sourced, and asked as bash asks when Tab is pressed."""
    program = folder / "bin" / "amcast"
    program.parent.mkdir()
    quoted = " ".join(f'"{word}"' for word in PROGRAM[:2])
    program.write_text(f"#!/bin/sh\nexec {quoted} '{PROGRAM[2]}' \"$@\"\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    lines = ['eval "$(amcast --show-completion bash)"']
    for typed in OFFERED:
        words = typed.split(" ")
        quoted = " ".join(f'"{word}"' for word in words)
        lines.append(f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1} COMPREPLY=()")
        lines.append('_amcast_completion amcast; echo "${COMPREPLY[*]}"')
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", "\n".join(lines)],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = dict(zip(OFFERED, (sorted(line.split()) for line in done.stdout.splitlines()), strict=True))
    assert found == OFFERED
    assert done.stderr == "", "Tab must not print anything else"
