"""What an application sees: deliveries in order; and what it must offer to be replicated."""

from dataclasses import dataclass
from typing import Protocol

from amcast.core.order import group_of, time_of
from amcast.core.topology import Topology, sender_of, seq_of
from amcast.core.wire import AppMessage


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message in the ordered log of a group."""

    group: str
    position: int  # in the group's log, from 0, without gaps
    ts: tuple[int, str]  # the place in the one total order over all groups
    message: str  # unique: the sender's name, a colon, a number
    sender: str
    dest: tuple[str, ...]
    payload: bytes


def place(topology: Topology, ts: int, index: int) -> tuple[int, str]:
    """The place of a message in the total order: messages that travelled as one share a timestamp."""
    tie = topology.group_name(group_of(ts))
    return time_of(ts), f"{tie}+{index:04}" if index else tie


def delivery(topology: Topology, group: str, position: int, ts: int, index: int, m: AppMessage) -> Delivery:
    sender = topology.name(sender_of(m.mid))
    dest = tuple([topology.group_name(g) for g in m.dest])
    message = f"{sender}:{seq_of(m.mid)}"
    return Delivery(group, position, place(topology, ts, index), message, sender, dest, m.payload)


class StateMachine(Protocol):
    """A deterministic application: the same deliveries give the same state and the same answers at every replica.

    So it uses no clock, no randomness and nothing else that differs between replicas; times travel in payloads.
    """

    def apply(self, delivery: Delivery) -> bytes:
        """Execute one message; the answer goes back to its sender, as this group's part of the result."""
        ...

    def snapshot(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, state: bytes) -> None:
        """Go on from a snapshot."""
        ...
