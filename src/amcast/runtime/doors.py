"""Who has come to a listener and has not said yet what for.

To connect costs nothing, and whoever connects may stay silent. So there may be only so many strangers at a time. When
one more comes, another one goes: the oldest of the address that has the most. Whoever has business here says so within
milliseconds; a crowd has nothing to say, makes room for itself, and keeps nobody out.
"""

import asyncio
from collections.abc import Callable, Collection
from ipaddress import IPv6Address, ip_address


class Door:
    """The strangers at one listener: at most so many, of one address, and for so many seconds each.

    Those of `reserved` addresses take no place from others, nor others from them.
    """

    def __init__(self, most: int, most_of_one: int, seconds: float, reserved: Collection[str] = ()) -> None:
        self.most = most
        self.most_of_one = most_of_one
        self.seconds = seconds
        self.reserved = frozenset(reserved)
        self.dropped = 0  # to make room
        self._places: dict[str, dict[Place, None]] = {}  # by address, the oldest first

    @property
    def strangers(self) -> int:
        return sum(map(len, self._places.values()))

    def enter(self, peer: object) -> "Place":
        """Let a stranger in, given the address of its socket, and drop another one if there are too many."""
        address = network_of(peer)
        place = Place(self, address)
        mates = self._places.setdefault(address, {})
        mates[place] = None
        if len(mates) > self.most_of_one:
            self._drop_oldest(address)
        crowd = [known for known in self._places if known not in self.reserved]
        if sum(len(self._places[known]) for known in crowd) > self.most:
            self._drop_oldest(max(crowd, key=lambda known: len(self._places[known])))  # of several, who came first
        return place

    def make_room(self) -> None:
        """Drop a stranger, if there is any: this process cannot have more connections."""
        if self._places:
            self._drop_oldest(max(self._places, key=lambda known: len(self._places[known])))

    def drop_all(self) -> None:
        """Have all strangers come again."""
        while self._places:
            self._drop_oldest(next(iter(self._places)))

    def _drop_oldest(self, address: str) -> None:
        place = next(iter(self._places[address]))
        self.dropped += 1
        place.leave()
        place.drop()

    def forget(self, place: "Place") -> None:
        mates = self._places.get(place.address, {})
        mates.pop(place, None)
        if not mates:
            self._places.pop(place.address, None)


class Place:
    """One stranger. Whoever serves it says how to `drop` it, and that it may stay, or has gone (`leave`)."""

    def __init__(self, door: Door, address: str) -> None:
        self.address = address
        self.drop: Callable[[], object] = lambda: None
        self._door = door
        self._late = asyncio.get_running_loop().call_later(door.seconds, self._end)

    def _end(self) -> None:
        self.leave()
        self.drop()

    def leave(self) -> None:
        """Be a stranger no more. It may be said again."""
        self._late.cancel()
        self._door.forget(self)


def network_of(peer: object) -> str:
    """Return what counts as one address: all of an IPv6 network belong to whoever has one of them."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64)) if not found.is_loopback else host
