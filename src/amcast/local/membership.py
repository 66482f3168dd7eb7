"""Members of a group come, go and take the place of others, while the cluster runs: what commands do about it.

A replica that comes gets a folder, a certificate and a process on this machine, and learns what its group delivered.
Then the leader of the group is asked for the change, by a client that may operate the cluster, again and again until
the group has agreed on it and the new members are at work. Everything before that can be undone, and everything can be
begun again where it was interrupted: the folder of a replica says that it is to join.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amcast.core.protocol import Protocol
from amcast.errors import AmcastError, Refused, UsageError
from amcast.local.files import HOST, first_taken_at, free_ports
from amcast.local.level import status_of
from amcast.local.processes import POLL, Processes
from amcast.runtime.client import Client
from amcast.runtime.config import ADDRESSES, Address, ClusterConfig, Member, refuse_addresses
from amcast.runtime.frames import Change
from amcast.runtime.identity import OLDEST, Described
from amcast.runtime.machine import Files
from amcast.runtime.membership import NEAR
from amcast.runtime.seats import (
    FILE,
    Agreed,
    Place,
    about_of,
    agreed_of,
    agreed_on,
    data_of,
    everybody,
    lists_of,
    member_at,
    merged,
    place_of,
    read_agreed,
    seated,
    written,
)
from amcast.runtime.storage import Storage

ASK_EVERY: Final = 1.0  # seconds
Say = Callable[[str], None]


@dataclass(frozen=True)
class Joining:
    """A replica of this machine that is to become a member."""

    member: Member
    instead: str  # of whom; empty: of nobody


def joining_in(config: ClusterConfig) -> list[Joining]:
    """Return the replicas on this machine that are to become members, and are not yet."""
    found = []
    for path in sorted(data_of(config, "g0/0").parent.glob(f"g*-*/{FILE}")):
        agreed = read_agreed(path, config, Files())
        group = path.parent.name[1:].partition("-")[0]
        if agreed is None or agreed.joins is None or not group.isdigit() or int(group) >= len(config.topology.groups):
            continue
        member = member_at(config, int(group), agreed.joins)
        if config.at(member.pid) is None:
            found.append(Joining(member, agreed.instead))
    return found


def on_this_machine(config: ClusterConfig) -> list[Member]:
    """Return all replicas that there may be processes of: members, those who were, and those who are to be."""
    return [*everybody(config), *[one.member for one in joining_in(config)], *founding_in(config)]


def founding_in(config: ClusterConfig, group_too: int = -1) -> list[Member]:
    """Return the replicas on this machine of a group that is to come; also those that began as that of some group."""
    found = []
    for path in sorted(data_of(config, "g0/0").parent.glob(f"g*-*/{FILE}")):
        group, _, seat = path.parent.name[1:].partition("-")
        if not (group.isdigit() and seat.isdigit()) or (int(group) in config.groups and int(group) != group_too):
            continue
        agreed = read_agreed(path, config, Files())
        for listed in agreed.lists if agreed is not None else ():
            if (listed.group, listed.epoch) == (int(group), 0) and int(group) < len(config.topology.groups):
                found += [member_at(config, int(group), place) for place in listed.members if place.seat == int(seat)]
    return found


def replica_of(config: ClusterConfig, name: str) -> Member:
    """Return a replica of this machine: a member, one that is to become one, or was one. Raises UsageError."""
    found = [member for member in on_this_machine(config) if member.name == name]
    return found[0] if found else config.member(name)


class Changing:
    """One change of the members of one group, as a command makes it."""

    def __init__(
        self, processes: Processes, protocol: Protocol, group: int, client: str | None, seconds: float, say: Say
    ) -> None:
        self.processes = processes
        self.config = seated(processes.config, protocol)
        self.protocol = protocol
        self.group = group
        self.until = time.monotonic() + seconds
        self.say = say
        if protocol.change is None:
            raise UsageError(f"{protocol.name} has fixed members; expected a protocol whose members change: white_box")
        if not self.config.durable:
            raise UsageError(f"{self.config.path}: durable = false; members change only where replicas have disks")
        may = [name for name, grant in self.config.clients.items() if grant.operate]
        if not may:
            raise UsageError(
                f"{self.config.path}: no client may change members; add operate = true to one of [clients.NAME] "
                "and restart the nodes one by one"
            )
        if client is not None and client not in may:
            raise UsageError(f"{self.config.path}: {client!r} may not change members; expected {', '.join(may)}")
        self.client = client or may[0]

    @property
    def members(self) -> tuple[Member, ...]:
        return self.config.group(self.group)

    @property
    def names(self) -> str:
        return ", ".join(member.name for member in self.members)

    @property
    def next_seat(self) -> int:
        """Return the seat that nobody had before."""
        ever = [seat for g, _, seats, _, _ in self.config.lists if g == self.group for seat in seats]
        return max([*ever, self.config.size_at_first(self.group) - 1]) + 1

    def look(self) -> None:
        """See who the members are now. Raises UsageError if a change is under way, or nobody can be asked."""
        asyncio.run(self._look())
        newest = [row for row in self.config.lists if row[0] == self.group]
        if newest and not newest[-1][3] and not self._settles():
            raise UsageError(
                f"g{self.group}: its last change, to {self.names}, is still under way: they have no quorum yet; "
                f"see 'amcast cluster status {self.config.path.parent}'"
            )

    def _settles(self) -> bool:
        """Wait a while until the last change is done."""
        while time.monotonic() < self.until:
            asyncio.run(self._look())
            if [row for row in self.config.lists if row[0] == self.group][-1][3]:
                return True
            time.sleep(POLL)
        return False

    async def _look(self) -> None:
        async with Client(self.config, self.protocol, self.client) as client:
            heard = await client.conditions(5.0)
            self._learnt(client.config)
            if not any(name in heard for name in [member.name for member in self.members]):
                raise UsageError(f"g{self.group}: none of {self.names} answers; start them with 'amcast cluster up'")

    def _learnt(self, config: ClusterConfig) -> None:
        """Keep what a client has been told."""
        lists = merged(config.lists, self.config.lists)
        if lists and lists != self.config.lists:
            self.config = agreed_on(self.config, lists)
            keep(self.config)

    def begin(self, seat: int, address: Address | None, instead: str) -> Member:
        """Have a replica learn that is to become a member: files, then a process. Nothing is asked of the cluster."""
        config, name = self.config, f"g{self.group}/{seat}"
        found = next((one.member for one in joining_in(config) if one.member.name == name), None)
        if found is not None and address is not None and found.peer != address:
            raise UsageError(f"{name} is at {found.peer} and joins already; leave --address out to go on with that")
        member = found or self._made(name, seat, address)
        if found is None:
            self._refuse_place(member)
            self._prepare(member, agreed_of(self.config, self.config.lists, place_of(member), instead))
        if self.processes.running(member) is None:
            self._refuse_taken(member)
            self.processes.start(member)
        return member

    def _made(self, name: str, seat: int, address: Address | None) -> Member:
        if seat >= len(self.config.topology.groups[self.group]):
            most = len(self.config.topology.groups[self.group])
            raise UsageError(f"{name}: g{self.group} has had {most} members, and there is no seat for another one")
        if address is None:
            if not all(member.peer.loopback for member in self.config.members):
                raise UsageError(f"{name}: the cluster is not on this machine alone; say where it is with --address")
            address = Address(HOST, free_ports(len(ADDRESSES), None))
        places = [str(Address(address.host, address.port + offset)) for offset in range(len(ADDRESSES))]
        return member_at(self.config, self.group, Place(seat, *places))

    def _refuse_place(self, member: Member, more: Sequence[Member] = ()) -> None:
        """Raise UsageError if this is no place for a replica."""
        if member.peer.port + len(ADDRESSES) - 1 > 65_535:
            raise UsageError(f"--address {member.peer}: it takes {len(ADDRESSES)} ports; expected 65533 or less")
        others = [*self.config.members, *[one.member for one in joining_in(self.config)], *founding_in(self.config)]
        refuse_addresses(str(self.config.path), (*others, *more, member), plaintext=self.config.tls is None)
        self._refuse_taken(member)

    def _refuse_taken(self, member: Member) -> None:
        taken = first_taken_at(member.peer.host, member.peer.port, len(ADDRESSES))
        if taken is not None:
            raise UsageError(f"{member.name}: {taken}; expected {len(ADDRESSES)} free ports of this machine")

    def _prepare(self, member: Member, agreed: Agreed) -> None:
        """Make its certificate and its data folder; what another replica left there is refused."""
        config = self.config
        said = [status_of(config, other) for other in self.members]
        began, format = max(map(began_of, said)), max([OLDEST, *map(format_of, said)])
        if config.tls is not None:
            from amcast.runtime.certificates import check_certificate, make_certificates

            if (config.tls.folder / "ca.key").exists():
                make_certificates(config.tls.folder, config.name, [member.name])
            check_certificate(config.tls.folder, config.tls.ca, config.name, member.name)
        storage = Storage(member.data, f"{config.name} {member.name}")
        try:
            if not storage.description:
                storage.describe(Described(cluster=config.identity, app_version=began, format=format).encoded())
        finally:
            storage.close()
        write(member.data / FILE, written(agreed))

    def learn(self, member: Member) -> None:
        """Wait until it has what its group delivered, but for a rest."""
        self.say(f"{member.name}: learns what g{self.group} delivered")
        while True:
            lacks, why = self._lacks(member)
            if not why and lacks <= NEAR // 2:
                return
            if self.processes.running(member) is None:
                words = self.processes.last_words(member)
                raise AmcastError(f"{member.name} stopped: {words}; {self.how_to_go_on(member)}")
            if time.monotonic() > self.until:
                why = why or f"lacks {lacks} deliveries"
                raise AmcastError(f"{member.name} still learns: {why}; {self.how_to_go_on(member)}")
            time.sleep(POLL)

    def how_to_go_on(self, member: Member) -> str:
        folder = self.config.path.parent
        return f"see 'amcast cluster logs {folder} {member.name}'; the same command goes on, 'remove' undoes it"

    def _lacks(self, member: Member) -> tuple[int, str]:
        """Return how many deliveries a replica lacks, and why that is not known."""
        said = status_of(self.config, member)
        if isinstance(said, str):
            return 0, said
        ahead = 0
        for other in self.members:
            theirs = status_of(self.config, other)
            if isinstance(theirs, str):
                continue
            guests = theirs.get("guests")
            known = guests.get(member.name) if isinstance(guests, dict) else None
            if theirs.get("leads") and not (isinstance(known, int) and known >= 0):
                return 0, f"{other.name} has not met it yet"
            position = theirs.get("position")
            ahead = max(ahead, position if isinstance(position, int) else 0)
        position = said.get("position")
        return ahead - (position if isinstance(position, int) else 0), str(said.get("pulling") or "")

    def agree(self, members: list[Member]) -> None:
        """Have the group agree that these are its members, and wait until they are at work."""
        asyncio.run(self._agree(sorted(members, key=lambda member: member.rank)))

    async def _agree(self, members: list[Member]) -> None:
        g, seats = self.group, tuple([member.rank for member in members])
        async with Client(self.config, self.protocol, self.client) as client:
            await client.conditions(5.0)
            self._learnt(client.config)
            epoch = epoch_of(self.config, g)
            change = Change(0, g, epoch, seats, about_of(members))
            why = ""
            while time.monotonic() < self.until:
                if epoch_of(client.config, g) == epoch:
                    why = await self._ask(client, change) or why
                await self._wait(client, epoch)
                self._learnt(client.config)
                found = [row for row in self.config.lists if row[0] == g and row[1] == epoch + 1]
                if found and found[0][2] != seats:
                    raise UsageError(f"the members of g{g} have changed meanwhile: they are {self.names}; look again")
                if found and found[0][3]:
                    return
        raise AmcastError(
            f"g{g}: not done in time{f': {why}' if why else ''}; the same command goes on, and "
            f"'amcast cluster status {self.config.path.parent}' says how far it is"
        )

    async def _ask(self, client: Client, change: Change) -> str:
        """Ask the members one after the other; return why none has taken it, empty if one has."""
        why = ""
        for member in self.members:
            try:
                await client.change_members(member.pid, change, 3.0)
                return ""
            except Refused as error:
                raise UsageError(f"{member.name}: {error}") from None
            except (AmcastError, TimeoutError) as error:
                if not isinstance(error, TimeoutError) and "does not lead" not in str(error):
                    why = str(error)
        return why

    async def _wait(self, client: Client, epoch: int) -> None:
        """Wait until there is news, and not for long."""
        until = time.monotonic() + ASK_EVERY
        while time.monotonic() < until:
            rows = [row for row in client.config.lists if row[0] == self.group and row[1] > epoch]
            if rows and rows[-1][3]:
                return
            await asyncio.sleep(POLL)
        with suppress(AmcastError):
            await client.conditions(1.0)  # whoever is connected says what is new

    def stop(self, member: Member) -> None:
        """Stop one that is no member any more, if it runs here. Its data stays as it is."""
        if self.processes.running(member) is not None:
            self.processes.stop([member])
            self.say(f"{member.name}: stopped; its data stays in {member.data}")
        elif not isinstance(status_of(self.config, member), str):
            self.say(f"{member.name}: still runs elsewhere; stop it there")


def add(change: Changing, seat: int, address: Address | None) -> None:
    """Let a replica become a member that was none before."""
    change.look()
    name = f"g{change.group}/{seat}"
    if seat in [member.rank for member in change.members]:
        raise UsageError(f"{name} is a member of g{change.group} already: {change.names}")
    if seat < change.next_seat:
        raise UsageError(
            f"{name} was a member before, and is none again: others remember it; the next one is "
            f"g{change.group}/{change.next_seat}"
        )
    waits = next((one for one in joining_in(change.config) if one.member.name == name and one.instead), None)
    if waits is not None:
        raise UsageError(f"{name} is to take the place of {waits.instead}; go on with 'replace', undo it with 'remove'")
    member = change.begin(seat, address, "")
    change.learn(member)
    change.agree([*change.members, member])
    change.say(f"g{change.group}: {change.names}")


def remove(change: Changing, name: str) -> None:
    """Let a member go, or one that is to join."""
    change.look()
    joins = next((one for one in joining_in(change.config) if one.member.name == name), None)
    if joins is not None:
        change.processes.stop([joins.member])
        write(joins.member.data / FILE, written(agreed_of(change.config, change.config.lists)))
        change.say(f"{name}: does not join; its data stays in {joins.member.data}")
        return
    member = replica_of(change.config, name)
    left = [other for other in change.members if other.pid != member.pid]
    if len(left) < len(change.members):
        if not left:
            raise UsageError(f"{name} is the last member of g{change.group}, which cannot be without one")
        change.agree(left)
    change.stop(member)
    change.say(f"g{change.group}: {change.names}")


def replace(change: Changing, name: str, address: Address | None) -> None:
    """Let a new replica take the place of a member, which may be up, down or lost."""
    change.look()
    member = replica_of(change.config, name)
    if member.pid not in [other.pid for other in change.members]:
        change.stop(member)
        raise UsageError(f"{name} is no member any more: g{change.group} is {change.names}")
    waits = next((one.member for one in joining_in(change.config) if one.instead == name), None)
    others = [one.member.rank for one in joining_in(change.config) if one.member.group == change.group]
    seat = waits.rank if waits is not None else max([change.next_seat - 1, *others]) + 1
    new = change.begin(seat, address, name)
    change.learn(new)
    change.agree([*[other for other in change.members if other.pid != member.pid], new])
    change.stop(member)
    change.say(f"g{change.group}: {change.names}")


def epoch_of(config: ClusterConfig, g: int) -> int:
    return max([row[1] for row in config.lists if row[0] == g], default=0)


def began_of(said: dict[str, object] | str) -> int:
    """Return the version of the application with which a node began; 0 if it came later, or does not say."""
    app = said.get("app") if not isinstance(said, str) else None
    began = app.get("began") if isinstance(app, dict) else None
    return began if isinstance(began, int) else 0


def format_of(said: dict[str, object] | str) -> int:
    """Return the format that is in use, so far as a node knows; 0 if it does not say."""
    format = said.get("format") if not isinstance(said, str) else None
    used = format.get("used") if isinstance(format, dict) else None
    return used if isinstance(used, int) else 0


def write(path: Path, data: bytes) -> None:
    new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")  # two groups may change at once
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be written ({error.strerror})") from error


def keep(config: ClusterConfig) -> None:
    """Write down beside cluster.toml who the members are, for all commands and clients that begin here."""
    path = config.path.parent / FILE
    there = read_agreed(path, config, Files())
    lists = merged(config.lists, lists_of(there)) if there is not None else config.lists
    write(path, written(agreed_of(config, lists)))


def lines_about(config: ClusterConfig) -> list[str]:
    """Say who the members are where they have changed, and what is under way."""
    folder = config.path.parent
    lines = []
    for g in config.groups:
        newest = [row for row in config.lists if row[0] == g]
        if newest:
            settled = "" if newest[-1][3] else "; under way: they are not at work yet, which takes a quorum of them"
            names = ", ".join(member.name for member in config.group(g))
            since = f"since change {newest[-1][1]}" if newest[-1][1] else "added"
            lines.append(f"g{g}: {names} {since}{settled}")
    for one in joining_in(config):
        command = f"replace {folder} {one.instead}" if one.instead else f"add {folder} {one.member.name}"
        goes_on = f"'amcast cluster {command}' goes on"
        if one.instead and one.instead not in [member.name for member in config.members]:
            goes_on = f"{one.instead}, whose place it was to take, is none any more"
        lines.append(
            f"under way: {one.member.name} learns and is no member yet: {goes_on}, "
            f"'amcast cluster remove {folder} {one.member.name}' undoes it"
        )
    for g in sorted({member.group for member in founding_in(config)}):
        lines.append(
            f"under way: g{g} runs and is no group of the cluster yet: 'amcast cluster add-group {folder} g{g}' goes "
            "on, with --undo it undoes that"
        )
    return lines
