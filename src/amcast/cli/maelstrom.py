"""`amcast maelstrom`: one node of a Maelstrom test, between stdin and stdout."""

import sys
from functools import partial
from typing import Annotated

import typer


def maelstrom(
    workload: Annotated[str, typer.Option(help="echo, broadcast, lin-kv, txn-list-append or kafka.")],
    delta: Annotated[int, typer.Option(min=1, max=10_000, help="How long a message takes, in milliseconds.")] = 20,
) -> None:
    """Be one node of a Maelstrom test: its messages on stdin and stdout, a log on stderr."""
    from amcast.apps.maelstrom import serve

    serve(workload, delta, sys.stdin.fileno(), sys.stdout.buffer, partial(print, file=sys.stderr, flush=True))
