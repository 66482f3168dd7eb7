"""`amcast demo`: the whole house in one command, told as a story.

A cluster of real processes moves money between its partitions. A leader is killed, a group is restarted one by one,
all processes are killed at once and come back. Then the books must balance, and Spark verifies all deliveries.
"""

import math
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.output import complain, progress_bar, report_console
from amcast.errors import AmcastError, UsageError
from amcast.installed import remedy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from amcast.apps.teller import Takings
    from amcast.checks import Verdict
    from amcast.core.trace import Event
    from amcast.local.trial import Trial
    from amcast.runtime.config import Member

RATE = 150.0  # transfers per second
CALM = 2.0  # seconds between steps, in which there is something to see
DEADLINE = 60.0  # of a transfer: all nodes may take long to come back where other programs run
SECONDS_TO_ELECT = 60.0
LOOK_EVERY = 0.1
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


class Story:
    """What happens to the cluster while money moves: one line for each step says what it shows."""

    def __init__(self, trial: "Trial", say: Callable[[str], None], step: bool) -> None:
        self.trial = trial
        self.say = say
        self.step = step
        self.happened: list[tuple[float, str]] = []
        self.began = time.monotonic()

    def tell(self) -> None:
        self.chapter("kill -9 the leader of g0: the others elect one of them, and it comes back from its disk")
        self.kill_a_leader()
        self.chapter("a rolling restart of g1: a leader that is asked to stop hands over, and nobody waits")
        self.restart_one_by_one()
        self.chapter("kill -9 all nine processes at once: what was acknowledged is on their disks")
        self.kill_all()
        self.chapter("stop the load, and let all replicas catch up")

    def chapter(self, text: str) -> None:
        if self.step:
            self.say(f"Enter: {text}")
            sys.stdin.readline()
        else:
            time.sleep(CALM)
            self.say(text)

    def note(self, what: str) -> None:
        self.happened.append((time.monotonic() - self.began, what))

    def kill_a_leader(self) -> None:
        victim = self.trial.leader(0)
        began = time.monotonic()
        self.trial.kill(victim)
        self.note(f"{victim.name}, leader of g0, killed")
        successor = self.wait_for_leader(victim)
        self.say(f"  {victim.name} is dead, {successor} leads after {time.monotonic() - began:.1f} s")
        self.trial.start(victim)
        self.note(f"{victim.name} is back")

    def wait_for_leader(self, but: "Member") -> str:
        """Return who leads a group now that this one does not."""
        end = time.monotonic() + SECONDS_TO_ELECT
        while time.monotonic() < end:
            for name, status in self.trial.statuses().items():
                if name.startswith(f"g{but.group}/") and name != but.name and status.get("leads") is True:
                    return name
            time.sleep(LOOK_EVERY)
        raise AmcastError(
            f"g{but.group} has no leader after {SECONDS_TO_ELECT:.0f} s; see {self.trial.folder / 'logs'}"
        )

    def restart_one_by_one(self) -> None:
        members = [member for member in self.trial.config.members if member.group == 1]
        for member in members:
            self.trial.stop(member)
            self.trial.start(member)
        self.note("g1 restarted, one by one")

    def kill_all(self) -> None:
        members = self.trial.inside()
        began = time.monotonic()
        self.trial.kill(*members)
        self.note("all killed")
        self.trial.start(*members)
        self.note("all are back")
        self.say(f"  all nine serve again after {time.monotonic() - began:.1f} s")


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For cluster, trace and report; replaced.")] = Path("demo"),
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter before each step.")] = False,
) -> int:
    """Run a bank on a cluster, break it, check the books, verify on Spark. Exit code 0 if all is well."""
    from amcast.local.trial import Trial
    from amcast.tracefile import read_events

    clear(out)
    console = report_console()
    with progress_bar("{task.fields[facts]}") as bar:
        task = bar.add_task("", total=None, facts="")
        steps = 0

        def say(text: str) -> None:
            nonlocal steps
            steps += not text.startswith(" ")
            (console if bar.disable else bar.console).print(text if text.startswith(" ") else f"{steps}. {text}")

        say("start nine processes: 3 groups of 3, mutual TLS, every record synced to disk before it counts")
        with Trial(out / "cluster") as trial:
            say("move money between partitions: a transfer is one multicast to the groups of both accounts")
            story = Story(trial, say, step)
            takings = under_load(trial, story, bar, task)
            trial.finish(out / "trace")
    show(console, takings, story.happened)
    problems = check_books(console, trial, takings, list(read_events(out / "trace")))
    verdicts = verify_and_report(console, out / "trace")
    console.print(f"Start the cluster again with: amcast cluster up {out / 'cluster'}")
    return outcome(problems, verdicts)


def under_load(trial: "Trial", story: Story, bar: "Progress", task: "TaskID") -> "Takings":
    """Move money until the story is told, and return what came of it."""
    from amcast.apps import teller

    def progress(now: float, takings: "Takings", under_way: int) -> None:
        bar.update(task, facts=f"{takings.done:,} transfers, {under_way} under way")

    client = trial.client(deadline=DEADLINE)
    return teller.run(client, 0.0, RATE, actions=[(0.0, story.tell)], progress=progress)


def check_books(console: "Console", trial: "Trial", takings: "Takings", events: "list[Event]") -> list[str]:
    """Print whether the replicas delivered what the transfers imply, and return all that is wrong."""
    from amcast.apps import teller
    from amcast.local.trial import problems_of

    problems, evidence = problems_of(trial.config, events, trial.killed, [takings], may_fail=trial.quorum_lost)
    sizes = [len(trial.config.group(g)) for g in trial.config.groups]
    implied = sum(sizes[g] for dest in takings.acknowledged.values() for g in dest)
    work = f"{takings.done:,} transfers, {teller.ACCOUNTS} openings and 1 total"
    if trial.not_level:
        problems.insert(0, f"not all replicas caught up: {trial.not_level}; see {trial.folder / 'logs'}")
    if takings.unknown and not trial.quorum_lost:
        problems.append(f"{takings.unknown} transfers have an unknown outcome")
    if takings.total != takings.expected:
        problems.append(f"the bank holds {takings.total:,}, expected {takings.expected:,}")
    most = implied + len(takings.undecided) * sum(sizes)  # nobody was told of these: delivered everywhere, or nowhere
    if not implied <= evidence.deliveries <= most or evidence.replicas != sum(sizes):
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
    console.print()
    latencies = sorted(took for _, took in takings.latencies) or [math.nan]
    p50, p99 = statistics.median(latencies) * 1000, latencies[int(len(latencies) * 0.99)] * 1000
    console.print(
        f"{takings.done:,} transfers between partitions, p50 {p50:.1f} ms, p99 {p99:,.0f} ms; "
        f"{takings.failed:,} refused while all were down, {takings.unknown} unknown"
    )
    seconds = max([when + took for when, took in takings.latencies] + [when for when, _ in happened], default=1.0)
    bins = [0] * WIDTH
    for when, took in takings.latencies:
        bins[min(WIDTH - 1, int((when + took) / seconds * WIDTH))] += 1
    top = max(bins) or 1
    console.print("".join(MARKS[-(-count * (len(MARKS) - 1) // top)] for count in bins), style="cyan")
    for when, what in happened:
        place = min(WIDTH - 1, int(when / seconds * WIDTH))
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
