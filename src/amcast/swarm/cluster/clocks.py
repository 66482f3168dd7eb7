"""The clocks of simulated machines, and how a process reads them."""

from typing import TYPE_CHECKING, Final

from amcast.runtime.machine import Clock

if TYPE_CHECKING:
    from amcast.swarm.cluster.loop import ProcessLoop

MILLION: Final = 1_000_000


class HostClock:
    """The two clocks of a machine. The monotonic one has its own rate and beginning; the wall clock also jumps."""

    def __init__(self, start: int, parts_per_million: int, wall: int) -> None:
        self.start = start
        self.rate = MILLION + parts_per_million
        self.wall = wall  # minus the monotonic clock

    def monotonic_at(self, time: int) -> int:
        return self.start + time * self.rate // MILLION

    def time_of(self, monotonic: int) -> int:
        """Return the first true time at which the monotonic clock shows so much."""
        return -((self.start - monotonic) * MILLION // self.rate)


class ProcessClock(Clock):
    """The clocks of its machine, as a process reads them: they go on while it computes."""

    def __init__(self, process: "ProcessLoop") -> None:
        self._process = process
        self._calendar = process.calendar
        self._host_clock = process.host_clock

    def monotonic_ns(self) -> int:
        host = self._host_clock  # written out: everything asks for the time
        return host.start + (self._calendar.now + self._process.spent) * host.rate // MILLION

    def wall_ns(self) -> int:
        return self.monotonic_ns() + self._host_clock.wall
