"""`df.write.format("amcast")` and `df.writeStream.format("amcast")`: every row is a multicast, exactly once.

The id of a message follows from query, partition, micro-batch and row. So a task that Spark runs again, even after the
driver died, asks for the same messages, and nothing is delivered twice. That holds as long as the rows of a partition
come in the same order again.
"""

import secrets
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

from amcast.errors import UsageError
from amcast.runtime.config import ClusterConfig
from amcast.service import connect_sync, load

ROW_BITS: Final = 24  # of a message number: the row; above it the micro-batch
BATCH_ROWS: Final = 256
BATCH_BYTES: Final = 64 * 1024
OPTIONS: Final = ("config", "client", "deadline", "checkpointlocation", "path")
ClientBatch = tuple[tuple[int, ...], list[bytes]]


class Sink:
    """The common part of the batch and the stream writer."""

    def __init__(self, options: MutableMapping[str, str], schema: StructType) -> None:
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise UsageError(f"option {unknown[0]!r} of format amcast: expected config, client or deadline")
        if "config" not in options:
            raise UsageError("format amcast needs .option('config', 'path/to/cluster.toml')")
        kinds = {field.name: field.dataType for field in schema.fields}
        if set(kinds) != {"dest", "payload"}:
            raise UsageError(f"columns {', '.join(kinds)}: expected dest (groups) and payload")
        if kinds["dest"] not in (ArrayType(StringType()), ArrayType(StringType(), containsNull=False)):
            raise UsageError(f"column dest is {kinds['dest'].simpleString()}: expected array<string>")
        if not isinstance(kinds["payload"], BinaryType | StringType):
            raise UsageError(f"column payload is {kinds['payload'].simpleString()}: expected binary or string")
        self.path = options["config"]
        self.name = options.get("client")
        self.deadline = float(options.get("deadline", 60))
        load(self.path)

    def send(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> None:
        context = TaskContext.get()
        assert context is not None
        number = int.from_bytes(sha256(f"{query}/{context.partitionId()}".encode()).digest()[:8])
        config = load(self.path)
        with connect_sync(
            self.path, self.name, deadline=self.deadline, session=number, first=batch << ROW_BITS
        ) as client:
            client.multicast_batches(client_batches(batches, config))


def client_batches(batches: Iterator[pa.RecordBatch], config: ClusterConfig) -> Iterator[ClientBatch]:
    """Group consecutive rows to the same groups into client batches, which travel together."""
    known = {config.topology.group_name(g): g for g in config.groups}
    dest: tuple[int, ...] = ()
    payloads: list[bytes] = []
    size = row = 0
    for batch in batches:
        column = batch["payload"].cast(pa.binary())
        for groups, payload in zip(batch["dest"].to_pylist(), column.to_pylist(), strict=True):
            wanted = _groups(groups, known, row)
            if payload is None or len(payload) > config.largest_message:
                seen = "null" if payload is None else f"{len(payload)} bytes"
                raise UsageError(f"payload of row {row}: {seen}, expected at most {config.largest_message} bytes")
            if payloads and (wanted != dest or len(payloads) == BATCH_ROWS or size + len(payload) > BATCH_BYTES):
                yield dest, payloads
                payloads, size = [], 0
            dest = wanted
            payloads.append(payload)
            size += len(payload)
            row += 1
            if row >> ROW_BITS:
                raise UsageError(f"more than {1 << ROW_BITS} rows in one partition; repartition")
    if payloads:
        yield dest, payloads


def _groups(names: list[str] | None, known: dict[str, int], row: int) -> tuple[int, ...]:
    wrong = [name for name in names or () if name not in known]
    if not names or wrong:
        raise UsageError(f"dest of row {row}: {wrong[0] if wrong else names!r}, expected some of {', '.join(known)}")
    return tuple(sorted({known[name] for name in names}))


class BatchWriter(Sink, DataSourceArrowWriter):
    def __init__(self, options: MutableMapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema)
        if overwrite:
            raise UsageError("mode overwrite: what is in an ordered log stays; use mode append")
        self.query = secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.send(iterator, self.query, 0)
        return WriterCommitMessage()


class StreamWriter(Sink, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None and batch is not None
        self.send(iterator, query, int(batch))
        return WriterCommitMessage()
