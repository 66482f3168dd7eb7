"""Rows of a group's ordered log, as they lie on disk and travel to readers: packed, or as columns of numbers."""

from typing import final

from librt.strings import BytesWriter, write_i16_le, write_i32_le, write_i64_le
from mypy_extensions import i16, i32, i64

from amcast.core.topology import sender_of, seq_of
from amcast.core.wire import AppMessage, Reader, pack_app, pack_long, pack_short, split
from amcast.errors import WireError


def pack_rows(w: BytesWriter, deliveries: list[tuple[AppMessage, int]], time: int) -> int:
    """Write deliveries as rows; return how many positions they take."""
    count = 0
    for m, ts in deliveries:
        pack_row(w, ts, 0, time, m)
        count += m.count
    return count


def pack_row(w: BytesWriter, ts: int, index: int, time: int, m: AppMessage) -> None:
    pack_long(w, ts)
    pack_short(w, index)
    pack_long(w, time)
    pack_app(w, m)


def unpack_rows(data: bytes, groups: int) -> list[tuple[int, int, int, AppMessage]]:
    """Return timestamp, place among those with it, time of delivery at this replica, message. Raises WireError."""
    r = Reader(data, groups)
    found: list[tuple[int, int, int, AppMessage]] = []
    try:
        while r.at < r.size:
            ts = r.long()
            index = r.short()
            time = r.long()
            for m in r.app().messages():
                found.append((ts, index, time, m))
                index += 1
    except (ValueError, IndexError) as error:
        raise WireError(f"malformed rows of {r.size} bytes: {error}") from None
    return found


def rows_behind(block: bytes, count: int, groups: int) -> bytes:
    """Return these rows without the first ones."""
    w = BytesWriter()
    for ts, index, when, m in unpack_rows(block, groups)[count:]:
        pack_row(w, ts, index, when, m)
    return w.getvalue()


@final
class Columns:
    """Rows as columns of fixed width, for tools that take them whole: each a buffer of little-endian numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.ts = BytesWriter()  # 8 bytes each …
        self.times = BytesWriter()
        self.senders = BytesWriter()
        self.numbers = BytesWriter()
        self.indices = BytesWriter()  # … 2 …
        self.dests = BytesWriter()  # … 4: which of `sets`
        self.ends = BytesWriter()  # … 4: of each payload in `payloads`, behind a zero
        self.payloads = BytesWriter()
        self.sets: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}
        write_i32_le(self.ends, 0)

    def add(self, data: bytes, groups: int, skip: int, most: int) -> int:
        """Add the rows of a block, without the first ones, up to so many; return how many. Raises WireError."""
        r = Reader(data, groups)
        before = self.count
        try:
            while r.at < r.size and self.count - before < most:
                ts = r.long()
                index = r.short()
                time = r.long()
                m = r.app()
                if skip >= m.count:
                    skip -= m.count
                    continue
                self._add_message(ts, index, time, m, skip, most - (self.count - before))
                skip = 0
        except (ValueError, IndexError) as error:
            raise WireError(f"malformed rows of {r.size} bytes: {error}") from None
        return self.count - before

    def _add_message(self, ts: int, index: int, time: int, m: AppMessage, skip: int, most: int) -> None:
        place = self._known.get(m.dest)
        if place is None:
            place = len(self.sets)
            self._known[m.dest] = place
            self.sets.append(m.dest)
        sender = i64(sender_of(m.mid))
        number = i64(seq_of(m.mid))
        parts = [m.payload] if m.count == 1 else split(m.payload, m.count)
        stamp = i64(ts)
        when = i64(time)
        for i in range(skip, min(m.count, skip + most)):
            write_i64_le(self.ts, stamp)
            write_i64_le(self.times, when)
            write_i64_le(self.senders, sender)
            write_i64_le(self.numbers, number + i)
            write_i16_le(self.indices, i16(index + i))
            write_i32_le(self.dests, i32(place))
            self.payloads.write(parts[i])
            write_i32_le(self.ends, i32(len(self.payloads)))
            self.count += 1
