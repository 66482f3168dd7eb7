"""`amcast reproduce`: the figures of the papers, run anew, with the papers' claims beside what is measured."""

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from amcast.cli.output import complain, plain_table, print_json, report_console, three_digits
from amcast.cli.sweep import Master, Settings, rows_bar, terminated_as_interrupted

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.pipeline.reproduce import Measured, Reproduced


class Scale(StrEnum):
    small = "small"
    paper = "paper"


def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(metavar="[FIGURE]...", help="Default: all of them.")] = None,
    scale: Annotated[Scale, Option(help="small: minutes on 2 cores; paper: as many clients as there.")] = Scale.small,
    out: Annotated[Path, Option(metavar="DIR", help="For plots, tables and runs.")] = Path("reproduced"),
    show_list: Annotated[bool, Option("--list", help="List the figures and exit.")] = False,
    master: Master = None,
    spark_conf: Settings = None,
    force: Annotated[bool, Option("--force", help="Run again what is in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Run figures of the papers on Spark: a plot, the points as CSV, and the claims beside what is measured."""
    from amcast.pipeline.figure import figure_names
    from amcast.pipeline.reproduce import reproduce as run_figures
    from amcast.pipeline.session import settings_of
    from amcast.pipeline.sweep import Interrupted

    if show_list:
        return print_list()
    settings = settings_of(spark_conf or (), "--spark-conf")
    names = list(dict.fromkeys(figures or figure_names()))
    try:
        with terminated_as_interrupted() as stop, rows_bar() as watch_for:
            done = run_figures(names, scale.value, out, master=master, settings=settings, force=force, watch=watch_for)
    except KeyboardInterrupt as interrupt:
        what = f"in a sweep of which {interrupt}" if isinstance(interrupt, Interrupted) else "before it began"
        complain(f"interrupted {what}; the same command runs the rest")
        return 128 + (stop or [signal.SIGINT])[0]
    if as_json:
        print_json([document(figure) for figure in done])
    else:
        console = report_console()
        for figure in done:
            print_figure(console, figure)
    return 1 if any(figure.not_ok for figure in done) else 0


def print_list() -> int:
    from amcast.pipeline.figure import figure_names, read_figure

    table = plain_table("figure", "what it shows")
    for name in figure_names():
        table.add_row(name, str(read_figure(name)["title"]))
    report_console().print(table)
    return 0


def print_figure(console: "Console", done: "Reproduced") -> None:
    from rich.text import Text

    console.print(Text(f"{done.figure.title} ({done.scale} scale)", style="bold"))
    table = plain_table("claim", "paper", "model", "measured", right=("model", "measured"))
    for claim in done.claims:
        model = claim.claim.expected
        unit = claim.claim.unit
        table.add_row(
            claim.claim.what,
            claim.claim.paper or "–",
            "–" if model is None else f"{three_digits(model)} {unit}",
            measured(claim),
        )
    console.print(table)
    for note in done.figure.notes:
        console.print(Text(note, style="dim"))
    if done.not_ok:
        console.print(f"{done.not_ok} runs were not ok: see the column status of {done.folder}/*/runs")
    console.print(f"{done.picture} and the points and claims as CSV beside it\n")


def measured(claim: "Measured") -> str:
    if claim.value is None:
        return claim.why_not
    text = f"{three_digits(claim.value)} {claim.claim.unit}"
    if claim.low is None or claim.high is None:
        return text
    return f"{text} ({three_digits(claim.low)} to {three_digits(claim.high)})"


def document(done: "Reproduced") -> dict[str, object]:
    """For JSON."""
    return {
        "figure": done.figure.name,
        "title": done.figure.title,
        "scale": done.scale,
        "picture": str(done.picture),
        "folder": str(done.folder),
        "runs_not_ok": done.not_ok,
        "claims": [claim.document() for claim in done.claims],
    }
