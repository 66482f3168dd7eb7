"""Who the members of a cluster are now, and where: what its groups agreed on since it began.

`cluster.toml` says with whom a cluster began. Each change of a group's members is delivered in that group's order, and
carries the addresses of all members of the new list (`about`). What is known of that is the same wherever it is:

- every process has a `ClusterConfig` of its own with what it knows, and a new one when it learns more (`agreed_on`);
- a replica has it in the records of its protocol, and a client is told by the replicas it is connected to;
- `members.json` beside cluster.toml and in each data folder is for whoever starts: a command, a client, a replica that
  has not taken part yet. It may be old: it only has to name one member that is still there.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from amcast.core.capabilities import MemberLists
from amcast.core.protocol import Protocol
from amcast.core.topology import Topology
from amcast.errors import UsageError
from amcast.runtime.config import LATER_GROUPS, REPLICA_ID, Address, ClusterConfig, Member, data_folder, file_name
from amcast.runtime.machine import Files

LATER_SEATS: Final = 29  # of each group, beyond those of cluster.toml: so many members it may get in its life
SEATS_OF_LATER: Final = 32  # of each group that comes later, those of its first members included
FILE: Final = "members.json"


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where a member is."""

    seat: int
    peer: str
    client: str
    admin: str


class Listed(msgspec.Struct, frozen=True):
    """The members of a group in an epoch, as a file has it."""

    group: int
    epoch: int
    settled: bool
    members: tuple[Place, ...]


class Agreed(msgspec.Struct, frozen=True):
    """What `members.json` holds. `joins` is the replica in whose data folder it is, while it is no member yet."""

    cluster: str
    lists: tuple[Listed, ...] = ()
    joins: Place | None = None
    instead: str = ""  # of whom it is to take the place


places_decoder: Final = msgspec.msgpack.Decoder(tuple[Place, ...])
lists_decoder: Final = msgspec.msgpack.Decoder(MemberLists)


def seated(config: ClusterConfig, protocol: Protocol) -> ClusterConfig:
    """Return the configuration with room for members and groups that come later, if the protocol can change them."""
    if protocol.change is None or config.topology.replicas > sum(config.topology.sizes):
        return config
    more = LATER_GROUPS if protocol.found is not None and config.durable else 0
    seats = {"later": LATER_SEATS, "more_groups": more, "more_seats": SEATS_OF_LATER}
    return replace(config, topology=Topology(config.topology.sizes, **seats))


def everybody(config: ClusterConfig) -> list[Member]:
    """Return all members that there ever were."""
    return list(config.known.values() if config.first else config.members)


def place_of(member: Member) -> Place:
    return Place(member.rank, str(member.peer), str(member.client), str(member.admin))


def about_of(members: Iterable[Member]) -> bytes:
    """Return what a list of members carries besides their seats."""
    return msgspec.msgpack.encode(tuple([place_of(member) for member in members]))


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def member_at(config: ClusterConfig, group: int, place: Place) -> Member:
    """Return a member that came later. Its data folder is where those of all others are by default."""
    name = f"g{group}/{place.seat}"
    pid = config.topology.groups[group][place.seat]
    addresses = address_of(place.peer), address_of(place.client), address_of(place.admin)
    return Member(name, pid, group, place.seat, *addresses, data_of(config, name))


def places_in(about: bytes) -> tuple[Place, ...]:
    """Return where the members of a list are, in the order of their seats; none if that is not said."""
    try:
        return places_decoder.decode(about) if about else ()
    except (msgspec.MsgspecError, ValueError):
        return ()


def agreed_on(config: ClusterConfig, lists: MemberLists) -> ClusterConfig:
    """Return the configuration with these lists of members, each of which its group has agreed on."""
    known = {member.pid: member for member in config.began}
    topology = config.topology
    newest = {g: [known[pid] for pid in topology.groups[g][:size]] for g, size in enumerate(topology.sizes)}
    settled = dict.fromkeys(newest, True)
    older: list[Member] = []
    for g, _, seats, established, about in sorted(lists):
        for place in places_in(about):
            pid = config.topology.groups[g][place.seat]
            if pid not in known:
                known[pid] = member_at(config, g, place)
        if not established:
            older += newest.get(g, [])
        pids = [config.topology.groups[g][seat] for seat in seats]
        newest[g] = [known[pid] for pid in pids if pid in known]
        settled[g] = established
    needed = {member.pid for member in older} | {member.pid for group in newest.values() for member in group}
    members = tuple([member for group in newest.values() for member in group])
    changed = {"first": config.began, "known": known, "needed": frozenset(needed), "lists": lists}
    return replace(config, members=members, **changed)  # type: ignore[arg-type]


def difference(config: ClusterConfig) -> str:
    """Say in one line where the file puts a member elsewhere than its group has agreed on; empty if nowhere."""
    newest = {row[0]: row for row in sorted(config.lists)}
    for g, _, _, _, about in newest.values():
        for place in places_in(about):
            member = next((one for one in config.began if one.group == g and one.rank == place.seat), None)
            if member is not None and place != place_of(member):
                agreed = f"its group agreed on {place.peer}, {place.client} and {place.admin}"
                there = f"{member.peer}, {member.client} and {member.admin}"
                return (
                    f"{config.path}: {member.name} is at {there}, but {agreed}; put that back, or move it with "
                    f"'amcast cluster replace {config.path.parent} {member.name} --address HOST:PORT'"
                )
    return ""


def found_at_start(config: ClusterConfig, name: str, files: Files) -> tuple[ClusterConfig, Member, str | None]:
    """Return what a replica knows of its cluster when it starts, itself, and whose place it takes if it is to join.

    None if it is a member, or was one; empty if it takes nobody's place.
    """
    began = next((member for member in config.began if member.name == name), None)
    path = (began.data if began is not None else data_of(config, name)) / FILE
    agreed = read_agreed(path, config, files)
    if agreed is not None and (lists := merged(lists_of(agreed), config.lists)):
        config = agreed_on(config, lists)
    for member in (*config.began, *config.known.values()):
        if member.name == name:
            return config, member, None
    group = int(name[1 : name.index("/")]) if REPLICA_ID.fullmatch(name) else -1
    if agreed is not None and agreed.joins is not None and 0 <= group < len(config.topology.groups):
        return config, member_at(config, group, agreed.joins), agreed.instead
    config.member(name)
    raise AssertionError("it is no member")


def current(config: ClusterConfig, protocol: Protocol) -> ClusterConfig:
    """Return a configuration with all that is on this machine about who the members are now."""
    if protocol.change is None:
        return config
    config = seated(config, protocol)
    files = Files()
    folders = [member.data for member in config.began]
    agreed = [read_agreed(config.path.parent / FILE, config, files)]
    agreed += [read_agreed(folder / FILE, config, files) for folder in folders]
    lists: MemberLists = ()
    for one in agreed:
        lists = merged(lists, lists_of(one)) if one is not None else lists
    for member in agreed_on(config, lists).known.values() if lists else ():
        if member.data not in folders and (one := read_agreed(member.data / FILE, config, files)) is not None:
            lists = merged(lists, lists_of(one))
    return agreed_on(config, lists) if lists else config


def data_of(config: ClusterConfig, name: str) -> Path:
    """Return the data folder of a replica that is not in the file."""
    return data_folder(name, config.path.parent / "data" / file_name(name))


# Files


def lists_of(agreed: Agreed) -> MemberLists:
    rows = [
        (one.group, one.epoch, tuple([place.seat for place in one.members]), one.settled,
         msgspec.msgpack.encode(one.members))
        for one in agreed.lists
    ]  # fmt: skip
    return tuple(rows)


def agreed_of(config: ClusterConfig, lists: MemberLists, joins: Place | None = None, instead: str = "") -> Agreed:
    rows = [Listed(g, epoch, settled, places_in(about)) for g, epoch, _, settled, about in lists]
    return Agreed(config.name, tuple(rows), joins, instead)


def read_agreed(path: Path, config: ClusterConfig, files: Files) -> Agreed | None:
    """Return what a file says; None if there is none, or it is damaged: nodes know what was in it."""
    try:
        data = files.read(path) if files.exists(path) else b""
        text, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
        if checksum != checksum_of(text):
            return None
        agreed = msgspec.json.decode(text, type=Agreed)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); run the amcast that wrote it") from None
    if agreed.cluster != config.name:
        raise UsageError(f"{path}: members of {agreed.cluster}, expected {config.name}; take it away")
    return agreed


def written(agreed: Agreed) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(agreed), indent=2)
    return text + b"\n" + checksum_of(text) + b"\n"


def checksum_of(text: bytes) -> bytes:
    return b"checksum %08x" % crc32(text)


def merged(one: MemberLists, other: MemberLists) -> MemberLists:
    """Return what is known by two together."""
    rows = {row[:2]: row for row in other}
    for row in one:
        known = rows.get(row[:2])
        if known is None or row[3]:
            rows[row[:2]] = row
    return tuple([rows[key] for key in sorted(rows)])
