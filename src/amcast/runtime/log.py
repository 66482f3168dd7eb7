"""The log of a node: one JSON object per line, with what happened first."""

import sys
from datetime import UTC, datetime
from functools import partialmethod
from typing import IO, Final

import msgspec

from amcast.runtime.machine import REAL, Machine

LEVELS: Final = ("debug", "info", "warning", "error")


class Log:
    def __init__(self, node: str, level: str = "info", stream: IO[str] | None = None, machine: Machine = REAL) -> None:
        self._node = node
        self._least = LEVELS.index(level)
        self._clock = machine.clock
        self._stream = stream if stream is not None else sys.stderr

    def _write(self, level: str, event: str, /, **facts: object) -> None:
        if LEVELS.index(level) < self._least:
            return
        now = datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)
        stamp = now.isoformat(timespec="milliseconds").removesuffix("+00:00")
        line = {"event": event, "level": level, "time": f"{stamp}Z", "node": self._node, **facts}
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        self._stream.flush()

    debug = partialmethod(_write, "debug")
    info = partialmethod(_write, "info")
    warning = partialmethod(_write, "warning")
    error = partialmethod(_write, "error")
