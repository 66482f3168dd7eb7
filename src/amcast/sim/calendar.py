"""The event queue of the simulator: a calendar of buckets, a heap for what is far away.

Events leave by time and, at equal times, in the order in which they came. A bucket keeps three parallel arrays and is
sorted when its turn comes; drained buckets are used again, so memory follows what is under way and not how long a run
lasts.
"""

from heapq import heappop, heappush
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

SLOTS: Final[i64] = 4096
INDEX_BITS: Final[i64] = 24
INDEX_MASK: Final[i64] = (1 << 24) - 1
LONG: Final[i64] = 48  # above this many events sorted() beats insertion


@final
class Bucket:
    """`keys` holds (time within the bucket, index) in one integer; codes and payloads stay where they were put."""

    def __init__(self) -> None:
        self.n: i64 = 0
        self.keys: vec[i64] = vec[i64]()
        self.codes: vec[i64] = vec[i64]()
        self.payloads: list[object] = []

    def add(self, offset: i64, code: i64, payload: object) -> None:
        n = self.n
        key = (offset << INDEX_BITS) | n
        keys = self.keys
        if n < len(keys):
            keys[n] = key
            self.codes[n] = code
            self.payloads[n] = payload
        else:
            self.keys = append(keys, key)
            self.codes = append(self.codes, code)
            self.payloads.append(payload)
        self.n = n + 1

    def sift(self, last: i64, first: i64) -> None:
        """Move the last key left to its place, not before `first`."""
        keys = self.keys
        key = keys[last]
        j = last
        while j > first and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key

    def sort(self) -> None:
        n = self.n
        i: i64 = 1
        keys = self.keys
        if n <= LONG:
            while i < n:
                self.sift(i, 0)
                i += 1
            return
        while i < n and keys[i - 1] <= keys[i]:
            i += 1
        if i == n:
            return
        i = 0
        ordered = sorted([keys[j] for j in range(n)])
        while i < n:
            keys[i] = ordered[i]
            i += 1


@final
class Calendar:
    """After `pop`, the event is in `now`, `code` and `payload`."""

    def __init__(self, width: int) -> None:
        self.width: i64 = min(max(1, width), 1 << 38)  # so that a place in a bucket and an index fit into one key
        self.now: i64 = 0
        self.code: i64 = 0
        self.payload: object = None
        self._empty = Bucket()
        self._ring: list[Bucket] = [self._empty] * int(SLOTS)
        self._pool: list[Bucket] = []
        self._slot: i64 = 0  # of the open bucket
        self._start: i64 = 0  # time at which the open bucket starts
        self._pos: i64 = 0
        self._open = Bucket()
        self._ring[0] = self._open
        self._near: i64 = 0  # events in the ring
        self._far: list[tuple[int, int, int, object]] = []
        self._far_slot: i64 = 1 << 62
        self._far_seq = 0

    def __len__(self) -> int:
        return int(self._near) + len(self._far)

    def push(self, time: i64, code: i64, payload: object) -> None:
        slot = time // self.width
        if slot - self._slot >= SLOTS:
            self._far_seq += 1
            heappush(self._far, (int(time), self._far_seq, int(code), payload))
            self._far_slot = self._far[0][0] // self.width
            return
        self._near += 1
        bucket = self._ring[slot & (SLOTS - 1)]
        if bucket is self._empty:
            bucket = self._pool.pop() if self._pool else Bucket()
            self._ring[slot & (SLOTS - 1)] = bucket
        bucket.add(time - slot * self.width, code, payload)
        if slot == self._slot:
            bucket.sift(bucket.n - 1, self._pos)

    def pop(self) -> bool:
        bucket = self._open
        while self._pos >= bucket.n:
            if not self._advance():
                return False
            bucket = self._open
        key = bucket.keys[self._pos]
        self._pos += 1
        i = key & INDEX_MASK
        self.now = self._start + (key >> INDEX_BITS)
        self.code = bucket.codes[i]
        self.payload = bucket.payloads[i]
        bucket.payloads[i] = None
        self._near -= 1
        return True

    def _advance(self) -> bool:
        """Open the next bucket that may hold something; False when nothing is left."""
        bucket = self._open
        bucket.n = 0
        self._pool.append(bucket)
        self._ring[self._slot & (SLOTS - 1)] = self._empty
        self._pos = 0
        if self._near == 0:
            if not self._far:
                self._open = Bucket()
                self._ring[self._slot & (SLOTS - 1)] = self._open
                return False
            self._slot = self._far_slot
        else:
            self._slot += 1
        bucket = self._ring[self._slot & (SLOTS - 1)]
        while bucket is self._empty and self._near > 0 and self._far_slot - self._slot >= SLOTS:
            self._slot += 1
            bucket = self._ring[self._slot & (SLOTS - 1)]
        self._start = self._slot * self.width
        if bucket is self._empty:
            bucket = self._pool.pop()
            self._ring[self._slot & (SLOTS - 1)] = bucket
        self._open = bucket
        if self._far_slot - self._slot < SLOTS:
            self._take_from_far()
        bucket.sort()
        return True

    def _take_from_far(self) -> None:
        """Move what has come near into the ring, in the order in which it was pushed."""
        while self._far and self._far[0][0] // self.width - self._slot < SLOTS:
            time, _, code, payload = heappop(self._far)
            slot: i64 = time // self.width
            bucket = self._ring[slot & (SLOTS - 1)]
            if bucket is self._empty:
                bucket = self._pool.pop() if self._pool else Bucket()
                self._ring[slot & (SLOTS - 1)] = bucket
            bucket.add(time - slot * self.width, code, payload)
            self._near += 1
        self._far_slot = self._far[0][0] // self.width if self._far else 1 << 62
