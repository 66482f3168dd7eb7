"""How often the guessed order was wrong, on Spark.

A delivery is right exactly if the process delivered before it everything that it had guessed before it. In places: the
highest place of delivery among the guesses before it is lower than its own. A guess that was never delivered has the
highest place of all.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from amcast.verify.arrays import Ints, Lists, ends_of, ints, stretches
from amcast.verify.participants import Participants
from amcast.verify.pieces import Batches, Pieces, whole

_NEVER: Final = 2**63 - 1


def mistakes(messages: Pieces, participants: Participants, partitions: int) -> dict[int, dict[str, int | float]]:
    """Return the figure of each run that has optimistic deliveries."""
    delivered, guessed = participants.chains["deliver"], participants.chains["optdeliver"]

    def pairs(batches: Batches) -> Batches:
        for piece in batches:
            final, guess = Lists.of(piece.column("places")), Lists.of(piece.column("guesses"))
            yield _pairs(
                final, delivered.process_at(final.values), guess, guessed.process_at(guess.values), guessed.counts
            )

    def count(batches: Batches) -> Batches:
        table = whole(batches)
        if table is not None:
            yield _counted(*(ints(table[name]) for name in ("process", "guessed", "delivered")))

    together = messages.each(pairs).spread(partitions, lambda pair: ints(pair.column("process")) % partitions)
    sums = together.each(count).collect()
    run_of = participants.processes.run
    figures: dict[int, dict[str, int | float]] = {
        int(run): {"mistakes": 0, "delivered": 0} for run in np.unique(run_of[guessed.counts > 0])
    }
    for line in () if sums is None else sums.to_pylist():
        figure = figures[int(run_of[line["process"]])]
        figure["delivered"] += line["delivered"]
        figure["mistakes"] += line["delivered"] - line["right"]
    for figure in figures.values():
        if figure["delivered"]:  # of nothing there is no share
            figure["share"] = figure["mistakes"] / figure["delivered"]
    return figures


def _pairs(final: Lists, final_process: Ints, guess: Lists, guess_process: Ints, guesses_of: Ints) -> pa.RecordBatch:
    """Return where each process that delivers optimistically guessed and where it delivered each message."""
    count = len(guesses_of)
    of_guesser = guesses_of[final_process] > 0
    final_key = final.owner[of_guesser] * count + final_process[of_guesser]
    guess_key = guess.owner * count + guess_process
    keys = np.union1d(final_key, guess_key)
    guessed, delivered = (np.full(len(keys), _NEVER, dtype=np.int64) for _ in range(2))
    guessed[np.searchsorted(keys, guess_key)] = guess.values
    delivered[np.searchsorted(keys, final_key)] = final.values[of_guesser]
    return pa.record_batch({"process": keys % count, "guessed": guessed, "delivered": delivered})


def _counted(process: Ints, guessed: Ints, delivered: Ints) -> pa.RecordBatch:
    order = np.lexsort((guessed, process))
    process, guessed, delivered = process[order], guessed[order], delivered[order]
    starts = stretches(process)
    ends = ends_of(starts, len(process))
    right = np.zeros(len(process), dtype=np.bool_)
    for start, end in zip(starts, ends, strict=True):
        # Deliveries without a guess are at the end, where they are in nobody's way.
        before = np.concatenate([[-1], np.maximum.accumulate(delivered[start : end - 1])])
        right[start:end] = before < delivered[start:end]
    right &= (guessed != _NEVER) & (delivered != _NEVER)
    counts = {"delivered": delivered != _NEVER, "right": right}
    sums = {name: np.add.reduceat(holds.astype(np.int64), starts) for name, holds in counts.items()}
    return pa.record_batch({"process": process[starts], **sums})
