"""Validity: a process delivers only messages addressed to its group (a client has none).

A message that nobody multicast has no destinations to compare with: that is integrity's business.
"""

from amcast.checks.history import NO_GROUP, NOWHERE, VERBS, Fault, History
from amcast.checks.verdict import Verdict


def check_validity(history: History) -> Verdict:
    known = history.multicast_deliveries()
    if not known:
        return history.unknown("validity", history.nothing_to_compare())
    fault = validity_fault(history, "deliver")
    return history.ok("validity", known) if fault is None else history.violated("validity", *fault)


def validity_fault(history: History, kind: str) -> Fault | None:
    """Find a delivery of this kind at a process that the message is not addressed to."""
    for process, log in enumerate(history.logs(kind)):
        group = history.group_of[process]
        for message in log.messages:
            dest = history.dest[message]
            if dest != NOWHERE and group not in history.dest_sets[dest]:
                name = history.messages[message]
                where = "is a client" if group == NO_GROUP else f"is in {history.group_name(process)}"
                reason = (
                    f"{history.processes[process]} {VERBS[kind]} {name}, but the process {where} and {name} is "
                    f"addressed to {history.dest_names(message)}"
                )
                return reason, (history.multicast_row(message), history.deliver_row(process, message, kind))
    return None
