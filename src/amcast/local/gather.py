"""One trace from what the processes of a cluster wrote down, each on its own.

Who should be there is not guessed from the files but read in cluster.toml: every member that takes part has a `start`
row in the trace, which says how many its group has. The `end` row needs somebody who knows that nothing was under way.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.seats import everybody
from amcast.runtime.tracing import OWN, as_one
from amcast.tracefile import ParquetRecorder, prepare_out, read_events


@dataclass
class Gathered:
    """What came together."""

    members: list[Member]  # that take part, or did: all but spares that were never started
    missing: list[Member]  # those of them that wrote nothing down
    deliveries: Counter[str]  # by process
    events: int = 0
    not_ended: str = ""  # why there is no end row


def gather(
    config: ClusterConfig,
    folder: Path,
    out: Path,
    *,
    why_not_ended: Callable[[Gathered], str],
    partial: bool = False,
    force: bool = False,
) -> Gathered:
    """Write the trace of these `.jsonl` files to `out`; with an end row, if there is no reason against it.

    `partial`: without the rows of members who are missing, which is an error otherwise; and without an end row.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise TraceError(f"{folder}: no .jsonl file there; expected those that nodes and clients write with --trace")
    began, withdrawn = who_began(config, folder, files)
    needed = [member.pid for member in config.members if not config.is_spare(member)]
    members = [member for member in everybody(config) if member.name in began or member.pid in needed]
    missing = [member for member in members if member.name not in began]
    lack = f"no start row of {', '.join(member.name for member in missing)}" if missing else ""
    if missing and not partial:
        raise TraceError(
            f"{folder}: {lack}; expected files of all {len(members)} members of {config.path}; "
            "copy theirs there, or gather the others with --partial"
        )
    found = Gathered(members, missing, Counter())
    sizes = Counter(f"g{member.group}" for member in members)
    prepare_out(out, force=force)
    last = 0
    with ParquetRecorder(out) as recorder:
        for member in missing:
            group = f"g{member.group}"
            recorder.record(Event(config.name, "start", member.name, group, 0, detail=stated(sizes[group])))
        for event in as_one(event for _, event in all_events(files)):
            if event.kind in ("multicast", "withdraw") and event.message in withdrawn:
                continue  # its sender was told that nobody delivers it: whoever does makes it up
            if event.kind == "start" and event.group is not None:
                event.detail = stated(sizes[event.group])
            last = max(last, event.time or 0)
            found.deliveries[event.process] += event.kind == "deliver"
            found.events += 1
            recorder.record(event)
        found.not_ended = lack or why_not_ended(found)
        if not found.not_ended:
            recorder.record(Event(config.name, "end", "cluster", None, 1, last))
    return found


def who_began(config: ClusterConfig, folder: Path, files: list[Path]) -> tuple[set[str], set[str | None]]:
    """Return the names of those with a start row, and the messages that their senders withdrew.

    Raises TraceError if a row is of another cluster, or there twice.
    """
    known = {member.name for member in everybody(config)}
    began = set()
    withdrawn = set()
    file_of: dict[str, Path] = {}
    for file, event in all_events(files):
        other = file_of.setdefault(event.process, file) if event.process not in OWN else file
        if other != file:
            raise TraceError(
                f"{folder}: two files hold rows of {event.process}: {other.name} and {file.name}; "
                "expected one of each process; take the copy out"
            )
        if event.run != config.name:
            raise TraceError(f"{folder}: rows of {event.run!r}; expected those of {config.name!r} in {config.path}")
        if event.group is not None and event.process not in known:
            raise TraceError(f"{folder}: rows of {event.process}, which is not in {config.path}; take them out")
        if event.kind == "start":
            began.add(event.process)
        elif event.kind == "withdraw":
            withdrawn.add(event.message)
    return began, withdrawn


def stated(members: int) -> str:
    return f'{{"members": {members}}}'


def all_events(files: list[Path]) -> Iterator[tuple[Path, Event]]:
    for file in files:
        for event in read_events(file):
            yield file, event
