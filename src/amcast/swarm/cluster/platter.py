"""Files and folders: what programs see of them, what is on the platter, and the changes in between."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

SECTOR: Final = 512


@dataclass(eq=False)
class Inode:
    """The content of a file."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)  # on the platter
    pending: list[tuple[int, bytes, int]] = field(default_factory=list)  # place, bytes, length of the file afterwards
    locked_by: object = None  # the process that has the lock
    read_until: int = 0  # the shadow has read its frames up to here

    def write(self, at: int, data: bytes) -> None:
        if at > len(self.seen):
            self.seen.extend(bytes(at - len(self.seen)))
        self.seen[at : at + len(data)] = data
        self.pending.append((at, data, len(self.seen)))

    def truncate(self, length: int) -> None:
        old = len(self.seen)
        if length < old:
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
        self._carry_over(lambda _: True)

    def fail_to_sync(self, random: Random) -> None:
        """Do as Linux does: some sectors got there, and all count as clean, so that no later sync writes the others."""
        self._carry_over(lambda _: random.random() < 0.5)

    def _carry_over(self, holds: Callable[[int], bool]) -> None:
        if not self.pending:
            return
        length = len(self.seen)
        self.kept = resized(self.kept, length)
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
        kept = resized(self.kept, max(lengths))
        for i, (at, data, _) in enumerate(self.pending):
            for sector in self.sectors(i):
                if i < last.setdefault(sector, random.randint(0, len(self.pending))):
                    first, end = max(at, sector * SECTOR), min(at + len(data), (sector + 1) * SECTOR, len(kept))
                    kept[first:end] = data[first - at : end - at]
        length = random.choice(lengths) if random.random() < 0.5 else random.randint(min(lengths), max(lengths))
        self.kept = resized(kept, length)

    def forget_cache(self) -> None:
        """Show what is on the platter."""
        self.seen = bytearray(self.kept)
        self.read_until = min(self.read_until, len(self.seen))

    def copy(self) -> "Inode":
        return Inode(bytearray(self.seen), bytearray(self.seen))


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


def resized(data: bytearray, length: int) -> bytearray:
    return data[:length] + bytes(max(0, length - len(data)))


def every_file(folder: Folder, path: Path) -> Iterator[tuple[Path, Inode]]:
    for name in sorted(folder.seen):
        node = folder.seen[name]
        if isinstance(node, Folder):
            yield from every_file(node, path / name)
        else:
            yield path / name, node
