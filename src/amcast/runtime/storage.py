"""What a node must not forget: an append-only log in checksummed frames, cut short by snapshots.

A frame is one group commit: all records that piled up while the previous frame was being made durable. The next frame
is never written before the previous one is on disk, and that makes damage tell its cause: a broken frame with nothing
valid behind it was being written when the power went, and is cut off (nothing that depends on it ever left the node);
a broken frame with a valid one behind it had been durable, so the disk lost it, and the log is refused.

A disk error on the way down is final: the page cache may say anything afterwards. The node stops and starts again
from what is really there.

Files in the folder of a node: `identity` (cluster and process it belongs to; then `identity.py`), `starts` (how many),
`snapshot-N` (state after N frames, see `snapshots.py`), `log-N` (frames from N on), `rejoining` (all was set aside).
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from amcast.errors import AmcastError, StorageCorrupt, StorageFailure, UsageError
from amcast.runtime.identity import description_in, sealed
from amcast.runtime.machine import REAL, Machine, write_all
from amcast.runtime.snapshots import UNFINISHED, SnapshotWriter, read_parts

MAGIC = b"amf1"
HEADER = struct.Struct("<4sIIQ")  # magic, checksum of what follows, length of the body, number of the frame
LENGTH = struct.Struct("<I")
LARGEST_FRAME = 2**30


@dataclass(frozen=True)
class Recovered:
    """What a node finds on its disk: the newest snapshot and the records since."""

    snapshot: list[bytes] | None  # in pieces
    records: list[bytes]
    cut: int  # bytes of a torn frame that were cut off


def encode_frame(number: int, records: list[bytes]) -> bytes:
    body = b"".join(LENGTH.pack(len(record)) + record for record in records)
    rest = HEADER.pack(MAGIC, 0, len(body), number)[8:] + body
    return MAGIC + struct.pack("<I", zlib.crc32(rest)) + rest


def decode_frame(data: memoryview, at: int) -> tuple[int, memoryview, int] | None:
    """Return the number, the body and the end of the frame at this place; None if there is no whole, sound one."""
    if at + HEADER.size > len(data):
        return None
    magic, checksum, length, number = HEADER.unpack_from(data, at)
    end = at + HEADER.size + length
    if magic != MAGIC or length > LARGEST_FRAME or end > len(data) or zlib.crc32(data[at + 8 : end]) != checksum:
        return None
    return number, data[at + HEADER.size : end], end


def records_of(path: Path, body: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        start = at + LENGTH.size
        at = start + LENGTH.unpack(bytes(body[at:start]).ljust(LENGTH.size, b"\xff"))[0]
        if at > len(body):
            follow = max(0, len(body) - start)
            raise StorageCorrupt(
                f"{path}: a record of {at - start} bytes where {follow} follow; repair this node from its peers"
            )
        yield bytes(body[start:at])


class Storage:
    """The log of one node. Not for use by two processes at once: the folder is locked."""

    def __init__(
        self, folder: Path, identity: str, machine: Machine = REAL, *, new: bool = True, rejoin: bool = False
    ) -> None:
        """Lock the folder. It may be empty if `new` or `rejoin`; else an empty one is a lost disk."""
        self.folder = folder
        self.identity = identity
        self.next_frame = 0
        self._machine = machine
        self._files = machine.files
        self._segment_bytes = machine.limits.segment_bytes
        self._saving: SnapshotWriter | None = None
        self._segment = -1
        self._segment_size = 0
        self._failed = False
        self._rejoin = rejoin
        try:
            self._files.make_folder(folder)
            self._lock = self._files.open(folder / "lock")
        except OSError as error:
            raise UsageError(f"{error.filename}: cannot be used ({error.strerror}); check the data folder") from error
        try:
            self._files.lock(self._lock)
        except OSError:
            self._files.close(self._lock)
            raise UsageError(f"{folder}: another process uses this data folder; stop it first") from None
        try:
            self._check_identity(new, rejoin)
        except AmcastError:
            self._files.close(self._lock)
            raise

    def _check_identity(self, new: bool, rejoin: bool) -> None:
        path = self.folder / "identity"
        if not self._files.exists(path):
            if not new and not rejoin:
                raise UsageError(
                    f"{self.folder}: no data of {self.identity}; if it never ran, start it with --new; if its disk is "
                    "lost, with --rejoin"
                )
            for parent in self.folder.parents:  # also of an earlier start, which may have ended before it came to this
                with suppress(PermissionError):  # who may not read it has made nothing there
                    self._files.sync_folder(parent)
            if rejoin:  # before the folder can be taken for one that is whole
                self.begin_rejoin()
            self._write_whole(path, self.identity.encode())
        try:
            self.description = description_in(self.folder, self.identity, self._files.read(path))
        except StorageCorrupt:
            if not rejoin:
                raise
            self.begin_rejoin()
            self._write_whole(path, self.identity.encode())  # the data that it stood for is set aside
            self.description = b""

    def describe(self, description: bytes) -> None:
        """Keep this behind the first line of `identity`."""
        self._write_whole(self.folder / "identity", sealed(self.identity, description))
        self.description = description

    # Starting

    def count_start(self) -> int:
        """Count this start; return how often a process has started in this folder."""
        path = self.folder / "starts"
        text = self._files.read(path).decode(errors="replace") if self._files.exists(path) else "0"
        if not (text.isascii() and text.isdigit() and len(text) < 10) and self._rejoin:
            text = "1"  # more is not needed of who begins again
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise StorageCorrupt(f"{path}: is {text[:20]!r}, expected a number; repair this node from its peers")
        starts = int(text) + 1
        self._write_whole(path, str(starts).encode())
        return starts

    def recover(self) -> Recovered:
        """Read what is there, cut off a torn frame, and go on behind it."""
        for name in self._files.names(self.folder):
            if name.endswith(UNFINISHED):  # of a process that ended while it wrote this
                self._files.remove(self.folder / name)
        snapshots = self._numbered("snapshot-")
        snapshot = self._read_snapshot(snapshots[-1]) if snapshots else None
        self.next_frame = snapshots[-1] if snapshots else 0
        segments = self._numbered("log-")
        needed = [n for i, n in enumerate(segments) if i + 1 == len(segments) or segments[i + 1] > self.next_frame]
        records: list[bytes] = []
        cut = 0
        for n in needed:
            cut = self._read_segment(n, records, last=n == segments[-1])
        self._start_segment(needed[-1] if needed else self.next_frame)
        return Recovered(snapshot, records, cut)

    def _numbered(self, prefix: str) -> list[int]:
        names = [name.removeprefix(prefix) for name in self._files.names(self.folder) if name.startswith(prefix)]
        return sorted(int(name) for name in names if name.isdigit())

    def _read_snapshot(self, n: int) -> list[bytes]:
        path = self.folder / f"snapshot-{n}"
        if self._files.read_at(path, 0, len(MAGIC)) != MAGIC:
            return list(read_parts(self._files, path, n))
        data = memoryview(self._files.read(path))  # as 0.1.0 wrote it: one frame
        frame = decode_frame(data, 0)
        if frame is None or frame[0] != n or frame[2] != len(data):
            raise StorageCorrupt(f"{path}: damaged snapshot; repair this node from its peers")
        return list(records_of(path, frame[1]))

    def _read_segment(self, n: int, records: list[bytes], last: bool) -> int:
        path = self.folder / f"log-{n}"
        data = memoryview(self._files.read(path))
        at = 0
        while at < len(data):
            frame = decode_frame(data, at)
            if frame is None or frame[0] != n:
                self._refuse_if_lost(path, data, at, last)
                self._cut(path, at)
                return len(data) - at
            number, body, at = frame
            n = number + 1
            if number >= self.next_frame:
                if number > self.next_frame:
                    raise StorageCorrupt(
                        f"{path}: frames {self.next_frame} to {number - 1} are missing; repair this node"
                    )
                records.extend(records_of(path, body))
                self.next_frame = number + 1
        return 0

    def _cut(self, path: Path, length: int) -> None:
        file = self._files.open(path)
        try:
            self._files.truncate(file, length)
            self._files.sync(file)
        finally:
            self._files.close(file)

    def _refuse_if_lost(self, path: Path, data: memoryview, at: int, last: bool) -> None:
        """Raise StorageCorrupt if something was written behind a broken frame: then it must not be cut off."""
        places = (found.start() for found in re.compile(MAGIC).finditer(data, at + 1))
        if not last or any(decode_frame(data, place) is not None for place in places):
            raise StorageCorrupt(
                f"{path}: damaged at byte {at} with sound data behind it: no torn write but a failing disk; "
                "replace it, then repair this node from its peers"
            )

    # Running

    def commit(self, records: list[bytes]) -> None:
        """Make these records durable, all or none; return when they are on disk."""
        if self._failed:
            raise StorageFailure(f"{self.folder}: the disk failed before; the node must stop")
        if self._segment_size > self._segment_bytes:
            self._start_segment(self.next_frame)
        frame = encode_frame(self.next_frame, records)
        if len(frame) - HEADER.size > LARGEST_FRAME:  # nobody could read it
            raise StorageFailure(f"{self.folder}: {len(frame)} bytes in one commit, expected at most {LARGEST_FRAME}")
        try:
            write_all(self._files, self._segment, frame)
            self._files.sync(self._segment)
        except OSError as error:
            self._failed = True
            raise StorageFailure(
                f"{self.folder}: {error.strerror}; stopping, since the disk cannot be trusted"
            ) from error
        self.next_frame += 1
        self._segment_size += len(frame)

    @property
    def saving(self) -> bool:
        """Return whether a snapshot has begun that is not finished."""
        return self._saving is not None

    def begin_snapshot(self, pieces: Iterable[bytes]) -> None:
        """Begin to keep the state after all that was committed until now; `save_some` goes on with it.

        Its pieces are taken one after the other, when they are written, while other records are committed.
        """
        with self._stopping_if_it_fails():
            if self._saving is not None:
                self._saving.give_up()
                self._saving = None
            n = self.next_frame
            self._saving = SnapshotWriter(self._machine, self.folder / f"snapshot-{n}", n, pieces)
            self._start_segment(n)

    def save_some(self) -> bool:
        """Write the next part of the snapshot; return whether it has taken the place of everything before it."""
        assert self._saving is not None
        with self._stopping_if_it_fails():
            if not self._saving.write_some():
                return False
            for prefix in ("snapshot-", "log-"):
                for old in self._numbered(prefix):
                    if old < self._saving.number:
                        self._files.remove(self.folder / f"{prefix}{old}")
            self._files.sync_folder(self.folder)
        self._saving = None
        return True

    def snapshot(self, pieces: Iterable[bytes]) -> None:
        """Keep this state instead of everything before it."""
        self.begin_snapshot(pieces)
        while not self.save_some():
            pass

    @contextmanager
    def _stopping_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            raise StorageFailure(f"{self.folder}: {error.strerror} while taking a snapshot; stopping") from error

    def _start_segment(self, n: int) -> None:
        if self._segment >= 0:
            self._files.close(self._segment)
        self._segment = self._files.open(self.folder / f"log-{n}", append=True)
        self._segment_size = self._files.size(self._segment)
        self._files.sync(self._segment)
        self._files.sync_folder(self.folder)

    def _write_whole(self, path: Path, data: bytes) -> None:
        """Write a file that appears with all of its content or not at all."""
        temporary = path.with_name(path.name + UNFINISHED)
        file = self._files.open(temporary, new=True)
        try:
            write_all(self._files, file, data)
            self._files.sync(file)
        finally:
            self._files.close(file)
        self._files.replace(temporary, path)
        self._files.sync_folder(self.folder)

    @property
    def rejoining(self) -> bool:
        """Whether this folder was set aside, and holds nothing yet in its place."""
        return self._files.exists(self.folder / "rejoining")

    def begin_rejoin(self) -> None:
        """Have every start from now on rejoin, until it is done."""
        self._write_whole(self.folder / "rejoining", b"")

    def set_aside(self) -> None:
        """Keep what is there under another name, for whoever wants to know, and start with an empty folder.

        An empty folder looks like that of a replica that promised nothing. So the file `rejoining` says that it is
        not, from before anything is set aside until a snapshot from others is durable (`rejoined`).
        """
        stay = ("identity", "lock", "starts", "rejoining")
        kept = [name for name in self._files.names(self.folder) if name not in stay]
        number = 1
        while self._files.exists(aside := self.folder.with_name(f"{self.folder.name}.old-{number}")):
            number += 1
        if kept:
            self._files.make_folder(aside)
            for name in kept:
                self._files.replace(self.folder / name, aside / name)
            self._files.sync_folder(self.folder)

    def rejoined(self, pieces: Iterable[bytes]) -> None:
        """Keep the state of others as this replica's own."""
        self.snapshot(pieces)
        self._files.remove(self.folder / "rejoining")
        self._files.sync_folder(self.folder)

    def close(self) -> None:
        if self._segment >= 0:
            self._files.close(self._segment)
            self._segment = -1
        if self._saving is not None:
            self._saving.close()
        self._files.close(self._lock)
