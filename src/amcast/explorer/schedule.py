"""A schedule as a file: what was explored, the moves one by one, and what they show."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from amcast.errors import UsageError
from amcast.explorer.scope import Scope, scope_from

KIND = "amcast schedule"
EXPECTED = "expected a file written by 'amcast explore'"


@dataclass(frozen=True)
class Schedule:
    """A sequence of moves, spelt as `run.spell` does. `calm`: after them nothing goes wrong any more."""

    protocol: str
    property: str
    problem: str
    scope: Scope
    moves: tuple[str, ...]
    calm: bool

    def write(self, path: Path) -> None:
        document = {"kind": KIND, **asdict(self)}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_schedule(path: Path) -> Schedule:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {EXPECTED}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); {EXPECTED}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UsageError(f"{path}: not a schedule; {EXPECTED}")
    moves = document.get("moves")
    if not isinstance(moves, list) or not all(isinstance(move, str) for move in moves):
        raise UsageError(f"{path}: moves: expected a list of strings")
    texts = {name: str(document.get(name, "")) for name in ("protocol", "property", "problem")}
    scope = scope_from(document.get("scope"))
    return Schedule(scope=scope, moves=tuple(moves), calm=bool(document.get("calm")), **texts)
