"""What a gateway knows of the cluster: what time it is there, and which groups can be used.

Times in the store decide which keys have expired, and a group never goes back in time. So one gateway with a wrong
clock could end other people's keys. A gateway therefore does not look at the clock of its own machine: it asks the
replicas for theirs, and counts on from the answers by its monotonic clock. It takes the median, the lower one of two:
as long as at most half of those that answer are ahead, the time is not ahead of all the others. An answer is older than
when it is heard, so the time is never ahead of the clock that it came from.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from amcast.runtime.frames import Condition
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine

MS: Final = 1_000_000  # nanoseconds
NEVER: Final = -(2**62)
NOBODY_TOLD: Final = "no replica has told the time yet"


class Informant(Protocol):
    """A client of the cluster, as somebody who asks the replicas how they are."""

    @property
    def groups(self) -> int: ...

    @property
    def machine(self) -> Machine: ...

    async def conditions(self, seconds: float) -> dict[str, Condition]: ...


class Lookout:
    """Asks the replicas how they are, again and again."""

    def __init__(self, client: Informant, log: Log) -> None:
        self._client = client
        self._clock = client.machine.clock
        self._limits = client.machine.limits
        self._log = log
        self._offsets: dict[str, tuple[int, int]] = {}  # from our monotonic clock to that of a replica; heard when
        self._offset: int | None = None
        self._off: set[str] = set()  # clocks of which it was said that they are off
        self._said: set[int] = set()  # groups of which it was said that they cannot be used
        # Groups without a replica that is ready: why, and since when. At first none has been for long.
        self._unusable = dict.fromkeys(range(client.groups), ("none of its replicas has answered", NEVER))

    # What is known

    def now_ms(self) -> int | None:
        """Return the time in the cluster; None if no replica has told it yet."""
        return None if self._offset is None else (self._clock.monotonic_ns() + self._offset) // MS

    def unusable(self) -> dict[int, str]:
        """Return the groups in which no replica was ready when they were last asked, and why."""
        return {group: why for group, (why, _) in self._unusable.items()}

    def refusal(self, dest: Iterable[int]) -> str | None:
        """Return why nothing should be sent to these groups; None if it may.

        A group that was usable has a while to choose another leader.
        """
        for group in dest if self._unusable else ():
            why, since = self._unusable.get(group, ("", 0))
            if why and self._clock.monotonic_ns() - since > self._limits.seconds_without_quorum * 1e9:
                return f"g{group} cannot be used: {why}"
        return None

    # Asking

    async def keep_looking(self) -> None:
        """Ask from time to time, more often while a group cannot be used."""
        while True:
            await asyncio.sleep(self._limits.look_again if self._unusable else self._limits.look_every)
            await self.look()

    async def look(self) -> None:
        """Ask all replicas, and wait for their answers for a moment."""
        found = await self._client.conditions(self._limits.seconds_to_look)
        self._set_clock(found)
        now = self._clock.monotonic_ns()
        unusable: dict[int, tuple[str, int]] = {}
        for group in range(self._client.groups):
            told = [one.unready for name, one in found.items() if name.partition("/")[0] == f"g{group}"]
            if None not in told:
                why = next((text for text in told if text), "none of its replicas answers")
                unusable[group] = why, self._unusable.get(group, ("", now))[1]
        self._unusable = unusable
        self._say(unusable)

    def _set_clock(self, found: dict[str, Condition]) -> None:
        now = self._clock.monotonic_ns()
        for name, one in found.items():
            self._offsets[name] = one.wall_ms * MS - one.heard_ns, one.heard_ns
        fresh = {name: offset for name, (offset, heard) in self._offsets.items() if now - heard < 60e9}
        if fresh:
            self._offset = sorted(fresh.values())[(len(fresh) - 1) // 2]
        if self._offset is not None:
            fresh["this machine"] = self._clock.wall_ns() - now
            for name, offset in fresh.items():
                self._compare(name, (offset - self._offset) / 1e9)

    def _compare(self, name: str, seconds: float) -> None:
        """Say once of a clock that it is off. It does no harm while there are enough others."""
        if abs(seconds) <= self._limits.clocks_differ:
            self._off.discard(name)
        elif name not in self._off:
            self._off.add(name)
            self._log.warning("a clock is off: set it", clock_of=name, seconds_ahead=round(seconds))

    def _say(self, unusable: Collection[int]) -> None:
        for group in sorted(unusable):
            if group not in self._said:
                self._log.warning("a group cannot be used", group=f"g{group}", reason=self._unusable[group][0])
        for group in sorted(self._said.difference(unusable)):
            self._log.info("a group can be used", group=f"g{group}")
        self._said = set(unusable)
