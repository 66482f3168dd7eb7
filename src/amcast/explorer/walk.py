"""Random walks through a scope that is too large to see every state of it."""

import time
from collections.abc import Callable
from random import Random

from amcast.errors import PropertyViolation
from amcast.explorer.model import Move
from amcast.explorer.properties import Properties
from amcast.explorer.search import Found, Limits, key_of

CHANGE = 0.1  # how likely a channel becomes slow at a move


class Walks:
    """Random walks. The properties are judged in each state; `at_end` looks at the moves, too."""

    def __init__(self, properties: Properties, at_end: Callable[[tuple[Move, ...]], None], seed: int) -> None:
        self.model = properties.model
        self.properties = properties
        self.at_end = at_end  # raises PropertyViolation
        self.random = Random(seed)
        self.seen: set[bytes] = set()
        self.rank: dict[int, float] = {}
        self.walks = self.transitions = self.rests = self.depth = 0
        self.found: Found | None = None

    @property
    def states(self) -> int:
        return len(self.seen)

    def run(self, walks: int, limits: Limits | None = None, progress: Callable[["Walks"], None] | None = None) -> None:
        limits = limits or Limits()
        deadline = time.monotonic() + limits.seconds if limits.seconds is not None else None
        while self.walks < walks and self.found is None:
            self.walk(limits.depth)
            self.walks += 1
            if progress is not None:
                progress(self)
            if deadline is not None and time.monotonic() > deadline:
                return
            if limits.states is not None and self.states >= limits.states:
                return

    def walk(self, most: int | None) -> None:
        """Walk from the start until nothing is possible, or for so many moves."""
        model = self.model
        state, grew = model.initial, True
        self.rank = {}
        moves: list[int] = []
        past = model.past
        calm = False
        try:
            while True:
                key = key_of(state)
                enabled = model.enabled(state)
                if key not in self.seen:
                    self.seen.add(key)
                    if grew:
                        self.properties.at_state(state)
                    if model.rests(state, enabled):
                        self.rests += 1
                        calm = True
                        self.properties.at_rest(state)
                        calm = False
                if not enabled or (most is not None and len(past) + len(moves) >= most):
                    self.at_end((*past, *[model.moves[move] for move in moves]))
                    return
                moves.append(self.choose(enabled))
                self.transitions += 1
                self.depth = max(self.depth, len(past) + len(moves))
                state, grew = model.after(state, moves[-1])
        except PropertyViolation as violation:
            made = (*past, *[model.moves[move] for move in moves])
            self.found = Found(violation.property, violation.problem, made, calm)

    def choose(self, enabled: int) -> int:
        """Choose any move in one walk; in the next the first in an order that seldom changes.

        So some channels stay slow for long, which a free choice among all moves hardly ever makes them.
        """
        moves = []
        while enabled:
            bit = enabled & -enabled
            moves.append(bit.bit_length() - 1)
            enabled ^= bit
        if self.walks % 2 == 0:
            return self.random.choice(moves)
        rank = self.rank
        for move in [move for move in moves if move not in rank]:
            rank[move] = self.random.random()
        first = min(moves, key=rank.__getitem__)
        if self.random.random() < CHANGE:
            rank[first] = 1 + self.random.random()
        return first
