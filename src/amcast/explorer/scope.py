"""What an exploration covers: who takes part, what is multicast, and what may go wrong how often."""

from dataclasses import dataclass

import msgspec

from amcast.core.topology import Topology
from amcast.errors import UsageError

MOST = 64  # processes: more cannot be explored


@dataclass(frozen=True)
class Scope:
    """The limits of an exploration.

    A sender's second multicast follows when its first completes. A process that is named twice may do something twice.
    """

    name: str
    about: str
    groups: tuple[int, ...]
    multicasts: tuple[tuple[str, tuple[int, ...]], ...]
    elections: tuple[str, ...] = ()  # who may suspect its leader
    timers: tuple[str, ...] = ()  # whose next timer may fire
    crashes: tuple[str, ...] = ()  # who may crash …
    most_crashes: int = 1  # … and how many of them
    falters: tuple[str, ...] = ()  # who may crash in the middle of a step; counts as a crash
    restarts: tuple[str, ...] = ()  # who may come back from what it made durable
    snapshots: tuple[str, ...] = ()  # who may make a snapshot of what it must not forget
    older: tuple[str, ...] = ()  # whose disk may lose its end while it is down …
    lost: tuple[str, ...] = ()  # … or everything: one disk in a run, and all others are up, for they remember
    tail_bytes: int = 0  # of deliveries that a replica keeps for others; 0: all that a scope has
    losses: tuple[tuple[str, str], ...] = ()  # what is under way from one to the other may be lost: a new connection
    detections: tuple[tuple[str, str], ...] = ()  # who may suspect whom: with ◇P anybody, else one that crashed …
    refusals: tuple[tuple[str, str], ...] = ()  # who may find that nobody listens where somebody of its group did
    news: bool = False  # clients hear at once who begins to lead
    early: bool = False  # … even before what that one had sent has arrived: then agreement is not uniform
    # Who asks for what, in this order: ("g0/0", "leave", "g1"), or ("g0/0", "members", "g0/0,g0/1") of a broadcast.
    reconfigurations: tuple[tuple[str, str, str], ...] = ()
    spare: int = 0  # how many of the last replicas are no members at first
    at_once: bool = True  # what a process sends to itself is part of the same step
    whenever: bool = False  # each multicast is a move: it may come at any time
    open_loop: bool = False  # senders do not wait for the completion of what they multicast before
    mute: tuple[str, ...] = ()  # messages of these types are too late to matter
    orders: bool = True  # conflicting messages are delivered in either order: expected to be seen

    def topology(self) -> Topology:
        clients = [int(who[1:]) for who, _ in self.multicasts if who.startswith("c")]
        return Topology(self.groups, max(clients, default=-1) + 1)


def scope_from(fields: object) -> Scope:
    """Return the scope that a replay file describes."""
    try:
        scope = msgspec.convert(fields, Scope)
        clients = [int(who[1:]) for who, _ in scope.multicasts if who.startswith("c")]
        if sum(scope.groups) + max(clients, default=-1) + 1 > MOST or min((*scope.groups, *clients), default=0) < 0:
            raise UsageError(f"scope: groups of {list(scope.groups)} and clients: expected at most {MOST} processes")
        topology = scope.topology()
        named = [who for who, _ in scope.multicasts] + list(scope.elections + scope.timers)
        named += scope.crashes + scope.falters + scope.restarts + scope.snapshots + scope.older + scope.lost
        named += [who for pair in scope.losses + scope.detections + scope.refusals for who in pair]
        named += [who for who, _, _ in scope.reconfigurations]
        for who in named:
            topology.pid(who)
        for who, wish, group in scope.reconfigurations:
            if wish == "members":
                for name in group.split(","):
                    topology.pid(name)
            elif wish not in ("join", "leave") or group not in [f"g{g}" for g in range(len(scope.groups))]:
                raise UsageError(f"reconfiguration {who} {wish} {group}: expected join or leave, and a group")
        for _, dest in scope.multicasts:
            if not dest or list(dest) != sorted(set(dest)) or dest[0] < 0 or dest[-1] >= len(scope.groups):
                most = len(scope.groups) - 1
                raise UsageError(f"destination groups {list(dest)}: expected numbers from 0 to {most}, in order")
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"scope: {error}") from None
    return scope
