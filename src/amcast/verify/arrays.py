"""Arrays of numbers, and lists of them as flat arrays."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from amcast.tracefile.parts import one_array as one_array

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Lists:
    """One list for each of `count` owners. `values` belong to `owner`, which is ascending."""

    count: int
    owner: Ints
    values: Ints

    @staticmethod
    def of(column: pa.ListArray) -> "Lists":
        lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        values = column.flatten().to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return Lists(len(column), np.repeat(np.arange(len(column)), lengths), values)

    def lengths(self) -> Ints:
        return np.bincount(self.owner, minlength=self.count).astype(np.int64)

    def column(self, of: pa.DataType) -> pa.ListArray:
        offsets = np.concatenate([[0], np.cumsum(self.lengths())]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self.values).cast(of))

    def where(self, chosen: Bools) -> "Lists":
        return Lists(self.count, self.owner[chosen], self.values[chosen])

    def has_any(self) -> Bools:
        return np.asarray(self.lengths() > 0)

    def highest(self, of_values: Ints, default: int) -> Ints:
        """Return for each owner the highest of these numbers, which stand for its values."""
        found = np.full(self.count, default, dtype=np.int64)
        if len(self.owner):
            starts = stretches(self.owner)
            found[self.owner[starts]] = np.maximum.reduceat(of_values, starts)
        return found


def ints(column: pa.Array | pa.ChunkedArray) -> Ints:
    return np.asarray(one_array(column).to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def stretches(*keys: Ints) -> Ints:
    """Return where each stretch of equal keys begins. The first begins at 0, if there is any."""
    length = len(keys[0])
    if not length:
        return np.zeros(0, dtype=np.int64)
    new = np.zeros(length, dtype=np.bool_)
    new[0] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)


def ends_of(starts: Ints, length: int) -> Ints:
    """Return where each of these stretches ends, in an array of this length: one behind its last place."""
    return np.concatenate([starts[1:], [length]])[: len(starts)]


def is_in(keys: Ints, ascending: Ints) -> Bools:
    if not len(ascending):
        return np.zeros(len(keys), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.asarray(ascending[place] == keys)


def places_in_stretches(lengths: Ints) -> Ints:
    """Return 0, 1, … for each stretch of these lengths, one after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
