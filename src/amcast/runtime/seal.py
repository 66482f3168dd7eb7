"""What a data folder must hold, written down beside it: what is missing cannot be seen by looking at what is there.

    seal     one sector: "amq1", checksum, number of the newest snapshot, of the newest segment of the log, and of the
             last frame, -1 where there is none; then a record for each frame that was made durable since
    record   "amq2", checksum, number of the frame

The first sector is written anew, and synced, whenever a segment begins or a snapshot is finished. Records are written
when their frame is on disk, and not synced: a power cut may lose the last of them, and nothing else does. So a seal
may ask for less than there was, never for more.
"""

import zlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from amcast.errors import StorageCorrupt

FIRST_SECTOR: Final = 512
SEAL: Final = b"amq1"
RECORD: Final = b"amq2"
CHECKED: Final = Struct("<4sI")
NUMBERS: Final = Struct("<qqq")
NUMBER: Final = Struct("<q")
RECORD_SIZE: Final = CHECKED.size + NUMBER.size


class Seal(NamedTuple):
    """What must be there, by its numbers. -1: nothing."""

    snapshot: int = -1
    segment: int = -1
    frame: int = -1

    def encoded(self) -> bytes:
        return checked(SEAL, NUMBERS.pack(*self)).ljust(FIRST_SECTOR, b"\0")


def record_of(frame: int) -> bytes:
    """Return what is written behind the seal when this frame is on disk."""
    return checked(RECORD, NUMBER.pack(frame))


def seal_in(data: bytes) -> Seal | None:
    """Return the seal, with what was recorded behind it; None if it is damaged."""
    numbers = data[CHECKED.size : CHECKED.size + NUMBERS.size]
    if len(data) < FIRST_SECTOR or data[:FIRST_SECTOR] != checked(SEAL, numbers).ljust(FIRST_SECTOR, b"\0"):
        return None
    seal = Seal(*NUMBERS.unpack(numbers))
    for at in range(FIRST_SECTOR, len(data) - RECORD_SIZE + 1, RECORD_SIZE):
        number = data[at + CHECKED.size : at + RECORD_SIZE]
        if data[at : at + RECORD_SIZE] == checked(RECORD, number):
            seal = seal._replace(frame=max(seal.frame, NUMBER.unpack(number)[0]))
    return seal


def checked(magic: bytes, rest: bytes) -> bytes:
    return CHECKED.pack(magic, zlib.crc32(rest)) + rest


def forgotten(path: Path, seen: str) -> StorageCorrupt:
    """Return the error of a replica whose disk lost something: it must not say what it might have denied before."""
    return StorageCorrupt(
        f"{path}: {seen}; this replica may have forgotten what it promised, so it does not vote: start it with --rejoin"
    )
