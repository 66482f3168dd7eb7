"""Operators of a simulated cluster: programs that ask for something until it is done.

Some change who the members of its groups are, others move slots of the store.
"""

import asyncio
from contextlib import suppress

from amcast.apps.kv.moving import Carrier
from amcast.apps.kv.rebalancing import slots_of
from amcast.apps.kv.slots import slot_of
from amcast.apps.kv.wire import Move
from amcast.core.capabilities import MemberLists
from amcast.core.protocol import Protocol
from amcast.errors import AmcastError
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.frames import Change
from amcast.runtime.seats import FILE, about_of, agreed_of, agreed_on, member_at, merged, seated, written
from amcast.swarm.cluster.load.wishes import Keys
from amcast.swarm.cluster.setup import OPERATOR, Setup, place_of_seat
from amcast.swarm.cluster.world import ProcessMachine, Program, Seat, World, trace_of

PATIENCE = 2.0  # seconds for an answer
PAUSE = 0.3


class Operators:
    """One for each change. A group has one change at a time, two groups may change at once."""

    def __init__(self, world: World, setup: Setup) -> None:
        self._world = world
        self._setup = setup
        self.config: ClusterConfig = seated(world.config, world.table)  # with what was agreed on, as a file has it
        self._members: dict[int, list[Member]] = {g: list(self.config.group(g)) for g in range(setup.groups)}
        self._next = dict.fromkeys(self._members, setup.replicas)
        self._under_way: dict[int, str] = {}  # what each changes, by group
        self._moving: set[str] = set()  # who moves slots

    @property
    def busy(self) -> str:
        return ", ".join([*self._under_way.values(), *self._moving])

    def change(self, seat: Seat, goes: bool, comes: bool) -> None:
        """Begin a change, unless there is nothing to change, or something changes."""
        g, world = seat.member.group, self._world
        members = self._members[g]
        known = seat.member in members
        left = [member for member in members if not (goes and member == seat.member)]
        if world.calm or g in self._under_way or not known or world.table.change is None:
            return
        if not comes and len(left) < 3:  # two bear no fault, and a lost disk is one
            return
        new: Member | None = None
        if comes:
            place = place_of_seat(g, self._next[g])
            new = member_at(self.config, g, place)
            joins = written(agreed_of(self.config, self.config.lists, place, seat.name if goes else ""))
            self._next[g] += 1
            world.start(world.add_seat(new, joins), new=True)
        wanted = [*left, *([new] if new is not None else [])]
        names = ", ".join(member.name for member in wanted)
        self._under_way[g] = names
        number = len([name for name in world.programs if name.startswith(OPERATOR)])
        host = world.add_host(f"{OPERATOR}{number}", f"127.0.150.{1 + number}")
        gone = [member for member in members if member not in wanted]

        async def main(program: Program, machine: ProcessMachine) -> None:
            lists = await insist(self.config, world.table, machine, g, wanted)
            self.config = agreed_on(self.config, merged(lists, self.config.lists))
            while new is not None and self._lacks_rows(new):  # who goes may be the only one that has them
                await asyncio.sleep(PAUSE)
            self._members[g] = wanted
            del self._under_way[g]
            world.write_down(program.name, f"g{g} is {names}")
            if not any(member.group == g for member in self.config.began if member in wanted):
                # whoever was away all the time knows nobody who is left
                path = self.config.path.parent / FILE
                world.shared[path] = written(agreed_of(self.config, self.config.lists))
            for member in gone:
                world.leave(world.seats[member.name])

        program = world.programs[host.name] = Program(host.name, host, main)
        world.write_down(host.name, f"g{g} is to be {names}")
        world.start_program(program)

    def move_slots(self, source: int, target: int, part: int, pause: int) -> None:
        """Begin to move slots from one group to another; stand still in between, as if nobody went on with it."""
        world = self._world
        if world.calm:
            return
        number = len([name for name in world.programs if name.startswith(OPERATOR)])
        host = world.add_host(f"{OPERATOR}{number}", f"127.0.150.{1 + number}")

        async def main(program: Program, machine: ProcessMachine) -> None:
            trace = trace_of(program) if world.traced else None
            async with Client(self.config, world.table, OPERATOR, PATIENCE, trace=trace, machine=machine) as client:
                carrier = Carrier(client, machine.limits.lock_seconds)
                await begin_move(carrier, self.config, source, target, part)
                await asyncio.sleep(pause / 1000)
                while True:
                    with suppress(AmcastError, TimeoutError):
                        await carrier.finish(range(self._setup.groups), PATIENCE)
                        break
                    await asyncio.sleep(PAUSE)
                while client._engine.open:  # else a group may yet wait for this
                    await asyncio.sleep(PAUSE)
            self._moving.discard(program.name)
            world.write_down(program.name, "slots have moved")

        self._moving.add(host.name)
        program = world.programs[host.name] = Program(host.name, host, main)
        world.write_down(host.name, f"slots of g{source} are to be g{target}'s")
        world.start_program(program)

    def _lacks_rows(self, member: Member) -> bool:
        """Return whether a replica has not yet got all that its group delivered, and its trace, which somebody has."""
        world = self._world
        node = world.seats[member.name].node
        if node is None or node.readiness() is not None:
            return True
        return node.trace is not None and node.trace.lacks and not world.lost_some_of(member.group)


async def begin_move(carrier: Carrier, config: ClusterConfig, source: int, target: int, part: int) -> None:
    """Ask for a move of one slot in so many that hold something, by the map of now. Somebody else may be first."""
    until = asyncio.get_running_loop().time() + PATIENCE
    with suppress(AmcastError, TimeoutError):
        slots = slots_of(await carrier.view(source, until))
        used = {slot_of(key) for asked in Keys().everything() for command in asked.commands for key in command[1:]}
        some = sorted(slot for slot in used if slots.owners[slot] == source)[::part]
        if some:
            size = config.largest_message // 8
            await carrier.ask(slots.groups, Move(slots.version, source, target, some, size), until)


async def insist(
    config: ClusterConfig, table: Protocol, machine: ProcessMachine, g: int, wanted: list[Member]
) -> MemberLists:
    """Ask for these members until they are at work; return all lists that are known then."""
    seats = tuple(sorted(member.rank for member in wanted))
    about = about_of(sorted(wanted, key=lambda member: member.rank))
    async with Client(config, table, OPERATOR, machine=machine) as client:
        while True:
            with suppress(AmcastError, TimeoutError):
                await client.conditions(PATIENCE)
            newest = [row for row in client.config.lists if row[0] == g]
            if newest and newest[-1][2] == seats and newest[-1][3]:
                return client.config.lists
            epoch = newest[-1][1] if newest else 0
            for member in client.config.group(g):
                with suppress(AmcastError, TimeoutError):
                    await client.change_members(member.pid, Change(0, g, epoch, seats, about), PATIENCE)
                    break
            await asyncio.sleep(PAUSE)
