"""Who takes part in a run: disjoint groups of replicas, then the clients.

Inside the system a process, a group and a message are small integers; names (`g0/2`, `c7`, `c7:41`) belong to the
edges: command line, trace, configuration.
"""

from typing import Final, NewType, cast, final

from amcast.errors import TopologyError

SEQ_BITS: Final = 48
MOST_KEPT: Final = 100_000  # sets of groups
MOST: Final = 65_535  # groups, and replicas in a group: their numbers are part of timestamps and ballots

# The id of an application message, unique in a run: an integer that is only compared and looked up. Declared as an
# object it stays one Python object from the client to the last table (compiled code would make a new one per look-up).
Mid = NewType("Mid", object)


def message_id(sender: int, seq: int) -> Mid:
    """Return the id of the seq-th message of a sender."""
    return Mid(sender << SEQ_BITS | seq)


def sender_of(mid: Mid) -> int:
    return cast(int, mid) >> SEQ_BITS


def seq_of(mid: Mid) -> int:
    return cast(int, mid) & 0xFFFF_FFFF_FFFF


def forget_if_many(found: dict[tuple[int, ...], tuple[int, ...]]) -> None:
    if len(found) >= MOST_KEPT:
        found.clear()


@final
class Topology:
    """The groups and clients. Groups are numbered from 0, their members are consecutive numbers, clients follow.

    Each group may have so many seats more, for members that come `later`. Their numbers are behind those of all others:
    nobody's number depends on how many they are. Behind these are the seats of groups that may come while the cluster
    runs, `more_groups` with `more_seats` each; protocols and drivers know which of them there are by now.
    """

    def __init__(
        self, sizes: tuple[int, ...], clients: int = 0, later: int = 0, more_groups: int = 0, more_seats: int = 0
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise TopologyError(f"groups of sizes {list(sizes)}: expected one or more, each of at least one replica")
        if len(sizes) > MOST or max(sizes) > MOST:
            raise TopologyError(f"{len(sizes)} groups of up to {max(sizes)} replicas: expected at most {MOST} of each")
        if clients < 0:
            raise TopologyError(f"{clients} clients: expected zero or more")
        self.sizes = sizes
        groups: list[tuple[int, ...]] = []
        self.group_of: list[int] = []
        self.rank_of: list[int] = []
        self.names: list[str] = []
        first = 0
        for g, size in enumerate(sizes):
            groups.append(tuple(range(first, first + size)))
            first += size
            for rank in range(size):
                self.group_of.append(g)
                self.rank_of.append(rank)
                self.names.append(f"g{g}/{rank}")
        for more in range(later):
            for g, size in enumerate(sizes):
                groups[g] += (first,)
                first += 1
                self.group_of.append(g)
                self.rank_of.append(size + more)
                self.names.append(f"g{g}/{size + more}")
        self.replicas_at_first = first
        for g in range(len(sizes), len(sizes) + more_groups):
            groups.append(tuple(range(first, first + more_seats)))
            first += more_seats
            for rank in range(more_seats):
                self.group_of.append(g)
                self.rank_of.append(rank)
                self.names.append(f"g{g}/{rank}")
        self.groups: tuple[tuple[int, ...], ...] = tuple(groups)
        self.replicas = first
        self.clients: tuple[int, ...] = tuple(range(first, first + clients))
        for i in range(clients):
            self.group_of.append(-1)
            self.rank_of.append(i)
            self.names.append(f"c{i}")
        self.size = first + clients
        self.everybody: tuple[int, ...] = tuple(range(first))  # all replicas
        # What follows from the topology alone is found once for all processes, of which there may be thousands.
        self.beginnings: dict[int, object] = {}  # by the number of spare seats: what is known of members at first
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._leaders: dict[tuple[int, ...], tuple[int, ...]] = {}

    def quorum(self, g: int) -> int:
        """Return how many members of g are a majority."""
        return len(self.groups[g]) // 2 + 1

    def members_of(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        """Return all processes of these groups, in order."""
        known = self._members.get(dest)
        if known is None:
            forget_if_many(self._members)
            known = self._members[dest] = tuple([p for g in dest for p in self.groups[g]])
        return known

    def leaders_of(self, dest: tuple[int, ...]) -> tuple[int, ...]:
        """Return who leads each of these groups at first."""
        known = self._leaders.get(dest)
        if known is None:
            forget_if_many(self._leaders)
            known = self._leaders[dest] = tuple([self.groups[g][0] for g in dest])
        return known

    def name(self, pid: int) -> str:
        """Return `g0/2` or `c7`. A client that is not in the table, as in a cluster, has its number in hexadecimal."""
        return self.names[pid] if pid < self.size else f"c{pid:x}"

    def pid(self, name: str) -> int:
        """Return the process with this name: the inverse of `name`."""
        if name not in self.names:
            clients = f" or c0 … {self.names[-1]}" if self.clients else ""
            last = self.names[self.replicas - 1]
            raise TopologyError(f"no process {name!r} in this topology: expected one of g0/0 … {last}{clients}")
        return self.names.index(name)

    def group_name(self, g: int) -> str:
        return f"g{g}"

    def message_name(self, mid: Mid) -> str:
        return f"{self.name(sender_of(mid))}:{seq_of(mid)}"
