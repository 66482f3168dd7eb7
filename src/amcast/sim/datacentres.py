"""The set-ups of the AllConcur+ paper (§V): one server per subnet of a fat tree, in one or in five data centres.

Network cards of 1 Gb/s send and receive one message at a time; switches store and forward packets; between data centres
there are fibres, 10 Gb/s out of each, and a TCP window per connection. What the paper does not state is ours: 120 bytes
per message for framing and acknowledgements, 0.2 µs of CPU at both ends.
"""

from typing import Final, final

from amcast.core.wire import FRAME_OVERHEAD, Codec, Message
from amcast.errors import UsageError
from amcast.sim.choices import Choices
from amcast.sim.network import MICROSECOND, MILLISECOND, Network

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
        self.codec: Codec | None = None
        self.last: Message | None = None
        self.size = 0

    def attach(self, codec: Codec) -> None:
        self.codec = codec

    def bytes_of(self, msg: Message) -> int:
        if msg is not self.last:
            assert self.codec is not None
            self.last = msg
            self.size = self.codec.size(msg) + OVERHEAD
        return self.size

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        servers = len(self.out_free)
        if sender >= servers or dest >= servers:
            return 100 * MICROSECOND  # clients are not part of the set-up
        size = self.bytes_of(msg)
        wire = size * NS_PER_BYTE
        packet = min(size, PACKET) * NS_PER_BYTE
        here, there = sender // self.per_site, dest // self.per_site
        leaves = max(self.out_free[sender], self.now) + wire
        self.out_free[sender] = leaves
        if here != there:  # at most a window per round trip; what has to wait does not keep the card busy
            trip = 2 * FIBRE[here][there] * MICROSECOND
            acknowledged = max(self.windows.get((sender, dest), 0), leaves) + trip * size // WINDOW
            self.windows[sender, dest] = acknowledged
            leaves = max(leaves, acknowledged - trip)
        links = 4 if here == there and sender // self.per_pod == dest // self.per_pod else 6
        arrives = leaves + CPU + 2 * HOST_LINK + (links - 2) * SWITCH_LINK + (links - 2) * packet
        if here != there:
            self.site_free[here] = max(self.site_free[here], leaves) + wire // 10
            arrives = max(arrives, self.site_free[here]) + FIBRE[here][there] * MICROSECOND + 2 * packet
        arrives = max(arrives + packet, self.in_free[dest] + wire)
        self.in_free[dest] = arrives
        return arrives - self.now
