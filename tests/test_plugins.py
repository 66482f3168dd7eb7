"""A protocol and an application of another package work in every command, and a broken package spoils only its own."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.core.capabilities import Detecting
from amcast.core.process import Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Reply
from amcast.errors import UsageError
from amcast.protocols import PROTOCOLS
from tests.environments import run, venv, wheel
from tests.plugged import EXAMPLE, ROOT, Plugged

CLIENT = """
import amcast
with amcast.connect_sync("words") as client:
    print([client.multicast(["g0", "g1"], word)["g1"].decode() for word in (b"to", b"be", b"or", b"not", b"to", b"be")])
"""
COUNTED = "['1', '1', '1', '1', '2', '2']\n"
SKEEN_AGAIN = "from dataclasses import replace\nfrom amcast.protocols.skeen import ROW\n"


@pytest.fixture
def plugged(tmp_path: Path) -> Plugged:
    found = Plugged(tmp_path)
    found.install_example()
    return found


def test_it_is_listed_simulated_and_verified(plugged: Plugged, tmp_path: Path) -> None:
    listed = plugged("protocols", "--json")
    names = [row["name"] for row in json.loads(listed.out)["protocols"]]
    assert (listed.code, listed.err) == (0, "") and names == [*PROTOCOLS, "sequencer"]
    assert plugged("sim", "sequencer", "--messages", 60, "--out", tmp_path / "trace").code == 0
    judged = plugged("verify", tmp_path / "trace", "--json")
    assert judged.code == 0 and {row["status"] for row in json.loads(judged.out)["verdicts"]} == {"ok"}


def test_swarm_explore_and_claims(plugged: Plugged) -> None:
    swarm = json.loads(plugged("swarm", "sequencer", "--seeds", 12, "--jobs", 2, "--json").out)  # two: in new processes
    assert swarm["verdict"] == "ok" and swarm["seeds"] == 12 and swarm["evidence"]["deliveries"] > 100
    explored = json.loads(plugged("explore", "sequencer", "--json").out)
    assert explored["verdict"] == "ok" and explored["complete"], explored
    claims = json.loads(plugged("claims", "sequencer", "--json").out)["claims"]
    assert len(claims) == 2 and all(claim["ok"] and claim["protocol"] == "sequencer" for claim in claims)


@pytest.fixture
def cluster(plugged: Plugged) -> Iterator[Plugged]:
    options = ("--groups", 2, "--replicas", 1, "--protocol", "sequencer", "--app", "words")
    made = plugged("cluster", "init", "words", *options, "--memory-only", "--insecure-dev")
    assert made.code == 0, made.err
    try:
        yield plugged
    finally:
        plugged("cluster", "down", "words")


def test_a_cluster_runs_both(cluster: Plugged) -> None:
    started = cluster("cluster", "up", "words")
    assert started.code == 0, started.err
    assert cluster("-c", CLIENT, program=Path(sys.executable)).out == COUNTED


def test_a_package_that_cannot_be_imported_spoils_only_its_own(plugged: Plugged) -> None:
    plugged.add("broken-one", {"amcast.protocols": {"wonder": "broken_one:ROW"}}, broken_one="import nowhere\n")
    line = (
        "amcast: plug-in broken-one: broken_one:ROW cannot be used: ModuleNotFoundError: No module named 'nowhere'; "
        "correct it, or uninstall broken-one\n"
    )
    asked = plugged("sim", "wonder")
    assert (asked.code, asked.out, asked.err) == (2, "", line)
    listed = plugged("protocols")
    assert listed.code == 2 and "sequencer" in listed.out and "white_box" in listed.out and listed.err == line
    for name in ("skeen", "sequencer"):
        other = plugged("sim", name, "--messages", 10)
        assert (other.code, other.err) == (0, "")
    unknown = plugged("sim", "wunder")
    assert unknown.code == 2 and "broken-one" in unknown.err and unknown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("ROW = 7\n", "int found, expected a Protocol or a list of them"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("NOTHING = 0\n", "AttributeError: module 'wrong' has no attribute 'ROW'"),
        (
            f"{SKEEN_AGAIN}ROW = replace(ROW, name='wonder', detector='P')\n",
            "the row of wonder: it needs the detector P, but Skeen does not inherit Detecting",
        ),
    ],
)
def test_what_is_no_row_or_contradicts_its_class_is_said_in_one_line(plugged: Plugged, source: str, why: str) -> None:
    plugged.add("wrong-one", {"amcast.protocols": {"wonder": "wrong:ROW"}}, wrong=source)
    asked = plugged("swarm", "wonder")
    said = f"amcast: plug-in wrong-one: wrong:ROW cannot be used: {why}; correct it, or uninstall wrong-one\n"
    assert (asked.code, asked.err) == (2, said)


def test_a_name_that_two_packages_claim_is_neither_s_and_ours_stays_ours(plugged: Plugged) -> None:
    twice = f"{SKEEN_AGAIN}ROWS = [ROW, replace(ROW, name='sequencer'), replace(ROW, name='third')]\n"
    plugged.add("second-one", {"amcast.protocols": {"all": "second:ROWS"}}, second=twice)
    said = "protocol 'sequencer' is in my-protocol and in second-one; rename one of them, or uninstall second-one"
    asked = plugged("sim", "sequencer")
    assert (asked.code, asked.err) == (2, f"amcast: {said}\n")
    for name in ("third", "skeen", "white_box"):
        assert plugged("sim", name, "--messages", 10).code == 0
    assert plugged("protocols").err.count("second-one") == 4, "a line each"


def test_an_application_that_fails_is_said_before_anything_is_made(plugged: Plugged, tmp_path: Path) -> None:
    plugged.add("broken-app", {"amcast.apps": {"dream": "broken_app:ROW"}}, broken_app="1 / 0\n")
    made = plugged("cluster", "init", "store", "--app", "dream")
    why = "ZeroDivisionError: division by zero; correct it, or uninstall broken-app"
    assert (made.code, made.err) == (2, f"amcast: plug-in broken-app: broken_app:ROW cannot be used: {why}\n")
    assert not (tmp_path / "store").exists()
    assert plugged("cluster", "init", "store", "--app", "nothing").err.startswith(
        "amcast: unknown application 'nothing'"
    )


def row(**more: object) -> Protocol:
    fields: dict[str, object] = {"name": "p", "title": "", "replica": Process, "client": Process, "messages": (Reply,)}
    return Protocol(**{**fields, **more})  # type: ignore[arg-type]


class Watching(Process, Detecting):
    pass


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"replica": len}, "is not a class derived from Process"),
        ({"replica": Watching}, "Watching inherits Detecting, but the row does not say which detector it needs"),
        ({"monitor": len}, "the row has a monitor, but Process does not inherit Observed"),
        ({"orders": ()}, "it promises no order"),
        ({"messages": ()}, "it has no messages"),
        ({"replica": PROTOCOLS["lcr"].replica, "detector": "P"}, "rounds are of one group"),
    ],
)
def test_a_row_that_contradicts_its_class_is_an_error(more: dict[str, object], why: str) -> None:
    assert row().order == "total"
    with pytest.raises(UsageError, match=why):
        row(**more)


def test_the_page_shows_the_package_as_it_is() -> None:
    page = (ROOT / "docs" / "adding-a-protocol.md").read_text()
    blocks = re.findall(r"^```(?:python|toml)\n(.*?)^```", page, re.M | re.S)
    files = [file.read_text() for file in EXAMPLE.rglob("*") if file.suffix in (".py", ".toml")]
    spec = [block for block in blocks if block.startswith("protocol =")]  # of a sweep, for the reader to write
    blocks = [block for block in blocks if block not in spec]
    assert (len(blocks), len(spec)) == (7, 1)
    assert [block for block in blocks if not any(block in file for file in files)] == []


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "packages"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_example_is_built_and_installed_beside_amcast(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "packages"
    version = f"3.{sys.version_info.minor}"
    environment = venv(tmp_path / "venv", version, f"{wheel(shared, version)}[lab]")
    package = shutil.copytree(EXAMPLE, tmp_path / "package")  # pip leaves things there
    run(environment / "bin" / "pip", "install", "--no-deps", package)
    program = environment / "bin" / "amcast"
    assert "sequencer" in run(program, "protocols")
    assert run(program, "sim", "sequencer", "--messages", "30")
    assert "no violation" in run(program, "explore", "sequencer")
    assert "2 of 2 claims met" in run(program, "claims", "sequencer")
    options = ("--groups", "2", "--replicas", "1", "--protocol", "sequencer", "--app", "words", "--memory-only")
    run(program, "cluster", "init", "words", *options, cwd=tmp_path)
    try:
        run(program, "cluster", "up", "words", cwd=tmp_path)
        assert run(environment / "bin" / "python", "-c", CLIENT, cwd=tmp_path) == COUNTED
    finally:
        run(program, "cluster", "down", "words", cwd=tmp_path)
    run(environment / "bin" / "pip", "uninstall", "-y", "my-protocol")
    assert "sequencer" not in run(program, "protocols")
