"""Tests of the tests: each mutant is the shipped protocol with one guard broken, and has to be caught."""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from amcast.core.protocol import Protocol
from amcast.swarm.seeds import judge

# A run of a broken protocol may fail anywhere, in any way.
CRASHES = (Exception,)


@dataclass(frozen=True)
class Mutant:
    """Lines of a protocol's source and what a careless change would make of them."""

    name: str
    edits: tuple[tuple[str, str], ...]


def mutant(name: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name, edits)


def load(broken: Mutant, *modules: ModuleType) -> ModuleType:
    """The last of these modules with the mutant's edits to any of them, interpreted even where they are compiled."""
    sources = {module.__name__: source_of(module) for module in modules}
    for old, new in broken.edits:
        places = [name for name, source in sources.items() if old in source]
        assert len(places) == 1 and sources[places[0]].count(old) == 1, f"{broken.name}: not one place for {old!r}"
        sources[places[0]] = sources[places[0]].replace(old, new)
    for original, source in sources.items():
        name = f"mutant_{broken.name}_{short(original, sources)}"
        for other in sources:
            source = source.replace(f"from {other} import", f"from mutant_{broken.name}_{short(other, sources)} import")
        loaded = ModuleType(name)
        sys.modules[name] = loaded
        exec(compile(source, name, "exec"), loaded.__dict__)
    return loaded


def short(name: str, among: Iterable[str]) -> str:
    """Return the last part of a module's name, with that of its package if others of these have the same."""
    package, _, last = name.rpartition(".")
    alike = [other for other in among if other.endswith(f".{last}")]
    return last if len(alike) == 1 else f"{package.rpartition('.')[2]}_{last}"


def source_of(module: ModuleType) -> str:
    assert module.__file__ is not None
    path = Path(module.__file__)
    return (path.parent / (path.name.split(".")[0] + ".py")).read_text()


def replace(table: Protocol, **classes: object) -> Protocol:
    """The protocol's row of the table with other classes in it."""
    return dataclasses.replace(table, **classes)  # type: ignore[arg-type]


def caught_by_swarm(table: Protocol, seeds: Sequence[int]) -> str:
    """The first seed that shows the mutant, and how; empty if none does, and something was delivered."""
    deliveries = 0
    for seed in seeds:
        try:
            outcome = judge(table, seed)
        except CRASHES as error:
            return f"seed {seed}: {type(error).__name__}: {error}"
        if outcome.problem:
            return f"seed {seed}: {outcome.problem}"
        deliveries += outcome.evidence.deliveries
    assert deliveries, f"{table.name}: nothing was delivered in {len(seeds)} seeds"
    return ""
