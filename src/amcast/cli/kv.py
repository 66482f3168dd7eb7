"""`amcast kv`: the Redis protocol in front of a cluster that runs the key-value store; `amcast kv-user`: its users."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amcast.cli.naming import Cluster, cluster_at
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.runtime.config import ClusterConfig


def kv(
    cluster: Cluster,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where Redis clients connect; 0: any free port.")] = 6379,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than loopback need users and --tls.")
    ] = "127.0.0.1",
    client: Annotated[str | None, typer.Option(metavar="NAME", help="Which client of the cluster to be.")] = None,
    one_round: Annotated[
        bool, typer.Option("--one-round", help="Commands over several partitions in one multicast: see docs/kv.md.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS; 'amcast certs CLUSTER --kv HOST' comes first.")
    ] = False,
    client_certs: Annotated[
        bool, typer.Option("--client-certs", help="Ask who connects for a certificate of a client of the cluster.")
    ] = False,
    admin: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Tell there how long commands take: see 'amcast view --client'."),
    ] = None,
) -> None:
    """Serve a cluster's key-value store to any Redis client, until SIGTERM or Ctrl-C."""
    from amcast.apps.kv.gateway import Port, run
    from amcast.runtime.config import address_in
    from amcast.service import connect

    config = store_at(cluster)
    if admin is not None:
        address_in("--admin", admin)
    where = Port(host, port, tls, client_certs, two_rounds=not one_round)
    flags = f" --tls --cacert {config.tls.ca}" if tls and config.tls is not None else ""

    def announce(port: int) -> None:
        print(f"redis-cli -h {host} -p {port}{flags}", flush=True)

    run(connect(config.path, client, admin=admin), where, announce)


def kv_user(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who logs in; 'default': with a password alone.")],
    may: Annotated[
        str, typer.Option(metavar="LIST", help="Some of read, write and admin, with commas.")
    ] = "read,write",
    keys: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Keys, as in KEYS; repeatable. All unless said.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the password, in one line; else you are asked for it.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the user.")] = False,
) -> None:
    """Add a user of the store, change one, or remove one. Running gateways take it up on SIGHUP."""
    from amcast.apps.kv.users import User
    from amcast.apps.kv.users_file import FILE, NAME, hashed, read_users, rights, write_users

    if not NAME.fullmatch(name):
        raise UsageError(f"user {name!r}: expected up to 63 letters, digits, _, . and -")
    allowed = rights("--may", filter(None, may.split(",")))
    file = store_at(cluster).path.parent / FILE
    before = read_users(file)
    users = dict(before or {})
    if remove:
        if name not in users:
            raise UsageError(f"{file}: there is no user {name!r}; expected one of {', '.join(users) or 'none'}")
        del users[name]
    else:
        users[name] = User(name, hashed(typed_password(name, password_file)), allowed, tuple(keys or ["*"]))
    write_users(file, users)
    taken_up = "a gateway takes up changes on SIGHUP"
    if before is None:
        taken_up = "a gateway that runs goes on without users until it is started again"
    print(f"{file}: {len(users)} {'user' if len(users) == 1 else 'users'}; {taken_up}")


def store_at(path: Path) -> "ClusterConfig":
    """Return the cluster at this path, which runs the store."""
    from amcast.apps import KV_STORE, application

    config = cluster_at(path)
    if application(config.app) is not KV_STORE:
        raise UsageError(
            f"{config.path}: its nodes run {config.app!r}, expected 'kv'; make one with 'amcast cluster init'"
        )
    return config


def typed_password(name: str, file: Path | None) -> str:
    """Return a password from a file or from whoever sits there. Never from the command line, which others can list."""
    import sys
    from getpass import getpass

    from amcast.apps.kv.users_file import sound_password

    if file is not None:
        try:
            return sound_password(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})") from error
    if not sys.stdin.isatty():
        raise UsageError(f"nobody to ask for the password of {name}: expected --password-file FILE")
    password = sound_password(getpass(f"Password of {name}: "))
    if getpass("Once more: ") != password:
        raise UsageError("the two passwords differ: expected the same twice")
    return password
