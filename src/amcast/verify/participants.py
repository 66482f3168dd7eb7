"""Who took part: from the summaries of the one pass, processes, groups and runs become small numbers.

What stays on the driver is in proportion to the processes, never to the events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from amcast.errors import TraceError
from amcast.verify.arrays import Bools, Ints
from amcast.verify.gather import NEVER, SEQUENCED

NONE: Final = -1
CHAINED: Final = ("multicast", "deliver", "optdeliver")
_SUMS: Final = [
    ("rows", "sum"), ("first", "min"), ("last", "max"), ("about", "sum"), ("with_ts", "sum"), ("members", "max"),
]  # fmt: skip
# Beyond this, a place on the line of all histories might not fit in 64 bits.
LONGEST_LINE: Final = 2**61


@dataclass(frozen=True)
class Chains:
    """The deliveries (or multicasts) of all processes on one line of whole numbers, process after process.

    The place of an event is base + 1 + (seq - first), so that the places of a process are ordered like its events. base
    is before all of them and tail after all of them.
    """

    first: Ints
    last: Ints
    base: Ints
    tail: Ints
    counts: Ints

    def place(self, process: Ints, seq: Ints) -> Ints:
        return np.asarray(self.base[process] + 1 + (seq - self.first[process]))

    def last_place_before(self, process: Ints, seq: Ints) -> Ints:
        """Return the highest place that an event before this `seq` can have; base if there is none."""
        first, last = self.first[process], self.last[process]
        return np.asarray(self.base[process] + (np.clip(seq, first, last + 1) - first))

    def process_at(self, place: Ints) -> Ints:
        return np.asarray(np.searchsorted(self.base, place, side="right") - 1)

    def seq_at(self, place: Ints, process: Ints) -> Ints:
        return np.asarray(place - self.base[process] - 1 + self.first[process])

    @property
    def end(self) -> int:
        return int(self.tail[-1]) + 1 if len(self.tail) else 0

    def shifted(self, by: int) -> "Chains":
        return Chains(self.first, self.last, self.base + by, self.tail + by, self.counts)


@dataclass(frozen=True)
class Timestamps:
    """Whether the `ts` of each process strictly increase from delivery to delivery, and the time of the last."""

    increase: Bools
    last_time: Ints
    ties: bool  # whether some times are equal, so that the ties had to be compared


@dataclass(frozen=True)
class Processes:
    """All processes of all runs, numbered. `group` is NONE for a client."""

    names: Sequence[str]
    numbers: Mapping[tuple[str, str], int]  # of (run, process)
    run: Ints
    group: Ints
    up: Bools  # at the end of the run
    last_crash: Ints  # seq, or NEVER
    member_start: Ints  # of group g: members[member_start[g]:member_start[g + 1]]
    members: Ints
    group_numbers: Mapping[tuple[int, str], int]  # of (number of the run, group)
    sizes: Ints  # of each group, as its start rows say; 0 where they do not
    started: Bools  # of each run: there are start rows of members
    ended: Bools  # of each run

    def __len__(self) -> int:
        return len(self.run)

    @property
    def groups(self) -> int:
        return len(self.member_start) - 1


@dataclass(frozen=True)
class RunCounts:
    """Counts of the rows of a run. A repeated multicast counts each time."""

    multicasts: int = 0
    deliveries: int = 0
    guesses: int = 0
    traffic: int = 0
    traffic_about: int = 0
    without_ts: int = 0  # of the deliveries
    crashes: int = 0


@dataclass(frozen=True)
class Participants:
    runs: Sequence[str]
    facts: Sequence[RunCounts]
    processes: Processes
    chains: Mapping[str, Chains]  # of multicast, deliver and optdeliver
    highs: Ints | None = None  # the upper halves of all `seq`, if these are too widespread for one line

    @cached_property
    def number_of_run(self) -> Mapping[str, int]:
        return {run: number for number, run in enumerate(self.runs)}

    def short(self, seq: Ints) -> Ints:
        """Return `seq`, or if they are too widespread, numbers in the same order that are not."""
        return seq if self.highs is None else _shortened(seq, self.highs)


def _shortened(seq: Ints, highs: Ints) -> Ints:
    return np.asarray((np.searchsorted(highs, seq >> 32) << 32) | (seq & 0xFFFFFFFF))


def participants_of(facts: pa.Table) -> Participants:
    """Number all that took part, from the summaries of all batches. Raises TraceError for a process in two groups."""
    lines: list[dict[str, Any]] = facts.group_by(["run", "process", "group", "kind"]).aggregate(_SUMS).to_pylist()
    lines.sort(key=lambda line: (line["run"], line["process"], line["group"] or "", line["kind"]))
    found = _numbered(lines)
    if found is None:  # their order is all that counts
        highs = np.unique(facts["highs"].combine_chunks().flatten().to_numpy(zero_copy_only=False))
        for line in lines:
            if line["kind"] in SEQUENCED:
                line["first_min"], line["last_max"] = _shortened(
                    np.array([line["first_min"], line["last_max"]], dtype=np.int64), highs
                ).tolist()
        found = _numbered(lines)
        assert found is not None, "seq are too widespread even with their upper halves numbered"
        found = replace(found, highs=highs)
    return found


def _numbered(lines: list[dict[str, Any]]) -> Participants | None:
    """Number all that took part; None if `seq` are too widespread to be put on one line."""
    runs = list(dict.fromkeys(line["run"] for line in lines))
    number_of_run = {run: number for number, run in enumerate(runs)}
    numbers: dict[tuple[str, str], int] = {}
    group_of: dict[int, str] = {}
    extent: dict[str, dict[int, tuple[int, int, int]]] = {kind: {} for kind in (*CHAINED, "crash", "restart")}
    tally = [dict.fromkeys(RunCounts.__annotations__, 0) for _ in runs]
    started, ended = (np.zeros(len(runs), dtype=np.bool_) for _ in range(2))
    stated: dict[int, int] = {}  # by process: the members of its group
    for line in lines:
        run, kind = number_of_run[line["run"]], line["kind"]
        process = numbers.setdefault((line["run"], line["process"]), len(numbers))
        if line["group"] is not None:
            _join(group_of, process, line)
        _count(tally[run], line)
        ended[run] |= kind == "end"
        if kind == "start" and line["group"] is not None:
            started[run] = True
            stated[process] = line["members_max"]
        if kind in extent:
            low, high, count = extent[kind].get(process, (line["first_min"], line["last_max"], 0))
            extent[kind][process] = (
                min(low, line["first_min"]), max(high, line["last_max"]), count + line["rows_sum"],
            )  # fmt: skip
    processes = _processes(numbers, number_of_run, group_of, extent, stated, started, ended)
    chains = {kind: _chains(len(numbers), extent[kind]) for kind in CHAINED}
    if any(is_long for _, is_long in chains.values()):
        return None
    return Participants(
        runs, [RunCounts(**of_run) for of_run in tally], processes, {k: c for k, (c, _) in chains.items()}
    )


def _join(group_of: dict[int, str], process: int, line: dict[str, Any]) -> None:
    known = group_of.setdefault(process, line["group"])
    if known != line["group"]:
        raise TraceError(
            f"run {line['run']!r}: process {line['process']!r} appears with the groups {known!r} "
            f"and {line['group']!r}; expected one group per process; correct the rows"
        )


def _count(tally: dict[str, int], line: dict[str, Any]) -> None:
    match line["kind"]:
        case "multicast":
            tally["multicasts"] += line["rows_sum"]
        case "deliver":
            tally["deliveries"] += line["rows_sum"]
            tally["without_ts"] += line["rows_sum"] - line["with_ts_sum"]
        case "optdeliver":
            tally["guesses"] += line["rows_sum"]
        case "crash":
            tally["crashes"] += line["rows_sum"]
        case "send" | "receive":
            tally["traffic"] += line["rows_sum"]
            tally["traffic_about"] += line["about_sum"]


def _processes(
    numbers: dict[tuple[str, str], int],
    number_of_run: dict[str, int],
    group_of: dict[int, str],
    extent: dict[str, dict[int, tuple[int, int, int]]],
    stated: dict[int, int],
    started: Bools,
    ended: Bools,
) -> Processes:
    count = len(numbers)
    run = np.array([number_of_run[run] for run, _ in numbers], dtype=np.int64)
    group_numbers: dict[tuple[int, str], int] = {}
    group = np.full(count, NONE, dtype=np.int64)
    for process, name in sorted(group_of.items()):
        group[process] = group_numbers.setdefault((int(run[process]), name), len(group_numbers))
    sizes = np.zeros(len(group_numbers), dtype=np.int64)
    for process, size in stated.items():
        sizes[group[process]] = max(sizes[group[process]], size)
    last_crash, last_restart = (np.full(count, NEVER, dtype=np.int64) for _ in range(2))
    for kind, last in (("crash", last_crash), ("restart", last_restart)):
        for process, (_, high, _) in extent[kind].items():
            last[process] = high
    crashed = np.zeros(count, dtype=np.bool_)
    crashed[list(extent["crash"])] = True
    in_groups = np.flatnonzero(group != NONE)
    by_group = in_groups[np.argsort(group[in_groups], kind="stable")]
    start = np.searchsorted(group[by_group], np.arange(len(group_numbers) + 1))
    return Processes(
        names=[name for _, name in numbers],
        numbers=numbers,
        run=run,
        group=group,
        up=~(crashed & (last_crash > last_restart)),
        last_crash=last_crash,
        member_start=start.astype(np.int64),
        members=by_group.astype(np.int64),
        group_numbers=group_numbers,
        sizes=sizes,
        started=started,
        ended=ended,
    )


def _chains(count: int, extent: dict[int, tuple[int, int, int]]) -> tuple[Chains, bool]:
    first, last, base, tail, counts = (np.zeros(count, dtype=np.int64) for _ in range(5))
    end, highest = 0, 0
    for process in range(count):
        low, high, counts[process] = extent.get(process, (0, -1, 0))
        width = high - low + 3
        highest = max(highest, abs(low), abs(high), end + width)
        if highest < LONGEST_LINE:
            first[process], last[process], base[process], tail[process] = low, high, end, end + width - 1
        end += width
    return Chains(first, last, base, tail, counts), highest >= LONGEST_LINE
