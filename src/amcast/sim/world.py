"""The event loop: processes, channels and faults in virtual time.

A channel is FIFO and reliable while its sender lives; a crash loses some suffix of what the sender had under way, on
each channel another. A message to oneself is an event of its own with no delay. With a cost model a process is busy
while it handles messages, and what arrives meanwhile is handled together, its effects leaving at once. A run ends
when it is quiescent: the workload is over, every message that must be delivered is, nothing but heartbeats is under
way and no process knows of unfinished work; or when nothing has moved for so long that nothing will.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from amcast.core.capabilities import Durable, Electing, Observed
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid, Topology, message_id
from amcast.core.trace import Recorder
from amcast.core.tracer import Tracer
from amcast.core.wire import AppMessage, Background, Codec, Message
from amcast.errors import InvariantViolation, UsageError
from amcast.sim.calendar import Calendar
from amcast.sim.choices import Choices
from amcast.sim.disk import Disk
from amcast.sim.network import FOR_EVER, LOST, Costs, Network, OnWay, cut_short, random_cut
from amcast.sim.obligations import Obligations, Pending

# What a process is.
UP: Final[i64] = 0
CRASHED: Final[i64] = 1
PAUSED: Final[i64] = 2
DYING: Final[i64] = 3  # crashes in the middle of what its next step sends

# What an event is: code = incarnation of the sender, kind, destination, sender.
INCARNATION_SHIFT: Final[i64] = 56
KIND_SHIFT: Final[i64] = 48
DEST_SHIFT: Final[i64] = 24
PID_MASK: Final[i64] = (1 << 24) - 1
MESSAGE: Final[i64] = 0
BACKGROUND: Final[i64] = 1
TIMER: Final[i64] = 2
WAKE: Final[i64] = 3
ACTION: Final[i64] = 4
MANY: Final[i64] = 5  # the same message to several processes, who receive it one after the other
QUEUE: Final[i64] = 6  # a message joins a queue on its way

Able = TypeVar("Able")

STALL: Final = 2000  # in δ: longer than any back-off of a protocol


@contextmanager
def without_collector() -> Iterator[None]:
    """Seek no cyclic garbage meanwhile: runs make none, and there may be millions of objects to look through."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@mypyc_attr(allow_interpreted_subclasses=True)
class Action:
    """Something that a fault plan, a workload or a scenario does at a moment."""

    def act(self, world: "World") -> None:
        raise NotImplementedError


@final
class Call(Action):
    """Calls a function: how tests and scenarios script a run."""

    def __init__(self, function: "Callable[[World], None]") -> None:
        self.function = function

    def act(self, world: "World") -> None:
        self.function(world)


@final
class Return(Action):
    """Somebody starts a process that had to stop, because it had forgotten something, without its disk."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def act(self, world: "World") -> None:
        world.restart(self.pid)


@final
class Pull(Action):
    """A process gets the snapshot for which it asked."""

    def __init__(self, pid: int, source: int) -> None:
        self.pid = pid
        self.source = source

    def act(self, world: "World") -> None:
        world.pull(self.pid, self.source)


@mypyc_attr(allow_interpreted_subclasses=True)
class Workload:
    """Who multicasts what and when. This one does nothing."""

    def begin(self, world: "World") -> None:
        pass

    def completed(self, world: "World", client: int, mid: Mid) -> None:
        """Learn that a client knows its multicast to be delivered."""

    def finished(self, world: "World") -> bool:
        return True


@final
class World:
    def __init__(
        self,
        protocol: Protocol,
        topology: Topology,
        network: Network,
        choices: Choices,
        *,
        params: Params | None = None,
        costs: Costs | None = None,
        workload: Workload | None = None,
        recorder: Recorder | None = None,
        run: str = "sim",
        config: str | None = None,
        skew: list[int] | None = None,
        senders: tuple[int, ...] | None = None,
    ) -> None:
        if topology.size > int(PID_MASK):
            raise UsageError(f"{topology.size} processes: expected at most {int(PID_MASK)}")
        self.protocol = protocol
        self.topology = topology
        self.network = network
        self.choices = choices
        self.params = params if params is not None else Params(network.delta)
        self.costs = costs
        self.workload = workload if workload is not None else Workload()
        self.codec = Codec(protocol.messages)
        network.attach(self.codec)
        self.tracer = Tracer(recorder, topology, self.codec, run) if recorder is not None else None
        self.full = recorder is not None and recorder.full
        self.tells_clients = True  # they are connected to everybody while they wait for something
        self.plain = costs is None and not self.full  # a message that arrives can be handled at once
        self.config = config  # a description of the run as JSON, for the trace
        self.out = Effects()
        self.monitor: object = protocol.monitor(topology) if self.params.checked and protocol.monitor else None
        with without_collector():
            self.processes = [self.make_process(pid) for pid in range(topology.size)]
        self.calendar = Calendar(network.delta // 512)
        self.now: i64 = 0
        self.events: i64 = 0  # messages handled
        self.delivered: i64 = 0
        self.multicasts: i64 = 0
        self.background: i64 = 0  # heartbeats and timers in the calendar
        self.stopped = self.stalled = False
        self.last_progress: i64 = 0
        self.stall: i64 = STALL * self.params.delta
        self.obligations = Obligations(topology, protocol.uniform)
        self.senders = senders if senders is not None else topology.clients  # who multicasts
        self.senders_up = len(self.senders)
        self.next_seq = [0] * topology.size
        n: i64 = topology.size
        self.size = n
        self.state: vec[i64] = vec[i64]([0] * topology.size)
        self.skew: vec[i64] = vec[i64](skew if skew is not None else [0] * topology.size)
        self.last_arrival: vec[i64] = vec[i64]([0] if network.constant else [0] * self.channels())
        self.fifo = not network.constant  # channels need a clamp to stay FIFO
        self.crashed = False  # somebody has
        self.cuts: dict[int, list[int]] = {}  # crashed sender -> last arrival per destination
        self.blocked: dict[int, bool] = {}  # channel -> partitioned
        self.many: tuple[int, ...] = ()  # who receives what a MANY event carries,
        self.many_left: i64 = 0  # how many of them still will,
        self.many_code: i64 = 0
        self.many_msg: Message | None = None
        self.held: list[tuple[int, int, int, Message]] = []  # sender, destination, incarnation, message
        self.extra_delay: dict[int, int] = {}  # channel -> slow link
        self.disturbed = False  # some channel is blocked or slow
        self.incarnation = [0] * topology.size
        self.restarted = False  # somebody has
        self.disks = [Disk() for _ in range(topology.size)]
        self.busy: list[bool] = [False] * topology.size  # a wake is scheduled
        self.free_at: vec[i64] = vec[i64]([0] * topology.size)
        self.card_free_at: vec[i64] = vec[i64]([0] * topology.size)
        self.inbox: list[deque[tuple[i64, i64, object]]] = [deque() for _ in range(topology.size)]
        self.deepest_inbox = 0

    # Building

    def make_process(self, pid: int) -> Process:
        process = self.protocol.make(pid, self.topology, self.params, self.out)
        if self.monitor is not None and isinstance(process, Observed):
            process.on_observe(self.monitor)
        return process

    def at(self, time: int, action: Action) -> None:
        """Do this at that time."""
        self.calendar.push(time, ACTION << KIND_SHIFT, action)

    def call(self, time: int, function: "Callable[[World], None]") -> None:
        self.at(time, Call(function))

    # Running

    def run(self, most: int = 0) -> None:
        """Run until all is quiescent or stalled, or somebody stops it; more messages than `most` are an error."""
        with without_collector():
            self.begin()
            while self.run_for(10_000 if most else 1_000_000):
                if most and self.events > most:
                    raise InvariantViolation(f"no end after {most:,} messages: the protocol goes on for ever")
            self.end()

    def begin(self) -> None:
        if self.tracer is not None:
            self.tracer.start(self.config)
        for pid in range(self.topology.size):
            self.processes[pid].start(int(self.skew[pid]))
            self.flush(pid)
        self.workload.begin(self)

    def end(self) -> None:
        """Write the end row, unless the run was stopped from outside. By then every record has reached its disk."""
        if not self.stopped:
            for pid in range(self.topology.size):
                self.sync(pid)
            if self.tracer is not None:
                self.tracer.end(int(self.now), self.stalled)

    def step(self) -> bool:
        """Handle one event. False when the run is over."""
        if self.many_left > 0:
            return self.step_many()
        calendar = self.calendar
        if not calendar.pop():
            self.stalled = not self.quiescent()
            return False
        now = calendar.now
        code = calendar.code
        self.now = now
        kind = (code >> KIND_SHIFT) & 0xFF
        dest = (code >> DEST_SHIFT) & PID_MASK
        if kind <= BACKGROUND:
            if kind == BACKGROUND:
                self.background -= 1
            msg = calendar.payload
            assert isinstance(msg, Message)
            self.receive(code, dest, msg, kind)
        elif kind == MANY:
            to, message = cast(tuple[tuple[int, ...], Message], calendar.payload)
            self.many = to
            self.many_left = len(to)
            self.many_code = code
            self.many_msg = message
            return self.step_many()
        elif kind == TIMER:
            self.background -= 1
            if now - self.last_progress > self.stall and len(self.calendar) == self.background:
                self.stalled = True
                return False
            if self.incarnation[dest] == code & PID_MASK:
                self.arrive(dest, dest, kind, calendar.payload)
        elif kind == WAKE:
            self.wake(dest)
        elif kind == QUEUE:
            on_way = calendar.payload
            assert isinstance(on_way, OnWay)
            self.queue(code, dest, on_way)
        else:
            action = calendar.payload
            assert isinstance(action, Action)
            self.last_progress = now
            action.act(self)
        return self.obligations.open > 0 or not self.quiescent()

    def step_many(self) -> bool:
        msg = self.many_msg
        assert msg is not None
        dest = self.many[len(self.many) - self.many_left]
        self.many_left -= 1
        self.receive(self.many_code, dest, msg, MESSAGE)
        return self.many_left > 0 or self.obligations.open > 0 or not self.quiescent()

    def queue(self, code: i64, dest: i64, on_way: OnWay) -> None:
        """Let a message join a queue on its way, in the order of arrival there."""
        self.network.now = self.now
        delay: i64 = self.network.go_on(int(code & PID_MASK), int(dest), on_way)
        if on_way.after is not None:
            self.calendar.push(self.now + delay, code, on_way.after)
            return
        kind = BACKGROUND if isinstance(on_way.msg, Background) else MESSAGE
        if delay > 0:
            self.calendar.push(self.now + delay, code ^ ((QUEUE ^ kind) << KIND_SHIFT), on_way.msg)
            return
        self.background -= kind
        self.receive(code, dest, on_way.msg, kind)

    def receive(self, code: i64, dest: i64, msg: Message, kind: i64) -> None:
        sender = code & PID_MASK
        state = self.state
        if self.restarted and self.is_stale((code >> INCARNATION_SHIFT), sender):
            return
        if self.plain and state[dest] == UP and state[sender] != CRASHED:
            self.events += 1
            self.processes[dest].receive(self.now + self.skew[dest], sender, msg)
            self.flush(dest)
        else:
            self.arrive(dest, sender, kind, msg)

    def run_for(self, events: int) -> bool:
        """Handle up to so many events. False when the run is over."""
        with without_collector():
            for _ in range(events):
                if self.stopped or not self.step():
                    return False
            return True

    def is_stale(self, incarnation: i64, sender: i64) -> bool:
        """Tell whether a message was sent before its sender crashed and came back: what had not arrived is lost."""
        return self.state[sender] != CRASHED and incarnation != self.incarnation[sender] & 0x7F

    @property
    def pending(self) -> dict[Mid, Pending]:
        """Return the multicasts that somebody who is up must deliver and has not."""
        return {mid: p for mid, p in self.obligations.pending.items() if p.counted}

    def quiescent(self) -> bool:
        if self.obligations.open > 0 or len(self.calendar) > self.background or not self.workload.finished(self):
            return False
        return not any(self.up(pid) and not self.processes[pid].idle() for pid in range(self.topology.size))

    def stop(self) -> None:
        self.stopped = True

    # Arrivals

    def arrive(self, dest: int, sender: int, kind: i64, payload: object) -> None:
        """Take a message or timer that reaches a process: the general case."""
        state = self.state[dest]
        if kind != TIMER and sender in self.cuts and self.now > self.cuts[sender][dest]:
            return
        if state == CRASHED:
            return
        if state == PAUSED or (self.costs is not None and dest < self.topology.replicas):
            self.inbox[dest].append((kind, sender, payload))
            if len(self.inbox[dest]) > self.deepest_inbox:
                self.deepest_inbox = len(self.inbox[dest])
            if state != PAUSED and not self.busy[dest]:
                self.wake_later(dest)
            return
        self.handle(dest, sender, kind, payload)
        self.flush(dest)

    def handle(self, dest: int, sender: int, kind: i64, payload: object) -> None:
        clock = int(self.now + self.skew[dest])
        if kind == TIMER:
            assert isinstance(payload, str)
            self.processes[dest].timer(clock, payload)
            return
        assert isinstance(payload, Message)
        self.events += 1
        if self.full and dest != sender and self.tracer is not None:
            self.tracer.message(int(self.now), dest, "receive", sender, payload)
        self.processes[dest].receive(clock, sender, payload)

    def wake_later(self, pid: int) -> None:
        """Handle the inbox after the CPU time that it takes."""
        self.busy[pid] = True
        start = max(self.now, self.free_at[pid])
        costs = self.costs
        cost: i64 = 0
        if costs is not None and pid < self.topology.replicas:
            for kind, sender, _ in self.inbox[pid]:
                if kind != TIMER and sender != pid:
                    cost += costs.receive
        self.calendar.push(start + cost, (WAKE << KIND_SHIFT) | (pid << DEST_SHIFT) | len(self.inbox[pid]), None)

    def wake(self, pid: int) -> None:
        """End a busy period: what it covered takes effect together."""
        self.busy[pid] = False
        if self.state[pid] == CRASHED or self.state[pid] == PAUSED:
            return
        inbox = self.inbox[pid]
        for _ in range(int(self.calendar.code & PID_MASK)):
            if not inbox or self.state[pid] == CRASHED:
                break
            kind, sender, payload = inbox.popleft()
            self.handle(pid, int(sender), kind, payload)
        self.flush(pid)
        if inbox and not self.busy[pid]:
            self.wake_later(pid)

    # Effects

    def flush(self, pid: i64) -> None:
        """Act on what a step wants done."""
        out = self.out
        if out.records or out.urgent:
            self.disks[pid].unsynced.extend(out.records)
            out.records.clear()
            if out.urgent:
                out.urgent = False
                self.sync(int(pid))
        if out.sends:
            if self.state[pid] == DYING:
                cut_short(out, int(pid), self.protocol.reliable_links, self.choices)
            for item in out.sends:
                self.transmit(pid, item)
            out.sends.clear()
        if out.timers:
            for name, earliest, latest in out.timers:
                self.background += 1
                wait: i64 = self.choices.between(earliest, latest)
                code = (TIMER << KIND_SHIFT) | (pid << DEST_SHIFT) | self.incarnation[pid]
                self.calendar.push(self.now + wait, code, name)
            out.timers.clear()
        if out.notes:
            if self.tracer is not None:
                for note in out.notes:
                    self.tracer.record(self.now, pid, note.kind, detail=note.detail())
            out.notes.clear()
        if out.news:
            told = self.topology.clients if self.tells_clients else ()
            clients = tuple([c for c in told if self.state[c] != CRASHED and not self.processes[c].idle()])
            for msg in out.news:
                self.transmit(pid, (clients, msg))
            out.news.clear()
        if out.optimistic:
            if self.tracer is not None:
                for m in out.optimistic:
                    self.tracer.record(self.now, pid, "optdeliver", mid=m.mid)
            out.optimistic.clear()
        out.undone.clear()
        if out.deliveries:
            if self.disks[pid].unsynced:
                self.disks[pid].unsure.extend(out.deliveries)
            else:
                for m, ts in out.deliveries:
                    self.on_delivery(pid, m, ts)
            out.deliveries.clear()
        if out.refused:
            for mid in out.refused:
                self.obligations.refused(mid)
                if self.tracer is not None:
                    self.tracer.record(self.now, pid, "reconfigure", mid=mid, detail='{"refused": true}')
            out.refused.clear()
        if out.completed:
            completed = out.completed
            out.completed = []
            for mid in completed:
                self.last_progress = self.now
                self.workload.completed(self, pid, mid)
        if self.state[pid] == DYING:
            self.crash(pid)
        if out.halted:
            out.halted = False
            self.crash(pid, lambda _: FOR_EVER)
        if out.pulls:
            for source in out.pulls:
                self.at(self.now + 2 * self.network.delta, Pull(int(pid), source))
            out.pulls.clear()
        if out.forgot:
            out.forgot = ""
            self.crash(pid, lambda _: FOR_EVER)
            self.disks[pid].lost = True
            self.at(self.now + 10 * self.network.delta, Return(int(pid)))

    def sync(self, pid: int) -> None:
        for m, ts in self.disks[pid].sync():
            self.on_delivery(pid, m, ts)

    def transmit(self, pid: i64, item: tuple[tuple[int, ...], Message], held_back: bool = False) -> None:
        to, msg = item
        kind = BACKGROUND if isinstance(msg, Background) else MESSAGE
        code = ((self.incarnation[pid] & 0x7F) << INCARNATION_SHIFT) | (kind << KIND_SHIFT) | pid
        if kind == BACKGROUND:
            self.background += len(to)
        elif self.plain and not self.fifo and not self.disturbed and len(to) > 1 and pid not in to:
            self.calendar.push(self.now + self.network.delta, code | (MANY << KIND_SHIFT), item)
            return
        size: i64 = 0
        costs = self.costs
        if self.full or costs is not None:
            size = self.codec.size(msg)
        for to_pid in to:
            dest: i64 = to_pid
            arrival = self.now
            if dest != pid:
                if self.full and not held_back and self.tracer is not None:
                    self.tracer.message(self.now, pid, "send", to_pid, msg)
                if costs is not None and pid < self.topology.replicas:
                    arrival = self.leave(pid, size, costs)
                if self.network.constant:
                    arrival += self.network.delta
                else:
                    self.network.now = self.now
                    delay: i64 = self.network.delay(pid, to_pid, msg, self.choices)
                    if delay == LOST:
                        self.background -= kind
                        continue
                    arrival += delay
                if self.disturbed:
                    channel = self.channel(pid, dest)
                    if channel in self.blocked:
                        self.background -= kind
                        self.held.append((pid, to_pid, self.incarnation[pid], msg))
                        continue
                    arrival += self.extra_delay.get(channel, 0)
                if self.fifo:
                    channel_at = self.channel(pid, dest)
                    if arrival < self.last_arrival[channel_at]:
                        arrival = self.last_arrival[channel_at]
                    self.last_arrival[channel_at] = arrival
                if self.network.on_way is not None:
                    at_queue = code ^ ((kind ^ QUEUE) << KIND_SHIFT)
                    self.calendar.push(arrival, at_queue | (dest << DEST_SHIFT), self.network.on_way)
                    continue
            self.calendar.push(arrival, code | (dest << DEST_SHIFT), msg)

    def leave(self, pid: i64, size: i64, costs: Costs) -> i64:
        """Return when a message of this size has left, after its CPU time and what the card still transmits."""
        self.free_at[pid] = max(self.free_at[pid], self.now) + costs.send
        departure = self.free_at[pid]
        if costs.bytes_per_second:
            departure = max(departure, self.card_free_at[pid]) + size * 1_000_000_000 // costs.bytes_per_second
            self.card_free_at[pid] = departure
        return departure

    def on_delivery(self, pid: int, m: AppMessage, ts: int) -> None:
        if self.params.durable and not self.disks[pid].deliver(m, ts):
            return
        self.delivered += 1
        self.last_progress = self.now
        if self.tracer is not None:
            self.tracer.record(self.now, pid, "deliver", mid=m.mid, ts=ts)
        self.obligations.delivered(pid, m.mid)

    # What workloads and fault plans do

    def multicast(self, client: int, dest: tuple[int, ...], payload: bytes) -> Mid:
        """Let a process multicast its next message, and return its id."""
        m = self.new_message(client, dest, payload)
        self.processes[client].multicast(int(self.now + self.skew[client]), m)
        self.flush(client)
        return m.mid

    def new_message(self, client: int, dest: tuple[int, ...], payload: bytes) -> AppMessage:
        """Return the next message of a process, which multicasts it in this very step."""
        mid = message_id(client, self.next_seq[client])
        self.next_seq[client] += 1
        m = AppMessage(mid, dest, payload)
        self.multicasts += 1
        self.last_progress = self.now
        if self.tracer is not None:
            self.tracer.record(int(self.now), client, "multicast", mid=mid, dest=dest)
        members = self.topology.members_of(dest)
        left = len([p for p in members if self.state[p] != CRASHED]) if self.crashed else len(members)
        self.obligations.multicast(m, left)
        return m

    def crash(self, pid: int, cut: Callable[[int], int] | None = None) -> None:
        """Stop a process for good. `cut` gives, per destination, the last arrival of what it had under way."""
        if self.state[pid] == CRASHED:
            return
        dying = self.state[pid] == DYING
        self.state[pid] = CRASHED
        self.crashed = True
        self.last_progress = self.now
        self.incarnation[pid] += 1
        self.inbox[pid].clear()
        if self.disks[pid].unsynced and self.choices.below(2):
            self.sync(pid)
        self.disks[pid].lose()
        if not dying and not (cut is None and self.protocol.reliable_links):
            self.cuts[pid] = [
                cut(q) if cut is not None else random_cut(int(self.now), self.network.delta, self.choices)
                for q in range(self.topology.size)
            ]
        if self.tracer is not None:
            self.tracer.record(int(self.now), pid, "crash")
        if pid in self.senders:
            self.senders_up -= 1
        self.obligations.crashed(pid, self.params.durable)

    def crash_mid_step(self, pid: int) -> None:
        """Crash in the middle of the next step's sends: on each channel a suffix of them never leaves."""
        if self.state[pid] == UP:
            self.state[pid] = DYING

    def restart(self, pid: int) -> None:
        """Start a crashed process again: from its disk, or without it if that is lost."""
        if self.state[pid] == DYING:
            self.state[pid] = UP
        if self.state[pid] != CRASHED:
            return
        self.state[pid] = UP
        self.incarnation[pid] += 1
        self.restarted = True
        self.last_progress = self.now
        self.cuts.pop(pid, None)
        if self.tracer is not None:
            self.tracer.record(int(self.now), pid, "restart")
        self.obligations.restarted(pid)
        self.processes[pid] = self.make_process(pid)
        process = self.durable(pid)
        disk = self.disks[pid]
        disk.starts += 1
        if disk.lost:
            disk.replace([])
            process.rejoin(int(self.now + self.skew[pid]), disk.starts)
        else:
            process.recover(int(self.now + self.skew[pid]), list(disk.durable), disk.starts, disk.clean)
        disk.place = process.position()
        self.out.deliveries.clear()  # made before the crash, and recorded then
        self.flush(pid)

    def durable(self, pid: int) -> Durable:
        process = self.processes[pid]
        assert isinstance(process, Durable), f"{type(process).__name__} cannot come back"
        return process

    def pull(self, pid: int, source: int) -> None:
        """Give a process the deliveries of another one, as they are after a while, if both are up then."""
        if self.state[pid] != UP or self.state[source] == CRASHED or not self.params.durable:
            return
        self.sync(source)
        self.sync(pid)
        process = self.durable(pid)
        before = process.position()
        process.install(int(self.now + self.skew[pid]), self.durable(source).snapshot())
        for m, ts in self.disks[source].delivered[before : process.position()]:
            self.on_delivery(pid, m, ts)
        if process.position() > before:
            self.disks[pid].durable = process.snapshot()
            self.out.records.clear()
        self.flush(pid)

    def pause(self, pid: int) -> None:
        if self.state[pid] == UP:
            self.state[pid] = PAUSED

    def resume(self, pid: int) -> None:
        if self.state[pid] == PAUSED:
            self.state[pid] = UP
            inbox = self.inbox[pid]
            if self.costs is not None and pid < self.topology.replicas:
                if inbox and not self.busy[pid]:
                    self.wake_later(pid)
                return
            while inbox and self.state[pid] == UP:  # now, before anything else that arrives at this moment
                kind, sender, payload = inbox.popleft()
                self.handle(pid, sender, kind, payload)
                self.flush(pid)

    def block(self, sender: int, dest: int) -> None:
        """Hold back what is sent on a channel from now on."""
        if self.is_channel(sender, dest):
            self.blocked[int(self.channel(sender, dest))] = True
        self.disturb()

    def slow(self, sender: int, dest: int, extra: int) -> None:
        """Let every message on this channel take so much longer; 0 makes it normal again."""
        if self.is_channel(sender, dest):
            self.extra_delay[int(self.channel(sender, dest))] = extra
        self.disturb()

    def heal(self) -> None:
        """Let all channels work again; what was held back goes out in order."""
        self.blocked.clear()
        self.extra_delay.clear()
        self.disturbed = False
        held, self.held = self.held, []
        for sender, dest, incarnation, msg in held:
            channel = int(self.channel(sender, dest))
            crashed = self.state[sender] == CRASHED
            if crashed and not self.protocol.reliable_links and self.choices.below(2) == 0:
                self.blocked[channel] = True  # this one and all after it are lost
            # A crash counts as the next incarnation already; what an earlier one sent is lost when it is back.
            if channel not in self.blocked and incarnation + crashed == self.incarnation[sender]:
                self.transmit(sender, ((dest,), msg), held_back=True)
        self.blocked.clear()

    def channels(self) -> int:
        """Return how many there are: from and to every replica. Clients do not talk to each other."""
        return self.topology.replicas * (self.topology.size + len(self.topology.clients))

    def channel(self, sender: i64, dest: i64) -> i64:
        """Return the number of a channel."""
        replicas: i64 = self.topology.replicas
        if sender < replicas:
            return sender * self.size + dest
        return replicas * self.size + (sender - replicas) * replicas + dest

    def is_channel(self, sender: int, dest: int) -> bool:
        return sender < self.topology.replicas or dest < self.topology.replicas

    def disturb(self) -> None:
        """Clamp each channel, for delays differ from now on."""
        self.disturbed = True
        if not self.fifo:
            self.fifo = True
            longest: i64 = self.now + self.network.delta
            self.last_arrival = vec[i64]([int(longest)] * self.channels())

    def suspect(self, pid: int) -> None:
        """Let a process suspect its leader for no reason, and try to become one."""
        self.tell(pid, Electing, lambda process, now: process.suspect(now))

    def tell(self, pid: int, kind: type[Able], what: Callable[[Able, int], None]) -> None:
        """Let a process with this capability, if it is up, learn something at its time."""
        if self.state[pid] == UP:
            process = self.processes[pid]
            assert isinstance(process, kind), f"{type(process).__name__} is not {kind.__name__}"
            what(process, int(self.now + self.skew[pid]))
            self.flush(pid)

    def up(self, pid: int) -> bool:
        return self.state[pid] != CRASHED
