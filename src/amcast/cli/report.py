"""`amcast report`: one HTML page about a trace or a sweep."""

from typing import Annotated

import typer
from typer import Option

from amcast.cli.output import complain, progress_bar, report_console
from amcast.cli.sweep import Master, Settings, TheirColumns
from amcast.places import place_of

SOURCE = "A trace, or the folder of a sweep."
OUT = "Default: DIR-report.html, with tables and plots in the folder DIR-report."
VERDICTS = "What 'amcast verify --json' printed. Default: DIR/verdicts.json or DIR-verdicts.json, if there is one."


def report(
    source: Annotated[str, typer.Argument(metavar="DIR", help=SOURCE)],
    out: Annotated[str | None, Option(metavar="FILE.html", help=OUT)] = None,
    verdicts: Annotated[str | None, Option(metavar="FILE", help=VERDICTS)] = None,
    columns: TheirColumns = None,
    master: Master = None,
    spark_conf: Settings = None,
) -> int:
    """Write one self-contained HTML page with tables and plots; CSV and PNG beside it.

    Exit code: 0, or 3 if there is nothing to see, or the verdicts are not about it. It judges nothing itself.
    """
    from amcast.report.report import report as write_report
    from amcast.spark.session import settings_of
    from amcast.tracefile.columns import parse_columns

    theirs = None if columns is None else parse_columns(columns)
    settings = settings_of(spark_conf or (), "--spark-conf")
    with progress_bar() as bar:
        bar.add_task("measuring on Spark", total=None)
        done = write_report(
            place_of(source),
            None if out is None else place_of(out),
            verdicts=None if verdicts is None else place_of(verdicts),
            columns=theirs,
            master=master,
            settings=settings,
        )
    for note in (*done.doubts, *done.notes):
        complain(note)
    console = report_console()
    console.print(f"report in {done.page}, its tables and plots in {done.folder}")
    console.print(f"it shows {done.evidence}; {done.verified or 'not verified'}")
    return 3 if done.doubts else 0
