"""What clients did and heard, in the one true time of the world."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from amcast.checks.serializable import Append, Call, Get, Outcome
from amcast.checks.serializable.calls import Step
from amcast.errors import Alarm
from amcast.swarm.cluster.judge import Journal
from amcast.swarm.cluster.load.wishes import WIDTH


@dataclass(eq=False)
class Attempt:
    """A call that is under way."""

    client: str
    began: float
    due: float
    steps: tuple[Step, ...]
    groups: tuple[int, ...]


class Book:
    """What clients of one kind did and heard. `now` is the time of the world, in seconds."""

    def __init__(self, now: Callable[[], float], *, slack: float = 1.0) -> None:
        self.calls: list[Call] = []
        self.alarms: list[Alarm] = []
        self.acknowledged: dict[str, tuple[str, ...]] = {}  # multicasts by their ids, with the names of their groups
        self.refused_payloads: list[bytes] = []
        self.open: dict[Attempt, None] = {}
        self._now = now
        self._slack = slack
        self._numbers = count(1)

    def value(self) -> str:
        """Return a value that nobody wrote before."""
        return f"{next(self._numbers):0{WIDTH}d}"

    def alarm(self, kind: str, reason: str) -> Alarm:
        """Return an alarm, for the caller to raise, and keep it for whoever runs the world."""
        found = Alarm(kind, reason)
        self.alarms.append(found)
        return found

    def begin(
        self, client: str, steps: tuple[Step, ...], deadline: float = float("inf"), groups: tuple[int, ...] = ()
    ) -> Attempt:
        """Write down that a call begins, which must end within `deadline` seconds."""
        began = self._now()
        attempt = Attempt(client, began, began + deadline + self._slack, steps, groups)
        self.open[attempt] = None
        return attempt

    def end(self, attempt: Attempt, outcome: Outcome, steps: tuple[Step, ...] | None = None) -> Outcome:
        """Write down how a call ended, and with what answers."""
        del self.open[attempt]
        self._look_at_the_clock(attempt)
        told = attempt.steps if steps is None else steps
        self.calls.append(Call(attempt.client, attempt.began, self._now(), told, outcome, attempt.groups))
        return outcome

    def check_open(self) -> None:
        """Alarm if a call that is under way should have ended."""
        for attempt in self.open:
            self._look_at_the_clock(attempt)

    def _look_at_the_clock(self, attempt: Attempt) -> None:
        if self._now() > attempt.due:
            took = f"{self._now() - attempt.began:.1f} s, due after {attempt.due - attempt.began:.1f}"
            raise self.alarm("late answer", f"{attempt.client}: {'; '.join(map(str, attempt.steps))}: {took}")

    def abandon(self) -> None:
        """Write down that nobody will hear how the calls that are under way end: their client is dead."""
        for attempt in list(self.open):
            del self.open[attempt]
            self.calls.append(
                Call(attempt.client, attempt.began, self._now(), attempt.steps, Outcome.UNKNOWN, attempt.groups)
            )

    def read_logs(self, journal: Journal, groups: Sequence[str]) -> None:
        """Write down the ordered logs at the end, as if a client had read them all."""
        steps = tuple([Get(group, journal.log(group)) for group in groups])
        numbers = tuple(range(len(groups)))
        for g, group in enumerate(groups):
            for change in journal.changes(group):  # it takes a place in the log, as if somebody had multicast it
                self.calls.append(Call(change, 0.0, self._now(), (Append(group, change),), Outcome.UNKNOWN, (g,)))
        self.calls.append(Call("the journal", self._now(), self._now(), steps, Outcome.DONE, numbers))
