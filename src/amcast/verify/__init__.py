"""Verification over columns: the verdicts of `amcast.checks` for traces of any size, with no object for an event.

A trace is read once (`gather`): who took part becomes small tables, and the rows about messages go to buckets. A bucket
becomes a table with one row for each message (`messages`), from which most properties are read off; order, fifo, causal
and optimistic order look at the places of messages in the histories of processes (`order`, `fifo`, `causal`,
`optimistic`). `judgement` puts it together, and `examples` makes verdicts with counter-examples. All of it works on
tables in pieces (`pieces`), here in this process; `amcast.spark.verify` does the same in tasks on Spark.

Memory is about MEMORY_PER_ROW bytes for each row about a message.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from amcast.checks import Verdict, known_properties
from amcast.core.trace import Event
from amcast.errors import TraceError
from amcast.places import Place, place_of
from amcast.tracefile.columns import Columns
from amcast.tracefile.parts import parts_of, read_part, rows_of, rows_where, tables_of
from amcast.verify.examples import Choose, FetchRows, refused, verdicts_of
from amcast.verify.gather import FACTS_BUCKET, gather
from amcast.verify.judgement import Plan, judge, refuse
from amcast.verify.pieces import Here

__all__ = ["MEMORY_PER_ROW", "Plan", "Verdict", "verify_events", "verify_trace"]

ROWS_PER_BUCKET: Final = 8_000_000
PLACES_PER_BLOCK: Final = 2**40  # here nothing is gained by cutting
MEMORY_PER_ROW: Final = 200


def verify_trace(
    trace: str | Place,
    properties: Sequence[str] | None = None,
    *,
    columns: Columns | None = None,
    trust_nothing: bool = False,
    watch: Callable[[str], None] = lambda step: None,
) -> list[Verdict]:
    """Judge every run of a trace in this process, in the order of their names. `properties` as in `checks.check`.

    `columns` maps the column names of another system. `trust_nothing` does not use timestamps even as a certificate
    that is checked. `watch` is told what is being done. Raises TraceError and UsageError.
    """
    asked = None if properties is None else known_properties(properties)
    plan = Plan(asked, trust_nothing, places_per_block=PLACES_PER_BLOCK, watch=watch)
    theirs = columns or {}
    parts = parts_of(place_of(trace), theirs)
    watch("reading the trace")
    tables = chain.from_iterable(read_part(part, theirs) for part in parts)
    buckets = 1 + sum(part.rows for part in parts) // ROWS_PER_BUCKET

    def fetch(choose: Choose) -> Iterator[dict[str, Any]]:
        watch("fetching counter-examples")
        for part in parts:
            for table in rows_where(part, theirs, choose):
                yield from table.to_pylist()

    try:
        return _judged(tables, buckets, plan, fetch)
    except TraceError as error:
        raise refused(str(trace), error) from None


def verify_events(
    events: Sequence[Event], plan: Plan | None = None, *, buckets: int = 1, rows_at_a_time: int = 2**40
) -> list[Verdict]:
    """Judge every run in these events, in the order of their names. Raises TraceError."""

    def fetch(choose: Choose) -> Iterator[dict[str, Any]]:
        for table in tables_of(events):
            chosen = choose(table).nonzero()[0].tolist()
            yield from rows_of([events[place] for place in chosen]).to_pylist()

    return _judged(tables_of(events, rows_at_a_time), buckets, plan or Plan(), fetch)


def _judged(tables: Iterable[pa.Table], buckets: int, plan: Plan, fetch: FetchRows) -> list[Verdict]:
    facts: list[pa.RecordBatch] = []
    messages: list[list[pa.RecordBatch]] = [[] for _ in range(buckets)]
    for bucket, piece in gather(tables, buckets, plan.with_traffic):
        (facts if bucket == FACTS_BUCKET else messages[bucket]).append(piece)
    refuse(facts)
    if not facts:
        raise TraceError("is empty; expected at least one event; record the run again")
    found = judge(pa.Table.from_batches(facts).combine_chunks(), Here.of(messages), plan)
    return verdicts_of(found, fetch)
