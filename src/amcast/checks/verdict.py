"""The verdict of a check on one property of one run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from amcast.checks.evidence import NOTHING, Evidence
from amcast.core.trace import Event

Status = Literal["ok", "violated", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one property of one run.

    `reason` is one sentence, empty when all is well. `counterexample` holds the rows that break the property. A verdict
    without evidence cannot be `ok`: a check that saw nothing says `unknown`, and why.
    """

    property: str
    run: str
    status: Status
    reason: str = ""
    counterexample: tuple[Event, ...] = ()
    figure: dict[str, int | float] | None = None
    evidence: Evidence = NOTHING

    def __post_init__(self) -> None:
        assert self.status != "ok" or self.evidence, f"{self.property} of run {self.run!r} is ok on nothing"

    def as_dict(self) -> dict[str, object]:
        """Return the verdict for JSON."""
        return {
            "property": self.property,
            "run": self.run,
            "status": self.status,
            "reason": self.reason,
            "counterexample": [_json_row(event) for event in self.counterexample],
            "figure": self.figure,
            "evidence": self.evidence.as_dict(),
        }


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 0 if all are ok, 1 if some are violated, else 3. Without any verdict it is 3; 2 means unusable input."""
    seen = {verdict.status for verdict in verdicts}
    return 1 if "violated" in seen else 3 if "unknown" in seen or not seen else 0


def _json_row(event: Event) -> dict[str, object]:
    row = event.row()
    for name in ("dest", "about"):
        if name in row:
            row[name] = list(getattr(event, name))
    if event.ts is not None:
        row["ts"] = {"time": event.ts[0], "tie": event.ts[1]}
    return row
