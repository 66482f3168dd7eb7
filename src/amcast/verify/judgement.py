"""Judges runs from what one pass gathered: who took part, and all rows about messages in buckets.

All runs are worked on at once, their processes numbered one after the other. What is found is a verdict or, for each
broken property, the names of a few messages; `examples` makes the verdict of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amcast.checks import ALWAYS
from amcast.checks.agreement import NOBODY_UP
from amcast.checks.evidence import Evidence
from amcast.checks.genuine import NO_TRAFFIC, NOTHING_ABOUT
from amcast.checks.history import (
    CUT_OFF,
    NOTHING_DELIVERED,
    NOTHING_KNOWN,
    NOTHING_MULTICAST,
    who_is_absent,
)
from amcast.checks.optimistic import NO_GUESSES
from amcast.checks.termination import NOTHING_DUE
from amcast.checks.verdict import Status
from amcast.errors import TraceError
from amcast.verify import messages as marks
from amcast.verify.causal import past_ignored, runs_with_chains
from amcast.verify.cuts import PLACES_PER_BLOCK, Steps
from amcast.verify.fifo import overtaken
from amcast.verify.gather import FACTS, REFUSED, what
from amcast.verify.histories import judge_histories, refuse_equal_seqs
from amcast.verify.optimistic import mistakes
from amcast.verify.order import disordered, runs_without_proof
from amcast.verify.participants import NONE, Participants, RunCounts, Timestamps, participants_of
from amcast.verify.pieces import Batches, Pieces

NEED_END: Final = marks.DUE
NEED_MULTICASTS: Final = ("validity", "fifo", "causal")
NEED_PLACES: Final = ("fifo", "causal", "optimistic")
MARK_OF: Final = {
    "integrity": marks.INTEGRITY,
    "validity": marks.VALIDITY,
    "agreement": marks.AGREEMENT,
    "agreement-nonuniform": marks.NONUNIFORM,
    "termination": marks.TERMINATION,
    "genuine": marks.STRANGER,
    "optimistic": marks.GUESSED_WRONG,
}


@dataclass(frozen=True)
class Plan:
    """What is asked, and how the work is divided. Tests divide it more finely."""

    properties: Sequence[str] | None = None
    trust_nothing: bool = False  # not even timestamps that are checked
    partitions: int = 1  # of what is worked on together
    places_per_block: int = PLACES_PER_BLOCK
    watch: Callable[[str], None] = field(default=lambda step: None)

    @property
    def with_traffic(self) -> bool:
        return self.properties is None or "genuine" in self.properties

    def asked_of(self, facts: RunCounts) -> Sequence[str]:
        if self.properties is not None:
            return self.properties
        names = list(ALWAYS)
        if facts.traffic_about:
            names.append("genuine")
        if facts.guesses:
            names.append("optimistic")
        return names


class Found(msgspec.Struct):
    """What is known of a property of a run: a verdict or, if it is violated, messages that show it."""

    property: str
    status: Status
    reason: str
    figure: dict[str, int | float] | None
    evidence: Evidence
    messages: list[str]


class FoundOfRun(msgspec.Struct):
    """What is known of a run. `members` are its processes and their groups, if a property is violated."""

    run: str
    found: list[Found]
    members: list[tuple[str, str]]
    conflict: str | None = None  # a message that is multicast in two ways


def refuse(batches: Sequence[pa.RecordBatch]) -> None:
    """Raise TraceError if a piece says that a part of the trace cannot be read or used."""
    errors = [piece["error"][0].as_py() for piece in batches if what(piece) == REFUSED]
    if errors:
        raise TraceError(min(errors))


def judge(facts: pa.Table, gathered: Pieces, plan: Plan) -> list[FoundOfRun]:
    """Judge all runs that were gathered, in the order of their names. Raises TraceError."""
    assert facts.schema == FACTS
    participants = participants_of(facts)
    ts, doubtful = judge_histories(facts, participants)
    if doubtful.any():
        plan.watch("comparing the places of events")
        refuse_equal_seqs(gathered, facts, participants, doubtful, plan.partitions)
    certify = not plan.trust_nothing and any(facts.without_ts < facts.deliveries for facts in participants.facts)
    certificate = ts if certify else None
    judgement = Judgement(participants, certificate, plan)
    needs_places = any(map(judgement.is_asked, NEED_PLACES)) or (not certify and judgement.is_asked("order"))
    plan.watch("gathering what happened to each message")

    def table(with_places: bool) -> Pieces:
        return gathered.each(
            partial(marks.message_table, participants=participants, ts=certificate, with_places=with_places)
        )

    if not needs_places:
        judgement.read_marks(table(False))
        if not (judgement.conflicts or judgement.is_out_of_proof()):
            return judgement.found()
    with table(True).kept() as messages:
        if needs_places:
            judgement.read_marks(messages)
        if not judgement.conflicts:
            judgement.judge_places(messages)
    return judgement.found()


class Judgement:
    """The findings about each run and property."""

    def __init__(self, participants: Participants, ts: Timestamps | None, plan: Plan) -> None:
        self.participants, self.ts, self.plan = participants, ts, plan
        self.asked = [plan.asked_of(facts) for facts in participants.facts]
        self.suspects: dict[tuple[int, str], Sequence[str]] = {}
        self.uncertified: set[int] = set()
        self.figures: dict[int, dict[str, int | float]] = {}
        self.seen = [Evidence() for _ in participants.runs]
        self.compared: Counter[tuple[int, str]] = Counter()  # pairs, by run and property
        self.addressed: dict[int, set[int]] = defaultdict(set)  # groups, by run
        self.absent: dict[int, set[str]] = defaultdict(set)  # groups without a process, by run
        self.conflicts: dict[int, str] = {}  # messages that are multicast in two ways, by run
        self.cuts: Steps | None = None
        self.groups = {number: name for (_, name), number in participants.processes.group_numbers.items()}

    def judge_places(self, messages: Pieces) -> None:
        if self.is_asked("order"):
            self.plan.watch("order")
            self.judge_order(messages)
        if self.is_asked("fifo") or self.is_asked("causal"):
            self.plan.watch("fifo and causal order")
            self.judge_fifo_and_causal(messages)
        if self.is_asked("optimistic") and any(facts.guesses for facts in self.participants.facts):
            self.plan.watch("optimistic delivery")
            self.judge_guesses(messages)

    def found(self) -> list[FoundOfRun]:
        members: dict[int, list[tuple[str, str]]] = defaultdict(list)
        processes = self.participants.processes
        violated = {run for run, name in self.suspects if self.is_judged(run, name)}
        for name, run, group in zip(processes.names, processes.run.tolist(), processes.group.tolist(), strict=True):
            if run in violated and group != NONE:
                members[run].append((name, self.groups[group]))
        return [
            FoundOfRun(
                of_run, [self.verdict(run, name) for name in self.asked[run]], members[run], self.conflicts.get(run)
            )
            for run, of_run in enumerate(self.participants.runs)
        ]

    def is_out_of_proof(self) -> bool:
        """Return whether order is asked for of a run whose timestamps do not prove it."""
        return self.is_asked("order") and bool(runs_without_proof(self.participants, self.ts, self.uncertified))

    def is_asked(self, name: str) -> bool:
        return any(name in names for names in self.asked)

    def is_judged(self, run: int, name: str) -> bool:
        return name in self.asked[run] and (name not in NEED_END or bool(self.participants.processes.ended[run]))

    def read_marks(self, messages: Pieces) -> None:
        """Note what is wrong with messages by themselves."""
        collected = messages.each(_marked).collect()
        found = [] if collected is None else collected.to_pylist()
        self.seen = self.evidence([row for row in found if row["multicasts"] is not None])
        for row in found:
            if row["group"] is not None:
                self.addressed[row["run"]].add(row["group"])
            if row["nowhere"] is not None:
                self.absent[row["run"]].add(row["nowhere"])
        marked = [row for row in found if row["marks"]]
        for row in sorted(marked, key=lambda row: str(row["message"])):
            run, message = row["run"], row["message"]
            if row["marks"] & marks.CONFLICT:
                self.conflicts.setdefault(run, message)
            if row["marks"] & marks.UNCERTIFIED:
                self.uncertified.add(run)
            for name, mark in MARK_OF.items():
                if row["marks"] & mark:
                    self.suspects.setdefault((run, name), [message])

    def evidence(self, counts: list[dict[str, Any]]) -> list[Evidence]:
        """Return what the verdicts on each run rest on."""
        participants, processes = self.participants, self.participants.processes
        multicasts: Counter[int] = Counter()
        for row in counts:
            multicasts[row["run"]] += row["multicasts"]
            for name in marks.COMPARED:
                self.compared[row["run"], name] += row[name.replace("-", "_")]
            self.compared[row["run"], "causal"] += row["fifo"]
        delivered = (participants.chains["deliver"].counts > 0) & (processes.group != NONE)
        found = np.diff(processes.member_start)
        expected = np.maximum(found, processes.sizes)
        run_of_group = processes.run[processes.members[processes.member_start[:-1]]]
        runs = len(participants.runs)
        replicas_of = np.bincount(processes.run[delivered], minlength=runs)
        expected_of = np.bincount(run_of_group, weights=expected, minlength=runs)
        return [
            Evidence(
                runs=1,
                replicas=int(replicas_of[run]),
                expected=int(expected_of[run]),
                multicasts=multicasts[run],
                deliveries=facts.deliveries,
                faults=facts.crashes,
            )
            for run, facts in enumerate(participants.facts)
        ]

    def judge_order(self, messages: Pieces) -> None:
        runs = runs_without_proof(self.participants, self.ts, self.uncertified)
        found, self.cuts = disordered(
            messages, self.participants, runs, self.plan.places_per_block, self.plan.partitions
        )
        self.note("order", found)

    def judge_fifo_and_causal(self, messages: Pieces) -> None:
        chains, senders = self.participants.chains["deliver"], self.participants.chains["multicast"]
        broken = overtaken(messages, senders, chains, self.plan.partitions)
        self.note("fifo", broken)
        if self.is_asked("causal"):
            runs = runs_with_chains(self.participants) - set(broken)
            found = past_ignored(
                messages, self.participants, runs, self.plan.places_per_block, self.plan.partitions, self.cuts
            )
            self.note("causal", {**found, **broken})

    def judge_guesses(self, messages: Pieces) -> None:
        chains, senders = self.participants.chains["optdeliver"], self.participants.chains["multicast"]
        self.note("optimistic", overtaken(messages, senders, chains, self.plan.partitions, guesses=True))
        self.figures = mistakes(messages, self.participants, self.plan.partitions)

    def note(self, name: str, found: dict[int, list[str]]) -> None:
        for run, messages in found.items():
            self.suspects.setdefault((run, name), messages)

    def verdict(self, run: int, name: str) -> Found:
        facts, seen = self.participants.facts[run], self.seen[run]
        figure = self.figures.get(run) if name == "optimistic" else None
        suspects = self.suspects.get((run, name))
        if reason := self.why_not_judged(run, name):
            return Found(name, "unknown", reason, None, seen, [])
        if suspects is not None:
            return Found(name, "violated", "", figure, seen, list(suspects))
        if reason := self.why_unknown(run, name):
            return Found(name, "unknown", reason, None, seen, [])
        pairs = {"genuine": facts.traffic_about, "optimistic": facts.guesses}.get(name, self.compared[run, name])
        return Found(name, "ok", "", figure, replace(seen, pairs=pairs), [])

    def why_not_judged(self, run: int, name: str) -> str:
        """Say why there is nothing to find a violation in; empty if there is."""
        facts = self.participants.facts[run]
        if name == "genuine" and not facts.traffic_about:
            return NOTHING_ABOUT if facts.traffic else NO_TRAFFIC
        if name == "optimistic" and not facts.guesses:
            return NO_GUESSES
        return CUT_OFF if name in NEED_END and not self.participants.processes.ended[run] else ""

    def why_unknown(self, run: int, name: str) -> str:
        """Say why a property that is not violated is not sure to hold either; empty if it holds."""
        seen = self.seen[run]
        if name in NEED_END:
            return self.why_not_live(run, name)
        if name in ("genuine", "optimistic") or self.compared[run, name]:
            return ""
        if not seen.deliveries:
            return NOTHING_DELIVERED
        if name in NEED_MULTICASTS:
            return NOTHING_KNOWN if seen.multicasts else NOTHING_MULTICAST
        return ""

    def why_not_live(self, run: int, name: str) -> str:
        processes, seen = self.participants.processes, self.seen[run]
        sizes, start = processes.sizes, processes.member_start
        addressed = [
            (self.groups[group], int(start[group + 1] - start[group]), int(sizes[group]))
            for group in self.addressed[run]
        ]
        addressed += [(name, 0, 0) for name in self.absent.get(run, ())]
        if absent := who_is_absent(addressed, bool(processes.started[run])):
            return absent
        if self.compared[run, name]:
            return ""
        if name == "termination":
            return NOTHING_DUE if seen.multicasts else NOTHING_MULTICAST
        return NOBODY_UP if seen.deliveries else NOTHING_DELIVERED


_COUNTED: Final = ("multicasts", *(name.replace("-", "_") for name in marks.COMPARED))
_MARKED: Final = pa.schema(
    [
        ("run", pa.int32()), ("marks", pa.int32()), ("message", pa.string()), ("group", pa.int32()),
        ("nowhere", pa.string()), *((name, pa.int64()) for name in _COUNTED),
    ]
)  # fmt: skip


def _marked(batches: Batches) -> Batches:
    """Yield four kinds of rows for each piece of the table of messages.

    For each run and sum of marks: the first message by name. For each run: the groups that messages are addressed to,
    and the names of those without a process. And for each run: how many messages were multicast, and at how many
    processes they were looked for.
    """
    for piece in batches:
        marked = piece.select(["run", "marks", "message"]).filter(pc.field("marks") != 0)
        if marked.num_rows:
            found = pa.Table.from_batches([marked]).group_by(["run", "marks"]).aggregate([("message", "min")])
            yield from _filled({"run": found["run"], "marks": found["marks"], "message": found["message_min"]})
        sent = pa.table(
            {
                "run": piece["run"],
                "multicasts": pc.cast(pc.greater_equal(piece["sender"], 0), pa.int64()),
                **{name.replace("-", "_"): pc.cast(piece[name], pa.int64()) for name in marks.COMPARED},
            }
        )
        counts = sent.group_by("run").aggregate([(name, "sum") for name in _COUNTED])
        yield from _filled({"run": counts["run"], **{name: counts[f"{name}_sum"] for name in _COUNTED}})
        for name, lists in (("group", piece["dest"]), ("nowhere", piece["nowhere"])):
            if lists.null_count < len(lists):
                run = pc.take(piece["run"], pc.list_parent_indices(lists))
                groups = pa.table({"run": run, name: pc.list_flatten(lists)}).group_by(["run", name]).aggregate([])
                yield from _filled({"run": groups["run"], name: groups[name]})


def _filled(columns: dict[str, pa.ChunkedArray]) -> list[pa.RecordBatch]:
    """Fill the columns that are not given with nulls."""
    count = len(columns["run"])
    arrays = [columns[of.name].cast(of.type) if of.name in columns else pa.nulls(count, of.type) for of in _MARKED]
    batches: list[pa.RecordBatch] = pa.table(arrays, schema=_MARKED).to_batches()
    return batches
