"""Verdicts as tables: `verdicts.parquet`, a row each, and `counterexamples.parquet`, a row for each event in one."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.checks import Verdict
from amcast.checks.evidence import Evidence
from amcast.core.trace import COLUMNS, Event
from amcast.tracefile.parts import rows_of

VERDICTS: Final = "verdicts.parquet"
COUNTEREXAMPLES: Final = "counterexamples.parquet"
COUNTS: Final = tuple(part.name for part in fields(Evidence))
_SCHEMA: Final = pa.schema(
    [(name, pa.string()) for name in ("run", "property", "status", "reason", "figure")]
    + [(name, pa.int64()) for name in COUNTS]
)


def tables_of_verdicts(verdicts: Iterable[Verdict]) -> dict[str, bytes]:
    """Return the content of both files. `place` is that of an event in its counter-example."""
    rows: list[dict[str, Any]] = []
    events: list[Event] = []
    where: list[tuple[str, int]] = []
    for verdict in verdicts:
        figure = None if not verdict.figure else json.dumps(dict(verdict.figure))
        evidence = verdict.evidence.as_dict()
        said = {"run": verdict.run, "property": verdict.property, "status": verdict.status, "reason": verdict.reason}
        rows.append({**said, "figure": figure, **evidence})
        events += verdict.counterexample
        where += [(verdict.property, place) for place in range(len(verdict.counterexample))]
    examples = rows_of(events)
    properties = pa.array([name for name, _ in where], pa.string())
    places = pa.array([place for _, place in where], pa.int32())
    examples = examples.add_column(0, "place", places).add_column(0, "property", properties)
    assert examples.column_names == ["property", "place", *COLUMNS]
    return {VERDICTS: _file(pa.Table.from_pylist(rows, _SCHEMA)), COUNTEREXAMPLES: _file(examples)}


def _file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
