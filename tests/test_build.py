"""Guards: the same sources run compiled and as plain Python, and one can tell and choose which."""

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import amcast
from tests.pace import allow

PACKAGE = Path(amcast.__file__).parent
COMPILED = sorted(path for suffix in EXTENSION_SUFFIXES[:1] for path in PACKAGE.rglob(f"*{suffix}"))
LISTED = [
    line.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for line in (Path(__file__).parents[1] / "compiled.txt").read_text().splitlines()
    if not line.startswith("#")
]
needs_compiled = pytest.mark.skipif(not COMPILED, reason="nothing is compiled here: make compile")


def python(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "AMCAST_PURE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=allow(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def source_of(compiled: Path) -> Path:
    return compiled.with_name(compiled.name.split(".")[0] + ".py")


IMPORT_ALL = f"""
import amcast, importlib
files = [importlib.import_module(name).__file__ for name in {LISTED!r}]
"""


def test_pure_forces_the_sources() -> None:
    assert python("import amcast; print(amcast.compiled())", AMCAST_PURE="1") == "False"
    assert python(IMPORT_ALL + "print([f for f in files if not f.endswith('.py')])", AMCAST_PURE="1") == "[]"


@needs_compiled
def test_compiled_is_the_default_where_it_is_built() -> None:
    assert python("import amcast; print(amcast.compiled())") == "True"
    assert python("import amcast; print(amcast.compiled())", AMCAST_PURE="0") == "True"
    assert python(IMPORT_ALL + "print([f for f in files if f.endswith('.py')])") == "[]"


@pytest.mark.skipif(bool(COMPILED), reason="compiled here")
def test_not_compiled_says_so() -> None:
    assert python("import amcast; print(amcast.compiled())") == "False"


@needs_compiled
def test_no_compiled_module_is_older_than_its_source() -> None:
    """A stale .so would shadow the edited .py, and the tests would test yesterday's code."""
    stale = [
        path.name
        for path in COMPILED
        if not source_of(path).exists() or source_of(path).stat().st_mtime > path.stat().st_mtime
    ]
    assert not stale, f"{stale}: run make compile"


def test_import_is_light() -> None:
    heavy = "import amcast, sys; print(sorted({'pyarrow', 'typer', 'rich', 'msgspec', 'asyncio'} & set(sys.modules)))"
    assert python(heavy) == "[]"
