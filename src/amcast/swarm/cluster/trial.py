"""One seed of the whole cluster: run it, and say what is wrong with it.

Until the calm anything may fail, and nothing may be wrong. Then faults end, everybody starts who is not to stay away,
and within `BOUND` seconds all calls have an answer, all replicas of a group are idle at the same position with the same
state, and the traces of all lives keep every promise.
"""

import asyncio
import errno
import gc
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from amcast.apps import KV_STORE
from amcast.apps.kv.gateway import Gateway, serve
from amcast.checks.refusals import without_withdrawn
from amcast.checks.serializable import Outcome
from amcast.core.application import StateMachine
from amcast.errors import Alarm, StorageCorrupt, StorageFailure, UsageError
from amcast.protocols import protocol
from amcast.runtime.client import Client
from amcast.runtime.config import ClusterConfig
from amcast.runtime.log import Log
from amcast.runtime.node import Node
from amcast.runtime.tracing import as_one
from amcast.swarm.cluster import judge
from amcast.swarm.cluster.calendar import MILLISECOND, SECOND
from amcast.swarm.cluster.faults.disks import OLDER_THAN_HEARD, doubt_of
from amcast.swarm.cluster.faults.upgrades import change_release
from amcast.swarm.cluster.judge import Excuse, Journal
from amcast.swarm.cluster.load.book import Book
from amcast.swarm.cluster.load.echo import Echo, EchoUser
from amcast.swarm.cluster.load.resp import RespUser
from amcast.swarm.cluster.load.store import DirectUser, read_everything, use_store
from amcast.swarm.cluster.load.wishes import Keys
from amcast.swarm.cluster.loop import ProcessLoop
from amcast.swarm.cluster.next_release import NEXT
from amcast.swarm.cluster.operators import Operators
from amcast.swarm.cluster.setup import ECHO, GATEWAY, RESP_PORT, Setup, config_of, other_config
from amcast.swarm.cluster.world import Life, NodeLog, ProcessMachine, Program, Seat, World, trace_of
from amcast.tracefile.text import event_of_json

BOUND: Final = 120  # seconds after the calm
MOST_EVENTS: Final = 2_000_000  # in a run (four replicas that take a large state in parts of 500 bytes: 820,000), and …
# … bytes that arrive: more are something that goes round in circles. All payloads of a run are 6 MB; each goes to all
# replicas of all its groups from every leader, and again while one of these groups is away: 100 times have been seen.
MOST_MOVED: Final = 1_500_000_000
LOOK_EVERY: Final = 500 * MILLISECOND
TIME_TO_NOTICE: Final = 300 * MILLISECOND  # until an operator starts again what ended by itself …
TIME_TO_DECIDE: Final = 5 * SECOND  # … or helps what waits for those who never come back
EXCUSES: Final[dict[str, tuple[Excuse, ...]]] = {  # for which a node may end, by what a fault did to it
    "harmed": (Excuse(StorageCorrupt), Excuse(UsageError)),
    "full": (Excuse(StorageFailure), Excuse(OSError, errno.ENOSPC)),
    "failing": (Excuse(StorageFailure), Excuse(OSError, errno.EIO)),
}
OLDER: Final = {"older", OLDER_THAN_HEARD}


@dataclass(frozen=True)
class Result:
    """What became of a run."""

    alarm: Alarm | None
    digest: int
    events: int
    turns: int
    seconds: float  # of virtual time
    settled: float  # seconds from the calm until all was well
    multicasts: int
    applied: int
    replicas: int  # that applied something
    faults: int


class Trial:
    """A run, from its setup to its result."""

    def __init__(self, setup: Setup) -> None:
        """Prepare a run. From here to `close` nothing is collected: that would run code of the dead.

        What is there now need not be looked at after every seed; all that the run makes must be, or it stays for good.
        """
        self._collecting = gc.isenabled()
        gc.freeze()
        gc.disable()
        self.setup = setup
        self.journal = Journal()
        self.alarms: list[Alarm] = []
        self.clients: dict[str, bool] = {}  # whether each is done
        self.gateways: dict[str, Client] = {}  # what each sends with, in its last life
        self.world = World(
            setup.seed,
            config_of(setup),
            protocol(setup.protocol),
            self._application,
            setup.limits,
            setup.weather,
            traced=setup.traced,
            turn_cost=setup.turn_cost,
        )
        self.book = Book(lambda: self.world.calendar.now / SECOND)
        self.world.ended = self._node_ended
        self.world.other_config = lambda other, seat: other_config(setup, other, seat.name)
        self.world.ready = self._node_ready
        self.world.complaint = self._complained
        self.world.change_members = self._change_members
        self.world.passed = passed
        self.operators = Operators(self.world, setup)
        self.world.move_slots = self.operators.move_slots
        self._make_clients()

    # The run

    def run(self) -> Result:
        """Run to the end, or to the first alarm."""
        world, setup = self.world, self.setup
        settled = -1
        try:
            for seat in world.seats.values():
                world.start(seat, new=True)
            for program in world.programs.values():
                world.start_program(program)
            for fault in setup.plan:
                world.calendar.at(fault.at * MILLISECOND, fault.act, world)
            world.calendar.at(setup.calm_at * MILLISECOND, self._calm_down)
            world.calendar.at(LOOK_EVERY, self._look)
            calm_at = setup.calm_at * MILLISECOND
            if not world.calendar.run(calm_at, self._alarmed):
                world.calendar.run(calm_at + BOUND * SECOND, lambda: self._alarmed() or self._settled())
                settled = world.calendar.now - calm_at
            if not self._alarmed():
                self._judge_the_end()
        except Alarm as alarm:
            self.alarms.append(alarm)
        return self._result(settled)

    def close(self) -> None:
        """Let go of everything, and collect it: what is still held here would be frozen by the next run, for good."""
        self.world.bury()
        collecting = self._collecting
        vars(self).clear()
        if collecting:
            gc.enable()
            gc.collect()
            gc.unfreeze()

    def _result(self, settled: int) -> Result:
        world = self.world
        rows = [row for group in self.journal.applied.values() for row in group]
        return Result(
            alarm=next(iter(self._all_alarms()), None),
            digest=hash((world.calendar.digest, world.calendar.now, self.journal.applications, len(rows))),
            events=world.calendar.events,
            turns=sum(process.turns for process in world.processes),
            seconds=world.calendar.now / SECOND,
            settled=settled / SECOND,
            multicasts=len(self.book.calls),
            applied=self.journal.applications,
            replicas=len({seat.name for seat in world.seats.values() if any(life.ready for life in seat.lives)}),
            faults=len(self.setup.plan),
        )

    def _all_alarms(self) -> list[Alarm]:
        return [*self.journal.alarms, *self.book.alarms, *self.alarms]

    def _alarmed(self) -> bool:
        if self.world.calendar.events > MOST_EVENTS and not self.alarms:
            self.alarms.append(Alarm("no end", f"{MOST_EVENTS:,} events; the log says what is done again and again"))
        return bool(self.journal.alarms or self.book.alarms or self.alarms)

    def _look(self) -> None:
        """Complain about calls that should have ended, and about a run that does not."""
        moved = sum(process.received for process in self.world.processes)
        if moved > MOST_MOVED:
            self.alarms.append(Alarm("no end", f"{moved:,} bytes arrived; the log says what is sent again and again"))
        try:
            self.book.check_open()
        except Alarm:
            return  # it is in the book
        self.world.calendar.after(LOOK_EVERY, self._look)

    # Nodes

    def _application(self, seat: Seat, life: Life) -> Callable[[int, int], StateMachine]:
        inner = Echo if self.setup.load == ECHO else KV_STORE.machine
        assert inner is not None
        group = self.world.config.topology.group_name(seat.member.group)

        def unapplied() -> int:
            return len(life.node.engine.out.deliveries) if life.node is not None else 0

        return self.journal.checked(seat.name, group, inner, unapplied)

    def _node_ready(self, seat: Seat, life: Life) -> None:
        if life.wrong is not None:
            self.alarms.append(Alarm("wrong start", f"{seat.name} serves with {said_of(life.wrong)}"))
            return
        shadow = seat.host.disk.shadow
        assert life.node is not None
        if life.rejoins or life.node.durability.rejoining:  # an earlier life may have begun it
            shadow.begin_again(seat.member.data)
            seat.reasons -= OLDER
            return
        complaint = shadow.judge(seat.member.data, 2**62)
        if complaint and "older" in seat.reasons:  # nothing on this disk can tell; others have to be asked
            if OLDER_THAN_HEARD in seat.reasons:  # they will tell it, and it stops
                life.forgot = complaint
        else:
            self._guarded(judge.check_start, seat.name, complaint)

    def _node_ended(self, seat: Seat, life: Life, error: BaseException | None) -> None:
        """Be the operator: look at why it ended, and start it again in the way that goes with that."""
        if error is None:  # to stop in order may take longer than it was to be away
            again = max(seat.down_until, self.world.calendar.now + TIME_TO_NOTICE)
            self.world.calendar.at(again, self.world.start, seat)
            return
        excuses = [excuse for reason in sorted(seat.reasons) for excuse in EXCUSES.get(reason, ())]
        if life.wrong is not None:
            if not any(excuse.holds_for(error) for excuse in excuses):
                named = said_of(life.wrong)
                self._guarded(judge.check_refusal, seat.name, error, named, life.found == seat.checksum())
            self.world.calendar.after(TIME_TO_NOTICE, self.world.start, seat)
            return
        self._guarded(judge.check_ending, seat.name, error, excuses)
        if isinstance(error, StorageCorrupt | UsageError):
            if life.rejoins:  # whoever does what the message says must get somewhere
                self.alarms.append(Alarm("rejoin refused", f"{seat.name}: {error}"))
            seat.must_rejoin = True
        self.world.calendar.after(TIME_TO_NOTICE, self.world.start, seat)

    def _change_members(self, seat: Seat, goes: bool, comes: bool) -> None:
        if not self.setup.lost or comes:  # who is lost would leave a smaller group without a quorum
            self.operators.change(seat, goes, comes)

    def _complained(self, process: ProcessLoop, context: dict[str, Any]) -> None:
        self._guarded(judge.check_handler, process.name, context)

    def _guarded(self, check: Callable[..., None], *arguments: object) -> None:
        try:
            check(*arguments)
        except Alarm as alarm:
            self.alarms.append(alarm)

    def _calm_down(self) -> None:
        """Let some stay away for ever, and start everybody else."""
        self.world.calm = True
        self.world.write_down("world", "calm")
        for seat in self.world.seats.values():
            if seat.life is not None:
                seat.life.files.disk.die_at(0)
            if seat.name in self.setup.lost:
                self.world.kill(seat)
                seat.left_alone = True
            if self.setup.upgrades and not seat.coming:
                change_release(self.world, seat, in_order=True, down=0, coming=True)
            self.world.start(seat)
        for program in self.world.programs.values():
            self.world.start_program(program)
        if self.setup.lost:
            self.world.calendar.after(TIME_TO_DECIDE, self._help_the_doubtful)

    def _help_the_doubtful(self) -> None:
        """Be the operator of replicas that may have forgotten something, and wait for those who never come back."""
        lost = {seat.member.pid for seat in self.world.seats.values() if seat.left_alone}
        for seat in self._needed():
            if not seat.must_rejoin and not seat.accepts_loss and (waits_for := doubt_of(seat)) and waits_for <= lost:
                alone = {member.pid for member in self.world.config.members if member.group == seat.member.group} & lost
                seat.must_rejoin = not alone  # all others of its group must be up for that
                seat.accepts_loss = bool(alone)
                self.world.kill(seat)
                self.world.start(seat)
        self.world.calendar.after(TIME_TO_DECIDE, self._help_the_doubtful)

    # The end

    def _needed(self) -> list[Seat]:
        return [seat for seat in self.world.seats.values() if not seat.left_alone]

    def _settled(self) -> bool:
        if not all(self.clients.values()) or any(map(unanswered, self.gateways.values())) or self.operators.busy:
            return False
        ends: dict[int, int] = {}
        for seat in self._needed():
            life = seat.life
            if life is None or not life.ready or life.node is None:
                return False
            idle = is_idle(life.node, self.world.lost_some_of(seat.member.group))
            if not idle or self._to_raise(life.node):
                return False
            if ends.setdefault(seat.member.group, life.node.history.end) != life.node.history.end:
                return False
        return True

    def _to_raise(self, node: Node) -> bool:
        """Return whether the newer format is still to be raised: everybody knows it, who is a member."""
        return self.setup.upgrades and not self.setup.lost and node.formats.used < NEXT.newest

    def _judge_the_end(self) -> None:
        world, journal = self.world, self.journal
        absent = [seat.name for seat in self._needed() if seat.life is None or not seat.life.ready]
        if absent:
            raise Alarm("does not serve", f"in the calm {', '.join(absent)}")
        for seat in self._needed():
            if seat.life is not None and seat.life.forgot:
                raise Alarm("older folder trusted", f"{seat.name}: {seat.life.forgot}, and others had heard of it")
            if seat.node is not None and self._to_raise(seat.node):
                raise Alarm(
                    "format not raised", f"{seat.name} uses {seat.node.formats.used}, and all know {NEXT.newest}"
                )
        late = [name for name, done in self.clients.items() if not done]
        if late:
            raise Alarm("no answer in the calm", f"{', '.join(late)} went on asking")
        if self.operators.busy:
            raise Alarm("no answer in the calm", f"the operators of {self.operators.busy} went on asking")
        for name, gateway in self.gateways.items():
            if unanswered(gateway):
                raise Alarm("no answer in the calm", f"{name} went on sending {unanswered(gateway)} multicasts")
        needed = [(seat.node, world.lost_some_of(seat.member.group)) for seat in self._needed()]
        judge.check_settled(judge.replica_of(node, lost_some) for node, lost_some in needed if node is not None)
        judge.check_acknowledged(journal, self.book.acknowledged)
        judge.check_refused(journal, self.book.refused_payloads)
        if self.setup.load == ECHO:
            self.book.read_logs(journal, [world.config.topology.group_name(g) for g in range(self.setup.groups)])
        judge.check_calls(self.book.calls, by_group=self.setup.load != GATEWAY or not self.setup.two_rounds)
        for process in world.processes:
            for error in process.forgotten_errors():
                if not isinstance(error, Alarm):
                    judge.check_handler(process.name, {"message": "a task failed unseen", "exception": error})
        if world.traced:
            if not self.setup.lost:  # nothing more will happen; who is lost would still owe something
                world.end_trace()
            lines = [line for trace in world.traces.values() for line in bytes(trace).splitlines()]
            events = [event for line in lines if (event := event_of_json(line)) is not None]
            judge.check_traces(without_withdrawn(list(as_one(events))), calm=not self.setup.lost)

    # Clients

    def _make_clients(self) -> None:
        setup, world = self.setup, self.world
        for n in range(setup.gateways):
            host = world.add_host(f"gateway{n}", f"127.0.100.{1 + n}")
            world.programs[host.name] = Program(host.name, host, self._gateway)
        for n in range(setup.clients):
            host = world.add_host(f"c{n}", f"127.0.200.{1 + n}")
            world.programs[host.name] = Program(host.name, host, self._client)
            self.clients[host.name] = False

    def _new_client(self, program: Program, machine: ProcessMachine) -> Client:
        config, table, deadline = self.operators.config, self.world.table, self.setup.deadline
        trace = trace_of(program) if self.world.traced else None
        return Client(config, table, program.name, deadline, trace=trace, machine=machine)

    async def _gateway(self, program: Program, machine: ProcessMachine) -> None:
        """Do what `amcast kv` does."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        client = self.gateways[program.name] = self._new_client(program, machine)
        largest = max(1000, self.setup.largest_message - 1024)
        log = Log(program.name, stream=NodeLog(self.world, program.name), machine=machine)
        gateway = Gateway(client, largest_request=largest, two_rounds=self.setup.two_rounds, log=log)
        async with client:
            try:
                await serve(gateway, program.host.address, RESP_PORT, lambda _: None)
            except asyncio.CancelledError:
                pass

    async def _client(self, program: Program, machine: ProcessMachine) -> None:
        work = self._redis_client if self.setup.load == GATEWAY else self._direct_client
        await work(program, machine)
        self.clients[program.name] = True

    async def _direct_client(self, program: Program, machine: ProcessMachine) -> None:
        setup = self.setup
        async with self._new_client(program, machine) as client:
            patient = machine.random.getrandbits(1)  # it stays until nothing of it is open; others leave that behind
            if setup.load == ECHO:
                user = EchoUser(
                    program.name, client, self.book, machine.random, setup.deadline, setup.payload, setup.shape
                )
                await together([user.use(setup.wishes, setup.think) for _ in range(setup.users)])
                await self._until_calm()
                everywhere = tuple(range(setup.groups))
                while await user.multicast(everywhere, self.book.value().encode()) is not Outcome.DONE:
                    await asyncio.sleep(0.2)
                while patient and unanswered(client):
                    await asyncio.sleep(0.1)
                return
            direct = DirectUser(program.name, client, self.book, setup.deadline)
            keys = Keys()
            wants = [
                use_store(direct.execute, self.book, machine.random, wishes=setup.wishes, think=setup.think, keys=keys)
                for _ in range(setup.users)
            ]
            await together(wants)
            await self._until_calm()
            await read_everything(direct.execute, keys)
            while patient and unanswered(client):
                await asyncio.sleep(0.1)

    async def _redis_client(self, program: Program, machine: ProcessMachine) -> None:
        setup, world = self.setup, self.world
        gateways = [(world.hosts[f"gateway{n}"].address, RESP_PORT) for n in range(setup.gateways)]
        keys = Keys()

        async def use(number: int) -> None:
            name = f"{program.name}.{number}"
            patience = 2 * setup.deadline  # a command has one; its gateway may be paused meanwhile
            user = RespUser(
                name, gateways, self.book, machine.random, groups=setup.groups, patience=patience, due=patience + 1.0
            )
            await use_store(user.execute, self.book, machine.random, wishes=setup.wishes, think=setup.think, keys=keys)
            await self._until_calm()
            if number == 0:
                await read_everything(user.execute, keys)
            user.hang_up()

        await together([use(number) for number in range(setup.users)])

    async def _until_calm(self) -> None:
        while not self.world.calm:
            await asyncio.sleep(0.1)


async def together(work: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for all of them, in their order: the first that fails ends the process anyway."""
    for task in [asyncio.get_running_loop().create_task(one) for one in work]:
        await task


def passed(node: Node, position: int) -> None:
    """Tell the check around an application of a position that it does not see."""
    app = node.executor.app if node.executor is not None else None
    assert isinstance(app, judge.CheckedMachine)
    app.pass_by(position)


def unanswered(client: Client) -> int:
    """Return how many multicasts a client still sends, since not all of their groups have answered."""
    return sum(batch.count for batch in client._engine.open.values())


def said_of(config: ClusterConfig) -> tuple[str, str]:
    """Return what a refusal of this configuration names: one or the other is wrong."""
    return f"application {config.identity.app}", config.identity.groups


def is_idle(node: Node, lost_some: bool) -> bool:
    traced = node.trace is None or not node.trace.lacks or lost_some
    return node.engine.process.idle() and not node.durability.unfinished and traced
