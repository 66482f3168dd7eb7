"""The ordered log of a group, as one replica keeps it for readers: every delivery with its position.

The newest rows are in memory. A durable node also writes them to files, `rows-POSITION`, up to a limit. These files are
not what a node recovers from, so they are not synced with every commit but only with a snapshot: rows after it are
written again when the deliveries since the snapshot are.
"""

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from librt.strings import BytesWriter

from amcast.core.wire import AppMessage
from amcast.errors import HistoryGone, StorageCorrupt
from amcast.runtime.machine import REAL, Files, Machine, write_all
from amcast.runtime.rows import pack_rows

BLOCK: Final = Struct("<IIQI")  # length of the rows, checksum of the rows, first position, number of rows
READ_AHEAD: Final = 256 * 1024
MOST_TOGETHER: Final = 256 * 1024  # bytes of payloads in a block, unless one message has more: readers get whole blocks


class History:
    """Blocks of rows: one for each batch of deliveries, or several where a batch is long, as that after a restart."""

    def __init__(self, folder: Path | None, end: int = 0, machine: Machine = REAL) -> None:
        self.end = end  # the position of the next row
        self._folder = folder
        self._disk = machine.files
        self._limits = machine.limits
        self._blocks: deque[tuple[int, int, bytes]] = deque()  # first position, number of rows, rows
        self._bytes = 0
        self._files: list[int] = []
        self._unwritten: list[bytes] = []
        self._out = -1
        self._out_size = 0
        self._begins = end
        self._before: History | None = None  # whose files are in the folder
        if folder is not None:
            self._disk.make_folder(folder)
            self._open(end)

    def behind(self, position: int) -> "History":
        """Return a log that begins at a later position, instead of this one, whose files go when it writes first."""
        found = History(None, position)
        found._disk, found._limits, found._folder = self._disk, self._limits, self._folder
        found._before = self
        return found

    @property
    def earliest(self) -> int:
        """Return the first position that is still kept."""
        if self._files:
            return self._files[0]
        return self._blocks[0][0] if self._blocks else self.end

    @property
    def on_disk(self) -> bool:
        return self._folder is not None

    def append(self, deliveries: list[tuple[AppMessage, int]], time: int) -> None:
        size = 0
        first = 0
        for i, (m, _) in enumerate(deliveries):
            size += len(m.payload)
            if size > MOST_TOGETHER and i > first:
                self._append(deliveries[first:i], time)
                first, size = i, len(m.payload)
        self._append(deliveries[first:], time)

    def _append(self, deliveries: list[tuple[AppMessage, int]], time: int) -> None:
        w = BytesWriter()
        count = pack_rows(w, deliveries, time)
        rows = w.getvalue()
        self._blocks.append((self.end, count, rows))
        self._bytes += len(rows)
        if self._folder is not None:
            self._unwritten.append(BLOCK.pack(len(rows), zlib.crc32(rows), self.end, count) + rows)
        self.end += count
        while self._bytes > self._limits.kept_in_memory and len(self._blocks) > 1:
            self._bytes -= len(self._blocks.popleft()[2])

    def read(self, position: int, most_bytes: int) -> tuple[int, int, bytes]:
        """Return whole blocks from that of this position on: the first position, that after the last row, the rows."""
        if position >= self.end:
            return self.end, self.end, b""
        if position < self.earliest:
            raise HistoryGone(f"position {position} is no longer kept: the earliest is {self.earliest}")
        in_memory = self._blocks and position >= self._blocks[0][0]
        blocks = self._from_memory(position, most_bytes) if in_memory else self._from_disk(position, most_bytes)
        return blocks[0][0], blocks[-1][0] + blocks[-1][1], b"".join([rows for _, _, rows in blocks])

    def _from_memory(self, position: int, most_bytes: int) -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        size = 0
        start = bisect_right(self._blocks, position, key=lambda block: block[0]) - 1
        for i in range(start, len(self._blocks)):
            block = self._blocks[i]
            if found and size + len(block[2]) > most_bytes:
                break
            found.append(block)
            size += len(block[2])
        return found

    def _from_disk(self, position: int, most_bytes: int) -> list[tuple[int, int, bytes]]:
        assert self._folder is not None
        found: list[tuple[int, int, bytes]] = []
        size = 0
        first = self._files[bisect_right(self._files, position) - 1]
        file = _Reader(self._disk, self._folder / f"rows-{first}")
        at = 0
        while len(head := file.read(at, BLOCK.size)) == BLOCK.size:
            length, checksum, start, count = BLOCK.unpack(head)
            at += BLOCK.size + length
            if start + count <= position:
                continue
            rows = file.read(at - length, length)
            if len(rows) < length or (found and size + length > most_bytes):
                break
            if not length or zlib.crc32(rows) != checksum:
                raise StorageCorrupt(f"{file.path}: damaged at position {start}; repair this node from its peers")
            found.append((start, count, rows))
            size += length
        if not found:
            raise StorageCorrupt(f"{self._folder}: position {position} is missing; repair this node from its peers")
        return found

    # On disk. `write` and `sync` run in the thread that commits.

    def take_unwritten(self) -> list[bytes]:
        blocks, self._unwritten = self._unwritten, []
        return blocks

    def write(self, blocks: list[bytes]) -> None:
        if self._folder is None or not blocks:
            return
        self._replace()
        if self._out_size > self._limits.file_bytes:
            self._start(BLOCK.unpack_from(blocks[0])[2])
        data = b"".join(blocks)
        self._out_size += len(data)
        write_all(self._disk, self._out, data)

    def sync(self) -> None:
        """Wait until all that was written is on disk, the names of the files included."""
        if self._folder is not None:
            self._replace()
            self._disk.sync(self._out)
            self._disk.sync_folder(self._folder)

    def _replace(self) -> None:
        """Begin without the files of the log before, if there was one."""
        before, self._before = self._before, None
        if before is None:
            return
        assert self._folder is not None
        before.close()
        for name in self._disk.names(self._folder):
            if name.startswith("rows-"):
                self._disk.remove(self._folder / name)
        self._start(self._begins)

    def close(self) -> None:
        if self._before is not None:
            self._before.close()
        if self._out >= 0:
            self._disk.close(self._out)
            self._out = -1

    def _start(self, first: int) -> None:
        assert self._folder is not None
        if self._out >= 0:
            self._disk.sync(self._out)
            file, self._out = self._out, -1  # in this order: what is closed must not be closed again
            self._disk.close(file)
        self._out = self._disk.open(self._folder / f"rows-{first}", append=True)
        self._out_size = self._disk.size(self._out)
        if not self._files or self._files[-1] != first:
            self._files.append(first)
        most = max(1, self._limits.kept_on_disk // self._limits.file_bytes)
        while len(self._files) > most:
            with suppress(FileNotFoundError):
                self._disk.remove(self._folder / f"rows-{self._files.pop(0)}")

    def _open(self, end: int) -> None:
        """Go on at this position: what is on disk behind it will be delivered, and written, again."""
        assert self._folder is not None
        names = [name.removeprefix("rows-") for name in self._disk.names(self._folder) if name.startswith("rows-")]
        known = sorted(int(name) for name in names if name.isdigit())
        self._files = [first for first in known if first < end or first == 0]
        if self._files and self._cut(self._files[-1], end) < end:  # they do not reach so far: begin again
            self._files = []
        for first in known:
            if first not in self._files:
                self._disk.remove(self._folder / f"rows-{first}")
        self._start(self._files[-1] if self._files else end)

    def _cut(self, first: int, end: int) -> int:
        """Cut the last file behind position `end`; return the position that it reaches."""
        assert self._folder is not None
        path = self._folder / f"rows-{first}"
        data = self._disk.read(path)
        at = 0
        reached = first
        while at + BLOCK.size <= len(data):
            length, checksum, start, count = BLOCK.unpack_from(data, at)
            rows = data[at + BLOCK.size : at + BLOCK.size + length]
            sound = length and len(rows) == length and zlib.crc32(rows) == checksum
            if not sound or start != reached or start + count > end:
                break
            reached = start + count
            at += BLOCK.size + length
        file = self._disk.open(path)
        try:
            self._disk.truncate(file, at)
        finally:
            self._disk.close(file)
        return reached


class _Reader:
    """Reads a file from its beginning on, more than is asked for at a time."""

    def __init__(self, disk: Files, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._data = b""  # a stretch of the file …
        self._begin = 0  # … that begins here

    def read(self, at: int, length: int) -> bytes:
        """Return so many bytes from this place on; fewer where the file ends before."""
        if at < self._begin or at + length > self._begin + len(self._data):
            self._data = self._disk.read_at(self.path, at, max(length, READ_AHEAD))
            self._begin = at
        return self._data[at - self._begin : at - self._begin + length]


def rows_in(folder: Path) -> Iterator[bytes]:
    """Yield the blocks of rows in the files of a log, from the first position on; look, and change nothing.

    A block that is torn at the end was not finished. Raises StorageCorrupt for any other that is missing or damaged.
    """
    expected = 0
    names = [name.removeprefix("rows-") for name in REAL.files.names(folder) if name.startswith("rows-")]
    firsts = sorted(int(name) for name in names if name.isdigit())
    for first in firsts:
        path = folder / f"rows-{first}"
        data, at = REAL.files.read(path), 0
        while at + BLOCK.size <= len(data):
            length, checksum, start, count = BLOCK.unpack_from(data, at)
            rows = data[at + BLOCK.size : at + BLOCK.size + length]
            if len(rows) < length and first == firsts[-1]:
                return
            if start != expected or not length or zlib.crc32(rows) != checksum:
                raise StorageCorrupt(
                    f"{path}: position {expected} is damaged or missing; take the data of another server"
                )
            yield rows
            expected += count
            at += BLOCK.size + length
