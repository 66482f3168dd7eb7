"""What clients of a store did and heard: calls with the time of their beginning and end, and the steps of each.

The outcome of a call is one of three. DONE: it happened, between its beginning and its end, and the steps say what was
answered. REFUSED: it did not happen and never will. UNKNOWN: nobody answered in time; it may happen at any time after
its beginning, or never, and its steps have no answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from amcast.checks.verdict import Status
from amcast.core.plural import count
from amcast.errors import Anomaly


class Outcome(Enum):
    DONE = "done"
    UNKNOWN = "outcome unknown"
    REFUSED = "refused"


class Unheard(Enum):
    """Stands for an answer that did not come, or that nobody asked for."""

    UNHEARD = "?"


UNHEARD: Final = Unheard.UNHEARD
Value: TypeAlias = "str | int | tuple[str, ...] | None"
Answer: TypeAlias = "Value | Unheard"


@dataclass(frozen=True, slots=True)
class Get:
    """Read a register, a counter or a list. A key that was never written holds None, which is also 0 and ()."""

    key: str
    found: Answer = UNHEARD

    def __str__(self) -> str:
        return f"get {self.key} → {shown(self.found)}"


@dataclass(frozen=True, slots=True)
class Put:
    """Write a register. No two calls write the same value to a key. `before` is the value before, if it was asked."""

    key: str
    value: str
    before: Answer = UNHEARD

    def __str__(self) -> str:
        before = "" if self.before is UNHEARD else f", it held {shown(self.before)}"
        return f"put {self.key} = {self.value}{before}"


@dataclass(frozen=True, slots=True)
class Append:
    """Append to a list. No two calls append the same value to a key. `length` is that of the list then, if answered."""

    key: str
    value: str
    length: int | None = None

    def __str__(self) -> str:
        length = "" if self.length is None else f" → length {self.length}"
        return f"append {self.value} to {self.key}{length}"


@dataclass(frozen=True, slots=True)
class Increment:
    """Add one to a counter. `total` is what it was then, if that was answered."""

    key: str
    total: int | None = None

    def __str__(self) -> str:
        return f"increment {self.key} → {'?' if self.total is None else self.total}"


Step: TypeAlias = "Get | Put | Append | Increment"


@dataclass(frozen=True, slots=True)
class Call:
    """One transaction of one client, which may have one step."""

    client: str
    began: float  # seconds
    ended: float  # when the client had the answer, or gave up
    steps: tuple[Step, ...]
    outcome: Outcome = Outcome.DONE
    groups: tuple[int, ...] = ()  # that it was sent to; needed only where real time is judged by groups

    @property
    def heard(self) -> bool:
        return self.outcome is Outcome.DONE

    @property
    def may_happen(self) -> bool:
        return self.outcome is not Outcome.REFUSED

    @property
    def last_moment(self) -> float:
        """Return the time by which it has happened, if it happens."""
        return self.ended if self.heard else float("inf")

    def __str__(self) -> str:
        end = f"{self.ended:.6f}" if self.heard else self.outcome.value
        return f"{self.client} [{self.began:.6f} … {end}] {'; '.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found about a history: `kind` names the anomaly, `calls` show it."""

    status: Status
    kind: str = ""
    reason: str = ""
    calls: tuple[object, ...] = ()  # as a person would write them
    judged: int = 0  # calls that were heard and fit
    examined: int = 0  # states, where there was something to search

    def __post_init__(self) -> None:
        assert self.status != "ok" or self.judged, "a history is ok on nothing"

    def __str__(self) -> str:
        if self.status == "ok":
            return f"ok: {count(self.judged, 'call')} in an order that explains every answer"
        lines = [f"{self.kind}: {self.reason}", *(f"    {call}" for call in self.calls)]
        return "\n".join(lines)


def shown(value: Answer) -> str:
    if isinstance(value, tuple):
        items = value if len(value) <= 12 else (*value[:3], f"… {len(value) - 8} more …", *value[-5:])
        return f"[{', '.join(items)}]"
    return "nothing" if value is None else value.value if isinstance(value, Unheard) else str(value)


def written(call: Call) -> list[tuple[str, str]]:
    """Return the keys with the values that a call puts or appends."""
    return [(step.key, step.value) for step in call.steps if isinstance(step, Put | Append)]


def from_nowhere(calls: Sequence[Call], key: str, value: Value, reader: Call) -> Anomaly:
    """Return what is wrong with a call that found a value which no call wrote that may have happened."""
    refused = next((call for call in calls if not call.may_happen and (key, value) in written(call)), None)
    if refused is not None:
        return Anomaly("aborted read", f"{value} was found in {key}, but its call was refused", [refused, reader])
    return Anomaly("value from nowhere", f"{value} was found in {key}, and nobody wrote it", [reader])
