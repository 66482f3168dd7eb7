"""A schedule as a file: what was explored, the moves one by one, and what they show."""

import json
from dataclasses import dataclass
from pathlib import Path

from amcast.errors import UsageError
from amcast.explorer.scope import Scope, scope_from

KIND = "amcast schedule"


@dataclass(frozen=True)
class Schedule:
    """A sequence of moves.

    `moves` are spelt as `RealRun.describe` does. `calm`: after them nothing goes wrong any more.
    """

    protocol: str
    scope: Scope
    moves: tuple[str, ...]
    calm: bool = False
    property: str = ""
    problem: str = ""

    def write(self, path: Path) -> None:
        document = {
            "kind": KIND,
            "protocol": self.protocol,
            "property": self.property,
            "problem": self.problem,
            "scope": self.scope.as_dict(),
            "moves": self.moves,
            "calm": self.calm,
        }
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_schedule(path: Path) -> Schedule:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected a file written by 'amcast explore'") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); expected a file written by 'amcast explore'") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UsageError(f"{path}: not a schedule; expected a file written by 'amcast explore'")
    moves = document.get("moves")
    if not isinstance(moves, list) or not all(isinstance(move, str) for move in moves):
        raise UsageError(f"{path}: moves: expected a list of strings")
    texts = {name: str(document.get(name, "")) for name in ("protocol", "property", "problem")}
    scope = scope_from(document.get("scope"))
    return Schedule(scope=scope, moves=tuple(moves), calm=bool(document.get("calm")), **texts)
