"""A group comes while the cluster runs: what the command does about it.

Its replicas get folders and processes on this machine, and elect a leader. Then the leader of the first group is asked
to have the group added, until all members of the cluster know of it. Until it is asked that can be undone; from then on
the group may be there at any time, and the same command goes on: `ASKED`, in the folders of its replicas, says so.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from amcast.core.protocol import Protocol
from amcast.core.requests import REGISTRAR
from amcast.errors import AmcastError, Refused, UsageError
from amcast.local.files import HOST, free_ports, refuse_other_data
from amcast.local.level import status_of
from amcast.local.membership import ASK_EVERY, Changing, Say, founding_in, write
from amcast.local.processes import POLL, Processes
from amcast.runtime.client import Client
from amcast.runtime.config import ADDRESSES, LATER_GROUPS, Address, Member
from amcast.runtime.frames import Change
from amcast.runtime.machine import Files
from amcast.runtime.seats import FILE, Place, about_of, agreed_of, member_at, read_agreed

ASKED: Final = "asked"  # the file that says that the group may be there by now
REPLICAS: Final = 3  # of a group, where nothing else is said


class Adding(Changing):
    """A group that is to come, as a command adds it."""

    def __init__(
        self, processes: Processes, protocol: Protocol, number: int, client: str | None, seconds: float, say: Say
    ) -> None:
        super().__init__(processes, protocol, REGISTRAR, client, seconds, say)
        self.number = number
        if self.protocol.found is None:
            raise UsageError(f"{self.protocol.name} has fixed groups; expected a protocol that adds some: white_box")

    @property
    def name(self) -> str:
        return f"g{self.number}"

    def how_to_go_on(self, member: Member) -> str:
        folder = self.config.path.parent
        return f"see 'amcast cluster logs {folder} {member.name}'; the same command goes on, with --undo it undoes it"

    def add(self, addresses: Sequence[Address]) -> None:
        """Add the group, or go on with that. Raises UsageError, before anything is changed, for what cannot be."""
        self.look()
        founders = self._begun()
        if self.number in self.config.groups:
            if not addresses or [member.peer for member in self.config.group(self.number)] == list(addresses):
                self.wait_until_known()
                return
            raise UsageError(f"{self.name} is a group already: {self._names()}; the next one is g{self._next}")
        if self.number != self._next:
            raise UsageError(f"{self.name}: the next group is g{self._next}; groups are numbered without gaps")
        if self.number >= len(self.config.topology.groups):
            raise UsageError(f"{self.name}: the cluster has had {LATER_GROUPS} more groups, and gets no other one")
        if founders and addresses and [member.peer for member in founders] != list(addresses):
            where = ", ".join(str(member.peer) for member in founders)
            raise UsageError(f"{self.name} begins at {where} already; leave --address out to go on with that")
        self._refuse_without_quorum()
        founders = founders or self._founded(addresses)
        for member in founders:
            if self.processes.running(member) is None:
                self._refuse_taken(member)
        row = (self.number, 0, tuple(range(len(founders))), True, about_of(founders))
        for member in founders:
            if not (member.data / FILE).exists():
                self._prepare(member, agreed_of(self.config, (*self.config.lists, row)))
        for member in founders:
            if self.processes.running(member) is None:
                self.processes.start(member)
        self.say(f"{self.name}: starts")
        asyncio.run(self._ask_until_added(founders))
        self.wait_until_known()

    @property
    def _next(self) -> int:
        return len(self.config.groups)

    def _names(self) -> str:
        return ", ".join(member.name for member in self.config.group(self.number))

    def _refuse_without_quorum(self) -> None:
        """Raise UsageError if some group does not serve: it is to be there before another one comes."""
        for g in self.config.groups:
            said = [status_of(self.config, member) for member in self.config.group(g)]
            if not any(isinstance(one, dict) and one.get("leads") and not one.get("unready") for one in said):
                why = next((one for one in said if isinstance(one, str)), "none of its replicas leads")
                raise UsageError(f"g{g} does not serve: {why}; bring it back before {self.name} is added")

    def _founded(self, addresses: Sequence[Address]) -> list[Member]:
        """Return the replicas of the group. Raises UsageError if they cannot be here, and makes nothing."""
        if not addresses:
            if not all(member.peer.loopback for member in self.config.members):
                raise UsageError(f"{self.name}: the cluster is not on this machine alone; say where with --address")
            first = free_ports(len(ADDRESSES) * REPLICAS, None)
            addresses = [Address(HOST, first + len(ADDRESSES) * i) for i in range(REPLICAS)]
        members: list[Member] = []
        for seat, address in enumerate(addresses):
            places = [str(Address(address.host, address.port + offset)) for offset in range(len(ADDRESSES))]
            members.append(member_at(self.config, self.number, Place(seat, *places)))
        for i, member in enumerate(members):
            self._refuse_place(member, members[:i])
        refuse_other_data(self.config, members)
        return members

    def _begun(self) -> list[Member]:
        """Return all replicas of the group if the command came so far before that one of them has its folder."""
        for one in founding_in(self.config, self.number):
            agreed = read_agreed(one.data / FILE, self.config, Files()) if one.group == self.number else None
            for listed in agreed.lists if agreed is not None else ():
                if (listed.group, listed.epoch) == (self.number, 0):
                    return [member_at(self.config, self.number, place) for place in listed.members]
        return []

    async def _ask_until_added(self, founders: list[Member]) -> None:
        """Have the first group add it."""
        change = Change(0, self.number, 0, tuple([member.rank for member in founders]), about_of(founders))
        why = ""
        async with Client(self.config, self.protocol, self.client) as client:
            while time.monotonic() < self.until:
                await client.conditions(1.0)  # whoever is connected says what is new
                self._learnt(client.config)
                if self.number in self.config.groups:
                    self._refuse_another(founders)
                    self.say(f"{self.name}: added; {self._names()}")
                    return
                why = await self._ask_for(client, change, founders) or why
                await asyncio.sleep(ASK_EVERY / 4)
        for member in founders:
            if self.processes.running(member) is None:
                words = self.processes.last_words(member)
                raise AmcastError(f"{member.name} stopped: {words}; {self.how_to_go_on(member)}")
        raise AmcastError(
            f"{self.name}: not added in time{f': {why}' if why else ''}; the same command goes on, and "
            f"'amcast cluster status {self.config.path.parent}' says how far it is"
        )

    def _refuse_another(self, founders: list[Member]) -> None:
        if [member.peer for member in self.config.group(self.number)] != [member.peer for member in founders]:
            raise UsageError(
                f"{self.name} was added by somebody else meanwhile: {self._names()}; take this one back with --undo, "
                f"and add g{self._next}"
            )

    async def _ask_for(self, client: Client, change: Change, founders: list[Member]) -> str:
        """Ask the members of the first group one after the other; return why none has taken it, empty if one has."""
        for member in founders:  # from now on it may be added at any time
            write(member.data / ASKED, b"")
        why = ""
        for member in self.config.group(REGISTRAR):
            try:
                await client.change_members(member.pid, change, 3.0)
                return ""
            except Refused as error:
                raise UsageError(f"{member.name}: {error}") from None
            except (AmcastError, TimeoutError) as error:
                if not isinstance(error, TimeoutError) and "does not lead" not in str(error):
                    why = str(error)
        return why

    def wait_until_known(self) -> None:
        """Wait until all members that answer know of the group."""
        while True:
            waits: list[str] = []
            for member in self.config.members:
                said = status_of(self.config, member)
                groups = said.get("groups") if isinstance(said, dict) else None
                if isinstance(said, dict) and not (isinstance(groups, list) and self.name in groups):
                    waits.append(member.name)
            if not waits:
                return
            if time.monotonic() > self.until:
                raise AmcastError(f"{self.name} is added, but {', '.join(waits)} has not heard of it in time")
            time.sleep(POLL)

    def undo(self) -> None:
        """Take back a group that nobody was asked to add yet, or that was not added because another one was."""
        self.look()
        founders = self._begun()
        added = [member.peer for member in self.config.group(self.number)] if self.number in self.config.groups else []
        if not founders or added == [member.peer for member in founders]:
            said = "is a group of the cluster" if added else "does not begin on this machine"
            raise UsageError(f"{self.name} {said}; only what is not added yet is undone")
        if not added and any((member.data / ASKED).exists() for member in founders):
            raise UsageError(
                f"{self.name} may be added at any time: the cluster was asked to; go on with "
                f"'amcast cluster add-group {self.config.path.parent} {self.name}'"
            )
        self.processes.stop(founders)
        for member in [member for member in founders if member.data.exists()]:
            away = [member.data.with_name(f"undone-{n}-{member.data.name}") for n in range(1, 1000)]
            member.data.rename(next(path for path in away if not path.exists()))
        self.say(f"{self.name}: undone; what its replicas wrote is in {founders[0].data.parent}/undone-*")
