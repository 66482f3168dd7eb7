"""`amcast node`: one replica of a cluster, until it is told to stop."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from amcast.cli.naming import Cluster, ReplicaId, cluster_at
from amcast.cli.output import refuse_file

Level = Literal["debug", "info", "warning", "error"]


def node(
    cluster: Cluster,
    name: ReplicaId,
    new: Annotated[bool, typer.Option("--new", help="Its first start: the data folder is empty.")] = False,
    rejoin: Annotated[
        bool, typer.Option("--rejoin", help="Its disk is lost or damaged: start from what its group knows.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Take part at once, although others may know what its disk forgot."),
    ] = False,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Record what it delivers, in DIR/ID.jsonl.")] = None,
    level: Annotated[Level, typer.Option(help="What to log: this, and what is worse.")] = "info",
) -> None:
    """Run one replica of a cluster: it serves until SIGTERM or Ctrl-C."""
    from amcast.runtime.config import file_name
    from amcast.service import run_node

    refuse_file(trace)
    if rejoin:
        from amcast.local.rejoining import refuse_too_many

        config = cluster_at(cluster)
        refuse_too_many(config, config.member(name))
    file = trace / f"{file_name(name)}.jsonl" if trace is not None else None
    run_node(cluster_at(cluster).path, name, trace=file, level=level, new=new, rejoin=rejoin, accept_loss=accept_loss)
