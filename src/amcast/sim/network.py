"""How long a message takes, and what it costs to handle one.

A `Network` gives the delay of each message; `delta` is the bound that holds while nothing is disturbed. `Costs` is a
LogGP-like model of the machines: CPU time per message received and sent, with queueing, and a network card that
serialises what it transmits.
"""

from collections import Counter
from math import log
from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.process import Effects
from amcast.core.topology import Topology
from amcast.core.wire import Codec, Message
from amcast.errors import UsageError
from amcast.sim.choices import Choices
from amcast.sim.settings import LONGEST

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
FOR_EVER: Final = 1 << 60
LOST: Final = -1

UNITS: Final = {"ns": 1, "us": MICROSECOND, "µs": MICROSECOND, "ms": MILLISECOND, "s": SECOND}


def nanoseconds(text: str) -> int:
    """Return what a text means in nanoseconds: '1ms', '1000us' and '0.001s' are 1,000,000."""
    for unit in ("ns", "us", "µs", "ms", "s"):
        number = text.removesuffix(unit)
        if number != text and not number[-1:].isalpha():
            try:
                value = round(float(number) * UNITS[unit])
            except (ValueError, OverflowError):
                break
            if 0 <= value <= LONGEST:
                return value
    raise UsageError(f"time {text!r}: expected a number and a unit, such as 50ms, 1.5s or 200us, at most thirty days")


@final
class OnWay:
    """A message that joins a queue on its way, and the queue behind that one."""

    def __init__(self, msg: Message, size: int, after: "OnWay | None" = None) -> None:
        self.msg = msg
        self.size = size
        self.after = after


@mypyc_attr(allow_interpreted_subclasses=True)
class Network:
    """Base: the same delay for every message."""

    def __init__(self, delta: int) -> None:
        if delta < 1:
            raise UsageError(f"network delay {delta} ns: expected a positive time")
        self.delta = delta
        self.constant = False  # every message takes exactly delta, so channels are FIFO by themselves
        self.now = 0  # set by the world before it asks for a delay
        self.on_way: OnWay | None = None  # set by `delay`: after that time, the message joins a queue

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        """Return how long this message takes; LOST if it never arrives, which only a crash of its sender explains."""
        return self.delta

    def go_on(self, sender: int, dest: int, on_way: OnWay) -> int:
        """Return how long a message takes that joins a queue now: until the next queue, or until it arrives.

        Whoever joins first leaves first. What is sent on a channel must reach the next queue in order.
        """
        raise NotImplementedError

    def attach(self, codec: Codec) -> None:
        """Learn how messages become bytes in this world."""


@final
class Constant(Network):
    def __init__(self, delta: int) -> None:
        super().__init__(delta)
        self.constant = True


@final
class Uniform(Network):
    """Anything between two bounds."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(high)
        if not 0 <= low <= high:
            raise UsageError(f"uniform delay from {low} to {high} ns: expected the lower bound first")
        self.low = low

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        return choices.between(self.low, self.delta)


@final
class ExponentialTail(Network):
    """A base delay plus an exponential tail; delta leaves out one message in a thousand."""

    def __init__(self, base: int, mean: int) -> None:
        super().__init__(base + 7 * mean)
        self.base = base
        self.mean = mean

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        u = (choices.below(1 << 30) + 1) / (1 << 30)
        return self.base + int(-log(u) * self.mean)


@final
class Sites(Network):
    """A matrix of one-way delays between sites, with `jitter` percent on top at most."""

    def __init__(self, site_of: list[int], one_way: list[list[int]], jitter: int = 0) -> None:
        longest = max([max(row) for row in one_way])
        super().__init__(longest + longest * jitter // 100)
        self.site_of = site_of
        self.one_way = one_way
        self.jitter = jitter

    def delay(self, sender: int, dest: int, msg: Message, choices: Choices) -> int:
        base = self.one_way[self.site_of[sender]][self.site_of[dest]]
        if self.jitter == 0:
            return base
        return base + choices.below(base * self.jitter // 100 + 1)


@final
class Costs:
    """What handling messages costs a replica. Clients are taken to have machines enough."""

    def __init__(self, receive: int, send: int, bytes_per_second: int) -> None:
        self.receive = receive  # CPU, ns per message
        self.send = send
        self.bytes_per_second = bytes_per_second  # 0: infinite bandwidth


# The machines of the White-Box paper: 0.1 ms round trip and 2 Gb links in the LAN; Oregon, North Virginia and England
# in the WAN. The CPU cost per message is ours: a few microseconds, as for a C implementation over sockets.
LAN_ONE_WAY: Final = 50 * MICROSECOND
WAN_ONE_WAY: Final = [
    [250 * MICROSECOND, 30 * MILLISECOND, 65 * MILLISECOND],
    [30 * MILLISECOND, 250 * MICROSECOND, 37_500 * MICROSECOND],
    [65 * MILLISECOND, 37_500 * MICROSECOND, 250 * MICROSECOND],
]
# Those of the Optimistic paper: a gigabit switch, and Virginia, California, Oregon and Ireland. It gives no delays:
# these are ours, for the LAN with what operating systems add, for the WAN what was usual between those regions.
OAM_LAN_BASE: Final = 250 * MICROSECOND
OAM_LAN_TAIL: Final = 25 * MICROSECOND
OAM_WAN_ONE_WAY: Final = [
    [250 * MICROSECOND, 38 * MILLISECOND, 40 * MILLISECOND, 45 * MILLISECOND],
    [38 * MILLISECOND, 250 * MICROSECOND, 11 * MILLISECOND, 78 * MILLISECOND],
    [40 * MILLISECOND, 11 * MILLISECOND, 250 * MICROSECOND, 75 * MILLISECOND],
    [45 * MILLISECOND, 78 * MILLISECOND, 75 * MILLISECOND, 250 * MICROSECOND],
]
OAM_WAN_JITTER: Final = 5  # percent
GIGABIT: Final = 125_000_000
SERVER_COSTS: Final = (2 * MICROSECOND, 1 * MICROSECOND, 250_000_000)


def parse_network(text: str, topology: Topology) -> tuple[Network, Costs | None]:
    """Return the network that `--network` names, and the cost model that belongs to it."""
    name, _, rest = text.partition(":")
    times = [nanoseconds(part) for part in rest.split(",")] if rest else []
    if name == "constant" and len(times) == 1:
        return Constant(times[0]), None
    if name == "uniform" and len(times) == 2:
        return Uniform(times[0], times[1]), None
    if name == "exponential" and len(times) == 2:
        return ExponentialTail(times[0], times[1]), None
    if name == "lan" and not times:
        return Constant(LAN_ONE_WAY), Costs(SERVER_COSTS[0], SERVER_COSTS[1], SERVER_COSTS[2])
    if name in ("wan", "wan-spread") and not times:
        # One replica of each group per site, clients spread evenly. The first leaders, of rank 0, are all at the first
        # site, or spread: that of group g at site g mod 3.
        shift = 1 if name == "wan-spread" else 0
        places = zip(topology.rank_of, topology.group_of, strict=True)
        site_of = [(rank + shift * max(g, 0)) % 3 for rank, g in places]
        return Sites(site_of, WAN_ONE_WAY), Costs(SERVER_COSTS[0], SERVER_COSTS[1], SERVER_COSTS[2])
    if name == "oam-lan" and not times:
        return ExponentialTail(OAM_LAN_BASE, OAM_LAN_TAIL), Costs(SERVER_COSTS[0], SERVER_COSTS[1], GIGABIT)
    if name == "oam-wan" and not times:
        site_of = [rank % 4 for rank in topology.rank_of]  # a process of each group per region; clients as they come
        return Sites(site_of, OAM_WAN_ONE_WAY, OAM_WAN_JITTER), Costs(SERVER_COSTS[0], SERVER_COSTS[1], GIGABIT)
    raise UsageError(
        f"network {text!r}: expected constant:1ms, uniform:1ms,9ms, exponential:0.5ms,0.15ms, lan, wan, wan-spread, "
        "oam-lan, oam-wan, allconcur-sdc or allconcur-mdc"
    )


def cut_sends(
    sends: list[tuple[tuple[int, ...], Message]], pid: int, choices: Choices
) -> list[tuple[tuple[int, ...], Message]]:
    """Return what leaves a process that crashes in the middle of these: a prefix of them, chosen anew per channel."""
    total = Counter([dest for to, _ in sends for dest in to])
    kept = {dest: choices.below(count + 1) for dest, count in total.items()}
    left: list[tuple[tuple[int, ...], Message]] = []
    for to, msg in sends:
        reached: list[int] = []
        for dest in to:
            if kept[dest] > 0 and dest != pid:
                kept[dest] -= 1
                reached.append(dest)
        left.append((tuple(reached), msg))
    return left


def cut_short(out: Effects, pid: int, reliable: bool, choices: Choices) -> None:
    """Keep some of what a dying process does: sends, and where links are reliable all sends before a delivery."""
    if not reliable:
        out.sends = cut_sends(out.sends, pid, choices)
        return
    total = sum([len(to) for to, _ in out.sends])
    done = choices.below(total + len(out.deliveries) + 1)
    out.sends = first_sends(out.sends, done)
    del out.deliveries[max(0, done - total) :]


def first_sends(sends: list[tuple[tuple[int, ...], Message]], count: int) -> list[tuple[tuple[int, ...], Message]]:
    """Return the first so many of them, each destination counting."""
    left: list[tuple[tuple[int, ...], Message]] = []
    for to, msg in sends:
        left.append((to[: max(0, count)], msg))
        count -= len(to)
    return left


def random_cut(now: int, delta: int, choices: Choices) -> int:
    """Draw the last arrival that survives on a channel of a crashed process: all, none, or some of them."""
    choice = choices.below(3)
    if choice == 0:
        return now - 1
    if choice == 1:
        return FOR_EVER
    return now + choices.below(4 * delta)
