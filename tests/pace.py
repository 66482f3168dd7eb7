"""How slow this machine is just now. Every time limit of the tests grows with it; nothing waits longer than it must."""

import os
import time
from collections.abc import Callable

CORES = os.cpu_count() or 1
SAMPLE = 0.004  # seconds of CPU: so much work is timed
KEPT = 2.0  # seconds for which an answer is good enough
LOOK_EVERY = 0.02

_last = (float("-inf"), 1.0)


def slowness() -> float:
    """Return by how much longer work takes than on an idle machine: 1 or more.

    Work is timed, which tells of this moment, and the load average tells of the last minute.
    """
    global _last
    now = time.monotonic()
    if now - _last[0] > KEPT:
        began = time.thread_time()
        while time.thread_time() - began < SAMPLE:
            pass
        _last = (time.monotonic(), max(1.0, (time.monotonic() - now) / SAMPLE, os.getloadavg()[0] / CORES))
    return _last[1]


def allow(seconds: float) -> float:
    """Return the time limit for what takes at most so many seconds on a machine that does little else."""
    return seconds * slowness()


def until(what: Callable[[], object], seconds: float) -> bool:
    """Wait until this is true; False if it is not after a time that is ample."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > allow(seconds):  # asked again: the load may come while we wait
            return bool(what())
        time.sleep(LOOK_EVERY)
    return True
