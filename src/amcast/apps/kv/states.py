"""What the state of a group consists of, in memory and in snapshots."""

from typing import Any

import msgspec

from amcast.apps.kv import wire
from amcast.apps.kv.slots import Run, slot_of


class Job(msgspec.Struct, array_like=True, frozen=True):
    """A unit that waits, or a PREPARE that holds its locks."""

    work: wire.Work | wire.Move
    clock: int
    several: bool  # groups have parts of it, and this one's is by the map of now
    keys: list[bytes] | None  # of this group's part; None: all there are


class StoreSnapshot(msgspec.Struct, array_like=True):
    """All of a group's state. The order of the fields is the format on disk."""

    clock: int
    tickets: int
    store: list[Any]
    locks: list[tuple[bytes, Job]]
    waiting: list[tuple[int, Job]]
    answers: list[tuple[int, bytes]]
    decided: list[tuple[bytes, bool]]
    moves: "MapState | None" = None  # version 1 of the application has none


class MapState(msgspec.Struct, array_like=True):
    """What a group knows of slots."""

    version: int
    groups: list[int]
    regrouped: int
    runs: list[Run]
    learnt: list[wire.Learn]
    absent: list[tuple[int, int]]  # versions of absent keys, by slot
    arriving: list[tuple[int, int, list[tuple[int, bytes]]]]  # moves, how many parts there are, and which are here
    leaving: list[tuple[int, int, bytes]]  # moves, how large the parts are, and the keys


class HeldOrIn:
    """Keys that are held, and all of some slots."""

    def __init__(self, keys: set[bytes], slots: set[int]) -> None:
        self._keys = keys
        self._slots = slots

    def __contains__(self, key: object) -> bool:
        return key in self._keys or (isinstance(key, bytes) and slot_of(key) in self._slots)


class Arriving:
    """The keys of slots that have moved here, as far as they have come."""

    def __init__(self, parts: int = 0) -> None:
        self.parts = parts  # 0: not known yet
        self.here: dict[int, bytes] = {}

    def whole(self) -> bool:
        return 0 < self.parts == len(self.here)

    def data(self) -> bytes:
        return b"".join([self.here[part] for part in range(self.parts)])
