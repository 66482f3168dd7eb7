"""What a cluster is: `cluster.toml`, read once, checked whole, and never changed by the program.

    [cluster]
    name = "amcast-7f3a91"        # part of every certificate and data folder
    protocol = "white_box"
    app = "kv"                    # log, kv, bank, ledger, one of a plug-in, or package.module:Class
    durable = true                # false: a replica that stops is lost
    spare = 0                     # so many of the last replicas are no members until they are started, and join

    [timing]                      # all of it may be left out
    delta_ms = 20
    heartbeat_ms = 100
    suspect_ms = 800

    [tls]                         # left out: plaintext, and then only loopback addresses
    ca = "certs/ca.crt"
    folder = "certs"              # g0-1.crt and g0-1.key, client-alice.crt and client-alice.key

    [[replica]]                   # one for each, of groups g0, g1, …
    id = "g0/0"
    peer = "127.0.0.1:4100"       # where the other replicas reach it
    client = "127.0.0.1:4101"
    admin = "127.0.0.1:4102"      # /livez, /readyz, /metrics, /status: plain HTTP, read only
    data = "data/g0-0"

    [clients.alice]               # what a client may do; one that is not here may do nothing
    read = ["*"]
    write = ["g0"]
    operate = true                # may change the members of groups

It says how the cluster began: replicas that come and go later are in no file but in what the groups agreed on
(`seats.py`). A relative path begins at the folder of the file. AMCAST_DATA, where set, is the folder of all data
instead: the data of g0/1 is then in $AMCAST_DATA/g0-1.
"""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from amcast.core.application import APP_PATH
from amcast.core.capabilities import MemberLists
from amcast.core.process import Params
from amcast.core.topology import Topology
from amcast.errors import UsageError, meant
from amcast.runtime.identity import ClusterIdentity, identity_of_cluster

ONLY_THE_LOG: Final = "log"  # where the file names no application
MS: Final = 1_000_000  # nanoseconds
SECONDS_TO_APPEAR: Final = 60  # a replica that was not heard by then is taken for crashed
LARGEST_MESSAGE: Final = 2**20
LARGEST_OF_ALL: Final = 2**28
CLUSTER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
CLIENT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
REPLICA_ID: Final = re.compile(r"g(0|[1-9][0-9]{0,4})/(0|[1-9][0-9]{0,4})")
HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")

TABLES: Final = ("cluster", "timing", "tls", "replica", "clients")
CLUSTER_KEYS: Final = ("name", "protocol", "app", "durable", "largest_message", "spare")
TIMING: Final = {"delta_ms": 20.0, "heartbeat_ms": 100.0, "suspect_ms": 800.0}
TLS_KEYS: Final = ("ca", "folder")
ADDRESSES: Final = ("peer", "client", "admin")
REPLICA_KEYS: Final = ("id", *ADDRESSES, "data")
GRANT_KEYS: Final = ("read", "write", "operate")


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True)
class Address:
    """Where a listener is, and where others reach it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Return True if nobody outside this machine can reach it. Other names than localhost could mean anything."""
        found = ip_of(self.host)
        return self.host == "localhost" or (found is not None and found.is_loopback)

    @property
    def wildcard(self) -> bool:
        """Return True if one can listen at it, but others cannot connect to it."""
        found = ip_of(self.host)
        return found is not None and found.is_unspecified


LATER_GROUPS: Final = 16  # beyond those of cluster.toml: so many a cluster may get in its life


@dataclass(frozen=True)
class Member:
    """A replica. Its data folder is its own."""

    name: str
    pid: int
    group: int
    rank: int
    peer: Address
    client: Address
    admin: Address
    data: Path


@dataclass(frozen=True)
class Grant:
    """The groups, by number, that a client may read and multicast to; who may all, may those that come later, too."""

    name: str
    read: frozenset[int]
    write: frozenset[int]
    operate: bool = False  # it may change the members of groups


@dataclass(frozen=True)
class Tls:
    """Where certificates are: NAME.crt and NAME.key in the folder, with - for the / in a name."""

    ca: Path
    folder: Path


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster as its file describes it, and as its groups have changed it since."""

    path: Path
    name: str
    protocol: str
    app: str
    durable: bool
    topology: Topology
    members: tuple[Member, ...]  # of now, so far as it is known
    clients: Mapping[str, Grant]
    delta_ms: float
    heartbeat_ms: float
    suspect_ms: float
    largest_message: int
    spare: int  # how many of the last replicas are no members at first, and join when they are started
    tls: Tls | None
    first: tuple[Member, ...] = ()  # those of the file, if members have changed since; then also …
    known: Mapping[int, Member] = field(default_factory=dict)  # … all that ever were members, …
    needed: frozenset[int] = frozenset()  # … those who are, or are not yet replaced, …
    lists: MemberLists = ()  # … and what was agreed on

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the numbers of all groups that there are."""
        return tuple(sorted({member.group for member in self.members}))

    def size_at_first(self, g: int) -> int:
        """Return how many replicas a group began with."""
        if g < len(self.topology.sizes):
            return self.topology.sizes[g]
        return next((len(seats) for h, epoch, seats, _, _ in self.lists if h == g and epoch == 0), 0)

    @property
    def began(self) -> tuple[Member, ...]:
        return self.first or self.members

    def at(self, pid: int) -> Member | None:
        """Return the member with this number, also one that has been replaced; None if its address is not known."""
        if self.first:
            return self.known.get(pid)
        return self.members[pid] if pid < len(self.members) else None

    def group(self, g: int) -> tuple[Member, ...]:
        """Return the members of a group."""
        return tuple([member for member in self.members if member.group == g])

    def member(self, name: str) -> Member:
        for member in self.members:
            if member.name == name:
                return member
        raise UsageError(
            f"no replica {name!r} in {self.path}: expected one of {', '.join(member.name for member in self.members)}"
        )

    @property
    def identity(self) -> ClusterIdentity:
        """Return what every process and every data folder of this cluster must agree on."""
        return identity_of_cluster(self.protocol, self.topology.sizes, self.spare, self.durable, self.app)

    def params(self) -> Params:
        return Params(
            round(self.delta_ms * MS),
            round(self.heartbeat_ms * MS),
            round(self.suspect_ms * MS),
            durable=self.durable,
            spare=self.spare + len(self.topology.groups[0]) - self.topology.sizes[0],
            grace=SECONDS_TO_APPEAR * 1000 * MS,
        )

    def is_spare(self, member: Member) -> bool:
        sizes = self.topology.sizes
        return bool(self.spare) and member.group < len(sizes) and member.rank >= sizes[member.group] - self.spare


def file_name(name: str) -> str:
    """Return a name as part of a path: g0-1 for g0/1."""
    return name.replace("/", "-")


def load_config(path: str | Path, protocols: Collection[str] = (), apps: Collection[str] = ()) -> ClusterConfig:
    """Return the cluster that a file, or the cluster.toml in a folder, describes.

    Raises UsageError, with the file and the key, for what it cannot mean.
    `protocols` and `apps` are the names that there are; where none are given, any name is taken.
    """
    path = Path(path).absolute()
    if path.is_dir():
        path = path / "cluster.toml"
    document = Table(str(path), read_toml(path), TABLES)
    cluster = document.table("cluster", CLUSTER_KEYS)
    name = cluster.text("name")
    if not CLUSTER_NAME.fullmatch(name):
        raise cluster.wrong("name", "expected up to 63 of a-z, 0-9, . and -, such as amcast-7f3a91")
    protocol = cluster.text("protocol")
    if protocols and protocol not in protocols:
        raise cluster.wrong("protocol", f"there is no such protocol; {meant(protocol, protocols)}")
    app = cluster.text("app", ONLY_THE_LOG)
    if ":" in app:
        if not APP_PATH.fullmatch(app):
            raise cluster.wrong("app", "expected a path such as package.module:Class, or the name of an application")
    elif apps and app not in apps:
        raise cluster.wrong("app", f"there is no such application; {meant(app, apps)}, or package.module:Class")
    tls = read_tls(document, path.parent)
    topology, members = read_members(document, path.parent, plaintext=tls is None)
    timing = read_timing(document.table("timing", tuple(TIMING), needed=False))
    return ClusterConfig(
        path=path,
        name=name,
        protocol=protocol,
        app=app,
        durable=cluster.flag("durable", True),
        topology=topology,
        members=members,
        clients=read_clients(document, len(topology.groups)),
        largest_message=cluster.whole("largest_message", LARGEST_MESSAGE, 1, LARGEST_OF_ALL),
        spare=cluster.whole("spare", 0, 0, len(topology.groups[0]) - 1),
        tls=tls,
        delta_ms=timing["delta_ms"],
        heartbeat_ms=timing["heartbeat_ms"],
        suspect_ms=timing["suspect_ms"],
    )


def read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); 'amcast cluster init DIR' makes a cluster"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error


class Table:
    """A table of the file: values by key, each of the right type, and no key that means nothing."""

    def __init__(self, where: str, values: object, known: Collection[str]) -> None:
        self.where = where
        if not isinstance(values, dict):
            raise UsageError(f"{where}: is {values!r}; expected a table with {', '.join(known)}")
        self.values: dict[str, object] = values
        for key in self.values:
            if key not in known:
                raise UsageError(f"{where}: unknown key {key!r}: {meant(key, known)}")

    def wrong(self, key: str, why: str) -> UsageError:
        return UsageError(f"{self.where}: {key} = {self.values[key]!r}: {why}")

    def table(self, key: str, known: Collection[str], needed: bool = True) -> "Table":
        if needed and key not in self.values:
            raise UsageError(f"{self.where}: there is no [{key}]; add it with {', '.join(known)}")
        return Table(f"{self.where}: [{key}]", self.values.get(key, {}), known)

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self.values and default is None:
            raise UsageError(f"{self.where}: {key} is missing; add it")
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "expected a text in quotes")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "expected true or false")
        return value

    def whole(self, key: str, default: int, lowest: int, highest: int) -> int:
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self.wrong(key, f"expected a whole number from {lowest} to {highest}")
        return value

    def path(self, key: str, folder: Path, default: str | None = None) -> Path:
        return folder / Path(self.text(key, default)).expanduser()

    def address(self, key: str) -> Address:
        text = self.text(key)
        host, colon, port = text.rpartition(":")
        v6 = host.startswith("[") and host.endswith("]")
        sound = isinstance(ip_of(host[1:-1]), IPv6Address) if v6 else HOST.fullmatch(host) is not None
        if not (colon and sound and port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            raise self.wrong(key, "expected host:port with a port from 1 to 65535, such as 127.0.0.1:4100")
        return Address(host[1:-1] if v6 else host, int(port))


def address_in(option: str, text: str) -> Address:
    """Return the address that an option or argument names. Raises UsageError."""
    return Table("command line", {option: text}, (option,)).address(option)


def read_timing(table: Table) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, default in TIMING.items():
        value = table.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.001 <= value <= 86_400_000:
            raise table.wrong(key, "expected milliseconds, more than 0 and at most a day")
        found[key] = float(value)
    if not found["heartbeat_ms"] < found["suspect_ms"]:
        raise UsageError(
            f"{table.where}: heartbeat_ms = {found['heartbeat_ms']:g}, suspect_ms = {found['suspect_ms']:g}: expected "
            "several heartbeats before a leader is suspected"
        )
    return found


def read_tls(document: Table, folder: Path) -> Tls | None:
    if "tls" not in document.values:
        return None
    table = document.table("tls", TLS_KEYS)
    return Tls(table.path("ca", folder, "certs/ca.crt"), table.path("folder", folder, "certs"))


def read_members(document: Table, folder: Path, plaintext: bool) -> tuple[Topology, tuple[Member, ...]]:
    rows = document.values.get("replica")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{document.where}: there is no [[replica]]; add one for each, with {', '.join(REPLICA_KEYS)}")
    tables: dict[tuple[int, int], Table] = {}
    for number, row in enumerate(rows, 1):
        table = Table(f"{document.where}: [[replica]] {number}", row, REPLICA_KEYS)
        match = REPLICA_ID.fullmatch(table.text("id"))
        if match is None:
            raise table.wrong("id", "expected group and rank, such as g0/1")
        place = int(match[1]), int(match[2])
        if place in tables:
            raise table.wrong("id", "there is another replica with this id; give each its own")
        tables[place] = table
    topology = Topology(group_sizes(document.where, sorted(tables)))
    members = tuple(
        read_member(tables[group, rank], pid, group, rank, folder)
        for pid, (group, rank) in enumerate(zip(topology.group_of, topology.rank_of, strict=True))
    )
    refuse_addresses(document.where, members, plaintext)
    return topology, members


def group_sizes(where: str, places: list[tuple[int, int]]) -> tuple[int, ...]:
    """Return how many replicas each group has; refuse a group or a rank that was left out."""
    sizes: list[int] = []
    for group, rank in places:
        expected = (group, sizes[group]) if group < len(sizes) else (len(sizes), 0)
        if (group, rank) != expected:
            raise UsageError(
                f"{where}: there is a replica g{group}/{rank} but no g{expected[0]}/{expected[1]}; "
                "number groups, and replicas in a group, from 0 without gaps"
            )
        if group == len(sizes):
            sizes.append(0)
        sizes[group] += 1
    return tuple(sizes)


def read_member(table: Table, pid: int, group: int, rank: int, folder: Path) -> Member:
    name = f"g{group}/{rank}"
    data = table.path("data", folder, f"data/{file_name(name)}")
    return Member(
        name=name,
        pid=pid,
        group=group,
        rank=rank,
        peer=table.address("peer"),
        client=table.address("client"),
        admin=table.address("admin"),
        data=data_folder(name, data),
    )


def data_folder(name: str, said: Path) -> Path:
    """Return where the data of a replica is, which is said to be there."""
    root = os.environ.get("AMCAST_DATA")
    return Path(root).absolute() / file_name(name) if root else said


def refuse_addresses(where: str, members: tuple[Member, ...], plaintext: bool) -> None:
    """Refuse what others cannot reach or read on the way, and two in one place: listeners, and data folders."""
    owners: dict[object, str] = {}
    for member in members:
        for key in ADDRESSES:
            address: Address = getattr(member, key)
            what = f"{key} of {member.name}"
            if plaintext and not address.loopback:
                raise UsageError(
                    f"{where}: {what} is {address}, and there is no [tls]: plaintext is for loopback "
                    "only; add [tls] with ca and folder ('amcast certs' makes certificates), or use 127.0.0.1"
                )
            if address.wildcard:
                raise UsageError(f"{where}: {what} is {address}, which others cannot reach; expected its own address")
            host = "127.0.0.1" if address.host == "localhost" else address.host
            other = owners.setdefault((host, address.port), what)
            if other != what:
                raise UsageError(f"{where}: {address} is {other} and {what}; give each its own port")
        other = owners.setdefault(os.path.normpath(member.data), member.name)
        if other != member.name:
            raise UsageError(f"{where}: data folder {member.data} is of {other} and {member.name}; give each its own")


def read_clients(document: Table, groups: int) -> dict[str, Grant]:
    rows = document.values.get("clients", {})
    if not isinstance(rows, dict):
        raise UsageError(f"{document.where}: clients is {rows!r}; expected tables such as [clients.alice]")
    grants: dict[str, Grant] = {}
    for name, row in rows.items():
        table = Table(f"{document.where}: [clients.{name}]", row, GRANT_KEYS)
        if not CLIENT_NAME.fullmatch(name):
            raise UsageError(f"{table.where}: {name!r} is no name: expected up to 63 letters, digits, _, . and -")
        may = granted(table, "read", groups), granted(table, "write", groups)
        grants[name] = Grant(name, *may, table.flag("operate", False))
    return grants


def granted(table: Table, key: str, groups: int) -> frozenset[int]:
    """Return the groups that a list names; none if it is absent."""
    names = table.values.get(key, [])
    if not isinstance(names, list):
        raise table.wrong(key, 'expected a list of groups, such as ["g0"], or ["*"] for all')
    known = [f"g{group}" for group in range(groups)]
    for name in names:
        if name != "*" and name not in known:
            raise table.wrong(key, f"there is no group {name!r}; expected some of {', '.join(known)}, or *")
    if "*" in names:
        return frozenset(range(groups + LATER_GROUPS))
    return frozenset(group for group in range(groups) if known[group] in names)
