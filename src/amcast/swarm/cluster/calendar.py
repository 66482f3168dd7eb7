"""What will happen, and when: one heap for all processes, machines and faults of a simulated cluster.

Whatever happens at the same instant happens in an order that is drawn. A run has a digest, into which everything goes
that could differ between two runs of one seed; it is made of numbers alone, for `hash` of text differs by process.
"""

from asyncio.events import _set_running_loop
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
LOOK_EVERY: Final = 8  # events: whether a run is done takes longer to say than one of them takes


class Calendar:
    """The one true time of a run, in nanoseconds from its beginning, and what is still to come."""

    def __init__(self, random: Random) -> None:
        self.now = 0
        self.events = 0
        self.digest = 0
        self._random = random
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._watches: list[Callable[[], bool]] = []
        self._until = 0  # the end of what runs now

    def at(self, time: int, call: Callable[..., None], *arguments: Any) -> None:
        """Have something called at this time, or now if it has passed."""
        self._number += 1
        now = self.now
        tie = self._random.getrandbits(16)
        heappush(self._heap, (time if time > now else now, tie, self._number, call, arguments))

    def after(self, delay: int, call: Callable[..., None], *arguments: Any) -> None:
        """Have something called after so many nanoseconds."""
        self._number += 1
        heappush(self._heap, (self.now + delay, self._random.getrandbits(16), self._number, call, arguments))

    def passes_to(self, time: int) -> bool:
        """Let time pass, for what runs now, if nothing else happens before this time; return whether nothing does.

        It is what an event at that time would come to, without the event.
        """
        heap = self._heap
        if self._watches or time > self._until or (heap and heap[0][0] <= time):
            return False
        self.now = time
        return True

    def watch(self, look: Callable[[], bool]) -> None:
        """Have something called after every event, until it returns True."""
        self._watches.append(look)

    def _look(self) -> None:
        for look in tuple(self._watches):
            if look():
                self._watches.remove(look)

    def note(self, what: int) -> None:
        """Put a number into the digest: something happened now that depends on all that happened before."""
        self.digest = hash((self.digest, self.now, what))

    def run(self, until: int, done: Callable[[], bool] | None = None) -> bool:
        """Go on until this time, or until `done` says so; return whether it did."""
        heap = self._heap
        self._until = until
        try:
            while heap and heap[0][0] <= until:
                self.now, _, _, call, arguments = heappop(heap)
                self.events = events = self.events + 1
                call(*arguments)
                if self._watches:
                    self._look()
                if not events % LOOK_EVERY and done is not None and done():
                    return True
        finally:
            _set_running_loop(None)  # simulated loops leave that to whoever is next: here it is a real one
        if done is not None and done():
            return True
        self.now = max(self.now, until)
        return False
