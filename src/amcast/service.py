"""What programs use to be part of a cluster: `amcast.connect`, `amcast.connect_sync`, `amcast.run_node`."""

from collections.abc import Callable
from pathlib import Path

from amcast import compiled
from amcast.apps import application, same_application
from amcast.core.application import StateMachine
from amcast.errors import UsageError
from amcast.installed import build
from amcast.protocols import PROTOCOLS, protocol
from amcast.runtime.client import DEADLINE, Client, SyncClient
from amcast.runtime.config import ClusterConfig, address_in, load_config
from amcast.runtime.log import Log
from amcast.runtime.node import Node, serve
from amcast.runtime.seats import current


def connect(
    cluster: str | Path,
    name: str | None = None,
    *,
    deadline: float = DEADLINE,
    session: int | None = None,
    trace: str | Path | None = None,
    admin: str | None = None,
) -> Client:
    """Return a client of a cluster, to be used with `async with`.

        async with amcast.connect("store") as client:
            answers = await client.multicast(["g0", "g2"], b"payload")

    `cluster` is its folder or its cluster.toml. `name` is one of the clients in that file, and may be left out if there
    is only one. Every call ends by its `deadline`, in seconds. A program that gives the same `session` again is the
    same sender, whose numbered messages are never delivered twice. What the client multicasts is recorded in the file
    `trace`. At `admin`, such as 127.0.0.1:9300, it tells Prometheus and `amcast view --client` how long its multicasts
    take. Raises UsageError for an unknown cluster or client.
    """
    return _client(load(cluster), name, deadline, session, trace, admin)


def connect_sync(
    cluster: str | Path,
    name: str | None = None,
    *,
    deadline: float = DEADLINE,
    session: int | None = None,
    first: int = 0,
    trace: str | Path | None = None,
    admin: str | None = None,
) -> SyncClient:
    """Return a client of a cluster for programs without asyncio, to be used with `with`.

        with amcast.connect_sync("store") as client:
            answers = client.multicast(["g0", "g2"], b"payload")

    The arguments are those of `connect`. `first` is the number of the first message of a `session` that goes on.
    """
    loaded = load(cluster)
    return SyncClient(lambda: _client(loaded, name, deadline, session, trace, admin, first))


def run_node(
    cluster: str | Path,
    name: str,
    app: Callable[[int, int], StateMachine] | None = None,
    *,
    trace: str | Path | None = None,
    level: str = "info",
    new: bool = False,
    rejoin: bool = False,
    accept_loss: bool = False,
) -> None:
    """Run one replica until SIGTERM or SIGINT.

        amcast.run_node("store", "g0/1")

    `cluster` is its folder or its cluster.toml, `name` that of the replica. The application is the one that the file
    names; a program that has it at hand may pass it as `app`, and is refused if the file names another one. What the
    replica delivers is recorded in the file `trace`. `level` is that of the log: debug, info, warning or error. `new`
    is for the first start, when the data folder is empty; `rejoin` for a replica that lost its disk. `accept_loss` lets
    a replica take part that waits for others to confirm that it forgot nothing: what they alone know may be lost then.
    Raises UsageError for what cannot run, StorageFailure when the disk fails, StorageCorrupt when it forgot something.
    """
    loaded = load(cluster)
    named = application(loaded.app).machine
    if app is not None and not same_application(app, named):
        given = f"{app.__module__}:{app.__qualname__}"
        raise UsageError(
            f'{loaded.path}: app = "{loaded.app}", but the program runs {given}; expected the same, since every start '
            "goes by the file: name it there as package.module:Class"
        )
    path = Path(trace) if trace else None
    log = Log(name, level)
    if not compiled():
        log.warning("slow", build=build())
    table = protocol(loaded.protocol)
    serve(Node(loaded, name, table, app or named, path, log, new=new, rejoin=rejoin, accept_loss=accept_loss))


def load(cluster: str | Path) -> ClusterConfig:
    """Return what a cluster's file says; its protocol is one that there is."""
    config = load_config(cluster, PROTOCOLS)
    return current(config, protocol(config.protocol))


def _client(
    config: ClusterConfig,
    name: str | None,
    deadline: float,
    session: int | None,
    trace: str | Path | None,
    admin: str | None,
    first: int = 0,
) -> Client:
    if name is None:
        if len(config.clients) != 1:
            known = ", ".join(config.clients) or "none"
            raise UsageError(f"{config.path} has these clients: {known}; say which one to be")
        name = next(iter(config.clients))
    place = address_in("admin", admin) if admin is not None else None
    path = Path(trace) if trace else None
    return Client(config, protocol(config.protocol), name, deadline, session, path, first, admin=place)
