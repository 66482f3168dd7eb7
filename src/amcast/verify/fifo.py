"""FIFO on Spark: the messages of one sender have increasing places at each process that they are addressed to.

A message that a process never delivers has its place at the tail, so once one is missing all later ones must be. It is
enough to compare neighbours. Messages are put in the order of their multicasts over the whole cluster. A sender whose
messages are in several partitions is put together from the first and last of each.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amcast.verify.arrays import Bools, Ints, Lists, ends_of, ints, one_array, places_in_stretches, stretches
from amcast.verify.participants import NONE, Chains
from amcast.verify.pieces import Batches, Pieces, whole

DELIVERIES: Final = ("places", "strays", "tails")
GUESSES: Final = ("guesses", "guess_strays", "guess_tails")


def overtaken(
    messages: Pieces, senders: Chains, chains: Chains, partitions: int, guesses: bool = False
) -> dict[int, list[str]]:
    """Return for each run two messages of one sender, if a process delivered the later without the earlier one.

    `senders` are the chains of multicasts. `chains` are those of deliveries or, if asked for, of `guesses`.
    """
    borders = _borders(senders, partitions)

    def bucket_of(piece: pa.RecordBatch) -> Ints:
        sender = ints(piece.column("sender"))
        place = senders.place(sender, ints(piece.column("sent")))
        return np.where(sender == NONE, 0, np.searchsorted(borders, place, side="right"))

    def compare(batches: Batches) -> Batches:
        table = whole(batches)
        if table is not None:
            yield _compared(table, senders, chains, guesses)

    needed = ("run", "message", "sender", "sent", *(GUESSES if guesses else DELIVERIES))
    rows = messages.each(lambda batches: (piece.select(needed) for piece in batches))
    collected = rows.spread(partitions, bucket_of).each(compare).collect()
    lines = [] if collected is None else collected.to_pylist()
    broken = [line for line in lines if line["broken"]]
    broken += _between_partitions([line for line in lines if not line["broken"]])
    found: dict[int, list[str]] = {}
    for line in sorted(broken, key=lambda line: (line["first"], line["last"])):
        found.setdefault(line["run"], [line["first"], line["last"]])
    return found


def _borders(senders: Chains, partitions: int) -> Ints:
    """Return places that divide all multicasts into about equal parts, if each sender's `seq` are evenly spread."""
    total = np.cumsum(senders.counts)
    wanted = np.arange(1, partitions) * (int(total[-1]) if len(total) else 0) // partitions
    sender = np.minimum(np.searchsorted(total, wanted, side="right"), len(total) - 1)
    counts = np.maximum(senders.counts[sender], 1)
    into = (wanted - (total[sender] - senders.counts[sender])) / counts
    width = (senders.tail[sender] - senders.base[sender]).astype(np.float64)
    return np.asarray(senders.base[sender] + (into * width).astype(np.int64))


def _between_partitions(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is broken between the last message of a sender in one partition and its first in the next."""
    found = []
    before: dict[tuple[int, int], dict[str, Any]] = {}
    for line in sorted(lines, key=lambda line: int(line["turn"])):
        key = (line["sender"], line["process"])
        if key in before and before[key]["last_place"] > line["first_place"]:
            found.append({"run": line["run"], "first": before[key]["last"], "last": line["first"]})
        before[key] = line
    return found


def _compared(table: pa.Table, senders: Chains, chains: Chains, guesses: bool) -> pa.RecordBatch:
    sender, sent = ints(table["sender"]), ints(table["sent"])
    known = np.flatnonzero(sender != NONE)
    turn = senders.place(sender[known], sent[known])
    by_turn = known[np.argsort(turn)]  # sender after sender, each in the order of its multicasts
    rank = np.zeros(len(sender), dtype=np.int64)
    rank[by_turn] = np.arange(len(by_turn))
    owner, place = _due(table, guesses)
    if len(known) < len(sender):
        is_known = sender[owner] != NONE
        owner, place = owner[is_known], place[is_known]
    # Along each process the messages of each sender in their order; their places must be in the same one.
    process = chains.process_at(place)
    key = process * len(sender) + rank[owner]
    order = np.argsort(key)
    owner, place, process = owner[order], place[order], process[order]
    starts = stretches(process, sender[owner])
    ends = ends_of(starts, len(owner)) - 1
    same = np.ones(len(owner), dtype=np.bool_)
    same[starts] = False
    broken = 1 + np.flatnonzero(same[1:] & (place[:-1] > place[1:]))
    run, names = ints(table["run"]), one_array(table["message"])
    broken = _least(broken, run[owner[broken]], *(names.take(pa.array(owner[broken - at])) for at in (1, 0)))
    at_border = _at_border(sender[owner[starts]], sender[by_turn])
    first, last = np.concatenate([broken - 1, starts[at_border]]), np.concatenate([broken, ends[at_border]])
    return pa.record_batch(
        {
            "turn": senders.place(sender[owner[first]], sent[owner[first]]),
            "run": run[owner[first]],
            "sender": sender[owner[first]],
            "process": process[first],
            "first": names.take(pa.array(owner[first])),
            "first_place": place[first],
            "last": names.take(pa.array(owner[last])),
            "last_place": place[last],
            "broken": np.arange(len(first)) < len(broken),
        }
    )


def _least(broken: Ints, run: Ints, first: pa.Array, last: pa.Array) -> Ints:
    """Return for each run the pair with the least names, so that the choice does not depend on partitions."""
    pairs = pa.table({"run": run, "first": first, "last": last})
    order = ints(pc.sort_indices(pairs, sort_keys=[(name, "ascending") for name in pairs.column_names]))
    return np.asarray(broken[order[stretches(run[order])]])


def _due(table: pa.Table, guesses: bool) -> tuple[Ints, Ints]:
    """Return the places of messages at the processes that they are addressed to, tails included."""
    places, strays, tails = (one_array(table[name]) for name in (GUESSES if guesses else DELIVERIES))
    here, waiting = Lists.of(places), Lists.of(tails)
    lengths = here.lengths()
    addressed = places_in_stretches(lengths) < (lengths - ints(strays))[here.owner]
    return (
        np.concatenate([here.owner[addressed], waiting.owner]),
        np.concatenate([here.values[addressed], waiting.values]),
    )


def _at_border(senders: Ints, in_order: Ints) -> Bools:
    """Return who may be in another partition as well: only the first and the last of all its senders."""
    if not len(in_order):
        return np.zeros(len(senders), dtype=np.bool_)
    return np.asarray((senders == in_order[0]) | (senders == in_order[-1]))
