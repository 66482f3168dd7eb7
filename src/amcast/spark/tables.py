"""Reads any trace as a Spark table with the columns of `trace-format.md`, from wherever it is.

A path that ends in `.jsonl` or `.json` (also compressed, also a pattern such as `logs/*.jsonl`) is read as JSON lines,
`.csv` as CSV with a header line, and everything else as Parquet: a file, a folder, or a folder with `kind=<kind>`
folders. The rules for single values are those of `amcast.tracefile`.

`read_rows` keeps rows that cannot be used. `is_faulty` finds them, and `refuse_faults` turns the first one into a
TraceError. What Spark itself cannot read becomes a TraceError in `spark_errors`: one line, no Java stack.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from amcast.core.trace import COLUMNS, KINDS, Event
from amcast.errors import LineFault, TraceError, UsageError
from amcast.places import Remote, place_of
from amcast.spark.shipping import first_line
from amcast.tracefile import read_events
from amcast.tracefile.columns import Columns, keys_of, name_of, their_name
from amcast.tracefile.commits import sweep_of
from amcast.tracefile.parts import parts_of, rows_where
from amcast.tracefile.reader import cannot_be_read, files_of_folder, parquet_columns
from amcast.tracefile.schema import COLUMN_TYPES, IN_EVERY_ROW, fault_of, null_in_list, null_value
from amcast.tracefile.text import MARK, csv_lines, header_of, json_lines, refuse_unknown_keys

Batches = Iterator[pa.RecordBatch]

SCHEMA: Final = from_arrow_schema(pa.schema(list(COLUMN_TYPES.items())))
LISTS: Final = ("dest", "about")
BAD_LINE: Final = "fault"  # which metrics look at as well
ROWS: Final = T.StructType([*SCHEMA.fields, T.StructField(BAD_LINE, T.StringType())])
_ARROW_ROWS: Final = pa.schema([*COLUMN_TYPES.items(), (BAD_LINE, pa.string())])
JSON_SUFFIXES: Final = re.compile(r"\.jsonl?(\.\w+)?$")
CSV_SUFFIXES: Final = re.compile(r"\.csv(\.\w+)?$")
# Whatever the user's Spark is set to: a trace with a hole in it must not look like a whole one.
NOTHING_IGNORED: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def read_trace(spark: SparkSession, path: str, columns: Columns | None = None) -> DataFrame:
    """Read the events of a trace, a row each, with the columns of `trace-format.md`. Raises TraceError, UsageError."""
    return read_rows(spark, path, columns).select(*COLUMNS)


def read_rows(spark: SparkSession, path: str, columns: Columns | None = None) -> DataFrame:
    """Read the same with the column BAD_LINE: null, or what is wrong with the text of the row."""
    columns = columns or {}
    refuse_what_is_no_trace(path, columns)
    place = place_of(path)
    if isinstance(place, Remote):
        return _read_parts(spark, place, columns)
    path = str(place)
    with spark_errors(path):
        if JSON_SUFFIXES.search(path) and not Path(path).is_dir():
            return _read_json(spark, path, columns)
        if CSV_SUFFIXES.search(path) and not Path(path).is_dir():
            return _read_csv(spark, path, columns)
        return _read_parquet(spark, path, columns).withColumn(BAD_LINE, F.lit(None).cast("string"))


def refuse_faults(path: str, rows: DataFrame) -> None:
    """Raise TraceError if a row cannot be used."""
    with spark_errors(path):
        found = rows.where(is_faulty()).head(1)
    for row in found:
        where = "" if row.process is None or row.seq is None else f"process {row.process!r}, seq {row.seq}: "
        nulls = (null_value(name) for name in IN_EVERY_ROW if row[name] is None)
        in_lists = (null_in_list(name) for name in LISTS if None in (row[name] or ()))
        raise TraceError(
            f"{path}: {where}{row[BAD_LINE] or next(nulls, None) or next(in_lists, None) or fault_of(row)}"
        )


@contextmanager
def spark_errors(path: str) -> Iterator[None]:
    """Turn what Spark says about files that it cannot read into one line. Our own faults stay as they are."""
    from py4j.protocol import Py4JError

    try:
        yield
    except PythonException:
        raise
    except (PySparkException, Py4JError) as error:
        reason = first_line(error)
        if _ABOUT_FILES.search(str(error)):
            raise TraceError(
                f"{path}: cannot be read ({reason}); expected a complete trace; check the file or record the run again"
            ) from error
        raise UsageError(
            f"{path}: Spark gave up ({reason}); expected it to finish; see --master and its memory"
        ) from error


# In what Spark says about a file, and not about our program or its own memory.
_ABOUT_FILES: Final = re.compile(
    "FAILED_READ_FILE|PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA|CANNOT_MERGE_SCHEMAS|CANNOT_READ_FILE_FOOTER|MALFORMED|"
    "CONFLICTING_PARTITION_COLUMN_NAMES|CONFLICTING_DIRECTORY_STRUCTURES|FileNotFoundException|NoSuchFileException|"
    "is not a Parquet file|UnsupportedFileSystemException|No FileSystem for scheme|AccessControlException|"
    "UnknownHostException|ParquetDecodingException|java.io.IOException|ZStdIOException"
)


def refuse_what_is_no_trace(path: str, columns: Columns | None) -> None:
    """Raise what the in-memory reader would about the first rows of a path on this machine; no Spark is needed."""
    place = place_of(path)
    if isinstance(place, Remote):
        read_events(place, columns)
        return
    path = str(place)
    if any(sign in path for sign in "*?[{"):
        if Path(path).exists():
            raise UsageError(
                f"{path}: is a pattern for Spark; expected a name without *, ?, [ and {{; "
                f"rename it or use --engine memory"
            )
    elif not columns or not Path(path).exists():
        next(read_events(path), None)
    elif Path(path).is_dir():
        files_of_folder(Path(path), their_name("kind", columns))
    else:
        read_events(path)  # without a look at its columns, which have other names


def _read_parquet(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    reader = spark.read.options(**NOTHING_IGNORED)
    paths = [path]
    if sweep_of(Path(path).absolute()) is not None:  # not all that is there counts
        reader = reader.option("basePath", path)
        paths = [str(file) for file, _ in files_of_folder(Path(path), their_name("kind", columns))]
    seen = reader.option("mergeSchema", "false").parquet(*paths)
    files = seen.inputFiles()
    if not files:
        raise TraceError(f"{path}: is empty; expected at least one event; record the run again")
    folders = set(re.findall(r"/([^/=]+)=[^/]*(?=/)", files[0]))
    local = [unquote(urlparse(file).path) for file in files if urlparse(file).scheme == "file"]
    if len(local) == len(files):
        # Spark passes over links that lead nowhere.
        local += [str(file) for file in Path(path).rglob("*.parquet") if not file.exists()]
        with ThreadPoolExecutor() as pool:
            for file, schema in zip(local, pool.map(_arrow_schema, local), strict=True):
                parquet_columns(file, schema, columns, folders)  # every file must be right: no mixed schemas
    else:
        merged = reader.option("mergeSchema", "true").parquet(*paths).schema
        known = [field for field in merged if field.name in columns or name_of(field.name, columns) in COLUMNS]
        parquet_columns(path, to_arrow_schema(T.StructType(known)), columns, folders)
    theirs_of = {name_of(theirs, columns): theirs for theirs in (*columns, *COLUMNS) if name_of(theirs, columns)}
    fields = [T.StructField(theirs_of[of.name], of.dataType) for of in SCHEMA if of.name in theirs_of]
    rows = reader.schema(T.StructType(fields)).parquet(*paths)
    kind = theirs_of.get("kind", "kind")
    if kind in folders and kind not in seen.columns:  # a single file inside a kind=<kind> folder
        value = re.findall(rf"/{re.escape(kind)}=([^/]*)/", files[0])[-1]
        rows = rows.withColumn(kind, F.lit(unquote(value)))
    ours = (
        (F.col(f"`{theirs_of[of.name]}`") if of.name in theirs_of else F.lit(None)).cast(of.dataType).alias(of.name)
        for of in SCHEMA
    )
    return rows.select(*ours)


def _read_parts(spark: SparkSession, place: Remote, columns: Columns) -> DataFrame:
    """Read where Spark itself may not reach: tasks open files with pyarrow, a row group each."""
    parts = parts_of(place, columns)

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in rows_where(parts[number], columns, lambda rows: np.ones(len(rows), bool)):
                    whole = table.append_column(BAD_LINE, pa.nulls(len(table), pa.string()))
                    yield from whole.cast(_ARROW_ROWS).to_batches()

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(rows, ROWS)


def _arrow_schema(file: str) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        cannot_be_read(file, error)


def _read_json(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    lines = _lines(spark, path)
    if columns:
        seen = lines.mapInArrow(_names, "name string").distinct().collect()
        refuse_unknown_keys(path, columns, {row.name for row in seen})
    return lines.mapInArrow(_rows_of(json_lines(columns)), ROWS)


def _read_csv(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    lines = _lines(spark, path)
    first = lines.head(1)
    header, below = csv_lines(path, bytes(first[0].line) if first else b"", columns)
    if not header:
        raise TraceError(f"{path}: is empty; expected at least one event; record the run again")
    return lines.mapInArrow(_rows_of(below, header), ROWS)


def _lines(spark: SparkSession, path: str) -> DataFrame:
    """Return the lines as bytes, as the in-memory reader sees them. `file` is set in the first block of a file."""
    lines = spark.read.options(**NOTHING_IGNORED, lineSep="\n").text(path)
    file = F.when(F.col("_metadata.file_block_start") == 0, F.xxhash64("_metadata.file_path"))
    return lines.select(F.col("value").cast("binary").alias("line"), file.alias("file"))


def _rows_of(of_line: Callable[[bytes], Event | None], header: list[str] | None = None) -> Callable[[Batches], Batches]:
    """Return what makes rows of lines. It uses the in-memory reader, so that no line is judged in two ways."""

    def rows(batches: Batches) -> Batches:
        file = None
        for batch in batches:
            events: list[Event] = []
            faults: list[str] = []
            for line, of_file in zip(batch["line"].to_pylist(), batch["file"].to_pylist(), strict=True):
                is_first = of_file is not None and of_file != file
                try:
                    if is_first:
                        file, line = of_file, line.removeprefix(MARK)
                    if is_first and header is not None:
                        if header_of(line) != header:
                            raise LineFault("is another header than that of the first file; make them the same")
                    elif (event := of_line(line)) is not None:
                        events.append(event)
                except LineFault as fault:
                    faults.append(f"line {line[:80].decode(errors='replace')!r}: {fault}")
            yield _batch(events)
            if faults:
                nulls = [pa.nulls(len(faults), of) for of in COLUMN_TYPES.values()]
                yield pa.RecordBatch.from_arrays([*nulls, pa.array(faults)], schema=_ARROW_ROWS)

    return rows


def _batch(events: list[Event]) -> pa.RecordBatch:
    values = zip(*map(attrgetter(*COLUMNS), events), strict=True) if events else repeat(())
    columns = [pa.array(of_column, of) for of_column, of in zip(values, COLUMN_TYPES.values(), strict=False)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(len(events), pa.string())], schema=_ARROW_ROWS)


def _names(batches: Batches) -> Batches:
    """Return the names in all lines of JSON, which has no header."""
    names: set[str] = set()
    for batch in batches:
        names.update(*map(keys_of, batch["line"].to_pylist()))
    yield pa.RecordBatch.from_pydict({"name": pa.array(sorted(names), pa.string())})


def is_faulty() -> Column:
    """Return whether a row cannot be used, by the rules of `amcast.tracefile.schema.fault_of`."""
    kind = F.col("kind")
    lacks_message = kind.isin("multicast", "deliver", "optdeliver") & F.col("message").isNull()
    other_sender = ~F.col("sender").eqNullSafe(F.col("process"))
    faulty = F.col(BAD_LINE).isNotNull() | lacks_message | ~F.coalesce(kind.isin(*KINDS), F.lit(False))
    faulty |= (kind == "multicast") & (F.col("dest").isNull() | other_sender)
    for name in IN_EVERY_ROW:
        faulty |= F.col(name).isNull()
    for name in LISTS:
        faulty |= F.coalesce(F.exists(name, F.isnull), F.lit(False))
    return faulty
