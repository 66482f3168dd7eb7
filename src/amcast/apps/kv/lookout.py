"""What a gateway knows of the cluster: what time it is there, and which groups can be used.

Times in the store decide which keys have expired, and a group never goes back in time. So one gateway with a wrong
clock could end other people's keys. A gateway therefore does not look at the clock of its own machine: it asks the
replicas for theirs, and counts on from the answers by its monotonic clock. It takes the median, the lower one of two:
as long as at most half of those that answer are ahead, the time is not ahead of all the others. An answer is older than
when it is heard, so the time is never ahead of the clock that it came from.
"""

import asyncio
from typing import Final, Protocol

from amcast.runtime.frames import Condition
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine

MS: Final = 1_000_000  # nanoseconds
NOBODY_TOLD: Final = "no replica of the cluster has answered yet"


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
        self.unusable: dict[int, str] = {}  # groups in which no replica was ready when they were last asked, and why

    # What is known

    def now_ms(self) -> int | None:
        """Return the time in the cluster; None if no replica has told it yet."""
        return None if self._offset is None else (self._clock.monotonic_ns() + self._offset) // MS

    # Asking

    async def keep_looking(self) -> None:
        """Ask from time to time, more often while a group cannot be used."""
        while True:
            await asyncio.sleep(self._limits.look_again if self.unusable else self._limits.look_every)
            await self.look()

    async def look(self) -> None:
        """Ask all replicas, and wait for their answers for a moment."""
        found = await self._client.conditions(self._limits.seconds_to_look)
        self._set_clock(found)
        unusable: dict[int, str] = {}
        later = {int(group[1:]) for group in (name.partition("/")[0] for name in found) if group[1:].isdigit()}
        for group in sorted(later.union(range(self._client.groups))):
            told = [one.unready for name, one in found.items() if name.partition("/")[0] == f"g{group}"]
            if None not in told:
                unusable[group] = next((text for text in told if text), "none of its replicas answers")
        for group in sorted(unusable.keys() - self.unusable.keys()):
            self._log.warning("a group cannot be used", group=f"g{group}", reason=unusable[group])
        for group in sorted(self.unusable.keys() - unusable.keys()):
            self._log.info("a group can be used", group=f"g{group}")
        self.unusable = unusable

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
