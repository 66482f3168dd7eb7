"""Rows of a sweep, run where an executor or a process runs them: simulations, their trace and their lines in `runs`.

A batch of rows becomes a part (`amcast.tracefile.commits`): its files are written on this machine, and get their place
when they are complete, the lines last. So a batch whose lines are there is done, and whatever a killed process leaves
behind does not count.

Rows run in the process of the executor. When that process dies of one (a crash, no memory, a loop that never ends and
is cut short by the watchdog), the batch is tried again, and from then on each of its rows gets a process of its own.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from amcast.core.trace import KINDS, Event
from amcast.errors import OutOfTime, TraceError, UsageError
from amcast.places import Place, one_line, publish
from amcast.sim.network import SECOND
from amcast.sim.settings import LARGEST, SETTINGS, Kind, Setting
from amcast.sim.simulation import Simulation
from amcast.sim.steady import Steady
from amcast.sim.summary import Latency, Samples, Summary, SummaryRecorder
from amcast.sim.unfinished import is_done
from amcast.sim.world import World
from amcast.spark.spec import simulation_of
from amcast.tracefile import ParquetRecorder
from amcast.tracefile.commits import RUNS, TRACE, batch_of, records_in
from amcast.tracefile.schema import FILE_SCHEMA

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
RESULT_SCHEMA: Final = "batch string, error string"
RESULTS: Final = pa.schema([("batch", pa.string()), ("error", pa.string())])
LINE: Final = "line.parquet"

Config = tuple[str, str]  # the name of a run and its simulation, see `spec.config_of`
Line = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """Where a sweep writes and how."""

    out: Place
    trace: str = "deliveries"
    timeout: float | None = None  # seconds on the wall
    isolated: bool = False  # every row in a process of its own

    def has(self, batch: str) -> bool:
        """Return whether a batch is done."""
        return batch in map(batch_of, records_in(self.out))


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


def run_batches(batches: Iterable[pa.RecordBatch], output: Output) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls: columns `batch`, `runs` and `configs` in, what became of each batch out."""
    from pyspark import TaskContext

    task = TaskContext.get()
    isolated = output.isolated or (task is not None and task.attemptNumber() > 0)
    for batch in batches:
        for name, runs, configs in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            error = run_batch(name, list(zip(runs, configs, strict=True)), output, isolated)
            yield pa.RecordBatch.from_pylist([{"batch": name, "error": error}], RESULTS)
            if error is not None:
                return


def run_batch(name: str, rows: Sequence[Config], output: Output, isolated: bool = False) -> str | None:
    """Run a batch unless it is done. Return why it cannot be written, if it cannot."""
    try:
        if not output.has(name):
            with scratch_folder(output) as folder:
                part = f"{name}-{uuid.uuid4().hex[:8]}"
                lines = (run_isolated if isolated or output.isolated else run_here)(rows, part, folder, output)
                if not output.has(name):
                    commit(part, lines, folder, output)
    except (OSError, TraceError, UsageError) as error:
        return one_line(error)
    return None


def refused(output: Output, reason: str) -> UsageError:
    return UsageError(f"{output.out}: the sweep cannot be written ({reason}); the same command resumes it")


@contextlib.contextmanager
def scratch_folder(output: Output) -> Iterator[Path]:
    """Give a folder of this machine, and of the file system of the output if that is here."""
    if isinstance(output.out, Path):
        (output.out / "_tmp").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="amcast-", dir=output.out / "_tmp" if isinstance(output.out, Path) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_here(rows: Sequence[Config], part: str, folder: Path, output: Output, watched: bool = True) -> list[Line]:
    """Run rows one after the other, with one trace of all of them in `folder`.

    Who is not `watched` has a parent that kills it in time, and that tells a row which hangs from one that crashes.
    """
    with contextlib.ExitStack() as files:
        recorder = None
        if output.trace != "none":
            recorder = files.enter_context(ParquetRecorder(folder, output.trace == "full", part=part))
        lines = []
        for run, config in rows:
            with watchdog(output.timeout if watched else None):
                lines.append(simulate(run, simulation_of(config), output, recorder))
    return lines


def run_isolated(rows: Sequence[Config], part: str, folder: Path, output: Output) -> list[Line]:
    """Do the same with a process for each row, whose death is the fate of that row only."""
    lines = [run_in_a_process(row, folder / str(number), output) for number, row in enumerate(rows)]
    for kind in KINDS:
        files = [file for file in sorted(folder.glob(f"*/kind={kind}/*.parquet")) if (file.parents[1] / LINE).exists()]
        if files:
            (folder / f"kind={kind}").mkdir()
            joined = folder / f"kind={kind}" / f"{part}.parquet"
            with pq.ParquetWriter(joined, FILE_SCHEMA, compression="zstd", compression_level=1) as writer:
                for file in files:
                    with pq.ParquetFile(file) as one:
                        for group in range(one.num_row_groups):
                            writer.write_table(one.read_row_group(group))
    return lines


def run_in_a_process(row: Config, folder: Path, output: Output) -> Line:
    run, config = row
    folder.mkdir()
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else None)
    started = time.monotonic()
    child = context.Process(target=run_in_child, args=(row, folder, output), daemon=True)
    child.start()
    child.join(None if output.timeout is None else output.timeout + GRACE)
    hung = child.is_alive()
    if hung:
        child.kill()
        child.join()
    if (folder / LINE).exists():
        (line,) = pq.read_table(folder / LINE, partitioning=None).to_pylist()
        return dict(line)
    if child.exitcode == CANNOT_WRITE:
        raise TraceError(f"{folder}: cannot be written; expected a folder with space left")
    if hung:
        status, error = TIMEOUT, f"killed: did not end within {output.timeout:g} s"
    else:
        status, error = CRASHED, death_of(child.exitcode)
    wall_s = time.monotonic() - started
    return empty_line(run, simulation_of(config)) | {"status": status, "error": error, "wall_s": wall_s}


def run_in_child(row: Config, folder: Path, output: Output) -> None:
    try:
        write_lines(run_here([row], "part", folder, output, watched=False), folder / LINE)
    except (OSError, TraceError):
        os._exit(CANNOT_WRITE)


def death_of(exit_code: int) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"the process of this row {how}; for want of memory perhaps"


def simulate(run: str, simulation: Simulation, output: Output, trace: ParquetRecorder | None = None) -> Line:
    """The line of a row, whatever becomes of it; its events go to `trace`."""
    line = empty_line(run, simulation)
    started = time.monotonic()
    steady = Steady(simulation.replicas, simulation.rounds) if simulation.rounds else None
    recorder = LineRecorder(output.trace == "full", steady)
    recorder.forward_to = trace
    world = None
    try:
        world = simulation.world(recorder, run=run)
        drive(world, None if output.timeout is None else started + output.timeout)
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


def commit(part: str, lines: Sequence[Line], folder: Path, output: Output) -> None:
    """Give the files of a part their places, its lines last: from then on it counts."""
    for kind in KINDS:
        file = folder / f"kind={kind}" / f"{part}.parquet"
        if file.exists():
            publish(file, output.out / TRACE / f"kind={kind}" / file.name)
    write_lines(lines, folder / LINE)
    publish(folder / LINE, output.out / RUNS / f"{part}.parquet")


def write_lines(lines: Sequence[Line], file: Path) -> None:
    unfinished = file.with_suffix(".tmp")
    pq.write_table(pa.Table.from_pylist(list(lines), RUN_SCHEMA), unfinished, compression="zstd")
    os.replace(unfinished, file)


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
