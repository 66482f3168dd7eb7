"""A fixed sequencer: one process puts all messages in order, and sends each to its destinations.

Latency in message delays: 2 from the client to every destination. Tolerates no failure: groups are single processes,
and the one of group 0 is the sequencer. Not genuine: the sequencer has work with messages that are not for it.
"""

from dataclasses import dataclass
from typing import Final

from amcast.core.order import timestamp
from amcast.core.process import Effects, Params, Process
from amcast.core.protocol import Protocol
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Mid, Topology, sender_of, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.parts.sessions import DeliveredMessages

SEQUENCER: Final = 0


@dataclass
class Ordered(Message):
    """From the sequencer: this message has that place."""

    m: AppMessage
    place: int


class Sequencer(Process):
    """The process of one group; that of group 0 is the sequencer as well."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.place = 0
        self.ordered = DeliveredMessages()
        self.delivered = DeliveredMessages()

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Multicast):
            self.on_multicast_request(msg.m)
        elif isinstance(msg, Ordered):  # channels are FIFO: messages come in the order of their places
            self.deliver(msg.m, timestamp(msg.place, SEQUENCER))
            self.delivered.add(msg.m)
            self.reply(msg.m.mid)

    def on_multicast_request(self, m: AppMessage) -> None:
        if self.delivered.contains(m.mid):  # the client was not connected yet when the reply went out
            self.reply(m.mid)
        elif self.pid == SEQUENCER and not self.ordered.contains(m.mid):
            self.ordered.add(m)
            self.place += 1
            self.send(self.topology.members_of(m.dest), Ordered(m, self.place))

    def reply(self, mid: Mid) -> None:
        self.send_one(sender_of(mid), Reply(mid, self.topology.group_of[self.pid], self.pid))

    def footprint(self) -> int:
        return self.ordered.size() + self.delivered.size()


class Client(Process):
    """Asks the sequencer, and waits for a reply of each destination.

    A replica of a real cluster answers through the connection that a client made: so the destinations are asked, too.
    """

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.silent: dict[Mid, list[int]] = {}  # the groups that have not replied

    def on_multicast(self, m: AppMessage) -> None:
        self.silent[m.mid] = list(m.dest)
        m.done = seq_of(next(iter(self.silent)))  # all before it are delivered: nobody need remember them
        asked = self.topology.members_of(m.dest)
        self.send(asked if SEQUENCER in asked else (SEQUENCER, *asked), Multicast(m))

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Reply) and msg.g in self.silent.get(msg.mid, ()):
            self.silent[msg.mid].remove(msg.g)
            if not self.silent[msg.mid]:
                del self.silent[msg.mid]
                self.out.completed.append(msg.mid)

    def on_abandon(self, mid: Mid) -> None:
        self.silent.pop(mid, None)

    def idle(self) -> bool:
        return not self.silent


ROW: Final[Protocol] = Protocol(
    name="sequencer",
    title="Fixed sequencer",
    replica=Sequencer,
    client=Client,
    tolerates="no failure; every group is one process",
    latency="2δ",
    messages=(Multicast, Reply, Ordered),
    single_replica=True,
    genuine=False,
)
