"""Termination: what a process that did not crash multicasts is delivered by every process of its destination groups.

A sender that crashed after the multicast is excused even if it restarted: the sends may have been lost with the crash.
Only processes that are up at the end must deliver. What was delivered anywhere is agreement's business. Needs an `end`
row, and all processes that messages are addressed to.
"""

from typing import Final

from amcast.checks.agreement import first_lack
from amcast.checks.history import CUT_OFF, NOTHING_MULTICAST, History
from amcast.checks.verdict import Verdict

NOTHING_DUE: Final = "nothing had to be delivered: every sender or every destination crashed, or there was none"


def check_termination(history: History) -> Verdict:
    if not history.ended:
        return history.unknown("termination", CUT_OFF)
    excused = {
        message
        for process, crashes in enumerate(history.crash_seqs)
        for message, seq in zip(history.multicast[process].messages, history.multicast[process].seqs, strict=True)
        if crashes and max(crashes) > seq
    }
    lack, pairs = first_lack(history, lambda message: message not in excused)
    if lack is None:
        if absent := history.absent():
            return history.unknown("termination", absent)
        if not pairs:
            return history.unknown("termination", NOTHING_DUE if history.evidence.multicasts else NOTHING_MULTICAST)
        return history.ok("termination", pairs)
    process, message = lack
    reason = (
        f"{history.processes[history.sender[message]]} multicast {history.messages[message]} to "
        f"{history.dest_names(message)} and did not crash, but {history.processes[process]} of "
        f"{history.group_name(process)}, which is up, never delivered it"
    )
    return history.violated("termination", reason, (history.multicast_row(message),))
