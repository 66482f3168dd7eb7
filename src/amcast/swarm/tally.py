"""What the seeds of a swarm showed, added up and put into words."""

import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.refusals import too_few_delivered
from amcast.checks.verdict import Status
from amcast.core.plural import count
from amcast.core.protocol import Protocol
from amcast.swarm.seeds import Outcome

EXIT_CODES: dict[Status, int] = {"ok": 0, "violated": 1, "unknown": 3}


@dataclass(frozen=True)
class Failure:
    seed: int
    problem: str
    config: str
    replay: str
    trace: str | None = None


@dataclass
class Tally:
    """What the swarm found so far."""

    protocol: Protocol
    asked: int  # seeds
    done: int = 0
    events: int = 0
    evidence: Evidence = NOTHING
    delivered: int = 0  # multicasts that somebody delivered
    refused: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    interrupted: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def per_minute(self) -> float:
        return 60 * self.done / max(self.seconds, 1e-9)

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.events += outcome.events
        self.evidence += outcome.evidence
        self.delivered += outcome.delivered
        self.refused += outcome.refused
        if outcome.excuse:
            self.excused[outcome.excuse] += 1

    def verdict(self) -> tuple[Status, str]:
        """Say what all seeds together show, and what is wrong with it in a few words."""
        if self.failures:
            return "violated", count(len(self.failures), "failure")
        if not self.evidence.deliveries:
            return "unknown", "nothing was delivered"
        if few := too_few_delivered(self.protocol, self.done, self.evidence.multicasts, self.delivered):
            return "violated", few
        if self.done < self.asked:
            return "unknown", f"interrupted: {self.done:,} of {count(self.asked, 'seed')} were run"
        if self.excused.total() == self.done:
            return "unknown", "every seed was excused"
        return "ok", "no failure"

    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict()[0]]


def describe(failure: Failure) -> str:
    lines = [f"seed {failure.seed} failed: {failure.problem}", failure.config, f"replay: {failure.replay}"]
    if failure.trace is not None:
        lines.append(f"trace: {failure.trace}")
    return "\n  ".join(line for line in lines if line)


def result_line(first_seed: int, tally: Tally) -> str:
    status, reason = tally.verdict()
    evidence = tally.evidence
    sent = count(evidence.multicasts, "multicast")
    deliveries = count(evidence.deliveries, "delivery", "deliveries")
    seen = f"{tally.delivered:,} of {sent} delivered, {deliveries}, {count(evidence.faults, 'fault')}"
    why = ", ".join(f"{number:,} {excuse}" for excuse, number in tally.excused.most_common())
    excused = f"{tally.excused.total():,} excused" + (f" ({why})" if why else "")
    spent = f"{tally.seconds:.1f} s, {tally.per_minute:,.0f} seeds/min, {tally.events:,} events"
    told = f"unknown: {reason}" if status == "unknown" else reason
    seeds = f"{tally.protocol.name}: {count(tally.done, 'seed')} from {first_seed}"
    return f"{seeds}, {told}; {seen}; {tally.refused:,} refused; {excused}; {spent}"


def document(first_seed: int, tally: Tally) -> dict[str, object]:
    """For JSON; `seeds` are those of the `asked` ones that were run."""
    status, reason = tally.verdict()
    return {
        "protocol": tally.protocol.name,
        "first_seed": first_seed,
        "asked": tally.asked,
        "seeds": tally.done,
        "verdict": status,
        "reason": "" if status == "ok" else reason,
        "evidence": tally.evidence.as_dict(),
        "delivered": tally.delivered,
        "least_delivered_percent": tally.protocol.least_delivered,
        "refused": tally.refused,
        "excused": dict(tally.excused),
        "failures": [asdict(failure) for failure in tally.failures],
        "seconds": round(tally.seconds, 3),
        "seeds_per_minute": round(tally.per_minute, 1),
        "interrupted": tally.interrupted,
    }
