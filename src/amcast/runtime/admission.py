"""What a client sends now, what it holds back, and what it gives up: groups may not serve, or be busy.

Replicas say which groups do not serve. Multicasts to these are held until an `Inquiry` has found out that they do after
all; if they do not, the multicasts fail, within a second. While a group is busy, multicasts to it are held, and one is
sent now and then; when that one gets through, so do the others. Those that are still held at their deadline fail.

A multicast that was sent fails only if nobody has it (`ClientBatch.untaken`).
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from amcast.errors import Busy, MulticastFailed
from amcast.runtime import frames
from amcast.runtime.client_engine import ClientBatch
from amcast.runtime.config import Member
from amcast.runtime.frames import Refusal
from amcast.runtime.inquiry import Inquiry

if TYPE_CHECKING:
    from amcast.runtime.client import Client

Dest = tuple[int, ...]


class Asked:
    """A multicast, or several that travel as one, that has not been sent."""

    __slots__ = ("dest", "future", "payloads", "until", "whole")

    def __init__(self, dest: Dest, payloads: list[bytes], whole: bool, future: object, until: float) -> None:
        self.dest = dest
        self.payloads = payloads
        self.whole = whole
        self.future = future
        self.until = until


class Pause:
    """A group is busy: only now and then is something sent to it."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.reason = ""
        self.timer: asyncio.TimerHandle | None = None


class Admission:
    """Decides for one client. `alone`: the numbers of its messages must follow the order in which they were asked."""

    def __init__(self, client: "Client", *, alone: bool) -> None:
        self._client = client
        self._alone = alone
        self._limits = client.machine.limits
        self._topology = client.config.topology
        self._trouble: dict[int, tuple[str, ...]] = {}  # why each group is refused, as connected replicas say
        self._held: list[Asked] = []  # in the order of submission: neither sent nor numbered
        self._inquiries: dict[Dest, Inquiry] = {}
        self._verdicts: dict[Dest, tuple[str, float]] = {}  # of inquiries, and until when they are good
        self._pauses: dict[int, Pause] = {}  # for groups that are busy
        self._broken = ""  # why a session whose numbers mean something cannot go on

    def wary(self) -> bool:
        """Return True if a multicast needs a look before it is sent."""
        return bool(self._held or self._pauses or self._trouble or self._verdicts or self._broken)

    def take(self, asked: Asked) -> None:
        """Send a multicast, unless one of its groups may not serve; hold it until that is known."""
        verdict, good_until = self._verdicts.get(asked.dest, ("", 0.0))
        if self._broken:
            fail([asked.future], MulticastFailed(self._broken))
        elif verdict and self._client._loop.time() < good_until:
            self._fail([asked.future], MulticastFailed(verdict))
        elif self._must_wait(asked.dest) or (self._alone and self._held):
            self._held.append(asked)
        else:
            self._send(asked)

    def drop(self, reason: str) -> None:
        """Fail all that is held."""
        held, self._held = self._held, []
        fail([asked.future for asked in held], MulticastFailed(reason))

    def expire(self, now: float) -> None:
        """Fail what nobody has by its deadline."""
        client = self._client
        who = "no leader of" if client._protocol.elects else "nobody in"
        for batch in reversed(client._engine.untaken(None, now)):  # the last first: its number may be given back
            names = ", ".join(self._topology.group_name(g) for g in batch.dest)
            self._give_up(batch, batch.reason or f"by its deadline {who} {names} had taken it")
        self._verdicts = {dest: (verdict, until) for dest, (verdict, until) in self._verdicts.items() if until > now}
        for asked in [asked for asked in self._held if asked.until <= now]:
            self._held.remove(asked)
            busy = [self._pauses[g].reason for g in asked.dest if g in self._pauses]
            self._fail([asked.future], Busy(busy[0]) if busy else MulticastFailed("not sent by its deadline"))

    def _must_wait(self, dest: Dest) -> bool:
        if dest in self._inquiries or any(g in self._pauses for g in dest):
            return True
        doubted = any(refusals[g] for refusals in self._trouble.values() for g in dest if g < len(refusals))
        verdict, good_until = self._verdicts.get(dest, ("", 0.0))
        if not doubted or (not verdict and self._client._loop.time() < good_until):
            return False
        self._inquire(dest)
        return True

    def _send(self, asked: Asked) -> None:
        if asked.whole:
            self._client._engine.ask_batch(asked.dest, asked.payloads, asked.future, asked.until)
        else:
            self._client._engine.ask(asked.dest, asked.payloads[0], asked.future, asked.until)
        self._client._schedule()

    def _release(self) -> None:
        """Send what need not be held any more."""
        held, self._held = self._held, []
        for asked in held:
            self.take(asked)

    def refused(self, member: Member, batch: ClientBatch, failure: Refusal) -> None:
        """Take note that a replica has not taken a batch; others may have, or may yet."""
        batch.refused(member.pid)
        batch.busy = failure.kind == frames.BUSY
        batch.reason = failure.reason
        if batch.busy:
            self._back_off(member.group, failure.reason)  # the protocol sends this one again, less and less often
        elif batch.untaken():
            self._inquire(batch.dest)  # this one may be cut off, and others serve

    def _give_up(self, batch: ClientBatch, reason: str) -> None:
        self._client._withdraw(batch, Busy(reason) if batch.busy else MulticastFailed(reason))
        self._fail([], MulticastFailed(reason))

    def _fail(self, futures: Iterable[object], error: MulticastFailed) -> None:
        fail(futures, error)
        if self._alone and not self._broken:
            # Later messages would say that all before them are done with, and this one could never be sent again.
            self._broken = f"a message of this session could not be sent ({error}); begin again from the first of them"
            self._release()

    # Groups that do not serve

    def _inquire(self, dest: Dest) -> None:
        """Ask all replicas of these groups whether the groups serve."""
        client = self._client
        if dest in self._inquiries or client._closed or not client._protocol.elects:
            return
        inquiry = self._inquiries[dest] = Inquiry(dest, client.config)
        client._loop.call_later(self._limits.seconds_to_inquire, self._judge, inquiry, True)
        for pid in [pid for members in inquiry.members.values() for pid in members]:
            if connection := client._connection(pid):
                connection.inquire()

    def _judge(self, inquiry: Inquiry, at_once: bool = False) -> None:
        client, dest = self._client, inquiry.dest
        verdict = inquiry.verdict(at_once=at_once)
        if verdict is None or self._inquiries.get(dest) is not inquiry or client._closed:
            return
        del self._inquiries[dest]
        seconds = self._limits.seconds_of_doubt if verdict else self._limits.seconds_of_trust
        self._verdicts[dest] = (verdict, client._loop.time() + seconds)
        if verdict:
            for batch in client._engine.untaken(dest, 0.0):
                self._give_up(batch, verdict)
        elif any(not batch.sent for batch in client._engine.untaken(dest, 0.0)):
            client._disconnected()  # whoever was to have it cannot be reached, and others can
        self._release()

    def told(self, pid: int, refusals: tuple[str, ...]) -> None:
        """Take note of what a replica says of the groups."""
        if any(refusals):
            self._trouble[pid] = refusals
        elif self._trouble.pop(pid, None) is not None:
            self._verdicts.clear()
        for inquiry in list(self._inquiries.values()):
            inquiry.told(pid, refusals)
            self._judge(inquiry)
        if self._held:
            self._release()

    def unreachable(self, member: Member, reason: str) -> None:
        """Take note that a replica is not connected, and could not be asked."""
        self._trouble.pop(member.pid, None)
        for inquiry in list(self._inquiries.values()):
            inquiry.unreachable(member.pid, reason)
            self._judge(inquiry)
        for dest in dict.fromkeys(batch.dest for batch in self._client._engine.open.values() if not batch.sent):
            if member.group in dest:
                self._inquire(dest)

    # Groups that are busy

    def _back_off(self, g: int, reason: str) -> None:
        """Hold multicasts to a busy group for a while, and longer each time."""
        pause = self._pauses.get(g)
        if pause is None:
            pause = self._pauses[g] = Pause(self._limits.first_pause)
            self._try_later(g, pause)
        pause.reason = reason

    def _try_later(self, g: int, pause: Pause) -> None:
        delay = pause.delay * self._client.machine.random.uniform(0.5, 1.5)
        pause.delay = min(2 * pause.delay, self._limits.longest_pause)
        pause.timer = self._client._loop.call_later(delay, self._try, g, pause)

    def _try(self, g: int, pause: Pause) -> None:
        """Send one multicast to a busy group."""
        first = next((asked for asked in self._held if g in asked.dest), None)
        if first is None or self._client._closed:
            self._pauses.pop(g, None)
            return
        self._held.remove(first)
        self._send(first)
        self._try_later(g, pause)

    def completed(self, dest: Dest) -> None:
        """Take note that a multicast to these groups got through."""
        ended = [pause for g in dest if (pause := self._pauses.pop(g, None)) is not None]
        for pause in ended:
            if pause.timer is not None:
                pause.timer.cancel()
        if ended:
            self._release()


def fail(waiting: Iterable[object], error: Exception) -> None:
    for future in cast("Iterable[asyncio.Future[object]]", waiting):
        if not future.done():
            future.set_exception(error)
