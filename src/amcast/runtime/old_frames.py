"""Frames as 0.1.0 wrote them, in logs and as snapshots: read for as long as there is data of it.

A frame may begin anywhere. So a damaged one can be told from one that was being written only by what is behind it.
"""

import re
import zlib
from struct import Struct
from typing import Final

MAGIC: Final = b"amf1"
HEADER: Final = Struct("<4sIIQ")  # magic, checksum of what follows, length of the body, number of the frame


def decode_frame(data: memoryview, at: int) -> tuple[int, bytes, int] | None:
    """Return the number, the body and the end of the frame at this place; None if there is no whole, sound one."""
    if at + HEADER.size > len(data):
        return None
    magic, checksum, length, number = HEADER.unpack_from(data, at)
    end = at + HEADER.size + length
    if magic != MAGIC or end > len(data) or zlib.crc32(data[at + 8 : end]) != checksum:
        return None
    return number, bytes(data[at + HEADER.size : end]), end


def damage_in(data: memoryview, at: int) -> int | None:
    """Return this place if a sound frame is behind it; None if what is there may have been written last."""
    places = (found.start() for found in re.compile(MAGIC).finditer(data, at + 1))
    return at if any(decode_frame(data, place) is not None for place in places) else None
