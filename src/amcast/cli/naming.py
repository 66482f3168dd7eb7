"""Names that users type: of protocols, clusters and replicas; looked up, completed, and hinted at if they are wrong."""

import os
from collections.abc import Iterator
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context

from amcast.errors import UsageError, meant

if TYPE_CHECKING:
    from amcast.core.protocol import Protocol
    from amcast.runtime.config import ClusterConfig

CLUSTER = "Its folder, or its cluster.toml."


def protocol_named(name: str) -> "Protocol":
    """Return the protocol with this name; UsageError, with the closest names, if there is none."""
    from amcast.protocols import PROTOCOLS

    found = PROTOCOLS.get(name)
    if found is not None:
        return found
    raise PROTOCOLS.unknown(name, f"{meant(name, PROTOCOLS, 2)} ('amcast protocols' lists them)")


def cluster_at(path: Path) -> "ClusterConfig":
    """Return the cluster in this folder, or that this file describes, with the members of now so far as is known."""
    from amcast.apps import APPLICATIONS
    from amcast.protocols import PROTOCOLS
    from amcast.runtime.config import load_config
    from amcast.runtime.seats import current

    config = load_config(path, PROTOCOLS, APPLICATIONS)
    return current(config, PROTOCOLS[config.protocol])


def is_cluster(path: Path) -> bool:
    """Tell whether a path that may also be a trace names a cluster."""
    return path.suffix == ".toml" or (path / "cluster.toml").exists()


# Completion, in the shell: quick, and silent about whatever is wrong.


def protocols_like(start: str) -> list[str]:
    from amcast.protocols import PROTOCOLS

    return [name for name in PROTOCOLS if name.startswith(start)]


def apps_like(start: str) -> list[str]:
    from amcast.apps import APPLICATIONS

    return [name for name in APPLICATIONS if name.startswith(start)]


def clusters_like(start: str) -> list[str]:
    """Return the folders with a cluster.toml; where there is none the shell completes the names of files."""
    return sorted(os.path.dirname(file) for file in glob(f"{escape(start)}*/cluster.toml"))


def replicas_like(context: Context, start: str) -> Iterator[str]:
    try:
        members = cluster_at(context.params["cluster"]).members
    except (UsageError, KeyError, TypeError):
        return
    yield from (member.name for member in members if member.name.startswith(start))


def folder_named(name: str) -> Path:
    """Return the path that was typed. An empty one, as from an unset variable, would mean the current folder."""
    if not name:
        raise UsageError("'' is no folder: expected the name of a cluster's folder, or . for the current one")
    return Path(name)


ProtocolName = Annotated[
    str, Argument(metavar="PROTOCOL", help="See 'amcast protocols'.", autocompletion=protocols_like)
]
Cluster = Annotated[Path, Argument(metavar="CLUSTER", help=CLUSTER, autocompletion=clusters_like, parser=folder_named)]
ReplicaId = Annotated[str, Argument(metavar="ID", help="A replica, such as g0/1.", autocompletion=replicas_like)]
