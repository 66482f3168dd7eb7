"""When a leader should let another one lead: a matter of people and machines. Who leads is the protocol's.

- `amcast cluster lead` tells a replica to lead (SIGUSR2). It tells the others of its group, a few times, and the one
  that leads hands over. No listener of the cluster takes such an order from anybody but a member.
- A leader that is told to stop hands over first, and stops when another one leads, or after a suspicion time.
- A leader whose disk has become slow, or has no room but its reserve, holds up its whole group. It hands over while
  somebody else is there, and for a while not again: the disks of all may be like that.
"""

import asyncio
from typing import Final, Protocol

from amcast.core.capabilities import Electing
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.engine import Engine
from amcast.runtime.framing import frame
from amcast.runtime.links import Outgoing
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine

SECOND: Final = 10**9
MS: Final = 10**6
ANYBODY: Final = -1
SECONDS_TO_ASK: Final = 5.0  # for which a replica that was told to lead says so
ASK_EVERY: Final = 0.2


class LeadingHost(Protocol):
    """The node, as it leads or does not."""

    config: ClusterConfig
    me: Member
    machine: Machine
    log: Log
    engine: Engine
    links: dict[int, Outgoing]

    def act(self) -> None:
        """Have what the process wants done be done, at the end of this turn."""


class Leading:
    """The lead of one replica, as its node sees it."""

    def __init__(self, host: LeadingHost) -> None:
        self._host = host
        self._limits = host.machine.limits
        self._now = host.machine.clock.monotonic_ns
        self._suspect_after = round(host.config.suspect_ms * MS)
        self._slow = 0  # commits in a row
        self._not_before = 0  # a lead is given up because of the disk
        self._handed: tuple[int, int] = ANYBODY, -(2**62)  # to whom, and when
        self._asks_until = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        process = self._host.engine.process
        return isinstance(process, Electing) and process.leads()

    @property
    def others(self) -> list[Outgoing]:
        """Return the links to those of the group that are connected."""
        group = self._host.me.group
        return [x for x in self._host.links.values() if x.peer.group == group and x.connection is not None]

    def _hand_over(self, to: int) -> None:
        process = self._host.engine.process
        assert isinstance(process, Electing)
        process.hand_over(self._now(), to)
        self._host.act()

    def nobody_listens(self, pid: int) -> None:
        """Hear that a member which was there refuses to be dialled again: one of this group may have to lead."""
        process = self._host.engine.process
        if isinstance(process, Electing):
            process.gone(self._now(), pid)
            self._host.act()

    # Told by people

    def ask(self) -> None:
        """Ask the others of the group for the lead."""
        if not isinstance(self._host.engine.process, Electing):
            self._host.log.warning("cannot lead", reason=f"{self._host.config.protocol} has no leaders")
            return
        self._host.log.info("asks for the lead")
        self._asks_until = self._now() + round(SECONDS_TO_ASK * SECOND)
        self._ask_again()

    def _ask_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self.leads or self._now() > self._asks_until:
            return
        for link in self.others:
            link.tell(frame(frames.LEAD, b""))
        self._timer = asyncio.get_running_loop().call_later(ASK_EVERY, self._ask_again)

    def asked(self, pid: int) -> None:
        """Let this member of the group lead, if that is up to us. It may ask more often than it takes."""
        topology = self._host.config.topology
        same_group = topology.group_of[pid] == self._host.me.group
        to, when = self._handed
        if same_group and self.leads and (to != pid or self._now() - when > self._suspect_after):
            self._handed = pid, self._now()
            self._host.log.info("lead handed over", to=topology.name(pid), reason="it was asked for")
            self._hand_over(pid)

    # At the end

    async def give_up_to_stop(self) -> None:
        """Hand the lead over before this node stops, and wait until another one leads; a suspicion time at most."""
        if not self.leads or not self.others:
            return
        self._host.log.info("lead handed over", reason="this node stops")
        self._hand_over(ANYBODY)
        until = self._now() + self._suspect_after
        while self._nobody_else_leads() and self.others and self._now() < until:
            await asyncio.sleep(0.01)

    def _nobody_else_leads(self) -> bool:
        return self.leads or bool(self._host.engine.process.unready())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # A slow or full disk

    def committed(self, nanoseconds: int) -> None:
        """Take note of how long a commit took; give up the lead if several in a row were slow."""
        self._slow = self._slow + 1 if nanoseconds > self._suspect_after // 2 else 0
        if self._slow >= self._limits.slow_commits:
            self.give_up(f"its disk is slow: the last commit took {nanoseconds / SECOND:.1f} s")

    def give_up(self, reason: str) -> None:
        """Hand the lead over, if this replica leads and others are there; not again at once."""
        if self._now() >= self._not_before and self.leads and self.others:
            self._slow = 0
            self._not_before = self._now() + round(self._limits.seconds_of_lead * SECOND)
            self._host.log.warning("lead handed over", reason=reason)
            self._hand_over(ANYBODY)
