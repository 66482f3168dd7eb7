"""Guards: money is neither lost nor made, whatever is transferred, over groups and over snapshots."""

import random

import msgspec
import pytest

from amcast.apps.bank import MALFORMED, Bank, group_of
from tests.apps.in_process import delivery

GROUPS = 3


def submit(banks: list[Bank], dest: tuple[int, ...], *request: str | int) -> dict[int, object]:
    payload = msgspec.msgpack.encode(request)
    return {group: msgspec.msgpack.decode(banks[group].apply(delivery(group, dest, payload))) for group in dest}


def test_the_total_stays() -> None:
    choose = random.Random(1)
    banks = [Bank(group, GROUPS) for group in range(GROUPS)]
    accounts = [f"account-{n}" for n in range(20)]
    assert {group_of(account, GROUPS) for account in accounts} == set(range(GROUPS))
    for account in accounts:
        home = group_of(account, GROUPS)
        assert submit(banks, (home,), "open", account, 100) == {home: {account: 100}}
    for step in range(500):
        one, other = choose.choices(accounts, k=2)
        dest = tuple(sorted({group_of(one, GROUPS), group_of(other, GROUPS)}))
        submit(banks, dest, "transfer", one, other, choose.randint(1, 300))
        if step % 50 == 0:
            restored = Bank(0, GROUPS)
            restored.restore(banks[0].snapshot())
            assert restored.snapshot() == banks[0].snapshot()
            banks[0] = restored
        totals = submit(banks, (0, 1, 2), "total")
        assert sum(map(int, totals.values())) == 2000  # type: ignore[call-overload]
    assert any(balance < 0 for bank in banks for balance in bank.balances.values())


def test_a_transfer_answers_both_balances() -> None:
    bank = Bank(0, 1)
    assert submit([bank], (0,), "transfer", "a", "b", 5) == {0: {"a": -5, "b": 5}}
    assert submit([bank], (0,), "transfer", "a", "a", 5) == {0: {"a": -5}}


REQUESTS = ([], ["rob"], ["open", 1, "a"], ["total", 1], ["open", "a", 2**40], 5)


@pytest.mark.parametrize("payload", [b"", b"\xc1", *map(msgspec.msgpack.encode, REQUESTS)])
def test_what_is_no_request_is_refused(payload: bytes) -> None:
    bank = Bank(0, 1)
    assert bank.apply(delivery(0, (0,), payload)) == MALFORMED
    assert not bank.balances
