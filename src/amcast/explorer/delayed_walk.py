"""Walks in which a few channels are slow from some moment on, and everything else arrives at once.

This is how a search goes on that was cut. Breadth first it saw every short schedule. What is wrong with a protocol
often needs a long one in which little goes wrong: one message is late, while time-outs, a crash and a leader change
take their course. A free choice among all moves delays too much on the way there. Such walks hardly ever meet a state
again, so they go on real processes, and nothing is looked up.
"""

import time
from collections.abc import Callable
from random import Random

from amcast.core.topology import Topology
from amcast.errors import PropertyViolation
from amcast.explorer.model import FAULTS, Move
from amcast.explorer.properties import Properties
from amcast.explorer.run import RealRun
from amcast.explorer.search import Found, Limits

DEPTH = 400  # moves: rounds may go on for ever
SILENT = 0.3  # how likely a crash loses everything that the process had under way
SPARED = 0.2  # how likely a kind of fault does not happen in a walk


class Delays:
    """The choices of one walk."""

    def __init__(self, random: Random, topology: Topology, spare: int = 0) -> None:
        self.random = random
        self.size, self.replicas = topology.size, topology.replicas
        self.mates = [topology.groups[g] for g in topology.group_of[: topology.replicas]]
        self.own = 0  # moves so far that are no deliveries
        self.slow: set[Move] = set()  # deliveries that wait until nothing else is possible
        self.silenced: set[object] = set()  # who crashed, and nothing that was under way from there arrives
        self.spared = {kind for kind in FAULTS if random.random() < SPARED}  # what does not go wrong in this walk
        # How likely a process does something of its own while messages are under way: in most walks never.
        self.haste = random.choice((0.0, 0.0, 0.05, 0.3))
        # When channels become slow: after so many moves of its own, or in the middle of what follows from one.
        self.later = [(random.choice((0, 0, random.randrange(8))), random.choice((0, 0, random.randrange(25))),
                       self.channels()) for _ in range(random.choice((0, 1, 1, 2, 3)))]  # fmt: skip
        self.delivered = self.since = 0  # in all, and since the last move of its own
        self.alone_at = random.randrange(4, 10) if spare and random.random() < 0.7 else -1
        # From that delivery on only one member receives, and those who join: it is ahead of all others.
        ahead = (random.randrange(self.replicas - spare), *range(self.replicas - spare, self.replicas)) if spare else ()
        self.alone: list[Move] = [
            ("deliver", p, q) for p in range(self.size) for q in range(self.size) if q not in ahead
        ]
        self.freeze()

    def channels(self) -> list[Move]:
        """Return the deliveries of a channel, or of several from or to one process."""
        random = self.random
        one, other = random.randrange(self.replicas), random.randrange(self.size)  # clients do not talk to each other
        ends = random.choice(((one, other), (other, one)))
        kind = random.randrange(5)
        if kind < 2:
            return [("deliver", *ends)]
        if kind == 4:  # all others of its group
            return [("deliver", one, mate) for mate in self.mates[one] if mate != one]
        some = [pid for pid in range(self.size) if random.random() < 0.7]
        return [("deliver", ends[0], pid) if kind == 2 else ("deliver", pid, ends[1]) for pid in some]

    def freeze(self) -> None:
        for own, delivered, channels in self.later:
            if own == self.own and delivered == self.since:
                self.slow.update(channels)

    def choose(self, possible: list[Move]) -> Move:
        """Choose one of the moves; there is at least one that is not spared."""
        random = self.random
        unheard = [move for move in possible if move[0] == "lose" and move[1] in self.silenced]
        if unheard:
            return unheard[0]
        fast = [move for move in possible if move[0] == "deliver" and move not in self.slow]
        own = [move for move in possible if move[0] != "deliver"]
        if fast and not (own and random.random() < self.haste):
            self.delivered += 1
            self.since += 1
            self.freeze()
            if self.delivered == self.alone_at:
                self.slow.update(self.alone)
            return random.choice(fast)
        if own:
            self.own += 1
            self.since = 0
            self.freeze()
            move = random.choice(own)
            self.silenced.discard(move[1])
            if move[0] == "crash" and random.random() < SILENT:
                self.silenced.add(move[1])
            return move
        late = random.choice(possible)
        self.slow.discard(late)
        return late


class DelayedWalks:
    """Walks on real processes, on which invariants are asserted. Each history is judged, and what follows in calm."""

    def __init__(self, properties: Properties, seed: int, past: tuple[Move, ...] = ()) -> None:
        self.properties = properties
        self.past = past
        self.random = Random(seed)
        self.walks = self.transitions = self.depth = 0
        self.found: Found | None = None

    def run(self, walks: int, limits: Limits, progress: Callable[[], None] | None = None) -> None:
        """Make so many walks, unless one shows a violation or time is up."""
        deadline = time.monotonic() + limits.seconds if limits.seconds is not None else None
        while self.walks < walks and self.found is None and (deadline is None or time.monotonic() < deadline):
            self.walk()
            self.walks += 1
            if progress is not None:
                progress()

    def walk(self) -> None:
        properties = self.properties
        run = RealRun(properties.setting)
        delays = Delays(self.random, properties.topology, properties.setting.scope.spare)
        most = self.random.choice((DEPTH, DEPTH, self.random.randrange(1, 100)))
        calm = False
        try:
            for move in self.past:
                run.make(move)
            while len(run.moves) < len(self.past) + most:
                possible = [move for move in run.possible() if move[0] not in delays.spared]
                if not possible:
                    break
                move = delays.choose(possible)
                step = run.make(move)
                self.transitions += 1
                if move[0] in FAULTS:
                    properties.model.faults += 1
                home = move[2] if move[0] in ("deliver", "lose") else move[1]
                assert isinstance(home, int)
                properties.look(home, step)
                if step.rows:
                    properties.at_moment(run.actors)
            calm = True
            run.calm()
            properties.at_calm(run.actors)
        except PropertyViolation as violation:
            self.found = Found(violation.property, violation.problem, tuple(run.moves), calm)
        self.depth = max(self.depth, len(run.moves))
