"""Integrity: no process delivers a message twice, and a delivered message was multicast."""

from amcast.checks.history import NOBODY, NOTHING_DELIVERED, VERBS, Fault, History
from amcast.checks.verdict import Verdict


def check_integrity(history: History) -> Verdict:
    if not history.evidence.deliveries:
        return history.unknown("integrity", NOTHING_DELIVERED)
    fault = integrity_fault(history, "deliver")
    return history.ok("integrity") if fault is None else history.violated("integrity", *fault)


def integrity_fault(history: History, kind: str) -> Fault | None:
    """Find a delivery of this kind that repeats another one, or that no multicast explains."""
    for process, log in enumerate(history.logs(kind)):
        does = f"{history.processes[process]} {VERBS[kind]}"
        seen: set[int] = set()
        for message in dict.fromkeys(log.messages):
            if history.sender[message] == NOBODY:
                reason = f"{does} {history.messages[message]}, which nobody multicast"
                return reason, (history.deliver_row(process, message, kind),)
        for message in log.messages:
            if message in seen:
                rows = tuple(history.deliver_row(process, message, kind, nth) for nth in (0, 1))
                return f"{does} {history.messages[message]} twice", rows
            seen.add(message)
    return None
