"""`amcast watch`: check a running cluster, or traces that keep arriving, on Spark."""

import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amcast.cli.output import plain_table, report_console
from amcast.core.errors import AmcastError, UsageError

if TYPE_CHECKING:
    from rich.table import Table


def watch(
    config: Annotated[Path | None, typer.Option(help="The cluster.toml of a running cluster.")] = None,
    files: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder in which traces arrive.")] = None,
    client: Annotated[str | None, typer.Option(help="Whom to be: a client in cluster.toml.")] = None,
    start: Annotated[str, typer.Option(help="earliest or latest.")] = "earliest",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 2.0,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after so long. Default: until Ctrl-C.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when all that is there now is checked.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to go on from next time.")] = None,
) -> None:
    """Check order, integrity and gaps while a cluster runs, and show how fast deliveries spread.

    Exit code 1 if anything was wrong.
    """
    if (config is None) == (files is None):
        raise UsageError("say what to watch: --config cluster.toml, or --files DIR")
    if start not in ("earliest", "latest"):
        raise UsageError(f"--start {start!r}: expected earliest or latest")
    from amcast.pipeline.session import open_session
    from amcast.pipeline.stream import watch as stream

    if config is not None:
        from amcast.service import load

        load(config)
    from rich.live import Live

    out = report_console()
    view = View(out)
    problem = ""
    with (
        tempfile.TemporaryDirectory(prefix="amcast-watch-") as scratch,
        open_session("amcast watch", settings=stream.SETTINGS) as spark,
    ):
        stopped = threading.Event()
        before = on_interrupt(stopped.set)
        if config is not None:
            options = {"config": str(config.resolve()), "start": start, **({"client": client} if client else {})}
            rows = stream.from_cluster(spark, options)
        else:
            assert files is not None
            rows = stream.from_files(spark, files)
        query = stream.start(rows, checkpoint or Path(scratch), every, config is not None, once, view.report)
        until = time.monotonic() + seconds if seconds is not None else None
        try:
            with Live(view.table(), console=out, refresh_per_second=4, transient=not out.is_terminal) as live:
                view.show = live.update if out.is_terminal else None
                while query.isActive and not stopped.wait(0.1) and (until is None or time.monotonic() < until):
                    pass
        finally:
            ended = query.exception() if not query.isActive and not stopped.is_set() else None  # Ctrl-C ends workers
            problem = str(ended).strip() if ended is not None else ""  # as long as Java runs
            query.stop()
            if before is not None:
                signal.signal(signal.SIGINT, before)
    if not out.is_terminal:
        out.print(view.table())
    if problem:
        raise AmcastError(f"the query ended: {cause(problem)}")
    out.print(f"{view.total:,} deliveries checked in {view.batches} batches: {len(view.violations)} violations")
    if view.unchecked:
        out.print(f"{view.unchecked:,} came too late to be compared with others")
    if view.violations:
        raise typer.Exit(1)


def cause(problem: str) -> str:
    """The line that says what was wrong, in what Spark says."""
    said = problem.partition("SQLSTATE")[0].strip().splitlines()
    return said[-1] if said else problem


def on_interrupt(act: Callable[[], None]) -> Any:
    """Do this at Ctrl-C, instead of Spark's handler, which would break into a call to Java. What was done before."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGINT, lambda *_: act())


class View:
    """What is on the screen."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.violations: list[Any] = []
        self.total = 0
        self.batches = 0
        self.unchecked = 0
        self.processes: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.show: Any = None

    def report(self, report: Any) -> None:
        self.batches += 1
        for row in report.rows:
            if row.kind == "process":
                self.total += row.deliveries
                before = self.processes.get(row.name, (0, 0))[0]
                self.processes[row.name] = (before + row.deliveries, row.behind)
            elif row.kind == "unchecked":
                self.unchecked += row.deliveries
            elif row.kind == "violation":
                self.violations.append(row)
                self.out.print(f"{row.name} VIOLATED in batch {report.batch}: {row.text}", style="bold red")
                self.out.print(f"  {row.rows}", soft_wrap=True)
            elif row.kind == "latency" or getattr(self.groups.get(row.name), "kind", "") != "latency":
                self.groups[row.name] = row
        if self.show is not None:
            self.show(self.table())

    def table(self) -> "Table":
        headings = ("process", "delivered", "waiting", "p50 ms", "p99 ms")
        table = plain_table(*headings, right=headings[1:])
        shown = set()
        for name in sorted(self.processes):
            delivered, waiting = self.processes[name]
            group = name.partition("/")[0]
            times = self.groups.get(group) if group not in shown else None
            shown.add(group)
            cells = [f"{times.p50:.1f}", f"{times.p99:.1f}"] if times is not None else ["", ""]
            table.add_row(name, f"{delivered:,}", f"{waiting:,}", *cells)
        latency = any(row.kind == "latency" for row in self.groups.values())
        table.caption = (
            "from a multicast to its deliveries in the group"
            if latency
            else "from the first delivery of a message anywhere to the last one in the group"
        )
        return table
