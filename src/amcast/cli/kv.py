"""`amcast kv`: the Redis protocol in front of a cluster that runs the key-value store."""

from typing import Annotated

import typer

from amcast.cli.naming import Cluster, cluster_at
from amcast.errors import UsageError


def kv(
    cluster: Cluster,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where Redis clients connect; 0: any free port.")] = 6379,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    client: Annotated[str | None, typer.Option(metavar="NAME", help="Which client of the cluster to be.")] = None,
    one_round: Annotated[
        bool, typer.Option("--one-round", help="Commands over several partitions in one multicast: see docs/kv.md.")
    ] = False,
) -> None:
    """Serve a cluster's key-value store to any Redis client, until SIGTERM or Ctrl-C."""
    from amcast.apps import KV_STORE, application
    from amcast.apps.kv.gateway import run
    from amcast.service import connect

    config = cluster_at(cluster)
    if application(config.app) is not KV_STORE:
        raise UsageError(
            f"{config.path}: its nodes run {config.app!r}, expected 'kv'; make one with 'amcast cluster init'"
        )
    run(connect(config.path, client), host, port, two_rounds=not one_round, ready=announce)


def announce(host: str, port: int) -> None:
    print(f"redis-cli -h {host} -p {port}", flush=True)
