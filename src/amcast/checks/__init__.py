"""Checks of the promises of atomic multicast, over the events of a trace and nothing else.

`check` gives one verdict per property and run: ok, violated (with the smallest counter-example found) or unknown (with
the reason). Each verdict says what it rests on, and none is ok on nothing. The file of each property says what the
property means. A protocol's own timestamps are never trusted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from amcast.checks.agreement import check_agreement, check_agreement_nonuniform
from amcast.checks.causal import check_causal
from amcast.checks.fifo import check_fifo
from amcast.checks.genuine import check_genuine
from amcast.checks.history import History, histories
from amcast.checks.integrity import check_integrity
from amcast.checks.optimistic import check_optimistic
from amcast.checks.order import check_order
from amcast.checks.termination import check_termination
from amcast.checks.validity import check_validity
from amcast.checks.verdict import Verdict, exit_code
from amcast.core.trace import Event
from amcast.errors import TraceError, UsageError

__all__ = ["PROPERTIES", "Verdict", "check", "exit_code", "known_properties"]

# In the order in which verdicts are given: first what the rows themselves must be, then safety, then liveness, then the
# properties that only some protocols promise.
PROPERTIES: Final[dict[str, Callable[[History], Verdict]]] = {
    "integrity": check_integrity,
    "validity": check_validity,
    "order": check_order,
    "agreement": check_agreement,
    "agreement-nonuniform": check_agreement_nonuniform,
    "termination": check_termination,
    "fifo": check_fifo,
    "causal": check_causal,
    "genuine": check_genuine,
    "optimistic": check_optimistic,
}

ALWAYS: Final = ("integrity", "validity", "order", "agreement", "termination")  # judged unless others are asked for


def check(events: Iterable[Event], properties: Sequence[str] | None = None) -> list[Verdict]:
    """Judge every run in the events. Runs may be interleaved, and events may come in any order.

    Without `properties`, judge what atomic multicast promises. `genuine` is added if the run has send or receive rows
    that say what they are about, and `optimistic` if it has optdeliver rows. Only some protocols promise fifo and
    causal order, so these are judged on request. Raises TraceError if there are no rows, or if rows contradict each
    other.
    """
    asked = None if properties is None else known_properties(properties)
    runs = histories(events)
    if not runs:
        raise TraceError("there are no events; expected those of at least one run; record the run again")
    return [
        PROPERTIES[name](history)
        for history in runs
        for name in (_default_properties(history) if asked is None else asked)
    ]


def known_properties(names: Sequence[str]) -> list[str]:
    """Return the names without repetitions. Raises UsageError if one is not a property."""
    for name in names or ("",):
        if name not in PROPERTIES:
            raise UsageError(f"property {name!r} is unknown; expected one of {', '.join(PROPERTIES)}; correct the name")
    return list(dict.fromkeys(names))


def _default_properties(history: History) -> list[str]:
    names = list(ALWAYS)
    if history.traffic.rows_about_messages:
        names.append("genuine")
    if any(len(log.messages) for log in history.optimistic):
        names.append("optimistic")
    return names
