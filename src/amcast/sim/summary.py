"""The figures of a run, gathered while its events pass by: throughput, latency, recovery.

Memory is bounded by what is in flight: a message is forgotten once every process of its destination groups that is up
has delivered it. If a whole group goes down before, the message is through there, and counts as delivered once anybody
delivers it, as replicas do that restart from their disks. Latency is from the multicast to the first delivery in each
destination group (what the papers measure: the leader's) and to the last one (the slowest follower's), one sample per
message and group.

Recovery is how long a group delivered nothing new: from the crash of its leader to the next first delivery of a message
in that group. What the old leader had delivered itself and its followers deliver after the crash does not end it.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import ceil
from typing import Final

from amcast.core.trace import Event, Recorder
from amcast.sim.network import MILLISECOND, SECOND

EXACT_SAMPLES: Final = 1_000_000
SIGNIFICANT_BITS: Final = 11  # of a sample beyond those: an error below 0.05 %


@dataclass(frozen=True)
class Percentiles:
    """In one unit, which the field that holds them names."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True)
class Latency:
    samples: int
    ms: Percentiles
    delta: Percentiles


@dataclass(frozen=True)
class Recovery:
    """A leader crashed; `recovery_ms` is None if its group delivered nothing new before the run was over."""

    process: str
    group: str
    crash_ms: float
    recovery_ms: float | None


@dataclass(frozen=True)
class Summary:
    """A delivered message is one that all processes of its destination groups that are up have delivered."""

    multicasts: int
    delivered_messages: int
    deliveries: int
    duration_ms: float
    messages_per_second: float  # delivered ones, from the first multicast to the last delivery
    delta_ms: float
    first_delivery: Latency | None
    last_delivery: Latency | None
    crashes: int
    leader_changes: int
    recoveries: tuple[Recovery, ...]
    optimistic: Latency | None = None  # to the optimistic deliveries, one sample each
    mistakes: float | None = None  # percent of the deliveries that were not guessed right

    def as_dict(self) -> dict[str, object]:
        """Return the figures for JSON."""
        return asdict(self)


class Samples:
    """Non-negative integers and their percentiles: exact for the first million, then from a histogram."""

    def __init__(self, exact: int = EXACT_SAMPLES) -> None:
        self._exact = exact
        self._values = array("q")
        self._histogram: Counter[int] = Counter()
        self.count = 0
        self.total = 0
        self.maximum = 0

    def add(self, value: int) -> None:
        self.count += 1
        self.total += value
        if value > self.maximum:
            self.maximum = value
        if self.count <= self._exact:
            self._values.append(value)
            return
        if self._values:
            self._histogram.update(map(_middle_of_bucket, self._values))
            self._values = array("q")
        self._histogram[_middle_of_bucket(value)] += 1

    def percentiles(self, percents: Iterable[int]) -> list[int]:
        """Return, for each, the least sample that so many percent of the samples do not exceed."""
        ranks = [max(1, ceil(self.count * percent / 100)) for percent in percents]
        if self._values:
            ordered = sorted(self._values)
            return [ordered[rank - 1] for rank in ranks]
        buckets = sorted(self._histogram.items())
        reached = list(accumulate(count for _, count in buckets))
        return [
            min(self.maximum, next(value for (value, _), n in zip(buckets, reached, strict=True) if n >= rank))
            for rank in ranks
        ]

    def latency(self, delta: int) -> Latency | None:
        """Return these samples, taken as nanoseconds, in milliseconds and in multiples of δ."""
        if not self.count:
            return None
        found = [*self.percentiles((50, 95, 99)), self.maximum, self.total / self.count]
        in_ms, in_delta = ([round(value / unit, 6) for value in found] for unit in (MILLISECOND, delta))
        return Latency(self.count, Percentiles(*in_ms), Percentiles(*in_delta))


class SummaryRecorder(Recorder):
    """Takes the events of one run in the order of time and passes them on, if there is somebody to pass them to."""

    def __init__(self, full: bool = False, forward_to: Recorder | None = None) -> None:
        super().__init__(full)
        self.forward_to = forward_to
        self._members: dict[str, set[str]] = {}  # of each group, those that are up
        self._in_flight: dict[str, _InFlight] = {}
        self._undelivered: set[str] = set()  # all who had to deliver them are down
        self._first = Samples()
        self._last = Samples()
        self._optimistic = Samples()
        self._guessed: dict[str, dict[str, bool]] = {}  # by process: delivered optimistically and not yet for good
        self._mistakes = 0
        self._judged = 0
        self._multicasts = 0
        self._delivered_messages = 0
        self._deliveries = 0
        self._first_multicast: int | None = None
        self._last_delivery = 0
        self._now = 0
        self._crashes = 0
        self._leader_rows = 0
        self._leader_of: dict[str, str] = {}
        self._crashed_leaders: list[tuple[str, str, int]] = []  # process, group, time
        self._recovered_at: dict[int, int] = {}  # place in the above -> time
        self._consumers = {
            "start": self._start,
            "multicast": self._multicast,
            "deliver": self._deliver,
            "optdeliver": self._optdeliver,
            "crash": self._crash,
            "restart": self._start,
            "leader": self._leader,
        }

    def record(self, event: Event) -> None:
        if self.forward_to is not None:
            self.forward_to.record(event)
        if event.time is not None:
            self._now = event.time
        consume = self._consumers.get(event.kind)
        if consume is not None:
            consume(event)

    def summary(self, delta: int) -> Summary:
        """Return the figures so far; `delta` is the bound of a message delay, in nanoseconds."""
        span = 0 if self._first_multicast is None else self._last_delivery - self._first_multicast
        return Summary(
            multicasts=self._multicasts,
            delivered_messages=self._delivered_messages,
            deliveries=self._deliveries,
            duration_ms=self._now / MILLISECOND,
            messages_per_second=round(self._delivered_messages * SECOND / span, 3) if span > 0 else 0.0,
            delta_ms=delta / MILLISECOND,
            first_delivery=self._first.latency(delta),
            last_delivery=self._last.latency(delta),
            crashes=self._crashes,
            leader_changes=self._leader_rows - len(self._leader_of),
            recoveries=tuple(
                Recovery(process, group, crashed / MILLISECOND, self._recovery_ms(place, crashed))
                for place, (process, group, crashed) in enumerate(self._crashed_leaders)
            ),
            optimistic=self._optimistic.latency(delta),
            mistakes=100 * self._mistakes / self._judged if self._judged else None,
        )

    def _recovery_ms(self, place: int, crashed: int) -> float | None:
        at = self._recovered_at.get(place)
        return None if at is None else (at - crashed) / MILLISECOND

    def _start(self, event: Event) -> None:
        if event.group is not None:
            self._members.setdefault(event.group, set()).add(event.process)

    def _multicast(self, event: Event) -> None:
        if event.message is None or event.dest is None:
            return
        if event.message in self._in_flight or event.message in self._undelivered:
            return
        self._multicasts += 1
        if self._first_multicast is None:
            self._first_multicast = self._now
        missing = {group: set(up) for group in event.dest if (up := self._members.get(group))}
        if missing:
            self._in_flight[event.message] = _InFlight(self._now, missing)
        else:
            self._undelivered.add(event.message)

    def _optdeliver(self, event: Event) -> None:
        if event.message is None:
            return
        self._guessed.setdefault(event.process, {})[event.message] = True
        message = self._in_flight.get(event.message)
        if message is not None:
            self._optimistic.add(self._now - message.multicast_at)

    def _judge(self, process: str, message: str) -> None:
        """Count a delivery that is not the first of what this process had guessed: a mistake."""
        guessed = self._guessed.get(process)
        if guessed is not None:
            self._judged += 1
            self._mistakes += next(iter(guessed), None) != message
            guessed.pop(message, None)

    def _deliver(self, event: Event) -> None:
        self._deliveries += 1
        if event.message is not None:
            self._judge(event.process, event.message)
        self._last_delivery = self._now
        if event.message is None or event.group is None:
            return
        message = self._in_flight.get(event.message)
        if message is None:
            if event.message in self._undelivered:
                self._undelivered.remove(event.message)
                self._delivered_messages += 1
            return
        message.seen = True
        if event.group not in message.missing:
            return
        if event.group not in message.last_delivery:
            self._first.add(self._now - message.multicast_at)
            if len(self._recovered_at) < len(self._crashed_leaders):
                self._recovered(event.group)
        message.last_delivery[event.group] = self._now
        self._no_longer_missing(event.message, message, event.group, event.process)

    def _crash(self, event: Event) -> None:
        self._crashes += 1
        if event.group is None:
            return
        self._members.get(event.group, set()).discard(event.process)
        if self._leader_of.get(event.group) == event.process:
            self._crashed_leaders.append((event.process, event.group, self._now))
        for name, message in list(self._in_flight.items()):
            if event.group in message.missing:
                self._no_longer_missing(name, message, event.group, event.process)

    def _leader(self, event: Event) -> None:
        if event.group is not None:
            self._leader_rows += 1
            self._leader_of[event.group] = event.process

    def _recovered(self, group: str) -> None:
        for place, (_, its_group, _) in enumerate(self._crashed_leaders):
            if its_group == group:
                self._recovered_at.setdefault(place, self._now)

    def _no_longer_missing(self, name: str, message: "_InFlight", group: str, process: str) -> None:
        missing = message.missing[group]
        missing.discard(process)
        if missing:
            return
        del message.missing[group]
        delivered_at = message.last_delivery.get(group)
        if delivered_at is not None:
            self._last.add(delivered_at - message.multicast_at)
        if not message.missing:
            del self._in_flight[name]
            if message.seen:
                self._delivered_messages += 1
            else:
                self._undelivered.add(name)


@dataclass(slots=True)
class _InFlight:
    """A message that some process which is up has still to deliver."""

    multicast_at: int
    missing: dict[str, set[str]]  # by destination group, as far as it is not through
    last_delivery: dict[str, int] = field(default_factory=dict)  # by group
    seen: bool = False  # somebody delivered it


def _middle_of_bucket(value: int) -> int:
    shift = max(0, value.bit_length() - SIGNIFICANT_BITS)
    return ((value >> shift) << shift) + ((1 << shift) >> 1)
