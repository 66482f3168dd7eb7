"""The keys of one group: values, expiry by the group's clock, and versions for WATCH.

The version of a key is the number of the change that last touched it. A key that is gone takes no memory of its own:
its version is that of the last removal in its bucket, 0 if there was none. So a key that came and went since it was
watched is noticed in bounded memory, at the price of a false alarm when another key in the bucket was removed.

Slots that move keep the versions of their keys, and the group that gets them counts on from the higher number. What is
absent in a slot that has moved has a version of the move: a false alarm, too, since the buckets stay behind.
"""

import heapq
import zlib
from collections.abc import Callable, Collection, Container
from typing import Any

from amcast.apps.kv.slots import SLOTS, SlotMap, slot_of

RECLAIMED_AT_ONCE = 64  # expired keys that one request may have to clear away for others
BUCKETS = 65_536
ROOM = 60 * 2**20  # bytes that a group answers to one request: a little less than a replica keeps for who asks again
StoredValue = tuple[bytes, int, int]  # value, when it expires in ms (0: never), version


class Store:
    def __init__(self, group: int, slots: SlotMap) -> None:
        self.group = group
        self.slots = slots
        self.now = 0
        self.room = ROOM  # of answers to the request that is executed
        self.data: dict[bytes, StoredValue] = {}
        self.changes = 0
        self._removed: dict[int, int] = {}  # bucket -> version of the last removal
        self.arrivals: dict[int, int] = {}  # slot -> version of its absent keys since it came
        self._slots: dict[int, dict[bytes, None]] = {}
        self._expiring = 0
        self._heap: list[tuple[int, bytes]] = []  # also of keys that have changed since

    def entry(self, key: bytes) -> StoredValue | None:
        found = self.data.get(key)
        if found is not None and 0 < found[1] <= self.now:
            self.remove(key)
            return None
        return found

    def expires(self, key: bytes, now: int) -> bool:
        """Return whether a key that is here would have expired at this time; change nothing."""
        found = self.data.get(key)
        return found is not None and 0 < found[1] <= now

    def get(self, key: bytes) -> bytes | None:
        found = self.entry(key)
        return None if found is None else found[0]

    def put(self, key: bytes, value: bytes, expires: int = 0) -> None:
        old = self.data.get(key)
        self.changes += 1
        if old is None:
            self._slots.setdefault(slot_of(key), {})[key] = None
        elif old[1]:
            self._expiring -= 1
        self.data[key] = value, expires, self.changes
        if expires:
            self._expiring += 1
            if old is None or old[1] != expires:
                heapq.heappush(self._heap, (expires, key))

    def remove(self, key: bytes) -> None:
        self.changes += 1
        self._removed[zlib.crc32(key) % BUCKETS] = self.changes
        self._expiring -= self.data.pop(key)[1] > 0
        slot = slot_of(key)
        keys = self._slots[slot]
        del keys[key]
        if not keys:
            del self._slots[slot]

    def version(self, key: bytes) -> int:
        found = self.entry(key)
        if found is not None:
            return found[2]
        removed = self._removed.get(zlib.crc32(key) % BUCKETS, 0)
        return max(removed, self.arrivals.get(slot_of(key), 0)) if self.arrivals else removed

    def clear(self) -> None:
        self.changes += 1
        for key in self.data:
            self._removed[zlib.crc32(key) % BUCKETS] = self.changes
        self.data.clear()
        self._slots.clear()
        self._heap.clear()
        self._expiring = 0

    # All keys

    def reclaim(self, kept: Container[bytes] = (), limit: int = RECLAIMED_AT_ONCE) -> None:
        """Remove keys that have expired, but those that are kept, which somebody may still look at in the past."""
        heap, put_back = self._heap, []
        while heap and heap[0][0] <= self.now and limit:
            expires, key = item = heapq.heappop(heap)
            found = self.data.get(key)
            if found is not None and found[1] == expires:
                if key in kept:
                    put_back.append(item)
                else:
                    self.remove(key)
            limit -= 1
        for item in put_back:
            heapq.heappush(heap, item)
        if len(heap) > 2 * self._expiring + 1024:
            self._heap = [(found[1], key) for key, found in self.data.items() if found[1]]
            heapq.heapify(self._heap)

    def size(self) -> int:
        self.reclaim(limit=-1)
        return len(self.data)

    def keys(self, matches: Callable[[bytes], bool]) -> list[bytes]:
        self.reclaim(limit=-1)
        self.room -= len(self.data)  # a transaction may have many of these
        return [key for key in self.data if matches(key)]

    def scan(self, slot: int, count: int) -> tuple[int, list[bytes]]:
        """Return the slot where to go on (0: the end) and the keys of whole slots from this one on, so many or more."""
        self.reclaim(limit=-1)
        found: list[bytes] = []
        at = slot
        while at < SLOTS and self.slots.owners[at] == self.group:
            found.extend(self._slots.get(at, ()))
            at += 1
            if len(found) >= count:
                break
        return at % SLOTS, found

    # Slots that move

    def take_out(self, slots: Collection[int]) -> list[tuple[bytes, StoredValue]]:
        """Remove the keys of these slots, as if they had never been here; return them."""
        found: list[tuple[bytes, StoredValue]] = []
        for slot in slots:
            for key in self._slots.pop(slot, {}):
                row = self.data.pop(key)
                self._expiring -= row[1] > 0
                found.append((key, row))
            self.arrivals.pop(slot, None)
        return found

    def put_in(self, slots: Collection[int], changes: int, rows: list[tuple[bytes, StoredValue]]) -> None:
        """Take over the keys of these slots from a group that had made so many changes."""
        self.changes = max(self.changes, changes) + 1
        self.arrivals.update(dict.fromkeys(slots, self.changes))
        for key, row in rows:
            self.data[key] = row
            self._slots.setdefault(slot_of(key), {})[key] = None
            if row[1]:
                self._expiring += 1
                heapq.heappush(self._heap, (row[1], key))

    # Snapshots. The heap goes along as it is: its outdated items count in what is reclaimed when.

    def state(self) -> tuple[int, dict[bytes, StoredValue], list[tuple[int, int]], list[tuple[int, bytes]]]:
        """Return copies of all there is: changes, values, removals, and the heap."""
        return self.changes, self.data.copy(), list(self._removed.items()), self._heap.copy()

    def load(self, state: list[Any]) -> None:
        self.changes = state[0]
        self.data = {key: (value, expires, version) for key, (value, expires, version) in state[1]}
        self._removed = dict(state[2])
        self._heap = [(expires, key) for expires, key in state[3]]
        self._expiring = sum(found[1] > 0 for found in self.data.values())
        self._slots = {}
        for key in self.data:
            self._slots.setdefault(slot_of(key), {})[key] = None
