"""An application of one's own on simulated clusters: real nodes, disks and clients, under faults that seeds draw.

Every seed is judged as those of `amcast swarm --cluster` are: replicas apply the same and answer the same, nothing
acknowledged is lost, snapshots are the state, and in the calm at the end all calls have an answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from amcast.core.application import Factory, StateMachine
from amcast.errors import Alarm, UsageError
from amcast.runtime.client import Client
from amcast.swarm.cluster.judge import CheckedMachine
from amcast.swarm.cluster.setup import STORE, Setup, draw_setup
from amcast.swarm.cluster.trial import Trial, together, unanswered
from amcast.swarm.cluster.world import Life, ProcessMachine, Program, Seat

MOST_USERS: Final = 4  # of a client, at a time
Use = Callable[[Client, Random], Awaitable[None]]
Judge = Callable[[Mapping[str, StateMachine]], None]


@dataclass(frozen=True)
class Tried:
    """What an application went through."""

    seeds: int
    applied: int  # messages, at all replicas together
    faults: int


def try_application(
    machine: Factory,
    use: Use,
    *,
    judge: Judge = lambda machines: None,
    seeds: int = 10,
    first: int = 1,
    protocol: str = "white_box",
) -> Tried:
    """Run an application on so many simulated clusters, and return what it went through.

        tried = try_application(Inventory, use, judge=nothing_oversold, seeds=20)

    `machine` makes the state machine of a group, as in a cluster. `use` is what users do, by a client and chance of
    their own; several run at a time, and one begins again when its client was killed. They meet failed multicasts and
    unknown outcomes, as in life. `judge` gets the state machine of each group, by its name, when all is calm: it
    asserts what must hold. Raises Alarm for the first seed in which something is wrong.
    """
    applied = faults = 0
    for seed in range(first, first + seeds):
        setup = replace(draw_setup(protocol, seed, STORE), traced=True)
        trial = ApplicationTrial(setup, machine, use, judge)
        try:
            result = trial.run()
        finally:
            trial.close()
        if result.alarm is not None:
            raise Alarm(result.alarm.kind, f"{result.alarm.reason} (seed {seed}: {setup})") from result.alarm
        applied += result.applied
        faults += result.faults
    if applied == 0:
        raise UsageError(
            f"nothing was applied in {seeds} seeds: expected a `use` that multicasts, and seeds of 1 or more"
        )
    return Tried(seeds, applied, faults)


class ApplicationTrial(Trial):
    """A run with somebody else's application and users."""

    def __init__(self, setup: Setup, machine: Factory, use: Use, judge: Judge) -> None:
        self.machine = machine
        self.use = use
        self.judge = judge
        super().__init__(setup)
        self.world.move_slots = lambda *_: None  # it need not have any

    def _application(self, seat: Seat, life: Life) -> Factory:
        def unapplied() -> int:
            return len(life.node.engine.out.deliveries) if life.node is not None else 0

        group = self.world.config.topology.group_name(seat.member.group)
        return self.journal.checked(seat.name, group, self.machine, unapplied)

    async def _client(self, program: Program, machine: ProcessMachine) -> None:
        async with self._new_client(program, machine) as client:
            await together([self._user(client, machine.random) for _ in range(min(MOST_USERS, self.setup.users))])
            await self._until_calm()
            while unanswered(client):
                await asyncio.sleep(0.1)
        self.clients[program.name] = True

    async def _user(self, client: Client, random: Random) -> None:
        await self.use(client, random)

    def _judge_the_end(self) -> None:
        super()._judge_the_end()
        machines: dict[str, StateMachine] = {}
        for seat in self._needed():
            app = seat.node.app.app if seat.node is not None and seat.node.app is not None else None
            if isinstance(app, CheckedMachine):
                machines[self.world.config.topology.group_name(seat.member.group)] = app.inner
        try:
            self.judge(machines)
        except AssertionError as error:
            raise Alarm("judged", str(error) or "the judge does not accept the states in the calm") from error
