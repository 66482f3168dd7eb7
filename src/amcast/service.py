"""What programs use of a cluster: `amcast.connect`, `amcast.connect_sync`, `amcast.run_node`."""

from collections.abc import Callable
from pathlib import Path

from amcast.core.application import StateMachine
from amcast.errors import UsageError
from amcast.protocols import PROTOCOLS, protocol
from amcast.runtime.client import DEADLINE, Client, SyncClient
from amcast.runtime.config import ClusterConfig, load_config
from amcast.runtime.log import Log
from amcast.runtime.node import Node, serve


def connect(
    config: str | Path,
    name: str | None = None,
    *,
    deadline: float = DEADLINE,
    session: int | None = None,
    trace: str | Path | None = None,
) -> Client:
    """A client of the cluster that this file describes, to be used with `async with`.

    `name` is one of the file's clients, and may be left out if there is only one. `deadline` is in seconds, for each
    call. A program that gives the same `session` again is the same sender, whose numbered messages are never delivered
    twice. `trace` names a file for the trace of what this client multicasts.
    """
    return _client(load(config), name, deadline, session, trace)


def connect_sync(
    config: str | Path,
    name: str | None = None,
    *,
    deadline: float = DEADLINE,
    session: int | None = None,
    first: int = 0,
    trace: str | Path | None = None,
) -> SyncClient:
    """The same without asyncio. `first` is the number of the first message of a `session` that goes on."""
    loaded = load(config)
    return SyncClient(lambda: _client(loaded, name, deadline, session, trace, first))


def run_node(
    config: str | Path,
    name: str,
    app: Callable[[int, int], StateMachine] | None = None,
    *,
    trace: str | Path | None = None,
    level: str = "info",
    new: bool = False,
    rejoin: bool = False,
) -> None:
    """Run one replica until it is told to stop; `app` makes its state machine from a group's number and their count.

    `new` is for its first start, when its data folder is empty; `rejoin` for one that lost its disk.
    """
    loaded = load(config)
    path = Path(trace) if trace else None
    serve(Node(loaded, name, protocol(loaded.protocol), app, path, Log(name, level), new=new, rejoin=rejoin))


def serve_kv(
    config: str | Path,
    name: str | None,
    host: str,
    port: int,
    *,
    two_rounds: bool = True,
    ready: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """The Redis protocol in front of a cluster that runs the key-value store, until SIGTERM or SIGINT."""
    from amcast.apps.kv.gateway import run

    run(connect(config, name), host, port, two_rounds=two_rounds, ready=ready)


def load(config: str | Path) -> ClusterConfig:
    return load_config(config, PROTOCOLS)


def _client(
    config: ClusterConfig,
    name: str | None,
    deadline: float,
    session: int | None,
    trace: str | Path | None,
    first: int = 0,
) -> Client:
    if name is None:
        if len(config.clients) != 1:
            known = ", ".join(config.clients) or "none"
            raise UsageError(f"{config.path} has these clients: {known}; say which one to be")
        name = next(iter(config.clients))
    return Client(config, protocol(config.protocol), name, deadline, session, Path(trace) if trace else None, first)
