"""One node of a Maelstrom test, without I/O: lines in, lines out, time handed in.

All nodes of the test are one group, in the order of `node_ids`. Each runs a replica of the protocol and, for the
requests that reach it, the protocol's client: the n-th node is session n after the replicas. A request is checked,
multicast as it is, executed by every node where it is delivered, and answered by the node it came to, from its own
delivery. A node in a minority answers when the partition has healed.
"""

import heapq
import math
from collections.abc import Callable
from typing import Final, cast

import msgspec

from amcast.apps.maelstrom import lines
from amcast.apps.maelstrom.channels import Ack, Channel, Data
from amcast.apps.maelstrom.workloads import Workload
from amcast.core.process import Params
from amcast.core.protocol import Protocol
from amcast.core.topology import Mid, Topology, sender_of
from amcast.core.wire import AppMessage
from amcast.errors import WireError, WorkloadRefused
from amcast.runtime.client_engine import ClientEngine
from amcast.runtime.engine import Engine

MEMBER: Final = "member"  # from replica to replica
REQUEST: Final = "request"  # from client to replica
ANSWER: Final = "answer"  # from replica to client
EVERYBODY: Final = (0,)  # the one group
LARGEST: Final = 2**31 - 1

peer_decoder: Final = msgspec.json.Decoder(Data | Ack)


class Group:
    """What a node is once it knows the others."""

    def __init__(self, names: list[str], me: int, protocol: Protocol, delta: int, boot: int) -> None:
        size = len(names)
        topology = Topology((size,), clients=size)
        params = Params(delta)
        self.names = names
        self.me = me
        self.session = size + me
        self.replica = Engine(protocol, me, topology, params)
        self.client = ClientEngine(protocol, self.session, topology, params, alone=True)
        self.channels = {pid: Channel(boot, delta) for pid in range(size) if pid != me}
        self.pids = {name: pid for pid, name in enumerate(names)}
        self.strangers: set[int] = set()  # nodes that started again
        self.last = -1  # the timestamp of the last delivery


class MaelstromNode:
    def __init__(
        self,
        workload: Workload,
        protocol: Protocol,
        delta: int,
        boot: int,
        between: Callable[[int, int], int],
        log: Callable[[str], None],
    ) -> None:
        """Prepare a node. `boot` is a number that no other start of a node has, `between` picks when a timer fires."""
        self.workload = workload
        self.out: list[bytes] = []  # lines to print
        self.waiting: dict[Mid, tuple[str, int | None]] = {}  # who gets the answer
        self._protocol = protocol
        self._delta = delta
        self._boot = boot
        self._between = between
        self._log = log
        self._name = ""
        self._group: Group | None = None
        self._timers: list[tuple[int, int, bool, str]] = []  # when, in which order, of the client, name
        self._set = 0

    # Lines

    def receive(self, now: int, data: bytes) -> None:
        """Handle one line; `flush` comes after the last one that there is."""
        try:
            data.decode()
            envelope = lines.envelope_decoder.decode(data)
            head = lines.head_decoder.decode(envelope.body)
        except lines.BAD as problem:
            self._log(f"malformed line of {len(data)} bytes: {problem}")
            asker = lines.asker_of(data)
            if asker is not None:
                self._answer(asker[0], asker[1], lines.error(lines.MALFORMED, f"malformed message: {problem}"))
            return
        self._name = self._name or envelope.dest
        if head.type in ("amcast", "amcast_ack"):
            self._from_peer(now, envelope)
            return
        try:
            if head.type == "init":
                self._init(now, envelope, head)
            else:
                self._request(now, envelope, head)
        except WorkloadRefused as refusal:
            self._answer(envelope.src, head.msg_id, lines.error(refusal.code, str(refusal)))

    def _answer(self, to: str, number: int | None, body: lines.Body) -> None:
        if number is not None:  # else nobody waits for it
            self.out.append(lines.line(self._name, to, {**body, "in_reply_to": number}))

    def _init(self, now: int, envelope: lines.Envelope, head: lines.Head) -> None:
        try:
            init = lines.init_decoder.decode(envelope.body)
        except lines.BAD as problem:
            raise WorkloadRefused(lines.MALFORMED, f"init: {problem}") from None
        names = init.node_ids
        if self._group is not None:
            raise WorkloadRefused(lines.MALFORMED, f"init again: this is {self._name}")
        if init.node_id not in names or len(set(names)) != len(names):
            raise WorkloadRefused(lines.MALFORMED, f"init of {init.node_id!r} among {names}")
        self._name = init.node_id
        self._group = Group(names, names.index(init.node_id), self._protocol, self._delta, self._boot)
        self._answer(envelope.src, head.msg_id, {"type": "init_ok"})
        self._group.replica.process.start(now)
        self._group.client.process.start(now)

    def _request(self, now: int, envelope: lines.Envelope, head: lines.Head) -> None:
        group = self._group
        if group is None:
            raise WorkloadRefused(lines.UNAVAILABLE, "no init yet")
        body = bytes(envelope.body)
        self.workload.parse(head.type, body)
        group.client.ask(EVERYBODY, body, (envelope.src, head.msg_id), math.inf)
        for asked in group.client.begin(now):
            self.waiting[asked.mid] = cast(tuple[str, int | None], asked.waiting[0])

    def _from_peer(self, now: int, envelope: lines.Envelope) -> None:
        group = self._group
        if group is None:
            return  # it comes again
        sender = group.pids.get(envelope.src, group.me)
        channel = group.channels.get(sender)
        if channel is None:
            self._log(f"a message of the protocol from {envelope.src!r}, expected one of the other nodes")
            return
        try:
            body = peer_decoder.decode(envelope.body)
        except lines.BAD as problem:
            self._log(f"malformed message of the protocol from {envelope.src}: {problem}")
            return
        ready = channel.receive(now, body)
        if ready is not None:
            for kind, data in ready:
                self._handle(now, group, sender, kind, data)
        elif sender not in group.strangers:
            group.strangers.add(sender)
            self._log(f"{envelope.src} started again and forgot what it promised: not heard any more")

    def _handle(self, now: int, group: Group, sender: int, kind: str, data: bytes) -> None:
        """Raises WireError for what no node of this program sends: a channel with a hole in it is of no use."""
        if kind == MEMBER:
            group.replica.receive(now, sender, data)
        elif kind == REQUEST:
            session = len(group.names) + sender
            group.replica.handle(now, session, group.replica.requests(data, session, LARGEST))
        elif kind == ANSWER:
            group.client.receive(now, sender, data)
        else:
            raise WireError(f"data of kind {kind!r}, expected {MEMBER}, {REQUEST} or {ANSWER}")

    # Time

    def due(self) -> int | None:
        """Return when `tick` has something to do."""
        times = [self._timers[0][0]] if self._timers else []
        if self._group is not None:
            times += [at for channel in self._group.channels.values() if (at := channel.due()) is not None]
        return min(times, default=None)

    def tick(self, now: int) -> None:
        group = self._group
        if group is None:
            return
        while self._timers and self._timers[0][0] <= now:
            _, _, of_client, name = heapq.heappop(self._timers)
            process = group.client.process if of_client else group.replica.process
            process.timer(now, name)
        for channel in group.channels.values():
            channel.tick(now)

    def _set_timers(self, now: int, of_client: bool, timers: list[tuple[str, int, int]]) -> None:
        for name, earliest, latest in timers:
            self._set += 1
            heapq.heappush(self._timers, (now + self._between(earliest, latest), self._set, of_client, name))

    # What the steps since the last time want done

    def flush(self, now: int) -> None:
        group = self._group
        if group is None:
            return
        while self._release(now, group):
            pass
        for pid, channel in group.channels.items():
            self.out += [lines.line(self._name, group.names[pid], body) for body in channel.out]
            channel.out.clear()

    def _release(self, now: int, group: Group) -> bool:
        """Send what is to be sent; return whether something went to this node itself: there may be more to do then."""
        again = False
        requests, _, timers = group.client.drain()
        self._set_timers(now, True, timers)
        for pid, batch, _ in requests:
            again |= self._send(now, group, pid, REQUEST, batch)
        tick = group.replica.drain(now)
        self._set_timers(now, False, tick.timers)
        for pid, batch in tick.batches:
            again |= self._send(now, group, pid, MEMBER, batch)
        for note in tick.notes:
            self._log(f"{note.kind} {note.detail() or ''}".rstrip())
        for m, ts in tick.deliveries:
            self._deliver(group, m, ts)
        for client, batch in group.replica.encode_answers(tick.answers, {}):
            again |= self._send(now, group, client - len(group.names), ANSWER, batch)
        return again

    def _send(self, now: int, group: Group, pid: int, kind: str, data: bytes) -> bool:
        if pid == group.me:
            self._handle(now, group, pid, kind, data)
            return True
        group.channels[pid].send(now, kind, data)
        return False

    def _deliver(self, group: Group, m: AppMessage, ts: int) -> None:
        assert ts > group.last, f"{m.mid} delivered at {ts} after {group.last}"
        group.last = ts
        body = self.workload.apply(m.payload)
        if sender_of(m.mid) == group.session:
            self._answer(*self.waiting.pop(m.mid), body)

    def crashed(self, problem: BaseException) -> None:
        """Say that nobody will know what became of the requests that wait."""
        for to, number in self.waiting.values():
            self._answer(to, number, lines.error(lines.CRASH, f"{self._name} stops: {problem!r}"))
        self.waiting.clear()
