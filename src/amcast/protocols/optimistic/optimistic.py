"""Optimistic Atomic Multicast: Baseline, and a first guess of the order after a single message delay.

Paper: Bezerra, Pedone, Garbinato, Geyer, "Optimistic Atomic Multicast", sections 4 and 6.

Latency in message delays: 1 optimistic, 3 conservative; 4 if the final timestamp differs from the initial one.

How it works. A message goes to its destinations at once, not only to the group that orders it. A process waits until
all that was stamped earlier has probably come (its wait window w), and then delivers optimistically, and proposes, in
the order of the initial timestamps. If its estimate was right the order will be the same in the end. A request for a
barrier waits in the same way, else the null message would push up the timestamps of messages on their way.

The window of a process is bounded by 4δ, and so is the wait for a timestamp that lies in the future: one sender with an
outage or a wrong clock delays the others a bit, not for as long as its clock is wrong (see wait_window.py).

A copy that comes too late is delivered optimistically at once: a mistake, not an error. If the ordered message comes
first, the copies that wait with lower timestamps are delivered optimistically, then it. So every message is delivered
optimistically once, before it is delivered, and in the order of its sender.

A message that will never be ordered, because it is refused or its sender died (see Baseline), was perhaps delivered
optimistically: that is undone (`Effects.undone`). Should it come again, it is delivered without another guess.
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.capabilities import Speculative
from amcast.core.notes import Undone
from amcast.core.order import time_of, timestamp
from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage
from amcast.protocols.optimistic.baseline import FOR_EVER, Baseline
from amcast.protocols.optimistic.baseline import ROW as BASELINE_ROW
from amcast.protocols.optimistic.messages import MESSAGE
from amcast.protocols.optimistic.options import DEFAULTS, Options
from amcast.protocols.optimistic.reliable_multicast import Copy
from amcast.protocols.optimistic.wait_window import WaitWindow
from amcast.protocols.parts.leader_candidate import LEADER

MOST: Final = 4  # in δ: who takes longer, by its clock and this one, is not waited for
SILENCE: Final = 200


@final
class Optimistic(Baseline, Speculative):
    """A member of group g0."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects, options: Options = DEFAULTS) -> None:
        super().__init__(pid, topology, params, out, options)
        start = options.window_start if options.window_start >= 0 else params.delta // params.clock_tick
        self.most = MOST * params.delta // params.clock_tick
        self.window = WaitWindow(start, options.percentile, options.window, self.most)
        self.guessed: dict[Mid, bool] = {}  # delivered optimistically, not ordered yet
        self.undone: dict[Mid, bool] = {}  # the same of what may come again, if its sender is not dead
        self.wakes_at = FOR_EVER

    def targets(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        return self.log.members + self.log.outside(dest)

    def horizon(self) -> int:
        return self.clock() - self.window.length

    def on_heard(self, copy: Copy) -> None:
        if copy.p != self.pid:
            self.window.heard(copy.p, self.clock() - time_of(copy.ts), self.now)

    def waits_until(self, ts: int, at_most: int) -> int:
        return min(ts, timestamp(self.clock() + at_most, 0))

    def on_due(self, copy: Copy) -> None:
        if copy.kind == MESSAGE and self.g0 in copy.m.dest:
            self.guess(copy.m, self.topology.group_of[copy.p])

    def guess(self, m: AppMessage, x: int) -> None:
        if m.mid not in self.guessed and m.mid not in self.undone and not self.done[x].contains(m.mid):
            self.guessed[m.mid] = True
            self.out.optimistic.append(m)

    def undo(self, mid: Mid) -> None:
        """Take an optimistic delivery back."""
        if self.guessed.pop(mid, False):
            self.undone[mid] = True
            self.out.undone.append(mid)
            self.note(Undone(self.topology.message_name(mid)))

    def on_ordered(self, m: AppMessage, x: int, ts: int) -> None:
        self.let_go(ts)
        self.guess(m, x)
        self.guessed.pop(m.mid, None)
        self.undone.pop(m.mid, None)

    def on_void(self, copy: Copy) -> None:
        self.undo(copy.m.mid)

    def on_refused(self, x: int, m: AppMessage, key: int) -> None:
        super().on_refused(x, m, key)
        self.undo(m.mid)
        self.undone.pop(m.mid, None)

    def advance(self) -> None:
        super().advance()
        self.wake_later()

    def wake_later(self) -> None:
        """Set a timer for the next thing that will be due."""
        t = time_of(self.waiting[0][0]) if self.waiting else FOR_EVER
        if self.log.status == LEADER:
            for h, requests in enumerate(self.requests):
                for ts, due in requests:
                    if ts > self.barrier_sent[h]:
                        t = min(t, time_of(due))
        wake_at = t + self.window.length
        if t < FOR_EVER and wake_at < self.wakes_at:
            self.wakes_at = wake_at
            wait = (wake_at - self.clock()) * self.params.clock_tick
            self.set_timer("window", wait, wait)

    def on_timer(self, name: str) -> None:
        if name == "window":
            self.wakes_at = FOR_EVER
        else:
            suspected = [p for rank, p in enumerate(self.log.members) if self.log.detector.suspected[rank]]
            self.window.forget(self.now - SILENCE * self.params.delta, suspected)
        super().on_timer(name)

    def condition(self) -> dict[str, object]:
        return {**super().condition(), "window": self.window.length * self.params.clock_tick}


ROW: Final[Protocol] = replace(
    BASELINE_ROW,
    name="optimistic",
    title="Optimistic atomic multicast",
    replica=Optimistic,
    latency="3δ or 4δ, optimistic 1δ",
    least_delivered=84,
)
