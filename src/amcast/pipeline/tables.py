"""Any trace as a Spark table with the columns of `trace-format.md`, whatever its form and wherever Spark can read it.

A path that ends in `.jsonl` or `.json` (also compressed, also a pattern such as `logs/*.jsonl`) is read as JSON lines,
`.csv` as CSV with a header line, everything else as Parquet: a file, a folder, or a folder with `kind=<kind>` folders.
The rules for single values are those of `amcast.tracefile`.

`read_rows` keeps rows that cannot be used; `is_faulty` tells them, and `refuse_faults` turns the first one into a
TraceError. What Spark itself cannot read becomes a TraceError in `spark_errors`: one line, no Java stack.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from amcast.core.errors import TraceError, UsageError
from amcast.core.trace import COLUMNS, KINDS, REQUIRED_COLUMNS
from amcast.pipeline.columns import Columns, name_of, refuse_unknown
from amcast.tracefile import read_events
from amcast.tracefile.schema import unknown_kind

STRINGS: Final = T.ArrayType(T.StringType())
TIMESTAMP: Final = T.StructType([T.StructField("time", T.LongType()), T.StructField("tie", T.StringType())])
SPARK_TYPES: Final[dict[str, T.DataType]] = {
    **{name: T.StringType() for name in COLUMNS},
    "seq": T.LongType(),
    "time": T.LongType(),
    "size": T.IntegerType(),
    "dest": STRINGS,
    "about": STRINGS,
    "ts": TIMESTAMP,
}
SCHEMA: Final = T.StructType([T.StructField(name, SPARK_TYPES[name]) for name in COLUMNS])
IN_EVERY_ROW: Final = ("run", "kind", "process", "seq")
BAD_LINE: Final = "bad_line"
_NAMES: Final = "names separated by ';'"
_EXPECTED_CELL: Final = {"dest": _NAMES, "about": _NAMES, "ts": "'time;tie', as 7;m1"}
JSON_SUFFIXES: Final = re.compile(r"\.jsonl?(\.\w+)?$")
CSV_SUFFIXES: Final = re.compile(r"\.csv(\.\w+)?$")
# Whatever the user's Spark is set to: a trace with a hole in it must not look like a whole one.
NOTHING_IGNORED: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def read_trace(spark: SparkSession, path: str, columns: Columns | None = None) -> DataFrame:
    """The events of a trace, one row each, with all the columns of `trace-format.md`. Raises TraceError, UsageError."""
    return read_rows(spark, path, columns).select(*COLUMNS)


def read_rows(spark: SparkSession, path: str, columns: Columns | None = None) -> DataFrame:
    """The same with the column BAD_LINE: null, or what is wrong with the text of the row."""
    columns = columns or {}
    _refuse_what_is_no_trace(path, columns)
    with spark_errors(path):
        if JSON_SUFFIXES.search(path):
            return _read_json(spark, path, columns)
        if CSV_SUFFIXES.search(path):
            return _read_csv(spark, path, columns)
        return _read_parquet(spark, path, columns).withColumn(BAD_LINE, F.lit(None).cast("string"))


def refuse_faults(path: str, rows: DataFrame) -> None:
    """Raise TraceError for a row that cannot be used, if there is one."""
    with spark_errors(path):
        found = rows.where(is_faulty()).select("process", "seq", _fault().alias("fault")).head(1)
    for row in found:
        where = "" if row.process is None or row.seq is None else f"process {row.process!r}, seq {row.seq}: "
        raise TraceError(f"{path}: {where}{row.fault}")


@contextmanager
def spark_errors(path: str) -> Iterator[None]:
    """What Spark says of files that it cannot read, in one line. A fault of our own program is left as it is."""
    from py4j.protocol import Py4JError

    try:
        yield
    except PythonException:
        raise
    except (PySparkException, Py4JError) as error:
        reason = _reason(error)
        if _ABOUT_FILES.search(str(error)):
            raise TraceError(
                f"{path}: cannot be read ({reason}); expected a complete trace; check the file or record the run again"
            ) from error
        raise UsageError(
            f"{path}: Spark gave up ({reason}); expected it to finish; see --master and its memory"
        ) from error


# ---------------------------------------------------------------- errors


# In what Spark says about a file, and not about our program or its own memory.
_ABOUT_FILES: Final = re.compile(
    "FAILED_READ_FILE|PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA|CANNOT_MERGE_SCHEMAS|CANNOT_READ_FILE_FOOTER|MALFORMED|"
    "CONFLICTING_PARTITION_COLUMN_NAMES|CONFLICTING_DIRECTORY_STRUCTURES|FileNotFoundException|NoSuchFileException|"
    "is not a Parquet file|UnsupportedFileSystemException|No FileSystem for scheme|AccessControlException|"
    "UnknownHostException|ParquetDecodingException|java.io.IOException|ZStdIOException"
)


def _reason(error: Exception) -> str:
    """The innermost Java message if there is one, else the first line: without a stack, at most 300 characters."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    messages: list[str] = []
    while java is not None and len(messages) < 20:
        messages.append(str(java.getMessage() or java.getClass().getSimpleName()))
        java = java.getCause()
    text = messages[-1] if messages else str(error)
    return " ".join(text.strip().partition("\n")[0].split())[:300] or type(error).__name__


def _refuse_what_is_no_trace(path: str, columns: Columns) -> None:
    """For a path on this machine the complaints are those of the in-memory reader, which looks at the first rows."""
    if "://" in path or any(sign in path for sign in "*?[{"):
        return
    if not columns or not Path(path).exists():
        next(read_events(path), None)


# ---------------------------------------------------------------- Parquet


def _read_parquet(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    reader = spark.read.options(**NOTHING_IGNORED)
    seen = reader.option("mergeSchema", "false").parquet(path)
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
                _check_parquet(file, {field.name: _family(field.type) for field in schema}, folders, columns)
    else:
        merged = reader.option("mergeSchema", "true").parquet(path).schema
        _check_parquet(path, {field.name: _spark_family(field.dataType) for field in merged}, folders, columns)
    theirs_of = {name_of(theirs, columns): theirs for theirs in (*columns, *COLUMNS) if name_of(theirs, columns)}
    fields = [T.StructField(theirs_of[name], SPARK_TYPES[name]) for name in COLUMNS if name in theirs_of]
    rows = reader.schema(T.StructType(fields)).parquet(path)
    kind = theirs_of.get("kind", "kind")
    if kind in folders and kind not in seen.columns:  # a single file inside a kind=<kind> folder
        value = re.findall(rf"/{re.escape(kind)}=([^/]*)/", files[0])[-1]
        rows = rows.withColumn(kind, F.lit(unquote(value)))
    return rows.select(
        *(
            F.col(f"`{theirs_of[name]}`").cast(SPARK_TYPES[name]).alias(name)
            if name in theirs_of
            else F.lit(None).cast(SPARK_TYPES[name]).alias(name)
            for name in COLUMNS
        )
    )


def _arrow_schema(file: str) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise TraceError(
            f"{file}: cannot be read ({reason}); expected a complete trace; check the file or record the run again"
        ) from error


def _check_parquet(file: str, families: dict[str, str], folders: set[str], columns: Columns) -> None:
    """Every file must have the columns that are needed, with types that can stand for ours: no mixed schemas."""
    refuse_unknown(file, columns, ", ".join(families), {*families, *folders})
    ours = {name_of(theirs, columns): theirs for theirs in (*families, *folders)}
    for name in REQUIRED_COLUMNS:
        if name not in ours:
            raise TraceError(
                f"{file}: column {name!r} is missing; expected at least {', '.join(REQUIRED_COLUMNS)}; add it"
            )
    for name in COLUMNS:
        expected = _spark_family(SPARK_TYPES[name])
        found = families.get(ours.get(name, ""), expected)
        if found not in (expected, "null"):
            raise TraceError(
                f"{file}: column {name!r} has the type {found}; expected {expected}; write it with that type"
            )


def _family(of: pa.DataType) -> str:
    """Types that can stand for each other have the same name."""
    if pa.types.is_dictionary(of):
        return _family(of.value_type)
    if pa.types.is_null(of):
        return "null"
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return "string"
    if pa.types.is_integer(of):
        return "integer"
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return f"list of {_family(of.value_type)}"
    if pa.types.is_struct(of) and {"time", "tie"} <= {field.name for field in of}:
        return f"(time {_family(of.field('time').type)}, tie {_family(of.field('tie').type)})"
    return str(of)


def _spark_family(of: T.DataType) -> str:
    match of:
        case T.StringType():
            return "string"
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return "integer"
        case T.NullType():
            return "null"
        case T.ArrayType():
            return f"list of {_spark_family(of.elementType)}"
        case T.StructType() if {"time", "tie"} <= set(of.names):
            return f"(time {_spark_family(of['time'].dataType)}, tie {_spark_family(of['tie'].dataType)})"
    return of.simpleString()


# ---------------------------------------------------------------- text


def _read_json(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    theirs = [name for name in (*columns, *COLUMNS) if name_of(name, columns)]
    fields = [T.StructField(name, _json_type(name_of(name, columns))) for name in theirs]
    schema = T.StructType([*fields, T.StructField(BAD_LINE, T.StringType())])
    line = F.regexp_replace("value", "^\ufeff", "")
    parsed = F.from_json(line, schema, {"columnNameOfCorruptRecord": BAD_LINE})
    lines = spark.read.options(**NOTHING_IGNORED).text(path).where(F.trim(line) != "")
    rows = lines.select("value", parsed.alias("row"))
    ours = {name_of(name, columns): name for name in theirs}
    cells = {name: F.col("row").getField(ours[name]) if name in ours else F.lit(None) for name in COLUMNS}
    cells["ts"] = _timestamp_of_json(cells["ts"])
    is_bad = F.col("row").isNull() | F.col("row").getField(BAD_LINE).isNotNull()
    # A deliver row must say its group, be it null, as the in-memory reader demands.
    silent = cells["kind"].isin("deliver", "optdeliver") & cells["group"].isNull()
    said = F.array_contains(F.json_object_keys("value"), ours.get("group", "group"))
    bad = F.when(is_bad, _line_is("not a JSON object of an event", "value"))
    bad = F.coalesce(bad, F.when(silent & ~F.coalesce(said, F.lit(False)), _line_is("without 'group'", "value")))
    rows = rows.select(*(cells[name].cast(SPARK_TYPES[name]).alias(name) for name in COLUMNS), bad.alias(BAD_LINE))
    _refuse_unused(path, rows, columns)
    return rows


def _refuse_unused(path: str, rows: DataFrame, columns: Columns) -> None:
    """JSON has no header: a column of theirs that has no value in any line is taken for a misspelt one."""
    named = {theirs: ours for theirs, ours in columns.items() if ours}
    if named:
        counts = rows.agg(*(F.count(ours).alias(ours) for ours in named.values())).head()
        assert counts is not None
        for theirs, ours in named.items():
            if not counts[ours]:
                refuse_unknown(path, {theirs: ours}, "no value for it in any line", set())


def _json_type(name: str) -> T.DataType:
    return T.StringType() if name == "ts" else SPARK_TYPES[name]  # ts is an object or an array: kept as text at first


def _timestamp_of_json(text: Column) -> Column:
    as_array = F.from_json(text, STRINGS)
    pair = F.struct(F.get(as_array, 0).try_cast("bigint").alias("time"), F.get(as_array, 1).alias("tie"))
    return F.when(text.startswith("["), pair).when(text.isNotNull(), F.from_json(text, TIMESTAMP))


def _read_csv(spark: SparkSession, path: str, columns: Columns) -> DataFrame:
    first = spark.read.options(**NOTHING_IGNORED).text(path).head(1)
    header = [name.strip() for name in next(csv.reader([first[0].value.removeprefix("\ufeff")]), [])] if first else []
    if not header:
        raise TraceError(f"{path}: is empty; expected a header line and at least one event; record the run again")
    _check_header(path, header, columns)
    fields = [T.StructField(f"_{place}", T.StringType()) for place in range(len(header))]
    schema = T.StructType([*fields, T.StructField(BAD_LINE, T.StringType())])
    options = {"header": "true", "escape": '"', "columnNameOfCorruptRecord": BAD_LINE, "enforceSchema": "true"}
    lines = spark.read.options(**NOTHING_IGNORED).options(**options).schema(schema).csv(path)
    place_of = {name_of(name, columns): place for place, name in enumerate(header)}
    texts = {name: F.col(f"_{place_of[name]}") if name in place_of else F.lit(None).cast("string") for name in COLUMNS}
    cells = {name: _cell(texts[name], SPARK_TYPES[name]) for name in COLUMNS}
    bad = F.when(F.col(BAD_LINE).isNotNull(), _line_is(f"not {len(header)} cells as in the header", BAD_LINE))
    for name in COLUMNS:
        if SPARK_TYPES[name] != T.StringType():
            wrong = texts[name].isNotNull() & cells[name].isNull()
            expected = (
                "names separated by ';'"
                if SPARK_TYPES[name] == STRINGS
                else "'time;tie'"
                if name == "ts"
                else "an integer"
            )
            said = F.concat(
                F.lit(f"column {name!r} is '"), texts[name], F.lit(f"'; expected {expected}; correct the cell")
            )
            bad = F.coalesce(bad, F.when(wrong, said))
    return lines.select(*(cells[name].alias(name) for name in COLUMNS), bad.alias(BAD_LINE))


def _check_header(path: str, header: Sequence[str], columns: Columns) -> None:
    refuse_unknown(path, columns, ", ".join(header), set(header))
    ours = [name_of(name, columns) for name in header]
    for name in REQUIRED_COLUMNS:
        if name not in ours:
            raise TraceError(
                f"{path}: line 1: column {name!r} is missing; expected at least {', '.join(REQUIRED_COLUMNS)}; add it"
            )
    for name in COLUMNS:
        if ours.count(name) > 1:
            raise TraceError(f"{path}: line 1: column {name!r} is there twice; expected it once; remove one")


def _cell(text: Column, of: T.DataType) -> Column:
    if of == STRINGS:
        return F.when(text.startswith("["), F.from_json(text, STRINGS)).otherwise(F.split(text, ";"))
    if of == TIMESTAMP:
        time = F.split_part(text, F.lit(";"), F.lit(1)).try_cast("bigint")
        pair = F.struct(time.alias("time"), F.regexp_replace(text, "^[^;]*;", "").alias("tie"))
        plain = F.when(text.contains(";") & time.isNotNull(), pair)
        return F.when(text.startswith("[") | text.startswith("{"), _timestamp_of_json(text)).otherwise(plain)
    return text if of == T.StringType() else text.try_cast(of)


def _line_is(what: str, column: str) -> Column:
    return F.concat(F.lit(f"the line is {what}: "), F.substring(F.col(column), 1, 120))


# ---------------------------------------------------------------- rows


def is_faulty() -> Column:
    """Whether a row cannot be used, by the rules of `amcast.tracefile.schema.fault_of`."""
    kind = F.col("kind")
    lacks_message = kind.isin("multicast", "deliver", "optdeliver") & F.col("message").isNull()
    other_sender = ~F.col("sender").eqNullSafe(F.col("process"))
    faulty = F.col(BAD_LINE).isNotNull() | lacks_message | ~F.coalesce(kind.isin(*KINDS), F.lit(False))
    faulty |= (kind == "multicast") & (F.col("dest").isNull() | other_sender)
    for name in IN_EVERY_ROW:
        faulty |= F.col(name).isNull()
    return faulty


def _fault() -> Column:
    """What is wrong with a row, in the words of `fault_of`."""
    said = [F.col(BAD_LINE)]
    for name in IN_EVERY_ROW:
        null = f"column {name!r} is null; expected a value in every row; fill it in"
        said.append(F.when(F.col(name).isNull(), F.lit(null)))
    kind, process, sender = (F.col(name) for name in ("kind", "process", "sender"))
    no_message = F.concat(
        F.lit("column 'message' is null in a "), kind, F.lit(" row; expected the id of the message; fill it in")
    )
    no_dest = "column 'dest' is null in a multicast row; expected the destination groups; fill it in"
    quoted = F.coalesce(F.concat(F.lit("'"), sender, F.lit("'")), F.lit("null"))
    other_sender = F.concat(
        F.lit("column 'sender' is "), quoted, F.lit(" in a multicast row of process '"), process,
        F.lit("'; expected the same process; correct one of the two"),
    )  # fmt: skip
    before, after = unknown_kind("\0").split(repr("\0"))
    unknown = F.concat(F.lit(before + "'"), kind, F.lit("'" + after))
    return F.coalesce(
        *said,
        F.when(~kind.isin(*KINDS), unknown),
        F.when(F.col("message").isNull(), no_message),
        F.when(F.col("dest").isNull(), F.lit(no_dest)),
        other_sender,
    )
