"""`amcast view`: a page about a trace, or about a running cluster."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from amcast.cli.naming import clusters_like, is_cluster
from amcast.errors import UsageError

TRACE = "A Parquet folder, or a .parquet, .jsonl or .csv file."
SOURCE = f"{TRACE} Or a running cluster: its folder or its cluster.toml."
VERDICTS = "What 'amcast verify' wrote or printed with --json. Default: the trace is judged here."
CLIENT = "Where a gateway or a program tells how long things take: its --admin, or the `admin` of connect. Repeatable."
SINCE = "Only events from this time on, such as 1s."


def view(
    source: Annotated[Path, typer.Argument(metavar="TRACE|CLUSTER", help=SOURCE, autocompletion=clusters_like)],
    verdicts: Annotated[Path | None, Option(metavar="FILE", help=VERDICTS)] = None,
    since: Annotated[str | None, Option(metavar="TIME", help=SINCE)] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Only events up to this time.")] = None,
    client: Annotated[list[str] | None, Option(metavar="HOST:PORT", help=CLIENT)] = None,
    port: Annotated[int, Option(min=0, max=65535, help="On 127.0.0.1. Default: any free one.")] = 0,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Look at a trace, or at a running cluster, in a browser; until Ctrl-C."""

    def announce(url: str) -> None:
        print(f"{url}  (Ctrl-C ends it)", flush=True)
        if browser and has_screen():
            import webbrowser

            webbrowser.open(url)

    if is_cluster(source):
        from amcast.runtime.config import address_in
        from amcast.web.live import view_cluster

        given = [name for name, value in (("verdicts", verdicts), ("since", since), ("until", until)) if value]
        if given:
            raise UsageError(f"{source}: is a cluster, and --{given[0]} is for a trace; leave it out")
        view_cluster(source, port, clients=[address_in("--client", one) for one in client or ()], ready=announce)
    else:
        if client:
            raise UsageError(f"{source}: is a trace, and --client is for a cluster; leave it out")
        from amcast.sim.network import nanoseconds
        from amcast.web.view import view_trace

        window = [None if text is None else nanoseconds(text) for text in (since, until)]
        view_trace(source, port, since=window[0], until=window[1], verdicts=verdicts, ready=announce)


def has_screen() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
