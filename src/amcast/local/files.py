"""The files of a cluster on this machine: cluster.toml, certs/, data/, logs/ and run/ in one folder."""

import itertools
import random
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from amcast.core.protocol import Protocol
from amcast.errors import StorageCorrupt, UsageError
from amcast.runtime.config import ADDRESSES, ClusterConfig, Member, file_name, load_config
from amcast.runtime.identity import Described, described, description_in, identity_of_cluster
from amcast.runtime.storage import Storage

HOST: Final = "127.0.0.1"
CLIENT: Final = "dev"  # may do everything
PORTS: Final = range(10_000, 32_000)  # below those that the system gives to outgoing connections
TRIES: Final = 200


def create_cluster(
    folder: Path,
    protocol: Protocol,
    groups: int,
    replicas: int,
    app: str,
    secure: bool = True,
    durable: bool = True,
    base_port: int | None = None,
    spare: int = 0,
    app_version: int = 1,
) -> ClusterConfig:
    """Write all that a new cluster on loopback needs; the file that describes it comes last."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; expected a folder, or a name that is free: it will be made")
    path = folder / "cluster.toml"
    if path.exists():
        raise UsageError(f"{path}: there is a cluster already; expected a folder without one")
    data = folder / "data"
    if data.is_dir() and any(data.iterdir()):
        raise UsageError(
            f"{data}: is there, without a {path.name} beside it: put that file back, or remove what an interrupted "
            f"'init' left; or give another folder"
        )
    refuse_impossible(protocol, groups, replicas, durable, spare)
    name = f"amcast-{secrets.token_hex(3)}"
    ids = [f"g{group}/{rank}" for group in range(groups) for rank in range(replicas + spare)]
    identity = identity_of_cluster(protocol.name, [replicas + spare] * groups, spare, durable, app)
    first = free_ports(len(ids) * len(ADDRESSES), base_port)
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        for member in ids:
            storage = Storage(data / file_name(member), f"{name} {member}")
            storage.describe(Described(cluster=identity, app_version=app_version).encoded())
            storage.close()
        if secure:
            from amcast.runtime.certificates import make_certificates

            make_certificates(folder / "certs", name, [*ids, f"client/{CLIENT}"])
        with open(path, "x", encoding="utf-8") as file:
            file.write(toml_of(name, protocol, app, durable, spare, secure, on_loopback(ids, first)))
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be written ({error.strerror})") from error
    return load_config(path, (protocol.name,))


def refuse_other_data(config: ClusterConfig, members: Iterable[Member]) -> None:
    """Raise UsageError if the data of these replicas is not what the file says; look, and change nothing."""
    for member in members:
        path = member.data / "identity"
        try:
            data = path.read_bytes()
        except OSError:  # the node itself says what to do about that
            continue
        with suppress(StorageCorrupt):  # that, too
            text = description_in(member.data, f"{config.name} {member.name}", data)
            described(member.data, text, config.identity)


def refuse_impossible(protocol: Protocol, groups: int, replicas: int, durable: bool, spare: int) -> None:
    if protocol.single_group and groups != 1:
        raise UsageError(f"{groups} groups: {protocol.name} broadcasts in one group; use --groups 1")
    if protocol.single_replica and replicas != 1:
        raise UsageError(f"{replicas} replicas per group: a group of {protocol.name} is one process; use --replicas 1")
    if replicas % 2 == 0 and not protocol.broadcast:
        raise UsageError(
            f"{replicas} replicas per group: expected an odd number, for an even one tolerates no more crashes"
        )
    if spare and not protocol.joins:
        raise UsageError(
            f"{spare} spare replicas: {protocol.name} has fixed members; expected a protocol of the AllConcur family"
        )
    if durable and not protocol.durable:
        raise UsageError(f"a replica of {protocol.name} cannot come back from its disk; add --memory-only")


def free_ports(count: int, base_port: int | None) -> int:
    """Return the first of so many free ports in a row; `base_port` if that is wanted."""
    if count > len(PORTS) // 4:
        raise UsageError(f"{count} ports: expected at most {len(PORTS) // 4}; make a smaller cluster")
    if base_port is not None and base_port + count > 65_536:
        raise UsageError(
            f"--base-port {base_port}: {count} ports from there end above 65535; expected {65_536 - count} or less"
        )
    if base_port is not None:
        if (taken := first_taken(base_port, count)) is not None:
            raise UsageError(f"port {taken} is in use; expected {count} free ports from {base_port}: use another one")
        return base_port
    for _ in range(TRIES):
        first = random.randrange(PORTS.start, PORTS.stop - count)
        if first_taken(first, count) is None:
            return first
    raise UsageError(f"found no {count} free ports in a row; name the first with --base-port")


def first_taken(first: int, count: int) -> int | None:
    with ExitStack() as held:
        for port in range(first, first + count):
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                return port
    return None


def first_taken_at(host: str, first: int, count: int) -> str | None:
    """Say which of these ports cannot be listened at; None if all can."""
    for port in range(first, first + count):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            with socket.socket(found[0]) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(found[4])
        except OSError as error:
            return f"{host}:{port} cannot be listened at ({error.strerror or error})"
    return None


def on_loopback(ids: Iterable[str], first: int) -> dict[str, list[str]]:
    """Return the addresses of replicas at ports that follow one another."""
    ports = itertools.count(first)
    return {member: [f"{HOST}:{next(ports)}" for _ in ADDRESSES] for member in ids}


def toml_of(
    name: str,
    protocol: Protocol,
    app: str,
    durable: bool,
    spare: int,
    secure: bool,
    addresses: Mapping[str, Sequence[str]],
) -> str:
    """Return the text of cluster.toml."""
    suspect = "suspect_ms = 800     # a leader that is silent for so long is replaced"
    if protocol.detector:
        suspect = "suspect_ms = 2000    # who is silent for so long is taken for crashed"
    parts = [
        "# A cluster of amcast. A relative path begins at this folder.",
        f"""\
[cluster]
name = "{name}"
protocol = "{protocol.name}"
app = "{app}"
durable = {str(durable).lower()}"""
        + (f"\nspare = {spare}            # so many of the last replicas are outside until they join" if spare else ""),
        f"""\
[timing]
delta_ms = 20        # a message takes no longer while the network behaves
heartbeat_ms = 100
{suspect}""",
    ]
    if secure:
        parts.append('[tls]\nca = "certs/ca.crt"\nfolder = "certs"')
    else:
        parts.append("# No [tls]: plaintext, for development on loopback.")
    for member, where in addresses.items():
        lines = ["[[replica]]", f'id = "{member}"']
        lines += [f'{key} = "{address}"' for key, address in zip(ADDRESSES, where, strict=True)]
        parts.append("\n".join([*lines, f'data = "data/{file_name(member)}"']))
    parts.append(
        f'[clients.{CLIENT}]        # which groups a client may read and multicast to; "*" is all\n'
        'read = ["*"]\nwrite = ["*"]\noperate = true        # it may change who the members are\n'
    )
    return "\n\n".join(parts)
