"""`amcast verify`: judge a recorded run."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from amcast.cli.output import plain_table, print_json, progress_bar, refuse_file, report_console
from amcast.cli.sweep import AnyTrace, Master, Settings, TheirColumns
from amcast.core.plural import count
from amcast.errors import UsageError
from amcast.places import Place, is_uri, one_line, place_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from amcast.checks import Verdict
    from amcast.core.trace import Event
    from amcast.tracefile.columns import Columns

MOST_COUNTEREXAMPLES = 5
MOST_ROWS = 20
STYLES = {"ok": "green", "violated": "bold red", "unknown": "yellow"}
PROPERTIES = "Such as order,integrity. Default: all that atomic multicast promises."
ENGINE = "Where to check: in this process, on Spark, or by events, cores and free memory."
BLACK_BOX = "Never look at timestamps, not even to check and use them."
OUT = "Write verdicts.json there, the same as tables (Parquet), and a picture of a violation."


def verify(
    trace: AnyTrace,
    properties: Annotated[str | None, Option(metavar="LIST", help=PROPERTIES)] = None,
    engine: Annotated[Literal["memory", "spark", "auto"], Option(help=ENGINE)] = "auto",
    columns: TheirColumns = None,
    black_box: Annotated[bool, Option("--black-box", help=BLACK_BOX)] = False,
    master: Master = None,
    spark_conf: Settings = None,
    out: Annotated[str | None, Option(metavar="DIR", help=OUT)] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Check a trace, and say what each verdict rests on.

    Exit code: 0 all ok, 1 some violated, 2 unusable input, 3 none violated but some unknown.
    """
    from amcast.checks import exit_code, known_properties
    from amcast.checks.verdict_file import digest_of
    from amcast.tracefile.columns import parse_columns
    from amcast.tracefile.size import spark_pays

    asked = None if properties is None else known_properties([name.strip() for name in properties.split(",")])
    theirs = None if columns is None else parse_columns(columns)
    folder = None if out is None else place_of(out)
    refuse_file(folder)
    place = trace if any(sign in trace for sign in "*?[") and not is_uri(trace) else place_of(trace)
    # Tells later whether the verdicts are still about what the trace holds. It is taken before that is judged: verdicts
    # on a trace that changes meanwhile are then of another one.
    digest = digest_of(place, theirs) if as_json or out is not None else None
    if engine == "spark" or (engine == "auto" and spark_pays(trace)):
        verdicts = judge_on_spark(trace, asked, theirs, black_box, master, spark_conf or [])
    else:
        verdicts = judge(place, asked, theirs, black_box)
    rows = [verdict.as_dict() for verdict in verdicts]
    document = {"trace": trace, "digest": digest, "properties": asked, "verdicts": rows}
    if folder is not None:
        keep(folder, trace, verdicts, theirs, document)
    if as_json:
        print_json(document)
    else:
        print_verdicts(report_console(), verdicts)
    return exit_code(verdicts)


def keep(out: Place, trace: str, verdicts: "Sequence[Verdict]", columns: "Columns | None", said: object) -> None:
    """Write the verdicts and, if there is a violation, its picture; that of an earlier time is removed.

    `verdicts.json` goes first and comes last: whoever finds it finds the rest as well.
    """
    from amcast.tracefile import read_events
    from amcast.tracefile.out import write_whole
    from amcast.tracefile.size import is_large
    from amcast.verify.tables import tables_of_verdicts
    from amcast.web.svg import draw_violation

    first = next((verdict for verdict in verdicts if verdict.counterexample), None)
    picture = out / "violation.svg"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "verdicts.json").unlink(missing_ok=True)
        for name, table in tables_of_verdicts(verdicts).items():
            write_whole(out / name, table)
        if first is None:
            picture.unlink(missing_ok=True)
        else:
            title = f"{first.property} in run {first.run}: {first.reason}"
            again = () if is_large(trace) else read_events(trace, columns)
            write_whole(picture, draw_violation(title, first.counterexample, again))
        write_whole(out / "verdicts.json", json.dumps(said, indent=2))
    except OSError as error:
        raise UsageError(f"{error.filename or out}: cannot be written ({one_line(error)}); choose another") from error


def judge_on_spark(
    trace: str,
    properties: Sequence[str] | None,
    columns: "Columns | None",
    black_box: bool,
    master: str | None,
    spark_conf: Sequence[str],
) -> "list[Verdict]":
    """Return the verdicts of the Spark engine, which are those of the other one."""
    from amcast.spark.session import open_session, settings_of
    from amcast.spark.tables import refuse_what_is_no_trace
    from amcast.spark.verify import verify_trace

    settings = settings_of(spark_conf, "--spark-conf")
    refuse_what_is_no_trace(trace, columns)
    with progress_bar() as bar:
        task = bar.add_task("starting Spark", total=None)

        def watch(step: str) -> None:
            bar.update(task, description=step)

        with open_session("amcast verify", master=master, settings=settings, brief=True) as spark:
            return verify_trace(spark, trace, properties, columns=columns, trust_nothing=black_box, watch=watch)


def judge(
    trace: str | Place,
    properties: Sequence[str] | None = None,
    columns: "Columns | None" = None,
    black_box: bool = False,
) -> "list[Verdict]":
    """Return the verdicts on a trace in a file or folder, found in this process."""
    from amcast.verify import verify_trace

    with progress_bar() as bar:
        task = bar.add_task("opening the trace", total=None)

        def watch(step: str) -> None:
            bar.update(task, description=step)

        return verify_trace(trace, properties, columns=columns, trust_nothing=black_box, watch=watch)


def print_verdicts(console: "Console", verdicts: "Sequence[Verdict]") -> None:
    """Print a line per property, then the counter-examples."""
    console.print(verdict_table(verdicts))
    violated = [verdict for verdict in verdicts if verdict.counterexample]
    for verdict in violated[:MOST_COUNTEREXAMPLES]:
        console.print()
        console.print(f"{verdict.property} in run {verdict.run}, counter-example:", style="bold")
        console.print(row_table(verdict.counterexample[:MOST_ROWS]))
        more = len(verdict.counterexample) - MOST_ROWS
        if more > 0:
            console.print(f"and {count(more, 'more row')}; --json shows all")
    more = len(violated) - MOST_COUNTEREXAMPLES
    if more > 0:
        console.print(f"\nand {count(more, 'more counter-example')}; --json shows all")


def verdict_table(verdicts: "Sequence[Verdict]") -> "Table":
    from rich.text import Text

    table = plain_table("property", "verdict", "")
    for name in dict.fromkeys(verdict.property for verdict in verdicts):
        of_runs = [verdict for verdict in verdicts if verdict.property == name]
        worst = max(of_runs, key=lambda verdict: ("ok", "unknown", "violated").index(verdict.status))
        reason = worst.reason
        if len(of_runs) > 1 and reason:
            reason = f"run {worst.run}: {reason}"
        table.add_row(name, Text(tally(of_runs), style=STYLES[worst.status]), Text(reason or rests_on(of_runs)))
    return table


def tally(verdicts: "Sequence[Verdict]") -> str:
    """Return `ok`, or over many runs `98 ok, 2 unknown`."""
    if len(verdicts) == 1:
        return verdicts[0].status
    found = Counter(verdict.status for verdict in verdicts)
    return ", ".join(f"{found[status]:,} {status}" for status in ("violated", "unknown", "ok") if found[status])


def rests_on(verdicts: "Sequence[Verdict]") -> str:
    """Say what was seen in all runs and, of a single one, what was measured."""
    from amcast.checks.evidence import total

    figure = verdicts[0].figure if len(verdicts) == 1 else None
    measured = [f"{name} {value:g}" for name, value in (figure or {}).items()]
    return ", ".join([str(total(verdict.evidence for verdict in verdicts)), *measured])


def row_table(rows: "Sequence[Event]") -> "Table":
    """Return the rows as they are in the trace, without the columns that none of them uses."""
    found = [row.row() for row in rows]
    names = [name for name in dict.fromkeys(name for row in found for name in row) if name != "run"]
    table = plain_table(*names, right=("seq", "time", "size"))
    for row in found:
        table.add_row(*(cell(row.get(name)) for name in names))
    return table


def cell(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
