"""The shadow of a disk: what it promised to keep, remembered where no fault of the disk reaches."""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from amcast.runtime.sectors import CONTENT, HEAD, LENGTH, SECTOR, is_sector, number_at
from amcast.swarm.cluster.platter import Folder, Inode

LOG: Final = re.compile(r"log-\d+")
UNFINISHED: Final = re.compile(r"snapshot-(\d+)\.new")


class Shadowed(Protocol):
    """The disk, as its shadow sees it."""

    harm: list[str]

    def look_up(self, path: Path) -> Inode | Folder: ...


@dataclass
class Promise:
    """What the disk said that it would keep of a node's folder."""

    frames: dict[int, int] = field(default_factory=dict)  # number: checksum of a frame that no snapshot holds
    snapshots: dict[int, int] = field(default_factory=dict)  # number of the next frame: checksum
    replacing: dict[int, int] = field(default_factory=dict)  # the same of what may get their names, as it was synced
    end: int = 0  # the number of the frame after the last one
    gone: str = ""  # what was missing when a process last started
    end_then: int = 0

    @property
    def floor(self) -> int:
        return max(self.snapshots, default=-1)


class Shadow:
    """Remembers outside of the disk what was synced, so that after a start one can ask whether it was found.

    It knows the names `log-N` and `snapshot-N` and what a frame looks like. A frame is promised when the sync of its
    file has returned: whoever forgets to sync its name as well finds that out here. One that came by another name is
    promised when that name is synced. A snapshot is promised, and frees from the promise of the frames before it, when
    its content and its name are synced.
    """

    def __init__(self, disk: Shadowed) -> None:
        self.complaints: list[str] = []  # about what was written although it contradicts a promise
        self._disk = disk
        self._promises: defaultdict[Path, Promise] = defaultdict(Promise)

    def begin_again(self, folder: Path) -> None:
        """Forget a folder: its node starts as a new one, or with the state of others."""
        self._promises.pop(folder, None)

    def promised(self, folder: Path) -> int:
        """Return the number of the first frame that was not promised."""
        return self._promises[folder].end

    def missing(self, folder: Path) -> str:
        """Say what programs do not find of what was promised; nothing if all is there."""
        promise = self._promises[folder]
        there = self._numbered(folder, "snapshot")
        newest = max(there, default=-1)
        found: set[tuple[int, int]] = set()
        for log in self._numbered(folder, "log").values():
            if isinstance(log, Inode):
                found.update((number, check) for number, check, _ in frames_of(bytes(log.seen)))
        numbers = {number for number, _ in found}
        if not numbers.issuperset(range(max(newest, 0), promise.floor)):  # nor is the log there that it replaces
            return f"snapshot-{promise.floor}"
        known = (promise.snapshots.get(newest), promise.replacing.get(newest))  # two of one number are worth the same
        if newest in promise.snapshots and checksum(there[newest]) not in known:
            return f"the content of snapshot-{newest}"
        lost = [n for n, check in sorted(promise.frames.items()) if n >= newest and (n, check) not in found]
        return f"frame {lost[0]} and {len(lost) - 1} more of {promise.end}" if lost else ""

    def judge(self, folder: Path, found: int | None) -> str:
        """Judge a start: `found` is the frame at which the node goes on, None if its data made it refuse.

        Return a complaint, or nothing if the node did right.
        """
        promise = self._promises[folder]
        if found is None:
            excused = promise.gone or self._disk.harm
            return "" if excused else f"{folder}: refused, though all that was synced is there"
        if promise.gone:
            return f"{folder}: started, though {promise.gone} had been synced and is gone"
        if found < promise.end_then:
            return f"{folder}: goes on at frame {found}, though frames up to {promise.end_then} had been synced"
        return ""

    def look(self) -> None:
        """Take note of what is missing before a process starts: what it does then hides that."""
        for folder, promise in self._promises.items():
            promise.gone = self.missing(folder)
            promise.end_then = promise.end

    def file_synced(self, path: Path, inode: Inode) -> None:
        unfinished = UNFINISHED.fullmatch(path.name)
        if unfinished is not None:
            promise = self._promises[path.parent]
            promise.replacing[int(unfinished[1])] = checksum(inode)
            return
        if LOG.fullmatch(path.name) is None:
            return
        promise = self._promises[path.parent]
        start = inode.read_until
        for number, check, end in frames_of(bytes(inode.seen[start:])):
            if number < promise.floor or promise.frames.get(number, check) != check:
                self.complaints.append(f"{path}: frame {number} had been synced before, with other content")
            promise.frames[number] = check
            promise.end = max(promise.end, number + 1)
            inode.read_until = start + end

    def folder_synced(self, path: Path, folder: Folder) -> None:
        promise = self._promises[path]
        floor = promise.floor
        for number, snapshot in self._numbered(path, "snapshot").items():
            if number in promise.snapshots and number not in promise.replacing:
                continue  # folders are synced often, and snapshots may be large
            replaced = checksum(snapshot) == promise.replacing.pop(number, None)
            if settled(snapshot) and (replaced or number not in promise.snapshots):
                promise.snapshots[number] = checksum(snapshot)
                promise.end = max(promise.end, number)
        for number, log in self._numbered(path, "log").items():  # also one that was written under another name
            if not isinstance(log, Inode) or log.read_until == len(log.seen):
                continue
            if number >= promise.floor and settled(log):
                self.file_synced(path / f"log-{number}", log)
        if promise.floor != floor:
            floor = promise.floor
            promise.snapshots = {floor: promise.snapshots[floor]}
            promise.frames = {n: check for n, check in promise.frames.items() if n >= floor}

    def _numbered(self, path: Path, kind: str) -> dict[int, Inode | Folder]:
        try:
            folder = self._disk.look_up(path)
        except OSError:
            return {}
        names = folder.seen if isinstance(folder, Folder) else {}
        front = f"{kind}-"
        found = ((name.removeprefix(front), node) for name, node in names.items() if name.startswith(front))
        return {int(number): node for number, node in found if number.isdecimal()}


def frames_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Return number, checksum and end of each frame up to the first whose head is not sound.

    That the rest of a frame is as it was written follows from its checksum, with which it is compared.
    """
    at, view = 0, memoryview(data)
    while (number := number_at(view, at)) is not None and is_sector(view, at, 0, number):
        length = LENGTH.size + LENGTH.unpack_from(view, at + HEAD)[0]
        end = at - (-length // CONTENT) * SECTOR
        if end > len(data):
            return
        yield number, zlib.crc32(view[at:end]), end
        at = end


def settled(node: Inode | Folder) -> bool:
    """Return whether all of this is on the platter."""
    if isinstance(node, Inode):
        return not node.pending and node.seen == node.kept
    return not node.pending and all(map(settled, node.seen.values()))


def checksum(node: Inode | Folder) -> int:
    if isinstance(node, Inode):
        return node.checksum()
    return zlib.crc32(repr([(name, checksum(node.seen[name])) for name in sorted(node.seen)]).encode())
