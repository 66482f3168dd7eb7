"""No payload, however malformed, makes an application of ours raise half-way: it answers, or nothing has changed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.apps.auction import Auction
from amcast.apps.bank import Bank
from amcast.apps.kv import KV
from amcast.apps.kv.commands import SPECS
from amcast.apps.ledger import Ledger
from amcast.core.application import AllOrNothing, Delivery, StateMachine

encode = msgspec.msgpack.encode


def flat(call: tuple[bytes, list[bytes]]) -> list[bytes]:
    return [call[0], *call[1]]


NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1]) | st.integers(-5, 5)
WORDS = st.sampled_from([b"a", b"b", b"{x}a", b"", b"1", b"-1", b"nan", b"9" * 30, b"\xff", b"EX", b"PX", b"XX", b"*"])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
GARBAGE = st.binary(max_size=40) | ANYTHING.map(encode) | st.sampled_from([b"\x91" * 5000, b"\xdf" + b"\xff" * 9, b""])
CALLS = st.lists(st.tuples(st.sampled_from(sorted(SPECS)), st.lists(WORDS, max_size=4)).map(flat), max_size=3)
# Shapes that are nearly right, each field of which may be anything: what a broken or hostile gateway could send.
WATCHED = st.lists(st.tuples(WORDS, st.integers(0, 3)), max_size=2)
TXNS = st.sampled_from([b"t1", b"t2"])
UNITS = st.one_of(
    st.tuples(st.integers(-1, 5), ANYTHING, ANYTHING),
    st.tuples(st.just(0), CALLS, WATCHED),
    st.tuples(st.just(1), st.lists(WORDS, max_size=3)),
    st.tuples(st.just(2), TXNS, st.lists(NUMBERS, max_size=2), CALLS, WATCHED, st.lists(WORDS, max_size=2)),
    st.tuples(st.just(3), TXNS, st.booleans()),
    st.tuples(st.just(4), NUMBERS),
)
STORE = st.tuples(st.integers(0, 2**53) | NUMBERS, st.lists(UNITS, max_size=3)).map(encode)
ACCOUNTS = st.sampled_from(["a", "b", "", "é"])
AMOUNTS = st.integers(-(2**32), 2**32) | NUMBERS
BANK = st.one_of(
    st.tuples(st.just("open"), ACCOUNTS, AMOUNTS),
    st.tuples(st.just("transfer"), ACCOUNTS, ACCOUNTS, AMOUNTS),
    st.just(("total",)),
    st.lists(st.sampled_from(["open", "transfer", "total"]) | ACCOUNTS | ANYTHING, max_size=5),
).map(encode)
BIDS = st.tuples(WORDS, WORDS).map(b":".join)
APPS: dict[str, tuple[Callable[[int, int], StateMachine], st.SearchStrategy[bytes]]] = {
    "kv": (KV, STORE),
    "bank": (Bank, BANK),
    "ledger": (Ledger, st.binary(max_size=260)),
    "auction": (Auction, BIDS),
}


@pytest.mark.parametrize("name", APPS)
def test_no_payload_changes_half(name: str) -> None:
    make, nearly_right = APPS[name]
    assert isinstance(make(0, 2), AllOrNothing)
    answered = 0

    @settings(max_examples=200, deadline=None, database=None)
    @given(st.lists(st.tuples(nearly_right | GARBAGE, st.booleans()), max_size=6))
    def runs(steps: list[tuple[bytes, bool]]) -> None:
        nonlocal answered
        app = make(0, 2)
        for position, (payload, several) in enumerate(steps):
            before = app.snapshot()
            dest = ("g0", "g1") if several else ("g0",)
            try:
                answer = app.apply(Delivery("g0", position, (position, "g0"), f"c1:{position}", "c1", dest, payload))
            except RecursionError:
                assert app.snapshot() == before, "the node decides whether that is too deep"
            else:
                assert type(answer) is bytes and answer
                answered += b"malformed" not in answer
            again = make(0, 2)
            again.restore(app.snapshot())
            assert again.snapshot() == app.snapshot()

    runs()
    assert answered > 20
