"""The disk of a simulated machine: what programs see, what would survive a power cut, and what it promised.

Names and contents are separate, as in a real file system. A file has the bytes that programs see, those that are on the
platter, and the writes in between; a folder has the same for its names. `sync` carries one file over, `sync_folder`
the names of one folder. When the power goes, a prefix of each folder's changes holds, and of each file's writes none,
all, or any set of sectors with any length in between. The end of a process loses its descriptors and locks only.

This is harsher than a file system with a journal: there a new name often survives with its file, and a move between two
folders is one step. A node that is right here is right there.

Every call first asks its process for time (`Running.spend`), and there the process may die.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NoReturn, Protocol

from amcast.runtime.machine import Files
from amcast.swarm.cluster.platter import Folder, Inode, every_file
from amcast.swarm.cluster.shadow import Shadow

CAPACITY: Final = 2**40
LOWEST_DESCRIPTOR: Final = 3

MICROSECOND: Final = 1000
CALL: Final = 10 * MICROSECOND  # of a call that finds everything in memory
SYNC: Final = 2000 * MICROSECOND


class Running(Protocol):
    """The process that makes the calls."""

    def spend(self, what: str, nanoseconds: int) -> None:
        """Let time pass in a system call. Raises Died if the process ends meanwhile."""

    def die(self, power: bool) -> None:
        """End this process here and now, and its machine with it if the power goes. Raises Died."""


@dataclass(frozen=True)
class Copy:
    """A folder as it was."""

    path: Path
    content: Folder


def failure(number: int, path: Path | None = None, other: Path | None = None) -> OSError:
    """Return the error that the system gives, of the class that goes with its number."""
    if path is None:
        return OSError(number, os.strerror(number))
    if other is None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(number, os.strerror(number), str(path), None, str(other))


class SimDisk:
    """The disk of one machine. It outlives the processes that use it."""

    def __init__(self, random: Random) -> None:
        self.slow = 1.0  # every call takes so many times longer
        self.failing_sync = 0  # so many of the next syncs fail
        self.nameless = False  # there is room for bytes, but not for another file: it is out of inodes
        self.unsynced = False  # something was written after the last sync
        self.replacing = ""  # the file that will get its name when it is whole
        self.harm: list[str] = []  # faults that lost or changed what had been synced
        self.shadow = Shadow(self)
        self.root = Folder()
        # Two streams: a fault less must not change how long everything takes.
        self._times = Random(random.getrandbits(64))
        self._fates = Random(random.getrandbits(64))
        self._capacity = CAPACITY
        self._numbers = 0  # of files that there were
        self._mounted: list[SimFiles] = []
        self._unreliable: list[Inode] = []  # a sync of these failed: memory and platter may differ without any write

    def mount(self, process: Running) -> "SimFiles":
        """Return the files as one life of a process sees them."""
        for inode in self._unreliable:  # what was never written out is in memory for as long as the system likes
            if not inode.pending and self._fates.random() < 0.5:
                inode.forget_cache()
        self.shadow.look()
        files = SimFiles(self, process, self._fates)
        self._mounted.append(files)
        return files

    def unmount(self, files: "SimFiles") -> None:
        if files in self._mounted:
            self._mounted.remove(files)

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def time_of(self, nanoseconds: int) -> int:
        """Draw how long a call takes."""
        return int(nanoseconds * (0.5 + 1.5 * self._times.random()) * self.slow)

    # Faults

    @property
    def full(self) -> bool:
        return self._capacity < CAPACITY

    @full.setter
    def full(self, full: bool) -> None:
        """Leave room for less than a page, so that a write may still do a part; or for everything."""
        self._capacity = self.used() + self._fates.randrange(4096) if full else CAPACITY

    def power_cut(self) -> None:
        """End every process, and lose what was not synced."""
        for files in tuple(self._mounted):
            files.kill()
        self._cut(self.root, set())
        self._unreliable.clear()

    def _cut(self, folder: Folder, met: set[int]) -> None:
        folder.cut_power(self._fates)
        for name, node in folder.kept.items():
            if id(node) in met:  # moved, and only the half of it that adds a name has held
                folder.kept[name] = folder.seen[name] = node = node.copy()
            met.add(id(node))
            if isinstance(node, Folder):
                self._cut(node, met)
            else:
                node.cut_power(self._fates)

    def flip_bit(self, path: Path | None = None, at: int | None = None) -> tuple[Path, int] | None:
        """Flip a bit, in memory and on the platter; return where. What is not said is drawn."""
        files = [(name, inode) for name, inode in every_file(self.root, Path("/")) if inode.seen]
        if path is not None:
            files = [(name, inode) for name, inode in files if name == path]
        if not files:
            return None
        name, inode = self._fates.choice(files)
        size = len(inode.seen)
        if at is None:  # half of them near the end, where a torn write would be
            at = self._fates.randrange(size) if self._fates.random() < 0.5 else -self._fates.randint(1, min(size, 100))
        at %= size
        mask = 1 << self._fates.randrange(8)
        inode.seen[at] ^= mask
        inode.changed()
        if at < len(inode.kept):
            inode.kept[at] ^= mask
        self.harm.append(f"flipped a bit of byte {at} of {name}")
        return name, at

    def lose_name(self, path: Path | None = None) -> Path | None:
        """Lose a name, though it may have been synced; return it. It is drawn if not said."""
        names = [name for name, _ in every_file(self.root, Path("/")) if path is None or name == path]
        if not names:
            return None
        lost = self._fates.choice(names)
        folder = self.look_up(lost.parent)
        assert isinstance(folder, Folder)
        folder.seen.pop(lost.name)
        folder.kept.pop(lost.name, None)
        folder.pending = [{n: i for n, i in change.items() if n != lost.name} for change in folder.pending]
        self.harm.append(f"lost the name {lost}")
        return lost

    def lose(self) -> None:
        """Put an empty disk in its place."""
        self.root = Folder()
        self._unreliable.clear()
        self.harm.append("lost the disk")

    def copy(self, folder: Path) -> Copy:
        """Return a copy of a folder, as `cp -a` would make it."""
        found = self.look_up(folder)
        if not isinstance(found, Folder):
            raise failure(errno.ENOTDIR, folder)
        return Copy(folder, found.copy())

    def put_back(self, copy: Copy) -> None:
        """Put a copy in the place of its folder, for good; on an empty disk, too."""
        parent = self.root
        for part in copy.path.parent.parts[1:]:
            if part not in parent.seen:
                parent.seen[part] = parent.kept[part] = Folder()
            found = parent.seen[part]
            if not isinstance(found, Folder):
                raise failure(errno.ENOTDIR, copy.path)
            parent = found
        content = copy.content.copy()
        for _, inode in every_file(content, copy.path):
            inode.number = self.new_number()
        parent.seen[copy.path.name] = parent.kept[copy.path.name] = content
        self.harm.append(f"put an older copy of {copy.path} back")

    # What is there

    def look_up(self, path: Path, name: Path | None = None, other: Path | None = None) -> Inode | Folder:
        """Return what a path stands for. Errors are about `name` where that is said."""
        node: Inode | Folder = self.root
        for part in path.parts[1:] if path.is_absolute() else path.parts:
            if not isinstance(node, Folder):
                raise failure(errno.ENOTDIR, name or path, other)
            if part not in node.seen:
                raise failure(errno.ENOENT, name or path, other)
            node = node.seen[part]
        return node

    def used(self) -> int:
        return sum(len(inode.seen) for _, inode in every_file(self.root, Path("/")))

    def room(self) -> int:
        if not self.full:
            return CAPACITY  # nodes ask often, and what they have written is nothing beside it
        return max(0, self._capacity - self.used())

    def paths(self) -> list[Path]:
        return [path for path, _ in every_file(self.root, Path("/"))]

    def write_out(self, folder: Path) -> None:
        """Copy everything, as programs see it, into a real folder."""
        for path, inode in every_file(self.root, folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(inode.seen)

    def sync(self, node: Inode | Folder) -> None:
        """Carry a file or the names of a folder over to the platter, unless that is to fail."""
        self.unsynced = False
        if self.failing_sync <= 0:
            node.sync()
            return
        self.failing_sync -= 1
        self.harm.append("failed to sync")
        if isinstance(node, Inode):
            node.fail_to_sync(self._fates)
            node.read_until = len(node.seen)  # nothing of this was promised
            self._unreliable.append(node)
        raise failure(errno.EIO)


@dataclass
class Descriptor:
    path: Path
    inode: Inode
    append: bool
    at: int = 0


class SimFiles(Files):
    """The calls of one life of a process. Descriptors have the lowest numbers that are free, as everywhere."""

    def __init__(self, disk: SimDisk, process: Running, random: Random) -> None:
        self._disk = disk
        self._process = process
        self._random = random
        self._open: dict[int, Descriptor] = {}
        self._calls_left = 0  # 0: nobody wants it to die at a call
        self._power = False

    def kill(self) -> None:
        """End this life: nothing is lost but descriptors and locks."""
        for fd in list(self._open):
            self._forget(fd)
        self._disk.replacing = ""
        self._disk.unmount(self)

    def die_at(self, call: int, *, power: bool = False) -> None:
        """End the process at its `call`-th call from now, 1 being the next, and let the power go with it if wanted."""
        self._calls_left = call
        self._power = power

    def _call(self, what: str, nanoseconds: int = CALL) -> None:
        if self._calls_left and self._dies_now():
            self._die()
        self._process.spend(what, self._disk.time_of(nanoseconds))

    def _dies_now(self) -> bool:
        if self._calls_left:
            self._calls_left -= 1
            return self._calls_left == 0
        return False

    def _die(self) -> NoReturn:
        self._process.die(self._power)
        raise AssertionError("a dead process goes on")

    def _at(self, fd: int) -> Descriptor:
        found = self._open.get(fd)
        if found is None:
            raise failure(errno.EBADF)
        return found

    def _forget(self, fd: int) -> None:
        inode = self._open.pop(fd).inode
        if inode.locked_by is self:  # as POSIX has it: closing any descriptor of a file gives up the lock
            inode.locked_by = None

    def _parent(self, path: Path, name: Path | None = None, other: Path | None = None) -> Folder:
        parent = self._disk.look_up(path.parent, name or path, other)
        if not isinstance(parent, Folder):
            raise failure(errno.ENOTDIR, name or path, other)
        return parent

    # Names

    def make_folder(self, path: Path) -> None:
        self._call("make folder")
        for folder in [*reversed(path.parents), path]:
            if folder.name:
                self._make_one(folder, path)

    def _make_one(self, folder: Path, path: Path) -> None:
        parent = self._disk.look_up(folder.parent)
        if not isinstance(parent, Folder):
            raise failure(errno.ENOTDIR, path)
        found = parent.seen.get(folder.name)
        if found is None:
            if self._disk.nameless or not self._disk.room():
                raise failure(errno.ENOSPC, folder)
            parent.change({folder.name: Folder()})
        elif folder == path and not isinstance(found, Folder):
            raise failure(errno.EEXIST, path)

    def names(self, folder: Path) -> list[str]:
        self._call("names")
        found = self._disk.look_up(folder)
        if not isinstance(found, Folder):
            raise failure(errno.ENOTDIR, folder)
        return sorted(found.seen)

    def exists(self, path: Path) -> bool:
        self._call("exists")
        try:
            self._disk.look_up(path)
        except OSError:
            return False
        return True

    def replace(self, old: Path, new: Path) -> None:
        self._call("replace")
        source, target = self._parent(old, old, new), self._parent(new, old, new)
        node = source.seen.get(old.name)
        if node is None:
            raise failure(errno.ENOENT, old, new)
        there = target.seen.get(new.name)
        if isinstance(node, Folder) and old in new.parents:
            raise failure(errno.EINVAL, old, new)
        if isinstance(there, Folder) and new in old.parents:
            raise failure(errno.ENOTEMPTY, old, new)
        if there is node:
            return
        if old.name == self._disk.replacing:
            self._disk.replacing = ""
        if isinstance(there, Folder):
            if not isinstance(node, Folder):
                raise failure(errno.EISDIR, old, new)
            if there.seen:
                raise failure(errno.ENOTEMPTY, old, new)
        elif there is not None and isinstance(node, Folder):
            raise failure(errno.ENOTDIR, old, new)
        if source is target:
            source.change({old.name: None, new.name: node})
        else:
            target.change({new.name: node})
            source.change({old.name: None})

    def remove(self, path: Path) -> None:
        self._call("remove")
        parent = self._parent(path)
        found = parent.seen.get(path.name)
        if found is None:
            raise failure(errno.ENOENT, path)
        if isinstance(found, Folder):
            raise failure(errno.EISDIR, path)
        parent.change({path.name: None})

    def sync_folder(self, folder: Path) -> None:
        self._call("sync folder", SYNC)
        found = self._disk.look_up(folder)
        self._disk.sync(found)  # of a file, where that has the name: the call takes any
        if isinstance(found, Folder):
            self._disk.shadow.folder_synced(folder, found)

    # Contents

    def open(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        self._call("open")
        parent = self._parent(path)
        inode = parent.seen.get(path.name)
        if isinstance(inode, Folder):
            raise failure(errno.EISDIR, path)
        if path.suffix == ".new":
            self._disk.replacing = path.name
        if inode is None:
            if self._disk.nameless or not self._disk.room():
                raise failure(errno.ENOSPC, path)
            inode = Inode(self._disk.new_number())
            parent.change({path.name: inode})
        elif new:
            inode.truncate(0)
        fd = LOWEST_DESCRIPTOR
        while fd in self._open:
            fd += 1
        self._open[fd] = Descriptor(path, inode, append)
        return fd

    def close(self, fd: int) -> None:
        self._call("close")
        self._at(fd)
        self._forget(fd)

    def lock(self, fd: int) -> None:
        self._call("lock")
        inode = self._at(fd).inode
        if inode.locked_by not in (None, self):
            raise failure(errno.EAGAIN)
        inode.locked_by = self

    def read(self, path: Path) -> bytes:
        inode = self._readable(path)
        return bytes(inode.seen)

    def read_at(self, path: Path, at: int, length: int) -> bytes:
        inode = self._readable(path)
        if at < 0:
            raise failure(errno.EINVAL)
        return bytes(inode.seen[at : at + length])

    def place(self, path: Path) -> tuple[int, int]:
        self._call("place")
        node = self._disk.look_up(path)
        return (node.number if isinstance(node, Inode) else 0), 0

    def kept_time(self, path: Path) -> float:
        return 0.0

    def _readable(self, path: Path) -> Inode:
        self._call("read")
        inode = self._disk.look_up(path)
        if isinstance(inode, Folder):
            raise failure(errno.EISDIR, path)
        return inode

    def size(self, fd: int) -> int:
        self._call("size")
        return len(self._at(fd).inode.seen)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        data = bytes(data)
        if self._dies_now():
            if fd in self._open:
                self._write(self._at(fd), data[: self._random.randint(0, len(data))])
            self._die()
        self._process.spend("write", self._disk.time_of(CALL + len(data)))
        return self._write(self._at(fd), data)

    def _write(self, file: Descriptor, data: bytes) -> int:
        size = len(file.inode.seen)
        at = size if file.append else file.at
        if data and self._disk.full:
            data = data[: max(0, size - at) + self._disk.room()]  # what is there may be written over
            if not data:
                raise failure(errno.ENOSPC)
        if data:
            file.inode.write(at, data)
            self._disk.unsynced = True
            file.at = at + len(data)
        return len(data)

    def sync(self, fd: int) -> None:
        self._call("sync", SYNC)
        file = self._at(fd)
        self._disk.sync(file.inode)
        self._disk.shadow.file_synced(file.path, file.inode)

    def truncate(self, fd: int, length: int) -> None:
        self._call("truncate")
        if length < 0:
            raise failure(errno.EINVAL)
        self._at(fd).inode.truncate(length)

    def free(self, path: Path) -> int:
        self._call("free")
        self._disk.look_up(path)
        return self._disk.room()
