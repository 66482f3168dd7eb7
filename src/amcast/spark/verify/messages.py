"""The table of messages: all that happened to one message in one row. Most properties are read off it.

    run        number of the run
    message    name
    sender     number of the process, or NONE: never multicast
    sent       seq of the (first) multicast
    dest       numbers of the destination groups
    places     where it was delivered first, as places on the line of `Chains`: first by processes that it is addressed
               to, then by `strays` others
    tails      the tails of the processes that it is addressed to, that delivered something, but never this message
    guesses, guess_strays, guess_tails   the same for optimistic deliveries
    marks      what is wrong with the message by itself, a sum of the constants below
    COMPARED   for each of these properties, at how many processes it was looked for

A bucket is worked on as a whole, with numpy: its rows are put in groups by message, and `dest` gives the deliveries
that are to be expected. The table is kept in blocks (`blocks`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from amcast.spark.verify.arrays import Bools, Ints, Lists, ints, is_in, one_array, places_in_stretches, stretches
from amcast.spark.verify.blocks import SCHEMA, Batches, pack, unpack, whole
from amcast.spark.verify.gather import DELIVER, FACTS_BUCKET, GUESS, MULTICAST, TOOK_PART
from amcast.spark.verify.histories import Timestamps
from amcast.spark.verify.participants import NONE, Chains, Participants, Processes

INTEGRITY: Final = 1  # delivered twice by a process, or never multicast
VALIDITY: Final = 2
AGREEMENT: Final = 4
NONUNIFORM: Final = 8
TERMINATION: Final = 16
STRANGER: Final = 32  # a process took part that is neither sender nor addressed
GUESSED_WRONG: Final = 64  # integrity or validity of optimistic deliveries
UNCERTIFIED: Final = 128  # its timestamps do not prove its place in the order
CONFLICT: Final = 256  # two different multicasts with one name
NOBODY_THERE: Final = 512  # addressed to a group of which no process is in the trace

# For each property that compares with what the destinations demand: at how many processes a message was looked for.
DUE: Final = ("agreement", "agreement-nonuniform", "termination")
# And at how many it was delivered, of those that it is addressed to, and in all.
COMPARED: Final = (*DUE, "fifo", "validity")
MESSAGES_PER_BLOCK: Final = 65_536
COLUMNS: Final = pa.schema(
    [
        ("run", pa.int32()), ("message", pa.string()), ("sender", pa.int32()), ("sent", pa.int64()),
        ("dest", pa.list_(pa.int32())), ("marks", pa.int32()), *((name, pa.int32()) for name in COMPARED),
        ("places", pa.list_(pa.int64())), ("strays", pa.int32()), ("tails", pa.list_(pa.int64())),
        ("guesses", pa.list_(pa.int64())), ("guess_strays", pa.int32()), ("guess_tails", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def message_table(gathered: DataFrame, buckets: int, participants: Participants, ts: Timestamps | None) -> DataFrame:
    """Return blocks of COLUMNS. With `ts`, messages whose timestamps prove nothing are marked."""

    def build(batches: Batches) -> Batches:
        table = whole(batches)
        if table is not None:
            messages = _messages(
                table, participants.processes, participants.chains["deliver"], participants.chains["optdeliver"], ts
            )
            for start in range(0, len(messages), MESSAGES_PER_BLOCK):
                yield pack([(0, messages.slice(start, MESSAGES_PER_BLOCK))])

    rows = gathered.where(gathered.bucket != FACTS_BUCKET).repartitionById(buckets, "bucket")
    return rows.mapInArrow(build, SCHEMA)


def of_runs(messages: DataFrame, runs: set[int], all_runs: int) -> DataFrame:
    """Select the messages of these runs."""
    if len(runs) == all_runs:
        return messages
    wanted = pa.array(sorted(runs), pa.int32())

    def choose(batches: Batches) -> Batches:
        for piece in unpack(batches):
            chosen = piece.filter(pc.is_in(piece.column("run"), value_set=wanted))
            if chosen.num_rows:
                yield pack([(0, chosen)])

    return messages.mapInArrow(choose, SCHEMA)


@dataclass(frozen=True)
class _Multicasts:
    sender: Ints
    sent: Ints
    dest: Lists
    conflict: Bools


@dataclass(frozen=True)
class _Deliveries:
    """The first delivery of each message at each process, ordered by message and process."""

    message: Ints
    process: Ints
    seq: Ints
    addressed: Bools
    repeated: Bools  # of each message: whether a process delivered it twice
    missing: Lists  # of each message: processes that it is addressed to and that never delivered it


def _messages(
    table: pa.Table, processes: Processes, chains: Chains, guess_chains: Chains, ts: Timestamps | None
) -> pa.RecordBatch:
    names = one_array(table["message"]).dictionary_encode()
    run, process = _numbers(table, processes)
    key = run * len(names.dictionary) + names.indices.to_numpy(zero_copy_only=False)
    keys, message = np.unique(key, return_inverse=True)
    run_of = keys // len(names.dictionary)
    code, seq = ints(table["code"]), ints(table["seq"])

    sent = code == MULTICAST
    dest = one_array(table.filter(pa.array(sent))["dest"])
    multicasts = _multicasts(dest, message[sent], process[sent], seq[sent], run_of, processes)
    delivered = code == DELIVER
    deliveries = _deliveries(message[delivered], process[delivered], seq[delivered], multicasts, processes)
    guessed = code == GUESS
    guesses = _deliveries(message[guessed], process[guessed], seq[guessed], multicasts, processes)
    marks, compared = _marks(run_of, multicasts, deliveries, guesses, processes)
    part = code == TOOK_PART
    marks[message[part][_is_stranger(message[part], process[part], multicasts, processes)]] |= STRANGER
    if ts is not None:
        of_row = table.select(["time", "tie"]).filter(pa.array(delivered))
        marks[_unproven(of_row, message[delivered], deliveries.missing, chains, ts)] |= UNCERTIFIED
    columns = [
        pa.array(run_of.astype(np.int32)),
        names.dictionary.take(pa.array(keys % len(names.dictionary))),
        pa.array(multicasts.sender.astype(np.int32)),
        pa.array(multicasts.sent),
        multicasts.dest.where(multicasts.dest.values >= 0).column(pa.int32()),
        pa.array(marks.astype(np.int32)),
        *(pa.array(pairs.astype(np.int32)) for pairs in compared),
        *_placed(deliveries, chains),
        *_placed(guesses, guess_chains),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def _numbers(table: pa.Table, processes: Processes) -> tuple[Ints, Ints]:
    """Return the numbers of run and process of each row. A process without a row of its own has no number."""
    runs, names = (one_array(table[name]).dictionary_encode() for name in ("run", "process"))
    key = ints(runs.indices) * len(names.dictionary) + ints(names.indices)
    pairs, place = np.unique(key, return_inverse=True)
    run_words, words = runs.dictionary.to_pylist(), names.dictionary.to_pylist()
    who = [(run_words[pair // len(words)], words[pair % len(words)]) for pair in pairs.tolist()]
    number_of_run = {run: int(processes.run[number]) for (run, _), number in processes.numbers.items()}
    run = np.array([number_of_run[run] for run, _ in who], dtype=np.int64)
    number = np.array([processes.numbers.get(pair, NONE) for pair in who], dtype=np.int64)
    return run[place], number[place]


def _placed(deliveries: _Deliveries, chains: Chains) -> list[pa.Array]:
    """Return places, strays and tails."""
    count = deliveries.missing.count
    order = np.lexsort((~deliveries.addressed, deliveries.message))
    places = chains.place(deliveries.process, deliveries.seq)[order]
    strays = np.bincount(deliveries.message[~deliveries.addressed], minlength=count)
    waiting = deliveries.missing.where(chains.counts[deliveries.missing.values] > 0)
    return [
        Lists(count, deliveries.message[order], places).column(pa.int64()),
        pa.array(strays.astype(np.int32)),
        Lists(count, waiting.owner, chains.tail[waiting.values]).column(pa.int64()),
    ]


def _multicasts(
    dest: pa.ListArray, message: Ints, process: Ints, seq: Ints, run_of: Ints, processes: Processes
) -> _Multicasts:
    """Take the first of repeated multicasts. The others must have the same sender and destinations."""
    count = len(run_of)
    groups = _group_lists(dest, run_of[message], processes)
    order = np.lexsort((seq, message))
    is_first = np.zeros(len(message), dtype=np.bool_)
    is_first[order[stretches(message[order])]] = True
    first, again = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    sender, sent = np.full(count, NONE, dtype=np.int64), np.zeros(count, dtype=np.int64)
    sender[message[first]], sent[message[first]] = process[first], seq[first]
    conflict = np.zeros(count, dtype=np.bool_)
    if len(again):
        row_of = np.zeros(count, dtype=np.int64)
        row_of[message[first]] = first
        differs = (process[again] != sender[message[again]]) | _lists_differ(groups, again, row_of[message[again]])
        conflict[message[again[differs]]] = True
    chosen = groups.where(is_first[groups.owner])
    owner = message[chosen.owner]
    by_message = np.lexsort((chosen.values, owner))
    return _Multicasts(sender, sent, Lists(count, owner[by_message], chosen.values[by_message]), conflict)


def _group_lists(dest: pa.ListArray, run: Ints, processes: Processes) -> Lists:
    """Return the destinations of each row as numbers, without repetitions; negative for a group without members."""
    flat = dest.flatten().dictionary_encode()
    lengths = dest.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    owner = np.repeat(np.arange(len(dest)), lengths)
    words = flat.dictionary.to_pylist()
    pairs, place = np.unique(run[owner] * (len(words) + 1) + ints(flat.indices), return_inverse=True)
    numbers = [
        processes.group_numbers.get((pair // (len(words) + 1), words[pair % (len(words) + 1)]), -2 - index)
        for index, pair in enumerate(pairs.tolist())
    ]
    group = np.array(numbers, dtype=np.int64)[place]
    order = np.lexsort((group, owner))
    owner, group = owner[order], group[order]
    new = stretches(owner, group)
    return Lists(len(dest), owner[new], group[new])


def _lists_differ(lists: Lists, one: Ints, other: Ints) -> Bools:
    lengths = lists.lengths()
    starts = np.concatenate([[0], np.cumsum(lengths)])
    differ = lengths[one] != lengths[other]
    same_length = np.flatnonzero(~differ)
    repeats = lengths[one[same_length]]
    pair, offset = np.repeat(same_length, repeats), places_in_stretches(repeats)
    unequal = lists.values[starts[one[pair]] + offset] != lists.values[starts[other[pair]] + offset]
    differ[pair[unequal]] = True
    return np.asarray(differ)


def _deliveries(message: Ints, process: Ints, seq: Ints, multicasts: _Multicasts, processes: Processes) -> _Deliveries:
    count = len(multicasts.sender)
    key = message * len(processes) + process
    order = np.argsort(key)
    ordered = key[order]
    repeated = np.zeros(count, dtype=np.bool_)
    again = ordered[1:] == ordered[:-1]
    if again.any():
        order = np.lexsort((seq, key))
        repeated[message[order[1:][again]]] = True
        order = order[np.concatenate([[True], ~again])]
    message, process, seq, key = message[order], process[order], seq[order], key[order]
    addressed = _is_addressed(message, process, multicasts, processes)
    return _Deliveries(message, process, seq, addressed, repeated, _missing(key, multicasts.dest, processes))


def _is_addressed(message: Ints, process: Ints, multicasts: _Multicasts, processes: Processes) -> Bools:
    """Return whether each message is addressed to the group of the process beside it."""
    group = np.where(process == NONE, NONE, processes.group[process])
    width = processes.groups + 1
    real = multicasts.dest.values >= 0
    wanted = multicasts.dest.owner[real] * width + multicasts.dest.values[real]
    addressed: Bools = is_in(message * width + group, wanted) & (group != NONE)
    return addressed


def _is_stranger(message: Ints, process: Ints, multicasts: _Multicasts, processes: Processes) -> Bools:
    """Return whether the process is neither the sender of the message nor in a group that it is addressed to."""
    is_sender = (process != NONE) & (process == multicasts.sender[message])
    stranger: Bools = ~is_sender & ~_is_addressed(message, process, multicasts, processes)
    return stranger


def _missing(delivered: Ints, dest: Lists, processes: Processes) -> Lists:
    """Return the processes that a message is addressed to but that lack it. `delivered` are ascending keys."""
    real = dest.where(dest.values >= 0)
    start = processes.member_start[real.values]
    sizes = processes.member_start[real.values + 1] - start
    owner = np.repeat(real.owner, sizes)
    process = processes.members[np.repeat(start, sizes) + places_in_stretches(sizes)]
    absent = ~is_in(owner * len(processes) + process, delivered)
    return Lists(dest.count, owner[absent], process[absent])


def _marks(
    run_of: Ints, multicasts: _Multicasts, deliveries: _Deliveries, guesses: _Deliveries, processes: Processes
) -> tuple[Ints, list[Ints]]:
    """Mark what is wrong with each message. Also count, in the order of COMPARED, where it was looked for."""
    count = len(run_of)

    def some(messages: Ints) -> Bools:
        found = np.zeros(count, dtype=np.bool_)
        found[messages] = True
        return found

    unsent = multicasts.sender == NONE
    delivered, guessed = some(deliveries.message), some(guesses.message)
    delivered_up = some(deliveries.message[processes.up[deliveries.process]])
    stray, guess_stray = (some(found.message[~found.addressed]) for found in (deliveries, guesses))
    missing = deliveries.missing
    lacking = missing.where(processes.up[missing.values]).has_any() & processes.ended[run_of]
    excused = processes.last_crash[multicasts.sender] > multicasts.sent  # of an unsent one: never looked at
    marks = np.zeros(count, dtype=np.int64)
    for mark, holds in (
        (INTEGRITY, deliveries.repeated | (unsent & delivered)),
        (VALIDITY, stray & ~unsent),
        (AGREEMENT, lacking & delivered),
        (NONUNIFORM, lacking & delivered_up),
        (TERMINATION, lacking & ~unsent & ~excused),
        (GUESSED_WRONG, guesses.repeated | (unsent & guessed) | (guess_stray & ~unsent)),
        (CONFLICT, multicasts.conflict),
        (NOBODY_THERE, some(multicasts.dest.owner[multicasts.dest.values < 0])),
    ):
        marks[holds] |= mark
    real = multicasts.dest.where(multicasts.dest.values >= 0)
    up_in = np.bincount(processes.group[processes.up & (processes.group != NONE)], minlength=processes.groups)
    up = np.bincount(real.owner, weights=up_in[real.values], minlength=count).astype(np.int64)
    due = [np.where(delivered, up, 0), np.where(delivered_up, up, 0), np.where(unsent | excused, 0, up)]
    at = np.bincount(deliveries.message, minlength=count)
    addressed = np.bincount(deliveries.message[deliveries.addressed], minlength=count)
    return marks, [*due, addressed, np.where(unsent, 0, at)]


def _unproven(rows: pa.Table, message: Ints, missing: Lists, chains: Chains, ts: Timestamps) -> Bools:
    """Find messages whose `ts` differs between processes or is not above the last of a process that lacks them."""
    times = one_array(rows["time"])
    if times.null_count:
        return np.ones(missing.count, dtype=np.bool_)
    lowest, highest = _bounds(message, ints(times), missing.count)
    unproven = lowest < highest
    if ts.ties:
        ties = ints(one_array(rows["tie"]).dictionary_encode().indices.fill_null(-1))
        lowest_tie, highest_tie = _bounds(message, ties, missing.count)
        unproven |= lowest_tie < highest_tie
    waiting = missing.where(chains.counts[missing.values] > 0)
    delivered = lowest <= highest
    late = delivered[waiting.owner] & (highest[waiting.owner] <= ts.last_time[waiting.values])
    unproven[waiting.owner[late]] = True
    return np.asarray(unproven)


def _bounds(owner: Ints, values: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the lowest and the highest value of each owner. Without a value the lowest is above the highest."""
    lowest, highest = np.full(count, 2**63 - 1, dtype=np.int64), np.full(count, -(2**63), dtype=np.int64)
    np.minimum.at(lowest, owner, values)
    np.maximum.at(highest, owner, values)
    return lowest, highest
