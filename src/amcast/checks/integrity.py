"""Integrity: no process delivers a message twice, and a delivered message was multicast."""

from collections.abc import Iterable

from amcast.checks.history import NOBODY, NOTHING_DELIVERED, History
from amcast.checks.verdict import Verdict


def check_integrity(history: History) -> Verdict:
    if not history.evidence.deliveries:
        return history.unknown("integrity", NOTHING_DELIVERED)
    for process, log in enumerate(history.delivered):
        name = history.processes[process]
        unique = dict.fromkeys(log.messages)
        for message in unique:
            if history.sender[message] == NOBODY:
                return history.violated(
                    "integrity",
                    f"{name} delivered {history.messages[message]}, which nobody multicast",
                    (history.deliver_row(process, message),),
                )
        if len(unique) < len(log.messages):
            message = first_repeated(log.messages)
            return history.violated(
                "integrity",
                f"{name} delivered {history.messages[message]} twice",
                (history.deliver_row(process, message), history.deliver_row(process, message, nth=1)),
            )
    return history.ok("integrity")


def first_repeated(messages: Iterable[int]) -> int:
    seen: set[int] = set()
    for message in messages:
        if message in seen:
            return message
        seen.add(message)
    raise AssertionError("no message is repeated")
