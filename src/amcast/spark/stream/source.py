"""`spark.read.format("amcast")` and `spark.readStream.format("amcast")`: a cluster's ordered logs as rows.

Offsets are positions in each group's log, so a query that continues from its checkpoint neither loses nor repeats a
row, whichever replica answers. With `order=merged` the logs are one: every message comes once, in the total order, and
only when no other message can come before it any more.
"""

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from amcast.errors import UsageError
from amcast.service import load
from amcast.spark.stream.log import BATCH_ROWS, ClusterLogs, Offset
from amcast.spark.stream.rows import ARROW, merged
from amcast.spark.stream.sink import BatchWriter, StreamWriter

ROWS_PER_BATCH: Final = 1_000_000
MERGED_ROWS: Final = 500_000  # of one partition of a batch query
CLUSTER: Final = "cluster"  # in an offset: whose positions these are
OPTIONS: Final = {
    "config": "the cluster.toml of a cluster",
    "client": "the name of a client in it",
    "groups": "all, or names such as g0,g2",
    "start": 'earliest, latest, a time as 2026-03-01T12:00:00Z, or positions as {"g0": 10, "g1": 0}',
    "rows_per_batch": "the most rows of a micro-batch",
    "min_partitions": "read a group in so many tasks at least, all groups together",
    "on_loss": "fail, or earliest to leave out what is no longer kept",
    "order": "group, or merged",
    "deadline": "seconds to wait for an answer",
}


@dataclass(frozen=True)
class Wanted:
    log: ClusterLogs
    groups: tuple[str, ...]
    start: str
    rows: int
    merge: bool
    partitions: int = 1


def wanted(options: MutableMapping[str, str]) -> Wanted:
    """Read the options of a query. Raises UsageError."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"option {unknown[0]!r} of format amcast: expected one of {', '.join(OPTIONS)}")
    if "config" not in options:
        raise UsageError("format amcast needs .option('config', 'path/to/cluster.toml')")
    config = load(options["config"])
    names = [config.topology.group_name(g) for g in config.groups]
    groups = names if options.get("groups", "all") == "all" else [g.strip() for g in options["groups"].split(",")]
    for group in groups:
        if group not in names:
            raise UsageError(f"group {group!r} of option groups: expected some of {', '.join(names)}")
    on_loss = _one_of(options, "on_loss", ("fail", "earliest"))
    deadline = _number(options, "deadline", 30.0)
    log = ClusterLogs(str(options["config"]), options.get("client"), deadline, on_loss)
    rows = int(_number(options, "rows_per_batch", ROWS_PER_BATCH))
    merge = _one_of(options, "order", ("group", "merged")) == "merged"
    partitions = int(_number(options, "min_partitions", 1))
    if merge and partitions > 1:
        raise UsageError("option min_partitions: logs that are merged are read as one; leave it out, or order=merged")
    return Wanted(log, tuple(groups), options.get("start", "earliest"), rows, merge, partitions)


def _one_of(options: MutableMapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0])
    if value not in known:
        raise UsageError(f"option {name} {value!r}: expected {' or '.join(known)}")
    return value


def _number(options: MutableMapping[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = 0
    if not value > 0:
        raise UsageError(f"option {name} {options[name]!r}: expected a number above 0")
    return value


def first_offset(w: Wanted) -> Offset:
    groups = list(w.groups)
    if w.start == "earliest":
        return w.log.earliest(groups)
    if w.start == "latest":
        return w.log.ends(groups)
    when = time_of(w.start)
    if when is not None:
        return w.log.at_time(groups, when)
    try:
        found = json.loads(w.start)
        positions = {str(group): int(position) for group, position in found.items()}
    except (ValueError, AttributeError, TypeError):
        positions = {"": -1}
    if set(positions) != set(groups) or min(positions.values()) < 0:
        expected = json.dumps(dict.fromkeys(groups, 0))
        raise UsageError(
            f"option start {w.start!r}: expected earliest, latest, a time, or a position per group as {expected}"
        )
    return positions


def time_of(text: str) -> int | None:
    """Return a time in nanoseconds, in UTC unless it says otherwise; None if it is none."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def parts_of(start: Offset, end: Offset, least: int) -> "list[Part]":
    """Cut the rows of each log into parts of equal size: so many at least, if there are as many rows."""
    rows = {name: end[name] - start[name] for name in end if end[name] > start[name]}
    size = max(1, sum(rows.values()) // max(1, least))
    parts = []
    for name, count in rows.items():
        pieces = 1 if least <= 1 else -(-count // size)
        cuts = [start[name] + count * number // pieces for number in range(pieces + 1)]
        parts += [Part({name: low}, {name: high}) for low, high in pairwise(cuts)]
    return parts


def limited(start: Offset, ends: Offset, most: int) -> Offset:
    """Share out at most so many rows among the groups that have some."""
    left = {group: max(0, end - start[group]) for group, end in ends.items()}
    found = dict(start)
    while most > 0 and any(left.values()):
        waiting = [group for group, count in left.items() if count]
        share = max(1, most // len(waiting))
        for group in waiting:
            taken = min(share, left[group], most)
            found[group] += taken
            left[group] -= taken
            most -= taken
    return found


def at_least(most: int, w: Wanted) -> int:
    """Allow one row of each group if they are merged: a group without any would hold back the others for ever."""
    return max(most, len(w.groups)) if w.merge else most


class Part(InputPartition):
    """Positions of one group or, if merged, of all groups."""

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


def read(w: Wanted, part: Part) -> Iterator[pa.RecordBatch]:
    found = (batch for group, end in part.end.items() for batch in w.log.batches(group, part.start[group], end))
    yield from merged(list(found)).to_batches(max_chunksize=BATCH_ROWS) if w.merge else found


class BatchReader(DataSourceReader):
    def __init__(self, w: Wanted) -> None:
        self.wanted = w

    def partitions(self) -> Sequence[InputPartition]:
        w = self.wanted
        start = first_offset(w)
        ends = w.log.ends(list(w.groups))
        if not w.merge:
            return parts_of(start, ends, w.partitions) or [Part(start, start)]
        parts: list[Part] = []
        while True:
            end = w.log.cut(start, limited(start, ends, at_least(MERGED_ROWS, w)))
            if end == start:
                return parts or [Part(start, start)]
            parts.append(Part(start, end))
            start = end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read(self.wanted, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of logs by position. `names` says which logs there are: one per group here."""

    def __init__(self, w: Wanted) -> None:
        self.wanted = w
        self._until: Offset | None = None  # of a query that ends when it has what there was at its start
        self._seen: Offset | None = None  # where the logs ended when they were last looked at

    def names(self) -> Sequence[str]:
        return self.wanted.groups

    def ends(self, start: Offset) -> Offset:
        """Return the position after the last row of each log."""
        return self.wanted.log.ends(list(self.wanted.groups))

    def initialOffset(self) -> dict[str, Any]:
        return self.named(first_offset(self.wanted))

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self.ends(dict.fromkeys(self.names(), 0))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.wanted.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        w = self.wanted
        start = self.positions(start)
        ends = self._until or self.ends(start)
        ends = self._seen = {name: max(start[name], end) for name, end in ends.items()}  # a replica may be behind
        if not isinstance(limit, ReadAllAvailable):
            ends = limited(start, ends, at_least(limit.max_rows if isinstance(limit, ReadMaxRows) else w.rows, w))
        return self.named(w.log.cut(start, ends) if w.merge else ends)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Return where the logs end: `latestOffset` in the progress of the query, from which `endOffset` lags."""
        return self._seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        start, end = self.positions(start), self.positions(end)
        if self.wanted.merge:
            return [Part(start, end)]
        return parts_of(start, end, self.wanted.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read(self.wanted, partition)

    def named(self, positions: Offset) -> dict[str, Any]:
        """Return what the checkpoint keeps: positions mean nothing in another cluster."""
        return {**positions, CLUSTER: self.wanted.log.config.name}

    def positions(self, kept: dict[str, Any]) -> Offset:
        """Return the positions that a checkpoint kept. Raises UsageError if it is of another cluster or other logs."""
        here = self.wanted.log.config.name
        cluster = kept.get(CLUSTER, here)  # older ones do not say it
        if cluster != here:
            raise UsageError(f"the checkpoint is of cluster {cluster}, the query of {here}; use another checkpoint")
        found = {name: int(position) for name, position in kept.items() if name != CLUSTER}
        self.refuse_others(found)
        return found

    def refuse_others(self, start: Offset) -> None:
        """Raise UsageError if a checkpoint is of other logs."""
        if set(start) != set(self.names()):
            raise UsageError(
                f"the checkpoint is of {', '.join(sorted(start))}, the query of {', '.join(self.names())}; "
                "use the same groups or another checkpoint"
            )


class AmcastSource(DataSource):
    """The data source "amcast", for reading and writing."""

    @classmethod
    def name(cls) -> str:
        return "amcast"

    def schema(self) -> StructType:
        return from_arrow_schema(ARROW)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(wanted(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(wanted(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(self.options, schema)


def register(spark: Any) -> None:
    """Make the format known to a session that did not find it by itself."""
    spark.dataSource.register(AmcastSource)
