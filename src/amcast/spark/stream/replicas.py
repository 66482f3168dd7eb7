"""`format("amcast_replicas")`: what each single replica has delivered, for checks that compare them.

A replica that does not answer has no new rows for now. If it stops in the middle of what was to be read, a row without
a message says that some are missing.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from amcast.errors import AmcastError, UsageError
from amcast.runtime.config import ClusterConfig, Member
from amcast.service import connect_sync
from amcast.spark.stream.log import BEHIND_ALL, ClusterLogs, Offset
from amcast.spark.stream.source import Part, StreamReader, Wanted, wanted
from amcast.tracefile.schema import COLUMN_TYPES

ARROW: Final = pa.schema(
    [(name, COLUMN_TYPES[name]) for name in ("run", "kind", "process", "group", "seq", "time", "message", "dest")]
)
SECONDS_TO_ANSWER: Final = 5.0


def single(w: Wanted, process: str) -> ClusterLogs:
    log = w.log
    return ClusterLogs(log.path, log.client_name, SECONDS_TO_ANSWER, log.on_loss, int(process.rpartition("/")[2]))


def positions(config: ClusterConfig, client_name: str | None) -> Offset:
    """Ask every replica for the position after its last row. Leave out those that do not answer."""
    with connect_sync(config.path, client_name) as client, ThreadPoolExecutor(len(config.members)) as pool:

        def ask(member: Member) -> int | None:
            try:
                return client.rows(f"g{member.group}", BEHIND_ALL, replica=member.rank, most_bytes=1).end
            except TimeoutError:
                return None
            except AmcastError as refused:
                raise UsageError(f"{member.name}: {refused}") from refused

        found = zip(config.members, pool.map(ask, config.members), strict=True)
        return {member.name: end for member, end in found if end is not None}


class ReplicasReader(StreamReader):
    """A reader of the log of every single replica."""

    def __init__(self, w: Wanted) -> None:
        super().__init__(w)
        self._silent: dict[str, float] = {}  # asked again at this time

    def names(self) -> list[str]:
        return [member.name for member in self.wanted.log.config.members if f"g{member.group}" in self.wanted.groups]

    def initialOffset(self) -> dict[str, Any]:
        """Start at the same place of the total order everywhere."""
        log = self.wanted.log
        groups = list(self.wanted.groups)
        first = log.earliest(groups)
        if self.wanted.start == "latest":
            first = log.cut(first, log.ends(groups))
        elif any(first.values()):
            first = log.after_earliest(first)
        return self.named({process: first[process.partition("/")[0]] for process in self.names()})

    def ends(self, start: Offset) -> Offset:
        found = dict(start)
        for process in self.names():
            if self._silent.get(process, 0.0) > time.monotonic():
                continue
            try:
                rows = single(self.wanted, process).read(process.partition("/")[0], BEHIND_ALL, most_bytes=1)
                found[process] = max(found[process], rows.end)
            except (AmcastError, TimeoutError):
                self._silent[process] = time.monotonic() + SECONDS_TO_ANSWER
        return found

    def refuse_others(self, start: Offset) -> None:
        """Accept any members. Those who joined since then are read from where their groups are in the checkpoint."""
        reached: Offset = {}
        for process, position in start.items():
            group = process.partition("/")[0]
            reached[group] = max(reached.get(group, 0), position)
        for process in self.names():
            start.setdefault(process, reached.get(process.partition("/")[0], 0))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        (process,) = partition.end
        group = process.partition("/")[0]
        run = self.wanted.log.config.name
        reached = partition.start[process]
        try:
            for batch in single(self.wanted, process).batches(group, reached, partition.end[process]):
                reached += batch.num_rows
                yield _as_trace(batch, run, process, group)
        except AmcastError:
            row = [[run], ["lost"], [process], [group], [reached], [time.time_ns()], [None], [None]]
            arrays = [pa.array(value, field.type) for value, field in zip(row, ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _as_trace(batch: pa.RecordBatch, run: str, process: str, group: str) -> pa.RecordBatch:
    same = [pa.repeat(value, batch.num_rows) for value in (run, "deliver", process, group)]
    when = pc.multiply(batch["time"].cast(pa.int64()), 1000)
    return pa.RecordBatch.from_arrays(
        [*same, batch["position"], when, batch["message"], batch["dest"]], schema=ARROW
    )  # fmt: skip


class AmcastReplicas(DataSource):
    @classmethod
    def name(cls) -> str:
        return "amcast_replicas"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW)

    def streamReader(self, schema: StructType) -> ReplicasReader:
        return ReplicasReader(wanted(self.options))
