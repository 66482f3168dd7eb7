"""Lets a replica of a cluster on this machine lead its group, and waits until it does."""

import signal
import time

from amcast.errors import UsageError
from amcast.local.level import status_of
from amcast.local.processes import POLL, Processes
from amcast.runtime.config import Member


def let_lead(processes: Processes, member: Member, seconds: float) -> str:
    """Tell a node to ask for the lead; return why it does not lead after so many seconds, empty if it does."""
    said = status_of(processes.config, member)
    if not isinstance(said, str) and said.get("leads"):
        return ""
    if not processes.signal(member, signal.SIGUSR2):
        raise UsageError(f"{member.name} is not running; start it, and wait until it is ready")
    end = time.monotonic() + seconds
    while True:
        said = status_of(processes.config, member)
        if not isinstance(said, str) and said.get("leads"):
            return ""
        if time.monotonic() > end:
            return said if isinstance(said, str) else str(said.get("unready") or f"{said.get('leader')} leads")
        time.sleep(POLL)
