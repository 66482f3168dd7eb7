"""A snapshot as a file: any number of parts, each with a checksum of its own, and a seal at the end.

    part    "amp1", checksum, length, its number from 0 on; then that many bytes
    seal    "ams1", checksum, length, how many parts there are; then the number of the snapshot

A checksum covers what follows it and, by what it starts from, the checksum before it: a part of another snapshot, or
in another place, does not fit. The file gets its name when all of it is on disk, so that one which was not finished is
never taken for a snapshot, and harms none.
"""

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from amcast.runtime.machine import Files, Machine, write_all
from amcast.runtime.seal import forgotten

HEAD: Final = Struct("<4sIIQ")  # magic, checksum of what follows, length of the body, number
COVERED: Final = 8  # bytes of the head that the checksum does not cover
PART: Final = b"amp1"
SEAL: Final = b"ams1"
NUMBER: Final = Struct("<Q")
LARGEST_PART: Final = 64 * 2**20  # that a reader believes
UNFINISHED: Final = ".new"


def in_parts(pieces: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Return the same bytes in parts of this length, the last one shorter."""
    waiting: list[memoryview] = []
    size = 0
    for piece in pieces:
        rest = memoryview(piece)
        while size + len(rest) >= most_bytes:
            needed = most_bytes - size
            yield b"".join([*waiting, rest[:needed]])
            rest = rest[needed:]
            waiting, size = [], 0
        if rest:
            waiting.append(rest)
            size += len(rest)
    if waiting:
        yield b"".join(waiting)


class SnapshotWriter:
    """Writes a snapshot a few parts at a time."""

    def __init__(self, machine: Machine, path: Path, number: int, pieces: Iterable[bytes]) -> None:
        self.number = number
        self._files = machine.files
        self._limits = machine.limits
        self._path = path
        self._unfinished = path.with_name(path.name + UNFINISHED)
        self._parts = in_parts(pieces, machine.limits.part_bytes)
        self._count = 0
        self._checksum = 0
        self._file = self._files.open(self._unfinished, new=True)

    def write_some(self) -> bool:
        """Write the next parts and wait until they are on disk; return whether the snapshot is finished."""
        written = 0
        for part in self._parts:
            self._write(PART, self._count, part)
            self._count += 1
            written += len(part)
            if written >= self._limits.written_at_once:
                self._files.sync(self._file)
                return False
        self._write(SEAL, self._count, NUMBER.pack(self.number))
        self._files.sync(self._file)
        self._close()
        self._files.replace(self._unfinished, self._path)
        self._files.sync_folder(self._path.parent)
        return True

    def give_up(self) -> None:
        """Leave nothing of it."""
        self._close()
        self._files.remove(self._unfinished)

    def close(self) -> None:
        """Leave what is written to whoever starts here next, who removes it."""
        if self._file >= 0:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        self._files.close(file)

    def _write(self, magic: bytes, number: int, body: bytes) -> None:
        head = HEAD.pack(magic, 0, len(body), number)[COVERED:]
        self._checksum = zlib.crc32(body, zlib.crc32(head, self._checksum))
        write_all(self._files, self._file, magic + self._checksum.to_bytes(4, "little") + head + body)


def read_parts(files: Files, path: Path, number: int) -> Iterator[bytes]:
    """Return the parts of a snapshot. Raises StorageCorrupt where they are not as they were written."""
    at = count = before = 0
    while True:
        head = files.read_at(path, at, HEAD.size)
        magic, checksum, length, place = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        body = files.read_at(path, at + HEAD.size, length) if length <= LARGEST_PART else b""
        if place != count or len(body) != length or checksum != zlib.crc32(body, zlib.crc32(head[COVERED:], before)):
            break
        at += HEAD.size + length
        before = checksum
        if magic == SEAL and body == NUMBER.pack(number) and not files.read_at(path, at, 1):
            return
        if magic != PART:
            break
        yield body
        count += 1
    raise forgotten(path, f"damaged snapshot, in part {count}")
