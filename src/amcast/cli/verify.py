"""`amcast verify`: judge a recorded run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.output import count, plain_table, print_json, progress_bar, report_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from amcast.check import Verdict
    from amcast.core.trace import Event

MOST_COUNTEREXAMPLES = 5
MOST_ROWS = 20
EVENTS_PER_LOOK = 4_096
STYLES = {"ok": "green", "violated": "bold red", "unknown": "yellow"}


def verify(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A Parquet folder, or a .parquet, .jsonl or .csv file.")
    ],
    properties: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Such as order,integrity. Default: all that atomic multicast promises."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Check a trace. Exit code: 0 all ok, 1 some violated, 2 unusable input, 3 none violated but some unknown."""
    from amcast.check import exit_code, known_properties

    asked = None if properties is None else known_properties([name.strip() for name in properties.split(",")])
    verdicts = judge(trace, asked)
    if as_json:
        print_json({"trace": str(trace), "verdicts": [verdict.as_dict() for verdict in verdicts]})
    else:
        print_verdicts(report_console(), verdicts)
    return exit_code(verdicts)


def judge(trace: Path, properties: Sequence[str] | None = None) -> "list[Verdict]":
    """The verdicts on a trace in a file or folder, with a bar while it is read."""
    from amcast.check import check
    from amcast.tracefile import read_events

    with progress_bar("{task.completed:,.0f} events") as bar:
        task = bar.add_task("reading the trace", total=None)

        def counted(events: "Iterable[Event]") -> "Iterator[Event]":
            for number, event in enumerate(events, start=1):
                if number % EVENTS_PER_LOOK == 0:
                    bar.update(task, completed=number)
                yield event
            bar.update(task, description="checking")

        return check(counted(read_events(trace)), properties)


def print_verdicts(console: "Console", verdicts: "Sequence[Verdict]") -> None:
    """A line per property, then the counter-examples."""
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
        table.add_row(name, Text(tally(of_runs), style=STYLES[worst.status]), Text(reason or figure(worst)))
    return table


def tally(verdicts: "Sequence[Verdict]") -> str:
    """`ok`, or over many runs `98 ok, 2 unknown`."""
    if len(verdicts) == 1:
        return verdicts[0].status
    found = Counter(verdict.status for verdict in verdicts)
    return ", ".join(f"{found[status]:,} {status}" for status in ("violated", "unknown", "ok") if found[status])


def figure(verdict: "Verdict") -> str:
    return ", ".join(f"{name} {value:g}" for name, value in (verdict.figure or {}).items())


def row_table(rows: "Sequence[Event]") -> "Table":
    """The rows as they are in the trace, without the columns that none of them uses."""
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
