"""The backup of a cluster, as a file: the state of every group at one place of the total order.

It is a file of parts as those of snapshots (`snapshots.py`), each with a checksum that covers the one before, and a
seal. The content:

    manifest    "amb1", its length, what the cluster is
    group       for each, pieces of bytes, each after its length; a length of 0 ends it. Together they are
                "amc1", the length of a head, the head, and the state of the application

The head has what was delivered of each sender and the answers that clients may ask for again, as the replica had them
at that place. So who sends a message again to a cluster that was founded from this has it delivered once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar

import msgspec

from amcast.core.process import Memory
from amcast.errors import UsageError
from amcast.runtime.machine import REAL
from amcast.runtime.snapshots import read_parts

NUMBER: Final = 0x616D_6361_7374_6262  # of every backup, among snapshots
MANIFEST: Final = b"amb1"
CUT: Final = b"amc1"
PREFIX: Final = Struct("<4sQ")
LENGTH: Final = Struct("<I")
END: Final = LENGTH.pack(0)
T = TypeVar("T")


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """What a backup is of. The order of the fields is the format."""

    cluster: str
    protocol: str
    app: str
    groups: int
    replicas: int  # of each group, at most
    largest_message: int
    wall_ms: int  # when it was taken, by the clock of whoever took it


class CutHead(msgspec.Struct, array_like=True, frozen=True):
    """What stands before the state of a group's application. The order of the fields is the format."""

    group: int
    position: int
    app_version: int
    memory: Memory
    results: list[tuple[int, int, bytes]]  # sender, seq, answer


@dataclass(frozen=True)
class GroupState:
    """A group at the mark."""

    head: CutHead
    app: bytes


def cut_pieces(head: CutHead, app: Iterable[bytes]) -> Iterator[bytes]:
    """Return what a replica writes of its group; the state of the application is made piece by piece."""
    encoded = msgspec.msgpack.encode(head)
    yield PREFIX.pack(CUT, len(encoded))
    yield encoded
    yield from app


def backup_pieces(manifest: Manifest, groups: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Return the content of a backup, from what replicas have written."""
    encoded = msgspec.msgpack.encode(manifest)
    yield PREFIX.pack(MANIFEST, len(encoded))
    yield encoded
    for pieces in groups:
        for piece in pieces:
            if piece:
                yield LENGTH.pack(len(piece))
                yield piece
        yield END


class Backup:
    """A backup that is read from its beginning to its end. Raises UsageError where it is not as it was written."""

    def __init__(self, path: Path, progress: Callable[[int], None] = lambda size: None) -> None:
        """Read the manifest. `progress` is told how many bytes were read."""
        self.path = path
        self._progress = progress
        self._parts = read_parts(REAL.files, path, NUMBER, self._damaged)
        self._here: deque[memoryview] = deque()
        try:
            start = self._bytes(PREFIX.size)
            magic, length = PREFIX.unpack(start)
            if magic != MANIFEST:
                newer = magic[:3] == MANIFEST[:3]
                seen = f"a backup of format {magic.decode(errors='replace')!r}" if newer else "no backup of a cluster"
                raise UsageError(
                    f"{path}: {seen}, expected format {MANIFEST.decode()!r}; run the amcast that wrote it"
                    if newer
                    else f"{path}: {seen}; expected a file that 'amcast cluster backup' wrote"
                )
            self.manifest = self._decoded(self._bytes(length), Manifest)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); check the name of the backup") from error

    def groups(self, *, states: bool = True) -> Iterator[GroupState]:
        """Yield the state of each group; without `states` only what stands before it, although all is checked."""
        try:
            for group in range(self.manifest.groups):
                pieces = self._pieces()
                start = b""
                needed = PREFIX.size
                while len(start) < needed:
                    piece = next(pieces, None)
                    if piece is None:
                        raise self._damaged(self.path, f"the state of g{group} is cut off")
                    start += piece
                    if len(start) >= PREFIX.size:
                        magic, length = PREFIX.unpack_from(start)
                        if magic != CUT:
                            raise self._damaged(self.path, f"no state of g{group}")
                        needed = PREFIX.size + length
                head = self._decoded(start[PREFIX.size : needed], CutHead)
                if head.group != group:
                    raise self._damaged(self.path, f"the state of g{head.group} in the place of g{group}")
                kept = [start[needed:]]
                for piece in pieces:
                    if states:
                        kept.append(piece)
                yield GroupState(head, b"".join(kept) if states else b"")
            if self._here or next(self._parts, None) is not None:
                raise self._damaged(self.path, "more than its groups")
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read ({error.strerror}); check the disk") from error

    def _pieces(self) -> Iterator[bytes]:
        while (length := LENGTH.unpack(self._bytes(LENGTH.size))[0]) > 0:
            yield self._bytes(length)

    def _bytes(self, count: int) -> bytes:
        found: list[memoryview] = []
        missing = count
        while missing:
            if not self._here:
                part = next(self._parts, None)
                if part is None:
                    raise self._damaged(self.path, "its content is cut off")
                self._here.append(memoryview(part))
                self._progress(len(part))
            rest = self._here.popleft()
            found.append(rest[:missing])
            if len(rest) > missing:
                self._here.appendleft(rest[missing:])
            missing -= len(found[-1])
        return b"".join(found)

    def _decoded(self, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._damaged(self.path, f"cannot be read: {error}") from None

    def _damaged(self, path: Path, seen: str) -> UsageError:
        return UsageError(f"{path}: damaged backup: {seen.removeprefix('damaged snapshot, ')}; use another one")
