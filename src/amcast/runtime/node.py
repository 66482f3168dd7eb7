"""One replica as a process of its own: TCP to the other members and to clients, disk, admin page.

All that arrives in one turn of the event loop is handled together, and then goes out together: one batch per member,
one batch of answers per client, one commit to disk. Who does what:

    links, serving    move bytes, and call `on_batch` and `on_requests` for what arrives
    engine            runs the protocol; `drain` gives all that its steps want done as one Tick
    `flush`           acts on a Tick, once per turn: timers, notes, guesses, deliveries, answers, then the disk
    durability        keeps the Tick until its records are on disk, then calls `release`

Answers to clients wait for no record of this replica: a message is delivered only when a quorum of each of its groups
has it on disk. All other messages wait, those of the replica to itself too.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import Final

import msgspec

from amcast.core.application import Archiving, Dated, Factory, Speculator, delivery, state_in_pieces
from amcast.core.capabilities import Durable, Dynamic
from amcast.core.notes import Leads, Note, RoundBegins
from amcast.core.protocol import Protocol
from amcast.core.requests import Request
from amcast.core.wire import AppMessage, joined
from amcast.errors import AmcastError, StorageFailure, UsageError, WireError
from amcast.runtime import frames
from amcast.runtime.admin import Admin
from amcast.runtime.chain import Chain
from amcast.runtime.config import Address, ClusterConfig, Member
from amcast.runtime.durability import Deliveries, Durability, NodeSnapshot, joined_state, read_snapshot, split_state
from amcast.runtime.engine import Engine, Tick
from amcast.runtime.exchange import Exchange
from amcast.runtime.execution import REJECTION, Executor, certain
from amcast.runtime.fingerprints import Fingerprints
from amcast.runtime.frames import Pulse
from amcast.runtime.history import History
from amcast.runtime.links import Incoming, Outgoing, ask_member
from amcast.runtime.log import Log
from amcast.runtime.loop import new_event_loop, open_many_connections
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.metrics import Metrics
from amcast.runtime.pulse import Pulses
from amcast.runtime.rows import rows_behind, unpack_rows
from amcast.runtime.serving import Results, Serving
from amcast.runtime.status import status_of
from amcast.runtime.tls import Listener, client_context, listen, renew, server_context
from amcast.runtime.tracing import ReplicaTrace
from amcast.runtime.versions import SENDER, Versions, change_in

STAMPS_SINCE: Final = 1_767_225_600 * 10**9  # 2026: timestamps that are taken from clocks fit 64 bits until 2044 …
STAMP_TICK: Final = 4096  # … with this resolution, in nanoseconds


class Node:
    """One replica, from its start to its end. `app` is made anew for each start."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        protocol: Protocol,
        app: Factory | None = None,
        trace: Path | None = None,
        log: Log | None = None,
        *,
        new: bool = False,
        rejoin: bool = False,
        machine: Machine = REAL,
    ) -> None:
        """Prepare a replica that has not started.

        `new` says that this is its first start, `rejoin` that it starts without what is on its disk, from what the
        others of its group know.
        """
        self.config = config
        self.machine = machine
        self.protocol = protocol
        self.me = config.member(name)
        self.orders_all = not protocol.genuine
        if config.durable and not protocol.durable:
            raise UsageError(f"{protocol.name} keeps nothing on disk; set durable = false in {config.path}")
        if config.spare and not protocol.joins:
            raise UsageError(f"{protocol.name} has fixed members; set spare = 0 in {config.path}")
        if rejoin:  # before anything is set aside
            self._others_of_the_group()
        self.boot = machine.random.getrandbits(62) | 1  # tells this life from those before; 0 is nobody's
        self.log = log if log is not None else Log(name, machine=machine)
        self.group_names = [config.topology.group_name(g) for g in range(len(config.topology.groups))]
        self.versions = Versions(self, app)
        self.executor = self.versions.executor
        self.app = Speculator(self.executor) if self.executor is not None and protocol.guesses else self.executor
        inner: object = self.executor.app if self.executor is not None else None
        self._archives = isinstance(inner, Archiving)
        self.dated: Dated | None = inner if isinstance(inner, Dated) else None
        # Protocols are handed the monotonic clock, which never goes back. Those that take timestamps from it need the
        # clocks of machines to be close, so the offset to the wall clock is fixed here, once for this life.
        params = config.params()
        params.clock_offset = machine.clock.wall_ns() - machine.clock.monotonic_ns() - STAMPS_SINCE
        params.clock_tick = STAMP_TICK
        self.engine = Engine(protocol, self.me.pid, config.topology, params)
        # Each part owns its state and is called by the event loop alone; only the disk has a thread, inside durability.
        self.results = Results(machine.limits.answer_bytes)
        self.chain = Chain()  # of all that is applied, always as long as the history
        self.exchange = Exchange(self)
        self.fingerprints = Fingerprints(self)
        self.durability = Durability(self)
        self.links: dict[int, Outgoing] = {}
        self.incoming = Incoming(self)
        self.serving = Serving(self)
        self.pulses = Pulses(self)
        self.metrics = Metrics(self)
        self.started = machine.clock.monotonic_ns()
        self.ready = False
        self._now = machine.clock.monotonic_ns
        self._limits = machine.limits
        self._trace_path = trace
        self._trace: ReplicaTrace | None = None
        self._new = new
        self._rejoin = rejoin
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False  # a flush, for the end of this turn
        self._holding: asyncio.TimerHandle | None = None  # until what may wait is sent after all
        self._held_long_enough = False
        self._contexts: list[SSLContext] = []  # with the certificates of this node
        self._stopping: asyncio.Event
        self._error: BaseException | None = None
        # Four ways to end, which must not be mixed up. `_error`: at once, nothing else leaves. `_halted`: the others
        # go on without this node, which handles nothing more but sends what it has. `_leaving`: it asked for that.
        # `_ended`: it was told to stop and handles nothing more; what is under way goes to disk but to nobody else.
        self._ended = False
        self._leaving = False
        self._halted = False

    @property
    def history(self) -> History:
        """Return the ordered log of this replica, which clients read."""
        return self.durability.history

    # Life

    async def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM, SIGINT or `stop`. Raises what made it stop otherwise."""
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        servers: list[Listener] = []
        served = False
        tasks: list[asyncio.Task[None]] = []
        admin = Admin(self.status, self.readiness, self.metrics.text, fingerprint=self.fingerprints.at)
        acts = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGUSR1: self.leave,
            signal.SIGHUP: self.renew,
        }
        for number, act in acts.items():
            with suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.add_signal_handler(number, act)
        try:
            secure = self.config.tls is not None
            inside = server_context(self.config, self.me.name) if secure else None
            outside = client_context(self.config, self.me.name) if secure else None
            self._contexts = [context for context in (inside, outside) if context is not None]
            await self._recover(outside)  # before anybody can reach this node: it must not speak of what it forgot
            # Members first: a client that is let in expects its message to go somewhere.
            servers.append(await self._listen(self.incoming, self.me.peer, inside))
            servers.append(await self._listen(self.serving, self.me.client, inside))
            await admin.start(self.me.admin)
            for member in self.config.members:
                if member is not self.me:
                    self.links[member.pid] = Outgoing(self, member, outside)
            tasks += [asyncio.create_task(link.run()) for link in self.links.values()]
            self.pulses.start()
            self.flush()  # what the start wants sent and timed, now that there are links to take it
            self.ready = served = True
            self.exchange.start()
            self.log.info("serving", peers=str(self.me.peer), clients=str(self.me.client), admin=str(self.me.admin))
            if on_ready is not None:
                on_ready()
            await self._stopping.wait()
            if self._halted:
                await self._say_goodbye()
        finally:
            # Nobody new, nothing more from the links, then the disk. Clients may wait for answers until the end.
            self.ready = False
            self.exchange.stop()
            self.pulses.stop()
            for server in servers:
                server.close()
            for task in tasks:
                task.cancel()
            await admin.stop()
            if self._error is None and served:  # what could not be read must not be replaced by a snapshot
                self.flush()  # what was handled is applied; from here on nothing is handled, so that it stays so
                self._ended = True
            if self._ended and self._error is None:
                await self.durability.settle()
            self.serving.close()
            self.durability.close()
            if self._trace is not None:
                self._trace.close()
        if self._error is not None:
            raise self._error
        self.log.info("stopped")

    def stop(self) -> None:
        """Stop in order: finish what is under way, and keep a snapshot."""
        self._stopping.set()

    def leave(self) -> None:
        """Stop when the others agree to go on without this node."""
        if not self.protocol.joins:
            self.log.warning("cannot leave", reason=f"{self.protocol.name} has fixed members")
        elif not self._leaving:
            self._leaving = True
            self.log.info("leaving")
            process = self.engine.process
            assert isinstance(process, Dynamic)
            process.leave_group(self._now())
            self._schedule()

    def renew(self) -> None:
        """Read the certificates again, for new connections; those that are there stay."""
        try:
            for context in self._contexts:
                renew(context, self.config, self.me.name)
            self.log.info("certificates read again" if self._contexts else "no certificates to read again")
        except UsageError as error:
            self.log.error("certificates not read again", reason=str(error))

    async def _say_goodbye(self) -> None:
        """Wait until the others have what was sent: they count on it, and nobody sends it again."""
        deadline = self._loop.time() + self._limits.seconds_to_stop
        links = [link for link in self.links.values() if link.connection is not None]
        while any(link.kept for link in links) and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        if not self._leaving:
            raise AmcastError(f"{self.me.name} stopped: the others suspected it and went on without it")

    def fail(self, error: BaseException) -> None:
        """Say what must not have happened and stop, before anything else leaves this node."""
        if self._error is None:
            self._error = error
            self.durability.fail()
            self.log.error("stopping", error=f"{type(error).__name__}: {error}")
        self._stopping.set()

    async def _listen(self, whom: Incoming | Serving, address: Address, context: SSLContext | None) -> Listener:
        try:
            return await listen(address.host, address.port, context, whom.door, whom.accept, self.machine)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(
                f"{self.me.name} cannot listen on {address}: {reason}; free it or change {self.config.path}"
            ) from None

    async def _recover(self, context: SSLContext | None) -> None:
        """Start the protocol with what is on disk, with what others know, or with nothing."""
        config = self.config
        starts = self.durability.open(new=self._new, rejoin=self._rejoin)
        if starts > 1 and not self.protocol.durable:
            raise UsageError(
                f"{self.me.name} has run before, and a replica of {self.protocol.name} that stops is lost for good: "
                "the others go on without it; for all of them, make a new cluster"
            )
        if self._trace_path is not None:
            self._trace = ReplicaTrace(self._trace_path, config, self.me, self.machine)
        assert self.durability.storage is not None
        if self.durability.storage.rejoining and not self._rejoin:
            self.log.warning("rejoining again", reason="it was stopped before it had the state of another member")
            self._rejoin = True
        rejoins = self._rejoin or (not config.durable and starts > 1)
        self.versions.begin(self.durability.described, new=self._new, rejoins=rejoins)
        if rejoins:
            await self._start_from_peers(context)
        elif config.durable:
            self._start_from_disk()
        else:
            self.engine.process.start(self._now())
            if config.is_spare(self.me) and isinstance(self.engine.process, Dynamic):
                self.engine.process.join_group(self._now())
            if self._archives:
                self.durability.open_history()
        self.durability.describe(self.versions.began)  # only now: what could not be recovered may be another's
        if not config.durable:
            self.durability.keep_no_records()

    def _start_from_disk(self) -> None:
        """Start with the newest snapshot and the records behind it, exactly as they were synced."""
        assert self.durability.storage is not None
        recovered = self.durability.storage.recover()
        position = 0
        records = recovered.records
        if recovered.snapshot is not None:
            snapshot = self._restore(recovered.snapshot)
            position = snapshot.position
            records = snapshot.protocol + records  # a snapshot of the protocol is records, too: one way to recover
        self.durability.open_history(position)  # rows behind it are dropped: they are written again below
        if self._trace is not None:
            self._trace.position = position
        if records:
            self._durable().recover(self._now(), records)
        else:
            self.engine.process.start(self._now())
        # What was delivered after the snapshot is delivered again: the application has not seen it in this life.
        again, self.engine.out.deliveries = self.engine.out.deliveries, []
        self._deliver(again)
        self.delivered_for_good(again)
        if recovered.cut:
            self.log.warning("torn write cut off", bytes=recovered.cut)
        self.log.info("recovered", records=len(records), position=self.history.end)

    async def _start_from_peers(self, context: SSLContext | None) -> None:
        """Start with the state of another member, without what may be on disk.

        It is on disk, with the fact that it is not ours, before anybody hears of us: a replica that forgot what it
        promised must not vote, and a crash in between must not make it think that it can.
        """
        assert self.durability.storage is not None
        peers = self._others_of_the_group()
        self.durability.storage.set_aside()
        position = self._trace.deliveries if self._trace is not None else -1
        floor = -1
        for peer in peers:  # all of them: none may count on what this one said before, or think that it has something
            answer = await self._ask(peer, context, frames.ABSENT, 0)
            floor = max(floor, msgspec.msgpack.decode(answer, type=int))
        # Only then the state: it holds all that this one may have helped to decide before the others forgot it.
        answer = await self._ask(peers[0], context, frames.STATE, position if position >= 0 else 2**62)
        before, state = split_state(answer)
        snapshot = self._restore([state])
        self.durability.open_history(snapshot.position, on_disk=self.config.durable)
        if self._trace is not None:
            rows = unpack_rows(before, len(self.group_names))
            self._trace.position = snapshot.position - len(rows)
            self._trace.deliver([(m, ts, index) for ts, index, _, m in rows])
            self._trace.position = snapshot.position
        self._durable().rejoin(self._now(), snapshot.protocol, floor)
        self.engine.out.deliveries.clear()  # the application's part of the snapshot has them
        if self.config.durable:
            self.durability.storage.rejoined(self.snapshot().pieces())
        self.log.info("rejoining", state_of=peers[0].name, position=snapshot.position)

    def _others_of_the_group(self) -> list[Member]:
        """Return who knows what this replica may have lost."""
        found = [member for member in self.config.members if member.group == self.me.group and member is not self.me]
        if not found:
            raise UsageError(f"{self.me.name} is alone in its group: nobody knows what it lost")
        return found

    async def _ask(self, peer: Member, context: SSLContext | None, kind: int, number: int) -> bytes:
        """Ask another member until it answers."""
        while True:
            try:
                async with asyncio.timeout(self._limits.seconds_to_fetch):
                    return await ask_member(self, peer, context, kind, number)
            except (OSError, TimeoutError, AmcastError) as error:
                self.log.warning("no answer yet", peer=peer.name, error=str(error))
                await asyncio.sleep(1.0)

    def absent(self, pid: int) -> int:
        """Take note that a member of this group lost its disk; return the ballot above which it may take part again."""
        if self.config.topology.group_of[pid] != self.me.group:
            raise WireError(f"a member of another group than {self.group_names[self.me.group]}")
        process = self._durable()
        if process.rejoining():
            raise WireError(f"{self.me.name} lost its disk as well")
        self._take_no_part_if_ended()
        return process.absent(self._now(), pid)

    def _take_no_part_if_ended(self) -> None:
        if self._ended or self._error is not None:
            raise WireError(f"{self.me.name} is stopping")

    def _durable(self) -> Durable:
        """Return the process, for what only a peer with the same file asks of it."""
        if not isinstance(self.engine.process, Durable):
            raise WireError(f"a replica of {self.protocol.name} that stops is lost for good")
        return self.engine.process

    def snapshot(self) -> NodeSnapshot:
        """Return protocol, application, answers and position together.

        They are one cut only where nothing is handled and not yet applied. A snapshot in which the protocol is ahead
        of the application loses messages for good, so it is refused.
        """
        if self.engine.out.deliveries or self.chain.position != self.history.end:
            raise AmcastError(f"{self.me.name}: a snapshot at {self.history.end} would lack what was delivered")
        app = state_in_pieces(self.app) if self.app is not None else ()
        rows, version = self.results.rows(), self.versions.ours().active
        return NodeSnapshot(self.history.end, self._durable().snapshot(), app, rows, self.chain.end, version)

    def _restore(self, pieces: list[bytes]) -> NodeSnapshot:
        snapshot = read_snapshot(pieces)
        if self.app is not None and self.executor is not None:
            self.executor.begin(snapshot.app_version)
            self.app.restore(b"".join(snapshot.app))
        self.results.restore(snapshot.results)
        chain = snapshot.chain
        self.chain = Chain(snapshot.position) if chain is None else Chain(chain.position, chain.since, chain.value)
        return snapshot

    def state_from(self, position: int) -> Iterator[bytes]:
        """Return, for a member that lost its disk, our state, and the rows before it from a position on, in pieces."""
        if self._durable().rejoining():
            raise WireError(f"{self.me.name} is rejoining itself")
        self._take_no_part_if_ended()
        while self.engine.out.deliveries:  # messages to itself may bring more
            self.flush()
        rows: list[bytes] = []
        while position < self.history.end:
            first, after, block = self.history.read(max(position, self.history.earliest), self._limits.rows_at_once)
            rows.append(block if first >= position else rows_behind(block, position - first, len(self.group_names)))
            position = after
        return joined_state(rows, self.snapshot())

    # Turns of the loop

    def on_batch(self, sender: int, batch: bytes) -> None:
        """Handle a batch of another member. Raises WireError before any of its messages is handled."""
        self.pulses.heard(sender)
        if self._halted or self._ended:
            return
        self.metrics.messages_in += self.engine.receive(self._now(), sender, batch)
        self._schedule()

    def on_pulse(self, sender: int, pulse: Pulse) -> None:
        self.pulses.take(sender, pulse)

    def requests_in(self, batch: bytes, client: int) -> list[Request]:
        """Return the requests in these bytes. Raises WireError."""
        return self.engine.requests(batch, client, self.config.largest_message)

    def on_requests(self, client: int, requests: list[Request]) -> None:
        """Handle requests that this client may make."""
        if self._halted or self._ended:
            return
        self.metrics.requests += sum(request.m.count for request in requests)
        self.engine.handle(self._now(), client, requests)
        self._schedule()

    def _on_timer(self, name: str) -> None:
        # Timers are not cancelled: a protocol ignores one that it no longer waits for.
        if self._error is None and not self._halted and not self._ended:
            self.engine.process.timer(self._now(), name)
            self._schedule()

    def _schedule(self) -> None:
        """Have `flush` called at the end of this turn, once however much arrives in it."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def _stop_holding(self) -> None:
        self._holding = None
        self._held_long_enough = True
        self._schedule()

    def flush(self) -> None:
        """Act on everything that happened in this turn, in the order of `Effects`, but for records and sends.

        Deliveries are applied before answers are encoded, which carry what the application said, and before the disk
        has the Tick, whose snapshot must not lack what the protocol has handled.
        """
        self._scheduled = False
        if self._error is not None or self._ended:
            return
        try:
            self._change_version()
            tick = self.engine.drain(self._now(), may_wait=not self._held_long_enough)
            self._held_long_enough = False
            if tick.holds and self._holding is None:
                self._holding = self._loop.call_later(self._limits.hold, self._stop_holding)
            for name, earliest, latest in tick.timers:
                self._loop.call_later(self.machine.random.uniform(earliest, latest) / 1e9, self._on_timer, name)
            for note in tick.notes:
                self._write_down(note)
            if tick.optimistic:  # before deliveries: a guess that comes with its delivery must not follow it
                self._guess(tick.optimistic)
            if tick.deliveries:
                self._deliver(tick.deliveries)
            if tick.answers:
                answers = self.serving.with_results(tick.answers) if self.app is not None else tick.answers
                for client, batch in self.engine.encode_answers(answers, self.results.by_mid):
                    self.serving.answer(client, batch)
            self.durability.take(tick)
            if tick.halted:  # after its last messages were taken: the others count on them
                self._halted = True
                self.log.info("left" if self._leaving else "removed")
                self.stop()
        except Exception as error:  # half a step may be done: nothing else must leave
            self.fail(error)

    def _change_version(self) -> None:
        """Have a newer version of the application take over, if it is time and up to this replica."""
        if change := self.versions.proposal(self._now()):
            if self._trace is not None and self.me.group == 0:
                self._trace.multicast(change.m)
            self.engine.handle(self._now(), SENDER, [change])

    def _deliver(self, deliveries: Deliveries) -> None:
        before = self.history.end
        if self.app is not None:
            self._apply(self.app, deliveries)  # first: positions are those that the history gives next
        else:
            for m, ts in deliveries:
                self.chain.add(m, ts, b"")
                if self.fingerprints.wanted:
                    self.fingerprints.reached()
        if deliveries:
            self.durability.append(deliveries)
        self.metrics.deliveries += self.history.end - before
        self.serving.grown()

    def _guess(self, messages: list[AppMessage]) -> None:
        """Execute messages ahead of their order, as it may turn out to be."""
        topology = self.config.topology
        group = self.group_names[self.me.group]
        for one in [one for m in messages for one in m.messages()]:
            if isinstance(self.app, Speculator):
                self.app.optimistic(delivery(topology, group, -1, 0, 0, one))
            if self._trace is not None:
                self._trace.row("optdeliver", message=topology.message_name(one.mid))

    def _apply(self, app: Executor | Speculator, deliveries: Deliveries) -> None:
        """Execute messages, each with a position of its own, also where several travelled as one."""
        group, topology, position = self.group_names[self.me.group], self.config.topology, self.history.end
        for m, ts in deliveries:
            if version := change_in(m.mid):
                self.versions.change(version, position)
                self.results.add(m, b"")
                self.chain.add(m, ts, b"%d" % version)
                position += 1
                continue
            answers: list[bytes] = []
            for index, one in enumerate(m.messages()):
                answers.append(app.apply(delivery(topology, group, position, ts, index, one)))
                position += 1
            # Kept until its sender says that it has it: whoever asks again must be told the same, not executed again.
            answer = answers[0] if m.count == 1 else joined(answers)
            self.results.add(m, answer)
            if rejected := sum([one.startswith(REJECTION) for one in answers]):
                self.metrics.rejected += rejected
                answer = joined([certain(one) for one in answers])
            self.chain.add(m, ts, answer)
            if self.fingerprints.wanted:
                self.fingerprints.reached()

    def release(self, tick: Tick) -> None:
        """Send what a step wants sent; the disk calls this when the step's records are durable."""
        for pid, batch in tick.batches:
            link = self.links.get(pid)
            if link is not None:
                link.send(batch)  # in the order of the steps: links keep it, and protocols count on it
        self.pulses.hold_back()
        if tick.to_self and not self._ended:  # an event of its own, as in simulations: in another turn than its cause
            self.engine.handle(self._now(), self.me.pid, tick.to_self)
            self._schedule()

    def delivered_for_good(self, deliveries: Deliveries) -> None:
        """Trace what a restart will not deliver again, so that no trace has a delivery twice."""
        if self._trace is not None and deliveries:
            self._trace.deliver([(one, ts, index) for m, ts in deliveries for index, one in enumerate(m.messages())])

    def _write_down(self, note: Note) -> None:
        say = self.log.debug if isinstance(note, RoundBegins) else self.log.info  # there are many rounds
        say(note.kind, **note.facts())
        if isinstance(note, Leads):
            self.metrics.elections += 1
        if self._trace is not None:
            self._trace.row(note.kind, detail=note.detail())
            self._trace.flush()

    # What people and machines look at

    def readiness(self) -> str | None:
        """Return why this node is of no use to clients; None if its group has a leader that makes progress."""
        return (self.pulses.why_unready() or None) if self.ready else "starting"

    def status(self) -> dict[str, object]:
        """Return what people and trials want to know of this node, as JSON has it."""
        return status_of(self)


def serve(node: Node) -> None:
    """Run a node in an event loop of its own."""
    open_many_connections()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(node.run())
        except OSError as error:  # a disk that is full or fails: what was not yet durable is lost, nothing else
            where = error.filename or node.me.data
            raise StorageFailure(f"{node.me.name} stopped: {where}: {error.strerror or error}") from error
