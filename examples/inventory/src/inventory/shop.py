"""What programs do with the inventory: every method is one multicast to the groups of its items, an order is two."""

import json
import uuid
from collections.abc import Mapping

from amcast import Client
from inventory.machine import home


class Shop:
    """Wraps a client of the cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def stock(self, items: Mapping[str, int]) -> None:
        """Add to the stock."""
        await self._do("stock", items)

    async def look(self, *items: str) -> dict[str, int]:
        """Return how many there are of each, at one moment in the order of all groups."""
        answers = await self._do("look", dict.fromkeys(items, 1))
        return {item: count for answer in answers for item, count in json.loads(answer).items()}

    async def order(self, items: Mapping[str, int], name: str = "") -> bool:
        """Take all of these or nothing; return whether they were taken.

        All groups reserve, or say that they are short, at one place in the total order: so two orders never hold each
        other up, whatever groups they share.
        """
        name = name or uuid.uuid4().hex
        enough = b"short" not in await self._do("reserve", items, name)
        await self._do("confirm" if enough else "cancel", items, name)
        return enough

    async def _do(self, what: str, items: Mapping[str, int], order: str = "") -> list[bytes]:
        groups = sorted({home(item, self.client.groups) for item in items})
        payload = json.dumps({"do": what, "order": order, "items": dict(items)}).encode()
        return list((await self.client.multicast([f"g{g}" for g in groups], payload)).values())
