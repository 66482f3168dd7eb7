"""Checks that no two events of a process have one `seq`, and whether the timestamps of its deliveries increase.

Files nearly always hold the rows of a process in the order of `seq`. So the summaries of tables are put side by side:
where they overlap, the `seq` that they use are compared. Only processes that remain doubtful are looked at
again, event by event: a multicast that is repeated counts once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amcast.errors import TraceError
from amcast.verify.arrays import Bools, Ints, ends_of, ints, one_array, stretches
from amcast.verify.gather import MARKS, NEVER, SEQUENCED
from amcast.verify.messages import events_at
from amcast.verify.participants import Participants, Timestamps
from amcast.verify.pieces import Batches, Pieces, whole


def judge_histories(facts: pa.Table, participants: Participants) -> tuple[Timestamps, Bools]:
    """Judge the timestamps of each process. Also return the processes of which two events may have one `seq`."""
    segments = facts.filter(pc.is_in(facts["kind"], pa.array(SEQUENCED))).combine_chunks()
    process = _process_numbers(segments, participants)
    kind = ints(pc.index_in(segments["kind"], pa.array(SEQUENCED)))
    first, last = ints(segments["first"]), ints(segments["last"])
    order = np.lexsort((last, first, kind, process))
    same = (process[order[1:]] == process[order[:-1]]) & (kind[order[1:]] == kind[order[:-1]])
    overlap = same & (last[order[:-1]] >= first[order[1:]])
    unordered = np.zeros(len(participants.processes), dtype=np.bool_)
    unordered[process[order[1:][overlap]]] = True
    unordered[process[~_bools(segments, "increasing")]] = True
    doubtful = np.zeros(len(participants.processes), dtype=np.bool_)
    doubtful[process[~_bools(segments, "distinct")]] = True
    doubtful |= _meeting(segments, process, first, last, len(participants.processes))
    return _timestamps(segments.take(pa.array(order)), process[order], kind[order], unordered), doubtful


def _bools(table: pa.Table, name: str) -> Bools:
    return np.asarray(one_array(table[name]).to_numpy(zero_copy_only=False))


def _process_numbers(segments: pa.Table, participants: Participants) -> Ints:
    numbers = participants.processes.numbers
    pairs = zip(segments["run"].to_pylist(), segments["process"].to_pylist(), strict=True)
    return np.array([numbers[pair] for pair in pairs], dtype=np.int64)


def _meeting(segments: pa.Table, process: Ints, first: Ints, last: Ints, count: int) -> Bools:
    """Return the processes of which two summaries use one `seq`, or may use one because they do not tell."""
    order = np.lexsort((last, first, process))
    process, first, last = process[order], first[order], last[order]
    bits, seqs = one_array(segments["bits"]), one_array(segments["seqs"])
    meets = np.zeros(count, dtype=np.bool_)
    starts = stretches(process)
    for start, end in zip(starts.tolist(), ends_of(starts, len(process)).tolist(), strict=True):
        if end - start == 1:
            continue
        highest = np.maximum.accumulate(last[start:end])
        apart = np.flatnonzero(highest[:-1] < first[start + 1 : end]) + start + 1
        for low, high in zip([start, *apart.tolist()], [*apart.tolist(), end], strict=True):
            if high - low > 1:
                used = [_used_by(bits[place], seqs[place], first[at]) for at, place in enumerate(order[low:high], low)]
                known = [of for of in used if of is not None]
                together = np.sort(np.concatenate(known)) if len(known) == len(used) else np.zeros(2)
                if (together[1:] == together[:-1]).any():
                    meets[process[start]] = True
                    break
    return meets


def _used_by(bits: pa.BinaryScalar, seqs: pa.ListScalar, first: int) -> Ints | None:
    """Return the `seq` of a summary; None if it does not tell them."""
    if seqs.is_valid:
        return ints(seqs.values)
    if not bits.is_valid:
        return None
    return first + np.flatnonzero(np.unpackbits(np.frombuffer(bits.as_buffer(), dtype=np.uint8)))


def _timestamps(segments: pa.Table, process: Ints, kind: Ints, unordered: Bools) -> Timestamps:
    """Judge the timestamps. `segments` are ordered by process, kind and first `seq`."""
    increase = ~unordered
    last_time = np.full(len(unordered), NEVER, dtype=np.int64)
    chosen = np.flatnonzero(kind == SEQUENCED.index("deliver"))
    segments, process = segments.take(pa.array(chosen)), process[chosen]
    increase[process[~one_array(segments["ts_increasing"]).to_numpy(zero_copy_only=False)]] = False
    ties = bool(pc.any(segments["ties"]).as_py())
    first, last = (ints(segments[name].fill_null(NEVER)) for name in ("first_time", "last_time"))
    same = process[1:] == process[:-1]
    ties |= bool((same & (last[:-1] == first[1:])).any())
    tie_rises = pc.less(one_array(segments["last_tie"])[:-1], one_array(segments["first_tie"])[1:]).fill_null(False)
    rises = (last[:-1] < first[1:]) | ((last[:-1] == first[1:]) & tie_rises.to_numpy(zero_copy_only=False))
    increase[process[1:][same & ~rises]] = False
    np.maximum.at(last_time, process, last)
    return Timestamps(increase, last_time, ties)


def refuse_equal_seqs(
    messages: Pieces, facts: pa.Table, participants: Participants, doubtful: Bools, partitions: int
) -> None:
    """Raise TraceError if two events of one of these processes have one `seq`."""
    marks = facts.filter(pc.is_in(facts["kind"], pa.array(MARKS))).combine_chunks()
    process = _process_numbers(marks, participants)
    chosen = doubtful[process]
    marks = pa.record_batch({"process": process[chosen], "seq": ints(marks["first"])[chosen]})

    def bucket_of(piece: pa.RecordBatch) -> Ints:
        return np.asarray((ints(piece.column("process")) + ints(piece.column("seq"))) % partitions)

    def repeated(batches: Batches) -> Batches:
        table = whole(iter([*batches, marks]))  # the few marks are in every bucket, where most meet nothing
        if table is not None:
            counts = table.group_by(["process", "seq"]).aggregate([([], "count_all")])
            yield from counts.filter(pc.greater(counts["count_all"], 1)).to_batches()

    events = messages.each(lambda batches: events_at(batches, participants, doubtful))
    found = events.spread(partitions, bucket_of).each(repeated).collect()
    if found is None:
        return
    number, seq = min(zip(found["process"].to_pylist(), found["seq"].to_pylist(), strict=True))
    processes = participants.processes
    raise TraceError(
        f"run {participants.runs[processes.run[number]]!r}: process {processes.names[number]!r} has two events with "
        f"seq {seq}; expected seq to increase strictly at each process; number its events again"
    )
