"""Frames as bytes: how one is put together, and how a stream is cut into them. What they say is in `frames.py`."""

import zlib
from struct import Struct
from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from amcast.errors import WireError

HEADER: Final = Struct("<IIBQ")  # length of the body, checksum of the body, kind, number
HEAD: Final = 17  # bytes of it
UNSIGNED: Final = 0xFFFF_FFFF


def frame(kind: int, body: bytes, number: int = 0) -> bytes:
    return HEADER.pack(len(body), zlib.crc32(body), kind, number) + body


@final
class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._rest = bytearray()  # what came of a frame that is not complete …
        self._wanted = HEAD  # … and how many bytes there must be before it is worth another look

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return the frames that are complete by now: kind, number, body. Raises WireError."""
        found: list[tuple[int, int, bytes]] = []
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return found
            data = bytes(self._rest)
            self._rest = bytearray()
        size: i64 = len(data)
        at: i64 = 0
        wanted: i64 = HEAD
        while size - at >= HEAD:
            length = i64(read_i32_le(data, at)) & UNSIGNED
            if length > self.largest:
                raise WireError(f"a frame of {length} bytes: expected at most {self.largest}")
            end = at + HEAD + length
            if end > size:
                wanted = HEAD + length
                break
            body = data[at + HEAD : end]
            if zlib.crc32(body) != i64(read_i32_le(data, at + 4)) & UNSIGNED:
                raise WireError(f"a frame of {length} bytes with a wrong checksum")
            number: int = read_i64_le(data, at + 9)
            found.append((data[at + 8], number if number >= 0 else number + 2**64, body))
            at = end
        if at < size:
            self._rest += data[at:]
            self._wanted = wanted
        return found
