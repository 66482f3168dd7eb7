"""Turns what was found into verdicts: the rows of a few messages are fetched, and the in-memory engine judges them.

So a verdict of the Spark engine has the words and rows of the in-memory engine. Nothing is called violated unless the
in-memory engine finds it violated on these rows alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amcast.checks import Verdict, check
from amcast.core.trace import COLUMNS, Event
from amcast.spark.verify.participants import NONE, Participants

# What the Spark engine found out about a run: a name of a property, and messages that break it.
Suspects = Mapping[tuple[int, str], Sequence[str]]

_KINDS_OF_MESSAGES: Final = ("multicast", "deliver", "optdeliver")


def verdicts_on(rows: DataFrame, participants: Participants, suspects: Suspects) -> dict[tuple[int, str], Verdict]:
    """Return the verdict on each run and property that has suspects."""
    if not suspects:
        return {}
    wanted = {(participants.runs[run], name) for (run, _), names in suspects.items() for name in names}
    events = events_about(rows, wanted)
    traffic = _traffic(
        rows, {(participants.runs[run], m) for (run, name), ms in suspects.items() if name == "genuine" for m in ms}
    )
    crashes = _crashes(rows, {participants.runs[run] for run, _ in suspects})
    members = _members(participants, {run for run, _ in suspects})
    found: dict[tuple[int, str], Verdict] = {}
    for (run, name), messages in suspects.items():
        of_run = participants.runs[run]
        about = [event for message in messages for event in events[of_run, message]]
        if name == "genuine":
            about += traffic[of_run]
        events_of_run = [*members[run], *about, *crashes[of_run]]
        (verdict,) = check(events_of_run, [name])
        assert verdict.status == "violated", f"the in-memory engine finds {name} {verdict.status} in {events_of_run}"
        found[run, name] = verdict
    return found


def unknown(name: str, run: str, *events: Event) -> Verdict:
    """Return what the in-memory engine says of a run that has too little to judge."""
    (verdict,) = check([Event(run, "start", "", None, 0), *events], [name])
    assert verdict.status == "unknown", f"{name} of {run!r} is {verdict.status}"
    return verdict


def events_about(rows: DataFrame, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], list[Event]]:
    """Return the multicast, deliver and optdeliver rows of these messages, given as (run, message)."""
    keys = F.broadcast(rows.sparkSession.createDataFrame(_names(wanted)))
    chosen = rows.where(F.col("kind").isin(*_KINDS_OF_MESSAGES))
    if len(wanted) <= 100:
        chosen = chosen.where(F.col("message").isin([name for _, name in sorted(wanted)]))
    found: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in _collected(chosen.join(keys, ["run", "message"])):
        found[event.run, event.message or ""].append(event)
    return found


def _traffic(rows: DataFrame, wanted: set[tuple[str, str]]) -> dict[str, list[Event]]:
    """Return the send and receive rows about these messages, given as (run, message)."""
    if not wanted:
        return {}
    keys = F.broadcast(rows.sparkSession.createDataFrame(_names(wanted)).withColumnRenamed("message", "what"))
    chosen = rows.where(F.col("kind").isin("send", "receive")).join(keys, "run")
    return _by_run(chosen.where(F.array_contains("about", F.col("what"))))


def _names(wanted: set[tuple[str, str]]) -> pa.Table:
    return pa.table([*zip(*sorted(wanted), strict=True)], names=["run", "message"])


def _crashes(rows: DataFrame, runs: set[str]) -> dict[str, list[Event]]:
    chosen = rows.where(F.col("kind").isin("crash", "restart", "end"))
    return _by_run(chosen.where(F.col("run").isin(sorted(runs))) if len(runs) <= 100 else chosen)


def _by_run(rows: DataFrame) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in _collected(rows):
        found[event.run].append(event)
    return found


def _members(participants: Participants, runs: Iterable[int]) -> dict[int, list[Event]]:
    """Return a row for each process of a group, so that a process that does nothing else is known too."""
    processes = participants.processes
    names = {number: name for (_, name), number in processes.group_numbers.items()}
    found: dict[int, list[Event]] = {run: [] for run in runs}
    for process, (run, group) in enumerate(zip(processes.run.tolist(), processes.group.tolist(), strict=True)):
        if run in found and group != NONE:
            found[run].append(Event(participants.runs[run], "start", processes.names[process], names[group], 0))
    return found


def _collected(rows: DataFrame) -> list[Event]:
    """Collect the rows in an order that does not depend on how they were spread."""
    events = [event_of(row) for row in rows.select(*COLUMNS).toArrow().to_pylist()]
    return sorted(events, key=lambda event: (event.run, event.process, event.seq, event.kind))


def event_of(row: dict[str, Any]) -> Event:
    for name in ("dest", "about"):
        if row[name] is not None:
            row[name] = tuple(row[name])
    if row["ts"] is not None:
        row["ts"] = None if row["ts"]["time"] is None else (row["ts"]["time"], row["ts"]["tie"] or "")
    return Event(**row)
