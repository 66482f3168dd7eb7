"""FIFO: if a process multicasts m before m', no process addressed by both delivers m' without having delivered m.

So what a process delivers from one sender is a prefix of what that sender multicast to its group. Linear.
"""

from collections.abc import Sequence
from typing import NamedTuple

from amcast.checks.history import History
from amcast.checks.verdict import Verdict


class Overtaking(NamedTuple):
    """`process` delivered `later` although it had not delivered `earlier`, of the same sender."""

    process: int
    earlier: int
    later: int


def check_fifo(history: History) -> Verdict:
    pairs = history.addressed_deliveries()
    if not pairs:
        return history.unknown("fifo", history.nothing_to_compare())
    sequences = [log.firsts() for log in history.delivered]
    found = first_overtaking(history, sequences)
    if found is None:
        return history.ok("fifo", pairs)
    rows = [history.multicast_row(found.earlier), history.multicast_row(found.later)]
    rows.append(history.deliver_row(found.process, found.later))
    if found.earlier in sequences[found.process]:
        rows.append(history.deliver_row(found.process, found.earlier))
    return history.violated("fifo", overtaking_sentence(history, found, "delivered"), tuple(rows))


def first_overtaking(history: History, sequences: Sequence[Sequence[int]]) -> Overtaking | None:
    """Look through what each process delivered, given without repetitions, for a message that overtook another."""
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
                        return Overtaking(process, expected, message)
    return None


def overtaking_sentence(history: History, found: Overtaking, verb: str) -> str:
    process, sender = history.processes[found.process], history.processes[history.sender[found.later]]
    earlier, later = history.messages[found.earlier], history.messages[found.later]
    return f"{process} {verb} {later} without having {verb} {earlier}, which {sender} had multicast before"
