"""Guards the packages: an sdist and wheels of this tree, installed in clean environments, do what they are for.

A wheel is compiled for each Python that can be had here, so this runs in `make test-all` only.
"""

import json
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.environments import ROOT, interpreters, megabytes, run, sdist, venv, wheel
from tests.tools import FULL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
VERSIONS = list(interpreters()) if FULL else ["3.11"]
SOURCE = ROOT / "src"
THIS = f"3.{sys.version_info.minor}"
MOST_MEGABYTES = 150

CLIENT = """
import amcast
with amcast.connect_sync("store") as client:
    for number in range(20):
        client.multicast(["g0", "g1"], b"%d" % number)
    rows = client.deliveries("g1")
    print([next(rows).payload for _ in range(20)] == [b"%d" % number for number in range(20)])
"""


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "packages"


def serve_a_cluster(environment: Path, folder: Path) -> None:
    """Start a cluster with what is installed there, multicast, read it back, stop it."""
    program = environment / "bin" / "amcast"
    run(program, "cluster", "init", "store", "--groups", "2", cwd=folder)
    try:
        run(program, "cluster", "up", "store", cwd=folder)
        assert run(environment / "bin" / "python", "-c", CLIENT, cwd=folder) == "True\n"
    finally:
        run(program, "cluster", "down", "store", cwd=folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_base_is_light_and_compiled_and_serves(version: str, shared: Path, tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", version, wheel(shared, version))
    assert megabytes(environment) < MOST_MEGABYTES
    said = run(environment / "bin" / "amcast", "--version")
    assert said.endswith("(compiled)\n")
    held = {row["name"] for row in json.loads(run(environment / "bin" / "pip", "list", "--format", "json"))}
    assert held.isdisjoint({"pyarrow", "numpy", "pandas", "scipy", "matplotlib", "pyspark", "mypy"}), held
    serve_a_cluster(environment, tmp_path)
    logs = run(environment / "bin" / "amcast", "cluster", "logs", "store", cwd=tmp_path)
    assert '"serving"' in logs and '"slow"' not in logs


def test_a_wheel_holds_all_of_the_package_and_nothing_else(shared: Path) -> None:
    """Static files, tables and type hints, too; and no module that is gone, from an older build."""
    sources = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    sources = {name for name in sources if not name.endswith((".so", ".pyc")) and "egg-info" not in name}
    names = set(zipfile.ZipFile(wheel(shared, THIS)).namelist())
    assert sources <= names
    extra = {name for name in names - sources if ".dist-info/" not in name}
    assert extra and all(name.endswith((".so", ".pyd")) for name in extra), extra


def test_without_a_compiler_it_is_plain_and_loud(shared: Path, tmp_path: Path) -> None:
    """From the sdist, as pip does it where there is no wheel for a platform."""
    environment = venv(tmp_path / "venv", THIS, sdist(shared), CC="/no/such/compiler")
    said = run(environment / "bin" / "amcast", "--version")
    assert "plain Python: installed where there was no C compiler" in said
    serve_a_cluster(environment, tmp_path)
    logs = run(environment / "bin" / "amcast", "cluster", "logs", "store", cwd=tmp_path)
    assert '"slow"' in logs and "plain Python" in logs


def test_a_library_that_fails_to_compile_leaves_no_half(shared: Path, tmp_path: Path) -> None:
    """The probe compiles, but not what mypyc wrote: all extensions must be left out, or none could be imported."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *__native_amcast*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    environment = venv(tmp_path / "venv", THIS, sdist(shared), CC=str(compiler))
    assert "plain Python" in run(environment / "bin" / "amcast", "--version")
    assert "of 8 claims met" in run(environment / "bin" / "amcast", "claims", "skeen")


def test_lab_alone(shared: Path, tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", THIS, f"{wheel(shared, THIS)}[lab]")
    program = environment / "bin" / "amcast"
    run(program, "sim", "white_box", "--messages", "50", "--out", "trace", cwd=tmp_path)
    assert "ok" in run(program, "verify", "trace", cwd=tmp_path)
    said = run(program, "view", "trace", cwd=tmp_path, code=2)
    assert said == "amcast: view needs numpy: pip install 'amcast[view]'\n"
    said = run(program, "metrics", "trace", "--out", "numbers", cwd=tmp_path, code=2)
    assert said.count("\n") == 1 and said.endswith("pip install 'amcast[spark]'\n")


def test_view_alone(shared: Path, tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", THIS, f"{wheel(shared, THIS)}[view]")
    program = environment / "bin" / "amcast"
    run(program, "sim", "skeen", "--messages", "20", "--trace", "full", "--out", "trace", cwd=tmp_path)
    for form in ("perfetto", "shiviz", "svg"):
        run(program, "export", "trace", "--format", form, "--out", f"as-{form}", cwd=tmp_path)
        assert (tmp_path / f"as-{form}").stat().st_size > 0
    page = subprocess.Popen(
        [program, "view", "trace", "--no-browser"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert page.stdout is not None
        address = next(word for line in page.stdout for word in line.split() if word.startswith("http://"))
        with urllib.request.urlopen(address + "data", timeout=60) as answer:
            assert len(answer.read()) > 1000
    finally:
        page.send_signal(signal.SIGTERM)
        page.wait()


def test_spark_alone(shared: Path, tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", THIS, f"{wheel(shared, THIS)}[spark]")
    program = environment / "bin" / "amcast"
    (tmp_path / "spec.toml").write_text('protocol = "skeen"\nreplicas = 1\nmessages = 30\nseeds = 2\ntrace = "full"\n')
    assert "2 ok" in run(program, "sweep", "spec.toml", "--out", "swept", cwd=tmp_path)
    run(program, "report", "swept", cwd=tmp_path)
    assert (tmp_path / "swept-report.html").exists()
    run(program, "sim", "skeen", "--messages", "20", "--out", "trace", cwd=tmp_path)
    assert "ok" in run(program, "verify", "trace", "--engine", "spark", cwd=tmp_path)
