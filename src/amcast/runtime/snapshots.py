"""A snapshot as a file: any number of parts, each with a checksum of its own, and a seal at the end.

    part    "amp1", checksum, length, its number from 0 on; then that many bytes
    seal    "ams1", checksum, length, how many parts there are; then the number of the snapshot

A checksum covers what follows it and, by what it starts from, the checksum before it: a part of another snapshot, or
in another place, does not fit. The file gets its name when all of it is on disk, so that one which was not finished is
never taken for a snapshot, and harms none.

A member that lacks what is in a snapshot copies the file, part by part (`SnapshotSource`, `SnapshotCopy`): since parts
know their places, each is checked when it comes, and all of them together when the seal does.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from amcast.errors import AmcastError, StorageCorrupt, UsageError, WireError
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
        self.count = 0  # of parts
        self._checksum = 0
        self._file = self._files.open(self._unfinished, new=True)

    def write_some(self) -> bool:
        """Write the next parts and wait until they are on disk; return whether the snapshot is finished."""
        written = 0
        for part in self._parts:
            self._write(PART, self.count, part)
            self.count += 1
            written += len(part)
            if written >= self._limits.written_at_once:
                self._files.sync(self._file)
                return False
        self._write(SEAL, self.count, NUMBER.pack(self.number))
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


class SnapshotSource:
    """A snapshot on disk from which another member copies: its parts as they are in the file, and its seal."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._places = [0]  # of the pieces that were looked at, and of the next one

    def piece(self, number: int) -> bytes:
        """Return a piece of the file. Raises StorageCorrupt if there is none, OSError if it cannot be read."""
        while len(self._places) <= number + 1:
            at = self._places[-1]
            head = self._files.read_at(self._path, at, HEAD.size)
            if len(head) < HEAD.size or head[:4] not in (PART, SEAL):
                raise StorageCorrupt(f"{self._path}: no part {number}, or it is damaged; a new snapshot replaces it")
            self._places.append(at + HEAD.size + HEAD.unpack(head)[2])
        at, end = self._places[number], self._places[number + 1]
        return self._files.read_at(self._path, at, end - at)


class Pieces:
    """The pieces of a snapshot, one after the other, as its source wrote them."""

    def __init__(self, number: int) -> None:
        self.number = number  # of the snapshot at its source
        self.count = 0  # that have come
        self.whole = False
        self._checksum = 0

    def body(self, data: bytes) -> bytes:
        """Return the content of the next piece, empty for the seal. Raises WireError if it is not that one."""
        head, body = data[: HEAD.size], data[HEAD.size :]
        magic, checksum, length, place = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        expected = zlib.crc32(body, zlib.crc32(head[COVERED:], self._checksum))
        sound = magic in (PART, SEAL) and place == self.count and length == len(body)
        if self.whole or not sound or checksum != expected:
            raise WireError(f"part {self.count} of snapshot {self.number} is not as it was written")
        if magic == SEAL and body != NUMBER.pack(self.number):
            raise WireError(f"the end of another snapshot than {self.number}")
        self._checksum = checksum
        self.count += 1
        self.whole = magic == SEAL
        return b"" if self.whole else body


class SnapshotCopy:
    """A copy of another member's snapshot, as far as it has come. It is nobody's snapshot: a start removes it."""

    def __init__(self, machine: Machine, path: Path, number: int) -> None:
        self.path = path
        self.size = 0
        self._pieces = Pieces(number)
        self._files = machine.files
        self._file = self._files.open(path, new=True)

    @property
    def number(self) -> int:
        return self._pieces.number

    @property
    def pieces(self) -> int:
        """Return how many are here."""
        return self._pieces.count

    @property
    def whole(self) -> bool:
        return self._pieces.whole

    def add(self, data: bytes) -> None:
        """Add the next piece. Raises WireError if it is not that one, as its source wrote it."""
        self._pieces.body(data)
        write_all(self._files, self._file, data)
        self.size += len(data)

    def parts(self) -> list[bytes]:
        """Return the content, read from the disk and checked once more. Raises StorageCorrupt."""
        assert self.whole
        return list(read_parts(self._files, self.path, self.number))

    def drop(self) -> None:
        """Leave nothing of it."""
        self.close()
        if self._files.exists(self.path):
            self._files.remove(self.path)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            self._files.close(file)


def read_parts(
    files: Files, path: Path, number: int, damaged: Callable[[Path, str], AmcastError] = forgotten
) -> Iterator[bytes]:
    """Return the parts of a snapshot. Raises `damaged` where they are not as they were written."""
    start = files.read_at(path, 0, len(PART))
    if start not in (PART, SEAL) and re.fullmatch(rb"am[a-z][0-9]", start):  # anything else is damage
        raise UsageError(
            f"{path}: written in format {start.decode(errors='replace')!r}, expected {PART.decode()!r}; run the amcast "
            "that wrote it"
        )
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
    raise damaged(path, f"damaged snapshot, in part {count}")
