"""`amcast` itself, `protocols` and `claims`; and what holds for every command."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from calling import Amcast, Program

import amcast as package
from amcast.claims.table import Claim
from amcast.installed import build
from amcast.protocols import PROTOCOLS


def test_the_version_says_what_is_running(program: Program) -> None:
    out, err = program("--version").communicate()
    assert (out, err) == (f"amcast {package.__version__} ({build()})\n", "")


def test_the_version_needs_nothing_that_is_slow_to_import() -> None:
    code = "import sys, amcast.cli; print(*sorted(m for m in sys.modules if m in sys.argv[1].split()))"
    slow = "pyarrow rich.console rich.progress amcast.protocols amcast.sim.world amcast.checks multiprocessing"
    done = subprocess.run([sys.executable, "-c", code, slow], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_protocols(amcast: Amcast) -> None:
    done = amcast("protocols")
    assert done.code == 0
    for name, protocol in PROTOCOLS.items():
        said = [name, *protocol.latency.split(), *protocol.tolerates.split()]  # a cell may take several lines
        assert [word for word in said if word not in done.out] == []
    document = json.loads(amcast("protocols", "--json").out)
    assert [row["name"] for row in document["protocols"]] == list(PROTOCOLS)
    assert set(document["protocols"][0]) == {"name", "title", "order", "tolerates", "latency", "durable", "joins"}


def test_claims_that_are_met(amcast: Amcast) -> None:
    done = amcast("claims", "skeen", "--json")
    found = json.loads(done.out)["claims"]
    assert done.code == 0 and done.err == ""
    assert {claim["protocol"] for claim in found} == {"skeen"} and all(claim["ok"] for claim in found)
    fields = ["protocol", "claim", "paper", "section", "expected", "measured", "ok", "computed", "evidence"]
    assert list(found[0]) == fields and found[0]["evidence"]["deliveries"] > 0
    assert f"{len(found)} of {len(found)} claims met" in amcast("claims", "skeen").out


def test_a_claim_that_is_not_met(amcast: Amcast, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Claim("skeen", "latency", "Paper", "3", "2δ", "9δ", ok=False)
    monkeypatch.setattr("amcast.claims.table.run_claims", lambda protocols: [bad])
    done = amcast("claims")
    assert done.code == 1 and "not met" in done.out and "9δ" in done.out
    done = amcast("claims", "--json")
    assert done.code == 1 and json.loads(done.out)["claims"] == [asdict(bad)]


@pytest.mark.parametrize(
    "command",
    ["sim white_box --messages 20 --crash g0/0@5ms --out trace", "protocols", "claims skeen", "swarm skeen --seeds 3"],
)
def test_json_is_all_there_is_on_stdout(program: Program, command: str) -> None:
    process = program(*command.split(), "--json")
    out, err = process.communicate()
    assert process.returncode == 0 and err == ""
    assert json.loads(out)


def test_a_reader_that_leaves_is_no_error(program: Program, tmp_path: Path) -> None:
    row = '{"run": "%d", "kind": "end", "process": "p", "group": null, "seq": 1}\n'
    (tmp_path / "many.jsonl").write_text("".join(row % run for run in range(2000)))  # more than a pipe holds
    process = program("verify", "many.jsonl", "--json")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "{\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141
