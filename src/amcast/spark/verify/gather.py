"""The one pass over a trace: sums up who did what, and packs what concerns messages into buckets by message.

Summaries (`FACTS`) describe each process and kind: how many rows a batch has, their first and last `seq`, and whether
`seq` and timestamps increase. The buckets hold a row for each multicast, delivery and optimistic delivery. If
genuineness is asked for, they also hold a row for each process that took part in ordering a message.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amcast.checks.history import stated_members
from amcast.spark.tables import is_faulty
from amcast.spark.verify.arrays import Bools, Ints, ends_of, ints, one_array, stretches
from amcast.spark.verify.blocks import SCHEMA, Batches, pack, split

MULTICAST, DELIVER, GUESS, TOOK_PART = range(4)
CODES: Final = {"multicast": MULTICAST, "deliver": DELIVER, "optdeliver": GUESS}
FACTS_BUCKET: Final = -1
ROWS_AT_A_TIME: Final = 400_000
NEVER: Final = -(2**63)

FACTS: Final = pa.schema(
    [
        ("run", pa.string()), ("process", pa.string()), ("group", pa.string()), ("kind", pa.string()),
        ("rows", pa.int64()), ("first", pa.int64()), ("last", pa.int64()), ("increasing", pa.bool_()),
        ("about", pa.int64()), ("faults", pa.int64()), ("members", pa.int64()), ("with_ts", pa.int64()),
        ("ts_increasing", pa.bool_()), ("ties", pa.bool_()),
        ("first_time", pa.int64()), ("first_tie", pa.string()), ("last_time", pa.int64()), ("last_tie", pa.string()),
    ]
)  # fmt: skip
ABOUT_MESSAGES: Final = pa.schema(
    [
        ("run", pa.string()), ("process", pa.string()), ("code", pa.int8()), ("seq", pa.int64()),
        ("message", pa.string()), ("dest", pa.list_(pa.string())), ("time", pa.int64()), ("tie", pa.string()),
    ]
)  # fmt: skip


def gather(rows: DataFrame, buckets: int, with_traffic: bool) -> DataFrame:
    """Return blocks of ABOUT_MESSAGES in their buckets, and blocks of FACTS in FACTS_BUCKET."""

    def bucket_of(message: Column) -> Column:
        return F.pmod(F.xxhash64(F.col("run"), message), F.lit(buckets)).cast("int")

    columns: list[Any] = [
        "run", "kind", "process", "group", "seq", "message", "dest",
        F.col("ts.time").alias("time"), F.col("ts.tie").alias("tie"),
        is_faulty().alias("fault"), bucket_of(F.col("message")).alias("bucket"),
        F.coalesce(F.size("about"), F.lit(0)).alias("about_size"),
        F.when(F.col("kind") == "start", F.col("detail")).alias("stated"),
    ]  # fmt: skip
    if with_traffic:
        about = F.array_compact("about")
        columns += ["peer", about.alias("about"), F.transform(about, bucket_of).alias("about_buckets")]
    return rows.select(*columns).mapInArrow(partial(_gathered_from, with_traffic), SCHEMA)


def _gathered_from(with_traffic: bool, batches: Batches) -> Batches:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_AT_A_TIME:
            yield _gathered(waiting, with_traffic)
            waiting = []
    if sum(map(len, waiting)):
        yield _gathered(waiting, with_traffic)


def _gathered(batches: list[pa.RecordBatch], with_traffic: bool) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    kinds = one_array(table["kind"]).dictionary_encode()
    code_of = np.array([CODES.get(kind, -1) for kind in kinds.dictionary.to_pylist()] + [-1])
    code = code_of[kinds.indices.fill_null(len(code_of) - 1).to_numpy(zero_copy_only=False)]
    pieces = [(FACTS_BUCKET, _facts(table, kinds))]
    chosen = code >= 0
    # A row with a fault has no message, or worse: it is counted, and the trace is refused.
    chosen &= ~one_array(table["fault"]).to_numpy(zero_copy_only=False)
    if chosen.any():
        kept = table if chosen.all() else table.filter(pa.array(chosen))
        columns = {name: one_array(kept[name]) for name in ("run", "process", "seq", "message", "dest", "time", "tie")}
        columns["code"] = pa.array(code[chosen].astype(np.int8))
        piece = pa.RecordBatch.from_arrays([columns[name] for name in ABOUT_MESSAGES.names], schema=ABOUT_MESSAGES)
        pieces += split(piece, ints(kept["bucket"]).astype(np.int16))
    if with_traffic:
        pieces += _taking_part(table, kinds)
    return pack(pieces)


def _facts(table: pa.Table, kinds: pa.DictionaryArray) -> pa.RecordBatch:
    runs, processes, groups = (one_array(table[name]).dictionary_encode() for name in ("run", "process", "group"))
    key = np.zeros(len(table), dtype=np.int64)
    for words in (runs, processes, kinds, groups):
        key = key * (len(words.dictionary) + 1) + words.indices.fill_null(len(words.dictionary)).to_numpy(
            zero_copy_only=False
        )
    order = None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")
    key = key if order is None else key[order]
    starts = stretches(key)
    ends = ends_of(starts, len(key)) - 1
    same = key[1:] == key[:-1]
    first_row = pa.array(starts if order is None else order[starts])

    def sorted_(name: str) -> Any:
        column = one_array(table[name])
        return column if order is None else column.take(pa.array(order))

    seq = ints(sorted_("seq").fill_null(0))
    columns = [words.take(first_row).cast(pa.string()) for words in (runs, processes, groups, kinds)]
    columns += [
        pa.array(ends - starts + 1),
        pa.array(np.minimum.reduceat(seq, starts)),
        pa.array(np.maximum.reduceat(seq, starts)),
        pa.array(_all_hold(same, seq[1:] > seq[:-1], starts)),
        pa.array(np.add.reduceat((ints(sorted_("about_size")) > 0).astype(np.int64), starts)),
        pa.array(np.add.reduceat(ints(sorted_("fault").cast(pa.int8())), starts)),
        pa.array(np.maximum.reduceat(_members(sorted_("stated")), starts)),
    ]
    columns += _facts_of_ts(sorted_("time"), sorted_("tie"), same, starts, ends)
    return pa.RecordBatch.from_arrays(columns, schema=FACTS)


def _members(details: pa.Array) -> Ints:
    """Return how many members each start row states. Few rows state it, most of them in the same words."""
    words = details.dictionary_encode()
    sizes = np.array([*map(stated_members, words.dictionary.to_pylist()), 0], dtype=np.int64)
    return np.asarray(sizes[words.indices.fill_null(len(sizes) - 1).to_numpy(zero_copy_only=False)])


def _facts_of_ts(times: pa.Array, ties: pa.Array, same: Bools, starts: Ints, ends: Ints) -> list[pa.Array]:
    if times.null_count == len(times):
        none, no = pa.nulls(len(starts), pa.int64()), pa.array(np.zeros(len(starts), dtype=np.bool_))
        no_tie = pa.nulls(len(starts), pa.string())
        return [pa.array(np.zeros(len(starts), dtype=np.int64)), no, no, none, no_tie, none, no_tie]
    time = ints(times.fill_null(NEVER))
    equal = same & (time[1:] == time[:-1])
    higher = time[1:] > time[:-1]
    if equal.any():
        higher |= equal & pc.less(ties[:-1], ties[1:]).fill_null(False).to_numpy(zero_copy_only=False)
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    return [
        pa.array(np.add.reduceat(valid.astype(np.int64), starts)),
        pa.array(_all_hold(same, higher, starts)),
        pa.array(~_all_hold(same, ~equal, starts)),
        times.take(pa.array(starts)),
        ties.take(pa.array(starts)),
        times.take(pa.array(ends)),
        ties.take(pa.array(ends)),
    ]


def _all_hold(same: Bools, holds: Bools, starts: Ints) -> Bools:
    """Return for each stretch whether this holds between all its neighbours."""
    good = np.concatenate([[True], ~same | holds])
    return np.asarray(np.logical_and.reduceat(good, starts))


def _taking_part(table: pa.Table, kinds: pa.DictionaryArray) -> list[tuple[int, pa.RecordBatch]]:
    """Make a row for each message and each end of a send or receive row about it, without repetitions."""
    words = kinds.dictionary.to_pylist()
    is_traffic = np.array([word in ("send", "receive") for word in words] + [False])
    chosen = is_traffic[kinds.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
    chosen &= ints(table["about_size"]) > 0
    if not chosen.any():
        return []
    rows = table.filter(pa.array(chosen))
    about = one_array(rows["about"])
    owner = pa.array(np.repeat(np.arange(len(about)), about.value_lengths().to_numpy(zero_copy_only=False)))
    ends = [one_array(rows[name]).take(owner) for name in ("process", "peer")]
    message = pa.concat_arrays([about.flatten(), about.flatten()])
    run, bucket = one_array(rows["run"]).take(owner), one_array(rows["about_buckets"]).flatten()
    part = pa.table(
        {
            "run": pa.concat_arrays([run, run]),
            "process": pa.concat_arrays(ends),
            "message": message,
            "bucket": pa.concat_arrays([bucket, bucket]),
        }
    )
    part = part.filter(part["process"].is_valid()).group_by(["run", "process", "message", "bucket"]).aggregate([])
    nothing = {field.name: pa.nulls(len(part), field.type) for field in ABOUT_MESSAGES}
    columns = {**nothing, **{name: one_array(part[name]) for name in ("run", "process", "message")}}
    columns["code"] = pa.array(np.full(len(part), TOOK_PART, dtype=np.int8))
    columns["seq"] = pa.array(np.zeros(len(part), dtype=np.int64))
    piece = pa.RecordBatch.from_arrays([columns[name] for name in ABOUT_MESSAGES.names], schema=ABOUT_MESSAGES)
    return split(piece, ints(part["bucket"]).astype(np.int16))
