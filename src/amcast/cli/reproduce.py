"""`amcast reproduce`: the figures of the papers, run anew, with the papers' claims beside what is measured."""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from amcast.cli.output import complain, plain_table, print_json, refuse_file, report_console, three_digits
from amcast.cli.sweep import Master, Settings, rows_bar, terminated_as_interrupted
from amcast.core.plural import count
from amcast.errors import SweepInterrupted
from amcast.places import place_of

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.report.figure import FigureClaim
    from amcast.report.reproduce import Measured, Reproduced

SCALE = "small: minutes on 2 cores; paper: as many clients as there."
STYLES = {"met": "green", "not met": "bold red", "differs": "yellow", "not measured": "yellow"}


def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(metavar="[FIGURE]...", help="Default: all of them.")] = None,
    scale: Annotated[Literal["small", "paper"], Option(help=SCALE)] = "small",
    out: Annotated[str, Option(metavar="DIR", help="For plots, tables and runs.")] = "reproduced",
    show_list: Annotated[bool, Option("--list", help="List the figures and exit.")] = False,
    master: Master = None,
    spark_conf: Settings = None,
    force: Annotated[bool, Option("--force", help="Run again what is in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run figures of the papers on Spark: a plot, the points as CSV, and the claims beside what is measured.

    Exit code: 0 all claims are met or known to differ, 1 some are not met or runs failed, 3 some were not measured.
    """
    from amcast.report.figure import figure_names
    from amcast.report.reproduce import reproduce as run_figures
    from amcast.spark.session import settings_of

    if show_list:
        return print_list()
    settings = settings_of(spark_conf or (), "--spark-conf")
    folder = place_of(out)
    refuse_file(folder)
    names = list(dict.fromkeys(figures or figure_names()))
    try:
        with terminated_as_interrupted() as stop, rows_bar() as watch_for:
            done = run_figures(names, scale, folder, master=master, settings=settings, force=force, watch=watch_for)
    except KeyboardInterrupt as interrupt:
        what = f"in a sweep of which {interrupt}" if isinstance(interrupt, SweepInterrupted) else "before it began"
        complain(f"interrupted {what}; the same command runs the rest")
        return 128 + (stop or [signal.SIGINT])[0]
    if as_json:
        print_json([document(figure) for figure in done])
    else:
        console = report_console()
        for figure in done:
            print_figure(console, figure)
    for figure in done:
        for problem in problems(figure):
            complain(problem)
    return exit_code(done)


def exit_code(done: Sequence["Reproduced"]) -> int:
    from amcast.report.reproduce import NOT_MEASURED, NOT_MET

    if any(figure.not_ok or figure.claims_that_are(NOT_MET) for figure in done):
        return 1
    seen = [figure.evidence and figure.claims and not figure.claims_that_are(NOT_MEASURED) for figure in done]
    return 0 if seen and all(seen) else 3


def problems(done: "Reproduced") -> Iterator[str]:
    """Say why a figure is not reproduced, a line each."""
    from amcast.report.reproduce import NOT_MEASURED, NOT_MET

    name = done.figure.name
    if done.not_ok:
        yield f"{name}: {count(done.not_ok, 'run')} not ok: see the column status of {done.folder}/*/runs"
    if not done.evidence:
        yield f"{name}: nothing was delivered, so nothing is shown"
    if not done.figure.claims:
        yield f"{name}: has no claims, so there is nothing to compare"
    for claim in done.claims_that_are(NOT_MET):
        yield f"{name}: not met: {claim.claim.what}: {measured(claim)}; expected {expectation(claim.claim)}"
    for claim in done.claims_that_are(NOT_MEASURED):
        yield f"{name}: {claim.claim.what}: {claim.why_not}"


def print_list() -> int:
    from amcast.report.figure import figure_names, read_figure

    table = plain_table("figure", "what it shows")
    for name in figure_names():
        table.add_row(name, str(read_figure(name)["title"]))
    report_console().print(table)
    return 0


def print_figure(console: "Console", done: "Reproduced") -> None:
    from rich.text import Text

    console.print(f"{done.figure.title} ({done.scale} scale)", style="bold")
    table = plain_table("claim", "paper", "expected", "measured", "", right=("expected", "measured"))
    for claim in done.claims:
        status = Text(claim.status, style=STYLES.get(claim.status, ""))
        table.add_row(claim.claim.what, claim.claim.paper or "–", expectation(claim.claim), measured(claim), status)
    console.print(table)
    for claim in done.claims_that_are("differs"):
        console.print(f"differs: {claim.claim.what}: {claim.claim.differs}")
    for note in done.figure.notes:
        console.print(note, style="dim")
    counts = Counter(claim.status for claim in done.claims)
    tally = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    console.print(f"{count(len(done.claims), 'claim')}: {tally}; from {rests_on(done)}")
    drawn = f"{done.picture} and the points" if done.rows else f"no picture; in {done.folder} the points"
    console.print(f"{drawn} and claims as CSV beside it\n")


def rests_on(done: "Reproduced") -> str:
    if done.figure.digraphs:
        return count(done.evidence.states, "digraph")
    return f"{count(done.evidence.runs, 'run')}, {done.evidence}" if done.evidence.runs < 2 else str(done.evidence)


def expectation(claim: "FigureClaim") -> str:
    """Return what is expected: a number, or bounds."""
    if not claim.compares:
        return "–"
    if claim.expected is not None:
        return f"{three_digits(claim.expected)} {claim.unit}".rstrip()
    low, high = (None if bound is None else three_digits(bound) for bound in (claim.at_least, claim.at_most))
    words = f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
    return f"{words} {claim.unit}".rstrip()


def measured(claim: "Measured") -> str:
    if claim.value is None:
        return claim.why_not
    text = f"{three_digits(claim.value)} {claim.claim.unit}"
    if claim.low is None or claim.high is None:
        return text
    return f"{text} ({three_digits(claim.low)} to {three_digits(claim.high)})"


def document(done: "Reproduced") -> dict[str, object]:
    """Return a figure for JSON."""
    return {
        "figure": done.figure.name,
        "title": done.figure.title,
        "scale": done.scale,
        "picture": str(done.picture),
        "folder": str(done.folder),
        "runs_not_ok": done.not_ok,
        "evidence": done.evidence.as_dict(),
        "claims": [claim.document() for claim in done.claims],
    }
