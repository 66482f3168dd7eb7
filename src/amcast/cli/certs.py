"""`amcast certs`: the certificates of a cluster."""

from enum import StrEnum
from typing import Annotated

from typer import Option

from amcast.cli.naming import Cluster, cluster_at
from amcast.errors import UsageError


class NewCa(StrEnum):
    TRUST = "trust"
    USE = "use"
    DROP = "drop"


THEN = {
    NewCa.TRUST: "copy ca.crt to all nodes, gateways and clients, send SIGHUP to nodes and gateways; then --new-ca use",
    NewCa.USE: "copy to each its .crt and .key, send SIGHUP to nodes and gateways; then --new-ca drop",
    NewCa.DROP: "copy ca.crt to all nodes, gateways and clients, send SIGHUP to nodes and gateways; then it is done",
}


def certs(
    cluster: Cluster,
    renew: Annotated[bool, Option("--renew", help="Make all of them anew, whatever their age.")] = False,
    client: Annotated[str | None, Option(metavar="NAME", help="Make only that of this client.")] = None,
    kv: Annotated[
        list[str] | None,
        Option(metavar="HOST", help="Make only that of 'amcast kv --tls', for this name or address; repeatable."),
    ] = None,
    days: Annotated[int, Option(min=1, max=3650, help="How long new ones are valid.")] = 365,
    new_ca: Annotated[
        NewCa | None, Option(help="Go this step to a new CA, without a pause; each says what to do before the next.")
    ] = None,
) -> int:
    """Make the certificates that are missing or about to expire, of every replica and client in cluster.toml."""
    from amcast.runtime.certificates import HERE, STORE, hosts_of, make_certificates, replace_ca
    from amcast.runtime.config import file_name
    from amcast.runtime.tls import names_of

    config = cluster_at(cluster)
    if config.tls is None:
        raise UsageError(f"{config.path}: there is no [tls]; add it with ca and folder to use certificates")
    if config.tls.ca.resolve() != (config.tls.folder / "ca.crt").resolve():
        raise UsageError(
            f"{config.path}: the CA is {config.tls.ca}, not one of ours in {config.tls.folder}; "
            "get certificates from whoever runs it"
        )
    if client is not None and client not in config.clients:
        raise UsageError(f"{config.path}: there is no client {client!r}; add [clients.{client}] with read and write")
    if new_ca is not None:
        if renew or client is not None or kv:
            raise UsageError("--new-ca with --renew, --client or --kv: expected it alone; it is for all certificates")
        replace_ca(config.tls.folder, config.name, new_ca)
    hosts = list(dict.fromkeys([*HERE, *kv])) if kv else hosts_of(config.tls.folder)
    names = names_of(config)
    if client is not None or kv:
        names = [f"client/{client}"] if client is not None else []
    if kv or (hosts and client is None):
        names.append(STORE)
    if new_ca == NewCa.TRUST:  # all are as they were: nobody trusts the new one yet
        names = []
    made = make_certificates(config.tls.folder, config.name, names, days, renew, hosts)
    for name in made:
        print(f"{name}: {config.tls.folder / file_name(name)}.crt and .key")
    print(f"{len(made)} made, {len(names) - len(made)} kept; a node takes up a new one on SIGHUP")
    if new_ca is not None:
        print(THEN[new_ca])
    return 0
