"""`amcast metrics`: the numbers of a trace, as tables."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from amcast.cli.output import complain, duration, plain_table, print_json, progress_bar, report_console
from amcast.cli.sweep import AnyTrace, Master, Settings, TheirColumns
from amcast.core.plural import count
from amcast.places import Place, place_of

if TYPE_CHECKING:
    from rich.console import Console

    from amcast.spark.metrics import Collected

MOST_RUNS = 20  # in what is printed
ROLES = {"leader": "first delivery in a group", "follower": "last delivery in a group", "optimistic": "optimistic one"}


def metrics(
    trace: AnyTrace,
    out: Annotated[str | None, Option(metavar="DIR", help="Write the tables there, as Parquet and CSV.")] = None,
    columns: TheirColumns = None,
    bin_width: Annotated[
        str | None,
        Option(
            "--bin", metavar="TIME", help="Width of a bin of the timeline, such as 10ms. Default: 1/100 of the run."
        ),
    ] = None,
    master: Master = None,
    spark_conf: Settings = None,
    force: Annotated[bool, Option("--force", help="Replace older tables in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print all tables as one JSON document.")] = False,
) -> int:
    """Measure a trace on Spark: latency, throughput, delays, recovery, protocol messages and queues.

    Exit code: 0, or 3 if in some run nothing that was multicast was delivered by a replica.
    """
    from amcast.errors import UsageError
    from amcast.sim.network import nanoseconds
    from amcast.spark.metrics import check_out, collect_from, save
    from amcast.spark.session import settings_of
    from amcast.tracefile.columns import parse_columns

    theirs = None if columns is None else parse_columns(columns)
    settings = settings_of(spark_conf or (), "--spark-conf")
    bin_ns = None if bin_width is None else nanoseconds(bin_width)
    if bin_ns == 0:
        raise UsageError("--bin 0: expected a positive time, such as 10ms")
    folder = None if out is None else place_of(out)
    if folder is not None:
        check_out(folder, force)
    with progress_bar() as bar:
        bar.add_task("measuring on Spark", total=None)
        found = collect_from(trace, columns=theirs, bin_ns=bin_ns, master=master, settings=settings)
    if folder is not None:
        save(found.tables, folder, force)
    for note in found.notes:
        complain(note)
    if as_json:
        print_json(document(trace, folder, found))
    else:
        print_metrics(report_console(), folder, found)
    return exit_code(trace, found)


def exit_code(trace: str, found: "Collected") -> int:
    """Return 3 for a run in which nothing happened: its numbers are printed, and are no success."""
    from amcast.spark.seen import evidence_of, silences

    runs = found.tables["runs"].to_pylist()
    missing = silences(runs)
    if missing:
        seen = evidence_of(runs)
        what = f"{'; '.join(missing)} ({count(seen.multicasts, 'multicast')}, {seen})"
        complain(f"{trace}: {what}; check that the rows of all replicas and clients are in it")
    return 3 if missing else 0


def document(trace: str, out: Place | None, found: "Collected") -> dict[str, object]:
    """Return all tables for JSON."""
    from amcast.spark.seen import evidence_of

    return {
        "trace": trace,
        "evidence": evidence_of(found.tables["runs"].to_pylist()).as_dict(),
        "out": None if out is None else str(out),
        "notes": list(found.notes),
        "tables": {name: table.to_pylist() for name, table in found.tables.items()},
    }


def print_metrics(console: "Console", out: Place | None, found: "Collected") -> None:
    runs = found.tables["runs"].to_pylist()
    latency = {(row["run"], row["role"]): row for row in found.tables["latency"].to_pylist() if row["group"] is None}
    for run in runs[:MOST_RUNS]:
        console.print(f"{run['run']}: {in_all(run)}", style="bold")
        rows = [(ROLES[role], latency[run["run"], role]) for role in ROLES if (run["run"], role) in latency]
        if rows:
            numbers = ("p50", "p95", "p99", "max", "mean")
            table = plain_table(
                "latency in ms, from the multicast to the", *numbers, "p50 in δ", right=(*numbers, "p50 in δ")
            )
            for what, row in rows:
                cells = [f"{row[f'{name}_ms']:,.2f}" for name in numbers]
                table.add_row(what, *cells, "" if row["p50_delta"] is None else f"{row['p50_delta']:,.2f}")
            console.print(table)
    if len(runs) > MOST_RUNS:
        console.print(f"and {count(len(runs) - MOST_RUNS, 'more run')}")
    if out is not None:
        console.print(f"{len(found.tables)} tables in {out}, as Parquet and CSV: {', '.join(found.tables)}")


def in_all(run: dict[str, Any]) -> str:
    text = f"{count(run['multicasts'], 'message')}, {count(run['deliveries'], 'delivery', 'deliveries')}"
    if run["replicas_seen"] != run["replicas_expected"]:
        text += f" of {run['replicas_seen']:,} of {count(run['replicas_expected'], 'replica')}"
    if run["duration_ms"] is not None:
        text += f" in {duration(run['duration_ms'])}"
    if run["messages_per_second"] is not None:
        text += f": {run['messages_per_second']:,.0f} messages/s"
    return text
