"""Tables in pieces: what the properties are judged with, in this process or in tasks on a cluster.

A table is divided into partitions, and a partition into pieces (Arrow record batches). A step turns the pieces of one
partition into others. `Here` keeps all pieces in this process; on Spark each partition is worked on by a task
(`amcast.spark.verify`). The properties know only `Pieces`, so their verdicts are the same wherever they are judged.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain

import numpy as np
import pyarrow as pa

from amcast.verify.arrays import Ints, ends_of, stretches

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]


class Pieces(ABC):
    """A table in pieces. Nothing is computed before it is collected, spread or kept."""

    @abstractmethod
    def each(self, step: Step) -> "Pieces":
        """Apply a step to the pieces of each partition."""

    @abstractmethod
    def spread(self, partitions: int, bucket_of: Callable[[pa.RecordBatch], Ints]) -> "Pieces":
        """Bring the rows of each bucket together. `bucket_of` gives numbers below `partitions`."""

    @abstractmethod
    def collect(self) -> pa.Table | None:
        """Bring a small table to the driver; None if it has no rows."""

    @abstractmethod
    def kept(self) -> AbstractContextManager["Pieces"]:
        """Compute the table once, when it is first used, and keep it for the time of the block."""


class Here(Pieces):
    """Pieces in this process."""

    def __init__(self, partitions: Callable[[], Iterator[Batches]]) -> None:
        self._partitions = partitions

    @staticmethod
    def of(partitions: Sequence[Sequence[pa.RecordBatch]]) -> "Here":
        return Here(lambda: (iter(pieces) for pieces in partitions))

    def each(self, step: Step) -> "Here":
        return Here(lambda: (step(pieces) for pieces in self._partitions()))

    def spread(self, partitions: int, bucket_of: Callable[[pa.RecordBatch], Ints]) -> "Here":
        if partitions == 1:
            return Here(lambda: iter([chain.from_iterable(self._partitions())]))
        buckets: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        for piece in chain.from_iterable(self._partitions()):
            for bucket, rows in split(piece, bucket_of(piece)):
                buckets[bucket].append(rows)
        return Here.of(buckets)

    def collect(self) -> pa.Table | None:
        return whole(chain.from_iterable(self._partitions()))

    @contextmanager
    def kept(self) -> Iterator["Here"]:
        yield Here.of([list(pieces) for pieces in self._partitions()])


def split(piece: pa.RecordBatch, bucket: Ints) -> list[tuple[int, pa.RecordBatch]]:
    """Cut a piece up by the bucket of each row. The order of rows is kept."""
    if not len(bucket):
        return []
    if bucket.min() == bucket.max():
        return [(int(bucket[0]), piece)]
    # Few numbers of 16 bits are sorted by counting them.
    order = np.argsort(bucket.astype(np.uint16) if bucket.max() < 2**16 else bucket, kind="stable")
    bucket, piece = bucket[order], piece.take(pa.array(order))
    starts = stretches(bucket)
    ends = ends_of(starts, len(bucket))
    return [(int(bucket[start]), piece.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]


def whole(batches: Batches) -> pa.Table | None:
    """Put all pieces of a partition into one table, each column in one piece; None if there are no rows."""
    pieces = [piece for piece in batches if piece.num_rows]
    return pa.Table.from_batches(pieces).combine_chunks() if pieces else None
