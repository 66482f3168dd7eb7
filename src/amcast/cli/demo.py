"""`amcast demo`: the whole house in one command. Simulate under load, crash a leader, verify on Spark, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.output import complain, progress_bar, report_console
from amcast.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.check import Verdict

PROTOCOL = "white_box"
MESSAGES = 3000
CLIENTS = 30
NETWORK = "uniform:1ms,9ms"
GROUP, LEADER, CRASH_AT = "g0", "g0/0", "1s"
WIDTH = 64  # of the picture of deliveries over time
# A session for a few seconds of work on little data: no time for compiling well, nor for many partitions.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For the trace; replaced on each run.")] = Path("demo-trace"),
) -> int:
    """Simulate White-Box under load, crash a leader, verify on Spark, write a report. Exit code 0 if all is well."""
    from rich.text import Text

    from amcast.check import exit_code
    from amcast.cli.report import in_all, incidents, latency_table, title, unfinished
    from amcast.cli.running import ready_world, run_world
    from amcast.cli.timeline import TimelineRecorder
    from amcast.lab.simulate import Crash, Simulation

    crash = Crash.parse(f"{LEADER}@{CRASH_AT}")
    simulation = Simulation(PROTOCOL, clients=CLIENTS, messages=MESSAGES, network=NETWORK, crashes=(crash,))
    recorder = TimelineRecorder(GROUP, full=True)
    world = ready_world(simulation, recorder)
    run = run_world(world, simulation, recorder, out, force=True)
    for line in unfinished(run, out):
        complain(line)
    if run.outcome == "interrupted":
        return run.exit_code

    console = report_console()
    console.print(Text(title(simulation), style="bold"))
    console.print(Text(in_all(run.summary)))
    console.print()
    console.print(latency_table(run.summary))
    console.print()
    console.print(Text(f"messages delivered in {GROUP} over time", style="bold"))
    console.print(Text(recorder.bars(WIDTH), style="cyan"))
    console.print(Text(" " * recorder.place(crash.time, WIDTH) + f"↑ {LEADER} crashes", style="red"))
    for line in incidents(run.summary):
        console.print(Text(line))
    console.print()
    verdicts = verify_and_report(console, out)
    console.print(Text(f"The trace is in {out}: every send, receive and delivery. Check it again: amcast verify {out}"))
    return exit_code(verdicts) or int(run.outcome != "quiescent")


def verify_and_report(console: "Console", trace: Path) -> "list[Verdict]":
    """On Spark; where it cannot run, the verdicts come from this process and there is no report."""
    from rich.text import Text

    from amcast.cli.verify import judge, print_verdicts

    try:
        verdicts, page = on_spark(trace)
    except (ImportError, UsageError) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("amcast"):
            raise  # a fault of ours, not of the machine
        complain(f"without Spark there is no report, and the trace is verified in this process: {error}")
        verdicts, page = judge(trace), None
    console.print(Text("verified" if page is None else "verified on Spark", style="bold"))
    print_verdicts(console, verdicts)
    console.print()
    if page is not None:
        console.print(Text(f"The report is in {page}: open it in a browser."))
    return verdicts


def on_spark(trace: Path) -> "tuple[list[Verdict], Path]":
    with progress_bar() as bar:
        task = bar.add_task("starting Spark", total=None)
        from amcast.pipeline.report import report
        from amcast.pipeline.session import open_session
        from amcast.pipeline.verify import verify_trace

        with open_session("amcast demo", settings=SETTINGS) as spark:
            bar.update(task, description="verifying on Spark")
            verdicts = verify_trace(spark, str(trace))
            bar.update(task, description="writing the report")
            done = report(trace, verdicts=[verdict.as_dict() for verdict in verdicts])
    return verdicts, done.page
