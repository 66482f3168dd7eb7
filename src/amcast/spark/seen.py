"""What the rows of runs show, and what they lack. A run in which nothing happened has no numbers worth showing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from amcast.checks.evidence import Evidence, total
from amcast.checks.history import NOTHING_DELIVERED, NOTHING_MULTICAST

NO_REPLICA: Final = "no replica is in the trace"
BY_NO_REPLICA: Final = "no delivery is by a replica"
OF_NO_MULTICAST: Final = "no delivered message was multicast"
MOST_NAMES: Final = 3

Row = Mapping[str, Any]


def evidence_of(runs: Iterable[Row]) -> Evidence:
    """Count what these runs show. They are rows of the table `runs`, or lines of a sweep without replicas."""
    return total(
        Evidence(
            runs=1,
            replicas=run.get("replicas_seen") or 0,
            expected=run.get("replicas_expected") or 0,
            multicasts=run["multicasts"] or 0,
            deliveries=run["deliveries"] or 0,
            faults=run.get("crashes_seen", run.get("crashes")) or 0,
        )
        for run in runs
    )


def silences(runs: Sequence[Row]) -> list[str]:
    """Say which runs show nothing and what they lack; empty if each of them shows something."""
    if not runs:
        return ["there is no run"]
    lacking: dict[str, list[str]] = {}
    for run in runs:
        if lack := _lack(run):
            lacking.setdefault(lack, []).append(str(run["run"]))
    return [
        lack if len(runs) == 1 else f"{lack} in {len(names):,} of {len(runs):,} runs: {named(names)}"
        for lack, names in lacking.items()
    ]


def _lack(run: Row) -> str:
    if run.get("replicas_expected") == 0:
        return NO_REPLICA
    if not run["deliveries"]:
        return NOTHING_DELIVERED
    if run.get("replicas_seen") == 0:
        return BY_NO_REPLICA
    if not run["multicasts"]:
        return NOTHING_MULTICAST
    return OF_NO_MULTICAST if run.get("delivered_somewhere") == 0 else ""


def named(names: Sequence[str]) -> str:
    """Return the first few of these names."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
