"""The stream's source and sink without Spark: every row once and in its place, with limits that are crossed."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

from amcast.core.order import timestamp
from amcast.core.topology import message_id
from amcast.core.wire import AppMessage, joined
from amcast.errors import OutcomeUnknown, UsageError
from amcast.local.files import create_cluster
from amcast.protocols import protocol
from amcast.runtime.config import ClusterConfig
from amcast.runtime.frames import Rows
from amcast.runtime.history import History
from amcast.spark.stream import log, replicas, sink, source
from amcast.spark.stream.log import ClusterLogs

CLIENT = 4096  # a number behind all replicas that there may ever be
Row = tuple[str, int, str, bytes]


class Logs:
    """Two groups' logs as a replica keeps them, in blocks of any size, and the rows that a reader has to get."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.of = {"g0": History(None), "g1": History(None)}
        self.rows: dict[str, list[Row]] = {"g0": [], "g1": []}
        self.order: list[str] = []  # of all messages
        self.late: list[tuple[AppMessage, int]] = []  # that g1 has still to deliver
        self.clock = 0

    def grow(self, count: int) -> None:
        """So many multicasts more; g1 is behind."""
        for _ in range(count):
            self.clock += 1
            dest = self.chance.choice([(0,), (1,), (0, 1)])
            size = self.chance.choice([1, 1, 1, 4])
            first = 10 * self.clock
            payloads = [b"%d" % (first + i) for i in range(size)]
            payload = payloads[0] if size == 1 else joined(payloads)
            m = AppMessage(message_id(CLIENT, first), dest, payload, 0, size)
            ts = timestamp(self.clock, dest[0])
            self.order += [f"c1000:{first + i}" for i in range(size)]
            if 0 in dest:
                self._deliver("g0", m, ts)
            if 1 in dest:
                self.late.append((m, ts))
        for _ in range(self.chance.randint(0, len(self.late))):
            self._deliver("g1", *self.late.pop(0))

    def _deliver(self, group: str, m: AppMessage, ts: int) -> None:
        self.of[group].append([(m, ts)], 1000 * self.clock)
        for one in m.messages():
            rows = self.rows[group]
            rows.append((group, len(rows), f"c1000:{one.payload.decode()}", one.payload))

    def read(self, _: ClusterLogs, group: str, position: int, wait_ms: int = 0, most_bytes: int = 2**22) -> Rows:
        """A few blocks at a time."""
        kept = self.of[group]
        first, after, rows = kept.read(position, self.chance.choice([1, 60, 300]))
        return Rows(0, first, after, kept.earliest, kept.end, rows)


def serve(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterLogs, "read", lambda log, *rest, **named: logs.read(log, *rest, **named))


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return create_cluster(tmp_path / "c", protocol("white_box"), 2, 3, "log", secure=False)


@pytest.fixture(params=range(8))
def logs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs(request.param)
    serve(made, monkeypatch)
    monkeypatch.setattr(log, "BATCH_ROWS", request.param + 1)
    monkeypatch.setattr(source, "BATCH_ROWS", request.param + 1)
    monkeypatch.setattr(source, "MERGED_ROWS", 3 * request.param + 1)
    return made


def plain(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    names = ("group", "position", "message", "payload")
    return [tuple(row[name] for name in names) for batch in batches for row in batch.to_pylist()]


def wanted(config: ClusterConfig, **options: str) -> source.Wanted:
    return source.wanted({"config": str(config.path), **options})


def test_a_batch_has_every_row_once(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(60)
    reader = source.BatchReader(wanted(config))
    found = [row for part in reader.partitions() for row in plain(reader.read(part))]
    assert found == logs.rows["g0"] + logs.rows["g1"] and len(found) > 40


def test_any_stretch_of_a_log(config: ClusterConfig, logs: Logs) -> None:
    """Also one that begins and ends in the middle of a block, and of a run."""
    logs.grow(40)
    reader = wanted(config).log
    rows = logs.rows["g0"]
    for _ in range(30):
        first = logs.chance.randrange(len(rows))
        end = logs.chance.randint(first, len(rows))
        assert plain(reader.batches("g0", first, end)) == rows[first:end]


def streamed(reader: source.StreamReader, logs: Logs, steps: int = 15) -> Iterator[list[Row]]:
    """Micro-batches while the logs grow, and until nothing is left."""
    start = reader.initialOffset()
    while True:
        if steps:
            logs.grow(logs.chance.randint(0, 8))
            steps -= 1
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start and not steps:
            return
        yield [row for part in reader.partitions(start, end) for row in plain(reader.read(part))]
        start = end


def test_micro_batches_have_every_row_once(config: ClusterConfig, logs: Logs) -> None:
    reader = source.StreamReader(wanted(config, rows_per_batch="7"))
    batches = list(streamed(reader, logs))
    assert max(map(len, batches)) == 7
    for group, rows in logs.rows.items():
        assert [row for batch in batches for row in batch if row[0] == group] == rows


@pytest.mark.parametrize("most", ["1", "9"])
def test_the_merged_order_waits_for_the_group_that_is_behind(config: ClusterConfig, logs: Logs, most: str) -> None:
    reader = source.StreamReader(wanted(config, rows_per_batch=most, order="merged"))
    logs.grow(20)
    while not logs.rows["g1"]:
        logs.grow(1)
    found = [message for batch in streamed(reader, logs) for _, _, message, _ in batch]
    assert found == logs.order[: len(found)], "each once, in the total order, none left out"
    ends = [logs.order.index(rows[-1][2]) for rows in logs.rows.values()]
    assert len(found) == min(ends) + 1, "all that is final"


def test_the_merged_order_of_a_batch(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(60)
    reader = source.BatchReader(wanted(config, order="merged"))
    found = [row[2] for part in reader.partitions() for row in plain(reader.read(part))]
    ends = [logs.order.index(rows[-1][2]) for rows in logs.rows.values()]
    assert found == logs.order[: min(ends) + 1]


def test_an_empty_log_holds_the_merged_order_back(config: ClusterConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(1)
    logs._deliver("g0", AppMessage(message_id(CLIENT, 1), (0,), b"1"), timestamp(5, 0))
    serve(logs, monkeypatch)
    reader = source.StreamReader(wanted(config, order="merged"))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(9)) == start


@pytest.mark.parametrize("least", [1, 2, 5, 1000])
def test_a_group_is_read_in_as_many_parts_as_asked_for(config: ClusterConfig, logs: Logs, least: int) -> None:
    logs.grow(60)
    asked = wanted(config, min_partitions=str(least))
    reader, stream = source.BatchReader(asked), source.StreamReader(asked)
    start = stream.initialOffset()
    rows = logs.rows["g0"] + logs.rows["g1"]
    for parts in (reader.partitions(), stream.partitions(start, stream.latestOffset(start, ReadMaxRows(10**6)))):
        assert [row for part in parts for row in plain(reader.read(part))] == rows
        assert min(least, len(rows)) <= len(parts) <= least + 2
        sizes = [end - part.start[name] for part in parts for name, end in part.end.items()]  # type: ignore[attr-defined]
        assert least == 1 or max(sizes) <= max(1, len(rows) // least) + 1, "and even"


def test_a_merged_order_is_not_read_in_parts(config: ClusterConfig) -> None:
    with pytest.raises(UsageError, match="option min_partitions: logs that are merged are read as one"):
        wanted(config, min_partitions="2", order="merged")


def test_a_query_begins_at_a_time(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(60)
    logs.clock = 10**6
    logs.grow(5)
    for micros in (0, 1, logs.chance.randrange(60), 60, 999_999, 10**6 + 5, 2 * 10**6):
        text = datetime.fromtimestamp(micros / 1e6, UTC).isoformat()
        start = source.first_offset(wanted(config, start=text))
        for group, rows in logs.rows.items():
            times = [
                row["time"] for batch in wanted(config).log.batches(group, 0, len(rows)) for row in batch.to_pylist()
            ]
            when = datetime.fromtimestamp(micros / 1e6, UTC)
            assert start[group] == sum(time < when for time in times)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01", 10**9),
        ("1970-01-01T01:00:00.000001+01:00", 1000),
        ("earliest", None),
        ('{"g0": 1}', None),
    ],
)
def test_a_time_is_in_utc_unless_it_says_otherwise(text: str, nanoseconds: int | None) -> None:
    assert source.time_of(text) == nanoseconds


def test_the_progress_of_a_query_says_where_the_logs_end(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(40)
    reader = source.StreamReader(wanted(config, rows_per_batch="3"))
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    assert sum(reader.positions(end).values()) == 3 and reader.reportLatestOffset() == {
        name: len(of) for name, of in logs.rows.items()
    }


@pytest.mark.parametrize("reader_of", [source.StreamReader, replicas.ReplicasReader])
def test_a_checkpoint_of_another_cluster_is_refused(
    reader_of: type[source.StreamReader], config: ClusterConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = Logs(1)
    logs.grow(10)
    serve(logs, monkeypatch)
    reader = reader_of(wanted(config))
    kept = json.loads(json.dumps(reader.initialOffset()))
    end = reader.latestOffset(kept, ReadMaxRows(9))
    assert reader.partitions(kept, end)
    other = reader_of(wanted(create_cluster(tmp_path / "o", protocol("white_box"), 2, 3, "log", secure=False)))
    for refused in (lambda: other.latestOffset(kept, ReadMaxRows(9)), lambda: other.partitions(kept, end)):
        with pytest.raises(UsageError, match=f"^the checkpoint is of cluster {config.name}, the query of amcast-"):
            refused()
    old = {name: position for name, position in kept.items() if name != source.CLUSTER}
    assert other.latestOffset(old, ReadMaxRows(9))[source.CLUSTER] != config.name, "older ones do not say it"


# What single replicas have


def replica_rows(reader: replicas.ReplicasReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def test_every_replica_is_read_row_by_row(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(30)
    reader = replicas.ReplicasReader(wanted(config, rows_per_batch="11"))
    start = reader.initialOffset()
    found: list[dict[str, Any]] = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found += replica_rows(reader, start, end)
        start = end
    assert {row["process"] for row in found} == {member.name for member in config.members}
    for member in config.members:
        mine = [(row["group"], row["seq"], row["message"]) for row in found if row["process"] == member.name]
        assert mine == [row[:3] for row in logs.rows[f"g{member.group}"]]


def test_a_member_that_joined_after_a_checkpoint_is_read_from_there(config: ClusterConfig, logs: Logs) -> None:
    logs.grow(30)
    reader = replicas.ReplicasReader(wanted(config))
    kept = reader.latestOffset(reader.initialOffset(), ReadMaxRows(90))
    del kept["g0/2"]
    reached = kept["g0/0"]
    logs.grow(30)
    end = reader.latestOffset(kept, ReadMaxRows(10**6))
    rows = [row for row in replica_rows(reader, kept, end) if row["process"] == "g0/2"]
    assert [row["seq"] for row in rows] == list(range(reached, len(logs.rows["g0"])))


def test_a_replica_that_stops_in_the_middle_is_told(
    config: ClusterConfig, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.grow(30)

    def read(self: ClusterLogs, group: str, position: int, wait_ms: int = 0, most_bytes: int = 2**22) -> Rows:
        if position >= 5 and self.replica == 1:
            raise OutcomeUnknown("no answer")
        return logs.read(self, group, position, wait_ms, most_bytes)

    monkeypatch.setattr(ClusterLogs, "read", read)
    reader = replicas.ReplicasReader(wanted(config))
    end = len(logs.rows["g0"])
    rows = replica_rows(reader, {"g0/0": 0, "g0/1": 0}, {"g0/0": end, "g0/1": end})
    assert {row["kind"] for row in rows if row["process"] == "g0/0"} == {"deliver"}
    mine = [row for row in rows if row["process"] == "g0/1"]
    assert [row["seq"] for row in mine] == list(range(len(mine))), "the last one says from where on rows are missing"
    assert [row["kind"] for row in mine] == ["deliver"] * (len(mine) - 1) + ["lost"] and mine[-1]["message"] is None


# The sink


class Multicasts:
    """A cluster that delivers what has a new number in its session."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.delivered: list[tuple[tuple[int, ...], bytes]] = []

    def connect(self, path: str, name: str | None, *, deadline: float, session: int, first: int) -> "Session":
        return Session(self, session, first)


class Session:
    def __init__(self, to: Multicasts, session: int, first: int) -> None:
        self.to = to
        self.session = session
        self.number = first

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def multicast_batches(self, runs: Iterator[sink.ClientBatch]) -> None:
        for dest, payloads in runs:
            assert 0 < len(payloads) <= sink.BATCH_ROWS
            for payload in payloads:
                if (self.session, self.number) not in self.to.seen:
                    self.to.seen.add((self.session, self.number))
                    self.to.delivered.append((dest, payload))
                self.number += 1


@pytest.mark.parametrize("most_rows", [1, 2, 3, 7])
@pytest.mark.parametrize("most_bytes", [1, 20, 2**16])
def test_a_sink_multicasts_every_row_once(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch, most_rows: int, most_bytes: int
) -> None:
    """Whatever is tried again: tasks of any partition and micro-batch."""
    cluster = Multicasts()
    task: dict[str, int] = {}
    properties = {"sql.streaming.queryId": lambda: "q", "streaming.sql.batchId": lambda: str(task["batch"])}
    context = SimpleNamespace(partitionId=lambda: task["part"], getLocalProperty=lambda name: properties[name]())
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(sink, "connect_sync", cluster.connect)
    monkeypatch.setattr(sink, "BATCH_ROWS", most_rows)
    monkeypatch.setattr(sink, "BATCH_BYTES", most_bytes)
    columns = StructType().add("dest", ArrayType(StringType())).add("payload", BinaryType())
    writer = sink.StreamWriter({"config": str(config.path)}, columns)
    chance = random.Random(most_rows)
    sent = []
    for batch in range(3):
        for part in range(2):
            task = {"batch": batch, "part": part}
            dest = [chance.choice([["g0"], ["g1"], ["g1", "g0"]]) for _ in range(20)]
            payload = [b"%d %d %d" % (batch, part, row) for row in range(20)]
            rows = pa.RecordBatch.from_pydict({"dest": dest, "payload": payload})
            sent += [(tuple(sorted(int(g[1:]) for g in to)), what) for to, what in zip(dest, payload, strict=True)]
            writer.write(iter([rows.slice(0, 9)]))  # cut off
            writer.write(iter([rows.slice(0, 9), rows.slice(9)]))
            writer.write(iter([rows]))
    assert cluster.delivered == sent
