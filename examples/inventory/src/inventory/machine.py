"""The state machine of one group: the stock of its items, and what is reserved for orders that are not decided yet."""

import json
import zlib
from typing import Final

from amcast import Delivery, Rejected, StateMachine
from amcast.core.application import AllOrNothing, Application


def home(item: str, groups: int) -> int:
    """Return the group in which an item lives."""
    return zlib.crc32(item.encode()) % groups


class Inventory(AllOrNothing):
    """Executes `stock`, `reserve`, `confirm`, `cancel` and `look`, each for the items that live in this group.

    What is short is an answer, not an error. `apply` raises only before it changes anything, so nothing is undone.
    """

    def __init__(self, group: int, groups: int) -> None:
        self.group = group
        self.groups = groups
        self.stock: dict[str, int] = {}
        self.reserved: dict[str, dict[str, int]] = {}  # by order
        self.sold: dict[str, int] = {}

    def apply(self, delivery: Delivery) -> bytes:
        command = json.loads(delivery.payload)
        items = {item: n for item, n in command["items"].items() if home(item, self.groups) == self.group}
        if any(type(count) is not int or count < 1 for count in items.values()):
            raise Rejected("expected a whole number of each item, 1 or more")
        match command["do"]:
            case "stock":
                for item, count in items.items():
                    self.stock[item] = self.stock.get(item, 0) + count
            case "reserve":
                if any(self.stock.get(item, 0) < count for item, count in items.items()):
                    return b"short"
                self.reserved[command["order"]] = items
                for item, count in items.items():
                    self.stock[item] -= count
            case "confirm":
                for item, count in self.reserved.pop(command["order"], {}).items():
                    self.sold[item] = self.sold.get(item, 0) + count
            case "cancel":
                for item, count in self.reserved.pop(command["order"], {}).items():
                    self.stock[item] += count
            case "look":
                return json.dumps({item: self.stock.get(item, 0) for item in items}).encode()
            case other:
                raise Rejected(f"{other}: expected stock, reserve, confirm, cancel or look")
        return b"ok"

    def snapshot(self) -> bytes:
        return json.dumps([self.stock, self.reserved, self.sold], sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self.stock, self.reserved, self.sold = json.loads(state)


def inventory(group: int, groups: int) -> StateMachine:
    return Inventory(group, groups)


ROW: Final = Application(name="inventory", title="stock and orders of a shop", machine=inventory)
