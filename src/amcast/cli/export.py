"""`amcast export`: a trace for other viewers, and as a picture."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from amcast.cli.output import complain
from amcast.cli.view import TRACE
from amcast.core.plural import count
from amcast.errors import UsageError

Format = Literal["perfetto", "shiviz", "svg"]
SUFFIXES = {"perfetto": ".pftrace", "shiviz": ".shiviz", "svg": ".svg"}


def export(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help=TRACE)],
    form: Annotated[Format, Option("--format", help="For ui.perfetto.dev, for ShiViz, or a picture.")],
    out: Annotated[Path | None, Option(metavar="FILE", help="Default: the name of the trace, another suffix.")] = None,
    run: Annotated[str | None, Option(metavar="NAME", help="Which run. Default: the first.")] = None,
    message: Annotated[str | None, Option(metavar="ID", help="Only what is about this message.")] = None,
    since: Annotated[str | None, Option(metavar="TIME", help="Only events from this time on, such as 1s.")] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Only events up to this time.")] = None,
) -> None:
    """Write a run for Perfetto or ShiViz, or a part of it as SVG."""
    from amcast.sim.network import nanoseconds
    from amcast.web.runs import about_message, picture_of, read_runs, run_named

    window = [None if text is None else nanoseconds(text) for text in (since, until)]
    rows = run_named(read_runs(trace, *window), run, trace)
    picture = picture_of(rows if message is None else about_message(rows, message))
    file = out or trace.with_name(trace.stem + SUFFIXES[form])
    try:
        if form == "perfetto":
            from amcast.web.perfetto import write_perfetto

            with file.open("wb") as stream:
                write_perfetto(picture, stream)
        elif form == "shiviz":
            from amcast.web.shiviz import MOST_EVENTS, PATTERN, shiviz_log

            file.write_text(shiviz_log(picture), encoding="utf-8")
            if len(picture.events) > MOST_EVENTS:
                complain(f"the first {MOST_EVENTS:,} of {len(picture.events):,} events: more are too many for ShiViz")
            print(f"its regular expression: {PATTERN}")
        else:
            from amcast.web.svg import draw_svg

            title = f"run {picture.name}" + (f", message {message}" if message is not None else "")
            file.write_text(draw_svg(picture, title), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror}); choose another with --out") from error
    print(f"{file}: {count(file.stat().st_size, 'byte')}")
