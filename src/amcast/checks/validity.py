"""Validity: a process delivers only messages addressed to its group (a client has none).

A message that nobody multicast has no destinations to compare with: that is integrity's business.
"""

from amcast.checks.history import NOWHERE, EventLog, History
from amcast.checks.verdict import Verdict


def check_validity(history: History) -> Verdict:
    known = history.multicast_deliveries()
    if not known:
        return history.unknown("validity", history.nothing_to_compare())
    for process, log in enumerate(history.delivered):
        message = first_not_addressed(history, process, log)
        if message is not None:
            return history.violated(
                "validity",
                f"{history.processes[process]} delivered {not_addressed(history, process, message)}",
                (history.multicast_row(message), history.deliver_row(process, message)),
            )
    return history.ok("validity", known)


def first_not_addressed(history: History, process: int, log: EventLog) -> int | None:
    group = history.group_of[process]
    for message in log.messages:
        dest = history.dest[message]
        if dest != NOWHERE and group not in history.dest_sets[dest]:
            return message
    return None


def not_addressed(history: History, process: int, message: int) -> str:
    group = history.group_name(process)
    where = "is a client" if group is None else f"is in {group}"
    name, dest = history.messages[message], history.dest_names(message)
    return f"{name}, but the process {where} and {name} is addressed to {dest}"
