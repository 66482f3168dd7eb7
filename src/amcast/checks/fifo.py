"""FIFO: if a process multicasts m before m', no process addressed by both delivers m' without having delivered m.

So what a process delivers from one sender is a prefix of what that sender multicast to its group. Linear.
"""

from amcast.checks.history import VERBS, Fault, History
from amcast.checks.verdict import Verdict


def check_fifo(history: History) -> Verdict:
    pairs = history.addressed_deliveries()
    if not pairs:
        return history.unknown("fifo", history.nothing_to_compare())
    fault = fifo_fault(history, "deliver")
    return history.ok("fifo", pairs) if fault is None else history.violated("fifo", *fault)


def fifo_fault(history: History, kind: str) -> Fault | None:
    """Find a delivery of this kind before an earlier message of the same sender is delivered."""
    sequences = [log.firsts() for log in history.logs(kind)]
    for group, members in enumerate(history.members):
        by_sender: dict[int, list[int]] = {}
        for message in history.addressed[group]:
            by_sender.setdefault(history.sender[message], []).append(message)
        for process in members:
            due = {sender: iter(messages) for sender, messages in by_sender.items()}
            for message in sequences[process]:
                if history.is_addressed(message, group):
                    expected = next(due[history.sender[message]])
                    if message != expected:
                        return _overtaking(history, kind, process, expected, message)
    return None


def _overtaking(history: History, kind: str, process: int, earlier: int, later: int) -> Fault:
    who, sender = history.processes[process], history.processes[history.sender[later]]
    first, second, verb = history.messages[earlier], history.messages[later], VERBS[kind]
    rows = [history.multicast_row(earlier), history.multicast_row(later), history.deliver_row(process, later, kind)]
    if earlier in history.logs(kind)[process].messages:
        rows.append(history.deliver_row(process, earlier, kind))
    return f"{who} {verb} {second} without having {verb} {first}, which {sender} had multicast before", tuple(rows)
