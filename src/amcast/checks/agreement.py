"""Agreement: a message that some process delivered is delivered by every process of its destination groups that is up.

Uniform agreement counts every delivery, `agreement-nonuniform` only those of processes that are up at the end. A
process that crashed and restarted is up again, and must have what it missed. A run without an `end` row was cut off:
nobody knows whether more would have been delivered, so there is no verdict. Nor is there one if processes that should
be in the trace are not.
"""

from collections.abc import Callable
from typing import Final

from amcast.checks.history import CUT_OFF, NOTHING_DELIVERED, History
from amcast.checks.verdict import Verdict

NOBODY_UP: Final = "no process that is up had to deliver what others delivered"


def check_agreement(history: History) -> Verdict:
    return _check(history, "agreement", lambda process: True)


def check_agreement_nonuniform(history: History) -> Verdict:
    return _check(history, "agreement-nonuniform", lambda process: not history.is_down(process))


def _check(history: History, name: str, counts: Callable[[int], bool]) -> Verdict:
    if not history.ended:
        return history.unknown(name, CUT_OFF)
    deliverer: dict[int, int] = {}
    for process, log in enumerate(history.delivered):
        if counts(process):
            for message in log.messages:
                deliverer.setdefault(message, process)
    lack, pairs = first_lack(history, deliverer.__contains__)
    if lack is None:
        if absent := history.absent():
            return history.unknown(name, absent)
        if not pairs:
            return history.unknown(name, NOBODY_UP if history.evidence.deliveries else NOTHING_DELIVERED)
        return history.ok(name, pairs)
    process, message = lack
    other = deliverer[message]
    reason = (
        f"{history.processes[other]} delivered {history.messages[message]} (to {history.dest_names(message)}), but "
        f"{history.processes[process]} of {history.group_name(process)}, which is up, never did"
    )
    rows = (history.multicast_row(message), history.deliver_row(other, message))
    return history.violated(name, reason, rows)


def first_lack(history: History, is_due: Callable[[int], bool]) -> tuple[tuple[int, int] | None, int]:
    """Find a process that is up, and the first due message addressed to its group that it never delivered.

    Also return how many pairs of such a process and such a message were looked at.
    """
    pairs = 0
    for group in range(len(history.groups)):
        due = [message for message in history.addressed[group] if is_due(message)]
        for process in history.members[group]:
            if not history.is_down(process):
                has = set(history.delivered[process].messages)
                pairs += len(due)
                missing = [message for message in due if message not in has]
                if missing:
                    return (process, min(missing)), pairs  # messages are numbered as they first appear
    return None, pairs
