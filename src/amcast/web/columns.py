"""A run as bytes for the page: a JSON head with the tables of names, then numbers, column by column.

    4 bytes    length of the head, little-endian
    head       JSON; `columns` gives for each column its name, its type, and where it begins after the head
    columns    little-endian, each at a multiple of 8 bytes

Places in `messages`, `types` and so on stand for names; NONE for none. What an event is about (its message, or the
messages that a protocol message helps to order) is `about[about_start[i]:about_start[i+1]]`.
"""

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from amcast.core.trace import KINDS
from amcast.web.runs import LOST, DrawnRun, about_of

NONE: Final = 0xFFFFFFFF
TYPES: Final = {"f8": "<f8", "u4": "<u4", "u1": "u1"}


class Names:
    """A table of strings, numbered in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        return NONE if name is None else self.numbers.setdefault(name, len(self.numbers))


def encode(run: DrawnRun, trace: str) -> bytes:
    """Encode a whole run."""
    messages, types, ties = Names(), Names(), Names()
    process = {name: number for number, name in enumerate(run.processes)}
    groups = list(dict.fromkeys(group for group in run.groups if group is not None))
    events = run.events
    about_start, about = [0], []
    for event in events:
        about += [messages.number(name) for name in about_of(event)]
        about_start.append(len(about))
    columns: dict[str, tuple[str, Any]] = {
        "time": ("f8", run.times),
        "seq": ("f8", [event.seq for event in events]),
        "process": ("u4", [process[event.process] for event in events]),
        "kind": ("u1", [KINDS.index(event.kind) for event in events]),
        "type": ("u4", [types.number(event.type) for event in events]),
        "peer": ("u4", [process.get(event.peer or "", NONE) for event in events]),
        "bytes": ("u4", [event.size or 0 for event in events]),
        "ts": ("f8", [-1 if event.ts is None else event.ts[0] for event in events]),
        "tie": ("u4", [NONE if event.ts is None else ties.number(event.ts[1]) for event in events]),
        "about_start": ("u4", about_start),
        "about": ("u4", about),
        "arrow_from": ("u4", [start for start, _ in run.arrows]),
        "arrow_to": ("u4", [NONE if end == LOST else end for _, end in run.arrows]),
    }
    number_of_group = {name: number for number, name in enumerate(groups)}
    dest: list[list[int]] = [[] for _ in messages.numbers]
    for event in events:
        if event.kind == "multicast" and event.message is not None:
            known = [number_of_group.setdefault(name, len(number_of_group)) for name in event.dest or ()]
            dest[messages.numbers[event.message]] = known
    columns["dest_start"] = ("u4", np.cumsum([0, *map(len, dest)]))
    columns["dest"] = ("u4", [group for row in dest for group in row])
    head = {
        "trace": trace,
        "run": run.name,
        "base": str(run.base),
        "steps": run.steps,
        "abstract": run.abstract,
        "processes": run.processes,
        "groups": list(number_of_group),
        "group_of": [NONE if group is None else number_of_group[group] for group in run.groups],
        "kinds": KINDS,
        "types": list(types.numbers),
        "ties": list(ties.numbers),
        "messages": list(messages.numbers),
        "details": {place: event.detail for place, event in enumerate(events) if event.detail is not None},
    }
    return packed(head, columns)


def packed(head: dict[str, object], columns: dict[str, tuple[str, Any]]) -> bytes:
    bodies: list[bytes] = []
    places: list[dict[str, object]] = []
    offset = 0
    for name, (kind, values) in columns.items():
        array: NDArray[Any] = np.asarray(values, dtype=TYPES[kind])
        body = array.tobytes()
        body += b"\0" * (-len(body) % 8)
        places.append({"name": name, "type": kind, "offset": offset, "count": len(array)})
        bodies.append(body)
        offset += len(body)
    document = json.dumps({**head, "columns": places}).encode()
    document += b" " * (-(len(document) + 4) % 8)
    return b"".join((len(document).to_bytes(4, "little"), document, *bodies))
