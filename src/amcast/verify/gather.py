"""The one pass over a trace: sums up who did what, and puts what concerns messages into buckets by message.

Summaries (`FACTS`) describe each process and kind in a table of rows: how many there are, their first and last `seq`,
which `seq` they use, and whether timestamps increase. The buckets hold the rows of multicasts, deliveries and
optimistic deliveries and, if genuineness is asked for, a row for each process that took part in ordering a message.
Names stay names: the hash of a message decides about its bucket and about nothing else.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amcast.checks.history import stated_members
from amcast.errors import TraceError
from amcast.tracefile.parts import WORD
from amcast.verify.arrays import Bools, Ints, ends_of, ints, one_array, stretches
from amcast.verify.pieces import split

# What a piece holds is said in its schema.
FACT, SENT, DELIVERED, GUESSED, TOOK_PART, REFUSED = (
    b"fact", b"sent", b"delivered", b"guessed", b"took part", b"refused",
)  # fmt: skip
FACTS_BUCKET: Final = -1
NEVER: Final = -(2**63)
SEQUENCED: Final = ("multicast", "deliver", "optdeliver", "crash", "restart")
MARKS: Final = ("crash", "restart")
WHAT_OF_KIND: Final = {"multicast": SENT, "deliver": DELIVERED, "optdeliver": GUESSED}
# Which `seq` a stretch uses is told as bits where there is one in so many places, else one by one, if they are few.
SPARSEST: Final = 32
FEW: Final = 8_192

FACTS: Final = pa.schema(
    [
        ("run", pa.string()), ("process", pa.string()), ("group", pa.string()), ("kind", pa.string()),
        ("rows", pa.int64()), ("first", pa.int64()), ("last", pa.int64()),
        ("increasing", pa.bool_()), ("distinct", pa.bool_()), ("bits", pa.binary()),
        ("seqs", pa.list_(pa.int64())), ("highs", pa.list_(pa.int64())),
        ("about", pa.int64()), ("members", pa.int64()), ("with_ts", pa.int64()),
        ("ts_increasing", pa.bool_()), ("ties", pa.bool_()),
        ("first_time", pa.int64()), ("first_tie", pa.string()), ("last_time", pa.int64()), ("last_tie", pa.string()),
    ],
    metadata={b"what": FACT},
)  # fmt: skip

Gathered = tuple[int, pa.RecordBatch]


def what(piece: pa.RecordBatch) -> bytes:
    """Return what a piece holds."""
    return bytes((piece.schema.metadata or {})[b"what"])


def gather(tables: Iterable[pa.Table], buckets: int, with_traffic: bool, by_run: bool = False) -> Iterator[Gathered]:
    """Yield pieces with their buckets: by message, with facts in FACTS_BUCKET, or all of a run in one bucket.

    What is wrong with the trace is a piece as well: an exception in a task would be retried and wrapped.
    """
    try:
        for table in tables:
            if len(table):
                yield from _gathered(table, buckets, with_traffic, by_run)
    except TraceError as error:
        refusal = pa.schema([("error", pa.string())], metadata={b"what": REFUSED})
        yield 0 if by_run else FACTS_BUCKET, pa.record_batch([[str(error)]], schema=refusal)


def _gathered(table: pa.Table, buckets: int, with_traffic: bool, by_run: bool) -> Iterator[Gathered]:
    kinds = one_array(table["kind"])
    facts = _facts(table, kinds)
    if by_run:
        yield from split(facts, _buckets_of(facts.column("run"), buckets))
    else:
        yield FACTS_BUCKET, facts
    words = kinds.dictionary.to_pylist()
    for kind, holds in WHAT_OF_KIND.items():
        if kind in words:
            chosen = table if len(words) == 1 else table.filter(pc.equal(kinds, kind))
            if len(chosen):
                yield from _spread(_about_messages(chosen, holds), buckets, by_run)
    if with_traffic and not {"send", "receive"}.isdisjoint(words):
        part = _taking_part(table if set(words) <= {"send", "receive"} else table.filter(_is_traffic(kinds)))
        if part.num_rows:
            yield from _spread(part, buckets, by_run)


def _spread(piece: pa.RecordBatch, buckets: int, by_run: bool) -> list[Gathered]:
    if buckets == 1:
        return [(0, piece)]
    return split(piece, _buckets_of(piece.column("run" if by_run else "message"), buckets))


def _about_messages(table: pa.Table, holds: bytes) -> pa.RecordBatch:
    names = ["run", "process", "seq", "message"]
    columns = [one_array(table[name]) for name in names]
    if holds == SENT:
        names.append("dest")
        columns.append(one_array(table["dest"]))
    elif holds == DELIVERED and table["ts"].null_count < len(table):
        time, tie = _timestamps(table)
        names.append("time")
        columns.append(time)
        is_name = pc.equal(tie, columns[3])  # often the tie is the message: then it says nothing new
        if not pc.all(is_name).as_py():
            names.append("tie")
            columns.append(pc.if_else(is_name, None, tie).dictionary_encode())
    fields = [(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata={b"what": holds}))


def _timestamps(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    ts = one_array(table["ts"])
    return pc.struct_field(ts, "time"), pc.fill_null(pc.struct_field(ts, "tie"), "")


def _buckets_of(names: pa.Array, buckets: int) -> Ints:
    if pa.types.is_dictionary(names.type):
        return np.asarray(_buckets_of(names.dictionary, buckets)[names.indices.to_numpy(zero_copy_only=False)])
    return np.asarray((hashes(names) % np.uint64(buckets)).astype(np.int64))


def hashes(names: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a hash of each name, eight bytes at a time. Equal names have equal hashes, in whatever array they are."""
    found = np.zeros(len(names), dtype=np.uint64)
    _, places, text = names.buffers()
    if text is None or not len(names):
        return found
    offsets = np.frombuffer(places, dtype=np.int32)[names.offset : names.offset + len(names) + 1].astype(np.int64)
    padded = np.concatenate([np.frombuffer(text, dtype=np.uint8)[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)])
    eights = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    start, left = offsets[:-1] - offsets[0], np.diff(offsets)
    here = slice(None) if left.min(initial=1) > 0 else np.flatnonzero(left)
    while len(start[here]):
        part = np.minimum(left[here], 8).astype(np.uint64)
        word = eights[start[here]] & (np.uint64(2**64 - 1) >> (np.uint64(64) - np.uint64(8) * part))
        mixed = (found[here] ^ word) * np.uint64(0x9E3779B97F4A7C15) + part
        found[here] = mixed ^ (mixed >> np.uint64(29))
        start, left = start + 8, left - 8
        here = np.flatnonzero(left > 0)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(found ^ (found >> np.uint64(32)))


# ---------------------------------------------------------------- summaries


def _facts(table: pa.Table, kinds: pa.DictionaryArray) -> pa.RecordBatch:
    runs, processes, groups = (one_array(table[name]) for name in ("run", "process", "group"))
    key = np.zeros(len(table), dtype=np.int64)
    combinations = 1
    for words in (runs, processes, kinds, groups):
        key *= len(words.dictionary) + 1
        key += _indices(words)
        combinations *= len(words.dictionary) + 1
    order = None
    if not (key[1:] >= key[:-1]).all():
        order = np.argsort(key.astype(np.uint16) if combinations <= 2**16 else key, kind="stable")
        key = key[order]

    def sorted_(column: pa.Array) -> pa.Array:
        return column if order is None else column.take(pa.array(order))

    seq = ints(sorted_(one_array(table["seq"])))
    kind_names = kinds.dictionary.to_pylist()
    starts = stretches(key)
    if set(kind_names) & set(MARKS):  # each by itself, so that its exact place is known
        is_mark = _holds_of_word(sorted_(kinds), MARKS)
        starts = np.union1d(starts, np.flatnonzero(is_mark))
    ends = ends_of(starts, len(key)) - 1
    same = np.ones(len(key), dtype=np.bool_)
    same[starts] = False
    first_row = pa.array(starts if order is None else order[starts])
    columns = [words.take(first_row).cast(pa.string()) for words in (runs, processes, groups, kinds)]
    rows = ends - starts + 1
    first, last = np.minimum.reduceat(seq, starts), np.maximum.reduceat(seq, starts)
    increasing = _all_hold(same, np.concatenate([[True], seq[1:] > seq[:-1]]), starts)
    sequenced = _holds_of_word(columns[3].dictionary_encode(), SEQUENCED)
    about = one_array(table["about"])
    is_about: Bools = np.zeros(len(table), dtype=np.bool_)
    if about.null_count < len(about):
        is_about = ints(pc.fill_null(pc.list_value_length(sorted_(about)), 0)) > 0
    columns += [
        pa.array(rows), pa.array(first), pa.array(last), pa.array(increasing),
        *_used(seq, first, last, rows, sequenced, increasing, starts),
        pa.array(np.add.reduceat(is_about.astype(np.int64), starts)),
        pa.array(_members(table, kinds, order, starts)),
        *_facts_of_ts(table, sorted_, same, starts, ends),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=FACTS)


def _indices(words: pa.DictionaryArray) -> Ints:
    places = words.indices
    return ints(places.fill_null(len(words.dictionary)) if places.null_count else places)


def _holds_of_word(words: pa.DictionaryArray, chosen: tuple[str, ...]) -> Bools:
    of_word = np.array([word in chosen for word in words.dictionary.to_pylist()] + [False])
    return np.asarray(of_word[_indices(words)])


def _is_traffic(kinds: pa.DictionaryArray) -> pa.Array:
    return pa.array(_holds_of_word(kinds, ("send", "receive")))


def _used(
    seq: Ints, first: Ints, last: Ints, rows: Ints, sequenced: Bools, increasing: Bools, starts: Ints
) -> list[pa.Array]:
    """Return whether the `seq` of each stretch are distinct, which they are, and their upper halves."""
    width = (last - first).astype(np.uint64) + np.uint64(1)  # of all of int64 it is 0, and not to be used
    dense = sequenced & (width <= (SPARSEST * rows).astype(np.uint64)) & (width > 0)
    bytes_of = np.where(dense, (width + np.uint64(7)) // np.uint64(8), 0).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(bytes_of)])
    bits = np.zeros(8 * int(offsets[-1]), dtype=np.bool_)
    stretch = np.repeat(np.arange(len(starts)), rows)
    chosen = slice(None) if dense.all() else np.flatnonzero(dense[stretch])
    stretch = stretch[chosen]
    bits[8 * offsets[stretch] + (seq[chosen] - first[stretch])] = True
    used = np.add.reduceat(np.append(bits, False), np.minimum(8 * offsets[:-1], len(bits)), dtype=np.int64)
    distinct = increasing | (dense & (used == rows))
    packed = np.packbits(bits)
    blobs = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(starts),
        [pa.array(dense).buffers()[1], pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(packed)],
    )
    single = sequenced & ~dense & (rows <= FEW)
    seqs = [
        seq[start : start + count].tolist() if alone else None
        for start, count, alone in zip(starts.tolist(), rows.tolist(), single.tolist(), strict=True)
    ]
    highs = [
        np.unique(seq[start : start + count] >> 32).tolist() if low != high else [low]
        for start, count, low, high in zip(
            starts.tolist(), rows.tolist(), (first >> 32).tolist(), (last >> 32).tolist(), strict=True
        )
    ]
    return [pa.array(distinct), blobs, pa.array(seqs, pa.list_(pa.int64())), pa.array(highs, pa.list_(pa.int64()))]


def _members(table: pa.Table, kinds: pa.DictionaryArray, order: Ints | None, starts: Ints) -> Ints:
    """Return how many members the start rows of each stretch state, most of them in the same words."""
    details = one_array(table["detail"])
    if details.null_count == len(details) or "start" not in kinds.dictionary.to_pylist():
        return np.zeros(len(starts), dtype=np.int64)
    words = details.dictionary_encode()
    sizes = np.array([*map(stated_members, words.dictionary.to_pylist()), 0], dtype=np.int64)
    stated = np.where(_holds_of_word(kinds, ("start",)), sizes[_indices(words)], 0)
    return np.asarray(np.maximum.reduceat(stated if order is None else stated[order], starts))


def _facts_of_ts(
    table: pa.Table, sorted_: Callable[[pa.Array], pa.Array], same: Bools, starts: Ints, ends: Ints
) -> list[pa.Array]:
    count = len(starts)
    if table["ts"].null_count == len(table):
        none, no = pa.nulls(count, pa.int64()), pa.array(np.zeros(count, dtype=np.bool_))
        no_tie = pa.nulls(count, pa.string())
        return [pa.array(np.zeros(count, dtype=np.int64)), no, no, none, no_tie, none, no_tie]
    times, ties = (sorted_(column) for column in _timestamps(table))
    time = ints(times.fill_null(NEVER))
    equal, higher = np.zeros(len(time), dtype=np.bool_), np.ones(len(time), dtype=np.bool_)
    equal[1:] = same[1:] & (time[1:] == time[:-1])
    higher[1:] = time[1:] > time[:-1]
    if equal.any():
        higher[1:] |= equal[1:] & pc.less(ties[:-1], ties[1:]).to_numpy(zero_copy_only=False)
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
    """Return for each stretch whether this holds of all rows but its first."""
    return np.asarray(np.logical_and.reduceat(~same | holds, starts))


# ---------------------------------------------------------------- traffic


def _taking_part(rows: pa.Table) -> pa.RecordBatch:
    """Make a row for each message and each end of a send or receive row about it, without repetitions."""
    about = one_array(rows["about"])
    owner = pc.list_parent_indices(about)
    messages = about.flatten()
    parts = [
        pa.table(
            {
                "run": one_array(rows["run"]).take(owner).cast(pa.string()),
                "process": one_array(rows[end]).take(owner).cast(pa.string()),
                "message": messages,
            }
        )
        for end in ("process", "peer")
    ]
    part = pa.concat_tables(parts)
    part = part.filter(part["process"].is_valid()).group_by(["run", "process", "message"]).aggregate([])
    columns = [one_array(part[name]) for name in ("run", "process", "message")]
    columns[:2] = [column.dictionary_encode() for column in columns[:2]]
    fields = [("run", WORD), ("process", WORD), ("message", pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata={b"what": TOOK_PART}))
