"""How much room there is on the disk of a node, and what follows from that.

A log that cannot grow stops its node. So there is an alarm long before, and a reserve that is kept for what the node
has taken on already: while the reserve is touched, clients are refused. Both end when there is a quarter more room than
where they began, so that they do not come and go with every commit.
"""

from pathlib import Path

from amcast.runtime.log import Log
from amcast.runtime.machine import Machine


class Space:
    """The room on one disk. `measure` runs in the thread of the disk, all else in the event loop."""

    def __init__(self, machine: Machine, folder: Path, log: Log) -> None:
        self.free: int | None = None  # bytes, when last measured
        self.low = False
        self._short = False
        self._files = machine.files
        self._limits = machine.limits
        self._folder = folder
        self._log = log

    def measure(self) -> None:
        self.free = self._files.free(self._folder)

    def look(self) -> None:
        """Act on what was measured: tell operators when it becomes little, less than the reserve, or enough again."""
        if self.free is None:
            return
        before = self.low, self._short
        self.low = self._below(self._limits.alarm, self.low)
        self._short = self._below(self._limits.reserve, self._short)
        if (self.low, self._short) == before:
            return
        if self._short:
            self._log.error("disk full but for the reserve", free=self.free, reserve=self._limits.reserve)
        elif self.low:
            self._log.warning("disk nearly full", free=self.free, reserve=self._limits.reserve)
        else:
            self._log.info("disk has room again", free=self.free)

    def _below(self, level: int, already: bool) -> bool:
        assert self.free is not None
        return self.free < (level + level // 4 if already else level)

    def short(self) -> str | None:
        """Return why nothing else should be taken on; None if there is room."""
        if not self._short:
            return None
        free, reserve = self.free or 0, self._limits.reserve
        return f"{free >> 20} MiB free on its disk, expected at least {reserve >> 20}; make room there"
