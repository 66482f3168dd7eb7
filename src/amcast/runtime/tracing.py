"""A trace of what one process of a cluster does: a file of JSON lines that survives the process.

Lines are handed to the operating system at once, so that a killed process loses none. A process that comes back says
so, and that it crashed after the last thing it wrote; `seq` goes on above all that it used before.
"""

from pathlib import Path
from typing import Final

import msgspec

from amcast.core.application import place
from amcast.core.topology import sender_of
from amcast.core.wire import AppMessage
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.machine import REAL, Machine, write_all

START_SHIFT: Final = 40  # of the count of starts in `seq`


class TraceWriter:
    """Writes the rows of one process behind those of its earlier lives."""

    def __init__(self, path: Path, run: str, process: str, group: str | None, machine: Machine = REAL) -> None:
        self._files = machine.files
        self._clock = machine.clock
        self._files.make_folder(path.parent)
        there = self._files.exists(path)
        self._file = self._files.open(path, append=True)
        self.deliveries = 0  # rows that are there already
        self.starts = 0  # of the process, before this one
        self.stopped = 0  # when it wrote the last row before this start
        if there:
            data = self._files.read(path)
            data = data[: data.rfind(b"\n") + 1]  # a torn row is written again, and does not count
            self._files.truncate(self._file, len(data))
            self.deliveries = data.count(b'"kind":"deliver"')
            last = data[:-1].rpartition(b"\n")[2]
            self.stopped = msgspec.json.decode(last)["time"] if last else 0
            self.starts = data.count(b'"kind":"start"') + data.count(b'"kind":"restart"')
        self._same: dict[str, object] = {"run": run, "process": process, "group": group}
        self._seq = self.starts << START_SHIFT
        self._lines: list[bytes] = []

    def begin(self, members: int) -> None:
        """Write the first row; or, if there was a life before, its end and the start of this one.

        The first row says how many members the group has, so that a trace without some of them does not look whole.
        """
        if self.starts:
            self.row("crash", time=self.stopped)
            self.row("restart")
        else:
            self.row("start", detail=f'{{"members": {members}}}')

    def row(self, kind: str, **columns: object) -> None:
        self._seq += 1
        row = {"kind": kind, **self._same, "seq": self._seq, "time": self._clock.wall_ns(), **columns}
        self._lines.append(msgspec.json.encode(row))

    def flush(self) -> None:
        if self._lines:
            data = b"\n".join(self._lines) + b"\n"
            self._lines.clear()
            write_all(self._files, self._file, data)

    def close(self) -> None:
        self.flush()
        self._files.close(self._file)


class ReplicaTrace(TraceWriter):
    """The trace of a replica, in which each delivery stands once, however often the replica delivers it."""

    def __init__(self, path: Path, config: ClusterConfig, member: Member, machine: Machine = REAL) -> None:
        super().__init__(path, config.name, member.name, config.topology.group_name(member.group), machine)
        self.position = 0  # of the next delivery; what is before `deliveries` was traced in an earlier life
        self._topology = config.topology
        self.begin(len(config.topology.groups[member.group]) - config.spare)

    def multicast(self, m: AppMessage) -> None:
        """Trace a message of the cluster's own, which no client multicasts."""
        sender, dest = self._topology.name(sender_of(m.mid)), [self._topology.group_name(g) for g in m.dest]
        self.row("multicast", message=self._topology.message_name(m.mid), sender=sender, dest=dest)

    def deliver(self, rows: list[tuple[AppMessage, int, int]]) -> None:
        """Trace messages with their timestamps and their places among those with the same timestamp."""
        for m, ts, index in rows:
            if self.position >= self.deliveries:
                when, tie = place(self._topology, ts, index)
                self.row("deliver", message=self._topology.message_name(m.mid), ts={"time": when, "tie": tie})
            self.position += 1
        self.flush()
