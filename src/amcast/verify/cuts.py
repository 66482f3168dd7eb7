"""Consistent cuts: divides a relation over messages into blocks that no cycle crosses, without looking at any clock.

Every message has a level, and levels never fall along a chain. On a cycle all levels are therefore equal, and each
level can be searched for cycles by itself. Levels begin as steps on the longest chain of each run; all others begin at
zero. A message has at least the level of whatever comes before it, so levels are raised until nothing changes. Each
round reads the table of messages once, and all tasks know the steps (some numbers per chain and level).

If a step on its own chain has moved forward, the message there comes after one that comes after it: it is on a cycle.
Blocks that are still too large are divided once more along another chain.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from amcast.verify.arrays import Ints, ints, stretches
from amcast.verify.graph import Line, Relation, relation_of
from amcast.verify.pieces import Batches, Pieces

PLACES_PER_BLOCK: Final = 400_000
MOST_DIVISIONS: Final = 5
_STEP, _STRETCH = 0, 1


@dataclass(frozen=True)
class Steps:
    """Levels along chains: each holds from its place to the next one. Every chain begins with a step."""

    place: Ints
    level: Ints

    def level_at(self, place: Ints) -> Ints:
        return np.asarray(self.level[np.searchsorted(self.place, place, side="right") - 1])

    def raised(self, line: Line, place: Ints, level: Ints) -> "Steps":
        """Return the steps with these places at these levels or higher."""
        places, levels = np.concatenate([self.place, place]), np.concatenate([self.level, level])
        order = np.lexsort((levels, places))
        places, levels = places[order], levels[order]
        # The highest level so far on the same chain: chains are told apart by adding more than any level.
        apart = line.chain_at(places) * (int(levels.max()) + 1)
        highest = np.maximum.accumulate(levels + apart) - apart
        last_there = np.concatenate([places[1:] != places[:-1], [True]])
        places, highest, apart = places[last_there], highest[last_there], apart[last_there]
        is_step = np.concatenate([[True], (highest[1:] != highest[:-1]) | (apart[1:] != apart[:-1])])
        return Steps(places[is_step], highest[is_step])


@dataclass(frozen=True)
class Stretches:
    """The parts of chains in one block: how many places, from where to where."""

    chain: Ints
    level: Ints
    low: Ints
    high: Ints
    places: Ints


@dataclass(frozen=True)
class Cuts:
    steps: Steps
    on_cycles: Ints  # places of messages that are surely on a cycle, at most one for each run


def no_steps(line: Line) -> Steps:
    return Steps(line.base, np.zeros(len(line.base), dtype=np.int64))


def find_cuts(messages: Pieces, line: Line, per_block: int, start: Steps | None = None) -> Cuts:
    """Cut into blocks of about `per_block` places that no cycle crosses. `start` are levels to begin with."""
    steps, stretches = (no_steps(line), _whole_chains(line)) if start is None else settled(messages, line, start)
    on_cycles: dict[int, int] = {}
    largest: int | None = None
    for _ in range(MOST_DIVISIONS):
        before, largest = largest, int(_block_of(line, stretches)[1].max(initial=0))
        if before is not None and largest >= before:
            break
        divided = _divided(line, steps, stretches, per_block, set(on_cycles))
        if divided is None:
            break
        raised, new = divided
        steps, stretches = settled(messages, line, raised)
        on_cycles.update(_moved(line, steps, new))
    return Cuts(steps, np.array(sorted(on_cycles.values()), dtype=np.int64))


def _whole_chains(line: Line) -> Stretches:
    chains = line.deliveries
    used = np.flatnonzero(chains.counts)
    low = chains.base[used] + 1
    return Stretches(used, np.zeros(len(used), dtype=np.int64), low, chains.tail[used] - 1, chains.counts[used])


def _block_of(line: Line, stretches: Stretches) -> tuple[Ints, Ints]:
    """Return the number of the block of each stretch, and the number of places in each block."""
    pairs = np.stack([line.run[stretches.chain], stretches.level])
    blocks, block = np.unique(pairs, axis=1, return_inverse=True)
    block = block.reshape(-1)
    return block, np.bincount(block, weights=stretches.places, minlength=blocks.shape[1]).astype(np.int64)


def _divided(
    line: Line, steps: Steps, stretches: Stretches, per_block: int, finished: set[int]
) -> tuple[Steps, Steps] | None:
    """Add levels in blocks that are too large, along their longest stretch. Also return only the new steps."""
    block, sizes = _block_of(line, stretches)
    longest_first = np.argsort(-stretches.places, kind="stable")
    _, index = np.unique(block[longest_first], return_index=True)
    chosen = longest_first[index]  # one stretch for each block
    pieces = np.minimum(-(-sizes[block[chosen]] // per_block), stretches.high[chosen] - stretches.low[chosen] + 1)
    pieces[np.isin(line.run[stretches.chain[chosen]], list(finished))] = 1
    if not len(pieces) or pieces.max() < 2:
        return None
    stride = int(pieces.max())
    chosen, pieces = chosen[pieces > 1], pieces[pieces > 1]
    stretch = np.repeat(chosen, pieces - 1)
    piece = 1 + np.arange(len(stretch)) - np.repeat(np.cumsum(pieces - 1) - (pieces - 1), pieces - 1)
    width = stretches.high[stretch] - stretches.low[stretch] + 1
    part = np.repeat(pieces, pieces - 1)
    place = stretches.low[stretch] + width // part * piece + width % part * piece // part
    new = Steps(place, stretches.level[stretch] * stride + piece)
    return Steps(steps.place, steps.level * stride).raised(line, new.place, new.level), new


def _moved(line: Line, steps: Steps, new: Steps) -> dict[int, int]:
    """Return for each run with a step that moved forward on its own chain the place where its level begins now."""
    moved = np.flatnonzero(steps.level_at(new.place - 1) >= new.level)
    found: dict[int, int] = {}
    for step in moved:
        chain = int(line.chain_at(new.place[step : step + 1])[0])
        run = int(line.run[chain])
        if run not in found:
            here = (line.chain_at(steps.place) == chain) & (steps.level >= new.level[step])
            found[run] = int(steps.place[here].min())
    return found


def settled(messages: Pieces, line: Line, steps: Steps) -> tuple[Steps, Stretches]:
    """Raise levels until they never fall along any chain."""
    while True:
        found = messages.each(partial(_round, line, steps)).collect()
        if found is None:
            return steps, Stretches(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
        what, chain, level, low, high, places = (ints(column) for column in found.columns)
        raised = what == _STEP
        if not raised.any():
            return steps, _merged(Stretches(chain, level, low, high, places))
        steps = steps.raised(line, low[raised], level[raised])


def _merged(parts: Stretches) -> Stretches:
    order = np.lexsort((parts.level, parts.chain))
    chain, level = parts.chain[order], parts.level[order]
    starts = stretches(chain, level)
    if not len(starts):
        return parts
    low, high = np.minimum.reduceat(parts.low[order], starts), np.maximum.reduceat(parts.high[order], starts)
    return Stretches(chain[starts], level[starts], low, high, np.add.reduceat(parts.places[order], starts))


def _round(line: Line, steps: Steps, batches: Batches) -> Batches:
    here = steps
    relations = [relation_of(piece, line) for piece in batches if piece.num_rows]
    for _ in range(2):  # what one batch raises may raise another of the same task
        for relation in relations:
            here = _raised_by(relation, line, here)
    new = ~(np.isin(here.place, steps.place) & (steps.level_at(here.place) == here.level))
    if new.any():
        yield _rows(_STEP, _single_places(line, here.place[new], here.level[new]))
        return
    for relation in relations:
        place = relation.places.values
        yield _rows(_STRETCH, _merged(_single_places(line, place, steps.level_at(place))))


def _single_places(line: Line, place: Ints, level: Ints) -> Stretches:
    return Stretches(line.chain_at(place), level, place, place, np.ones(len(place), dtype=np.int64))


def _raised_by(relation: Relation, line: Line, steps: Steps) -> Steps:
    while True:
        level = steps.level_at(relation.places.values)
        highest = levels_of(relation, steps, level)
        low = level < highest[relation.places.owner]
        if not low.any():
            return steps
        owner = relation.places.owner[low]
        steps = steps.raised(line, relation.places.values[low], highest[owner])


def levels_of(relation: Relation, steps: Steps, of_places: Ints | None = None) -> Ints:
    """Return the level of each message: the highest of anything before it."""
    here = steps.level_at(relation.places.values) if of_places is None else of_places
    after = steps.level_at(relation.after.values)
    return np.maximum(relation.places.highest(here, 0), relation.after.highest(after, 0))


def _rows(what: int, parts: Stretches) -> pa.RecordBatch:
    return pa.record_batch({"what": np.full(len(parts.chain), what), **vars(parts)})
