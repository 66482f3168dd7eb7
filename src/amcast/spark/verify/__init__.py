"""Verification on Spark: the verdicts of `amcast.checks`, for traces that one machine does not want to hold.

A run of at most a million rows is judged in one task by the in-memory engine (`in_tasks`). A larger run is judged by
operations on tables (`by_tables`). Both give the verdicts that the in-memory engine would give on the whole trace.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amcast.checks import Verdict, known_properties
from amcast.errors import TraceError
from amcast.spark.tables import read_rows, refuse_faults, spark_errors
from amcast.spark.verify.by_tables import Plan, judge_by_tables
from amcast.spark.verify.in_tasks import ROWS_PER_TASK, judge_in_tasks
from amcast.tracefile.columns import Columns

__all__ = ["MOST_ROWS_IN_A_TASK", "Plan", "verify_rows", "verify_trace"]

MOST_ROWS_IN_A_TASK: Final = 1_000_000
_BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"


def verify_trace(
    spark: SparkSession,
    path: str,
    properties: Sequence[str] | None = None,
    *,
    columns: Columns | None = None,
    trust_nothing: bool = False,
    watch: Callable[[str], None] = lambda step: None,
) -> list[Verdict]:
    """Judge every run of a trace, in the order of their names. `properties` are those of `amcast.checks.check`.

    `columns` maps the column names of another system. `trust_nothing` does not use timestamps even as a certificate
    that is checked. `watch` is told what is being done. Raises TraceError and UsageError.
    """
    asked = None if properties is None else known_properties(properties)
    watch("opening the trace")
    rows = read_rows(spark, path, columns)
    return verify_rows(rows, Plan(path, asked, trust_nothing, watch=watch))


def verify_rows(rows: DataFrame, plan: Plan, small: int = MOST_ROWS_IN_A_TASK) -> list[Verdict]:
    """Judge rows that `read_rows` gave. Runs of at most `small` rows are judged in one task each."""
    with spark_errors(plan.path), _batches_counted_in_rows(rows.sparkSession):
        sizes = {row["run"]: row["count"] for row in rows.groupBy("run").count().toArrow().to_pylist()}
        if not sizes:
            raise TraceError(f"{plan.path}: is empty; expected at least one event; record the run again")
        if None in sizes:
            refuse_faults(plan.path, rows)
        huge = [run for run, count in sizes.items() if count > small]
        verdicts: list[Verdict] = []
        if huge:
            verdicts += judge_by_tables(_of_runs(rows, huge, sizes), sum(sizes[run] for run in huge), plan)
        rest = sum(count for run, count in sizes.items() if count <= small)
        if rest:
            plan.watch(f"judging {len(sizes) - len(huge):,} small runs")
            few = _of_runs(rows, [run for run in sizes if sizes[run] <= small], sizes)
            refuse_faults(plan.path, few)
            cores = rows.sparkSession.sparkContext.defaultParallelism
            partitions = min(len(sizes), max(2 * cores, -(-rest // ROWS_PER_TASK)))
            verdicts += judge_in_tasks(few, plan.properties, partitions, plan.path)
    return sorted(verdicts, key=lambda verdict: verdict.run)


@contextmanager
def _batches_counted_in_rows(spark: SparkSession) -> Iterator[None]:
    """Count batches in rows. Spark else measures their bytes after every row, which is slow for lists."""
    before = spark.conf.get(_BYTES_PER_BATCH)
    spark.conf.set(_BYTES_PER_BATCH, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(_BYTES_PER_BATCH, str(before))


def _of_runs(rows: DataFrame, runs: list[str], all_runs: dict[str, int]) -> DataFrame:
    if len(runs) == len(all_runs):
        return rows
    if 2 * len(runs) > len(all_runs):
        return rows.where(~F.col("run").isin([run for run in all_runs if run not in set(runs)]))
    return rows.where(F.col("run").isin(runs))
