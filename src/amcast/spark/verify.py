"""Verification on Spark: `amcast.verify`, its pieces worked on by tasks.

Parquet files are not read by the JVM: a task gets the names of files and row groups, reads them with pyarrow and sends
packed columns to the shuffle. Runs of at most a million rows go to a task as a whole, which judges them by itself. The
messages of larger ones are spread over tasks, and the driver puts together what they find.

A task holds a table of rows (`ROWS_AT_A_TIME`) while it reads, and one bucket of about ROWS_PER_BUCKET rows while it
judges: some 300 MB. The driver holds the summaries: some hundred bytes for each process, kind and row group, and from
one bit to four bytes for each event.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amcast.checks import Verdict, known_properties
from amcast.errors import TraceError
from amcast.places import Place, place_of
from amcast.spark.tables import BAD_LINE, read_rows, refuse_what_is_no_trace, spark_errors
from amcast.tracefile.columns import Columns
from amcast.tracefile.parts import (
    Part,
    fault_in,
    parts_of,
    read_part,
    rows_where,
    runs_in,
    sizes_of_runs,
    table_of_rows,
)
from amcast.verify.arrays import Ints
from amcast.verify.examples import Choose, refused, verdicts_of
from amcast.verify.gather import FACT, FACTS_BUCKET, REFUSED, Gathered, gather, what
from amcast.verify.judgement import FoundOfRun, Plan, judge, refuse
from amcast.verify.pieces import Batches, Here, Pieces, Step, split, whole

__all__ = ["MOST_ROWS_IN_A_TASK", "Division", "verify_rows", "verify_trace"]

MOST_ROWS_IN_A_TASK: Final = 1_000_000
ROWS_PER_BUCKET: Final = 1_000_000
BLOCKS: Final = "bucket int, block binary"
_BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_PACKED: Final = pa.ipc.IpcWriteOptions(compression="lz4")

Tables = Iterator[pa.Table]
Work = Callable[[Tables], Iterator[Gathered]]


@dataclass(frozen=True)
class Division:
    """How the work is divided. Tests divide it more finely."""

    in_a_task: int = MOST_ROWS_IN_A_TASK  # a run of so many rows is judged by one task
    rows_per_bucket: int = ROWS_PER_BUCKET
    rows_per_part: int = ROWS_PER_BUCKET  # that a task reads


def verify_trace(
    spark: SparkSession,
    path: str,
    properties: Sequence[str] | None = None,
    *,
    columns: Columns | None = None,
    trust_nothing: bool = False,
    watch: Callable[[str], None] = lambda step: None,
    division: Division | None = None,
) -> list[Verdict]:
    """Judge every run of a trace, in the order of their names. `properties` are those of `amcast.checks.check`.

    `columns` maps the column names of another system. `trust_nothing` does not use timestamps even as a certificate
    that is checked. `watch` is told what is being done. Raises TraceError and UsageError.
    """
    plan = Plan(None if properties is None else known_properties(properties), trust_nothing, watch=watch)
    watch("opening the trace")
    theirs, division = columns or {}, division or Division()
    place = place_of(path)
    if is_parquet(place):
        parts = parts_of(place, theirs)
        return _verdicts(_Parts(spark, path, parts, theirs, division.rows_per_part), plan, division)
    refuse_what_is_no_trace(path, columns)
    return verify_rows(read_rows(spark, path, columns), path, plan, division)


def verify_rows(rows: DataFrame, path: str, plan: Plan, division: Division | None = None) -> list[Verdict]:
    """Judge rows that `read_rows` gave."""
    return _verdicts(_Rows(rows, path), plan, division or Division())


def is_parquet(place: Place) -> bool:
    """Return whether a place is a folder or file of Parquet."""
    return place.is_dir() or (place.suffix == ".parquet" and place.exists())


def _verdicts(trace: "_Rows | _Parts", plan: Plan, division: Division) -> list[Verdict]:
    with spark_errors(trace.path), _batches_counted_in_rows(trace.spark):
        try:
            sizes = trace.sizes(division.in_a_task)
            large = {run for run, rows in sizes.items() if rows > division.in_a_task}
            small = {run for run in sizes if run not in large}
            found: list[FoundOfRun] = []
            for judged, runs in ((_judged_by_message, large), (_judged_by_run, small)):
                if runs:
                    only = None if len(runs) == len(sizes) else runs
                    found += judged(trace, only, sum(sizes[run] for run in runs), plan, division)
            return verdicts_of(found, trace.fetch)
        except TraceError as error:
            raise refused(trace.path, error) from None


def _judged_by_message(
    trace: "_Rows | _Parts", runs: set[str] | None, rows: int, plan: Plan, division: Division
) -> list[FoundOfRun]:
    """Judge large runs: their messages are spread over tasks."""
    buckets = max(trace.cores, -(-rows // division.rows_per_bucket))
    plan = replace(plan, partitions=buckets)
    plan.watch("reading the trace")
    work = partial(gather, buckets=buckets, with_traffic=plan.with_traffic)
    with _persisted(trace.scan(work, runs)) as gathered:
        facts = list(unpack(gathered.where(F.col("bucket") == FACTS_BUCKET).toArrow().to_batches()))
        refuse(facts)
        messages = gathered.where(F.col("bucket") != FACTS_BUCKET).repartitionById(buckets, "bucket")
        return judge(pa.Table.from_batches(facts).combine_chunks(), OnSpark(messages), plan)


def _judged_by_run(
    trace: "_Rows | _Parts", runs: set[str] | None, rows: int, plan: Plan, division: Division
) -> list[FoundOfRun]:
    """Judge small runs: all rows of a run go to one task."""
    plan.watch("judging small runs")
    buckets = max(
        1 if runs is None and rows <= division.in_a_task // 4 else trace.cores, -(-rows // division.in_a_task)
    )
    asked = Plan(plan.properties, plan.trust_nothing, places_per_block=plan.places_per_block)
    work = partial(gather, buckets=buckets, with_traffic=plan.with_traffic, by_run=True)
    together = OnSpark(trace.scan(work, runs).repartitionById(buckets, "bucket"))
    answers = together.each(partial(_judged_in_task, asked)).collect()
    assert answers is not None, "there are rows, and there are none"
    refuse_all = [error for error in answers["error"].to_pylist() if error is not None]
    if refuse_all:
        raise TraceError(min(refuse_all))
    decode = msgspec.msgpack.Decoder(list[FoundOfRun]).decode
    return [found for answer in answers["found"].to_pylist() for found in decode(answer)]


def _judged_in_task(plan: Plan, batches: Batches) -> Batches:
    pieces = list(batches)
    if not pieces:
        return
    found, error = b"", None
    try:
        refuse(pieces)
        facts = pa.Table.from_batches([piece for piece in pieces if what(piece) == FACT]).combine_chunks()
        messages = [piece for piece in pieces if what(piece) not in (FACT, REFUSED)]
        found = msgspec.msgpack.encode(judge(facts, Here.of([messages]), plan))
    except TraceError as refusal:
        error = str(refusal)
    yield pa.record_batch({"found": pa.array([found], pa.binary()), "error": pa.array([error], pa.string())})


# ---------------------------------------------------------------- where rows come from


class _Parts:
    """Row groups of Parquet files, which tasks read with pyarrow."""

    def __init__(self, spark: SparkSession, path: str, parts: list[Part], columns: Columns, rows_per_part: int) -> None:
        self.spark, self.path, self.columns = spark, path, columns
        self.cores = spark.sparkContext.defaultParallelism
        self.tasks = list(_even(parts, rows_per_part, self.cores))

    def sizes(self, small: int) -> dict[str, int]:
        parts = [part for of_task in self.tasks for part in of_task]
        known = sizes_of_runs(parts)
        if known is not None:
            return known
        if sum(part.rows for part in parts) <= small:
            return {"": sum(part.rows for part in parts)}
        columns = self.columns
        found = self._each(lambda part: [(0, runs_in(part, columns))], None)
        counts = whole(unpack(found.toArrow().to_batches()))
        assert counts is not None, "there are parts, and no rows"
        summed = counts.group_by("run").aggregate([("rows", "sum")]).to_pylist()
        return {str(row["run"]): row["rows_sum"] for row in summed}

    def scan(self, work: Work, runs: set[str] | None) -> DataFrame:
        columns = self.columns

        def read(part: Part) -> Iterator[Gathered]:
            return work(_of_runs(read_part(part, columns), None if part.run is not None else runs))

        return self._each(read, runs)

    def fetch(self, choose: Choose) -> list[dict[str, Any]]:
        columns = self.columns

        def read(part: Part) -> Iterator[Gathered]:
            for table in rows_where(part, columns, choose):
                yield from ((0, piece) for piece in table.to_batches())

        found = whole(unpack(self._each(read, None).toArrow().to_batches()))
        return [] if found is None else found.to_pylist()

    def _each(self, read: Callable[[Part], Iterable[Gathered]], runs: set[str] | None) -> DataFrame:
        tasks = [[part for part in of if runs is None or part.run is None or part.run in runs] for of in self.tasks]
        tasks = [of for of in tasks if of]

        def run(batches: Batches) -> Batches:
            pa.set_cpu_count(1)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for part in tasks[number]:
                        for bucket, piece in read(part):
                            yield packed(bucket, piece)

        return self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, BLOCKS)


def _even(parts: list[Part], rows: int, cores: int) -> Iterator[list[Part]]:
    """Divide parts into tasks of at most so many rows, or of one part, and as even as the parts allow."""
    count = max(-(-sum(part.rows for part in parts) // rows), min(2 * cores, len(parts)))
    tasks: list[list[Part]] = [[] for _ in range(count)]
    loads = [0] * count
    for part in sorted(parts, key=lambda part: -part.size):
        least = loads.index(min(loads))
        tasks[least].append(part)
        loads[least] += part.size
    return (of_task for of_task in tasks if of_task)


class _Rows:
    """Rows that Spark itself reads: text, patterns, and places that only Spark reaches."""

    def __init__(self, rows: DataFrame, path: str) -> None:
        self.spark, self.path, self.rows = rows.sparkSession, path, rows
        self.cores = self.spark.sparkContext.defaultParallelism

    def sizes(self, small: int) -> dict[str, int]:
        counted = self.rows.groupBy("run").count().toArrow().to_pylist()
        if not counted:
            raise TraceError(f"{self.path}: is empty; expected at least one event; record the run again")
        return {row["run"]: row["count"] for row in counted if row["run"] is not None} or {"": 0}

    def scan(self, work: Work, runs: set[str] | None) -> DataFrame:
        path = self.path

        def run(batches: Batches) -> Batches:
            pa.set_cpu_count(1)
            for bucket, piece in work(_of_runs(_checked(path, batches), runs)):
                yield packed(bucket, piece)

        return self.rows.mapInArrow(run, BLOCKS)

    def fetch(self, choose: Choose) -> list[dict[str, Any]]:
        def run(batches: Batches) -> Batches:
            for batch in batches:
                chosen = batch.filter(pa.array(choose(table_of_rows(batch))))
                if chosen.num_rows:
                    yield packed(0, chosen.drop_columns([BAD_LINE]))

        found = whole(unpack(self.rows.mapInArrow(run, BLOCKS).toArrow().to_batches()))
        return [] if found is None else found.to_pylist()


def _checked(path: str, batches: Batches) -> Tables:
    """Turn batches into tables. Raises TraceError for a row that cannot be used."""
    for batch in batches:
        bad = batch.column(BAD_LINE).drop_null()
        if len(bad):
            raise TraceError(f"{path}: {bad[0].as_py()}")
        table = table_of_rows(batch)
        fault = fault_in(table)
        if fault is not None:
            process, seq = (batch.column(name)[fault[0]].as_py() for name in ("process", "seq"))
            where = "" if process is None or seq is None else f"process {process!r}, seq {seq}: "
            raise TraceError(f"{path}: {where}{fault[1]}")
        yield table


def _of_runs(tables: Tables, runs: set[str] | None) -> Tables:
    if runs is None:
        yield from tables
        return
    wanted = pa.array(sorted(runs))
    for table in tables:
        yield table.filter(pc.is_in(table["run"].cast(pa.string()), value_set=wanted))


# ---------------------------------------------------------------- pieces in tasks


class OnSpark(Pieces):
    """Pieces in the partitions of a Spark table, packed. Steps run in tasks, one after the other without a stop."""

    def __init__(self, blocks: DataFrame, steps: tuple[Step, ...] = ()) -> None:
        self._blocks, self._steps = blocks, steps

    def each(self, step: Step) -> "OnSpark":
        return OnSpark(self._blocks, (*self._steps, step))

    def spread(self, partitions: int, bucket_of: Callable[[pa.RecordBatch], Ints]) -> "OnSpark":
        def cut(piece: pa.RecordBatch) -> list[Gathered]:
            return split(piece, bucket_of(piece))

        return OnSpark(self._worked(cut).repartitionById(partitions, "bucket"))

    def collect(self) -> pa.Table | None:
        return whole(unpack(self._worked(lambda piece: [(0, piece)]).toArrow().to_batches()))

    @contextmanager
    def kept(self) -> Iterator["OnSpark"]:
        with _persisted(self._worked(lambda piece: [(0, piece)])) as blocks:
            yield OnSpark(blocks)

    def _worked(self, cut: Callable[[pa.RecordBatch], list[Gathered]]) -> DataFrame:
        steps = self._steps

        def work(batches: Batches) -> Batches:
            pa.set_cpu_count(1)
            pieces = unpack(batches)
            for step in steps:
                pieces = step(pieces)
            for piece in pieces:
                for bucket, rows in cut(piece):
                    yield packed(bucket, rows)

        return self._blocks.mapInArrow(work, BLOCKS)


def packed(bucket: int, piece: pa.RecordBatch) -> pa.RecordBatch:
    """Pack a piece into a row of BLOCKS."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, piece.schema, options=_PACKED) as stream:
        stream.write_batch(piece)
    block = sink.getvalue()
    ends = pa.array([0, block.size], pa.int32()).buffers()[1]
    columns = [pa.array([bucket], pa.int32()), pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, block])]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "block"])


def unpack(batches: Iterable[pa.RecordBatch]) -> Batches:
    """Yield the pieces in rows of BLOCKS, one after the other."""
    for batch in batches:
        for block in batch.column("block"):
            yield from pa.ipc.open_stream(block.as_buffer())


@contextmanager
def _persisted(table: DataFrame) -> Iterator[DataFrame]:
    """Compute a table once, on first use, and keep it for the time of the block."""
    table = table.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield table
    finally:
        table.unpersist()


@contextmanager
def _batches_counted_in_rows(spark: SparkSession) -> Iterator[None]:
    """Count batches in rows. Spark else measures their bytes after every row, which is slow for lists."""
    before = spark.conf.get(_BYTES_PER_BATCH)
    spark.conf.set(_BYTES_PER_BATCH, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(_BYTES_PER_BATCH, str(before))
