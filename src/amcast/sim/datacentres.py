"""The set-ups of the AllConcur+ paper (§V): one server per subnet of a fat tree, in one or in five data centres.

Network cards of 1 Gb/s send and receive one message at a time; switches store and forward packets; between data centres
there are fibres, 10 Gb/s out of each, and a TCP window per connection. What the paper does not state is ours: 120 bytes
per message for framing and acknowledgements, 0.2 µs of CPU at both ends.

Messages queue at the sender's card, at the way out of a data centre and at the receiver's card: each time in the order
in which they come there. A message from far away does not hold up what arrives before it.
"""

from typing import Final, final

from amcast.core.wire import FRAME_OVERHEAD, Codec, Message
from amcast.errors import UsageError
from amcast.sim.choices import Choices
from amcast.sim.network import MICROSECOND, MILLISECOND, Network, OnWay

OVERHEAD: Final = 120 - FRAME_OVERHEAD  # bytes per message
PACKET: Final = 1500
NS_PER_BYTE: Final = 8  # 1 Gb/s
CPU: Final = 400  # ns, at both ends together
HOST_LINK: Final = 50  # ns
SWITCH_LINK: Final = 500
WINDOW: Final = 65_535  # bytes of a connection under way between data centres
# Dublin, London, Paris, Frankfurt, Stockholm: one way in µs, 5 µs per km and 1.1 times the distance; 2.5 to 8.9 ms.
FIBRE: Final = [
    [0, 2550, 4290, 5970, 8900],
    [2550, 0, 2500, 3500, 7880],
    [4290, 2500, 0, 2630, 8490],
    [5970, 3500, 2630, 0, 6570],
    [8900, 7880, 8490, 6570, 0],
]


@final
class DataCentres(Network):
    def __init__(self, servers: int, sites: int) -> None:
        super().__init__(MILLISECOND if sites == 1 else 20 * MILLISECOND)
        if servers % sites:
            raise UsageError(f"{servers} servers in {sites} data centres: expected the same number in each")
        self.per_site = servers // sites
        ports = 2
        while (ports * ports if sites == 1 else ports * (ports - 1)) // 2 < self.per_site:
            ports += 2
        self.per_pod = ports // 2
        self.out_free = [0] * servers
        self.in_free = [0] * servers
        self.site_free = [0] * sites
        self.windows: dict[tuple[int, int], int] = {}  # connection -> when all that was sent on it is acknowledged
        self.at_card: dict[tuple[int, int], int] = {}  # connection between data centres -> when its last message came
        self.codec: Codec | None = None
        self.last: OnWay | None = None

    def attach(self, codec: Codec) -> None:
        self.codec = codec

    def way_of(self, msg: Message) -> OnWay:
        """Return the queues that a message joins on its way from one data centre to another."""
        last = self.last
        if last is None or msg is not last.msg:
            assert self.codec is not None
            size = self.codec.size(msg) + OVERHEAD
            last = self.last = OnWay(msg, size, OnWay(msg, size))
        return last

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        servers = len(self.out_free)
        if sender >= servers or dest >= servers:
            self.on_way = None
            return 100 * MICROSECOND  # clients are not part of the set-up
        way = self.way_of(msg)
        size = way.size
        leaves = max(self.out_free[sender], self.now) + size * NS_PER_BYTE
        self.out_free[sender] = leaves
        here, there = sender // self.per_site, dest // self.per_site
        if here == there:
            self.on_way = way.after
            links = 4 if sender // self.per_pod == dest // self.per_pod else 6
            return leaves + within(links, size) - self.now
        self.on_way = way
        trip = 2 * FIBRE[here][there] * MICROSECOND  # at most a window per round trip; who waits does not keep the card
        acknowledged = max(self.windows.get((sender, dest), 0), leaves) + trip * size // WINDOW
        self.windows[sender, dest] = acknowledged
        return max(leaves, acknowledged - trip) - self.now

    def go_on(self, sender: int, dest: int, on_way: OnWay) -> int:
        size = on_way.size
        wire = size * NS_PER_BYTE
        if on_way.after is None:
            self.in_free[dest] = max(self.now, self.in_free[dest] + wire)
            return self.in_free[dest] - self.now
        here, there = sender // self.per_site, dest // self.per_site
        self.site_free[here] = max(self.site_free[here], self.now) + wire // 10
        packet = min(size, PACKET) * NS_PER_BYTE
        arrives = max(self.site_free[here], self.now + within(6, size) - packet)
        arrives += FIBRE[here][there] * MICROSECOND + 3 * packet
        arrives = max(arrives, self.at_card.get((sender, dest), 0))
        self.at_card[sender, dest] = arrives
        return arrives - self.now


def within(links: int, size: int) -> int:
    """Return the time through so many links of a data centre and the CPUs: at the end the last packet is received."""
    packet = min(size, PACKET) * NS_PER_BYTE
    return CPU + 2 * HOST_LINK + (links - 2) * SWITCH_LINK + (links - 1) * packet
