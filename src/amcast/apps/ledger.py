"""A distributed ledger: every server keeps the same chain of transactions, each hashed with all before it.

A transaction is up to 250 bytes, as in the AllConcur+ paper; one multicast to the group of the cluster. The answer is
its height, from 1, and the hash of the chain up to it. What is no transaction is answered, and not written down.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from amcast.core.application import AllOrNothing, Archiving, Delivery

LONGEST: Final = 250
GENESIS: Final = b"\0" * 32


def link(head: bytes, transaction: bytes) -> bytes:
    """Return the hash of a chain that goes on with this transaction."""
    return hashlib.sha256(head + transaction).digest()


def is_transaction(payload: bytes) -> bool:
    return 0 < len(payload) <= LONGEST


def chain(payloads: Iterable[bytes]) -> tuple[int, bytes]:
    """Return height and hash of the ledger that these deliveries make."""
    height, head = 0, GENESIS
    for payload in payloads:
        if is_transaction(payload):
            height, head = height + 1, link(head, payload)
    return height, head


class Ledger(AllOrNothing, Archiving):
    """The state machine of a server."""

    def __init__(self, group: int, groups: int) -> None:
        self.height = 0
        self.head = GENESIS

    def apply(self, delivery: Delivery) -> bytes:
        if not is_transaction(delivery.payload):
            return msgspec.msgpack.encode((0, b""))
        self.height += 1
        self.head = link(self.head, delivery.payload)
        return msgspec.msgpack.encode((self.height, self.head))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.height, self.head))

    def restore(self, state: bytes) -> None:
        self.height, self.head = msgspec.msgpack.decode(state, type=tuple[int, bytes])
