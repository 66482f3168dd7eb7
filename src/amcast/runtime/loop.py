"""The event loop that the cluster's programs run in."""

import asyncio
import gc
import resource
import sys
from typing import Final

BACK_FROM_DISK: Final = 0.0005  # seconds that a thread waits at most for its turn to run while the loop is busy


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop, where it is installed. Collect cycles on real growth only: what flows through has none.

    The thread of the disk needs its turn several times in a commit. By default each may take 5 ms, longer than a sync.
    """
    sys.setswitchinterval(BACK_FROM_DISK)
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def open_many_connections() -> None:
    """Let this process have as many descriptors as it may: the usual 1,024 are fewer than its clients may be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
