"""Messages that one group delivered over time, as a line of bars: a picture of a crash and of the recovery from it."""

from amcast.core.trace import Event
from amcast.sim.summary import SummaryRecorder

BARS = " ▁▂▃▄▅▆▇█"


class TimelineRecorder(SummaryRecorder):
    """A summary that also remembers when each message was first delivered in one group. For short runs."""

    def __init__(self, group: str, full: bool = False) -> None:
        super().__init__(full)
        self._group = group
        self._first_delivery: dict[str, int] = {}
        self._end = 0

    def record(self, event: Event) -> None:
        super().record(event)
        if event.kind == "deliver" and event.group == self._group and event.message and event.time is not None:
            self._end = event.time
            self._first_delivery.setdefault(event.message, event.time)

    def bars(self, width: int) -> str:
        """One sign per slice of the run; the highest has the most messages, a blank has none."""
        slices = [0] * width
        for time in self._first_delivery.values():
            slices[self.place(time, width)] += 1
        most = max(1, *slices)
        return "".join(BARS[-(-number * (len(BARS) - 1) // most)] for number in slices)

    def place(self, time: int, width: int) -> int:
        """The slice that this time falls into."""
        return min(width - 1, time * width // (self._end + 1))
