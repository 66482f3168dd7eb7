"""What an application sees: deliveries in order; and what it must offer to be replicated."""

from dataclasses import dataclass
from typing import Protocol


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
