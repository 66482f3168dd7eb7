"""A recorder that streams the events of a run to `<trace>/kind=<kind>/<part>.parquet`.

Memory is bounded: each kind has one open file and at most `rows_per_group` events that wait to be written. A file gets
its real name only when it is complete. Until then it is `.<part>.parquet.tmp`, which every reader skips, so that a
killed writer leaves nothing half-written behind. `end` gets its name last: a trace with an `end` row is complete.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.core.trace import KINDS, Event, Recorder
from amcast.errors import TraceError
from amcast.places import Place, one_line, place_of, publish
from amcast.tracefile.schema import FILE_SCHEMA, unknown_kind

assert KINDS[-1] == "end", "files are published in the order of KINDS, and end must be last"


class ParquetRecorder(Recorder):
    """A recorder that writes a trace. Several processes may share a folder, each with its own `part`."""

    def __init__(
        self, path: str | Place, full: bool = False, part: str = "part-0", rows_per_group: int = 32_768
    ) -> None:
        super().__init__(full)
        self._folder = place_of(path)
        self._scratch = None if isinstance(self._folder, Path) else TemporaryDirectory(prefix="amcast-")
        self._part = part
        self._published = 0
        self._rows_per_group = rows_per_group
        self._waiting: dict[str, list[Event]] = {kind: [] for kind in KINDS}
        self._files: dict[str, _PartFile] = {}
        self._closed = False
        with self._write_errors():
            self._folder.mkdir(parents=True, exist_ok=True)

    def record(self, event: Event) -> None:
        # The event itself is kept, not its columns: one append, which Ctrl-C cannot cut in two.
        try:
            waiting = self._waiting[event.kind]
        except KeyError:
            self._refuse(event)
        waiting.append(event)
        if len(waiting) >= self._rows_per_group:
            with _interrupt_deferred():
                self._write_group(event.kind)

    def publish(self) -> None:
        """Give all that was recorded so far its real name. Later events go to the next file, `<part>-1` and so on."""
        with _interrupt_deferred():
            for kind in self._waiting:
                self._write_group(kind)
            with self._write_errors():
                for file in self._files.values():
                    file.finish()
                for kind in KINDS:
                    if kind in self._files:
                        self._files.pop(kind).publish()
            self._published += 1

    def close(self) -> None:
        """Write what is waiting and finish the files. Closing twice is closing once."""
        if not self._closed:
            self.publish()
            self._closed = True
            self._waiting = {}
            if self._scratch is not None:
                self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse(self, event: Event) -> NoReturn:
        if self._closed:
            raise TraceError(f"{self._folder}: a {event.kind} event came after the trace was closed; close it later")
        raise TraceError(f"{self._folder}: {unknown_kind(event.kind)}")

    def _write_group(self, kind: str) -> None:
        events = self._waiting[kind]
        if not events:
            return
        with self._write_errors():
            if kind not in self._files:
                number = f"-{self._published}" if self._published else ""
                name = f"{self._part}{number}.parquet"
                scratch = None if self._scratch is None else Path(self._scratch.name, f"{kind}-{name}")
                self._files[kind] = _PartFile(self._folder / f"kind={kind}" / name, scratch)
            table = pa.table([_column(field, events) for field in FILE_SCHEMA], schema=FILE_SCHEMA)
            self._files[kind].write(table)
        self._waiting[kind] = []

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, OverflowError) as error:
            raise TraceError(
                f"{self._folder}: the trace cannot be written ({one_line(error)}); expected a folder that can be "
                f"written, with space left; choose another folder or free some space"
            ) from error


class _PartFile:
    """One Parquet file in the making."""

    def __init__(self, final: Place, unfinished: Path | None) -> None:
        self._final = final
        self._unfinished = unfinished or Path(final.with_name(f".{final.name}.tmp"))
        final.parent.mkdir(parents=True, exist_ok=True)
        if self._final.exists():
            raise TraceError(
                f"{self._final}: exists already; expected a new file; choose another folder or another part name"
            )
        self._writer = pq.ParquetWriter(self._unfinished, FILE_SCHEMA, compression="zstd", compression_level=1)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> None:
        self._writer.close()

    def publish(self) -> None:
        publish(self._unfinished, self._final)


def _column(field: pa.Field, events: list[Event]) -> pa.Array:
    values = list(map(attrgetter(field.name), events))
    if values.count(None) == len(values):
        return pa.nulls(len(values), field.type)
    if field.name != "ts":
        return pa.array(values, field.type)
    # pyarrow converts a struct row by row; column by column is faster.
    times, ties = zip(*(ts or (None, None) for ts in values), strict=True)
    absent = pa.array([ts is None for ts in values])
    return pa.StructArray.from_arrays(
        [pa.array(times, pa.int64()), pa.array(ties, pa.string())], ["time", "tie"], mask=absent
    )


@contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Let Ctrl-C take effect only after the block, so that no row is written twice or lost in between."""
    handler: Any = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        call: Callable[[int, FrameType | None], object] = handler
        for number, frame in received[:1]:
            call(number, frame)
