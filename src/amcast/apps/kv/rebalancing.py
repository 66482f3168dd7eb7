"""Moves slots between groups, few at a time, while gateways serve: what is to move, and one step after the other.

What is aimed at is how many slots each group is to own, so whoever was interrupted gives the same command again, and
only the rest moves. Two who do this at the same time do no harm: a move rests on a version of the map, and one of two
is refused.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from amcast.apps.kv.moving import Carrier
from amcast.apps.kv.slots import SLOTS, UNKNOWN, SlotMap, even
from amcast.apps.kv.wire import Learn, Move, Regroup, View
from amcast.errors import AmcastError, MulticastFailed, UsageError
from amcast.runtime.client import Client

LARGEST_PART: Final = 2**20
FIRST_STEP, LARGEST_STEP = 4, 128  # slots; in between it goes by how much they hold, …
FEW, MANY = 1, 4  # parts: for commands on these slots wait until all have arrived
SECONDS_TO_ANSWER: Final = 5.0
Step = tuple[int, int, list[int]]  # from, to, slots


def quotas(slots: SlotMap, onto: int | None, number: int | None, away: int | None) -> dict[int, int]:
    """Return how many slots each group is to own. Raises UsageError."""
    owned = owned_slots(slots)
    share = SLOTS // len(owned)
    if onto is None and away is None:
        most = sorted(owned, key=lambda group: (-owned[group], group))[: SLOTS % len(owned)]
        return {group: share + (group in most) for group in owned}
    wanted = dict(owned)
    if onto is None:
        assert away is not None
        others = [(count, group) for group, count in owned.items() if group != away]
        if not others:
            raise UsageError(f"g{away} is the only group; expected another one that can have its slots")
        wanted[away] = 0
        heapq.heapify(others)
        for _ in range(owned[away]):
            count, group = others[0]
            heapq.heapreplace(others, (count + 1, group))
            wanted[group] = count + 1
        return wanted
    givers = [group for group in owned if group != onto and away in (None, group)]
    lacks = (share if number is None else number) - owned[onto]
    there = sum(owned[group] for group in givers)
    if lacks < 0 and number is not None:
        raise UsageError(f"g{onto} owns {owned[onto]} slots, more than {number}; move some away with --from g{onto}")
    if lacks > there:
        raise UsageError(f"g{onto} lacks {lacks} slots, and there are {there} to give: expected a smaller --slots")
    largest = [(-owned[group], group) for group in givers]
    heapq.heapify(largest)
    for _ in range(max(0, lacks)):
        count, group = largest[0]
        heapq.heapreplace(largest, (count + 1, group))
        wanted[group] = -count - 1
    wanted[onto] = max(owned[onto], owned[onto] + lacks)
    return wanted


def owned_slots(slots: SlotMap) -> dict[int, int]:
    """Return how many slots each group owns."""
    count = Counter(slots.owners)
    return {group: count[group] for group in slots.groups}


def next_step(slots: SlotMap, wanted: dict[int, int], most: int) -> Step | None:
    """Return the next slots to move, from one group to another; None if all have what they are to have."""
    owned = owned_slots(slots)
    source = max(wanted, key=lambda group: (owned[group] - wanted[group], -group))
    target = max(wanted, key=lambda group: (wanted[group] - owned[group], -group))
    count = min(owned[source] - wanted[source], wanted[target] - owned[target], most)
    if count <= 0:
        return None
    own = [slot for slot in range(SLOTS) if slots.owners[slot] == source]
    return source, target, own[-count:]


class Rebalancing:
    """The slots of one cluster, as somebody sees them who moves them."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds  # for each step
        self._carrier = Carrier(client, client.machine.limits.lock_seconds)
        self.views: dict[int, View] = {}
        self.slots = even(client.groups)

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._seconds

    async def look(self) -> None:
        """See whose the slots are. Raises UsageError unless every group can be used: a move goes to all of them."""
        told = await self._client.conditions(SECONDS_TO_ANSWER)
        for g in self._client.config.groups:
            said = [one.unready for name, one in told.items() if name.partition("/")[0] == f"g{g}"]
            if None not in said:
                why = next((text for text in said if text), "none of its replicas answers")
                raise UsageError(f"g{g} cannot be used: {why}; slots move only while all groups have a quorum")
        try:
            self.views = {g: await self._carrier.view(g, self._until()) for g in self._client.config.groups}
        except MulticastFailed as error:
            raise UsageError(str(error)) from None
        newest = max(self.views.values(), key=lambda view: view.version)
        self.slots = slots_of(newest)

    def unfinished(self) -> list[str]:
        """Return what is under way, in lines."""
        return [
            f"{slots} slots on their way from g{source} to g{g}, whose keys are still in g{source}"
            for g, view in self.views.items()
            for _, source, slots in view.arriving
        ]

    async def run(self, wanted: Callable[[SlotMap], dict[int, int]], progress: Callable[[int, int], None]) -> int:
        """Move slots until all groups own what they are to; return how many have moved. `look` comes first."""
        most, done = FIRST_STEP, 0
        part_bytes = min(LARGEST_PART, self._client.config.largest_message - 1024)
        try:
            await self._finish()
            await self._admit()
            goal = wanted(self.slots)
            total = sum(max(0, count - owned_slots(self.slots)[group]) for group, count in goal.items())
            while step := next_step(self.slots, goal, most):
                source, target, some = step
                await self._change(Move(self.slots.version, source, target, some, part_bytes))
                self.slots = self.slots.moved(some, target)
                parts = await self._finish()
                done += len(some)
                progress(done, total)
                most = min(2 * most, LARGEST_STEP) if parts <= FEW else max(1, most // 2) if parts > MANY else most
        except asyncio.CancelledError:
            with suppress(AmcastError, TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._finish()  # else commands would have to wait until a gateway does it
            raise
        return done

    async def _finish(self) -> int:
        return await self._carrier.finish(self.slots.groups, self._seconds)

    async def _admit(self) -> None:
        """Have all groups take note of those that came after the slots were given out."""
        groups = self._client.config.groups
        new = [g for g in groups if g not in self.slots.groups]
        if new:
            after = self.slots.regroup(groups)
            for g in new:
                learn = Learn(after.version, list(groups), after.regrouped, after.runs())
                await self._carrier.ask((g,), learn, self._until())
            await self._change(Regroup(self.slots.version, list(groups)))
            self.slots = after

    async def _change(self, unit: Move | Regroup) -> None:
        answers = await self._carrier.ask(self._client.config.groups, unit, self._until())
        if {answer.value for answer in answers.values()} != {self.slots.version + 1}:
            raise UsageError(
                "somebody else moves slots of this cluster at the same time; give the command again when that has ended"
            )


@dataclass(frozen=True)
class Wish:
    """What a command asks for: who gets slots and how many it is to own, who gives; nothing: the same for all."""

    onto: int | None = None
    number: int | None = None
    away: int | None = None

    def quotas(self, slots: SlotMap) -> dict[int, int]:
        return quotas(slots, self.onto, self.number, self.away)


def rebalance(
    client: Client,
    seconds: float,
    wish: Wish | None,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rebalancing:
    """Move slots until it is as wished; if nothing is, only look. Raises UsageError before anything has changed."""

    async def main() -> Rebalancing:
        async with client:
            found = Rebalancing(client, seconds)
            await found.look()
            if wish is not None:
                wish.quotas(found.slots)  # what cannot be is refused before anything moves
                for line in found.unfinished():
                    say(f"goes on: {line}")
                await found.run(wish.quotas, progress)
                await found.look()
            return found

    return asyncio.run(main())


def slots_of(view: View) -> SlotMap:
    """Return the map that a group has told."""
    start = even(max(1, len(view.groups)))
    if view.version == UNKNOWN:
        return start
    return start.updated(view.version, tuple(view.groups), view.regrouped, view.runs)
