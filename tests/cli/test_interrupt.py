"""Ctrl-C ends a command in order."""

import json
import signal
from pathlib import Path
from subprocess import Popen, TimeoutExpired

import pytest
from calling import Program

from amcast.tracefile import read_events


def wait_for(process: "Popen[str]", folder: Path, pattern: str) -> None:
    """Until there is such a file. The program runs on for ever, so that its end is a failure."""
    while not list(folder.glob(pattern)):
        try:
            process.wait(timeout=0.02)
        except TimeoutExpired:
            continue
        raise AssertionError(f"exit code {process.returncode}: {process.communicate()}")


def test_ctrl_c_leaves_a_readable_trace_without_an_end(program: Program, tmp_path: Path) -> None:
    process = program("sim", "skeen", "--groups", 1, "--duration", "1000000s", "--out", "trace", "--json")
    wait_for(process, tmp_path, "trace/kind=deliver/.*.tmp")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert err.startswith("amcast: interrupted at ") and err.count("\n") == 1 and "no end row" in err
    document = json.loads(out)
    assert document["outcome"] == "interrupted"
    kinds = [event.kind for event in read_events(tmp_path / "trace")]
    assert kinds.count("multicast") == document["summary"]["multicasts"]
    assert kinds.count("deliver") == document["summary"]["deliveries"] > 0
    assert "end" not in kinds
    judged = program("verify", "trace")
    assert "termination  unknown" in judged.communicate()[0] and judged.returncode == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_the_very_start_leaves_a_readable_trace(
    program: Program, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = program("sim", "skeen", "--groups", 1, "--duration", "1000000s", "--out", "trace")
    wait_for(process, tmp_path, "trace")
    process.send_signal(number)
    process.communicate()
    assert process.returncode == code
    assert "end" not in {event.kind for event in read_events(tmp_path / "trace")}
