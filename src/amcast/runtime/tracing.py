"""A trace of what one process of a cluster does: a file of JSON lines that survives the process.

Lines are handed to the operating system at once, so that a killed process loses none. A process that comes back says
so, and that it crashed after the last thing it wrote; `seq` goes on above all that it used before.

A delivery stands once, however often the replica delivers it, and none is left out: a line says the position that it
has in the log of the group, besides the columns of a trace. A replica that skipped rows, because it took over the state
of another, writes down those that it skipped, as they are kept by itself or others (`filling.py`). Where nobody keeps
them any more, its trace ends, with the row of a crash that says what is missing: whoever reads a trace takes a process
that has delivered something later for one that will never deliver what comes before, and calls that a violation.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from amcast.core.application import place
from amcast.core.topology import Topology, sender_of
from amcast.core.trace import Event
from amcast.core.wire import AppMessage
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.machine import REAL, Machine, write_all
from amcast.runtime.serving import SESSION_BITS

START_SHIFT: Final = 40  # of the count of starts in `seq`
DELIVER: Final = b'"kind":"deliver"'
MISSING: Final = "missing"  # in the detail of the last row of a trace with a hole
OWN: Final = tuple([Topology((1,)).name((1 << SESSION_BITS) - n) for n in (1, 2, 4, 5)])  # of the cluster itself
Row = tuple[AppMessage, int, int]  # with its timestamp, and its place among those with the same


class TraceWriter:
    """Writes the rows of one process behind those of its earlier lives."""

    def __init__(self, path: Path, run: str, process: str, group: str | None, machine: Machine = REAL) -> None:
        self._files = machine.files
        self._clock = machine.clock
        self._files.make_folder(path.parent)
        there = self._files.exists(path)
        self._file = self._files.open(path, append=True)
        self.position = 0  # of the next delivery: those before are there already
        self.starts = 0  # of the process, before this one
        self.stopped = 0  # when it wrote the last row before this start
        self.ended = False  # rows are missing, and nothing else may follow
        if there:
            data = self._files.read(path)
            data = data[: data.rfind(b"\n") + 1]  # a torn row is written again, and does not count
            self._files.truncate(self._file, len(data))
            self.position = next_position(data)
            last = data[:-1].rpartition(b"\n")[2]
            self.stopped = msgspec.json.decode(last)["time"] if last else 0
            self.ended = b'"kind":"crash"' in last and MISSING.encode() in last
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
        if self.ended:
            return
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


def as_one(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of several traces, with each message of the cluster's own once: replicas may all propose it."""
    own: dict[str | None, int] = {}
    for event in events:
        if event.process in OWN:
            if event.message in own:
                continue
            own[event.message] = event.seq = len(own) + 1
        yield event


def next_position(data: bytes) -> int:
    """Return the position behind the last delivery in these lines; 0 if there is none."""
    at = data.rfind(DELIVER)
    if at < 0:
        return 0
    line = data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)]
    position = msgspec.json.decode(line).get("position")
    return position + 1 if isinstance(position, int) else data.count(DELIVER)  # 0.1 wrote none, and left none out


class ReplicaTrace(TraceWriter):
    """The trace of a replica. `position` is that of the next row, `good` that of the next delivery to be traced.

    They are apart while rows are missing that others may have.
    """

    def __init__(self, path: Path, config: ClusterConfig, member: Member, machine: Machine = REAL) -> None:
        super().__init__(path, config.name, member.name, config.topology.group_name(member.group), machine)
        self.good = 0
        self._topology = config.topology
        size = config.size_at_first(member.group)
        self.begin(size - config.spare if member.group < len(config.topology.sizes) else size)

    def recovered(self, position: int) -> None:
        """Go on behind a snapshot of this position. A trace that begins only now begins there."""
        self.good = position
        if not self.starts:
            self.position = position

    @property
    def lacks(self) -> bool:
        """Return whether rows are missing before the next one."""
        return self.position < self.good and not self.ended

    def multicast(self, m: AppMessage) -> None:
        """Trace a message of the cluster's own, which no client multicasts. All who deliver it say so: see `as_one`."""
        sender, dest = self._topology.name(sender_of(m.mid)), [self._topology.group_name(g) for g in m.dest]
        message = self._topology.message_name(m.mid)
        self.row("multicast", process=sender, group=None, message=message, sender=sender, dest=dest)

    def deliver(self, rows: list[Row]) -> None:
        """Trace the next deliveries. While some before them are missing, they are only counted, and come with those."""
        first = self.good
        self.good += len(rows)
        if self.position >= first:
            self.fill(first, rows)

    def fill(self, first: int, rows: list[Row]) -> None:
        """Trace deliveries from this position on, but for those that are traced, or may still be undone."""
        assert first <= self.position, f"rows from {first} on behind {self.position}"
        for m, ts, index in rows[self.position - first : self.good - first]:
            if self._topology.replicas <= sender_of(m.mid) < 1 << SESSION_BITS:
                self.multicast(m)
            when, tie = place(self._topology, ts, index)
            ordered = {"time": when, "tie": tie}
            self.row("deliver", message=self._topology.message_name(m.mid), ts=ordered, position=self.position)
            self.position += 1
        self.flush()

    def end(self, first_kept: int) -> None:
        """End this trace for good: nobody has the rows from its position up to this one."""
        detail = json.dumps({MISSING: {"from": self.position, "to": first_kept}})
        self.row("crash", detail=detail)
        self.flush()
        self.ended = True
