"""What happens in a simulation or an exploration, as rows of a trace."""

from typing import final

from amcast.core.order import BOTTOM, group_of, time_of
from amcast.core.topology import Mid, Topology
from amcast.core.trace import Event, Recorder
from amcast.core.wire import Codec, Message


@final
class Tracer:
    def __init__(self, recorder: Recorder, topology: Topology, codec: Codec, run: str, driver: str = "sim") -> None:
        self.recorder = recorder
        self.topology = topology
        self.codec = codec
        self.run = run
        self.driver = driver
        self.groups: list[str | None] = [topology.group_name(g) if g >= 0 else None for g in topology.group_of]
        self.seq = [0] * topology.size

    def start(self, config: str | None) -> None:
        """Record who takes part; the driver's own row says what kind of run this is.

        A replica's row says how many its group has, so that a trace that lost some of them does not look whole.
        """
        self.recorder.record(Event(self.run, "start", self.driver, None, 1, 0, detail=config))
        topology = self.topology
        for pid in range(topology.size):
            g = topology.group_of[pid]
            self.record(0, pid, "start", detail=f'{{"members": {len(topology.groups[g])}}}' if g >= 0 else None)

    def record(
        self,
        now: int,
        pid: int,
        kind: str,
        mid: Mid | None = None,
        dest: tuple[int, ...] | None = None,
        ts: int = BOTTOM,
        detail: str | None = None,
    ) -> None:
        """Record anything but a protocol message."""
        topology = self.topology
        name = topology.names[pid]
        self.seq[pid] += 1
        event = Event(self.run, kind, name, self.groups[pid], self.seq[pid], now, detail=detail)
        if mid is not None:
            event.message = topology.message_name(mid)
        if dest is not None:
            event.sender = name
            event.dest = tuple([topology.group_name(g) for g in dest])
        if ts != BOTTOM:
            event.ts = (time_of(ts), topology.group_name(group_of(ts)))
        self.recorder.record(event)

    def message(self, now: int, pid: int, kind: str, peer: int, msg: Message) -> None:
        """Record a protocol message that is sent or received."""
        topology = self.topology
        self.seq[pid] += 1
        event = Event(self.run, kind, topology.names[pid], self.groups[pid], self.seq[pid], now)
        event.peer = topology.names[peer]
        event.type = type(msg).__name__
        event.size = self.codec.size(msg)
        about = msg.about()
        if about:
            event.about = tuple([topology.message_name(mid) for mid in about])
        self.recorder.record(event)

    def end(self, now: int, stalled: bool) -> None:
        """Record that nothing more will happen."""
        detail = '{"stalled": true}' if stalled else None
        self.recorder.record(Event(self.run, "end", self.driver, None, 2, now, detail=detail))
