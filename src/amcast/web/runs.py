"""Prepares a run for drawing: events in the order of time, processes group by group, and pairs of send and receive.

A trace does not say which receive belongs to which send. Channels are FIFO and lose messages only when their sender
crashes. So the first receive of a type about some messages belongs to the first such send on the channel that was not
lost. When a process comes back after a crash, what it had under way was lost.
"""

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amcast.core.trace import Event
from amcast.errors import UsageError
from amcast.tracefile import read_events

MOST_EVENTS: Final = 1_000_000
MANY_CLIENTS: Final = 20
LOST: Final = -1
_DRIVER_KINDS: Final = frozenset(("start", "end"))


@dataclass(frozen=True)
class DrawnRun:
    """A run ready to draw.

    `times` are nanoseconds from `base`, or causal steps if the rows have no time (`steps`). `arrows` are (send,
    receive) as places in `events`, with LOST for what never arrived. If no protocol message was recorded, they lead
    from each multicast to its deliveries instead (`abstract`).
    """

    name: str
    processes: list[str]
    groups: list[str | None]
    events: list[Event]
    times: list[int]
    base: int
    steps: bool
    arrows: list[tuple[int, int]]
    abstract: bool


@dataclass(frozen=True)
class RunRows:
    """The selected events of a run, and the time of its first event, selected or not."""

    events: list[Event]
    base: int


def read_runs(trace: Path, since: int | None = None, until: int | None = None) -> dict[str, RunRows]:
    """Read all runs, or what happened between two times after their start. Raises UsageError if that is too much."""
    first = {} if since is None and until is None else first_times(read_events(trace))
    found: defaultdict[str, list[Event]] = defaultdict(list)
    count = 0
    for event in read_events(trace):
        if event.time is not None and first:
            time = event.time - first[event.run]
            if (since is not None and time < since) or (until is not None and time > until):
                continue
        found[event.run].append(event)
        count += 1
        if count > MOST_EVENTS:
            raise UsageError(
                f"{trace}: more than {MOST_EVENTS:,} events; choose a part of it with --since and --until, such as "
                "--since 1s --until 2s"
            )
    if not found:
        raise UsageError(f"{trace}: no event between --since and --until; expected times such as 50ms after the start")
    first = first or first_times(event for events in found.values() for event in events)
    return {name: RunRows(events, first.get(name, 0)) for name, events in found.items()}


def first_times(events: Iterable[Event]) -> dict[str, int]:
    first: dict[str, int] = {}
    for event in events:
        if event.time is not None:
            first[event.run] = min(event.time, first.get(event.run, event.time))
    return first


def run_named(runs: dict[str, RunRows], name: str | None, trace: Path) -> RunRows:
    """Return this run, or the first one if no name is given."""
    if name is None:
        return next(iter(runs.values()))
    if name not in runs:
        known = ", ".join(list(runs)[:5]) + (", …" if len(runs) > 5 else "")
        raise UsageError(f"{trace}: there is no run {name!r}; expected one of {known}")
    return runs[name]


def about_of(event: Event) -> tuple[str, ...]:
    """Return the messages that an event is about."""
    return (event.message,) if event.message is not None else event.about or ()


def about_message(rows: RunRows, message: str) -> RunRows:
    """Select the events about one message. Raises UsageError if there is none."""
    found = [event for event in rows.events if message in about_of(event)]
    if not found:
        some = next((event.message for event in rows.events if event.message is not None), "c0:1")
        raise UsageError(f"message {message!r} is not in the trace; expected an id such as {some}")
    return RunRows(found, rows.base)


def picture_of(rows: RunRows) -> DrawnRun:
    """Prepare a run for drawing."""
    drawn = without_driver(rows.events)
    steps = any(event.time is None for event in drawn)
    if steps:
        drawn = sorted(drawn, key=lambda event: event.seq)
        arrows, abstract = arrows_of(drawn, timed=False)
        drawn, times, arrows = in_causal_order(drawn, arrows)
    else:
        drawn = sorted(drawn, key=lambda event: (event.time, event.seq))
        times = [(event.time or 0) - rows.base for event in drawn]
        arrows, abstract = arrows_of(drawn, timed=True)
    names = sorted_processes(drawn)
    base = 0 if steps else rows.base
    return DrawnRun(rows.events[0].run, list(names), list(names.values()), drawn, times, base, steps, arrows, abstract)


def without_driver(events: Iterable[Event]) -> list[Event]:
    """Drop the rows of the driver, which is not a process."""
    rows = list(events)
    active = {event.process for event in rows if event.group is not None or event.kind not in _DRIVER_KINDS}
    return [event for event in rows if event.process in active]


def sorted_processes(events: Iterable[Event]) -> dict[str, str | None]:
    """Return each process with its group, in the order of groups and numbers.

    Clients come first, or last if there are many.
    """
    found: dict[str, str | None] = {}
    for event in events:
        if found.get(event.process) is None:
            found[event.process] = event.group
    many = sum(group is None for group in found.values()) > MANY_CLIENTS
    order = sorted(found, key=lambda name: ((found[name] is None) == many, natural(found[name] or ""), natural(name)))
    return {name: found[name] for name in order}


def natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def arrows_of(events: Sequence[Event], timed: bool) -> tuple[list[tuple[int, int]], bool]:
    """Return the arrows, ordered by their start, and whether they are abstract. They are places in these events."""
    sent: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)
    came_back: defaultdict[str | None, list[int]] = defaultdict(list)  # process -> times
    arrows: dict[int, int] = {}
    for place, event in enumerate(events):
        if event.kind == "restart" and timed:
            came_back[event.process].append(event.time or 0)
        elif event.kind == "send":
            sent[event.process, event.peer, event.type, event.about, event.size].append(place)
            arrows[place] = LOST
    if not arrows:
        return deliveries_of(events), True
    for place, event in enumerate(events):
        if event.kind != "receive":
            continue
        queue = sent.get((event.peer, event.process, event.type, event.about, event.size))
        while queue:
            send = queue.popleft()
            if not lost_by_then(came_back[event.peer], events[send], event):
                arrows[send] = place
                break
    return list(arrows.items()), False


def lost_by_then(restarts: list[int], send: Event, receive: Event) -> bool:
    """Return whether the sender came back after a crash between the two times."""
    return bisect_right(restarts, send.time or 0) != bisect_right(restarts, receive.time or 0)


def deliveries_of(events: Sequence[Event]) -> list[tuple[int, int]]:
    multicasts = {event.message: place for place, event in enumerate(events) if event.kind == "multicast"}
    found = [
        (multicasts[event.message], place)
        for place, event in enumerate(events)
        if event.kind in ("deliver", "optdeliver") and event.message in multicasts
    ]
    return sorted(found)


def in_causal_order(
    events: Sequence[Event], arrows: Sequence[tuple[int, int]]
) -> tuple[list[Event], list[int], list[tuple[int, int]]]:
    """Put events without times one step after all that they follow.

    A faulty trace may have a cycle; it is cut.
    """
    after: list[list[int]] = [[] for _ in events]
    waits = [0] * len(events)
    last: dict[str, int] = {}
    edges = [(start, end) for start, end in arrows if end != LOST]
    for place, event in enumerate(events):  # in the order of seq
        if event.process in last:
            edges.append((last[event.process], place))
        last[event.process] = place
    for start, end in edges:
        after[start].append(end)
        waits[end] += 1
    step = [1] * len(events)
    ready = deque(place for place, count in enumerate(waits) if count == 0)
    left = dict.fromkeys(range(len(events)))
    order: list[int] = []
    while left:
        place = ready.popleft() if ready else next(iter(left))
        if place not in left:
            continue
        del left[place]
        order.append(place)
        for follower in after[place]:
            step[follower] = max(step[follower], step[place] + 1)
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    order.sort(key=lambda place: (step[place], events[place].seq))
    new = {place: index for index, place in enumerate(order)}
    moved = sorted((new[start], LOST if end == LOST else new[end]) for start, end in arrows)
    return [events[place] for place in order], [step[place] for place in order], moved
