"""Accounts in several groups, money that moves between them: the demonstration.

A transfer is one multicast to the groups of both accounts, each of which books its side. It is never refused, balances
may be negative: so nothing needs to be agreed, and the sum over all accounts changes with "open" alone.

Payload, msgpack: ["open", account, amount] | ["transfer", from, to, amount] | ["total"].
Answer: {account: balance} of the accounts in this group that were touched, or the sum of this group's balances.
"""

import zlib
from typing import Annotated, Final, Literal

import msgspec

from amcast.core.application import AllOrNothing, Delivery

Amount = Annotated[int, msgspec.Meta(ge=-(2**32), le=2**32)]  # so that no sum comes near 64 bits
Open = tuple[Literal["open"], str, Amount]
Transfer = tuple[Literal["transfer"], str, str, Amount]
Total = tuple[Literal["total"]]

MALFORMED: Final = msgspec.msgpack.encode("malformed request")


def group_of(account: str, groups: int) -> int:
    return zlib.crc32(account.encode(errors="surrogatepass")) % groups


def decode(payload: bytes) -> Open | Transfer | Total:
    """Return the command in these bytes. msgspec takes no union of arrays, so the first word is looked at first."""
    words = msgspec.msgpack.decode(payload, type=list[str | int])
    kinds = {"open": Open, "transfer": Transfer, "total": Total}
    kind = kinds.get(str(words[0])) if words else None
    if kind is None:
        raise msgspec.ValidationError(f"expected one of {', '.join(kinds)}")
    request: Open | Transfer | Total = msgspec.convert(words, type=kind)
    return request


class Bank(AllOrNothing):
    """The state machine of one group."""

    def __init__(self, group: int, groups: int) -> None:
        self.group = group
        self.groups = groups
        self.balances: dict[str, int] = {}

    def apply(self, delivery: Delivery) -> bytes:
        try:
            request = decode(delivery.payload)
        except (msgspec.MsgspecError, UnicodeError):
            return MALFORMED
        if request[0] == "total":
            return msgspec.msgpack.encode(sum(self.balances.values()))
        if request[0] == "open":
            bookings = [(request[1], request[2])]
        else:
            bookings = [(request[1], -request[3]), (request[2], request[3])]
        touched: dict[str, int] = {}
        for account, amount in bookings:
            if group_of(account, self.groups) == self.group:
                touched[account] = self.balances[account] = self.balances.get(account, 0) + amount
        return msgspec.msgpack.encode(touched)

    def spread(self, states: list[bytes], groups: int) -> list[bytes]:
        """Return the accounts in so many groups."""
        found: list[dict[str, int]] = [{} for _ in range(groups)]
        for state in states:
            for account, balance in msgspec.msgpack.decode(state, type=dict[str, int]).items():
                found[group_of(account, groups)][account] = balance
        return [msgspec.msgpack.encode(balances) for balances in found]

    def query(self, request: bytes) -> bytes:
        """Answer ["balances", account, …] with the balances of those that are in this group."""
        words = msgspec.msgpack.decode(request, type=list[str])
        if not words or words[0] != "balances":
            raise ValueError("expected balances and names of accounts")
        return msgspec.msgpack.encode({one: self.balances[one] for one in words[1:] if one in self.balances})

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.balances)

    def restore(self, state: bytes) -> None:
        self.balances = msgspec.msgpack.decode(state, type=dict[str, int])
