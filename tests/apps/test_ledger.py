"""The ledger: every server computes the same chain, and what is no transaction leaves no trace in it."""

import hashlib

import msgspec

from amcast.apps.ledger import GENESIS, Ledger, chain
from amcast.core.application import Delivery


def deliver(ledger: Ledger, payload: bytes) -> tuple[int, bytes]:
    answer = ledger.apply(Delivery("g0", 0, (0, "g0"), "c0:0", "c0", ("g0",), payload))
    return msgspec.msgpack.decode(answer, type=tuple[int, bytes])


def test_chain() -> None:
    ledger = Ledger(0, 1)
    first = hashlib.sha256(GENESIS + b"one").digest()
    second = hashlib.sha256(first + b"two").digest()
    assert deliver(ledger, b"one") == (1, first) and deliver(ledger, b"two") == (2, second)
    assert chain([b"one", b"two"]) == (2, second) != chain([b"two", b"one"])


def test_what_is_no_transaction_is_not_written_down() -> None:
    ledger = Ledger(0, 1)
    assert deliver(ledger, b"") == deliver(ledger, b"x" * 251) == (0, b"")
    assert deliver(ledger, b"x" * 250)[0] == 1
    assert chain([b"", b"x" * 251, b"x" * 250]) == (ledger.height, ledger.head)


def test_snapshot() -> None:
    ledger, other = Ledger(0, 1), Ledger(0, 1)
    deliver(ledger, b"one")
    other.restore(ledger.snapshot())
    assert deliver(other, b"two") == deliver(ledger, b"two")
