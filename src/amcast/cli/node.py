"""`amcast node`: one replica of a cluster, until it is told to stop."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import Cluster, ReplicaId, cluster_at
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.core.application import StateMachine

LEVELS = ("debug", "info", "warning", "error")


def node(
    cluster: Cluster,
    name: ReplicaId,
    new: Annotated[bool, typer.Option("--new", help="Its first start: the data folder is empty.")] = False,
    rejoin: Annotated[
        bool, typer.Option("--rejoin", help="Its disk is lost or damaged: start from what its group knows.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Record what it delivers, in DIR/ID.jsonl.")] = None,
    level: Annotated[str, typer.Option(help=f"What to log: {', '.join(LEVELS)}, and what is worse.")] = "info",
) -> None:
    """Run one replica of a cluster: it serves until SIGTERM or Ctrl-C."""
    from amcast.runtime.config import file_name
    from amcast.service import run_node

    if level not in LEVELS:
        raise UsageError(f"--level {level}: expected one of {', '.join(LEVELS)}")
    file = trace / f"{file_name(name)}.jsonl" if trace is not None else None
    config = cluster_at(cluster)
    run_node(config.path, name, machine_of(config.app), trace=file, level=level, new=new, rejoin=rejoin)


def machine_of(name: str) -> "Callable[[int, int], StateMachine] | None":
    """Return the state machine that a configuration names."""
    if name == "kv":
        from amcast.apps.kv import KV

        return KV
    if name == "bank":
        from amcast.apps.bank import Bank

        return Bank
    if name == "ledger":
        from amcast.apps.ledger import Ledger

        return Ledger
    return None
