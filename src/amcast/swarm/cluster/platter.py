"""Files and folders: what programs see of them, what is on the platter, and the changes in between."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from zlib import crc32

SECTOR: Final = 512


@dataclass(eq=False)
class Inode:
    """The content of a file."""

    number: int = 0  # no other file of the disk has it, nor had it
    seen: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)  # on the platter
    pending: list[tuple[int, bytes, int]] = field(default_factory=list)  # place, bytes, length of the file afterwards
    locked_by: object = None  # the process that has the lock
    read_until: int = 0  # the shadow has read its frames up to here
    _summed: int = 0  # bytes, from the front, that are …
    _sum: int = 0  # … in this checksum

    def checksum(self) -> int:
        """Return the checksum of what programs see; what was only appended to is not read again."""
        with memoryview(self.seen) as seen:
            self._sum = crc32(seen[self._summed :], self._sum)
        self._summed = len(self.seen)
        return self._sum

    def changed(self) -> None:
        """Take note that bytes which were there are others now."""
        self._summed = self._sum = 0

    def write(self, at: int, data: bytes) -> None:
        if at < self._summed:
            self.changed()
        if at > len(self.seen):
            self.seen.extend(bytes(at - len(self.seen)))
        self.seen[at : at + len(data)] = data
        self.pending.append((at, data, len(self.seen)))

    def truncate(self, length: int) -> None:
        old = len(self.seen)
        if length < old:
            self.changed()
            del self.seen[length:]
            self.pending.append((length, bytes(old - length), length))
            self.read_until = min(self.read_until, length)
        elif length > old:
            self.seen.extend(bytes(length - old))
            self.pending.append((old, b"", length))

    def sectors(self, index: int) -> Iterator[int]:
        """Return the sectors that one of the pending writes touches."""
        at, data, _ = self.pending[index]
        return iter(range(at // SECTOR, -(-(at + len(data)) // SECTOR)))

    def sync(self) -> None:
        first, end = self._written_in_one_piece()
        if first >= end:
            self._carry_over(lambda _: True)
            return
        resize(self.kept, len(self.seen))
        place = slice(first // SECTOR * SECTOR, min(-(-end // SECTOR) * SECTOR, len(self.seen)))
        self.kept[place] = self.seen[place]
        self.pending.clear()

    def _written_in_one_piece(self) -> tuple[int, int]:
        """Return from where to where the pending writes go, each behind the one before it; nothing if they do not.

        Logs are written so, and synced so often that a look at every sector would be most of a run.
        """
        first = end = self.pending[0][0] if self.pending else 0
        for at, data, _ in self.pending:
            if at != end:
                return 0, 0
            end += len(data)
        return first, min(end, len(self.seen))

    def fail_to_sync(self, random: Random) -> None:
        """Do as Linux does: some sectors got there, and all count as clean, so that no later sync writes the others."""
        self._carry_over(lambda _: random.random() < 0.5)

    def _carry_over(self, holds: Callable[[int], bool]) -> None:
        if not self.pending:
            return
        length = len(self.seen)
        resize(self.kept, length)  # in place: a log that is synced after every write must not be copied as often
        for sector in sorted({sector for i in range(len(self.pending)) for sector in self.sectors(i)}):
            if holds(sector):
                place = slice(sector * SECTOR, min((sector + 1) * SECTOR, length))
                self.kept[place] = self.seen[place]
        self.pending.clear()

    def cut_power(self, random: Random) -> None:
        fate = random.randrange(4) if self.pending else 0
        if fate == 1:
            self.sync()
        elif fate > 1:
            self._keep_some(random)
        self.pending.clear()
        self.forget_cache()

    def _keep_some(self, random: Random) -> None:
        """Keep each sector as it was before or after any of the writes to it, and any length in between."""
        last: dict[int, int] = {}  # sector: how many of the writes had been made when it was written out
        lengths = [len(self.kept), *(length for _, _, length in self.pending)]
        kept = self.kept
        resize(kept, max(lengths))
        for i, (at, data, _) in enumerate(self.pending):
            for sector in self.sectors(i):
                if i < last.setdefault(sector, random.randint(0, len(self.pending))):
                    first, end = max(at, sector * SECTOR), min(at + len(data), (sector + 1) * SECTOR, len(kept))
                    kept[first:end] = data[first - at : end - at]
        length = random.choice(lengths) if random.random() < 0.5 else random.randint(min(lengths), max(lengths))
        resize(kept, length)

    def forget_cache(self) -> None:
        """Show what is on the platter."""
        self.seen = bytearray(self.kept)
        self.changed()
        self.read_until = min(self.read_until, len(self.seen))

    def copy(self) -> "Inode":
        return Inode(seen=bytearray(self.seen), kept=bytearray(self.seen))


@dataclass(eq=False)
class Folder:
    """The names in a folder."""

    seen: "dict[str, Inode | Folder]" = field(default_factory=dict)
    kept: "dict[str, Inode | Folder]" = field(default_factory=dict)
    pending: "list[dict[str, Inode | Folder | None]]" = field(default_factory=list)

    def change(self, names: "dict[str, Inode | Folder | None]") -> None:
        """Set names to what they stand for from now on, in one step; None removes one."""
        put(self.seen, names)
        self.pending.append(names)

    def sync(self) -> None:
        self.kept = dict(self.seen)
        self.pending.clear()

    def cut_power(self, random: Random) -> None:
        held = random.choice((0, len(self.pending), random.randint(0, len(self.pending))))
        for names in self.pending[:held]:
            put(self.kept, names)
        self.pending.clear()
        self.seen = dict(self.kept)

    def copy(self) -> "Folder":
        names = {name: node.copy() for name, node in self.seen.items()}
        return Folder(names, dict(names))


def put(names: dict[str, Inode | Folder], changes: dict[str, Inode | Folder | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def resize(data: bytearray, length: int) -> None:
    """Cut a file, or fill it up with zeros, to this length."""
    if length < len(data):
        del data[length:]
    else:
        data.extend(bytes(length - len(data)))


def every_file(folder: Folder, path: Path) -> Iterator[tuple[Path, Inode]]:
    for name in sorted(folder.seen):
        node = folder.seen[name]
        if isinstance(node, Folder):
            yield from every_file(node, path / name)
        else:
            yield path / name, node
