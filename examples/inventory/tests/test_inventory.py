"""The inventory on simulated clusters: crashes, lost disks, cut networks, and nothing is oversold."""

import asyncio
from collections.abc import Mapping
from random import Random

from inventory.machine import Inventory
from inventory.shop import Shop

from amcast import Client, MulticastFailed, OutcomeUnknown, StateMachine
from amcast.swarm.cluster.application import try_application

ITEMS = ["apple", "bread", "cheese", "dates"]


async def use(client: Client, random: Random) -> None:
    """Stock up and order, as somebody who is in a hurry; what fails or stays unknown is given up."""
    shop = Shop(client)
    for number in range(6):
        await asyncio.sleep(random.random() / 4)
        some = {item: random.randint(1, 5) for item in random.sample(ITEMS, random.randint(1, 3))}
        try:
            if number % 3 == 0:
                await shop.stock(some)
            else:
                await shop.order(some, f"{client.sender}-{random.getrandbits(64)}")
        except (MulticastFailed, OutcomeUnknown):
            pass


def nothing_oversold(machines: Mapping[str, StateMachine]) -> None:
    for group, machine in machines.items():
        assert isinstance(machine, Inventory)
        below = {item: count for item, count in machine.stock.items() if count < 0}
        assert not below, f"{group} sold more than there was: {below}"


def test_nothing_is_oversold_whatever_fails() -> None:
    tried = try_application(Inventory, use, judge=nothing_oversold, seeds=5)
    assert tried.applied > 100
    print(tried)
