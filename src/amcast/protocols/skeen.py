"""Skeen's protocol: total order among groups that are single reliable processes.

Paper: Gotsman, Lefort, Chockler, "White-Box Atomic Multicast", extended version, Figure 1; `# l.N` is a line there.

Latency in message delays: 2 with no conflicting message under way, 4 at worst (the convoy effect), 1 to one group.

Departures: a repeated MULTICAST is ignored; the destinations reply to the client, so that it can go on. There is no
recovery: a client that crashes between its sends blocks its destinations for ever, and so does a crashed process.
"""

from typing import ClassVar, Final, final

from librt.strings import BytesWriter

from amcast.core.order import DeliveryQueue, Slot, time_of, timestamp
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message, Reader, pack_long, pack_mid, pack_short
from amcast.protocols.parts.sessions import DeliveredMessages


@final
class Propose(Message):
    wire: ClassVar[dict[str, object]] = {"mid": int, "g": int, "lts": int}

    def __init__(self, mid: Mid, g: int, lts: int) -> None:
        self.mid = mid
        self.g = g
        self.lts = lts

    def pack(self, w: BytesWriter) -> None:
        pack_mid(w, self.mid)
        pack_short(w, self.g)
        pack_long(w, self.lts)

    def unpack(self, r: Reader) -> Message:
        return Propose(r.mid(), r.group(), r.long())


MESSAGES: Final[tuple[type[Message], ...]] = (Multicast, Propose, Reply)


@final
class Undelivered:
    """What a process knows of one undelivered message; `m` and `slot` are unknown while only PROPOSEs have come."""

    def __init__(self) -> None:
        self.m: AppMessage | None = None
        self.slot: Slot | None = None
        self.proposals: dict[int, int] = {}


@final
class Skeen(Process):
    """The process that is group g0."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.g0 = topology.group_of[pid]
        self.clock = 0
        self.entries: dict[Mid, Undelivered] = {}
        self.queue = DeliveryQueue()
        self.done = DeliveredMessages()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Propose):
            self.on_propose(msg)
        elif isinstance(msg, Multicast):
            self.on_multicast_request(msg.m)

    def entry_of(self, mid: Mid) -> Undelivered:
        entry = self.entries.get(mid)
        if entry is None:
            entry = self.entries[mid] = Undelivered()
        return entry

    def on_multicast_request(self, m: AppMessage) -> None:  # l.8
        if self.done.contains(m.mid):
            return
        entry = self.entry_of(m.mid)
        if entry.m is not None:
            return
        entry.m = m
        self.clock += 1  # l.9
        lts = timestamp(self.clock, self.g0)  # l.10
        entry.slot = self.queue.propose(m.mid, lts)  # l.11
        self.send(self.topology.members_of(m.dest), Propose(m.mid, self.g0, lts))  # l.12

    def on_propose(self, msg: Propose) -> None:  # l.13
        entry = self.entry_of(msg.mid)
        entry.proposals[msg.g] = msg.lts
        if entry.m is None or entry.slot is None or len(entry.proposals) < len(entry.m.dest):
            return
        gts = max(entry.proposals.values())  # l.14
        self.clock = max(self.clock, time_of(gts))  # l.15
        self.queue.commit(entry.slot, gts)  # l.16
        self.deliver_committed()

    def deliver_committed(self) -> None:  # l.17
        mid = self.queue.pop()
        while mid is not None:
            entry = self.entries.pop(mid)  # l.18
            assert entry.m is not None and entry.slot is not None
            self.done.add(entry.m)
            self.deliver(entry.m, entry.slot.gts)  # l.19
            self.send_one(sender_of(mid), Reply(mid, self.g0, self.pid))
            mid = self.queue.pop()

    def idle(self) -> bool:
        return not self.entries

    def footprint(self) -> int:
        return len(self.entries) + self.done.size()


@final
class SkeenClient(Process):
    """Sends once to each destination and waits for a reply of each."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.silent: dict[Mid, int] = {}  # mid -> how many groups have not replied

    def on_multicast(self, m: AppMessage) -> None:  # l.6
        self.silent[m.mid] = len(m.dest)
        m.done = seq_of(next(iter(self.silent)))
        self.send(self.topology.members_of(m.dest), Multicast(m))  # l.7

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Reply) and msg.mid in self.silent:
            self.silent[msg.mid] -= 1
            if self.silent[msg.mid] == 0:
                del self.silent[msg.mid]
                self.out.completed.append(msg.mid)

    def on_abandon(self, mid: Mid) -> None:
        self.silent.pop(mid, None)

    def idle(self) -> bool:
        return not self.silent


PAPER_NAMES: Final = {  # of Gotsman et al., for what is called otherwise there; White-Box shares them
    "clock": "clock",
    "phase": "Phase[m]",
    "lts": "LocalTS[m]",
    "gts": "GlobalTS[m]",
    "delivered": "Delivered[m]",
    "proposals": "LocalTS of PROPOSE or ACCEPT",
    "bal": "Bal of ACCEPT",
    "status": "status",
    "cballot": "cballot",
    "ballot": "ballot",
    "max_delivered_gts": "max_delivered_gts",
    "cur_leader": "Cur_leader",
}

ROW: Final[Protocol] = Protocol(
    name="skeen",
    title="Skeen's protocol",
    replica=Skeen,
    client=SkeenClient,
    tolerates="no failure; every group is one process",
    latency="2δ, worst 4δ",
    messages=MESSAGES,
    single_replica=True,
    blocks=True,
    least_delivered=93,
    paper_names=PAPER_NAMES,
)
