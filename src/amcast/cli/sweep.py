"""`amcast sweep`: many simulations, from one file."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from amcast.cli.output import complain, duration, print_json, progress_bar, report_console
from amcast.core.plural import count
from amcast.errors import SweepInterrupted
from amcast.places import place_of

if TYPE_CHECKING:
    from amcast.spark.sweep import Sweep, Watch

SPEC = "Values, lists of them (all combinations are run), or ranges with a table \\[sample]."
MASTER = "Where Spark runs, such as spark://host:7077. Default: $AMCAST_SPARK_MASTER, or all cores of this machine."
SETTING = "A setting of Spark, such as spark.driver.memory=8g; repeatable. Also: $AMCAST_SPARK_CONF, separated by ';'."
TRACE = "A Parquet folder, or a .parquet, .jsonl or .csv file; a path, or s3://, gs://, hdfs://, file://."
COLUMNS = "Columns of another system, such as node=process,msg=message."
MOST_ERRORS = 5

AnyTrace = Annotated[str, typer.Argument(metavar="TRACE", help=TRACE)]
TheirColumns = Annotated[str | None, Option(metavar="THEIRS=OURS,…", help=COLUMNS)]
Master = Annotated[str | None, Option(metavar="URL", help=MASTER)]
Settings = Annotated[list[str] | None, Option("--spark-conf", metavar="KEY=VALUE", help=SETTING)]


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help=SPEC)],
    out: Annotated[str, Option(metavar="DIR", help="For traces and results; an unfinished sweep there is resumed.")],
    master: Master = None,
    spark_conf: Settings = None,
    force: Annotated[bool, Option("--force", help="Start anew, replacing the sweep in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run every combination of a specification. Exit code: 0 all ok, 1 some failed, 3 some neither."""
    from amcast.spark.session import settings_of
    from amcast.spark.spec import load_spec
    from amcast.spark.sweep import sweep as run_sweep

    settings = settings_of(spark_conf or (), "--spark-conf")
    asked = load_spec(spec)
    folder = place_of(out)
    try:
        with terminated_as_interrupted() as stop, rows_bar() as watch_for:
            done = run_sweep(asked, folder, force=force, master=master, settings=settings, watch=watch_for(asked.name))
    except SweepInterrupted as interrupted:
        complain(f"interrupted: {interrupted}; the same command runs the rest")
        return 128 + (stop or [signal.SIGINT])[0]
    if as_json:
        print_json(done.document())
    else:
        print_sweep(done)
    if not done.evidence:
        complain(f"no row that is ok delivered anything: the column error of {done.out}/runs says why")
    return exit_code(done)


@contextmanager
def rows_bar() -> Iterator[Callable[[str], "Watch"]]:
    """Show rows done, rate and time left, of one sweep after the other."""
    from rich.progress import TimeRemainingColumn

    with progress_bar("{task.fields[rows]}", TimeRemainingColumn()) as bar:
        waiting = bar.add_task("starting", rows="", total=None)

        def watch_for(name: str) -> "Watch":
            task = bar.add_task(name, rows="", visible=False)
            before: int | None = None

            def watch(done: int, rows: int) -> None:
                nonlocal before
                before = done if before is None else before
                speed = bar.tasks[task].speed
                text = f"{done:,}/{rows:,} rows" + (f", {speed:,.1f}/s" if speed else "")
                bar.update(task, completed=done, total=rows, rows=text, visible=before < done < rows)
                bar.update(waiting, visible=not before < done)

            return watch

        yield watch_for


@contextmanager
def terminated_as_interrupted() -> Iterator[list[int]]:
    """End the work in order at SIGTERM, as at Ctrl-C; the list holds its number then."""
    seen: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_code(done: "Sweep") -> int:
    """Return 3 also for a sweep that shows nothing, such as one without rows."""
    from amcast.spark.row import CRASHED, FAILED, OK

    if done.statuses.get(FAILED) or done.statuses.get(CRASHED):
        return 1
    return 0 if done.evidence and done.statuses.get(OK) == done.rows else 3


def print_sweep(done: "Sweep") -> None:
    from amcast.spark.row import OK
    from amcast.spark.sweep import read_runs

    console = report_console()
    table = read_runs(done.out, ["run", "status", "error"])
    problems = [row for row in table.to_pylist() if row["status"] != OK]
    for row in problems[:MOST_ERRORS]:
        console.print(f"{row['run']} {row['status']}: {row['error']}", soft_wrap=True)
    if len(problems) > MOST_ERRORS:
        console.print(f"and {len(problems) - MOST_ERRORS:,} more")
    tally = ", ".join(f"{number:,} {status}" for status, number in sorted(done.statuses.items()))
    before = f", {done.done_before:,} of them before" if done.done_before else ""
    took = duration(1000 * done.seconds)
    console.print(f"{count(done.rows, 'row')} in {done.out}: {tally}{before}; {done.evidence}; {took}", soft_wrap=True)
