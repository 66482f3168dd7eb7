"""What a verdict rests on: counted, printed beside it, and demanded by it.

Every command that judges (verify, watch, explore, swarm, chaos, demo, report, claims, reproduce) says what it saw with
this one type. A check that saw nothing has found nothing out: its verdict is `unknown`, never `ok`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from amcast.core.plural import count


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counts of what was looked at. It is false if a verdict has nothing to rest on."""

    runs: int = 0
    replicas: int = 0  # that delivered something
    expected: int = 0  # replicas that the run should have
    multicasts: int = 0
    deliveries: int = 0
    pairs: int = 0  # of a message and a process, compared with what the message's destinations demand
    states: int = 0
    faults: int = 0

    def __bool__(self) -> bool:
        """Return whether something was delivered, compared or explored. Members and sent messages show nothing."""
        return self.deliveries > 0 or self.pairs > 0 or self.states > 0

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def __str__(self) -> str:
        """Return the words that stand behind a verdict: `14,388 deliveries of 9 of 9 replicas`."""
        parts = []
        if self.runs > 1:
            parts.append(count(self.runs, "run"))
        if self.states:
            parts.append(count(self.states, "state"))
        deliveries = count(self.deliveries, "delivery", "deliveries")
        if self.expected:
            deliveries += f" of {self.replicas:,} of {count(self.expected, 'replica')}"
        parts.append(deliveries)
        if self.pairs:
            parts.append(f"{count(self.pairs, 'pair')} compared")
        if self.faults:
            parts.append(count(self.faults, "fault"))
        return ", ".join(parts)

    def as_dict(self) -> dict[str, int]:
        """Return the counts for JSON."""
        return asdict(self)


NOTHING = Evidence()


def total(parts: Iterable[Evidence]) -> Evidence:
    """Return the sum of what several runs showed."""
    return sum(parts, NOTHING)
