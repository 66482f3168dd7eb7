"""Liveness: what becomes of a state when nothing goes wrong any more, messages take δ and timers fire in time.

Liveness is a promise for good times. So a search lets every state without messages under way go on from there with all
the time it needs, and everything has to be delivered.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from amcast.core.wire import Message
from amcast.explorer.actor import DELTA, Actor, Step, watched

Channels = Mapping[tuple[int, int], Iterable[Message]]
Note = Callable[[int, int, tuple[int, Message] | None, Step], None]  # time passed, process, sender and message, step

BOUND = 500  # δ until everything is delivered
MOST = 20_000  # events: time may stand still in a broken protocol


class Liveness:
    """A continuation without faults of processes that are in some state."""

    def __init__(self, actors: Sequence[Actor], channels: Channels, note: Note | None = None) -> None:
        self.actors = actors
        self.note = note
        for actor in actors:  # whoever is about to crash inside a step, does
            if actor.unfinished is not None:
                actor.do(("cut", len(actor.unfinished.sends)))
        replicas = actors[0].setting.topology.replicas  # a client's clock may be ahead: nobody goes by it
        up = [actor.now for actor in actors[:replicas] if not actor.crashed or actor.may_restart]
        self.began = self.time = max(up, default=0)
        self.queue: list[tuple[int, int, int, object]] = []  # time, number, process, what
        self.count = 0
        for actor in actors:
            due, actor.due = actor.due, []
            for name, _, latest in due:
                self.push(max(self.time, latest), actor.pid, name)
        back = [actor for actor in actors if actor.crashed and actor.may_restart]
        for (sender, dest), messages in channels.items():
            for msg in messages if actors[sender] not in back else ():
                self.push(self.time + (DELTA if dest != sender else 0), dest, (sender, msg))
        for actor in actors:  # whoever wants to join, does; not in the past, where messages would overtake earlier ones
            while actor.changes and actor.setting.scope.whenever and not actor.crashed:
                actor.now = self.time
                self.follow(actor, watched(actor, lambda actor=actor: actor.do(("reconfigure",))))  # type: ignore[misc]
        for actor in back:  # whoever may come back, does
            self.come_back(actor)

    def come_back(self, actor: Actor) -> None:
        actor.now = self.time
        actor.restarts += 1
        how = "rejoin" if actor.forgot else "restart"
        self.follow(actor, watched(actor, lambda: actor.do((how,))))

    def follow(self, actor: Actor, step: Step, heard: tuple[int, Message] | None = None) -> None:
        """Put what a step led to under way."""
        if self.note is not None:
            self.note(self.time - self.began, actor.pid, heard, step)
        for dest, msg in step.sends:
            self.push(self.time + (DELTA if dest != actor.pid else 0), dest, (actor.pid, msg))
        for name, _, latest in actor.due:
            self.push(latest, actor.pid, name)
        actor.due = []

    def push(self, time: int, pid: int, what: object) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, pid, what))

    def run(self) -> None:
        """Go on until all is delivered that must be, or for BOUND δ."""
        deadline = self.time + BOUND * DELTA
        waiting = self.waiting()
        while waiting and self.queue and self.queue[0][0] <= deadline and self.count < MOST:
            self.time, _, pid, what = heapq.heappop(self.queue)
            actor = self.actors[pid]
            if actor.crashed:
                continue
            before = len(actor.log)
            step = Step()
            actor.now = self.time
            self.follow(actor, step, self.handle(actor, what, step))
            if actor.stopped():
                self.come_back(actor)
            if len(actor.log) != before or actor.setting.protocol.guesses:
                waiting = self.waiting()
        for actor in self.actors:
            actor.sync(Step())

    def handle(self, actor: Actor, what: object, step: Step) -> tuple[int, Message] | None:
        heard: tuple[int, Message] | None = None if isinstance(what, str) else what  # type: ignore[assignment]

        def act() -> None:
            if heard is None:
                actor.process.timer(actor.now, str(what))
            else:
                actor.hear(step, *heard)
            actor.drain(step)
            actor.hear_oneself(step)
            actor.confirm(step)

        watched(actor, act)
        return heard

    def waiting(self) -> bool:
        """Return whether a process that is up has still something to deliver or to multicast."""
        actors = self.actors
        members_of = actors[0].setting.topology.members_of
        dests = {mid: fact for actor in actors for kind, mid, fact in actor.log if kind == "multicast"}
        had = [{mid for kind, mid, _ in actor.log if kind == "deliver"} for actor in actors]
        owed = {mid for mids in had for mid in mids}
        owed |= {mid for actor in actors if not actor.crashed for kind, mid, _ in actor.log if kind == "multicast"}
        for mid in owed:
            dest = dests.get(mid, ())
            assert isinstance(dest, tuple)
            if any(not actors[pid].crashed and mid not in had[pid] for pid in members_of(dest)):
                return True
        if actors[0].setting.protocol.guesses and any(
            not actor.crashed and not actor.process.idle() for actor in actors
        ):
            return True  # what was delivered optimistically is not settled
        return any(actor.left for actor in actors if not actor.setting.scope.whenever)
