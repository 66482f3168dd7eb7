"""Guards the light install: what works without any extra, and how a command says which extra it needs.

tests/test_packages.py installs packages in clean environments (make test-all); here libraries are only hidden.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import amcast
from amcast.installed import EXTRAS, PACKAGES, build, remedy
from tests.pace import allow

ROOT = Path(__file__).parent.parent
LIBRARIES = sorted({library for libraries in EXTRAS.values() for library in libraries})
IMPORTED_AS = {"protobuf": ["google"], "pyspark": ["py4j", "pyspark"]}  # py4j comes with pyspark

HIDE = """
import sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden)
"""
RUN = """
from amcast.cli import run
for command in sys.argv[2:]:
    print(run(command.split()), file=sys.stderr)
"""


IMPORT = """
from importlib import import_module
for name in sys.argv[2:]:
    try:
        import_module(name)
    except ModuleNotFoundError:
        print(name, file=sys.stderr)
"""


def without_extras(code: str, folder: Path, *arguments: str) -> str:
    """Run code in a process that sees no library of any extra; return what it said on stderr."""
    call = [sys.executable, "-c", HIDE + code, " ".join(LIBRARIES), *arguments]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=allow(240), check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def run_base(folder: Path, *commands: str) -> list[tuple[int, str]]:
    """Return the exit code of each command, and what it said on stderr."""
    said = without_extras(RUN, folder, *commands)
    found = re.findall(r"((?:amcast: .*\n)?)(\d+)\n", said)
    assert len(found) == len(commands), said
    return [(int(code), line.strip()) for line, code in found]


def test_the_table_is_that_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(declared) == {*EXTRAS, "all"} and declared["all"] == [f"amcast[{','.join(sorted(EXTRAS))}]"]
    for extra, libraries in EXTRAS.items():
        names = [re.split(r"[^\w-]", requirement)[0] for requirement in declared[extra]]
        assert sorted(libraries) == sorted(as_ for name in names for as_ in IMPORTED_AS.get(name, [name])), extra
    sizes = [len(libraries) for libraries in EXTRAS.values()]
    assert sizes == sorted(sizes), "the smallest extra is named first"


def test_only_rooms_for_an_extra_need_it_to_be_imported(tmp_path: Path) -> None:
    source = Path(amcast.__file__).parent
    modules = sorted(path.relative_to(source.parent).with_suffix("") for path in source.rglob("*.py"))
    names = [".".join(path.parts).removesuffix(".__init__") for path in modules if path.stem != "__main__"]
    need = without_extras(IMPORT, tmp_path, *names).split()
    rooms = {"amcast.tracefile", "amcast.verify", *PACKAGES}
    # what gathers and judges the traces of a cluster reads them
    assert {name for name in need if ".".join(name.split(".")[:2]) not in rooms} == {
        "amcast.local.gather",
        "amcast.local.trial",
        "amcast.swarm.cluster.application",
        "amcast.swarm.cluster.seeds",
        "amcast.swarm.cluster.trial",
    }
    assert {".".join(name.split(".")[:2]) for name in need} >= rooms


def test_without_extras_most_commands_work(tmp_path: Path) -> None:
    commands = [
        "--version",
        "--help",
        "protocols",
        "sim skeen --messages 5",
        "swarm skeen --seeds 1 --jobs 1",
        "claims skeen",
        "explore skeen --states 100",
        "cluster init store --groups 1 --replicas 1",
    ]
    codes = dict(zip(commands, run_base(tmp_path, *commands), strict=True))
    assert codes.pop("explore skeen --states 100")[0] in (0, 4)  # a part of the states
    assert set(codes.values()) == {(0, "")}, codes


NEEDED = {
    "sim skeen --messages 5 --out t": ("pyarrow", "lab"),
    "verify t": ("pyarrow", "lab"),
    "swarm skeen --seeds 1 --out s": ("pyarrow", "lab"),
    "explore skeen --out e": ("pyarrow", "lab"),
    "demo": ("pyarrow", "lab"),
    "view t": ("numpy", "view"),
    "sweep s.toml --out s": ("pyarrow", "spark"),
    "metrics t": ("pyarrow", "spark"),
    "report t": ("pyarrow", "spark"),
    "reproduce figure": ("pyarrow", "spark"),
}


def test_a_command_names_the_extra_it_needs(tmp_path: Path) -> None:
    found = dict(zip(NEEDED, run_base(tmp_path, *NEEDED), strict=True))
    for command, (library, extra) in NEEDED.items():
        name = command.split()[0]
        assert found[command] == (2, f"amcast: {name} needs {library}: pip install 'amcast[{extra}]'")
    assert list(tmp_path.iterdir()) == [], "said before anything is done"


def test_what_no_extra_brings_is_a_fault_of_ours() -> None:
    assert remedy(ModuleNotFoundError("No module named 'amcast.lab'", name="amcast.lab")) is None
    assert remedy(ModuleNotFoundError("No module named 'msgspec'", name="msgspec")) is None
    assert remedy(ModuleNotFoundError("?")) is None
    assert remedy(ModuleNotFoundError(name="pyspark.sql")) == "needs pyspark: pip install 'amcast[spark]'"


def test_plain_python_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amcast.installed.compiled", lambda: True)
    assert build() == "compiled"
    monkeypatch.setattr("amcast.installed.compiled", lambda: False)
    monkeypatch.setenv("AMCAST_PURE", "1")
    assert build() == "plain Python: AMCAST_PURE is set"
    monkeypatch.setenv("AMCAST_PURE", "0")
    assert "plain Python: installed where there was no C compiler" in build()
    assert amcast.compiled.__doc__
