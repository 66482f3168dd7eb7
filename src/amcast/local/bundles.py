"""What the machines of a cluster need: a folder for each, with the one configuration and its own keys."""

import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from amcast.core.protocol import Protocol
from amcast.errors import UsageError
from amcast.local.files import CLIENT, refuse_impossible, toml_of
from amcast.runtime.certificates import make_certificates
from amcast.runtime.config import ADDRESSES, HOST, file_name, load_config

BASE_PORT: Final = 4100
CLIENTS: Final = "client"  # the folder for programs


def create_bundles(
    folder: Path,
    protocol: Protocol,
    groups: int,
    replicas: int,
    app: str,
    durable: bool,
    hosts: Sequence[str],
    base_port: int = BASE_PORT,
    spare: int = 0,
) -> dict[str, list[str]]:
    """Write `bundles/HOST` for each machine and `bundles/client`; return which replicas are on which machine.

    Members of a group are on different machines, and their first ones, which begin as leaders, on as many as there are.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is not empty; expected a folder that is, or a name that is free")
    refuse_impossible(protocol, groups, replicas, durable, spare)
    ids = [f"g{group}/{rank}" for group in range(groups) for rank in range(replicas + spare)]
    refuse_hosts(hosts, replicas + spare)
    by_host = {host: [member for member in ids if host_of(member, hosts) == host] for host in hosts}
    last = base_port + max(map(len, by_host.values())) * len(ADDRESSES) - 1
    if last > 65_535:
        raise UsageError(f"--base-port {base_port}: ports up to {last} are needed; expected 65535 or less")
    name = f"amcast-{secrets.token_hex(3)}"
    text = toml_of(name, protocol, app, durable, spare, True, addresses_of(by_host, ids, base_port))
    try:
        make_certificates(folder / "certs", name, [*ids, f"client/{CLIENT}"])
        for host, members in {**by_host, CLIENTS: [f"client/{CLIENT}"]}.items():
            write_bundle(folder / "bundles" / host, text, folder / "certs", members)
        with open(folder / "cluster.toml", "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be written ({error.strerror})") from error
    load_config(folder, (protocol.name,))
    return by_host


def host_of(member: str, hosts: Sequence[str]) -> str:
    group, rank = member.removeprefix("g").split("/")
    return hosts[(int(group) + int(rank)) % len(hosts)]


def refuse_hosts(hosts: Sequence[str], members: int) -> None:
    for host in hosts:
        if not HOST.fullmatch(host) or host == CLIENTS:
            raise UsageError(f"--hosts: {host!r} is no name or IPv4 address of a machine; expected such as a,b,c")
    if len(set(hosts)) < len(hosts):
        raise UsageError(f"--hosts {','.join(hosts)}: a machine stands there twice; expected each once")
    if len(hosts) < members:
        raise UsageError(
            f"--hosts: {len(hosts)} machines for groups of {members}; expected at least {members}, for members of a "
            "group that share a machine fail together"
        )


def addresses_of(by_host: Mapping[str, Sequence[str]], ids: Sequence[str], base_port: int) -> dict[str, list[str]]:
    """Return the addresses of replicas: on each machine, ports that follow one another."""
    found = {}
    for host, members in by_host.items():
        for number, member in enumerate(members):
            first = base_port + number * len(ADDRESSES)
            found[member] = [f"{host}:{first + offset}" for offset in range(len(ADDRESSES))]
    return {member: found[member] for member in ids}


def write_bundle(folder: Path, text: str, certificates: Path, names: Sequence[str]) -> None:
    """Write one machine's folder: no key of anybody else is in it."""
    (folder / "certs").mkdir(mode=0o700, parents=True)
    (folder / "cluster.toml").write_text(text, encoding="utf-8")
    shutil.copy(certificates / "ca.crt", folder / "certs")
    for name in names:
        for suffix in (".crt", ".key"):
            shutil.copy2(certificates / f"{file_name(name)}{suffix}", folder / "certs")
