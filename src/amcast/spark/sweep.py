"""Many simulations, a row each: `spec.json`, `trace/kind=<kind>/<part>.parquet` and `runs/<part>.parquet`.

Rows are run in batches, and a batch becomes a part (`amcast.spark.row`), whose result does not depend on who runs it.
Which rows are a batch follows from the specification alone. The lines of a part are written last, so the listing of
`runs` says what is done, and the same call on the same folder runs the rest. `_SUCCESS` says that every row has its
line, and lists the parts that count; without it the sweep is unfinished.

Processes of this machine run the rows unless a Spark is asked for. Driver and executors must see the folder by the same
name: any folder on one machine, on a cluster a shared one or one in an object store.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from amcast.checks.evidence import NOTHING, Evidence
from amcast.errors import AmcastError, SweepInterrupted, UsageError
from amcast.places import Place, remove_tree
from amcast.sim.network import SECOND
from amcast.spark.processes import run_in_processes
from amcast.spark.row import OK, RESULT_SCHEMA, RUN_SCHEMA, Output, refused, run_batches
from amcast.spark.seen import evidence_of
from amcast.spark.session import is_asked_for, open_session
from amcast.spark.shipping import first_line
from amcast.spark.spec import NOT_COMPARED, Row, Spec
from amcast.tracefile.commits import (
    RUNS,
    SPEC,
    SUCCESS,
    TRACE,
    batch_of,
    first_of_each_batch,
    parts_that_count,
    records_in,
)
from amcast.tracefile.out import usable_folder, write_whole
from amcast.tracefile.reader import parquet_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE: Final = 32  # an empty one costs 27 ms; rows differ in length, so few long tasks would leave cores idle
SECONDS_PER_LOOK: Final = 0.3
MOST_BATCHES: Final = 256  # of more rows a batch is several, so a sweep has at most 511 files of a kind
ENTRIES: Final = frozenset((SPEC, SUCCESS, RUNS, TRACE, "_tmp", f".{SPEC}.tmp", f".{SUCCESS}.tmp"))  # of its folder

Watch = Callable[[int, int], None]  # rows done, rows in all
Batches = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep."""

    out: Place
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
    out: Place,
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
    batches = batches_of(rows)
    left = left_of(batches, folder)
    done_before = len(rows) - rows_in(left)

    def look() -> None:
        if watch is not None:
            watch(len(rows) - rows_in(left_of(batches, folder)), len(rows))

    look()
    if left:
        remove(folder, [SUCCESS])
        output = Output(folder, spec.trace, spec.timeout / SECOND)
        try:
            if is_asked_for(master, settings):
                with open_session(f"amcast sweep {spec.name}", master=master, settings=settings, brief=True) as session:
                    run_rows(session, left, output, look)
            else:
                run_in_processes({name: configs_of(left[name]) for name in left}, output, look)
        except KeyboardInterrupt:
            raise SweepInterrupted(len(rows) - rows_in(left_of(batches, folder)), len(rows)) from None
    finish(folder, batches)
    lines = read_runs(folder, ["status", "multicasts", "deliveries", "crashes_seen"]).to_pylist()
    statuses = Counter(line["status"] for line in lines)
    evidence = evidence_of(line for line in lines if line["status"] == OK)
    return Sweep(folder, len(rows), done_before, statuses, time.monotonic() - started, evidence)


def batches_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Deal rows into batches, named after their first row: neighbours differ little, so they go to different ones."""
    batches = -(-len(rows) // max(1, len(rows) // MOST_BATCHES))
    return {rows[number].run: list(rows[number::batches]) for number in range(batches)}


def rows_in(batches: Batches) -> int:
    return sum(map(len, batches.values()))


def configs_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.run, row.config) for row in rows]


def read_runs(folder: Place, columns: list[str] | None = None) -> pa.Table:
    """Read the lines of a sweep, in the order of their names."""
    schema = RUN_SCHEMA if columns is None else pa.schema([RUN_SCHEMA.field(name) for name in columns])
    wanted = None if columns is None else list(dict.fromkeys(("run", *columns)))
    tables = []
    for part in parts_that_count(folder):
        with parquet_file(folder / RUNS / f"{part}.parquet") as file:
            tables.append(file.read(columns=wanted))
    found = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
    return found.sort_by("run").select(schema.names) if tables else found


# The folder


def prepare_sweep(out: Place, spec: Spec, force: bool) -> Place:
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
            remove(folder, [SUCCESS, RUNS, *sorted(ENTRIES)])  # first what says that there is something
        elif entries and not same_spec(folder, spec):
            raise UsageError(
                f"{out}: holds another sweep; expected the same specification, to resume it; "
                f"use --force to replace it or choose another --out"
            )
        remove(folder, ["_tmp"])
        write_whole(folder / SPEC, json.dumps(spec.document(), indent=2) + "\n")
        (folder / RUNS).mkdir(exist_ok=True)
    return folder


def same_spec(folder: Place, spec: Spec) -> bool:
    try:
        seen = json.loads((folder / SPEC).read_text())
    except (OSError, ValueError):
        return False
    asked = json.loads(json.dumps(spec.document()))
    return isinstance(seen, dict) and all(
        seen.get(name) == asked.get(name) for name in {*seen, *asked} if name not in NOT_COMPARED
    )


def remove(folder: Place, names: Sequence[str]) -> None:
    for name in names:
        for last in (*[False] * 50, True):  # the Java of a sweep that was killed may be at work there for a moment
            try:
                remove_tree(folder / name)
                break
            except OSError:
                if last:
                    raise
                time.sleep(0.1)


def left_of(batches: Batches, folder: Place) -> dict[str, Sequence[Row]]:
    """Return the batches that have no record."""
    done = set(map(batch_of, records_in(folder)))
    return {name: rows for name, rows in batches.items() if name not in done}


def finish(folder: Place, batches: Batches) -> None:
    """Say that the sweep is complete, and remove what attempts that do not count have left."""
    left = left_of(batches, folder)
    if left:
        raise AmcastError(
            f"{folder}: {rows_in(left)} rows have no result, the first of them {next(iter(left))}; "
            f"the same command runs them"
        )
    if (folder / SUCCESS).is_file():
        return
    records = records_in(folder)
    parts = set(first_of_each_batch(records).values())
    remove(folder, ["_tmp", *(f"{RUNS}/{part}.parquet" for part in records if part not in parts)])
    files: list[Any] = list((folder / TRACE).rglob("*.parquet")) if (folder / TRACE).is_dir() else []
    for file in files:
        if file.stem not in parts:
            file.unlink()
    write_whole(folder / SUCCESS, json.dumps({"parts": sorted(parts)}) + "\n")


# The work


def run_rows(session: "SparkSession", batches: Batches, output: Output, look: Callable[[], None]) -> None:
    """Run these batches. If a row kills its executor and Spark gives up, run each of the rest by itself."""
    from pyspark.errors import PySparkException

    try:
        run_job(session, batches, output, look)
    except PySparkException:
        left = left_of(batches, output.out)
        try:
            run_job(session, left, replace(output, isolated=True), look)
        except PySparkException as error:
            raise AmcastError(f"{output.out}: Spark gave up on the sweep: {first_line(error)}") from error


def run_job(session: "SparkSession", batches: Batches, output: Output, look: Callable[[], None]) -> None:
    """Run these batches in one Spark job. Raises UsageError if the folder cannot be written."""
    context = session.sparkContext
    tasks = min(len(batches), TASKS_PER_CORE * max(1, context.defaultParallelism))
    group = f"amcast sweep {uuid.uuid4().hex}"
    columns = {
        "batch": list(batches),
        "runs": [[row.run for row in rows] for rows in batches.values()],
        "configs": [[row.config for row in rows] for rows in batches.values()],
    }

    def collect() -> list[Any]:
        context.setJobGroup(group, "rows of a sweep", interruptOnCancel=True)
        # A shuffle in the JVM: rows that come from Python by parallelize() pass through one more process per task.
        frame = session.createDataFrame(pa.table(columns)).repartition(tasks)
        results = frame.mapInArrow(partial(run_batches, output=output), RESULT_SCHEMA)
        return results.where("error is not null").collect()

    unwritable = called_in_background(collect, look, lambda: context.cancelJobGroup(group))
    if unwritable:
        raise refused(output, unwritable[0]["error"])


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
