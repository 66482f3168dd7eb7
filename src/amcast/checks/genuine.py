"""Genuineness: only the sender of a message and the processes it is addressed to take part in ordering it.

Every process in a `send` or `receive` row about m, at either end, is m's sender or in a group of dest(m).
"""

from typing import Final

from amcast.checks.history import NOBODY, History
from amcast.checks.verdict import Verdict

NO_TRAFFIC: Final = "the run has no send or receive rows: record it with --trace full"
NOTHING_ABOUT: Final = "no send or receive row says in `about` which messages it helps to order"


def check_genuine(history: History) -> Verdict:
    traffic = history.traffic
    if traffic.rows == 0:
        return history.unknown("genuine", NO_TRAFFIC)
    if traffic.rows_about_messages == 0:
        return history.unknown("genuine", NOTHING_ABOUT)
    if traffic.proof is not None:
        return _violated(history, *traffic.proof[:2])
    for process, message in traffic.suspects:
        if not history.may_handle(process, message):
            return _violated(history, process, message)
    return history.ok("genuine", traffic.rows_about_messages)


def _violated(history: History, process: int, message: int) -> Verdict:
    row = history.traffic.suspects[process, message]
    who, what = history.processes[process], history.messages[message]
    how = row.kind if row.type is None else f"{row.kind} {row.type}"
    if history.sender[message] == NOBODY:
        reason = f"{who} took part in ordering {what} ({how}), which nobody multicast"
        return history.violated("genuine", reason, (row,))
    group = history.group_name(process)
    where = "a client" if group is None else f"of {group}"
    reason = (
        f"{who} took part in ordering {what} ({how}), but it is {where}, neither the sender "
        f"{history.processes[history.sender[message]]} nor in {history.dest_names(message)}"
    )
    return history.violated("genuine", reason, (history.multicast_row(message), row))
