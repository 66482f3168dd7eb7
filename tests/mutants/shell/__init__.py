"""Sabotage of what surrounds the protocols: each mutant edits one module, and one named test has to fail with it.

A module of this package lists the mutants of an area as MUTANTS. The edit is made when the module is imported, in the
test's process and in all that it starts (hook/sitecustomize.py); no file is changed. Compiled modules cannot be edited
that way: those of protocols have mutants of their own.
"""

import importlib
import json
import os
import pkgutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.forks import Forks

HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True)
class ShellMutant:
    """A module's name, what a careless change would make of its lines, and the test that notices."""

    name: str
    module: str
    edits: tuple[tuple[str, str], ...]
    caught_by: str
    slow: bool = False  # tried only where everything runs


def shell_mutant(name: str, module: str, *edits: tuple[str, str], caught_by: str, slow: bool = False) -> ShellMutant:
    return ShellMutant(name, module, edits, caught_by, slow)


def all_mutants() -> list[ShellMutant]:
    """Return those of every module in this package; a module without any is a mistake."""
    found: list[ShellMutant] = []
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if not name.startswith("test_"):
            mutants = getattr(importlib.import_module(f"{__name__}.{name}"), "MUTANTS", [])
            assert mutants, f"tests/mutants/shell/{name}.py has no MUTANTS"
            found += mutants
    assert len({mutant.name for mutant in found}) == len(found), "two shell mutants have the same name"
    return found


def edited(mutant: ShellMutant) -> str:
    """Return the module's source with the mutant's edits, after a look whether they fit."""
    spec = find_spec(mutant.module)
    assert spec is not None and spec.origin is not None, f"{mutant.name}: there is no module {mutant.module}"
    assert spec.origin.endswith(".py"), f"{mutant.name}: {mutant.module} is compiled, choose one that is not"
    assert mutant.edits, f"{mutant.name}: edits nothing"
    text = Path(spec.origin).read_text(encoding="utf-8")
    for old, new in mutant.edits:
        places = text.count(old)
        assert places == 1, f"{mutant.name}: {mutant.module} has {places} places for {old!r}, expected one"
        assert old != new, f"{mutant.name}: {old!r} is not changed"
        text = text.replace(old, new)
    compile(text, spec.origin, "exec")  # a mutant that is no Python would be caught by anything
    return text


def run_tests(forks: Forks, ids: list[str], seen: Path, mutant: ShellMutant | None = None) -> tuple[int, str]:
    """Run these tests in a process of their own; `seen` exists afterwards if the mutant was loaded.

    Return pytest's exit code and what it printed.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if mutant is None:
        return forks.run(ids, ours)
    path = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours["PYTHONPATH"] = os.pathsep.join(path)
    ours["AMCAST_SHELL_MUTANT"] = json.dumps({"module": mutant.module, "edits": mutant.edits, "seen": str(seen)})
    return forks.run(ids, ours, HOOK / "sitecustomize.py")
