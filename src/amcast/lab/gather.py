"""One trace from what the processes of a cluster wrote down, each on its own."""

from collections.abc import Iterator
from pathlib import Path

from amcast.core.errors import TraceError
from amcast.core.trace import Event
from amcast.tracefile import ParquetRecorder, prepare_out, read_events


def gather(folder: Path, out: Path, *, quiescent: bool, force: bool = False) -> int:
    """Write the trace of these `.jsonl` files to `out`; how many events. `quiescent`: nothing was left under way."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise TraceError(f"{folder}: no .jsonl file there; expected those that nodes and clients write with --trace")
    prepare_out(out, force=force)
    count = 0
    run, last = "", 0
    with ParquetRecorder(out) as recorder:
        for event in _events(files):
            if run and event.run != run:
                raise TraceError(f"{folder}: runs {run!r} and {event.run!r}; expected one cluster")
            run, last = event.run, max(last, event.time or 0)
            recorder.record(event)
            count += 1
        if quiescent:
            recorder.record(Event(run, "end", "cluster", None, 1, last))
    return count


def _events(files: list[Path]) -> Iterator[Event]:
    for file in files:
        yield from read_events(file)
