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
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import Final

from amcast.core.application import Dated, Factory, Speculator, delivery, state_in_pieces
from amcast.core.capabilities import Durable, Dynamic
from amcast.core.notes import Leads, Note, RoundBegins
from amcast.core.process import TAIL_BYTES, Memory
from amcast.core.protocol import Protocol
from amcast.core.requests import Request
from amcast.core.topology import Mid
from amcast.core.wire import AppMessage, joined
from amcast.errors import AmcastError, StorageCorrupt, StorageFailure, UsageError, WireError
from amcast.runtime.admin import Admin
from amcast.runtime.chain import Chain
from amcast.runtime.config import Address, ClusterConfig, Member
from amcast.runtime.cuts import Cuts, is_mark
from amcast.runtime.durability import Deliveries, Durability, NodeSnapshot
from amcast.runtime.engine import Engine, Tick
from amcast.runtime.exchange import Exchange
from amcast.runtime.execution import REJECTION, Executor, certain
from amcast.runtime.filling import Filling
from amcast.runtime.fingerprints import Fingerprints
from amcast.runtime.formats import RAISER, Formats, raise_in
from amcast.runtime.frames import OURS, Pulse, Spoken
from amcast.runtime.history import History
from amcast.runtime.leading import Leading
from amcast.runtime.links import Incoming, Outgoing
from amcast.runtime.log import Log
from amcast.runtime.loop import new_event_loop, open_many_connections
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.membership import Membership, is_change
from amcast.runtime.metrics import Metrics
from amcast.runtime.pulling import Pulls
from amcast.runtime.pulse import Pulses
from amcast.runtime.queries import Queries
from amcast.runtime.renewal import read_again
from amcast.runtime.seats import found_at_start, seated
from amcast.runtime.serving import Results, Serving
from amcast.runtime.starting import How, refuse_unfit, start
from amcast.runtime.status import status_of
from amcast.runtime.storage import forgot_text
from amcast.runtime.supply import Supplied, Supply
from amcast.runtime.tls import Listener, Renewable, client_context, listen, server_context
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
        accept_loss: bool = False,
        machine: Machine = REAL,
        knows: Spoken = OURS,
    ) -> None:
        """Prepare a replica that has not started.

        `new` says that this is its first start, `rejoin` that it starts without what is on its disk, from what the
        others of its group know. `accept_loss` lets it take part before others could say whether it forgot something.
        """
        config, self.me, joins = found_at_start(seated(config, protocol), name, machine.files)
        self.config = config  # another one whenever this node learns more of who the members are (`membership.py`)
        self.machine, self.protocol = machine, protocol
        self.orders_all = not protocol.genuine
        self.how = How(new, rejoin, accept_loss)
        refuse_unfit(self, self.how)
        self.boot = machine.random.getrandbits(62) | 1  # tells this life from those before; 0 is nobody's
        self.log = log if log is not None else Log(name, machine=machine)
        self.group_names = [config.topology.group_name(g) for g in range(len(config.topology.groups))]  # there may be
        self.versions = Versions(self, app)
        self.executor = self.versions.executor
        self.app = Speculator(self.executor) if self.executor is not None and protocol.guesses else self.executor
        inner: object = self.executor.app if self.executor is not None else None
        self.dated: Dated | None = inner if isinstance(inner, Dated) else None
        # Protocols are handed the monotonic clock, which never goes back. Those that take timestamps from it need the
        # clocks of machines to be close, so the offset to the wall clock is fixed here, once for this life.
        params = config.params()
        params.clock_offset = machine.clock.wall_ns() - machine.clock.monotonic_ns() - STAMPS_SINCE
        params.clock_tick = STAMP_TICK
        params.founders = self.config.size_at_first(self.me.group)
        params.part_bytes = min(params.part_bytes, machine.limits.most_kept // 16)  # many fit what a link keeps
        params.tail_bytes = min(TAIL_BYTES, machine.limits.most_kept // 2)
        self.engine = Engine(protocol, self.me.pid, config.topology, params)
        self.formats = Formats(self, knows)
        # Each part owns its state and is called by the event loop alone; only the disk has a thread, inside durability.
        self.results = Results(machine.limits.answer_bytes)
        self.chain = Chain()  # of all that is applied, always as long as the history
        self.membership = Membership(self, joins)
        self.exchange = Exchange(self)
        self.fingerprints = Fingerprints(self)
        self.durability = Durability(self)
        self.links: dict[int, Outgoing] = {}
        self.incoming = Incoming(self)
        self.serving = Serving(self)
        self.supply, self.cuts, self.queries = Supply(self), Cuts(self), Queries(self)
        self.pulls, self.leading = Pulls(self), Leading(self)
        self.pulses, self.metrics = Pulses(self), Metrics(self)
        self.started = machine.clock.monotonic_ns()
        self.ready = False
        self.now = machine.clock.monotonic_ns
        self._limits = machine.limits
        self.trace_path = trace
        self.trace: ReplicaTrace | None = None
        self.filling: Filling | None = None
        self._jumps: deque[tuple[int, int]] = deque()  # over positions that another replica delivered: from, to …
        self._source: Member | None = None  # … and which one
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False  # a flush, for the end of this turn
        self._holding: asyncio.TimerHandle | None = None  # until what may wait is sent after all
        self._held_long_enough = False
        self._contexts: list[Renewable] = []  # with the certificates of this node
        self.outside: SSLContext | None = None  # that which it dials with
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
        admin = Admin(self.status, self.readiness, self.metrics.text, fingerprint=self.fingerprints.at)
        acts = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGUSR1: self.leave,
            signal.SIGUSR2: self.leading.ask,
            signal.SIGHUP: self.renew,
        }
        for number, act in acts.items():
            with suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.add_signal_handler(number, act)
        try:
            secure = self.config.tls is not None
            inside = Renewable(lambda: server_context(self.config, self.me.name)) if secure else None
            outside = Renewable(lambda: client_context(self.config, self.me.name)) if secure else None
            self._contexts = [context for context in (inside, outside) if context is not None]
            self.outside = outside
            start(self, self.how)  # before anybody can reach this node: it must not speak of what it forgot
            self.membership.look()
            # Members first: a client that is let in expects its message to go somewhere.
            servers.append(await self._listen(self.incoming, self.me.peer, inside))
            servers.append(await self._listen(self.serving, self.me.client, inside))
            await admin.start(self.me.admin)
            self.membership.start(outside)
            self.pulses.start()
            if self.filling is not None:
                self.filling.look()
            self.flush()  # what the start wants sent and timed, now that there are links to take it
            self.ready = served = True
            self.exchange.start()
            self.log.info("serving", peers=str(self.me.peer), clients=str(self.me.client), admin=str(self.me.admin))
            if on_ready is not None:
                on_ready()
            await self._stopping.wait()
            if self._halted:
                await self._say_goodbye()
            elif self._error is None:
                await self.leading.give_up_to_stop()
        finally:
            # Nobody new, nothing more from the links, then the disk. Clients may wait for answers until the end.
            self.ready = False
            await self.pulls.stop()
            if self.filling is not None:
                await self.filling.stop()
            for part in (self.supply, self.cuts, self.queries, self.leading, self.exchange, self.pulses):
                part.stop()
            for server in servers:
                server.close()
            self.membership.stop()
            self.incoming.close()
            await admin.stop()
            if self._error is None and served:  # what could not be read must not be replaced by a snapshot
                self.flush()  # what was handled is applied; from here on nothing is handled, so that it stays so
                self._ended = True
            if self._ended and self._error is None:
                await self.durability.settle()
            self.serving.close()
            self.durability.close()
            if self.trace is not None:
                self.trace.close()
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
            process.leave_group(self.now())
            self._schedule()

    def renew(self) -> None:
        """Read certificates, CAs and what clients may do again, and go by that from now on."""
        read_again(self, self._contexts)

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

    def durable_process(self) -> Durable:
        """Return the process, for what only a peer with the same file asks of it."""
        if not isinstance(self.engine.process, Durable):
            raise WireError(f"a replica of {self.protocol.name} that stops is lost for good")
        return self.engine.process

    def snapshot(self) -> NodeSnapshot:
        """Return protocol, application, answers and position together.

        They are one cut only where nothing is handled and not yet applied. A snapshot in which the protocol is ahead
        of the application loses messages for good, so it is refused.
        """
        ends = self.chain.position, self.durable_process().position()
        if self.engine.out.deliveries or ends != (self.history.end, self.history.end):
            raise AmcastError(f"{self.me.name}: a snapshot at {self.history.end} would lack what was delivered")
        app = state_in_pieces(self.app) if self.app is not None else ()
        protocol = self.formats.written(self.durable_process().snapshot())
        rows, version = self.results.rows(), self.versions.ours().active
        return NodeSnapshot(self.history.end, protocol, app, rows, self.chain.end, version, self.formats.level)

    def restore(self, pieces: list[bytes]) -> NodeSnapshot:
        snapshot = self.formats.snapshot(pieces)
        if self.app is not None and self.executor is not None:
            self.executor.begin(snapshot.app_version)
            self.app.restore(b"".join(snapshot.app))
        self._adopt(snapshot)
        return snapshot

    def _adopt(self, snapshot: NodeSnapshot) -> None:
        self.results.restore(snapshot.results)
        chain = snapshot.chain
        self.chain = Chain(snapshot.position) if chain is None else Chain(chain.position, chain.since, chain.value)

    # The state of others, and ours for them

    def new_application(self) -> Executor | None:
        """Return an application in its first state, beside the one that runs; None if there is none."""
        return self.versions.another()

    def install(self, snapshot: NodeSnapshot, executor: Executor | None, source: Member) -> None:
        """Go on from another member's snapshot, unless it is not ahead any more: all parts change in this turn.

        What was handled before is applied first, to the old application; what the protocol says after it waits until a
        snapshot of our own is durable.
        """
        while self.engine.out.deliveries and self._error is None and not self._ended:
            self.flush()
        process, before = self.durable_process(), self.history.end
        if self._error is not None or self._ended or snapshot.position <= before:
            return
        process.install(self.now(), self.formats.taken(snapshot))
        if process.position() == before:
            self.log.info("snapshot not needed", peer=source.name, position=snapshot.position)
            self._schedule()
            return
        if self.engine.out.deliveries or process.position() != snapshot.position:
            raise AmcastError(f"{self.me.name}: protocol at {process.position()}, snapshot at {snapshot.position}")
        if executor is not None:
            self._use(executor)
        self.results = Results(self._limits.answer_bytes)
        self._adopt(snapshot)
        self.durability.begin_again(snapshot.position)
        self._jumps.append((before, snapshot.position))
        self._source = source
        self.cuts.jumped()
        self.log.info("state taken over", peer=source.name, before=before, position=snapshot.position)
        self.serving.grown()
        if self.fingerprints.wanted:
            self.fingerprints.reached()
        self.flush()

    def _use(self, executor: Executor) -> None:
        """Run this application from now on, in the place of another one."""
        self.executor = self.versions.executor = executor
        self.app = Speculator(executor) if self.protocol.guesses else executor
        self.dated = executor.app if isinstance(executor.app, Dated) else None

    def why_not_supply(self) -> str:
        """Return why this replica has no state for others; empty if it has."""
        if self._ended or self._error is not None or not self.ready:
            return f"{self.me.name} is starting or stopping"
        return f"{self.me.name} is rejoining itself" if self.durability.rejoining else ""

    def supplying(self, pid: int, transport: asyncio.Transport) -> Supplied:
        return Supplied(self.supply, pid, transport)

    def committed(self, nanoseconds: int) -> None:
        self.leading.committed(nanoseconds)

    def act(self) -> None:
        self._schedule()

    # Turns of the loop

    def on_batch(self, sender: int, batch: bytes) -> None:
        """Handle a batch of another member. Raises WireError before any of its messages is handled."""
        self.pulses.heard(sender)
        if self._halted or self._ended:
            return
        self.metrics.messages_in += self.engine.receive(self.now(), sender, batch)
        self._schedule()

    def on_pulse(self, sender: int, pulse: Pulse) -> None:
        self.pulses.take(sender, pulse)
        self.membership.heard(sender, pulse)

    def requests_in(self, batch: bytes, client: int) -> list[Request]:
        """Return the requests in these bytes. Raises WireError."""
        return self.engine.requests(batch, client, self.config.largest_message)

    def on_requests(self, client: int, requests: list[Request]) -> None:
        """Handle requests that this client may make."""
        if self._halted or self._ended:
            return
        self.metrics.requests += sum(request.m.count for request in requests)
        self.engine.handle(self.now(), client, requests)
        self._schedule()

    def _on_timer(self, name: str) -> None:
        # Timers are not cancelled: a protocol ignores one that it no longer waits for.
        if self._error is None and not self._halted and not self._ended:
            self.engine.process.timer(self.now(), name)
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
            now = self.now()
            for sender, change in ((SENDER, self.versions.proposal(now)), (RAISER, self.formats.proposal(now))):
                if change is not None:  # it is time, and up to this replica
                    self.engine.handle(now, sender, [change])
            self.queries.ask()
            tick = self.engine.drain(self.now(), may_wait=not self._held_long_enough)
            self._held_long_enough = False
            if tick.forgot:
                self._forgot(tick.forgot)
                return
            for pid in tick.pulls:
                self.pulls.wanted(pid, self.outside)
            if tick.holds and self._holding is None:
                self._holding = self._loop.call_later(self._limits.hold, self._stop_holding)
            for name, earliest, latest in tick.timers:
                self._loop.call_later(self.machine.random.uniform(earliest, latest) / 1e9, self._on_timer, name)
            for note in tick.notes:
                self._write_down(note)
            if tick.optimistic:  # before deliveries: a guess that comes with its delivery must not follow it
                self._guess(tick.optimistic)
            if tick.undone and isinstance(self.app, Speculator):
                for mid in tick.undone:
                    self.app.undo(self.config.topology.message_name(mid))
            if tick.deliveries:
                self.deliver(tick.deliveries, tick.memories)
            self.membership.look()
            self.queries.confirmed(tick.confirmed)
            if tick.answers:
                answers = self.serving.with_results(tick.answers) if self.app is not None else tick.answers
                for client, batch in self.engine.encode_answers(answers, self.results.by_mid):
                    self.serving.answer(client, batch)
            if tick.news:
                self.serving.announce(self.engine.encode_news(tick.news))
            if self.durability.rejoining and self._takes_part():
                self.durability.save_first()
            if self.durability.doubted and self._takes_part():
                self.durability.confirm()
            tick.records = self.formats.written(tick.records)
            self.durability.take(tick)
            self.pulses.hold_back()  # in this turn, not when the disk is done: more would be read meanwhile
            if tick.halted:  # after its last messages were taken: the others count on them
                self._halted = True
                self.log.info("left" if self._leaving else "removed")
                self.stop()
        except Exception as error:  # half a step may be done: nothing else must leave
            self.fail(error)

    def under_way(self) -> int:
        return self.engine.process.backlog()

    def _takes_part(self) -> bool:
        """Return whether this replica knows all that it may have forgotten; it need not have taken over a snapshot."""
        return isinstance(self.engine.process, Durable) and not self.engine.process.rejoining()

    def _forgot(self, reason: str) -> None:
        """Stop for good: others remember more of this replica than its disk does. No start may go on from that."""
        if self.durability.storage is not None:
            self.durability.storage.forget(reason)
        self.fail(StorageCorrupt(forgot_text(self.me.data, reason)))

    def deliver(self, deliveries: Deliveries, memories: dict[Mid, Memory]) -> None:
        before = self.history.end
        if self.app is not None:
            self._apply(self.app, deliveries, memories)  # first: positions are those that the history gives next
        else:
            for m, ts in deliveries:
                self.formats.raised(raise_in(m.mid), self.chain.position)
                self.cuts.reached(m.mid, self.chain.position, memories)
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
            if self.trace is not None:
                self.trace.row("optdeliver", message=topology.message_name(one.mid))

    def _apply(self, app: Executor | Speculator, deliveries: Deliveries, memories: dict[Mid, Memory]) -> None:
        """Execute messages, each with a position of its own, also where several travelled as one."""
        group, topology, position = self.group_names[self.me.group], self.config.topology, self.history.end
        for m, ts in deliveries:
            if version := change_in(m.mid):
                self.versions.change(version, position)
                self.results.add(m, b"")
                self.chain.add(m, ts, b"%d" % version)
                position += 1
                continue
            if is_mark(m.mid) or is_change(m.mid) or raise_in(m.mid):
                if is_mark(m.mid):
                    self.cuts.reached(m.mid, position, memories)
                else:  # of members: the protocol acts on it
                    self.formats.raised(raise_in(m.mid), position)
                    self.membership.passed(position)
                self.chain.add(m, ts, b"")
                position += 1
                if self.fingerprints.wanted:
                    self.fingerprints.reached()
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
        if tick.to_self and not self._ended:  # an event of its own, as in simulations: in another turn than its cause
            self.engine.handle(self.now(), self.me.pid, tick.to_self)
            self._schedule()

    def delivered_for_good(self, deliveries: Deliveries) -> None:
        """Trace what a restart will not deliver again, so that no trace has a delivery twice."""
        trace = self.trace
        if trace is None or self.filling is None:
            return
        rows = [(one, ts, index) for m, ts in deliveries for index, one in enumerate(m.messages())]
        while self._jumps and trace.good + len(rows) >= self._jumps[0][0]:
            before, after = self._jumps.popleft()
            here = before - trace.good
            trace.deliver(rows[:here])
            rows = rows[here:]
            trace.good = after
        trace.deliver(rows)
        self.filling.look(self._source)

    def _write_down(self, note: Note) -> None:
        say = self.log.debug if isinstance(note, RoundBegins) else self.log.info  # there are many rounds
        say(note.kind, **note.facts())
        if isinstance(note, Leads):
            self.metrics.elections += 1
        if self.trace is not None:
            self.trace.row(note.kind, detail=note.detail())
            self.trace.flush()

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
