"""`amcast demo`: the whole house in one command. Simulate under load, crash a leader, verify the trace, report."""

from pathlib import Path
from typing import Annotated

import typer

from amcast.cli.output import complain, report_console

PROTOCOL = "white_box"
MESSAGES = 3000
CLIENTS = 30
NETWORK = "uniform:1ms,9ms"
GROUP, LEADER, CRASH_AT = "g0", "g0/0", "1s"
WIDTH = 64  # of the picture of deliveries over time


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For the trace; replaced on each run.")] = Path("demo-trace"),
) -> int:
    """Simulate White-Box under load, crash a leader, verify the trace and report. Exit code 0 if all is well."""
    from rich.text import Text

    from amcast.check import exit_code
    from amcast.cli.report import in_all, incidents, latency_table, title, unfinished
    from amcast.cli.running import ready_world, run_world
    from amcast.cli.timeline import TimelineRecorder
    from amcast.cli.verify import judge, print_verdicts
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
    verdicts = judge(out)

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
    print_verdicts(console, verdicts)
    console.print()
    console.print(Text(f"The trace is in {out}: every send, receive and delivery. Check it again: amcast verify {out}"))
    return exit_code(verdicts) or int(run.outcome != "quiescent")
