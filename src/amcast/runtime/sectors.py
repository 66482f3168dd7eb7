"""The log as bytes: frames in whole sectors, so that what a power cut left can be told from what a disk lost.

    sector   "amf2", checksum of the rest, its place in the frame, number of the frame; then 492 bytes
    frame    the content of its sectors: length, then so many bytes, then zeros up to the end of the last sector

A frame is written in one piece behind those that are on disk already, and nothing is ever written over. So a power cut
while it is written leaves each of its sectors whole, or as zeros, or behind the end of the file. Anything else behind
the last whole frame had been on disk in another form: the disk changed it.
"""

import zlib
from struct import Struct
from typing import Final

SECTOR: Final = 512
MAGIC: Final = b"amf2"
CHECKED: Final = Struct("<4sI")
PLACE: Final = Struct("<IQ")
LENGTH: Final = Struct("<I")
HEAD: Final = CHECKED.size + PLACE.size
CONTENT: Final = SECTOR - HEAD
NOTHING: Final = bytes(SECTOR)


def is_format(magic: bytes) -> bool:
    """Return whether a log that begins like this was written by amcast, in this format or another."""
    return magic[:3] == MAGIC[:3] and magic[3:4].isdigit()


def encode_frame(number: int, body: bytes) -> bytes:
    content = LENGTH.pack(len(body)) + body
    content += bytes(-len(content) % CONTENT)
    places = range(len(content) // CONTENT)
    rests = [PLACE.pack(place, number) + content[place * CONTENT : (place + 1) * CONTENT] for place in places]
    return b"".join([CHECKED.pack(MAGIC, zlib.crc32(rest)) + rest for rest in rests])


def decode_frame(data: memoryview, at: int) -> tuple[int, bytes, int] | None:
    """Return the number, the body and the end of the frame at this place; None if there is no whole one."""
    number = number_at(data, at)
    if number is None or not is_sector(data, at, 0, number):
        return None
    length = LENGTH.size + LENGTH.unpack_from(data, at + HEAD)[0]
    count = -(-length // CONTENT)
    end = at + count * SECTOR
    if end > len(data) or not all(is_sector(data, at + place * SECTOR, place, number) for place in range(1, count)):
        return None
    content = b"".join([data[place + HEAD : place + SECTOR] for place in range(at, end, SECTOR)])
    return number, content[LENGTH.size : length], end


def number_at(data: memoryview, at: int) -> int | None:
    """Return the number of the frame that a sector says to belong to; None if it is not all there."""
    return PLACE.unpack_from(data, at + CHECKED.size)[1] if at + SECTOR <= len(data) else None


def is_sector(data: memoryview, at: int, place: int, number: int) -> bool:
    rest = data[at + CHECKED.size : at + SECTOR]
    return data[at : at + CHECKED.size] == CHECKED.pack(MAGIC, zlib.crc32(rest)) and rest[: PLACE.size] == PLACE.pack(
        place, number
    )


def damage_in(data: memoryview, at: int, number: int) -> int | None:
    """Return the first place behind the last whole frame that no write of the next one could leave; None: it is torn.

    `number` is that of the next frame. A sector that is cut off by the end of the file may hold anything.
    """
    for index, place in enumerate(range(at, len(data) - SECTOR + 1, SECTOR)):
        if data[place : place + SECTOR] != NOTHING and not is_sector(data, place, index, number):
            return place
    return None
