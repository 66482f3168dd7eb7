"""Judges large runs by operations on tables, so that neither a task nor the driver ever holds a run.

All large runs of a trace are worked on at once, their processes numbered one after the other. What is found is the
names of a few messages for each broken property; `examples` makes verdicts of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amcast.checks import Verdict, check
from amcast.checks.agreement import NOBODY_UP
from amcast.checks.evidence import Evidence
from amcast.checks.history import (
    CUT_OFF,
    NOTHING_DELIVERED,
    NOTHING_KNOWN,
    NOTHING_MULTICAST,
    who_is_absent,
)
from amcast.checks.termination import NOTHING_DUE
from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.spark.tables import refuse_faults
from amcast.spark.verify import messages as marks
from amcast.spark.verify.blocks import Batches, collect, unpack
from amcast.spark.verify.causal import past_ignored, runs_with_chains
from amcast.spark.verify.cuts import PLACES_PER_BLOCK, Steps
from amcast.spark.verify.examples import events_about, unknown, verdicts_on
from amcast.spark.verify.fifo import overtaken
from amcast.spark.verify.gather import FACTS_BUCKET, gather
from amcast.spark.verify.histories import SEQUENCED, Timestamps, judge_histories
from amcast.spark.verify.optimistic import mistakes
from amcast.spark.verify.order import disordered, runs_without_proof
from amcast.spark.verify.participants import NONE, Participants, RunCounts, participants_of

ALWAYS: Final = ("integrity", "validity", "order", "agreement", "termination")
NEED_END: Final = marks.DUE
NEED_MULTICASTS: Final = ("validity", "fifo", "causal")
MARK_OF: Final = {
    "integrity": marks.INTEGRITY,
    "validity": marks.VALIDITY,
    "agreement": marks.AGREEMENT,
    "agreement-nonuniform": marks.NONUNIFORM,
    "termination": marks.TERMINATION,
    "genuine": marks.STRANGER,
    "optimistic": marks.GUESSED_WRONG,
}
ROWS_PER_BUCKET: Final = 1_000_000
PLACES_PER_SEARCH: Final = 2_000_000


@dataclass(frozen=True)
class Plan:
    """What is asked, and how the work is divided. Tests divide it more finely."""

    path: str
    properties: Sequence[str] | None
    trust_nothing: bool = False  # not even timestamps that are checked
    rows_per_bucket: int = ROWS_PER_BUCKET
    places_per_block: int = PLACES_PER_BLOCK
    watch: Callable[[str], None] = field(default=lambda step: None)

    def asked_of(self, facts: RunCounts) -> Sequence[str]:
        if self.properties is not None:
            return self.properties
        names = list(ALWAYS)
        if facts.traffic_about:
            names.append("genuine")
        if facts.guesses:
            names.append("optimistic")
        return names


def judge_by_tables(rows: DataFrame, count: int, plan: Plan) -> list[Verdict]:
    """Judge all runs in these rows, of which there are `count`, in the order of their names. Raises TraceError."""
    buckets = _parts(rows, count, plan.rows_per_bucket)
    with_traffic = plan.properties is None or "genuine" in plan.properties
    plan.watch("reading the trace")
    with _kept(gather(rows, buckets, with_traffic)) as gathered:
        facts = collect(gathered.where(F.col("bucket") == FACTS_BUCKET))
        assert facts is not None, "there are rows, and there are none"
        if pc.sum(facts["faults"]).as_py():
            refuse_faults(plan.path, rows)
        participants = participants_of(facts, plan.path)
        ts = judge_histories(facts, rows, participants, plan.path)
        if participants.too_long:
            return judge_by_tables(_numbered_again(rows), count, plan)
        plan.watch("gathering what happened to each message")
        certify = not plan.trust_nothing and any(facts.without_ts < facts.deliveries for facts in participants.facts)
        table = marks.message_table(gathered, buckets, participants, ts if certify else None)
        with _kept(table) as messages:
            judgement = _Judgement(rows, participants, ts if certify else None, plan)
            judgement.read_marks(messages)
            gathered.unpersist()
            return judgement.verdicts(messages)


def _parts(rows: DataFrame, count: int, per_part: int) -> int:
    """Return how many parts to make: at least one for each core, so that none is idle."""
    return max(rows.sparkSession.sparkContext.defaultParallelism, -(-count // per_part))


@contextmanager
def _kept(table: DataFrame) -> Iterator[DataFrame]:
    """Compute a table once, on first use, and keep it for the time of the block."""
    table = table.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield table
    finally:
        table.unpersist()


def _numbered_again(rows: DataFrame) -> DataFrame:
    """Number events anew, because their `seq` are too far apart to be put on one line."""
    is_sequenced = F.col("kind").isin(*SEQUENCED)
    place = F.row_number().over(Window.partitionBy("run", "process", is_sequenced).orderBy("seq"))
    return rows.withColumn("seq", place.cast("long"))


class _Judgement:
    """The findings about each run and property."""

    def __init__(self, rows: DataFrame, participants: Participants, ts: Timestamps | None, plan: Plan) -> None:
        self.rows, self.participants, self.ts, self.plan = rows, participants, ts, plan
        self.asked = [plan.asked_of(facts) for facts in participants.facts]
        self.suspects: dict[tuple[int, str], Sequence[str]] = {}
        self.uncertified: set[int] = set()
        self.figures: dict[int, dict[str, int | float]] = {}
        self.seen = [Evidence() for _ in participants.runs]
        self.compared: Counter[tuple[int, str]] = Counter()  # pairs, by run and property
        self.addressed: dict[int, set[int]] = defaultdict(set)  # groups, by run
        self.absent: dict[int, set[str]] = {}  # groups without a process, by run
        self.cuts: Steps | None = None

    def verdicts(self, messages: DataFrame) -> list[Verdict]:
        if self.is_asked("order"):
            self.plan.watch("order")
            self.judge_order(messages)
        if self.is_asked("fifo") or self.is_asked("causal"):
            self.plan.watch("fifo and causal order")
            self.judge_fifo_and_causal(messages)
        if self.is_asked("optimistic") and any(facts.guesses for facts in self.participants.facts):
            self.plan.watch("optimistic delivery")
            self.judge_guesses(messages)
        self.plan.watch("fetching counter-examples")
        wanted = {key: found for key, found in self.suspects.items() if self.is_judged(*key)}
        examples = verdicts_on(self.rows, self.participants, wanted)
        return [
            self.verdict(run, name, examples.get((run, name)))
            for run in range(len(self.participants.runs))
            for name in self.asked[run]
        ]

    def is_asked(self, name: str) -> bool:
        return any(name in names for names in self.asked)

    def is_judged(self, run: int, name: str) -> bool:
        return name in self.asked[run] and (name not in NEED_END or bool(self.participants.processes.ended[run]))

    def read_marks(self, messages: DataFrame) -> None:
        """Note what is wrong with messages by themselves."""
        found = messages.mapInArrow(_marked, _MARKED).toArrow().to_pylist()
        self.seen = self.evidence([row for row in found if row["multicasts"] is not None])
        for row in found:
            if row["group"] is not None:
                self.addressed[row["run"]].add(row["group"])
        marked = [row for row in found if row["marks"]]
        self.absent = self.absent_groups({row["run"] for row in marked if row["marks"] & marks.NOBODY_THERE})
        for row in sorted(marked, key=lambda row: str(row["message"])):
            run, message = row["run"], row["message"]
            if row["marks"] & marks.CONFLICT:
                self.refuse_conflict(run, message)
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
        return [
            Evidence(
                runs=1,
                replicas=int((delivered & (processes.run == run)).sum()),
                expected=int(expected[run_of_group == run].sum()),
                multicasts=multicasts[run],
                deliveries=facts.deliveries,
                faults=facts.crashes,
            )
            for run, facts in enumerate(participants.facts)
        ]

    def absent_groups(self, runs: set[int]) -> dict[int, set[str]]:
        """Return the groups without a process in the trace that messages of these runs are addressed to."""
        if not runs:
            return {}
        names = {self.participants.runs[run]: run for run in runs}
        sent = self.rows.where((F.col("kind") == "multicast") & F.col("run").isin(list(names)))
        found: dict[int, set[str]] = defaultdict(set)
        for row in sent.select("run", F.explode("dest").alias("name")).distinct().toArrow().to_pylist():
            run = names[row["run"]]
            if (run, row["name"]) not in self.participants.processes.group_numbers:
                found[run].add(row["name"])
        return found

    def refuse_conflict(self, run: int, message: str) -> None:
        events = events_about(self.rows, {(self.participants.runs[run], message)})
        try:
            check([event for of_message in events.values() for event in of_message], ["integrity"])
        except TraceError as error:
            raise TraceError(f"{self.plan.path}: {error}") from None
        raise AssertionError(f"{message} is multicast twice, and is not")

    def judge_order(self, messages: DataFrame) -> None:
        runs = runs_without_proof(self.participants, self.ts, self.uncertified)
        partitions = _parts(self.rows, sum(self.participants.facts[run].deliveries for run in runs), PLACES_PER_SEARCH)
        found, self.cuts = disordered(messages, self.participants, runs, self.plan.places_per_block, partitions)
        self.note("order", found)

    def judge_fifo_and_causal(self, messages: DataFrame) -> None:
        chains, senders = self.participants.chains["deliver"], self.participants.chains["multicast"]
        partitions = _parts(self.rows, sum(facts.deliveries for facts in self.participants.facts), PLACES_PER_SEARCH)
        broken = overtaken(messages, senders, chains, partitions)
        self.note("fifo", broken)
        if self.is_asked("causal"):
            runs = runs_with_chains(self.participants) - set(broken)
            found = past_ignored(messages, self.participants, runs, self.plan.places_per_block, partitions, self.cuts)
            self.note("causal", {**found, **broken})

    def judge_guesses(self, messages: DataFrame) -> None:
        chains, senders = self.participants.chains["optdeliver"], self.participants.chains["multicast"]
        partitions = _parts(self.rows, sum(facts.guesses for facts in self.participants.facts), PLACES_PER_SEARCH)
        self.note("optimistic", overtaken(messages, senders, chains, partitions, guesses=True))
        self.figures = mistakes(messages, self.participants, partitions)

    def note(self, name: str, found: dict[int, list[str]]) -> None:
        for run, messages in found.items():
            self.suspects.setdefault((run, name), messages)

    def verdict(self, run: int, name: str, violated: Verdict | None) -> Verdict:
        facts, of_run, seen = self.participants.facts[run], self.participants.runs[run], self.seen[run]
        if name == "genuine" and not facts.traffic_about:
            some = [Event(of_run, "send", "", None, 2)] if facts.traffic else []
            return replace(unknown(name, of_run, *some), evidence=seen)
        if name == "optimistic" and not facts.guesses:
            return replace(unknown(name, of_run), evidence=seen)
        figure = self.figures[run] if name == "optimistic" else None
        if violated is not None:
            return replace(violated, figure=figure, evidence=seen)
        if reason := self.why_unknown(run, name):
            return Verdict(name, of_run, "unknown", reason, evidence=seen)
        pairs = {"genuine": facts.traffic_about, "optimistic": facts.guesses}.get(name, self.compared[run, name])
        return Verdict(name, of_run, "ok", figure=figure, evidence=replace(seen, pairs=pairs))

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
        if not processes.ended[run]:
            return CUT_OFF
        names = {number: name for (of_run, name), number in processes.group_numbers.items() if of_run == run}
        found = np.diff(processes.member_start)
        addressed = [(names[group], int(found[group]), int(processes.sizes[group])) for group in self.addressed[run]]
        addressed += [(name, 0, 0) for name in self.absent.get(run, ())]
        if absent := who_is_absent(addressed, bool(processes.started[run])):
            return absent
        if self.compared[run, name]:
            return ""
        if name == "termination":
            return NOTHING_DUE if seen.multicasts else NOTHING_MULTICAST
        return NOBODY_UP if seen.deliveries else NOTHING_DELIVERED


_COUNTED: Final = ("multicasts", *(name.replace("-", "_") for name in marks.COMPARED))
_MARKED: Final = "run int, marks int, message string, group int, " + ", ".join(f"{name} bigint" for name in _COUNTED)


def _marked(batches: Batches) -> Batches:
    """Yield three kinds of rows for each block of messages.

    For each run and sum of marks: the first message by name. For each run: the groups that messages are addressed to.
    And for each run: how many messages were multicast, and at how many processes they were looked for.
    """
    for piece in unpack(batches):
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
        dest = piece["dest"]
        run = pc.take(piece["run"], pc.list_parent_indices(dest))
        groups = pa.table({"run": run, "group": pc.list_flatten(dest)}).group_by(["run", "group"]).aggregate([])
        yield from _filled({"run": groups["run"], "group": groups["group"]})


def _filled(columns: dict[str, pa.ChunkedArray]) -> list[pa.RecordBatch]:
    """Fill the columns that are not given with nulls."""
    count = len(columns["run"])
    types = {"run": pa.int32(), "marks": pa.int32(), "message": pa.string(), "group": pa.int32()}
    types |= dict.fromkeys(_COUNTED, pa.int64())
    arrays = [columns[name].cast(kind) if name in columns else pa.nulls(count, kind) for name, kind in types.items()]
    batches: list[pa.RecordBatch] = pa.table(arrays, names=list(types)).to_batches()
    return batches
