"""`amcast demo`: the whole house in one command.

A cluster of real processes moves money between its partitions; a leader is killed and comes back; then the books must
balance, and Spark verifies what every replica delivered.
"""

import math
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.output import complain, progress_bar, report_console
from amcast.errors import UsageError
from amcast.installed import remedy

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.apps.teller import Takings
    from amcast.checks import Verdict
    from amcast.core.trace import Event
    from amcast.local.trial import Trial

SECONDS, RATE = 12.0, 400.0
KILL_AT, RESTART_AT = 4.0, 7.0
WIDTH = 60  # of the picture of transfers over time
MOST_PROBLEMS = 5
MARKS = " ▁▂▃▄▅▆▇█"
# A session for a few seconds of work on little data: no time for compiling well, nor for many partitions.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For cluster, trace and report; replaced.")] = Path("demo"),
) -> int:
    """Run a bank on a cluster, kill a leader, check the books, verify on Spark. Exit code 0 if all is well."""
    from amcast.apps import teller
    from amcast.local.trial import Trial
    from amcast.tracefile import read_events

    clear(out)
    console = report_console()
    happened: list[tuple[float, str]] = []
    with progress_bar("{task.fields[facts]}") as bar:
        task = bar.add_task("starting 9 nodes", total=SECONDS, facts="")
        with Trial(out / "cluster") as trial:
            victim = trial.leader(0)
            began = time.monotonic()

            def note(what: str) -> None:
                happened.append((time.monotonic() - began, what))
                bar.update(task, description=what)

            def kill() -> None:
                trial.kill(victim)
                note(f"{victim.name}, leader of g0, killed")

            def restart() -> None:
                trial.start(victim)
                note(f"{victim.name} is back")

            def progress(now: float, takings: "Takings", under_way: int) -> None:
                facts = f"{takings.done:,} transfers, {under_way} under way"
                bar.update(task, completed=now, facts=facts)

            bar.update(task, description="moving money")
            actions = [(KILL_AT, kill), (RESTART_AT, restart)]
            client = trial.client(deadline=30.0)
            takings = teller.run(client, SECONDS, RATE, actions=actions, progress=progress)
            bar.update(task, description="catching up", facts="")
            trial.finish(out / "trace")
    show(console, takings, happened)
    problems = check_books(console, trial, takings, list(read_events(out / "trace")))
    verdicts = verify_and_report(console, out / "trace")
    console.print(f"Start the cluster again with: amcast cluster up {out / 'cluster'}")
    return outcome(problems, verdicts)


def check_books(console: "Console", trial: "Trial", takings: "Takings", events: "list[Event]") -> list[str]:
    """Print whether the replicas delivered what the transfers imply, and return all that is wrong."""
    from amcast.apps import teller
    from amcast.local.trial import problems_of

    problems, evidence = problems_of(trial.config, events, trial.killed, [takings])
    sizes = [len(members) for members in trial.config.topology.groups]
    implied = sum(sizes[g] for dest in takings.acknowledged.values() for g in dest)
    work = f"{takings.done:,} transfers, {teller.ACCOUNTS} openings and 1 total"
    if trial.not_level:
        problems.insert(0, f"not all replicas caught up: {trial.not_level}; see {trial.folder / 'logs'}")
    if takings.unknown:
        problems.append(f"{takings.unknown} transfers have an unknown outcome")
    if takings.total != takings.expected:
        problems.append(f"the bank holds {takings.total:,}, expected {takings.expected:,}")
    if (evidence.deliveries, evidence.replicas) != (implied, sum(sizes)):
        problems.append(f"{evidence}; {work} imply {implied:,} of {sum(sizes)}")
    seen = f"{evidence.replicas} of {sum(sizes)} replicas, {evidence.deliveries:,} deliveries"
    console.print(f"{seen}: {'WRONG, see below' if problems else f'as {work} imply'}", style="bold")
    console.print()
    return problems


def outcome(problems: list[str], verdicts: "list[Verdict]") -> int:
    """Say what is wrong, one line each, and return the exit code."""
    from amcast.checks import exit_code

    for problem in problems[:MOST_PROBLEMS]:
        complain(problem)
    if len(problems) > MOST_PROBLEMS:
        complain(f"and {len(problems) - MOST_PROBLEMS} more")
    return 1 if problems else exit_code(verdicts)


def clear(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if out.is_dir() and any(out.iterdir()):
        strangers = [path for path in out.iterdir() if path.name != "cluster" and not path.name.startswith("trace")]
        if strangers or not (out / "cluster" / "cluster.toml").exists():
            raise UsageError(f"{out}: holds other things than an earlier demo; choose another folder with --out")
        shutil.rmtree(out)
    elif out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; choose another folder with --out")


def show(console: "Console", takings: "Takings", happened: list[tuple[float, str]]) -> None:
    title = "White-Box: 3 groups of 3 processes on loopback, mutual TLS, every record synced to disk"
    console.print(title, style="bold")
    latencies = sorted(took for _, took in takings.latencies) or [math.nan]
    p50, p99 = statistics.median(latencies) * 1000, latencies[int(len(latencies) * 0.99)] * 1000
    console.print(
        f"{takings.done:,} transfers between partitions, p50 {p50:.1f} ms, p99 {p99:,.0f} ms; "
        f"{takings.failed} failed, {takings.unknown} with unknown outcome"
    )
    bins = [0] * WIDTH
    for when, took in takings.latencies:
        bins[min(WIDTH - 1, int((when + took) / SECONDS * WIDTH))] += 1
    top = max(bins) or 1
    console.print("".join(MARKS[-(-count * (len(MARKS) - 1) // top)] for count in bins), style="cyan")
    for when, what in happened:
        place = min(WIDTH - 1, int(when / SECONDS * WIDTH))
        console.print(" " * place + f"↑ {what}", style="red" if "killed" in what else "green")
    books = f"money in the bank: {takings.total:,} of {takings.expected:,}"
    right = takings.total == takings.expected
    verdict = "nothing lost, nothing made" if right else "WRONG"
    console.print(f"{books}: {verdict}", style="bold" if right else "red")


def verify_and_report(console: "Console", trace: Path) -> "list[Verdict]":
    """Verify on Spark; where it cannot run, verify in this process and write no report."""
    from amcast.cli.verify import judge, print_verdicts

    try:
        verdicts, page = on_spark(trace)
    except (ModuleNotFoundError, UsageError) as error:
        reason = str(error) if isinstance(error, UsageError) else remedy(error)
        if reason is None:
            raise  # a fault of ours, not of the machine
        complain(f"without Spark there is no report, and the trace is verified in this process: {reason}")
        verdicts, page = judge(trace), None
    console.print("verified" if page is None else "verified on Spark", style="bold")
    print_verdicts(console, verdicts)
    console.print()
    if page is not None:
        console.print(f"The report is in {page}: open it in a browser.")
    return verdicts


def on_spark(trace: Path) -> "tuple[list[Verdict], Path]":
    with progress_bar() as bar:
        task = bar.add_task("starting Spark", total=None)
        from amcast.report.report import report
        from amcast.spark.session import open_session
        from amcast.spark.verify import verify_trace

        with open_session("amcast demo", settings=SETTINGS) as spark:
            bar.update(task, description="verifying on Spark")
            verdicts = verify_trace(spark, str(trace.absolute()))
            bar.update(task, description="writing the report")
            done = report(trace.absolute(), verdicts=[verdict.as_dict() for verdict in verdicts])
    return verdicts, trace.with_name(done.page.name)
