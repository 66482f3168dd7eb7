"""The log of a node: one JSON object per line, with what happened first."""

import sys
import time
from functools import partialmethod
from typing import IO, Final

import msgspec

LEVELS: Final = ("debug", "info", "warning", "error")


class Log:
    def __init__(self, node: str, level: str = "info", stream: IO[str] | None = None) -> None:
        self._node = node
        self._least = LEVELS.index(level)
        self._stream = stream if stream is not None else sys.stderr

    def _write(self, level: str, event: str, /, **facts: object) -> None:
        if LEVELS.index(level) < self._least:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        line = {"event": event, "level": level, "time": stamp, "node": self._node, **facts}
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        self._stream.flush()

    debug = partialmethod(_write, "debug")
    info = partialmethod(_write, "info")
    warning = partialmethod(_write, "warning")
    error = partialmethod(_write, "error")
