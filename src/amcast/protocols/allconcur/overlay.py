"""A server in the overlay networks of the AllConcur family: members, digraphs, failure detection, tracking.

The reliable digraph G_R stays the same until an eon ends, but for members that are removed; of the unreliable G_U there
is one tree per source, built anew whenever somebody is removed. Only the successors of a server in G_R watch it.
"""

from dataclasses import dataclass
from typing import Final, final

from amcast.core.capabilities import Detecting
from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.core.wire import Message
from amcast.protocols.allconcur.digraphs import binomial_children, mask, reliable_digraph, transpose
from amcast.protocols.allconcur.rounds import RoundServer
from amcast.protocols.parts.failure_detectors import ALIVE, FailureDetector


@final
@dataclass
class Fail(Message):
    """`owner`, a successor of `target`, suspects it for the seq-th time."""

    eon: int
    target: int
    owner: int
    seq: int


@final
@dataclass
class Removed(Message):
    """The group has gone on without the receiver."""

    eon: int


@final
class Overlay:
    """The digraphs among these members, the same for all of them. `first` are the members with whom the eon began.

    There may be many processes with equal overlays, so a table keeps the last ones made.
    """

    def __init__(self, first: tuple[int, ...], members: tuple[int, ...], size: int) -> None:
        n = len(members)
        graph = reliable_digraph(len(first))
        back = transpose(graph)
        is_member = [False] * size
        self.rank_of = [0] * size
        for rank, p in enumerate(members):
            is_member[p] = True
            self.rank_of[p] = rank
        self.members = members
        self.is_member = is_member
        self.degree = len(graph[0])
        self.successors: list[tuple[int, ...]] = [()] * size
        self.predecessors: list[tuple[int, ...]] = [()] * size
        self.masks = [0] * size  # of the successors
        for i, p in enumerate(first):
            if is_member[p]:
                self.successors[p] = tuple([first[j] for j in graph[i] if is_member[first[j]]])
                self.predecessors[p] = tuple([first[j] for j in back[i] if is_member[first[j]]])
                self.masks[p] = mask(self.successors[p])
        self.tree = [binomial_children(v, n) for v in range(n)]

    def children(self, me: int, source: int) -> tuple[int, ...]:
        """Return whom this server passes an unreliable message of that source on to."""
        members = self.members
        n = len(members)
        first = self.rank_of[source]
        v = self.rank_of[me] - first
        if v < 0:
            v += n
        below = self.tree[v]
        if len(below) == 1:
            return (members[(first + below[0]) % n],)
        return tuple([members[(first + w) % n] for w in below])


OVERLAYS: Final[dict[tuple[tuple[int, ...], tuple[int, ...], int], Overlay]] = {}


def overlay_of(first: tuple[int, ...], members: tuple[int, ...], size: int) -> Overlay:
    key = (first, members, size)
    found = OVERLAYS.get(key)
    if found is None:
        if len(OVERLAYS) >= 64:
            OVERLAYS.clear()
        found = OVERLAYS[key] = Overlay(first, members, size)
    return found


def tracking(origin: int, successors: list[int], notices: dict[int, int]) -> int:
    """Return who may have the message of `origin`, as bits; 0 when only failed servers may.

    `successors` are masks; `notices` has, for every server that somebody suspects, the mask of those who do. A failed
    server may have passed the message on to every successor that has not reported its failure; for had such a one the
    message, it would have been here before the report.
    """
    visited = todo = 1 << origin
    alive = False
    while todo:
        low = todo & -todo
        todo ^= low
        p = low.bit_length() - 1
        owners = notices.get(p)
        if owners is None:
            alive = True
            continue
        new = successors[p] & ~owners & ~visited
        visited |= new
        todo |= new
    return visited if alive else 0


class OverlayServer(RoundServer, Detecting):
    forgives = False  # whether the detector trusts again whom it hears

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.eon = 1
        self.members: tuple[int, ...] = ()
        self.first: tuple[int, ...] = ()  # the members when the eon began
        self.overlay = overlay_of((pid,), (pid,), topology.replicas)
        self.is_member = [False] * topology.replicas
        self.successors: tuple[int, ...] = ()
        self.predecessors: tuple[int, ...] = ()
        self.detector = FailureDetector((), topology.replicas, params, 0, self.forgives)
        self.notices: dict[int, int] = {}  # F: target -> owners as bits
        self.seqs: dict[tuple[int, int], int] = {}  # F: (target, owner) -> seq
        self.own_seq = 0
        self.deaf = [False] * topology.replicas  # whose reliable messages, coming directly, are ignored
        self.told = [False] * topology.replicas  # that they are removed

    # Overlays

    def begin_eon(self, members: tuple[int, ...]) -> None:
        """Make new digraphs for these members."""
        self.first = members
        self.notices = {}
        self.seqs = {}
        self.deaf = [False] * self.replicas
        self.told = [False] * self.replicas
        self.set_members(members)

    def set_members(self, members: tuple[int, ...]) -> None:
        overlay = self.overlay = overlay_of(self.first, members, self.replicas)
        self.members = members
        self.is_member = overlay.is_member
        self.successors = overlay.successors[self.pid]
        self.predecessors = overlay.predecessors[self.pid]
        self.detector.watch(self.predecessors, self.now)

    def forget(self, target: int, owner: int) -> None:
        """Drop a notification."""
        if self.seqs.pop((target, owner), None) is None:
            return
        owners = self.notices.get(target, 0) & ~(1 << owner)
        if owners:
            self.notices[target] = owners
        else:
            self.notices.pop(target, None)

    def add_notice(self, msg: Fail) -> None:
        self.notices[msg.target] = self.notices.get(msg.target, 0) | 1 << msg.owner
        self.seqs[msg.target, msg.owner] = msg.seq

    def all_lost(self, missing: list[int]) -> bool:
        """Return True if no server that is up can have a message of these. This one is up, whoever suspects it."""
        notices = self.notices
        if not all(origin in notices for origin in missing):
            return False
        if self.pid in notices:
            notices = {target: owners for target, owners in notices.items() if target != self.pid}
        return not any(tracking(origin, self.overlay.masks, notices) for origin in missing)

    def alone(self) -> str:
        """Say why this server is cut off: it suspects all whom it could hear, or all suspect it who could hear it."""
        if self.predecessors and all(self.notices.get(p, 0) >> self.pid & 1 for p in self.predecessors):
            return "hears nobody"
        here = self.overlay.masks[self.pid]
        return "heard by nobody" if here and not here & ~self.notices.get(self.pid, 0) else ""

    # Failure detection

    def beat(self) -> None:
        self.say_alive()
        self.set_timer("beat", self.params.heartbeat, self.params.heartbeat)

    def on_timer(self, name: str) -> None:
        if name == "beat":
            self.detector.look(self.now)
            for p in self.detector.newly_suspected(self.now):
                self.on_suspicion(p)
            self.on_beat()
            self.beat()

    def on_beat(self) -> None:
        """Do what is due at every heartbeat."""

    def say_alive(self) -> None:
        if self.successors:
            self.send(self.successors, ALIVE)

    def on_detect(self, pid: int, suspected: bool) -> None:
        if pid in self.predecessors and self.detector.suspected[pid] != suspected:
            self.detector.suspected[pid] = suspected
            if suspected:
                self.on_suspicion(pid)
            else:
                self.on_trusted(pid)

    def on_suspicion(self, p: int) -> None:
        """Act on a predecessor that is suspected from now on."""

    def on_trusted(self, p: int) -> None:
        """Act on a predecessor that is trusted again."""

    def hear(self, sender: int) -> None:
        """Take a heartbeat."""
        if self.detector.heard(sender, self.now):
            self.on_trusted(sender)
