"""Reads the logs of a cluster: where they begin and end, their rows, and how far several logs form one order."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from amcast.errors import AmcastError, OutcomeUnknown
from amcast.runtime.client import SyncClient
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Rows
from amcast.runtime.rows import Columns
from amcast.service import connect_sync, load
from amcast.spark.stream.rows import keys_of, record_batch

BATCH_ROWS: Final = 65_536
WAIT_MS: Final = 1_000
BEHIND_ALL: Final = 2**40
Offset = dict[str, int]  # positions by group: of the next row
_clients: dict[tuple[str, str | None], SyncClient] = {}  # of this process


@dataclass(frozen=True)
class ClusterLogs:
    """The logs of a cluster. It is sent to the executors, where each process has one client."""

    path: str
    client_name: str | None
    deadline: float
    on_loss: str  # "fail" or "earliest"
    replica: int = -1  # only this one of each group; else whichever answers

    @cached_property
    def config(self) -> ClusterConfig:
        return load(self.path)

    @property
    def groups(self) -> int:
        return len(self.config.topology.groups)

    def client(self) -> SyncClient:
        known = _clients.get((self.path, self.client_name))
        if known is None:
            known = _clients[self.path, self.client_name] = connect_sync(
                self.path, self.client_name, deadline=self.deadline
            )
        return known

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "config"}

    def read(self, group: str, position: int, wait_ms: int = 0, most_bytes: int = 4 * 2**20) -> Rows:
        """Read from a replica that has rows there, by the deadline. Return the last answer if none has."""
        size = len(self.config.topology.groups[int(group.removeprefix("g"))])
        replica = max(0, self.replica)
        until = time.monotonic() + self.deadline
        while True:
            answer: Rows | None = None
            try:
                answer = self.client().rows(group, position, wait_ms, replica, most_bytes)
            except TimeoutError:
                pass
            late = time.monotonic() > until
            if answer is not None and (answer.rows or not wait_ms or late):
                return answer
            if late:
                raise OutcomeUnknown(f"no replica of {group} answered within {self.deadline:g} s")
            if self.replica < 0:
                replica = (replica + 1) % size

    def ends(self, groups: list[str]) -> Offset:
        return {group: self.read(group, BEHIND_ALL, most_bytes=1).end for group in groups}

    def earliest(self, groups: list[str]) -> Offset:
        return {group: self.read(group, BEHIND_ALL, most_bytes=1).earliest for group in groups}

    def at_time(self, groups: list[str], when: int) -> Offset:
        """Return the first position of each log that was delivered at this time, in ns, or later."""
        earliest, ends = self.earliest(groups), self.ends(groups)
        return {group: self._first_from(group, when, earliest[group], ends[group]) for group in groups}

    def _first_from(self, group: str, when: int, low: int, high: int) -> int:
        while low < high:
            rows = self.read(group, (low + high) // 2, WAIT_MS, 1)
            columns = Columns()
            columns.add(rows.rows, self.groups, 0, BEHIND_ALL)
            times = np.frombuffer(columns.times.getvalue(), "<i8")
            before = int((times < when).sum())
            if before == 0:
                high = min(rows.first, high - 1)
            elif before == columns.count:
                low = max(rows.first + before, low + 1)
            else:
                return min(max(low, rows.first + before), high)
        return low

    def batches(self, group: str, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these positions. Raises AmcastError for rows that are gone, unless they may be left out."""
        number = int(group.removeprefix("g"))
        position = start = first
        columns = Columns()
        while position < end:
            try:
                rows = self.read(group, position, WAIT_MS)
            except AmcastError as gone:
                position = start = self._skip(group, position, gone)
                columns = Columns()
                continue
            if not rows.rows:
                raise OutcomeUnknown(f"{group}: no row at position {position} within {self.deadline:g} s")
            position += columns.add(rows.rows, self.groups, position - rows.first, end - position)
            if columns.count >= BATCH_ROWS:
                yield record_batch(columns, self.config.topology, number, start)
                start = position
                columns = Columns()
        if columns.count:
            yield record_batch(columns, self.config.topology, number, start)

    def _skip(self, group: str, position: int, gone: AmcastError) -> int:
        earliest = self.earliest([group])[group]
        if earliest <= position:
            raise gone
        if self.on_loss == "fail":
            raise AmcastError(
                f"{group}: positions {position} to {earliest - 1} are no longer kept; "
                "start from 'earliest', or leave them out with on_loss=earliest"
            ) from gone
        return earliest

    # Several logs in one order

    def cut(self, start: Offset, ends: Offset) -> Offset:
        """Return how far each log is part of the one order: everything still to come is behind these positions."""
        last = {group: self._key(group, end - 1) for group, end in ends.items() if end > 0}
        if len(last) < len(ends):
            return start  # a log without any row may still begin before all others
        final = min(last.values())
        return {group: self._position_after(group, final, start[group], end) for group, end in ends.items()}

    def after_earliest(self, first: Offset) -> Offset:
        """Return the first place in the one order that all logs still have."""
        ends = self.ends(list(first))
        key = max(self._key(group, position) for group, position in first.items() if position < ends[group])
        return {group: self._position_after(group, key, position, ends[group]) for group, position in first.items()}

    def _key(self, group: str, position: int) -> tuple[int, int]:
        rows = self.read(group, position, WAIT_MS, 1)
        columns = Columns()
        columns.add(rows.rows, self.groups, position - rows.first, 1)
        ts, index = keys_of(columns)
        return int(ts[0]), int(index[0])

    def _position_after(self, group: str, key: tuple[int, int], low: int, high: int) -> int:
        """Find the position behind the last row up to this key, in a log whose keys increase; not below `low`."""
        while low < high:
            rows = self.read(group, (low + high) // 2, WAIT_MS, 1)
            columns = Columns()
            columns.add(rows.rows, self.groups, 0, BEHIND_ALL)
            ts, index = keys_of(columns)
            before = int(((ts < key[0]) | ((ts == key[0]) & (index <= key[1]))).sum())
            if before == 0:
                high = rows.first
            elif before == columns.count:
                low = rows.first + before
            else:
                return min(max(low, rows.first + before), high)
        return low
