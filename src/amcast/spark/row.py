"""One row of a sweep, run where an executor runs it: the simulation, its trace and its line in `runs`.

A row writes under a name of its own in `_tmp` and gives its files their real names when they are complete: first the
trace, `end` last of it, then `runs/<run>.parquet`. So a row whose line is there is done, and whatever a killed process
leaves behind is replaced by the same content when the row is run again.

Rows run in the process of the executor. When that process dies of one (a crash, no memory, a loop that never ends and
is cut short by the watchdog), Spark tries the task again, and from then on each of its rows gets a process of its own.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.core.trace import KINDS, Event
from amcast.errors import OutOfTime, TraceError, UsageError
from amcast.sim.network import SECOND
from amcast.sim.settings import LARGEST, SETTINGS, Kind, Setting
from amcast.sim.simulation import Simulation
from amcast.sim.steady import Steady
from amcast.sim.summary import Latency, Samples, Summary, SummaryRecorder
from amcast.sim.unfinished import is_done
from amcast.sim.world import World
from amcast.spark.spec import simulation_of
from amcast.tracefile import ParquetRecorder

EVENTS_PER_LOOK: Final = 20_000  # between two looks at the clock on the wall
GRACE: Final = 30.0  # seconds beyond its time-out after which a process that does not look at the clock is killed
CANNOT_WRITE: Final = 73  # exit code of a child, EX_CANTCREAT
LATENCIES: Final = ("p50", "p95", "p99", "max", "mean")
TO: Final = ("first", "last", "complete", "optimistic", "own")  # what latencies are measured to, see `LineRecorder`

OK: Final = "ok"  # all was delivered
STALLED: Final = "stalled"  # the run came to rest with something undelivered
REFUSED: Final = "refused"  # there is no such simulation
EMPTY: Final = "empty"  # nothing was delivered, nor had to be
FAILED: Final = "failed"  # an exception, such as a violated invariant
TIMEOUT: Final = "timeout"
CRASHED: Final = "crashed"  # the process died
STATUSES: Final = (OK, STALLED, EMPTY, REFUSED, FAILED, TIMEOUT, CRASHED)
UNWRITABLE: Final = "unwritable"  # of no row: the sweep cannot go on


def type_of(setting: Setting) -> pa.DataType:
    """Return the type of the column of a setting."""
    if setting.kind is Kind.COUNT:
        return pa.int32() if setting.most <= LARGEST else pa.int64()
    return {
        Kind.TIME: pa.int64(),
        Kind.RATE: pa.float64(),
        Kind.FLAG: pa.bool_(),
        Kind.CRASHES: pa.list_(pa.string()),
    }.get(setting.kind, pa.string())


COUNTS: Final = ("events", "deepest_inbox", "multicasts", "delivered_messages", "deliveries")
RECOVERY: Final = pa.struct(
    [(name, pa.string()) for name in ("process", "group")]
    + [(name, pa.float64()) for name in ("crash_ms", "recovery_ms")]
)
RUN_SCHEMA: Final = pa.schema(
    [
        ("run", pa.string()),
        *((setting.column, type_of(setting)) for setting in SETTINGS.values()),
        ("status", pa.string()),
        ("error", pa.string()),
        *((name, pa.int64()) for name in COUNTS),
        ("virtual_ms", pa.float64()),
        ("messages_per_second", pa.float64()),
        ("transactions_per_second", pa.float64()),  # that a server delivers on average, see `sim/steady.py`
        ("delta_ms", pa.float64()),
        *((f"{to}_samples", pa.int64()) for to in TO),
        *((f"{to}_{unit}_{name}", pa.float64()) for to in TO for unit in ("ms", "delta") for name in LATENCIES),
        ("mistakes", pa.float64()),
        ("crashes_seen", pa.int32()),
        ("leader_changes", pa.int32()),
        ("recoveries", pa.list_(RECOVERY)),
        ("wall_s", pa.float64()),
    ]
)
RESULT_SCHEMA: Final = "run string, status string, error string"


@dataclass(frozen=True)
class Place:
    """Where a sweep writes and how."""

    out: str
    trace: str = "deliveries"
    timeout: float | None = None  # seconds on the wall
    isolated: bool = False  # every row in a process of its own

    def line_of(self, run: str) -> Path:
        return Path(self.out, "runs", f"{run}.parquet")


class LineRecorder(SummaryRecorder):
    """Beside the latency to the first and to the last delivery in each group, that of whole messages.

    A message is complete when it was first delivered in the last of its groups: what its client waits for, but for the
    way back. Where servers multicast, `own` is what each waits for: until it has delivered its message itself.
    """

    def __init__(self, full: bool = False, steady: Steady | None = None) -> None:
        super().__init__(full)
        self.steady = steady
        self.complete = Samples()
        self._left: dict[str | None, tuple[int, set[str | None]]] = {}  # message -> when it was multicast, groups

    def record(self, event: Event) -> None:
        super().record(event)
        if self.steady is not None:
            self.steady.record(event)
        if event.kind == "deliver":
            found = self._left.get(event.message)
            if found is not None and event.group in found[1]:
                found[1].remove(event.group)
                if not found[1]:
                    self.complete.add((event.time or 0) - found[0])
                    del self._left[event.message]
        elif event.kind == "multicast":
            self._left[event.message] = (event.time or 0, set(event.dest or ()))


def run_batches(batches: Iterable[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls: columns `run` and `config` in, what became of each row out."""
    from pyspark import TaskContext

    task = TaskContext.get()
    isolated = place.isolated or (task is not None and task.attemptNumber() > 0)
    for batch in batches:
        for run, config in zip(*(batch.column(name).to_pylist() for name in ("run", "config")), strict=True):
            status, error = run_row(run, config, place, isolated)
            yield pa.RecordBatch.from_pylist([{"run": run, "status": status, "error": error}])
            if status == UNWRITABLE:
                return


def run_row(run: str, config: str, place: Place, isolated: bool = False) -> tuple[str, str | None]:
    """Run a row unless it is done. Its status, which is also in its line by then, and what went wrong."""
    if place.line_of(run).exists():
        return OK, None
    try:
        if isolated:
            return run_isolated(run, config, place)
        with watchdog(place.timeout):
            return run_here(run, config, place)
    except (OSError, TraceError) as error:
        return UNWRITABLE, str(error)


def run_here(run: str, config: str, place: Place) -> tuple[str, str | None]:
    with unfinished_folder(run, place) as folder:
        line = simulate(run, simulation_of(config), place, folder)
        publish_trace(folder, run, Path(place.out, "trace"))
        write_line(line, folder, place)
        return line["status"], line["error"]


@contextlib.contextmanager
def unfinished_folder(run: str, place: Place) -> Iterator[Path]:
    folder = Path(place.out, "_tmp", f"{run}-{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_isolated(run: str, config: str, place: Place) -> tuple[str, str | None]:
    """In a child process, whose death is the fate of this row only."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else None)
    started = time.monotonic()
    child = context.Process(target=run_in_child, args=(run, config, place), daemon=True)
    child.start()
    child.join(None if place.timeout is None else place.timeout + GRACE)
    hung = child.is_alive()
    if hung:
        child.kill()
        child.join()
    if place.line_of(run).exists():
        return OK, None
    if child.exitcode == CANNOT_WRITE:
        raise TraceError(f"{place.out}: the sweep cannot be written; expected a folder with space left")
    if hung:
        status, error = TIMEOUT, f"killed: did not end within {place.timeout:g} s"
    else:
        status, error = CRASHED, death_of(child.exitcode)
    line = empty_line(run, simulation_of(config)) | {"status": status, "error": error}
    with unfinished_folder(run, place) as folder:
        write_line(line | {"wall_s": time.monotonic() - started}, folder, place)
    return status, error


def run_in_child(run: str, config: str, place: Place) -> None:
    try:
        run_here(run, config, place)
    except (OSError, TraceError):
        os._exit(CANNOT_WRITE)


def death_of(exit_code: int) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"the process of this row {how}; for want of memory perhaps"


def simulate(run: str, simulation: Simulation, place: Place, folder: Path) -> dict[str, Any]:
    """The line of a row, whatever becomes of it; its trace is left in `folder`."""
    line = empty_line(run, simulation)
    started = time.monotonic()
    steady = Steady(simulation.replicas, simulation.rounds) if simulation.rounds else None
    recorder = LineRecorder(place.trace == "full", steady)
    world = None
    try:
        world = simulation.world(recorder, run=run)
        with contextlib.ExitStack() as files:
            if place.trace != "none":
                recorder.forward_to = files.enter_context(ParquetRecorder(folder, recorder.full, part=run))
            drive(world, None if place.timeout is None else started + place.timeout)
        done = is_done(world)
        line["status"] = OK if done else STALLED
        line["error"] = None if done else f"{len(world.pending)} messages were not delivered everywhere"
    except TraceError:
        raise
    except OutOfTime as error:
        line |= {"status": TIMEOUT, "error": str(error)}
    except UsageError as error:
        line |= {"status": REFUSED, "error": str(error)}
    except Exception as error:  # a bug of the protocol or the simulator: that is what the row found out
        line |= {"status": FAILED, "error": f"{type(error).__name__}: {error}"}
    if world is not None:
        line |= {"events": int(world.events), "deepest_inbox": world.deepest_inbox}
        line |= summary_columns(recorder.summary(world.network.delta))
        line |= latency_columns("complete", recorder.complete.latency(world.network.delta))
        if steady is not None and steady.per_second is not None:
            line["transactions_per_second"] = simulation.batch * steady.per_second
            line |= latency_columns("own", steady.own.latency(world.network.delta))
        if line["status"] == OK and not line["deliveries"]:
            line |= {"status": EMPTY, "error": "nothing was delivered: the run is too short for a message"}
    line["wall_s"] = time.monotonic() - started
    return line


def drive(world: World, deadline: float | None) -> None:
    world.begin()
    while world.run_for(EVENTS_PER_LOOK):
        if deadline is not None and time.monotonic() > deadline:
            raise OutOfTime(f"not over after {int(world.now) / SECOND:.3f} s of virtual time")
    world.end()


@contextlib.contextmanager
def watchdog(timeout: float | None) -> Iterator[None]:
    """Ends this process when the row neither ends nor looks at the clock: compiled code sees no signal."""
    if timeout is None:
        yield
        return
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(timeout + GRACE, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def publish_trace(folder: Path, run: str, trace: Path) -> None:
    """Each file gets its real name, `end` last."""
    for kind in KINDS:
        file = folder / f"kind={kind}" / f"{run}.parquet"
        if file.exists():
            (trace / f"kind={kind}").mkdir(parents=True, exist_ok=True)
            os.replace(file, trace / f"kind={kind}" / file.name)


def write_line(line: dict[str, Any], folder: Path, place: Place) -> None:
    final = place.line_of(line["run"])
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "line.parquet"
    pq.write_table(pa.Table.from_pylist([line], RUN_SCHEMA), unfinished, compression="zstd")
    os.replace(unfinished, final)


def empty_line(run: str, simulation: Simulation) -> dict[str, Any]:
    """The configuration; what the run will say is null."""
    line = {**dict.fromkeys(RUN_SCHEMA.names), **simulation.columns(), "run": run}
    return line | {"clients": 0} if simulation.rounds else line  # with rounds, servers multicast


def summary_columns(summary: Summary) -> dict[str, Any]:
    """A summary as the columns of a line."""
    same = ("multicasts", "delivered_messages", "deliveries", "messages_per_second", "delta_ms", "leader_changes")
    return {
        **{name: getattr(summary, name) for name in (*same, "mistakes")},
        "virtual_ms": summary.duration_ms,
        "crashes_seen": summary.crashes,
        "recoveries": [asdict(recovery) for recovery in summary.recoveries],
        **latency_columns("first", summary.first_delivery),
        **latency_columns("optimistic", summary.optimistic),
        **latency_columns("last", summary.last_delivery),
    }


def latency_columns(to: str, latency: Latency | None) -> dict[str, Any]:
    if latency is None:
        return {}
    found: dict[str, Any] = {f"{to}_samples": latency.samples}
    for unit in ("ms", "delta"):
        percentiles = asdict(getattr(latency, unit))
        found |= {f"{to}_{unit}_{name}": percentiles[name] for name in LATENCIES}
    return found
