"""The rows of a group's ordered log as Arrow batches: built from whole columns, never row by row."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amcast.core.order import LOW_BITS
from amcast.core.topology import Topology
from amcast.runtime.rows import Columns
from amcast.tracefile.schema import COLUMN_TYPES

ARROW: Final = pa.schema(
    [
        ("group", pa.string()), ("position", pa.int64()), ("ts", COLUMN_TYPES["ts"]), ("message", pa.string()),
        ("sender", pa.string()), ("dest", pa.list_(pa.string())), ("key", pa.binary()), ("payload", pa.binary()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
KEY: Final = np.dtype([("ts", ">i8"), ("index", ">i2")])  # sorts as bytes as messages are ordered
Ints = npt.NDArray[np.int64]


def record_batch(columns: Columns, topology: Topology, group: int, first: int) -> pa.RecordBatch:
    """Make a batch of rows with consecutive positions in the log of one group."""
    count = columns.count
    ts, index = keys_of(columns)
    names = pa.array([topology.group_name(g) for g in range(len(topology.groups))])
    tie = names.take(pa.array(ts & (1 << LOW_BITS) - 1))
    if index.any():
        places = pc.utf8_lpad(pa.array(index).cast(pa.string()), 4, "0")
        tie = pc.if_else(pa.array(index == 0), tie, pc.binary_join_element_wise(tie, places, "+"))
    senders, which = np.unique(_longs(columns.senders.getvalue()), return_inverse=True)
    sender = pa.array([topology.name(int(pid)) for pid in senders], pa.string()).take(pa.array(which))
    number = pa.array(_longs(columns.numbers.getvalue())).cast(pa.string())
    sets = pa.array([[topology.group_name(g) for g in dest] for dest in columns.sets], pa.list_(pa.string()))
    keys = np.empty(count, KEY)
    keys["ts"], keys["index"] = ts, index
    fixed = pa.py_buffer(keys.tobytes())
    payload = [None, pa.py_buffer(columns.ends.getvalue()), pa.py_buffer(columns.payloads.getvalue())]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topology.group_name(group)]).take(pa.array(np.zeros(count, np.int64))),
            pa.array(np.arange(first, first + count)),
            pa.StructArray.from_arrays([pa.array(ts >> LOW_BITS), tie], fields=list(COLUMN_TYPES["ts"])),
            pc.binary_join_element_wise(sender, number, ":"),
            sender,
            sets.take(pa.array(np.frombuffer(columns.dests.getvalue(), "<i4"))),
            pa.Array.from_buffers(pa.binary(KEY.itemsize), count, [None, fixed]).cast(pa.binary()),
            pa.Array.from_buffers(pa.binary(), count, payload),
            pa.array(_longs(columns.times.getvalue()) // 1000).cast(pa.timestamp("us", "UTC")),
        ],
        schema=ARROW,
    )


def keys_of(columns: Columns) -> tuple[Ints, Ints]:
    """Return the timestamps, and the places among messages with the same timestamp."""
    return _longs(columns.ts.getvalue()), np.frombuffer(columns.indices.getvalue(), "<i2").astype(np.int64)


def merged(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return all rows in the total order. Each message comes once, from the group with the lowest name."""
    table = pa.Table.from_batches(batches, ARROW)
    if not table.num_rows:
        return table
    table = table.take(pc.sort_indices(table, [("key", "ascending"), ("group", "ascending")]))
    key = table["key"].combine_chunks()
    new = pc.not_equal(key[1:], key[:-1])
    return table.filter(pa.concat_arrays([pa.array([True]), new]))


def _longs(data: bytes) -> Ints:
    return np.frombuffer(data, "<i8")
