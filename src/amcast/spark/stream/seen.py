"""What one watch has seen, and the verdicts on it: a pure function of what the micro-batches reported.

Only what was reported during this watch counts. What an earlier one with the same checkpoint saw is no evidence here.
The verdict is `unknown` if an expected member gave no rows, if rows could not be read, or if the query ended early:
nothing that was seen is wrong, but not everything was seen. The same holds for deliveries that were not compared, and
for messages whose multicast was not seen. In a stream that was stopped they may be under way for some seconds.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amcast.checks.evidence import Evidence, total
from amcast.checks.history import NOTHING_DELIVERED, NOTHING_MULTICAST, no_process_of
from amcast.checks.verdict import Status, Verdict
from amcast.core.trace import Event

PROPERTIES: Final = ("order", "integrity", "validity")
UNDER_WAY: Final = 10.0  # seconds that a delivery may wait for those of others; a replica answers within five


@dataclass(frozen=True)
class Answers:
    """Which members of a cluster answer at the end of the watch, and how much there was to read from each."""

    silent: Collection[str] = ()
    ends: Mapping[str, int] = field(default_factory=dict)  # the position after the last one that had to be read
    asked: int = 0  # when that was asked, in nanoseconds: by the clock from which the replicas' times are


class Seen:
    """One run, as the reports of this watch tell it."""

    def __init__(self, run: str, members: Mapping[str, str] | None = None) -> None:
        """Start a watch of one run. `members`: who should be there, with its group."""
        self.run = run
        self.group_of = dict(members or {})  # of all that should be there or were seen
        self.delivered: Counter[str] = Counter()
        self.waiting: dict[str, int] = {}
        self.reached: dict[str, int] = {}  # the position after the last one that was read
        self.sizes: dict[str, int] = {}  # of groups, as start rows say
        self.times: dict[str, Any] = {}  # by group: a row with p50 and p99
        self.violations: list[Any] = []
        self.lost: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.absent: list[str] = []  # groups to which messages are addressed
        self.unresolved = 0  # messages that wait because their destinations are not known
        self.unsent = 0  # delivered messages whose multicast was not seen
        self.multicast = False  # others were
        self.heads: dict[str, int] = {}  # by process: when the first delivery that waits was made
        self.apart = False
        self.broken = False
        self._since: dict[str, tuple[Any, float]] = {}  # what is the oldest that waits, and when it was first said

    def add(self, row: Any, now: float = 0.0) -> None:
        """Take a row of what a micro-batch said at this time, in seconds."""
        mark = (row.head if row.behind else -1) if row.kind == "process" else row.name
        oldest = f"{row.kind} {row.name}" if row.kind == "process" else row.kind
        if oldest not in self._since or self._since[oldest][0] != mark:
            self._since[oldest] = mark, now
        if row.kind == "process":
            self.heads[row.name] = row.since
            self.group_of[row.name] = row.text
            self.delivered[row.name] += row.amount
            self.waiting[row.name] = row.behind
            self.reached[row.name] = row.place + 1
        elif row.kind == "members":
            self.sizes[row.name] = row.amount
        elif row.kind == "violation":
            self.violations.append(row)
        elif row.kind == "lost":
            self.lost[row.name] += row.amount
        elif row.kind == "count":
            self.counts[row.name] += row.amount
        elif row.kind == "unresolved":
            self.unresolved = row.amount
        elif row.kind == "unsent":
            self.unsent = row.amount
            self.multicast = bool(row.text)
        elif row.kind == "absent":
            self.absent = json.loads(row.text)
        elif row.kind == "apart":
            self.apart = True
        elif row.kind == "broken":
            self.broken = True
        elif row.kind == "latency" or getattr(self.times.get(row.name), "kind", "") != "latency":
            self.times[row.name] = row

    # What can be said

    def evidence(self) -> Evidence:
        members = Counter(self.group_of.values())
        return Evidence(
            runs=1,
            replicas=sum(count > 0 for count in self.delivered.values()),
            expected=sum(max(members[group], self.sizes.get(group, 0)) for group in members | self.sizes),
            multicasts=self.counts["multicasts"],
            deliveries=self.delivered.total(),
            pairs=self.counts["pairs"],
        )

    def verdicts(
        self, answers: Answers | None = None, whole: bool = False, problem: str = "", now: float = 0.0
    ) -> list[Verdict]:
        """Judge the run. `whole`: all rows that existed at the start had to be read. `problem`: why the query ended."""
        reasons = [*filter(None, [problem]), *self.missing(answers, whole)]
        if not self.delivered.total():
            reasons.append(self._nothing(answers))
        final = now if not (whole or self.counts["end"]) else None
        open_ends = self.open_ends(final, answers.asked if answers is not None else 0)
        return [self._verdict(name, [*reasons, *open_ends[name]]) for name in PROPERTIES]

    def open_ends(self, now: float | None, asked: int = 0) -> dict[str, list[str]]:
        """Say for each property what still waits. With `now`, more may come, so what is young is left out.

        A busy cluster always has something under way. There the age of a delivery counts from when the replicas were
        `asked`.
        """

        def due(oldest: str) -> bool:
            return now is None or now - self._since[oldest][1] > UNDER_WAY

        found: dict[str, list[str]] = {name: [] for name in PROPERTIES}
        waiting = [p for p, amount in self.waiting.items() if amount and due(f"process {p}")]
        if any(asked - self.heads[process] > UNDER_WAY * 1e9 for process in waiting) or (waiting and not asked):
            found["order"].append(self._waiting())
        if self.counts["unchecked"]:
            found["order"].append(f"{self.counts['unchecked']:,} deliveries came too late to be compared with others")
        if self.apart:
            found["order"].append("each group is judged by itself, for too many destinations were not known")
        unresolved = self.counts["guessed"] + (self.unresolved if self.unresolved and due("unresolved") else 0)
        if unresolved:
            text = f"delivered messages whose destinations no row names: {unresolved:,}"
            found["order"].append(text)
            found["validity"].append(text)
        unsent = self.counts["unsent"] + (self.unsent if self.unsent and due("unsent") else 0)
        if unsent and self.multicast:
            found["integrity"].append(f"delivered messages without a multicast row: {unsent:,}")
        elif unsent:
            found["integrity"].append(f"{NOTHING_MULTICAST}, so only repetitions can be seen")
        return found

    def _waiting(self) -> str:
        return f"{sum(self.waiting.values()):,} deliveries still wait for those of others, and are not compared"

    def _nothing(self, answers: Answers | None) -> str:
        """Say why nothing was seen. What was there before does not belong to this watch."""
        ends = {end: process for process, end in answers.ends.items()} if answers is not None else {}
        if not max(ends, default=0):
            return NOTHING_DELIVERED
        end = max(ends)
        return (
            f"nothing was read in this watch, though {ends[end]} has {end:,} deliveries; start earlier or wait longer"
        )

    def _verdict(self, name: str, reasons: list[str]) -> Verdict:
        evidence = self.evidence()
        wrong = [row for row in self.violations if row.name == name]
        if wrong:
            first = wrong[0].text if len(wrong) == 1 else f"{len(wrong)} times, first: {wrong[0].text}"
            rows = tuple(_event(self.run, row) for found in wrong for row in json.loads(found.rows))
            return Verdict(name, self.run, "violated", first, rows, evidence=evidence)
        if name == "order" and evidence.deliveries and not evidence.pairs:
            reasons.append("no delivery was compared with one of another process")
        if name == "order" and self.broken:
            reasons.append("the order is not compared since a violation or lost rows; start with another checkpoint")
        status: Status = "unknown" if reasons else "ok"
        return Verdict(name, self.run, status, "; ".join(reasons), evidence=evidence)

    def missing(self, answers: Answers | None, whole: bool) -> list[str]:
        """Say what should have been seen and was not."""
        gave = {process for process, amount in self.delivered.items() if amount}
        active = {self.group_of[process] for process in gave}
        known = [process for process in sorted(self.group_of) if process not in self.lost]
        found = []
        if answers is not None:
            gone = [process for process in sorted(self.group_of) if process in answers.silent]
            mute = [process for process in gone if process not in gave]
            found += _of(mute, "gave no rows: it does not answer", "gave no rows: they do not answer")
            found += _of([p for p in gone if p in gave], "does not answer any more", "do not answer any more")
            # Who was read to its end gave what it has, be it nothing new
            known = [p for p in known if p not in gone and not 0 < answers.ends.get(p, 0) <= self.reached.get(p, 0)]
            for process in known if whole else ():
                if process in gave and process in answers.ends:
                    found.append(f"{process} was read up to {self.reached[process]:,} of {answers.ends[process]:,}")
        quiet = [process for process in known if process not in gave and self.group_of[process] in active]
        found += _of(quiet, "gave no rows, others of its group did", "gave no rows, others of their groups did")
        members = Counter(self.group_of.values())
        for group, size in sorted(self.sizes.items()):
            if members[group] < size:
                found.append(f"of {group} only {members[group]} of {size} members have rows")
        if self.absent:
            found.append(no_process_of(self.absent))
        found += _of(sorted(self.lost), "has rows that could not be read", "have rows that could not be read")
        if self.counts["unreadable"]:
            found.append(f"rows that lack process, group, place or message: {self.counts['unreadable']:,}")
        if self.counts["moved"]:
            found.append(f"rows of processes that were in another group before: {self.counts['moved']:,}")
        return found

    def notes(self) -> list[str]:
        """Say what should be known although it does not change the verdict."""
        found = []
        if any(self.waiting.values()):
            found.append(self._waiting())
        active = {self.group_of[process] for process, count in self.delivered.items() if count > 0}
        if active:
            idle = sorted({*self.group_of.values(), *self.sizes} - active)
            found += _of(idle, "delivered nothing", "delivered nothing")
        return found


def lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what is said at the end. Properties and runs of which the same is said share a line."""
    runs: dict[tuple[str, Status, str], list[str]] = {}  # properties of a run
    for verdict in verdicts:
        runs.setdefault((verdict.run, verdict.status, verdict.reason), []).append(verdict.property)
    same: dict[tuple[str, Status, str], list[str]] = {}  # runs in which these properties have this verdict
    for (run, status, reason), properties in runs.items():
        same.setdefault((", ".join(properties), status, reason), []).append(run)
    evidence = {verdict.run: verdict.evidence for verdict in verdicts}
    found = []
    for (names, status, reason), where in same.items():
        seen = total(evidence[run] for run in where)
        of = f" in run {where[0] or '(none)'}" if len(where) == 1 else f" in {len(where)} runs"
        found.append(f"{names} {status}{of * (len(where) < len(evidence))}: {f'{reason} ({seen})' if reason else seen}")
    return found


def _of(processes: Sequence[str], one: str, many: str) -> list[str]:
    """Return a sentence about these processes, if there are any: `g0/0, g0/1 and g0/2 delivered nothing`."""
    if len(processes) < 2:
        return [f"{process} {one}" for process in processes]
    return [f"{', '.join(processes[:-1])} and {processes[-1]} {many}"]


def _event(run: str, row: Mapping[str, Any]) -> Event:
    return Event(run, "deliver", row["process"], row["group"], row["place"], row["time"], row["message"])
