"""The check of a stream over columns: what is in order is merged without an object for a row.

Rows that wait, and the messages passed last, are tables. The deliveries of a micro-batch and those that wait are a
graph of messages: an edge from each one to the next of the same process, and from the last one of a process to those
that it still lacks. Without a cycle the order is right so far. What is reached from a message that some process lacks
waits, and the rest is passed.

Whatever is unusual (anything wrong, a process that nobody waited for and that is back, lost rows) goes to the rows of
`amcast.checks.online`, which finds out what it is and says so. So the verdicts are its own.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from amcast.checks.online import Passed, Pending, Row, Watcher, WatcherState
from amcast.verify.arrays import Bools, Ints, ends_of, ints, is_in, one_array, stretches

# `dest` as the row has it, JSON of names; `known` as it is by now. A row without a message says that rows are missing.
DELIVERIES: Final = pa.schema(
    [("chain", pa.int64()), ("place", pa.int64()), ("time", pa.int64()), ("message", pa.string()),
     ("dest", pa.string()), ("known", pa.string())]
)  # fmt: skip
RECENT: Final = pa.schema(
    [("message", pa.string()), ("index", pa.int64()), ("has", pa.list_(pa.int64())),
     ("groups", pa.list_(pa.string())), ("nth", pa.list_(pa.int64()))]
)  # fmt: skip
MULTICASTS: Final = pa.schema([("message", pa.string()), ("time", pa.int64()), ("dest", pa.string())])


class Saved(msgspec.Struct, array_like=True, tag="columns"):
    state: bytes
    waiting: bytes
    recent: bytes


class ColumnWatcher(Watcher):
    """A Watcher that is fed tables. Its rows and messages are in `_waiting` and `_recent` unless `_by_rows`."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._waiting = DELIVERIES.empty_table()
        self._recent = RECENT.empty_table()
        self._by_rows = False
        self.unusual = 0  # micro-batches that were looked at row by row

    def load(self, data: bytes) -> None:
        try:
            saved = msgspec.msgpack.decode(data, type=Saved)
        except msgspec.ValidationError:  # of a version that had rows only
            super().load(data)
            self._by_rows = True
            return
        super().load(saved.state)
        self._waiting, self._recent = unpacked(saved.waiting), unpacked(saved.recent)
        self._by_rows = bool(self.state.pending or self.state.passed or any(self._queues()))

    def save(self) -> bytes:
        return msgspec.msgpack.encode(Saved(super().save(), packed(self._waiting), packed(self._recent)))

    def numbers(self) -> dict[str, int]:
        return {process: chain.number for process, chain in self.state.chains.items()}

    # What waits

    def behind(self) -> dict[str, int]:
        counts = np.bincount(ints(self._waiting["chain"]), minlength=len(self.state.chains))
        return {process: many + int(counts[i]) for i, (process, many) in enumerate(super().behind().items())}

    def heads(self) -> dict[str, Row]:
        chains = list(self.state.chains.values())
        numbers, first = np.unique(ints(self._waiting["chain"]), return_index=True)
        rows = self._rows_of(self._waiting.take(pa.array(first)))
        return super().heads() | {chains[number].process: row for number, row in zip(numbers, rows, strict=True)}

    def absent(self) -> list[str]:
        texts = [text for text in pc.unique(self._waiting["known"]).to_pylist() if text is not None]
        there = {group for text in texts for group in groups_in(text)} - set(self._by_group)
        return sorted(there.union(super().absent()))

    def unresolved(self) -> list[str]:
        unknown = self._waiting.filter(pc.is_null(self._waiting["known"]))
        return super().unresolved() + list(pc.unique(unknown["message"]).to_pylist())

    # Rows

    def judge(self, new: pa.Table, told: pa.Table, wait: bool = True) -> None:
        """Take deliveries, in order for each process, after these multicasts, and settle what can be settled."""
        if self._by_rows:
            self._use_columns()
        before = self.state, self._waiting, self._recent, dict(self.delivered)
        if not self._by_rows:
            self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=WatcherState)
            self._group()
            step = _Step(self)
            if step.take(new, told):
                step.settle(wait)
                return
            self.state, self._waiting, self._recent, self.delivered = before
            self._group()
        self.unusual += 1
        self._use_rows()
        names, texts = told["message"].to_pylist(), told["dest"].to_pylist()
        for message, text in zip(names, texts, strict=True):
            self.tell(message, groups_in(text))
        self.take(self._rows_of(new))
        self.settle(wait)

    def _group(self) -> None:
        self._by_group = {}
        for chain in self.state.chains.values():
            self._by_group.setdefault(chain.group, []).append(chain)

    def _queues(self) -> list[list[Row]]:
        return [chain.queue for chain in self.state.chains.values()]

    def _rows_of(self, table: pa.Table) -> list[Row]:
        chains = list(self.state.chains.values())
        return [
            Row(chains[row["chain"]].process, chains[row["chain"]].group, row["place"], row["message"],
                None if row["dest"] is None else groups_in(row["dest"]), row["time"])
            for row in table.to_pylist()
        ]  # fmt: skip

    def _use_rows(self) -> None:
        """Turn tables into rows."""
        state = self.state
        known = [None if text is None else groups_in(text) for text in self._waiting["known"].to_pylist()]
        for row, dest in zip(self._rows_of(self._waiting), known, strict=True):
            assert row.message is not None
            pending = state.pending.setdefault(row.message, Pending(dest, first=row.time))
            pending.has.add(state.chains[row.process].number)
            pending.first = min(pending.first, row.time)
            pending.latest[row.group] = max(pending.latest.get(row.group, 0), row.time)
            state.chains[row.process].queue.append(row)
        for one in self._recent.to_pylist():
            nth = dict(zip(one["groups"], one["nth"], strict=True))
            state.passed[one["message"]] = Passed(one["index"], set(one["has"]), nth)
        self._waiting, self._recent = DELIVERIES.empty_table(), RECENT.empty_table()
        self._by_rows = True

    def _use_columns(self) -> None:
        """Turn rows into tables, if nothing is unusual any more."""
        state = self.state
        late = any(chain.head() is not None for chain in state.chains.values() if not chain.waits)
        if state.broken or state.apart or late:
            return
        rows: list[tuple[Any, ...]] = []
        for chain in state.chains.values():
            for row in chain.queue[chain.at :]:
                known = state.pending[row.message or ""].dest
                rows.append((chain.number, row.place, row.time, row.message, as_text(row.dest), as_text(known)))
            chain.queue, chain.at = [], 0
        passed = [(m, p.index, sorted(p.has), [*p.nth], [*p.nth.values()]) for m, p in state.passed.items()]
        self._waiting = pa.table(transposed(rows, DELIVERIES), DELIVERIES)
        self._recent = pa.table(transposed(passed, RECENT), RECENT)
        state.pending, state.passed = {}, {}
        self._by_rows = False


class _Step:
    """One micro-batch, with what waited before. Messages, processes and groups have numbers here."""

    def __init__(self, watcher: ColumnWatcher) -> None:
        self.watcher = watcher
        self.state = state = watcher.state
        self.chains = list(state.chains.values())
        self.names = list(watcher._by_group)
        self.group = np.array([self.names.index(chain.group) for chain in self.chains], np.int64)

    def take(self, new: pa.Table, told: pa.Table) -> bool:
        """Take these rows, unless they are more than just the next deliveries of processes that are waited for."""
        state, watcher = self.state, self.watcher
        if state.apart or state.broken or any(chain.lost for chain in self.chains):
            return False
        if new["message"].null_count or not self._note(ints(new["chain"]), ints(new["place"]), ints(new["time"])):
            return False
        waiting = watcher._waiting
        if told.num_rows and waiting["known"].null_count:
            found = pc.index_in(waiting["message"], value_set=one_array(told["message"]))
            dest = one_array(told["dest"]).take(one_array(found))
            waiting = waiting.set_column(5, "known", pc.coalesce(one_array(waiting["known"]), dest))
        self.rows = pa.concat_tables([waiting, new])
        self.chain, self.time = ints(self.rows["chain"]), ints(self.rows["time"])
        encoded = one_array(self.rows["message"]).dictionary_encode()
        self.message, self.messages = ints(encoded.indices), encoded.dictionary
        self.many = np.bincount(self.message, minlength=len(self.messages))  # rows of each message
        if not self._read_destinations() or (len(self.messages) > watcher._window and (self.dest < 0).any()):
            return False
        recent = one_array(watcher._recent["message"])
        if len(recent) and pc.any(pc.is_in(self.messages, value_set=recent)).as_py():
            return False
        self.passed = np.zeros(len(self.messages), np.bool_)
        return self._relate()

    def _note(self, chain: Ints, place: Ints, time: Ints) -> bool:
        """Note how far each process is, unless one is not waited for, goes back or leaves a gap."""
        if not all(self.chains[number].waits for number in np.unique(chain)):
            return False
        starts = stretches(chain)
        last = np.array([one.last for one in self.chains], np.int64)
        before = np.concatenate([[0], place[:-1]])[: len(place)]
        before[starts] = last[chain[starts]]
        gap = self.watcher._gapless & (before >= 0) & (place != before + 1)
        if (place <= before).any() or gap.any():
            return False
        for start, end in zip(starts, ends_of(starts, len(chain)), strict=True):
            one = self.chains[chain[start]]
            one.last, one.time = int(place[end - 1]), max(one.time, int(time[start:end].max()))
            self.watcher.delivered[one.process] = self.watcher.delivered.get(one.process, 0) + int(end - start)
        if len(time):
            state = self.state
            state.newest = max(state.newest, int(time.max()))
            state.oldest = min(state.oldest or int(time.min()), int(time.min()))
        return True

    def _read_destinations(self) -> bool:
        """Find the destinations of each message, numbers of sets in `dests`; -1 if they are not known.

        False if two rows say different ones of a message, or if somebody else delivers it.
        """
        encoded = one_array(self.rows["known"]).dictionary_encode()
        sets = [tuple(sorted(set(groups_in(text)))) for text in encoded.dictionary.to_pylist()]
        self.dests = sorted(set(sets))
        number = np.array([self.dests.index(one) for one in sets] + [-1], np.int64)
        of_row = number[ints(pc.fill_null(encoded.indices, len(sets)))]
        self.dest = np.full(len(self.messages), -1, np.int64)
        known = of_row >= 0
        self.dest[self.message[known]] = of_row[known]
        mine = np.array([[name in groups for name in self.names] for groups in self.dests], np.bool_)
        of_message = self.dest[self.message]
        if (of_message[known] != of_row[known]).any():
            return False
        said = of_message >= 0
        return not len(self.dests) or bool(mine[of_message[said], self.group[self.chain[said]]].all())

    def _relate(self) -> bool:
        """Make the graph of messages, and number them in an order that all processes have.

        False if there is none: on a cycle, as also a message makes that a process delivers twice.
        """
        self.keys = np.sort(self.message * len(self.chains) + self.chain)
        order = np.argsort(self.chain, kind="stable")
        message, chain = self.message[order], self.chain[order]
        same = chain[1:] == chain[:-1]
        starts = stretches(chain)
        last = dict(zip(chain[starts].tolist(), message[ends_of(starts, len(chain)) - 1].tolist(), strict=True))
        before, after = [message[:-1][same]], [message[1:][same]]
        for number, end in last.items():
            lacking = self._lacking(number)
            before.append(np.full(len(lacking), end, np.int64))
            after.append(lacking)
        self.before, self.after = np.concatenate(before), np.concatenate(after)
        count = len(self.messages)
        # scipy numbers strongly connected parts from the last one on. All of a cycle have the same number.
        _, label = connected_components(graph(self.before, self.after, count), connection="strong")
        self.rank = -label.astype(np.int64)
        return bool((self.rank[self.before] < self.rank[self.after]).all())

    def _lacking(self, number: int) -> Ints:
        """Return the messages that this process must deliver, as far as is known, and that it has not."""
        group = int(self.group[number])
        mine = np.array([self.names[group] in groups for groups in self.dests] + [False], np.bool_)
        due = mine[self.dest]
        unknown = self.dest[self.message] < 0
        due[self.message[unknown & (self.group[self.chain] == group)]] = True
        wanted = np.flatnonzero(due)
        return wanted[~is_in(wanted * len(self.chains) + number, self.keys)]

    # Passing

    def settle(self, wait: bool) -> None:
        """Do what `Watcher.settle` does. No process that is not waited for has rows here."""
        state, watcher = self.state, self.watcher
        there = np.bincount(self.chain, minlength=len(self.chains))
        for chain in self.chains:
            chain.time = chain.time or state.oldest
            if chain.waits and not there[chain.number] and state.newest - chain.time > watcher._most_silence:
                chain.waits = False
        self._go_on(wait)
        for chain in self.chains:
            if not chain.waits:
                watcher._compare(chain)
        if not wait:
            self._go_on(wait)
        known = pa.array([as_text(groups) for groups in self.dests], pa.string())
        dest = self.dest[self.message]
        rows = self.rows.set_column(5, "known", known.take(pa.array(dest, mask=dest < 0)))
        watcher._waiting = rows.filter(pa.array(~self.passed[self.message]))

    def _go_on(self, wait: bool) -> None:
        self._pass()
        while not wait and self._leave_behind():
            self._pass()

    def _leave_behind(self) -> bool:
        left = np.bincount(self.chain[~self.passed[self.message]], minlength=len(self.chains))
        idle = []
        for chains in self.watcher._by_group.values():
            waiting = [chain for chain in chains if chain.waits]
            if any(left[chain.number] for chain in waiting):
                idle += [chain for chain in waiting if not left[chain.number]]
        for chain in idle:
            chain.waits = False
        return bool(idle)

    def _pass(self) -> None:
        """Pass each message that all have who must, and before which nothing waits."""
        waiting = np.bincount(self.group, [chain.waits for chain in self.chains], len(self.names)).astype(np.int64)
        by_name = dict(zip(self.names, waiting.tolist(), strict=True))
        needed = [sum(by_name.get(g, 0) for g in one) if all(by_name.get(g) for g in one) else -1 for one in self.dests]
        need = np.array([*needed, -1], np.int64)[self.dest]
        short = np.flatnonzero(((need < 0) | (self.many < need)) & ~self.passed)
        stays = reached(self.before, self.after, len(self.messages), short)
        now = np.flatnonzero(~stays & ~self.passed)
        if len(now):
            self.passed[now] = True
            self._remember(now[np.argsort(self.rank[now])])

    def _remember(self, now: Ints) -> None:
        """Note that these messages are passed, in this order."""
        state, watcher = self.state, self.watcher
        place = np.full(len(self.messages), -1, np.int64)
        place[now] = np.arange(len(now))
        rows = np.flatnonzero(place[self.message] >= 0)
        # Sorted by message, then by group
        key = place[self.message[rows]] * len(self.names) + self.group[self.chain[rows]]
        order = np.argsort(key, kind="stable")
        rows, key = rows[order], key[order]
        of, chain, time = key // len(self.names), self.chain[rows], self.time[rows]
        starts = stretches(key)  # of a message in a group
        firsts = np.minimum.reduceat(time, stretches(of))
        latest = np.maximum.reduceat(time, starts)
        pair_of, pair_group = of[starts], key[starts] % len(self.names)
        nth = np.zeros(len(starts), np.int64)
        for number, name in enumerate(self.names):
            mine = pair_group == number
            if mine.any():
                seen = state.counts.get(name, 0)
                nth[mine] = seen + 1 + np.arange(int(mine.sum()))
                state.counts[name] = seen + int(mine.sum())
                watcher.spreads.setdefault(name, []).extend((latest[mine] - firsts[pair_of[mine]]).tolist())
        many = self.many[now]
        watcher.pairs += int(many[many > 1].sum())
        last = np.full(len(self.chains), -1, np.int64)
        np.maximum.at(last, chain, of)
        for number in np.flatnonzero(last >= 0).tolist():
            one, at = self.chains[number], int(last[number])
            one.index, one.before = state.next_index + at, self.messages[int(now[at])].as_py()
            one.nth = int(nth[np.searchsorted(key[starts], at * len(self.names) + self.group[number])])
        keep = max(0, len(now) - watcher._window)
        recent = pa.table(
            [
                self.messages.take(pa.array(now[keep:])),
                pa.array(state.next_index + np.arange(keep, len(now))),
                lists(of, pa.array(chain), keep, len(now)),
                lists(pair_of, pa.array(self.names, pa.string()).take(pa.array(pair_group)), keep, len(now)),
                lists(pair_of, pa.array(nth), keep, len(now)),
            ],
            schema=RECENT,
        )
        state.next_index += len(now)
        both = pa.concat_tables([watcher._recent, recent])
        watcher._recent = both.slice(max(0, both.num_rows - watcher._window)).combine_chunks()


def graph(before: Ints, after: Ints, count: int) -> csr_array:
    return csr_array((np.ones(len(before), np.int8), (before, after)), shape=(count, count))


def reached(before: Ints, after: Ints, count: int, sources: Ints) -> Bools:
    """Return for each node whether a path from a source leads to it."""
    found = np.zeros(count + 1, np.bool_)
    if len(sources):
        start = np.full(len(sources), count, np.int64)
        whole = graph(np.concatenate([before, start]), np.concatenate([after, sources]), count + 1)
        found[breadth_first_order(whole, count, return_predecessors=False)] = True
    return found[:count]


def lists(owner: Ints, values: pa.Array, first: int, count: int) -> pa.ListArray:
    """Return the values of owners `first` to `count`, of whom each has some, as lists."""
    offsets = np.searchsorted(owner, np.arange(first, count + 1))
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), values.slice(int(offsets[0])))


def groups_in(text: str) -> tuple[str, ...]:
    return tuple(name for name in msgspec.json.decode(text, type=list[str | None]) if name is not None)


def as_text(groups: Sequence[str] | None) -> str | None:
    return None if groups is None else msgspec.json.encode(list(groups)).decode()


def transposed(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
