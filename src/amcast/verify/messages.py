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
    nowhere    names of destination groups of which no process is in the trace
    COMPARED   for each of these properties, at how many processes it was looked for

A bucket is worked on as a whole, with numpy: its rows are put in groups by message, and `dest` gives the deliveries
that are to be expected.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amcast.tracefile.parts import WORD
from amcast.verify.arrays import Bools, Ints, Lists, ints, is_in, one_array, places_in_stretches, stretches
from amcast.verify.gather import DELIVERED, GUESSED, SENT, TOOK_PART, what
from amcast.verify.participants import NONE, Chains, Participants, Processes, Timestamps
from amcast.verify.pieces import Batches

INTEGRITY: Final = 1  # delivered twice by a process, or never multicast
VALIDITY: Final = 2
AGREEMENT: Final = 4
NONUNIFORM: Final = 8
TERMINATION: Final = 16
STRANGER: Final = 32  # a process took part that is neither sender nor addressed
GUESSED_WRONG: Final = 64  # integrity or validity of optimistic deliveries
UNCERTIFIED: Final = 128  # its timestamps do not prove its place in the order
CONFLICT: Final = 256  # two different multicasts with one name

# For each property that compares with what the destinations demand: at how many processes a message was looked for.
DUE: Final = ("agreement", "agreement-nonuniform", "termination")
# And at how many it was delivered, of those that it is addressed to, and in all.
COMPARED: Final = (*DUE, "fifo", "validity")
MESSAGES_PER_PIECE: Final = 65_536
_MARKS: Final = [
    ("run", pa.int32()), ("message", pa.string()), ("sender", pa.int32()), ("sent", pa.int64()),
    ("dest", pa.list_(pa.int32())), ("nowhere", pa.list_(pa.string())), ("marks", pa.int32()),
    *((name, pa.int32()) for name in COMPARED),
]  # fmt: skip
_PLACES: Final = [
    ("places", pa.list_(pa.int64())), ("strays", pa.int32()), ("tails", pa.list_(pa.int64())),
    ("guesses", pa.list_(pa.int64())), ("guess_strays", pa.int32()), ("guess_tails", pa.list_(pa.int64())),
]  # fmt: skip


def message_table(batches: Batches, participants: Participants, ts: Timestamps | None, with_places: bool) -> Batches:
    """Yield the table of messages of one bucket, with or without places.

    With timestamps, messages whose timestamps prove nothing are marked.
    """
    bucket = _bucket_of(batches, participants)
    if bucket is not None:
        messages = _messages(bucket, participants, ts, with_places)
        for start in range(0, len(messages), MESSAGES_PER_PIECE):
            yield messages.slice(start, MESSAGES_PER_PIECE)


def of_runs(runs: set[int], all_runs: int) -> Callable[[Batches], Batches]:
    """Return the step that selects the messages of these runs."""
    wanted = pa.array(sorted(runs), pa.int32())

    def choose(batches: Batches) -> Batches:
        for piece in batches:
            chosen = piece if len(runs) == all_runs else piece.filter(pc.is_in(piece["run"], value_set=wanted))
            if chosen.num_rows:
                yield chosen

    return choose


def events_at(batches: Batches, participants: Participants, chosen: Bools) -> Batches:
    """Yield process and `seq` of the events of the chosen processes. Of a repeated multicast only the first counts."""
    bucket = _bucket_of(batches, participants, short=False)
    if bucket is None:
        return
    for rows in (bucket.sent.only(_is_first(bucket.sent)), bucket.delivered, bucket.guessed):
        here = chosen[rows.process]
        yield pa.record_batch({"process": rows.process[here], "seq": rows.seq[here]})


# ---------------------------------------------------------------- the rows of a bucket, numbered


@dataclass(frozen=True)
class _Rows:
    """Rows of one kind: numbers of message and process, and `seq`."""

    message: Ints
    process: Ints
    seq: Ints

    def only(self, chosen: Bools) -> "_Rows":
        return _Rows(self.message[chosen], self.process[chosen], self.seq[chosen])


@dataclass(frozen=True)
class _Bucket:
    names: pa.Array  # of each message
    run: Ints  # of each message
    sent: _Rows
    dest: pa.Array
    delivered: _Rows
    time: pa.Array
    tie: pa.Array | None  # null where it is the name of the message; None if it is everywhere
    guessed: _Rows
    part: _Rows


def _bucket_of(batches: Batches, participants: Participants, short: bool = True) -> _Bucket | None:
    of_kind: dict[bytes, list[pa.RecordBatch]] = {SENT: [], DELIVERED: [], GUESSED: [], TOOK_PART: []}
    for piece in batches:
        of_kind[what(piece)].append(piece)
    pieces = [piece for of in of_kind.values() for piece in of]
    if not pieces:
        return None
    words = pa.chunked_array([piece.column("message") for piece in pieces]).dictionary_encode()
    index = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in words.chunks])
    names = words.chunk(0).dictionary
    who = [_numbers(piece, participants) for piece in pieces]
    run, process = (np.concatenate([pair[part] for pair in who]) for part in (0, 1))
    if len(participants.runs) == 1:
        message, run_of = index.astype(np.int64), np.zeros(len(names), dtype=np.int64)
    else:
        keys, message = np.unique(run * len(names) + index, return_inverse=True)
        run_of, names = keys // len(names), names.take(pa.array(keys % len(names)))
    seqs = [_seq(piece) for piece in pieces]
    seq = np.concatenate(seqs)
    if short:
        seq = participants.short(seq)
    ends = np.cumsum([0, *(sum(piece.num_rows for piece in of) for of in of_kind.values())])
    rows = [_Rows(message[low:high], process[low:high], seq[low:high]) for low, high in itertools.pairwise(ends)]
    dest = [piece.column("dest") for piece in of_kind[SENT]] or [pa.array([], pa.list_(pa.string()))]
    return _Bucket(
        names, run_of, rows[0], pa.concat_arrays(dest), rows[1], *_stamps(of_kind[DELIVERED]), rows[2], rows[3]
    )


def _seq(piece: pa.RecordBatch) -> Ints:
    return ints(piece.column("seq")) if what(piece) != TOOK_PART else np.zeros(piece.num_rows, dtype=np.int64)


def _stamps(pieces: list[pa.RecordBatch]) -> tuple[pa.Array, pa.Array | None]:
    times, ties, any_tie = [pa.array([], pa.int64())], [], False
    for piece in pieces:
        names = piece.schema.names
        times.append(piece.column("time") if "time" in names else pa.nulls(piece.num_rows, pa.int64()))
        any_tie |= "tie" in names
        ties.append(piece.column("tie") if "tie" in names else pa.nulls(piece.num_rows, WORD))
    tie = pa.chunked_array(ties).unify_dictionaries().combine_chunks() if any_tie else None
    return pa.concat_arrays(times), None if tie is None else one_array(tie)


def _numbers(piece: pa.RecordBatch, participants: Participants) -> tuple[Ints, Ints]:
    """Return the numbers of run and process of each row. A process without a row of its own has no number."""
    runs, names = piece.column("run"), piece.column("process")
    run_words, words = runs.dictionary.to_pylist(), names.dictionary.to_pylist()
    if len(run_words) == len(words) == 1:
        keys, place = np.zeros(1, dtype=np.int64), None
    else:
        key = ints(runs.indices) * len(words) + ints(names.indices)
        keys, place = np.unique(key, return_inverse=True) if len(words) * len(run_words) > 4 * len(key) else _few(key)
    who = [(run_words[pair // len(words)], words[pair % len(words)]) for pair in keys.tolist()]
    run = np.array([participants.number_of_run[run] for run, _ in who], dtype=np.int64)
    number = np.array([participants.processes.numbers.get(pair, NONE) for pair in who], dtype=np.int64)
    if place is None:
        return np.repeat(run, piece.num_rows), np.repeat(number, piece.num_rows)
    return run[place], number[place]


def _few(key: Ints) -> tuple[Ints, Ints]:
    """Do what np.unique does for keys below a few times their number, without sorting them."""
    there = np.zeros(int(key.max()) + 1, dtype=np.bool_)
    there[key] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[key]


# ---------------------------------------------------------------- what becomes of each message


@dataclass(frozen=True)
class _Multicasts:
    sender: Ints
    sent: Ints
    dest: Lists  # numbers of groups; negative for one without members
    conflict: Bools
    nowhere: pa.Array


@dataclass(frozen=True)
class _Deliveries:
    """The first delivery of each message at each process, ordered by message."""

    rows: _Rows
    addressed: Bools
    repeated: Bools  # of each message: whether a process delivered it twice
    missing: Lists  # of each message: processes that it is addressed to and that never delivered it


def _messages(bucket: _Bucket, participants: Participants, ts: Timestamps | None, with_places: bool) -> pa.RecordBatch:
    processes, chains = participants.processes, participants.chains
    multicasts = _multicasts(bucket, processes)
    deliveries = _deliveries(bucket.delivered, multicasts, processes)
    any_guess = bool(chains["optdeliver"].counts.any())
    guesses = _deliveries(bucket.guessed, multicasts, processes) if any_guess else _none_of(bucket.guessed, multicasts)
    marks, compared = _marks(bucket.run, multicasts, deliveries, guesses, processes)
    part = bucket.part
    marks[part.message[_is_stranger(part, multicasts, processes)]] |= STRANGER
    if ts is not None:
        marks[_unproven(bucket, deliveries.missing, chains["deliver"], ts)] |= UNCERTIFIED
    real = multicasts.dest.where(multicasts.dest.values >= 0)
    columns = [
        pa.array(bucket.run.astype(np.int32)),
        bucket.names,
        pa.array(multicasts.sender.astype(np.int32)),
        pa.array(multicasts.sent),
        real.column(pa.int32()),
        multicasts.nowhere,
        pa.array(marks.astype(np.int32)),
        *(pa.array(pairs.astype(np.int32)) for pairs in compared),
    ]
    if with_places:
        columns += [*_placed(deliveries, chains["deliver"]), *_placed(guesses, chains["optdeliver"])]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*_MARKS, *(_PLACES if with_places else ())]))


def _placed(deliveries: _Deliveries, chains: Chains) -> list[pa.Array]:
    """Return places, strays and tails."""
    count, rows, addressed = deliveries.missing.count, deliveries.rows, deliveries.addressed
    strays = np.zeros(count, dtype=np.int64)
    if not addressed.all():
        strays = np.bincount(rows.message[~addressed], minlength=count)
        order = np.lexsort((~addressed, rows.message))
        rows = _Rows(rows.message[order], rows.process[order], rows.seq[order])
    waiting = deliveries.missing.where(chains.counts[deliveries.missing.values] > 0)
    return [
        Lists(count, rows.message, chains.place(rows.process, rows.seq)).column(pa.int64()),
        pa.array(strays.astype(np.int32)),
        Lists(count, waiting.owner, chains.tail[waiting.values]).column(pa.int64()),
    ]


def _is_first(sent: _Rows) -> Bools:
    """Return which multicasts are not repetitions: of those of one message, the one with the lowest `seq`."""
    if not len(sent.message) or np.bincount(sent.message).max() == 1:
        return np.ones(len(sent.message), dtype=np.bool_)
    order = np.lexsort((sent.seq, sent.message))
    is_first = np.zeros(len(sent.message), dtype=np.bool_)
    is_first[order[stretches(sent.message[order])]] = True
    return is_first


def _multicasts(bucket: _Bucket, processes: Processes) -> _Multicasts:
    """Take the first of repeated multicasts. The others must have the same sender and destinations."""
    count, rows = len(bucket.run), bucket.sent
    groups, unknown = _group_lists(bucket.dest, bucket.run[rows.message], processes)
    is_first = _is_first(rows)
    first, again = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    sender, sent = np.full(count, NONE, dtype=np.int64), np.zeros(count, dtype=np.int64)
    sender[rows.message[first]], sent[rows.message[first]] = rows.process[first], rows.seq[first]
    conflict = np.zeros(count, dtype=np.bool_)
    if len(again):
        row_of = np.zeros(count, dtype=np.int64)
        row_of[rows.message[first]] = first
        earlier = row_of[rows.message[again]]
        differs = (rows.process[again] != rows.process[earlier]) | _lists_differ(groups, again, earlier)
        conflict[rows.message[again[differs]]] = True
        groups = groups.where(is_first[groups.owner])
    owner, values = rows.message[groups.owner], groups.values
    if (owner[1:] < owner[:-1]).any():
        by_message = np.argsort(owner, kind="stable")
        owner, values = owner[by_message], values[by_message]
    dest = Lists(count, owner, values)
    nobody = dest.where(dest.values < 0)
    names = pa.nulls(count, pa.list_(pa.string()))
    if len(nobody.owner):
        flat = unknown.take(pa.array(-2 - nobody.values))
        offsets = np.concatenate([[0], np.cumsum(nobody.lengths())]).astype(np.int32)
        names = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return _Multicasts(sender, sent, dest, conflict, names)


def _group_lists(dest: pa.ListArray, run: Ints, processes: Processes) -> tuple[Lists, pa.Array]:
    """Return the destinations of each row as numbers, without repetitions, and the names of groups without members.

    Number -2 is the first of these names, -3 the second, and so on.
    """
    flat = dest.flatten().dictionary_encode()
    owner = np.repeat(np.arange(len(dest)), ints(dest.value_lengths()))
    words = [*flat.dictionary.to_pylist(), ""]
    key = run[owner] * len(words) + ints(flat.indices)
    keys, place = _few(key) if len(key) and key.max() <= 4 * len(key) else np.unique(key, return_inverse=True)
    pairs = [(pair // len(words), words[pair % len(words)]) for pair in keys.tolist()]
    numbers = [processes.group_numbers.get(pair, -2 - index) for index, pair in enumerate(pairs)]
    group = np.array(numbers, dtype=np.int64)[place]
    if not ((owner[1:] > owner[:-1]) | (group[1:] > group[:-1])).all():
        order = np.lexsort((group, owner))
        owner, group = owner[order], group[order]
        new = stretches(owner, group)
        owner, group = owner[new], group[new]
    return Lists(len(dest), owner, group), pa.array([name for _, name in pairs], pa.string())


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


def _none_of(rows: _Rows, multicasts: _Multicasts) -> _Deliveries:
    """Return the deliveries of a kind that the whole trace has none of: nobody lacks any."""
    nothing = np.zeros(0, dtype=np.int64)
    count = len(multicasts.sender)
    no = np.zeros(count, dtype=np.bool_)
    return _Deliveries(rows, np.zeros(0, dtype=np.bool_), no, Lists(count, nothing, nothing))


def _deliveries(rows: _Rows, multicasts: _Multicasts, processes: Processes) -> _Deliveries:
    count = len(multicasts.sender)
    key = rows.message * len(processes) + rows.process
    order = np.argsort(key)
    key = key[order]
    repeated = np.zeros(count, dtype=np.bool_)
    again = key[1:] == key[:-1]
    if again.any():
        order = np.lexsort((rows.seq, rows.process, rows.message))
        repeated[rows.message[order[1:][again]]] = True
        kept = np.concatenate([[True], ~again])
        order, key = order[kept], key[kept]
    rows = _Rows(rows.message[order], rows.process[order], rows.seq[order])
    addressed = _is_addressed(rows, multicasts, processes)
    return _Deliveries(rows, addressed, repeated, _missing(rows, key, addressed, multicasts.dest, processes))


def _is_addressed(rows: _Rows, multicasts: _Multicasts, processes: Processes) -> Bools:
    """Return whether each message is addressed to the group of the process beside it."""
    group = np.where(rows.process == NONE, NONE, processes.group[rows.process])
    real = multicasts.dest.where(multicasts.dest.values >= 0)
    if processes.groups <= 64:
        masks = np.zeros(len(multicasts.sender), dtype=np.uint64)
        if len(real.owner):
            starts = stretches(real.owner)
            bits = np.uint64(1) << real.values.astype(np.uint64)
            masks[real.owner[starts]] = np.bitwise_or.reduceat(bits, starts)
        shift = np.where(group == NONE, 0, group).astype(np.uint64)
        return np.asarray(((masks[rows.message] >> shift) & np.uint64(1)).astype(np.bool_) & (group != NONE))
    width = processes.groups + 1
    addressed: Bools = is_in(rows.message * width + group, real.owner * width + real.values) & (group != NONE)
    return addressed


def _is_stranger(part: _Rows, multicasts: _Multicasts, processes: Processes) -> Bools:
    """Return whether the process is neither the sender of the message nor in a group that it is addressed to."""
    is_sender = (part.process != NONE) & (part.process == multicasts.sender[part.message])
    stranger: Bools = ~is_sender & ~_is_addressed(part, multicasts, processes)
    return stranger


def _missing(rows: _Rows, key: Ints, addressed: Bools, dest: Lists, processes: Processes) -> Lists:
    """Return the processes that a message is addressed to but that lack it. `key` are those of the rows, ascending."""
    real = dest.where(dest.values >= 0)
    sizes = np.diff(processes.member_start)
    due = np.bincount(real.owner, weights=sizes[real.values], minlength=dest.count).astype(np.int64)
    found = np.bincount(rows.message if addressed.all() else rows.message[addressed], minlength=dest.count)
    short = found < due
    if short.any():
        real = real.where(short[real.owner])
    else:
        real = Lists(dest.count, real.owner[:0], real.values[:0])
    count = sizes[real.values]
    owner = np.repeat(real.owner, count)
    process = processes.members[np.repeat(processes.member_start[real.values], count) + places_in_stretches(count)]
    absent = ~is_in(owner * len(processes) + process, key)
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
    delivered, guessed = some(deliveries.rows.message), some(guesses.rows.message)
    delivered_up = (
        delivered if processes.up.all() else some(deliveries.rows.message[processes.up[deliveries.rows.process]])
    )
    stray, guess_stray = (some(found.rows.message[~found.addressed]) for found in (deliveries, guesses))
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
    ):
        marks[holds] |= mark
    real = multicasts.dest.where(multicasts.dest.values >= 0)
    up_in = np.bincount(processes.group[processes.up & (processes.group != NONE)], minlength=processes.groups)
    up = np.bincount(real.owner, weights=up_in[real.values], minlength=count).astype(np.int64)
    due = [np.where(delivered, up, 0), np.where(delivered_up, up, 0), np.where(unsent | excused, 0, up)]
    at = np.bincount(deliveries.rows.message, minlength=count)
    addressed = at - np.bincount(deliveries.rows.message[~deliveries.addressed], minlength=count)
    return marks, [*due, addressed, np.where(unsent, 0, at)]


def _unproven(bucket: _Bucket, missing: Lists, chains: Chains, ts: Timestamps) -> Bools:
    """Find messages whose `ts` differs between processes or is not above the last of a process that lacks them."""
    message = bucket.delivered.message
    if bucket.time.null_count:
        return np.ones(missing.count, dtype=np.bool_)
    unproven = np.zeros(missing.count, dtype=np.bool_)
    times = ints(bucket.time)
    of_message = _some_of(message, times, missing.count)
    unproven[message[times != of_message[message]]] = True
    if ts.ties and bucket.tie is not None:
        ties = ints(bucket.tie.indices.fill_null(-1))
        unproven[message[ties != _some_of(message, ties, missing.count)[message]]] = True
    waiting = missing.where(chains.counts[missing.values] > 0)
    delivered = np.zeros(missing.count, dtype=np.bool_)
    delivered[message] = True
    late = delivered[waiting.owner] & (of_message[waiting.owner] <= ts.last_time[waiting.values])
    unproven[waiting.owner[late]] = True
    return unproven


def _some_of(owner: Ints, values: Ints, count: int) -> Ints:
    """Return for each owner one of its values."""
    found = np.zeros(count, dtype=np.int64)
    found[owner] = values
    return found
