"""The trace: one event schema from simulator, explorer and cluster to every check, metric and picture.

A trace is a sequence of `Event`s; `amcast.tracefile` keeps it as Parquet, JSON lines or CSV. Drivers hand events to a
`Recorder`. Columns that a kind does not use are None.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

KINDS: Final = (
    "start",
    "multicast",
    "withdraw",
    "deliver",
    "optdeliver",
    "send",
    "receive",
    "crash",
    "restart",
    "suspect",
    "trust",
    "leader",
    "round",
    "reconfigure",
    "end",
)

COLUMNS: Final = (
    "run",
    "kind",
    "process",
    "group",
    "seq",
    "time",
    "message",
    "sender",
    "dest",
    "ts",
    "peer",
    "type",
    "size",
    "about",
    "detail",
)

REQUIRED_COLUMNS: Final = ("run", "kind", "process", "group", "seq", "message", "sender", "dest")


@final
class Event:
    """One row of a trace. `ts` is (time, tie); `time` is in nanoseconds."""

    def __init__(
        self,
        run: str,
        kind: str,
        process: str,
        group: str | None,
        seq: int,
        time: int | None = None,
        message: str | None = None,
        sender: str | None = None,
        dest: tuple[str, ...] | None = None,
        ts: tuple[int, str] | None = None,
        peer: str | None = None,
        type: str | None = None,
        size: int | None = None,
        about: tuple[str, ...] | None = None,
        detail: str | None = None,
    ) -> None:
        self.run = run
        self.kind = kind
        self.process = process
        self.group = group
        self.seq = seq
        self.time = time
        self.message = message
        self.sender = sender
        self.dest = dest
        self.ts = ts
        self.peer = peer
        self.type = type
        self.size = size
        self.about = about
        self.detail = detail

    def row(self) -> dict[str, object]:
        """Return the columns that are set, in the order of the schema."""
        everything = {name: getattr(self, name) for name in COLUMNS}
        return {name: value for name, value in everything.items() if value is not None}

    def __repr__(self) -> str:
        return "Event(" + ", ".join(f"{name}={value!r}" for name, value in self.row().items()) + ")"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.row() == other.row()


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """Where a driver sends its events. This one forgets them; `full` asks for send and receive rows as well."""

    def __init__(self, full: bool = False) -> None:
        self.full = full

    def record(self, event: Event) -> None:
        pass


class ListRecorder(Recorder):
    """Keeps the events in memory, for tests and short runs."""

    def __init__(self, full: bool = False) -> None:
        super().__init__(full)
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)
