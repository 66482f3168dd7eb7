"""What a data folder of amcast 0.1 holds: read for `convert`, and by nothing else.

    identity      the cluster and the replica, without a line feed
    starts        how many there were
    snapshot-N    one frame: the state after N frames, as one record
    log-N         frames from N on, each with a number and a checksum (`old_frames.py`)
    history       as now

A log may end with a frame that was being written; whatever else is damaged is an error.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from amcast.errors import StorageCorrupt
from amcast.runtime import old_frames
from amcast.runtime.durability import NodeSnapshot
from amcast.runtime.identity import is_of_0_1_0
from amcast.runtime.machine import Files
from amcast.runtime.storage import records_of


class _Snapshot(msgspec.Struct, array_like=True):
    """A snapshot as 0.1.0 wrote it."""

    position: int
    protocol: list[bytes]
    app: bytes
    results: list[tuple[int, int, bytes]]


@dataclass(frozen=True)
class OldData:
    """A replica of 0.1: its newest snapshot, and the records of its protocol since the very first."""

    starts: int
    snapshot: NodeSnapshot
    records: list[bytes]  # of the snapshot, and behind it


def is_old(files: Files, folder: Path) -> bool:
    """Return whether this is a folder of 0.1."""
    path = folder / "identity"
    return files.exists(path) and is_of_0_1_0(files.read(path)) and not files.exists(folder / "seal")


def read_old(files: Files, folder: Path) -> OldData:
    """Return what a folder of 0.1 holds. Raises StorageCorrupt."""
    starts = files.read(folder / "starts") if files.exists(folder / "starts") else b"0"
    if not starts.isdigit():
        raise damaged(folder / "starts", f"is {starts[:30]!r}")
    numbers = _numbered(files, folder, "snapshot-")
    snapshot = NodeSnapshot(0, [], (), [])
    frame = 0
    if numbers:
        frame = numbers[-1]
        snapshot = _snapshot(files, folder / f"snapshot-{frame}", frame)
    records = list(snapshot.protocol)
    segments = _numbered(files, folder, "log-")
    for place, first in enumerate(segments):
        last = place == len(segments) - 1
        if not last and segments[place + 1] <= frame:
            continue  # all of it is in the snapshot
        path = folder / f"log-{first}"
        if first > frame:
            raise damaged(path, f"frames {frame} to {first - 1} before it are missing")
        frame = _read_segment(files, path, first, frame, last, records)
    return OldData(int(starts), snapshot, records)


def _numbered(files: Files, folder: Path, prefix: str) -> list[int]:
    names = [name.removeprefix(prefix) for name in files.names(folder) if name.startswith(prefix)]
    return sorted(int(name) for name in names if name.isdigit())


def _snapshot(files: Files, path: Path, number: int) -> NodeSnapshot:
    data = memoryview(files.read(path))
    frame = old_frames.decode_frame(data, 0)
    if frame is None or frame[0] != number or frame[2] != len(data):
        raise damaged(path, "damaged snapshot")
    try:
        old = msgspec.msgpack.decode(b"".join(records_of(path, frame[1])), type=_Snapshot)
    except msgspec.MsgspecError as error:
        raise damaged(path, str(error)) from None
    return NodeSnapshot(old.position, old.protocol, [old.app], old.results)


def _read_segment(files: Files, path: Path, first: int, next_frame: int, last: bool, records: list[bytes]) -> int:
    """Add the records of a segment that are behind the snapshot; return the number of the next frame."""
    data = memoryview(files.read(path))
    at, number = 0, first
    while (frame := old_frames.decode_frame(data, at)) is not None and frame[0] == number:
        if number >= next_frame:
            records += records_of(path, frame[1])
        at = frame[2]
        number += 1
    if at < len(data) and (not last or old_frames.damage_in(data, at) is not None):
        raise damaged(path, f"damaged at byte {at}, in frame {number}")
    return max(number, next_frame)


def damaged(path: Path, seen: str) -> StorageCorrupt:
    """Return the error of data that cannot be converted."""
    return StorageCorrupt(
        f"{path}: {seen}; it cannot be converted: move the folder of this replica away, convert the others, and start "
        "this one with --rejoin"
    )
