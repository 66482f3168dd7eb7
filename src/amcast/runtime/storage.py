"""What a node must not forget: an append-only log in checksummed frames, cut short by snapshots.

A frame is one group commit: all records that piled up while the previous frame was being made durable. The next frame
is never written before the previous one is on disk. So of a log that only lost its power, at most the last frame is
not whole, in a way that `sectors.py` can tell from damage: nothing that depends on it ever left the node, and it is
dropped. Whatever else is not as it was, or is missing (`seal.py`), had been durable. A replica that lost something
durable may have promised it to others: it does not start.

A disk error on the way down is final: the page cache may say anything afterwards, also to the process that starts next.
All that can be in doubt then is the last frame. So every start writes the last frame that it finds anew, into another
file, before it believes it.

Files in the folder of a node:

    identity      cluster and process it belongs to; then `identity.py`
    starts        how many there were, with a checksum
    seal          what must be there (`seal.py`)
    place         where the folder is: in a copy of it this is wrong. Empty while a replica does not know what it forgot
    snapshot-N    the state after N frames (`snapshots.py`)
    log-N         a segment: frames from N on, as far as the next segment (`sectors.py`)
    rejoining     all was set aside, and nothing of the replica's own is in its place yet
    forgot        why this replica may not go on with what is here: others remember more of it than its disk does

What 0.1.0 wrote is refused: `convert.py` makes a folder of now of it. All files carry a format, by their first bytes or
in `identity`, and one of another format is refused before anything is changed.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from struct import Struct
from typing import Final

from amcast.errors import AmcastError, StorageCorrupt, StorageFailure, UsageError
from amcast.runtime import sectors
from amcast.runtime.identity import description_in, is_of_0_1_0, sealed
from amcast.runtime.machine import REAL, Machine, write_all
from amcast.runtime.seal import Seal, forgotten, record_of, seal_in
from amcast.runtime.snapshots import UNFINISHED, SnapshotWriter, read_parts

LENGTH: Final = Struct("<I")
LARGEST_FRAME: Final = 2**30
ENDLESS: Final = 2**64  # no frame has this number
SECONDS_TO_NAME: Final = 2.0  # ample, from when a file is written until it has its name
WITH_A_STATE: Final = Seal(snapshot=0, segment=0)  # of a folder that begins with the state of others


@dataclass(frozen=True)
class Recovered:
    """What a node finds on its disk: the newest snapshot and the records since."""

    snapshot: list[bytes] | None  # in pieces
    records: list[bytes]
    cut: int  # bytes of a torn frame that were dropped
    doubt: str = ""  # why something that was synced may be missing at the end, so far as this disk can tell


def body_of(records: list[bytes]) -> bytes:
    return b"".join([LENGTH.pack(len(record)) + record for record in records])


def records_of(path: Path, body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        start = at + LENGTH.size
        at = start + LENGTH.unpack(body[at:start].ljust(LENGTH.size, b"\xff"))[0]
        if at > len(body):
            raise forgotten(path, f"a record of {at - start} bytes where {max(0, len(body) - start)} follow")
        yield body[start:at]


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
        self._newest = -1  # snapshot
        self._first = -1  # frame of the segment
        self._segment = -1  # its descriptor
        self._segment_size = 0
        self._seal = -1  # its descriptor
        self._failed = False
        self._pins: dict[int, int] = {}  # snapshots that others copy: for how many they are kept
        try:
            self._files.make_folder(folder)
            self._lock = self._files.open(folder / "lock")
        except OSError as error:
            if error.errno == ENOSPC:  # the folder is the right one: the same start works when there is room
                raise StorageFailure(f"{error.filename}: {error.strerror}; make room and start again") from error
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
            if not rejoin:
                self._refuse_what_has_run(new)
            for parent in self.folder.parents:  # also of an earlier start, which may have ended before it came to this
                with suppress(PermissionError):  # who may not read it has made nothing there
                    self._files.sync_folder(parent)
            if rejoin:  # before the folder can be taken for one that is whole
                self.begin_rejoin()
            if not self._files.exists(self.folder / "seal"):
                self._write_whole(self.folder / "seal", (WITH_A_STATE if rejoin else Seal()).encoded())
            if not self._files.exists(self.folder / "starts"):
                self._write_starts(int(rejoin))  # there was another, which nobody remembers
            if not rejoin:
                self.confirm()
            self.describe(b"")  # last: where there is an identity there is all of the above
        data = self._files.read(path)
        try:
            self.description = description_in(self.folder, self.identity, data)
            if is_of_0_1_0(data) and not rejoin:
                raise self._old_or_damaged()
        except StorageCorrupt:
            if not rejoin:
                raise
            self.begin_rejoin()
            self.describe(b"")  # the data that it stood for is set aside
        if self._files.exists(self.folder / "forgot") and not (rejoin or self.rejoining):
            raise StorageCorrupt(forgot_text(self.folder, self._read("forgot").decode(errors="replace").strip()))

    def _old_or_damaged(self) -> AmcastError:
        """Return the error of an identity of one line: 0.1 wrote no more, and no seal."""
        if self._files.exists(self.folder / "seal"):
            return StorageCorrupt(f"{self.folder / 'identity'}: damaged; start this node with --rejoin")
        return UsageError(
            f"{self.folder}: written by amcast 0.1, which has other formats; stop all nodes and convert their data "
            "with 'amcast cluster convert CLUSTER'"
        )

    def _refuse_what_has_run(self, new: bool) -> None:
        """Raise UsageError unless this is an empty folder that may be one, or a first start came no further."""
        if not new:
            raise UsageError(
                f"{self.folder}: no data of {self.identity}; if it never ran, start it with --new; if its disk is "
                "lost, with --rejoin"
            )
        found = [name for name in self._files.names(self.folder) if name.startswith(("log-", "snapshot-"))]
        if not found and self._files.exists(self.folder / "starts") and self._read_starts():
            found = ["starts"]
        if found:
            raise UsageError(
                f"{self.folder}: {found[-1]} without identity: it is not new; start it with --rejoin, or move the "
                "folder away if nobody needs it"
            )

    def _read(self, name: str) -> bytes:
        path = self.folder / name
        return self._files.read(path) if self._files.exists(path) else b""

    def describe(self, description: bytes) -> None:
        """Keep this behind the first line of `identity`."""
        self._write_whole(self.folder / "identity", sealed(self.identity, description))
        self.description = description

    # Starting

    def count_start(self, by: int = 1) -> int:
        """Count this start; return how often a process has started in this folder."""
        starts = self._read_starts() + by
        self._write_starts(starts)
        return starts

    def _read_starts(self) -> int:
        """Return how many starts were counted. Who rejoins has started before, whatever is left of the number."""
        text = self._read("starts")
        number = text.partition(b" ")[0]
        if number.isdigit() and len(number) < 10 and text == starts_text(int(number)):
            return int(number)
        if self.rejoining:
            return 1
        raise forgotten(self.folder / "starts", f"is {text[:30]!r}, expected a number and its checksum")

    def _write_starts(self, starts: int) -> None:
        self._write_whole(self.folder / "starts", starts_text(starts))

    def recover(self) -> Recovered:
        """Read what is there, drop a torn frame, and go on behind it. Raises StorageCorrupt if anything is lost."""
        with self._stopping_if_it_fails():
            for name in self._files.names(self.folder):
                if name.endswith(UNFINISHED):  # of a process that ended while it wrote this
                    self._files.remove(self.folder / name)
            seal = seal_in(self._read("seal"))
            if seal is None:
                raise forgotten(self.folder / "seal", "is missing or damaged")
            snapshots = self._numbered("snapshot-")
            self._newest = snapshots[-1] if snapshots else -1
            if self._newest < seal.snapshot:
                raise forgotten(self.folder / f"snapshot-{seal.snapshot}", "is missing")
            snapshot = self._read_snapshot(self._newest) if snapshots else None
            for old in snapshots[:-1]:  # pinned when the process ended
                self._files.remove(self.folder / f"snapshot-{old}")
            self.next_frame = max(0, self._newest)
            records, last, cut = self._read_log(seal)
            # What is cut off looks as a write that was never synced. The seal is sure of it only if it has a record of
            # every frame before: a power cut may have taken its last records, and with them that of a lost frame.
            doubt = self._doubt()
            if not doubt and self._put_back():
                doubt = "its files were put back from a copy"
                self._write_whole(self.folder / "place", b"")  # first: they are written anew below
            if cut and seal.frame != self.next_frame - 1 and not doubt:
                doubt = "its last write was cut off, and may have been promised to others"
                self._write_whole(self.folder / "place", b"")  # first: when it is cut off, nobody sees it any more
            self._go_on_behind(last)
        return Recovered(snapshot, records, cut, doubt)

    def _doubt(self) -> str:
        """Return why this folder may be older than what this replica wrote last.

        All that was written may be there and be whole, and still be a copy that somebody made before the rest of it.
        """
        found = self._read("place")
        if not found:
            return "nobody has confirmed yet that it forgot nothing"
        return "" if found == self._place_text() else "its data folder is a copy, or its files were changed"

    def _put_back(self) -> bool:
        """Return whether the seal or the newest log is not as this replica wrote it, but in the folder where it did.

        What restores files in place and leaves those alone that look as they did, `lock` among them, goes by their
        times, so it keeps the times of those that it writes. This replica changes a file only when it writes it.
        """
        segments = self._numbered("log-")
        newest = [self.folder / f"log-{segments[-1]}"] if segments else []
        return any(self._files.kept_time(path) > SECONDS_TO_NAME for path in (self.folder / "seal", *newest))

    def _place_text(self) -> bytes:
        text = b"%d %d" % self._files.place(self.folder / "lock")
        return b"%s %08x\n" % (text, zlib.crc32(text))

    def confirm(self) -> None:
        """Have the next start believe what is here: others have confirmed it, or there is nothing yet."""
        with self._stopping_if_it_fails():
            self._write_whole(self.folder / "place", self._place_text())

    def _go_on_behind(self, last: bytes | None) -> None:
        """Begin a segment with the last frame, written anew; what was found of it may have been in memory only."""
        if last is None:
            self._begin_segment(self.next_frame)
        else:
            number = self.next_frame - 1
            self._begin_segment(number, sectors.encode_frame(number, last))
        for later in self._numbered("log-"):
            if later > self._first:  # nothing whole is in it, and its frames are written to this one from now on
                self._files.remove(self.folder / f"log-{later}")
        self._files.sync_folder(self.folder)

    def _numbered(self, prefix: str) -> list[int]:
        names = [name.removeprefix(prefix) for name in self._files.names(self.folder) if name.startswith(prefix)]
        return sorted(int(name) for name in names if name.isdigit())

    def _read_snapshot(self, n: int) -> list[bytes]:
        return list(read_parts(self._files, self.folder / f"snapshot-{n}", n))

    def _read_log(self, seal: Seal) -> tuple[list[bytes], bytes | None, int]:
        """Return the records behind the snapshot, the body of the last frame, and how many bytes of a torn one."""
        segments = self._numbered("log-")
        if max(segments, default=-1) < seal.segment:
            raise forgotten(self.folder / f"log-{seal.segment}", "is missing")
        records: list[bytes] = []
        last: bytes | None = None
        cut = 0
        for first, after in zip(segments, [*segments[1:], ENDLESS], strict=False):
            if after <= self.next_frame:  # all of it is in the snapshot
                continue
            path = self.folder / f"log-{first}"
            if first > self.next_frame:
                raise forgotten(path, f"frames {self.next_frame} to {first - 1} before it are missing")
            bodies, cut = self._read_segment(path, first, after)
            for body in bodies[self.next_frame - first :]:
                records += records_of(path, body)
                last = body
                self.next_frame += 1
        if self.next_frame <= seal.frame:
            raise forgotten(
                self.folder / f"log-{segments[-1] if segments else 0}",
                f"ends before frame {self.next_frame}, expected those up to {seal.frame}, which were durable",
            )
        return records, last, cut

    def _read_segment(self, path: Path, first: int, after: int) -> tuple[list[bytes], int]:
        """Return the frames of a segment that are before the next one, and how many bytes of a torn one follow."""
        data = memoryview(self._files.read(path))
        magic = bytes(data[: len(sectors.MAGIC)])
        if magic != sectors.MAGIC and sectors.is_format(magic):
            raise UsageError(
                f"{path}: written in format {magic.decode()!r}, expected {sectors.MAGIC.decode()!r}; run the amcast "
                "that wrote it"
            )
        bodies: list[bytes] = []
        at = 0
        while first + len(bodies) < after and (frame := sectors.decode_frame(data, at)) is not None:
            number, body, end = frame
            if number != first + len(bodies):
                break
            bodies.append(body)
            at = end
        number = first + len(bodies)
        if number == after:
            return bodies, 0
        damaged: int | None = at
        if after == ENDLESS:  # only the last one may have been written when the power went
            damaged = sectors.damage_in(data, at, number)
        if damaged is not None:
            raise forgotten(path, f"damaged at byte {damaged}, in frame {number} or behind it")
        return bodies, len(data) - at

    # Running

    def commit(self, records: list[bytes]) -> None:
        """Make these records durable, all or none; return when they are on disk."""
        if self._failed:
            raise StorageFailure(f"{self.folder}: the disk failed before; the node must stop")
        body = body_of(records)
        if len(body) > LARGEST_FRAME:  # nobody could read it
            raise StorageFailure(f"{self.folder}: {len(body)} bytes in one commit, expected at most {LARGEST_FRAME}")
        with self._stopping_if_it_fails():
            if self._segment_size > self._segment_bytes:
                self._begin_segment(self.next_frame)
            frame = sectors.encode_frame(self.next_frame, body)
            self._append(self._segment, frame)
            self._files.sync(self._segment)
            self._append(self._seal, record_of(self.next_frame))
        self.next_frame += 1
        self._segment_size += len(frame)

    def _append(self, file: int, data: bytes) -> None:
        """Write in one call: what a power cut leaves of two that share a sector would look like damage."""
        if self._files.write(file, data) < len(data):
            raise OSError(ENOSPC, os.strerror(ENOSPC))

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
            self._begin_segment(n)

    def save_some(self) -> bool:
        """Write the next part of the snapshot; return whether it has taken the place of everything before it."""
        assert self._saving is not None
        with self._stopping_if_it_fails():
            if not self._saving.write_some():
                return False
            self._newest = self._saving.number
            self._write_seal()
            for prefix in ("snapshot-", "log-"):
                for old in self._numbered(prefix):
                    if old < self._saving.number and not (prefix == "snapshot-" and old in self._pins):
                        self._files.remove(self.folder / f"{prefix}{old}")
            self._files.sync_folder(self.folder)
        self._saving = None
        return True

    @property
    def newest(self) -> int:
        """Return the number of the newest snapshot that is whole; -1 if there is none."""
        return self._newest

    def pin(self, n: int) -> bool:
        """Keep a snapshot for somebody who copies it, until `unpin`; return whether it is still there."""
        if not self._files.exists(self.folder / f"snapshot-{n}"):
            return False
        self._pins[n] = self._pins.get(n, 0) + 1
        return True

    def unpin(self, n: int) -> None:
        self._pins[n] -= 1
        if not self._pins[n]:
            del self._pins[n]
            if n < self._newest:
                with self._stopping_if_it_fails():
                    self._files.remove(self.folder / f"snapshot-{n}")

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
            raise StorageFailure(
                f"{self.folder}: {error.strerror}; stopping, since the disk cannot be trusted"
            ) from error

    def _begin_segment(self, n: int, content: bytes = b"") -> None:
        path = self.folder / f"log-{n}"
        self._write_whole(path, content)
        self._first = n
        self._write_seal()  # before there is a frame that could be lost with this file
        file, self._segment = self._segment, -1  # in this order: what is closed must not be closed again
        self._close(file)
        self._segment = self._files.open(path, append=True)
        self._segment_size = len(content)

    def _write_seal(self) -> None:
        path = self.folder / "seal"
        self._write_whole(path, Seal(self._newest, self._first, self.next_frame - 1).encoded())
        file, self._seal = self._seal, -1
        self._close(file)
        self._seal = self._files.open(path, append=True)

    def _close(self, file: int) -> None:
        if file >= 0:
            self._files.close(file)

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
        not, from before anything is set aside until a snapshot with the state of others is durable (`end_rejoin`).
        """
        stay = ("identity", "lock", "starts", "seal", "rejoining")
        kept = [name for name in self._files.names(self.folder) if name not in stay]
        number = 1
        while self._files.exists(aside := self.folder.with_name(f"{self.folder.name}.old-{number}")):
            number += 1
        if kept:
            self._files.make_folder(aside)
            for name in kept:
                self._files.replace(self.folder / name, aside / name)
            self._files.sync_folder(self.folder)
        self._newest, self._first, _ = WITH_A_STATE  # which is not there yet: so also the seal says what is missing
        self._begin_segment(self._first)

    def end_rejoin(self) -> None:
        """Have the next start go on from here: a snapshot of this replica's own is durable."""
        self.confirm()
        self._files.remove(self.folder / "rejoining")
        self._files.sync_folder(self.folder)

    def forget(self, reason: str) -> None:
        """Have every start from now on refuse what is here, but for one that rejoins."""
        self._write_whole(self.folder / "forgot", f"{reason}\n".encode())

    def close(self) -> None:
        self._close(self._segment)
        self._close(self._seal)
        self._segment = self._seal = -1
        if self._saving is not None:
            self._saving.close()
        self._files.close(self._lock)


def forgot_text(folder: Path, reason: str) -> str:
    """Return what an operator is told of a replica that forgot."""
    return (
        f"{folder}: this replica forgot what it said: {reason}; it must not vote with what is here: start it with "
        "--rejoin to take the state of the others"
    )


def starts_text(starts: int) -> bytes:
    return b"%d %08x\n" % (starts, zlib.crc32(b"%d" % starts))
