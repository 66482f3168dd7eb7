"""How a claim of a paper is measured, and on what."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

from amcast.checks.evidence import Evidence, total
from amcast.checks.history import histories
from amcast.core.protocol import Protocol
from amcast.core.trace import ListRecorder
from amcast.sim.script import Script as AnyScript

WHITE_BOX = "White-Box Atomic Multicast (extended)"

P = ParamSpec("P")
_runs: list[ListRecorder] = []  # of the claim that is being measured


@dataclass(frozen=True)
class Scenario:
    claim: str
    section: str
    expected: str
    measure: Callable[[Protocol], str]
    paper: str = WHITE_BOX
    computed: bool = False  # from a formula or a graph: there is no run in which something could be delivered


@dataclass(frozen=True)
class Claims:
    """What is claimed of a protocol. Other packages bring theirs by the entry points `amcast.claims`."""

    name: str  # of the protocol
    scenarios: tuple[Scenario, ...]


class Script(AnyScript):
    """A script whose run is evidence for the claim that is being measured."""

    def run(self, until: float | None = None) -> None:
        super().run(until)
        count_run(self.recorder)


def count_run(recorder: ListRecorder) -> None:
    """Take what was recorded as evidence for the claim that is being measured."""
    _runs.append(recorder)


def measure(scenario: Scenario, table: Protocol) -> tuple[str, Evidence]:
    """Measure a claim. Return the value and the evidence of the runs in which it was measured."""
    _runs.clear()
    try:
        measured = scenario.measure(table)
        runs = [history for recorder in _runs for history in histories(recorder.events)]
        return measured, total(run.evidence for run in runs)
    finally:
        _runs.clear()


def measuring(measurement: Callable[Concatenate[Protocol, P], str]) -> Callable[P, Callable[[Protocol], str]]:
    """Let a measurement be told its parameters first, and the protocol when it is made."""

    @wraps(measurement)
    def told(*args: P.args, **kwargs: P.kwargs) -> Callable[[Protocol], str]:
        return lambda table: measurement(table, *args, **kwargs)

    return told


def deltas(*values: float) -> str:
    """Return the values in δ: `3δ / 4δ`."""
    return " / ".join(f"{int(v)}δ" if v == int(v) else f"{v}δ" for v in values)
