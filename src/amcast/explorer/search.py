"""Searches every state of a scope breadth first, so that the first violation found is a shortest one.

Most moves at different processes commute: `Model.clashes` says which do not. Sleep sets (Godefroid) leave out the
orders of commuting moves that lead to states which are reached anyway. States that were seen before are known by their
digest and not entered again.
"""

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from amcast.errors import PropertyViolation
from amcast.explorer.model import Move, State
from amcast.explorer.properties import Properties


@dataclass
class Limits:
    states: int | None = None
    depth: int | None = None
    seconds: float | None = None


@dataclass
class Found:
    """A violation and the moves that lead to it. `calm`: after them nothing else goes wrong."""

    property: str
    problem: str
    moves: tuple[Move, ...]
    calm: bool = False


class Search:
    """A search through all states of the model of these properties, which are judged in each."""

    def __init__(self, properties: Properties, sleeping: bool = True) -> None:
        self.model = properties.model
        self.properties = properties
        self.sleeping = sleeping
        self.index: dict[bytes, int] = {}
        self.before = array("q")
        self.by = array("i")
        self.depths = array("i")
        self.sleep: list[int] = []
        self.entered = bytearray()  # of a state: whether another was first reached from it
        self.transitions = self.rests = self.depth = 0
        self.complete = False
        self.found: Found | None = None

    @property
    def states(self) -> int:
        return len(self.before)

    def moves_to(self, index: int) -> tuple[Move, ...]:
        moves = []
        while self.before[index] >= 0:
            moves.append(self.model.moves[self.by[index]])
            index = self.before[index]
        return (*self.model.past, *reversed(moves))

    def add(self, key: bytes, before: int, move: int, sleep: int) -> int:
        index = self.index[key] = len(self.before)
        self.before.append(before)
        self.by.append(move)
        self.depths.append(self.depths[before] + 1 if before >= 0 else len(self.model.past))
        self.sleep.append(sleep)
        self.entered.append(0)
        return index

    def run(self, limits: Limits | None = None, progress: Callable[["Search"], None] | None = None) -> None:
        """Go on until every state was seen, a limit is reached or a property is violated."""
        limits = limits or Limits()
        model = self.model
        deadline = time.monotonic() + limits.seconds if limits.seconds is not None else None
        start = model.initial
        self.add(key_of(start), -1, -1, 0)
        enabled = model.enabled(start)
        self.look(start, 0, enabled, True)
        queue: deque[tuple[State, int, int, int]] = deque([(start, 0, enabled, 0)])
        rounds = 0
        cut = False
        while queue and self.found is None:
            state, index, todo, sleep = queue.popleft()
            rounds += 1
            if rounds % 1024 == 0:
                if progress is not None:
                    progress(self)
                if deadline is not None and time.monotonic() > deadline:
                    return
            if limits.states is not None and self.states >= limits.states:
                return
            if limits.depth is not None and self.depths[index] >= limits.depth:
                cut = cut or bool(todo)
                continue
            self.depth = max(self.depth, self.depths[index] + bool(todo))
            self.expand(state, index, todo, sleep, queue)
        self.complete = self.found is None and not cut

    def expand(
        self, state: State, index: int, todo: int, sleep: int, queue: deque[tuple[State, int, int, int]]
    ) -> None:
        model = self.model
        while todo:
            bit = todo & -todo
            todo ^= bit
            move = bit.bit_length() - 1
            self.transitions += 1
            try:
                new, grew = model.after(state, move)
            except PropertyViolation as violation:
                self.found = Found(violation.property, violation.problem, (*self.moves_to(index), model.moves[move]))
                return
            new_sleep = sleep & ~model.clashes(state, move, new) if self.sleeping else 0
            sleep |= bit
            key = key_of(new)
            known = self.index.get(key)
            if known is None:
                self.entered[index] = 1
                known = self.add(key, index, move, new_sleep)
                enabled = model.enabled(new)
                self.look(new, known, enabled, grew)
                if self.found is not None:
                    return
                if enabled & ~new_sleep:
                    queue.append((new, known, enabled & ~new_sleep, new_sleep))
            else:
                again = self.sleep[known] & ~new_sleep
                if again:
                    self.sleep[known] &= new_sleep
                    again &= model.enabled(new)
                    if again:
                        queue.append((new, known, again, self.sleep[known]))

    def look(self, state: State, index: int, enabled: int, grew: bool) -> None:
        calm = False
        try:
            if grew:
                self.properties.at_state(state)
            if self.model.rests(state, enabled):
                self.rests += 1
                calm = True
                self.properties.at_rest(state)
        except PropertyViolation as violation:
            self.found = Found(violation.property, violation.problem, self.moves_to(index), calm)

    def ends(self) -> list[int]:
        """Return the states from which no other was first reached. The schedules to them pass through all states."""
        return [index for index in range(self.states) if not self.entered[index]]


def key_of(state: State) -> bytes:
    return blake2b(array("I", state).tobytes(), digest_size=16).digest()
