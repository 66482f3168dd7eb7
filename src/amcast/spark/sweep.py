"""Many simulations on Spark, a row each: `spec.json`, `trace/kind=<kind>/<run>.parquet` and `runs/<run>.parquet`.

A row is run by the executor that Spark gives it to (`amcast.spark.row`), and its result does not depend on who runs it.
Its line in `runs` is written last, so the listing of that folder says what is done, and the same call on the same
folder runs the rest. `_SUCCESS` says that every row has its line; without it the sweep is unfinished.

Driver and executors must see the folder by the same name: any folder on one machine, a shared one on a cluster.
"""

import json
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.checks.evidence import NOTHING, Evidence
from amcast.errors import AmcastError, SweepInterrupted, UsageError
from amcast.sim.network import SECOND
from amcast.spark.row import OK, RESULT_SCHEMA, RUN_SCHEMA, UNWRITABLE, Place, run_batches
from amcast.spark.seen import evidence_of
from amcast.spark.session import first_line, open_session
from amcast.spark.spec import NOT_COMPARED, Row, Spec
from amcast.tracefile.out import usable_folder, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE: Final = 32  # an empty one costs 27 ms; rows differ in length, so few long tasks would leave cores idle
SECONDS_PER_LOOK: Final = 0.3
SUCCESS: Final = "_SUCCESS"
SPEC: Final = "spec.json"
ENTRIES: Final = frozenset((SPEC, SUCCESS, "runs", "trace", "_tmp", f".{SPEC}.tmp"))  # of the folder of a sweep

Watch = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep."""

    out: Path
    rows: int
    done_before: int
    statuses: Mapping[str, int]
    seconds: float
    evidence: Evidence = NOTHING  # of the rows that are ok

    def document(self) -> dict[str, Any]:
        """Return the outcome for JSON."""
        readable = {"out": str(self.out), "seconds": round(self.seconds, 3), "evidence": self.evidence.as_dict()}
        return vars(self) | readable


def sweep(
    spec: Spec,
    out: Path,
    *,
    force: bool = False,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> Sweep:
    """Run what is not done yet of a sweep. `force` replaces what is in `out`, be it this sweep or another."""
    started = time.monotonic()
    rows = spec.rows()
    folder = prepare_sweep(out, spec, force)
    done = done_runs(folder)
    left = [row for row in rows if row.run not in done]

    def look() -> None:
        if watch is not None:
            watch(count_done(folder, rows), len(rows))

    look()
    if left:
        remove(folder, [SUCCESS])
        place = Place(str(folder), spec.trace, spec.timeout / SECOND)
        try:
            with open_session(f"amcast sweep {spec.name}", master=master, settings=settings, brief=True) as session:
                run_rows(session, left, place, look)
        except KeyboardInterrupt:
            raise SweepInterrupted(count_done(folder, rows), len(rows)) from None
    finish(folder, rows)
    lines = read_runs(folder, ["status", "multicasts", "deliveries", "crashes_seen"]).to_pylist()
    statuses = Counter(line["status"] for line in lines)
    evidence = evidence_of(line for line in lines if line["status"] == OK)
    return Sweep(folder, len(rows), len(rows) - len(left), statuses, time.monotonic() - started, evidence)


def read_runs(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read the lines of a sweep, in the order of their names."""
    files = sorted((folder / "runs").glob("*.parquet"))
    schema = RUN_SCHEMA if columns is None else pa.schema([RUN_SCHEMA.field(name) for name in columns])
    tables = (pq.read_table(file, columns=columns, partitioning=None) for file in files)
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="default")


# The folder


def prepare_sweep(out: Path, spec: Spec, force: bool) -> Path:
    """Make `out` a folder that holds this sweep, as far as it is done, and no other."""
    folder = out.absolute()  # executors may work in another one
    with usable_folder(out, "a sweep") as entries:
        folder.mkdir(parents=True, exist_ok=True)
        stranger = next((entry for entry in entries if entry.name not in ENTRIES), None)
        if stranger is not None:
            raise UsageError(
                f"{out}: is not empty and is not a sweep either (it holds {stranger.name}); choose another --out"
            )
        if force:
            remove(folder, sorted(ENTRIES))
        elif entries and not same_spec(folder, spec):
            raise UsageError(
                f"{out}: holds another sweep; expected the same specification, to resume it; "
                f"use --force to replace it or choose another --out"
            )
        remove(folder, ["_tmp"])
        write_whole(folder / SPEC, json.dumps(spec.document(), indent=2) + "\n")
        (folder / "runs").mkdir(exist_ok=True)
    return folder


def same_spec(folder: Path, spec: Spec) -> bool:
    try:
        seen = json.loads((folder / SPEC).read_text())
    except (OSError, ValueError):
        return False
    asked = json.loads(json.dumps(spec.document()))
    return isinstance(seen, dict) and all(
        seen.get(name) == asked.get(name) for name in {*seen, *asked} if name not in NOT_COMPARED
    )


def remove(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        path = folder / name
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            continue
        for last in (*[False] * 50, True):  # the Java of a sweep that was killed may be at work there for a moment
            shutil.rmtree(path, ignore_errors=not last)
            if not path.exists():
                break
            time.sleep(0.1)


def done_runs(folder: Path) -> set[str]:
    with os.scandir(folder / "runs") as entries:
        return {entry.name.removesuffix(".parquet") for entry in entries if entry.name.endswith(".parquet")}


def count_done(folder: Path, rows: Sequence[Row]) -> int:
    return min(len(rows), len(done_runs(folder)))


def finish(folder: Path, rows: Sequence[Row]) -> None:
    done = done_runs(folder)
    missing = [row.run for row in rows if row.run not in done]
    if missing:
        raise AmcastError(
            f"{folder}: {len(missing)} rows have no result, the first of them {missing[0]}; the same command runs them"
        )
    remove(folder, ["_tmp"])
    (folder / SUCCESS).touch()


# The work


def run_rows(session: "SparkSession", rows: Sequence[Row], place: Place, look: Callable[[], None]) -> None:
    """Run these rows. If one kills its executor and Spark gives up, run each of the rest by itself."""
    from pyspark.errors import PySparkException

    try:
        run_job(session, rows, place, look)
    except PySparkException:
        done = done_runs(Path(place.out))
        left = [row for row in rows if row.run not in done]
        try:
            run_job(session, left, replace(place, isolated=True), look)
        except PySparkException as error:
            raise AmcastError(f"{place.out}: Spark gave up on the sweep: {first_line(error)}") from error


def run_job(session: "SparkSession", rows: Sequence[Row], place: Place, look: Callable[[], None]) -> None:
    """Run these rows in one Spark job. Raises UsageError if the folder cannot be written."""
    context = session.sparkContext
    tasks = min(len(rows), TASKS_PER_CORE * max(1, context.defaultParallelism))
    group = f"amcast sweep {uuid.uuid4().hex}"
    table = pa.table({"run": [row.run for row in rows], "config": [row.config for row in rows]})

    def collect() -> list[Any]:
        context.setJobGroup(group, "rows of a sweep", interruptOnCancel=True)
        # A shuffle in the JVM: rows that come from Python by parallelize() pass through one more process per task.
        frame = session.createDataFrame(table).repartition(tasks)
        results = frame.mapInArrow(partial(run_batches, place=place), RESULT_SCHEMA)
        return results.where(f"status = '{UNWRITABLE}'").collect()

    unwritable = called_in_background(collect, look, lambda: context.cancelJobGroup(group))
    if unwritable:
        reason = unwritable[0]["error"]
        raise UsageError(f"{place.out}: the sweep cannot be written ({reason}); the same command resumes it")


def called_in_background(
    call: Callable[[], list[Any]], look: Callable[[], None], cancel: Callable[[], None]
) -> list[Any]:
    """Call in another thread and return its result. This thread reports progress and hears Ctrl-C."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        pause = SECONDS_PER_LOOK
        try:
            while not wait((future,), pause).done:
                before = time.monotonic()
                look()
                pause = max(SECONDS_PER_LOOK, 10 * (time.monotonic() - before))
        except KeyboardInterrupt:
            cancel()
            while not wait((future,), SECONDS_PER_LOOK).done:  # again: the job may not have begun, and would run on
                cancel()
            raise
        return future.result()
