"""AllGather: every server broadcasts along a binomial tree of its own; no failure is tolerated.

A round is complete with a message of everybody, and then delivered. The first message of a round makes a server send
its own, an empty one if need be; what belongs to the next round waits until that begins.

Paper: the baseline of Poke, Glass, "A Dual Digraph Approach for Leaderless Atomic Broadcast", §V.

Latency in message delays: the depth of the tree, at most ⌈log2 n⌉. Every server receives each message once.
"""

from typing import Final, final

from amcast.core.process import Effects, Params
from amcast.core.protocol import Protocol
from amcast.core.requests import Multicast, Reply
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.overlay import overlay_of
from amcast.protocols.allconcur.rounds import RoundClient, RoundMessage, RoundServer, Unreliable

MESSAGES: Final[tuple[type[Message], ...]] = (Multicast, Reply, Unreliable)


@final
class AllGather(RoundServer):
    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.r = 1
        self.members = topology.groups[self.g0]
        self.overlay = overlay_of(self.members, self.members, topology.replicas)
        self.received: list[RoundMessage | None] = [None] * topology.replicas
        self.got = 0
        self.next: list[RoundMessage] = []

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Unreliable):
            if msg.r > self.r:
                self.next.append(msg)
            else:
                self.take(msg)
                self.broadcast()
                self.try_to_complete()
        elif isinstance(msg, Multicast):
            self.on_request(sender, msg.m)

    def kick(self) -> None:
        self.broadcast()
        self.try_to_complete()

    def take(self, msg: RoundMessage) -> None:
        """Keep a message of this round, and pass it on."""
        self.received[msg.origin] = msg
        self.got += 1
        children = self.overlay.children(self.pid, msg.origin)
        if children:
            self.send(children, msg)

    def broadcast(self) -> None:
        if self.received[self.pid] is None:
            self.take(Unreliable(0, 0, self.r, self.pid, self.take_batch(), ()))

    def try_to_complete(self) -> None:
        while self.got == len(self.members):
            for msg in self.received:
                if msg is not None and msg.batch:
                    self.deliver_message(msg)
            self.r += 1
            self.received = [None] * self.replicas
            self.got = 0
            postponed, self.next = self.next, []
            for msg in postponed:
                self.take(msg)
            if postponed or self.queue:
                self.broadcast()

    def idle(self) -> bool:
        return not self.queue and self.got == 0 and not self.next


ROW: Final[Protocol] = Protocol(
    name="allgather",
    title="AllGather",
    replica=AllGather,
    client=RoundClient,
    tolerates="no failure",
    latency="tree depth",
    messages=MESSAGES,
    single_group=True,
    reliable_links=True,
    least_delivered=100,  # nothing goes wrong in its seeds
)
