"""Tests of the tests: each mutant is the shipped protocol with one guard broken, and has to be caught."""

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from amcast.core.process import Protocol
from amcast.lab.swarm import judge

# A run of a broken protocol may fail anywhere, in any way.
CRASHES = (Exception,)


@dataclass(frozen=True)
class Mutant:
    """Lines of a protocol's source and what a careless change would make of them."""

    name: str
    edits: tuple[tuple[str, str], ...]


def mutant(name: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name, edits)


def load(module: ModuleType, broken: Mutant) -> ModuleType:
    """The module with the mutant's edits, interpreted even where the original is compiled."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    source_file = path.parent / (path.name.split(".")[0] + ".py")
    source = source_file.read_text()
    for old, new in broken.edits:
        assert source.count(old) == 1, f"{broken.name}: {source.count(old)} places for {old!r}"
        source = source.replace(old, new)
    name = f"mutants.{broken.name}"
    loaded = ModuleType(name)
    loaded.__file__ = str(source_file)
    sys.modules[name] = loaded
    exec(compile(source, f"{source_file.name} [{broken.name}]", "exec"), loaded.__dict__)
    return loaded


def replace(table: Protocol, **classes: object) -> Protocol:
    """The protocol's row of the table with other classes in it."""
    names = list(inspect.signature(Protocol).parameters)
    values = {name: getattr(table, name) for name in names}
    return Protocol(**{**values, **classes})


def caught_by_swarm(table: Protocol, seeds: range) -> str:
    """The first seed that shows the mutant, and how; empty if none does."""
    for seed in seeds:
        try:
            outcome = judge(table, seed)
        except CRASHES as error:
            return f"seed {seed}: {type(error).__name__}: {error}"
        if not outcome.ok:
            return f"seed {seed}: {outcome.problem}"
    return ""
