"""The relation "must come before" over messages, kept as places on chains instead of edges.

Two messages with places on one chain are ordered like their places. A message may also hang on a chain without being
part of it: it comes after all that is there up to some place (`after`). This is how a gap is kept, and for causal order
what the sender had delivered before the multicast. So the whole relation takes one number per delivery.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from amcast.verify.arrays import Bools, Ints, Lists, ints, one_array, stretches
from amcast.verify.participants import NONE, Chains

FAR: Final = np.iinfo(np.int64).max

Key = TypeVar("Key", int, str)  # of a message


@dataclass(frozen=True)
class Line:
    """All chains, one after the other: those of deliveries and, for causal order, those of multicasts."""

    base: Ints  # where each chain begins, ascending
    run: Ints  # of each chain
    deliveries: Chains
    multicasts: Chains | None

    def chain_at(self, place: Ints) -> Ints:
        return np.asarray(np.searchsorted(self.base, place, side="right") - 1)


def line_of(run: Ints, deliveries: Chains, multicasts: Chains | None = None) -> Line:
    """Put the chains on one line. With `multicasts` the relation is that of causal order."""
    if multicasts is None:
        return Line(deliveries.base, run, deliveries, None)
    after = multicasts.shifted(deliveries.end)
    return Line(np.concatenate([deliveries.base, after.base]), np.concatenate([run, run]), deliveries, after)


@dataclass(frozen=True)
class Relation:
    """Messages 0 … count - 1: their names, their places, and what they come after."""

    names: pa.Array
    run: Ints
    places: Lists
    after: Lists

    def __len__(self) -> int:
        return self.places.count

    def only(self, chosen: Bools) -> "Relation":
        number = np.cumsum(chosen) - 1
        parts = [
            Lists(int(chosen.sum()), number[lists.owner[kept]], lists.values[kept])
            for lists in (self.places, self.after)
            for kept in (chosen[lists.owner],)
        ]
        return Relation(self.names.filter(pa.array(chosen)), self.run[chosen], parts[0], parts[1])


def relation_of(batch: pa.RecordBatch | pa.Table, line: Line) -> Relation:
    """Read the relation from rows of the table of messages."""
    places, tails = Lists.of(one_array(batch.column("places"))), Lists.of(one_array(batch.column("tails")))
    names, run = one_array(batch.column("message")), ints(batch.column("run"))
    if line.multicasts is None:
        return Relation(names, run, places, tails)
    sender, sent = ints(batch.column("sender")), ints(batch.column("sent"))
    known = np.flatnonzero(sender != NONE)
    own = line.multicasts.place(sender[known], sent[known])
    seen = line.deliveries.last_place_before(sender[known], sent[known])
    return Relation(names, run, _joined(places, known, own), _joined(tails, known, seen))


def _joined(lists: Lists, owner: Ints, values: Ints) -> Lists:
    """Add one value at the end of the list of each of these owners, which are ascending."""
    lengths = lists.lengths()
    lengths[owner] += 1
    ends = np.cumsum(lengths)
    is_new = np.zeros(int(lengths.sum()), dtype=np.bool_)
    is_new[ends[owner] - 1] = True
    joined = np.empty(len(is_new), dtype=np.int64)
    joined[is_new], joined[~is_new] = values, lists.values
    return Lists(lists.count, np.repeat(np.arange(lists.count), lengths), joined)


def components(relation: Relation, line: Line) -> list[Ints]:
    """Return the messages of each strongly connected part with more than one message, smallest part first."""
    if not len(relation):
        return []
    order = np.argsort(relation.places.values)
    place, owner = relation.places.values[order], relation.places.owner[order]
    chain = line.chain_at(place)
    follows = np.flatnonzero(chain[1:] == chain[:-1])
    sources, targets = [owner[follows]], [owner[follows + 1]]
    if len(place) and len(relation.after.values):
        before = np.searchsorted(place, relation.after.values, side="right") - 1
        real = (before >= 0) & (chain[before] == line.chain_at(relation.after.values))
        sources.append(owner[before[real]])
        targets.append(relation.after.owner[real])
    source, target = np.concatenate(sources), np.concatenate(targets)
    graph = coo_array((np.ones(len(source), dtype=np.int32), (source, target)), shape=(len(relation), len(relation)))
    _, label = connected_components(graph.tocsr(), directed=True, connection="strong")
    sizes = np.bincount(label, minlength=1)
    large = np.flatnonzero(sizes > 1)
    in_large = np.flatnonzero(sizes[label] > 1)
    by_label = in_large[np.argsort(label[in_large], kind="stable")]
    parts = np.split(by_label, np.searchsorted(label[by_label], large[1:])) if len(large) else []
    return sorted(parts, key=len)


@dataclass(frozen=True)
class Reached:
    """The first place that is reached on some chains, by which message, and from which chain."""

    chain: Ints
    place: Ints
    message: Ints
    via: Ints


def reached_from(relation: Relation, line: Line, lowest: Ints) -> Reached:
    """Find the new lowest place of chains: all messages beyond `lowest` on some chain are reached."""
    count = len(relation)
    via = np.full(count, NONE, dtype=np.int64)
    for lists, hanging in ((relation.after, 1), (relation.places, 0)):
        chain = line.chain_at(lists.values)
        beyond = lists.values > lowest[chain] - hanging  # what hangs at a place comes after what is there
        via[lists.owner[beyond]] = chain[beyond]
    known = via[relation.places.owner] != NONE
    place, message = relation.places.values[known], relation.places.owner[known]
    chain = line.chain_at(place)
    new = place < lowest[chain]
    place, message, chain = place[new], message[new], chain[new]
    order = np.argsort(place)
    chain = chain[order]
    first = stretches(chain)
    chosen = order[first]
    return Reached(chain[first], place[chosen], message[chosen], via[message[chosen]])


def cycle_through(relation: Relation, line: Line, source: int) -> list[int]:
    """Return the messages of a shortest cycle through the source; empty if there is none."""

    def reach(lowest: Ints) -> Iterable[tuple[int, int, int, int]]:
        found = reached_from(relation, line, lowest)
        return zip(*(column.tolist() for column in (found.chain, found.place, found.message, found.via)), strict=True)

    chosen = np.arange(len(relation)) == source
    found = shortest_cycles(relation.only(chosen), line, reach)
    return [source, *found[0]] if found else []


def shortest_cycles(
    sources: Relation, line: Line, reach: Callable[[Ints], Iterable[tuple[int, int, Key, int]]]
) -> dict[int, list[Key]]:
    """Search level by level for a shortest cycle through each source, at most one per run. Return the other messages.

    `reach` is asked what can be reached beyond the lowest places so far: chain, place, message and the chain before.
    """
    lowest = np.full(len(line.base), FAR, dtype=np.int64)
    lowest[line.chain_at(sources.places.values)] = sources.places.values
    history: list[dict[int, tuple[Key, int]]] = [{}]  # chain -> the lowest message on it, and the chain that led to it
    cycles: dict[int, list[Key]] = {}
    while len(cycles) < len(sources):
        who = dict(history[-1])
        reached = sorted(reach(lowest), key=lambda row: -row[1])
        if not reached:
            break
        for chain, place, message, via in reached:
            lowest[chain], who[chain] = place, (message, via)
        history.append(who)
        for source in range(len(sources)):
            chains, limits = _goals(sources, line, source)
            met = [int(chain) for chain in chains[lowest[chains] < limits] if int(chain) in who]
            if met and source not in cycles:
                cycles[source] = _followed_back(history, met[0])
                lowest[line.run == sources.run[source]] = FAR
    return cycles


def _goals(sources: Relation, line: Line, source: int) -> tuple[Ints, Ints]:
    """Return the chains on which the source can be met again, and the bounds for the lowest place there."""
    mine = sources.places.values[sources.places.owner == source]
    hanging = sources.after.values[sources.after.owner == source]
    return line.chain_at(np.concatenate([mine, hanging])), np.concatenate([mine, hanging + 1])


def _followed_back(history: list[dict[int, tuple[Key, int]]], chain: int) -> list[Key]:
    """Go back from the chain on which the source was met again. Return the messages in the order of the cycle."""
    cycle: list[Key] = []
    for who in reversed(history):
        if chain not in who:
            break
        message, chain = who[chain]
        cycle.append(message)
    return cycle[::-1]
