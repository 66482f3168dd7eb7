"""The ordered log of a group, as one replica keeps it for readers: every delivery with its position.

The newest rows are in memory. A durable node also writes them to files, `rows-POSITION`, up to a limit. These files are
not what a node recovers from, so they are not synced with every commit but only with a snapshot: rows after it are
written again when the deliveries since the snapshot are.
"""

import os
import zlib
from bisect import bisect_right
from collections import deque
from pathlib import Path
from struct import Struct
from typing import Final

from librt.strings import BytesWriter

from amcast.core.wire import AppMessage
from amcast.errors import HistoryGone, StorageCorrupt
from amcast.runtime.rows import pack_rows

BLOCK: Final = Struct("<IIQI")  # length of the rows, checksum of the rows, first position, number of rows
FILE_BYTES: Final = 64 * 2**20
KEPT_IN_MEMORY: Final = 16 * 2**20
KEPT_ON_DISK: Final = 4 * 2**30


class History:
    """Blocks of rows, one for each batch of deliveries."""

    def __init__(self, folder: Path | None, end: int = 0, keep: int = KEPT_ON_DISK) -> None:
        self.end = end  # the position of the next row
        self._folder = folder
        self._keep = keep
        self._blocks: deque[tuple[int, int, bytes]] = deque()  # first position, number of rows, rows
        self._bytes = 0
        self._files: list[int] = []
        self._unwritten: list[bytes] = []
        self._out = -1
        self._out_size = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._open(end)

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
        w = BytesWriter()
        count = pack_rows(w, deliveries, time)
        rows = w.getvalue()
        self._blocks.append((self.end, count, rows))
        self._bytes += len(rows)
        if self._folder is not None:
            self._unwritten.append(BLOCK.pack(len(rows), zlib.crc32(rows), self.end, count) + rows)
        self.end += count
        while self._bytes > KEPT_IN_MEMORY and len(self._blocks) > 1:
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
        with open(self._folder / f"rows-{first}", "rb") as file:
            while head := file.read(BLOCK.size):
                if len(head) < BLOCK.size:
                    break
                length, checksum, start, count = BLOCK.unpack(head)
                if start + count <= position:
                    file.seek(length, os.SEEK_CUR)
                    continue
                rows = file.read(length)
                if len(rows) < length or (found and size + length > most_bytes):
                    break
                if not length or zlib.crc32(rows) != checksum:
                    raise StorageCorrupt(f"{file.name}: damaged at position {start}; repair this node from its peers")
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
        if self._out_size > FILE_BYTES:
            self._start(BLOCK.unpack_from(blocks[0])[2])
        data = b"".join(blocks)
        self._out_size += len(data)
        while data:
            data = data[os.write(self._out, data) :]

    def sync(self) -> None:
        if self._folder is not None:
            os.fsync(self._out)

    def close(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def _start(self, first: int) -> None:
        assert self._folder is not None
        if self._out >= 0:
            os.fsync(self._out)
            os.close(self._out)
        self._out = os.open(self._folder / f"rows-{first}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._out_size = os.fstat(self._out).st_size
        if not self._files or self._files[-1] != first:
            self._files.append(first)
        most = max(1, self._keep // FILE_BYTES)
        while len(self._files) > most:
            (self._folder / f"rows-{self._files.pop(0)}").unlink(missing_ok=True)

    def _open(self, end: int) -> None:
        """Go on at this position: what is on disk behind it will be delivered, and written, again."""
        assert self._folder is not None
        names = [path.name.removeprefix("rows-") for path in self._folder.glob("rows-*")]
        known = sorted(int(name) for name in names if name.isdigit())
        self._files = [first for first in known if first < end or first == 0]
        if self._files and self._cut(self._files[-1], end) < end:  # they do not reach so far: begin again
            self._files = []
        for first in known:
            if first not in self._files:
                (self._folder / f"rows-{first}").unlink()
        self._start(self._files[-1] if self._files else end)

    def _cut(self, first: int, end: int) -> int:
        """Cut the last file behind position `end`; return the position that it reaches."""
        assert self._folder is not None
        path = self._folder / f"rows-{first}"
        data = path.read_bytes()
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
        os.truncate(path, at)
        return reached
