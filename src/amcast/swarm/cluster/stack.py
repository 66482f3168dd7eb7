"""Work that can stop in the middle of any function and go on there: a greenlet, or a thread where that is missing."""

from collections.abc import Callable
from threading import Lock, Thread

try:
    from greenlet import getcurrent, greenlet
except ImportError:  # threads that hand a baton to each other mean the same, and take twice the time
    greenlet = None


def new_stack(work: Callable[[], None]) -> "Stack | BatonStack":
    return Stack(work) if greenlet is not None else BatonStack(work)


class Stack:
    """A greenlet."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._greenlet = greenlet(work)
        self.started = False

    def resume(self) -> None:
        """Let it run until it pauses or ends."""
        self.started = True
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()

    def pause(self) -> None:
        """Go back to whoever resumed this; called by the work."""
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()


class BatonStack:
    """A thread: whoever has the baton runs."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._mine, self._theirs = Lock(), Lock()
        self._mine.acquire()
        self._theirs.acquire()
        self._thread = Thread(target=self._run, args=(work,), daemon=True)
        self.started = False

    def _run(self, work: Callable[[], None]) -> None:
        self._mine.acquire()
        work()
        self._theirs.release()

    def resume(self) -> None:
        if not self.started:
            self.started = True
            self._thread.start()
        self._mine.release()
        self._theirs.acquire()

    def pause(self) -> None:
        self._theirs.release()
        self._mine.acquire()
