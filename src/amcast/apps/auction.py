"""An auction whose outcome depends on the order of the bids: the example of an application that speculates.

A bid wins a lot if it is higher than all before it; an equal one comes too late. Answered at once from the optimistic
order, it may have to be undone. Payload: lot and amount, as "lot:amount". Answer: b"leads" or b"too low".
"""

import json

from amcast.core.application import AllOrNothing, Delivery


class Auction(AllOrNothing):
    """The state machine of one group."""

    def __init__(self, group: int = 0, groups: int = 1) -> None:
        self.best: dict[str, tuple[int, str]] = {}  # lot -> highest bid, and whose

    def apply(self, delivery: Delivery) -> bytes:
        lot, _, amount = delivery.payload.decode(errors="replace").rpartition(":")
        bid = int(amount) if amount.isascii() and amount.isdigit() and len(amount) < 18 else 0
        if bid <= self.best.get(lot, (0, ""))[0]:
            return b"too low"
        self.best[lot] = (bid, delivery.sender)
        return b"leads"

    def snapshot(self) -> bytes:
        return json.dumps(self.best).encode()

    def restore(self, state: bytes) -> None:
        self.best = {lot: (amount, who) for lot, (amount, who) in json.loads(state).items()}
