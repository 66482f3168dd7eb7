"""`amcast watch`: check a running cluster, or traces that keep arriving, on Spark."""

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from amcast.cli.naming import cluster_at, clusters_like, is_cluster
from amcast.cli.output import plain_table, print_json, refuse_file, report_console
from amcast.cli.sweep import Master, Settings
from amcast.cli.verify import STYLES
from amcast.errors import UsageError
from amcast.places import is_uri, place_of

if TYPE_CHECKING:
    from rich.table import Table

    from amcast.checks.verdict import Verdict
    from amcast.spark.stream.seen import Seen
    from amcast.spark.stream.watched import Watched

SECONDS_PER_QUESTION = 5.0  # between two times that replicas are asked whether they are there
SOURCE = "A running cluster: its folder or its cluster.toml. Or a folder in which traces arrive."


def watch(
    source: Annotated[str, typer.Argument(metavar="CLUSTER|DIR", help=SOURCE, autocompletion=clusters_like)],
    client: Annotated[str | None, typer.Option(help="Which client of cluster.toml to be.")] = None,
    start: Annotated[Literal["earliest", "latest"], typer.Option(help="Where to begin.")] = "earliest",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 2.0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after so many seconds. Default: at Ctrl-C.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when all that is there now is checked.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="Keep there how far it came, to go on next time.")] = None,
    master: Master = None,
    spark_conf: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
) -> int:
    """Check order, integrity and gaps while a cluster runs, and show how fast deliveries spread.

    Exit code: 0 all ok, 1 some violated, 2 unusable input, 3 none violated but some unknown, for example because a
    replica does not answer or nothing was delivered.
    """
    at = folder_of(source)
    kept = usable(checkpoint)
    from amcast.checks.verdict import exit_code
    from amcast.spark.session import open_session, settings_of
    from amcast.spark.stream import watch as stream
    from amcast.spark.stream.watched import Watched

    settings = settings_of(spark_conf or (), "--spark-conf")
    out = report_console(sys.stderr if as_json else None)
    cluster: Watched | None = None
    if is_cluster(at):
        cluster = Watched(cluster_at(at), client)
        judge = stream.judge_of_cluster(cluster.answering(), once)
    else:
        nothing = stream.no_traces(at)
        if nothing and once:
            raise UsageError(nothing)
        if nothing:
            out.print(f"{nothing}; waiting for .jsonl files")
        judge = stream.Judge(once=once)
        parquet = stream.is_parquet(at)
    from rich.live import Live

    view = View(out, cluster)
    with (
        tempfile.TemporaryDirectory(prefix="amcast-watch-") as scratch,
        open_session("amcast watch", master=master, settings=stream.SETTINGS | settings) as spark,
    ):
        stopped = threading.Event()
        before = on_interrupt(stopped.set)
        stream.refuse_unreachable(spark, kept or scratch)
        rows = stream.from_files(spark, at) if cluster is None else cluster.rows(spark, start)
        query = stream.start(rows, judge, kept or scratch, every, view.report)
        until = time.monotonic() + seconds if seconds is not None else None
        try:
            with (
                cluster.asked_again(SECONDS_PER_QUESTION) if cluster is not None else nullcontext(),
                Live(view.table(), console=out, refresh_per_second=4, transient=not out.is_terminal) as live,
            ):
                view.show = live.update if out.is_terminal else None
                while query.isActive and not stopped.wait(0.1) and (until is None or time.monotonic() < until):
                    pass
        finally:
            ran_on = query.isActive or stopped.is_set()  # Ctrl-C ends workers as long as Java runs
            error = None if ran_on else query.exception()
            query.stop()
            if before is not None:
                signal.signal(signal.SIGINT, before)
    view.problem = stream.why_ended(once, ran_on, None if error is None else str(error))
    if cluster is None and not view.problem:
        others = stream.unread(at, parquet)
        view.problem = f"{others} came and was not read" if others else ""
    verdicts = view.verdicts(once)
    if as_json:
        print_json({"batches": view.batches, "verdicts": [verdict.as_dict() for verdict in verdicts]})
    else:
        if not out.is_terminal:
            out.print(view.table())
        view.print_end(verdicts)
    return exit_code(verdicts)


def folder_of(source: str) -> Path:
    """Return the folder or file that is named. Raises UsageError for one elsewhere: Spark itself reads what arrives."""
    place = place_of(source)
    if not isinstance(place, Path):
        raise UsageError(f"{source}: expected a cluster, or a folder of this machine in which traces arrive")
    return place


def usable(checkpoint: str | None) -> str | None:
    """Return where Spark is to write its checkpoint: a folder, or an URI that only Spark can judge."""
    if checkpoint is None or (is_uri(checkpoint) and not checkpoint.startswith("file://")):
        return checkpoint
    place = place_of(checkpoint)
    refuse_file(place)
    return str(place)


def on_interrupt(act: Callable[[], None]) -> Any:
    """Do this at Ctrl-C, instead of Spark's handler, which would break into a call to Java. Return the one before."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGINT, lambda *_: act())


class View:
    """What was seen, run by run, and how it is shown."""

    def __init__(self, out: Any, cluster: "Watched | None" = None) -> None:
        from amcast.spark.stream.seen import Seen

        self.out = out
        self.cluster = cluster
        self.batches = 0
        self.problem = ""
        self.show: Any = None
        self.runs: dict[str, Seen] = {}
        if cluster is not None:
            self.runs[cluster.config.name] = Seen(cluster.config.name, cluster.members(cluster.at_start))

    def report(self, report: Any) -> None:
        """Take what a micro-batch said, and show it."""
        from amcast.spark.stream.seen import Seen

        self.batches += 1
        for row in report.rows:
            run = row.run or ""
            self.runs.setdefault(run, Seen(run)).add(row, time.monotonic())
            if row.kind == "violation":
                self.out.print(f"{row.name} VIOLATED in batch {report.batch}: {row.text}", style="bold red")
                self.out.print(f"  {row.rows}", soft_wrap=True)
        if self.show is not None:
            self.show(self.table())

    def verdicts(self, once: bool) -> "list[Verdict]":
        """Judge every run; without any there is still the verdict that nothing was seen."""
        from amcast.spark.stream.seen import Seen

        answers = None
        if self.cluster is not None:
            answers = self.cluster.at_end(once)
            self.runs[self.cluster.config.name].group_of |= self.cluster.members(answers.ends)
        runs = list(self.runs.values()) or [Seen("")]
        now = time.monotonic()
        return [verdict for seen in runs for verdict in seen.verdicts(answers, once, self.problem, now)]

    def print_end(self, verdicts: "list[Verdict]") -> None:
        """Print what should be known besides, then a line for each verdict with what it rests on."""
        from amcast.spark.stream.seen import lines

        reasons = "; ".join(verdict.reason for verdict in verdicts)
        for seen in self.runs.values():
            for note in (note for note in seen.notes() if note not in reasons):
                self.out.print(f"run {seen.run}: {note}" if len(self.runs) > 1 else note, soft_wrap=True)
        worst = max((verdict.status for verdict in verdicts), key=list(STYLES).index)
        for line in lines(verdicts):
            self.out.print(line, style=STYLES[worst], soft_wrap=True)

    def table(self) -> "Table":
        headings = ("process", "delivered", "waiting", "p50 ms", "p99 ms")
        silent = {} if self.cluster is None else self.cluster.silences()
        table = plain_table(*headings, *[""] * bool(silent), right=headings[1:])
        for seen in self.runs.values():
            self._add_rows(table, seen, silent)
        latency = any(row.kind == "latency" for seen in self.runs.values() for row in seen.times.values())
        table.caption = (
            "from a multicast to its deliveries in the group"
            if latency
            else "from the first delivery of a message anywhere to the last one in the group"
        )
        return table

    def _add_rows(self, table: "Table", seen: "Seen", silent: Mapping[str, float]) -> None:
        shown = set()
        for name, group in sorted(seen.group_of.items()):
            times = seen.times.get(group) if group not in shown else None
            shown.add(group)
            cells = [f"{times.p50:.1f}", f"{times.p99:.1f}"] if times is not None else ["", ""]
            label = f"{name} of {seen.run}" if len(self.runs) > 1 else name
            if silent:
                cells.append(f"silent for {silent[name]:.0f} s" if name in silent else "")
            table.add_row(label, f"{seen.delivered[name]:,}", f"{seen.waiting.get(name, 0):,}", *cells)
