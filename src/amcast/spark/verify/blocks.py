"""Tables in blocks: a row of the Spark table is a piece of an Arrow table, packed, with the number of its bucket.

Between tasks only whole pieces move, so that a pass over a table costs what numpy needs for it and not what it costs to
take lists apart and put them together again for every row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from amcast.spark.verify.arrays import Ints, ends_of, stretches

SCHEMA: Final = "bucket int, block binary"
Batches = Iterator[pa.RecordBatch]

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(pieces: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    """Pack pieces with their buckets into one batch of rows."""
    blocks = []
    for _, piece in pieces:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, piece.schema, options=_OPTIONS) as stream:
            stream.write_batch(piece)
        blocks.append(sink.getvalue().to_pybytes())
    buckets = pa.array([bucket for bucket, _ in pieces], pa.int32())
    return pa.RecordBatch.from_arrays([buckets, pa.array(blocks, pa.binary())], names=["bucket", "block"])


def unpack(batches: Batches) -> Batches:
    """Yield the pieces in rows of blocks, one after the other."""
    for batch in batches:
        for block in batch.column("block"):
            yield from pa.ipc.open_stream(block.as_buffer())


def split(piece: pa.RecordBatch, bucket: Ints) -> list[tuple[int, pa.RecordBatch]]:
    """Cut a piece up by the bucket of each row. The order of rows is kept."""
    if not len(bucket):
        return []
    if bucket.min() == bucket.max():
        return [(int(bucket[0]), piece)]
    order = np.argsort(bucket, kind="stable")
    bucket, piece = bucket[order], piece.take(pa.array(order))
    starts = stretches(bucket)
    ends = ends_of(starts, len(bucket))
    return [(int(bucket[start]), piece.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]


def spread(blocks: DataFrame, partitions: int, bucket_of: Callable[[pa.RecordBatch], Ints]) -> DataFrame:
    """Bring the rows of each bucket together. `bucket_of` gives numbers below `partitions`."""

    def cut(batches: Batches) -> Batches:
        for piece in unpack(batches):
            yield pack(split(piece, bucket_of(piece)))

    return blocks.mapInArrow(cut, SCHEMA).repartitionById(partitions, "bucket")


def whole(batches: Batches) -> pa.Table | None:
    """Put all pieces of a task into one table, each column in one piece; None if there are no rows."""
    pieces = [piece for piece in unpack(batches) if piece.num_rows]
    return pa.Table.from_batches(pieces).combine_chunks() if pieces else None


def collect(blocks: DataFrame) -> pa.Table | None:
    """Bring a small table to the driver."""
    return whole(iter(blocks.toArrow().to_batches()))
