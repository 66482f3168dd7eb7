"""Integrity: no process delivers a message twice, and a delivered message was multicast."""

from collections.abc import Iterable

from amcast.check.history import NOBODY, History
from amcast.check.verdict import Verdict


def check_integrity(history: History) -> Verdict:
    for process, log in enumerate(history.delivered):
        name = history.processes[process]
        unique = dict.fromkeys(log.messages)
        for message in unique:
            if history.sender[message] == NOBODY:
                return Verdict(
                    "integrity", history.run, "violated",
                    f"{name} delivered {history.messages[message]}, which nobody multicast",
                    (history.deliver_row(process, message),),
                )  # fmt: skip
        if len(unique) < len(log.messages):
            message = first_repeated(log.messages)
            return Verdict(
                "integrity", history.run, "violated",
                f"{name} delivered {history.messages[message]} twice",
                (history.deliver_row(process, message), history.deliver_row(process, message, nth=1)),
            )  # fmt: skip
    return Verdict("integrity", history.run, "ok")


def first_repeated(messages: Iterable[int]) -> int:
    seen: set[int] = set()
    for message in messages:
        if message in seen:
            return message
        seen.add(message)
    raise AssertionError("no message is repeated")
