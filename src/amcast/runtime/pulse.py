"""What replicas tell each other several times a second, so that each knows which groups serve and which do not.

A pulse says: this replica lives, and this is why its group does not serve, if it does not. A replica so knows

- whether it hears a quorum of its own group. Without one nothing can be ordered here, and nothing is to be begun.
- whether the other groups serve. A message to a group that does not would be ordered here, could not be delivered, and
  would hold up everything behind it. So it is refused before it is ordered anywhere.

What was ordered before the other group failed still waits for it: no atomic multicast can deliver it or take it back.
The way out is to bring that group back.

A group without a leader is not refused at once: it elects one within a second, and clients wait for that.
"""

import asyncio
from typing import Final, Protocol

from amcast.core.protocol import Protocol as Row
from amcast.runtime import frames
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.durability import Durability
from amcast.runtime.engine import Engine
from amcast.runtime.frames import Pulse
from amcast.runtime.framing import frame
from amcast.runtime.links import Outgoing
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine

SECOND: Final = 10**9
MS: Final = 10**6
NEVER: Final = -(2**62)


class PulseHost(Protocol):
    """The node, as its pulse sees it."""

    config: ClusterConfig
    me: Member
    protocol: Row
    log: Log
    machine: Machine
    engine: Engine
    durability: Durability
    links: dict[int, Outgoing]

    @property
    def serving(self) -> "Clients": ...


class Clients(Protocol):
    """All connections of clients."""

    def pause(self, congested: bool) -> None: ...

    def tell_condition(self) -> None: ...


class Pulses:
    """What one replica hears of the others, and what follows from it."""

    def __init__(self, host: PulseHost) -> None:
        self._host = host
        self._limits = host.machine.limits
        self._now = host.machine.clock.monotonic_ns
        self._topology = host.config.topology
        self._group = host.me.group
        # Elections begin after `suspect_ms`; whoever is not heard for twice as long is not only slow.
        self._silence = round(max(2 * host.config.suspect_ms, 1000.0) * MS)
        self._heard: dict[int, int] = {}
        self._said: dict[int, Pulse] = {}
        self._judges_from = 0
        self._last_tick = 0
        self._unready_since = NEVER
        self._moved_at = NEVER  # when something was delivered, or nothing waited
        self._delivered = -1
        self._look_at = 0
        self._timer: asyncio.TimerHandle | None = None
        self._congested_at: int | None = None  # since when more is under way than the group gets done
        self.busy = ""
        self.refusals = [""] * len(host.config.groups)  # why requests to each group are refused
        self._waits_for_members = not host.protocol.durable  # they could not ask again for what they lack
        self._refuses = False  # some request may be refused: else none needs a second look

    def start(self) -> None:
        """Begin to tell and to judge. The others may need a while to find a replica that has just started."""
        self._last_tick = self._now()
        patience = self._silence + round((1.3 * self._limits.longest_pause + 0.2) * SECOND)
        self._judges_from = self._last_tick + patience
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def heard(self, pid: int) -> None:
        """Take note that this member lives."""
        self._heard[pid] = self._now()

    def take(self, pid: int, pulse: Pulse) -> None:
        self.heard(pid)
        self._said[pid] = pulse

    def hears(self, pid: int) -> bool:
        """Return whether this replica lives, so far as can be seen from here."""
        return self._hears(pid, self._now())

    def refuses(self, pid: int) -> str:
        """Return why this replica refuses requests, as it says; empty if it does not."""
        said = self._said.get(pid)
        return said.refuses if said is not None else f"{self._topology.name(pid)} has not said whether it serves"

    def why_unready(self) -> str:
        """Say why the group of this replica does not serve, so far as can be seen from here; empty if it does."""
        now = self._now()
        return self._no_quorum(now) or self._host.engine.process.unready() or self._stuck(now)

    def refusal_of(self, dest: tuple[int, ...]) -> tuple[int, str] | None:
        """Return why a request to these groups is refused, as the kind of refusal and a text; None if it is not."""
        there = len(self.refusals)
        if dest[-1] >= there:  # a client may hear earlier than this node of a group that is new
            return frames.UNAVAILABLE, f"{self._host.me.name} knows of no {self._topology.group_name(dest[-1])} yet"
        if not self._refuses:
            return None
        for g in dest:
            if self.refusals[g]:
                return frames.UNAVAILABLE, self.refusals[g]
        return (frames.BUSY, self.busy) if self.busy else None

    def hold_back(self) -> None:
        """Read nothing from clients while more is under way than the group gets done: it would pile up in memory.

        They are not left waiting for ever: after a while they are read again, and told that this node is busy. A member
        that is away or slow is no reason: the group goes on without it, and it asks for what it lacks later. Only where
        its protocol cannot do that, clients wait for it.
        """
        backlog = self._host.engine.process.backlog()
        congested = backlog > self._limits.congested or (self._waits_for_members and self._some_member_is_slow())
        if not congested:
            self._congested_at = None
        elif self._congested_at is None:
            self._congested_at = self._now()
        self._host.serving.pause(congested and not self._long_congested())

    def _some_member_is_slow(self) -> bool:
        return any(link.congested for link in self._host.links.values())

    # Every so often

    def _tick(self) -> None:
        now = self._now()
        every = self._limits.pulse_every
        if now - self._last_tick > self._silence // 2:  # this process stood still, and heard nobody meanwhile
            self._judges_from = max(self._judges_from, now + self._silence)
        self._last_tick = now
        self._timer = asyncio.get_running_loop().call_later(every, self._tick)
        self._look_for_progress(now)
        unready = self.why_unready()
        if not unready:
            self._unready_since = now
        busy = self._why_busy()
        self.busy = busy or self._mates_busy(now)
        self.look_for_groups()
        before = list(self.refusals)
        for g in range(len(self.refusals)):
            self.refusals[g] = self._why_refused(g, now, unready)
        self._refuses = bool(self.busy) or any(self.refusals)
        end = self._host.durability.history.end
        pulse = frame(frames.PULSE, frames.encode(Pulse(self.refusals[self._group], busy, end)))
        for link in self._host.links.values():
            link.tell(pulse)
        if self.refusals != before:
            for g, reason in enumerate(self.refusals):
                if reason:
                    self._host.log.warning("requests refused", group=self._topology.group_name(g), reason=reason)
            self._host.serving.tell_condition()

    def look_for_groups(self) -> None:
        """Let requests go to groups that are new."""
        self.refusals += [""] * (len(self._host.config.groups) - len(self.refusals))

    def _look_for_progress(self, now: int) -> None:
        """Take note of when the group last moved, or had no reason to. To ask whether it had is not free."""
        delivered = self._host.durability.history.end
        if delivered != self._delivered:
            self._delivered = delivered
            self._moved_at = now
        elif now >= self._look_at:
            self._look_at = now + SECOND
            if self._host.engine.process.idle():
                self._moved_at = now

    # Judgements

    def _hears(self, pid: int, now: int) -> bool:
        return now - self._heard.get(pid, NEVER) < self._silence

    def _silent(self, now: int) -> list[int]:
        """Return the other members of this group that are not heard."""
        me = self._host.me.pid
        return [pid for pid in self._members(self._group) if pid != me and not self._hears(pid, now)]

    def _members(self, g: int) -> list[int]:
        return [member.pid for member in self._host.config.group(g)]

    def _no_quorum(self, now: int) -> str:
        silent = self._silent(now)
        group = self._members(self._group)
        if len(group) - len(silent) > len(group) // 2:
            return ""
        names = ", ".join(self._topology.name(pid) for pid in silent)
        links = [self._host.links[pid] for pid in silent if pid in self._host.links]
        said = "".join(f"; {link.peer.name} refused it: {link.refusal}" for link in links if link.refusal)
        return f"{self._topology.group_name(self._group)} has no quorum: nothing is heard of {names}{said}"

    def _stuck(self, now: int) -> str:
        if now - self._moved_at < self._limits.seconds_without_progress * SECOND:
            return ""
        name = self._topology.group_name(self._group)
        for g, reason in enumerate(self.refusals):
            if reason and g != self._group:
                return f"{name} waits for {self._topology.group_name(g)}: {reason}"
        return f"{name} delivers nothing, though something waits"

    def _why_refused(self, g: int, now: int, unready: str) -> str:
        """Say why requests to this group are refused; empty if they are not."""
        if now < self._judges_from or not self._host.protocol.elects:  # others may go on with fewer than a quorum
            return ""
        if g == self._group:
            if now - self._unready_since > self._limits.seconds_unready * SECOND:
                name = self._topology.group_name(g)
                return unready if unready.startswith(name) else f"{name}: {unready}"
            return self._no_quorum(now) if self._host.protocol.genuine else ""
        heard = [pid for pid in self._members(g) if self._hears(pid, now)]
        said = [self._said[pid].refuses for pid in heard if pid in self._said]
        if not heard:
            return f"{self._topology.group_name(g)}: {self._host.me.name} hears none of its replicas"
        return said[0] if said and all(said) else ""

    def _long_congested(self) -> bool:
        since = self._congested_at
        long = since is not None and self._now() - since > self._limits.seconds_congested * SECOND
        return long and self._host.protocol.elects  # clients of others cannot be refused one message and go on

    def _why_busy(self) -> str:
        """Say why this replica takes no more requests just now; empty if it does."""
        self.hold_back()
        if self._long_congested():
            under_way = self._host.engine.process.backlog() / 2**20
            name = self._topology.group_name(self._group)
            return f"{name} does not keep up: {under_way:.0f} MB are under way; send less, or try later"
        return (self._host.durability.short_of_space() or "") if self._host.protocol.elects else ""

    def _mates_busy(self, now: int) -> str:
        """Say why the group cannot take more although this replica can: too few others can."""
        members = self._members(self._group)
        said = {pid: self._said[pid].busy for pid in members if pid in self._said and self._hears(pid, now)}
        busy = [f"{self._topology.name(pid)}: {reason}" for pid, reason in said.items() if reason]
        return busy[0] if len(members) - len(busy) <= len(members) // 2 else ""
