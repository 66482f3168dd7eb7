"""From many connections to few multicasts: what goes to the same groups at the same time travels together.

All that decides what goes together is here. `Together` holds the commands of one connection that may be under way at
the same time; the `Batcher` joins what many connections have for the same groups.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec

from amcast.apps.kv.lookout import NOBODY_TOLD, Informant, Lookout
from amcast.apps.kv.machine import is_read
from amcast.apps.kv.moving import Carrier
from amcast.apps.kv.slots import UNKNOWN, SlotMap, even
from amcast.apps.kv.strings import Command
from amcast.apps.kv.wire import (
    MALFORMED,
    Answer,
    Decide,
    Done,
    Execute,
    Fetch,
    Stale,
    StoreRequest,
    Unit,
    View,
    Waits,
    WaitsForSlots,
    decode_answers,
    encode,
    fits,
)
from amcast.errors import AmcastError, Busy, MulticastFailed, OutcomeUnknown, Rejected, SlotsMoved

SECONDS_TO_READ: Final = 1.0  # outside of the order
SECONDS_TO_HEAR: Final = 0.005  # until a group is asked again that has not yet come to a newer map
Dest = tuple[int, ...]
T = TypeVar("T")


class ClusterClient(Informant, Protocol):
    """What the gateway needs of a client of the cluster."""

    @property
    def deadline(self) -> float: ...

    def submit(self, dest: Dest, payload: bytes, deadline: float | None = None) -> "asyncio.Future[Any]":
        """Multicast; return the answers of the groups. Raises OutcomeUnknown or MulticastFailed by its deadline."""
        ...

    reads: bool  # whether `read` works

    async def read(self, group: str, request: bytes, deadline: float | None = None) -> bytes:
        """Return what the application of a group says by `query`. Raises AmcastError."""
        ...


GroupAnswers = dict[int, list[Answer]]
Calls = list[tuple[int, Command]]  # commands with the places of their replies


class Job:
    """Units for one set of groups, who waits for their answers, and until when."""

    __slots__ = ("busy", "done", "sent", "size", "units", "until", "version")

    def __init__(
        self, units: list[Unit], size: int, until: float, version: int | None, done: "asyncio.Future[GroupAnswers]"
    ) -> None:
        self.units = units
        self.size = size
        self.until = until
        self.version = version  # of the map by which it was routed; None: it goes to these groups in any case
        self.done = done
        self.sent = False  # and may have been executed
        self.busy: Busy | None = None  # what nodes said when it was sent last

    def give_up(self) -> None:
        """Tell who waits that the deadline has passed."""
        if self.sent:
            self.done.set_exception(OutcomeUnknown("no answer from all its groups by its deadline"))
        else:
            self.done.set_exception(self.busy or MulticastFailed("its turn did not come by its deadline"))


class Together:
    """Commands of one connection that go out together, as one multicast for each set of groups.

    Sets that overlap do not go together, for two multicasts may be delivered in any order: so the commands of a
    connection on one key are executed in their order.
    """

    def __init__(self, most_bytes: int, slots: SlotMap) -> None:
        self.slots = slots  # by which they are routed
        self.calls: dict[Dest, Calls] = {}
        self._most_bytes = most_bytes
        self.size = 0
        self._sets: dict[int, Dest] = {}  # by group, the one set with which something goes there

    def add(self, place: int, command: Command, dest: Dest) -> bool:
        """Take a command along; return False if it has to wait until those before it are answered."""
        size = sum(map(len, command)) + 8 * len(command)
        if self.calls and (self.size + size > self._most_bytes or self._overlaps(dest)):
            return False
        self.size += size
        calls = self.calls.get(dest)
        if calls is not None:
            calls.append((place, command))
        else:
            self.calls[dest] = [(place, command)]
            self._sets.update(dict.fromkeys(dest, dest))
        return True

    def _overlaps(self, dest: Dest) -> bool:
        """Return whether something goes to a part of these groups, but not to all of them and no other."""
        if len(dest) == 1:
            return self._sets.get(dest[0], dest) != dest
        return any(self._sets.get(group, dest) != dest for group in dest)


class Lane:
    """What waits to go to one set of groups."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.under_way = 0
        self.pause = 0.0  # seconds, after nodes were busy
        self.pausing = False


class Batcher:
    """All that the connections of a gateway ask of the cluster passes here.

    A command has one deadline, however many multicasts it takes. Whatever is sent for it ends by that, and says whether
    it may have been executed.
    """

    def __init__(self, client: ClusterClient, lookout: Lookout) -> None:
        self.client = client
        self.slots = even(client.groups, UNKNOWN)  # until a group says what has become of them
        self.lookout = lookout
        self.limits = client.machine.limits
        self._machine = client.machine
        self._lanes: defaultdict[Dest, Lane] = defaultdict(Lane)
        self._ready: dict[Dest, Lane] = {}
        self._open: list[Job] = []  # those of which somebody waits for the answers
        self._sweeping = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self._seen: dict[bytes, int] = {}  # locks of others: since when

    def deadline(self) -> float:
        """Return when a command that begins now must be answered, in the time of the event loop."""
        return asyncio.get_running_loop().time() + self.client.deadline

    def send(self, dest: Dest, units: list[Unit], until: float, size: int = 0, slots: SlotMap | None = None) -> Job:
        """Have groups execute these units in this order. The answers may be tickets; `collect` makes values of them.

        They may have been routed by a map of the slots, which may not hold any more; then SlotsMoved comes of it.
        """
        loop = asyncio.get_running_loop()
        job = Job(units, size, until, slots.version if slots is not None else None, loop.create_future())
        lane = self._lanes[dest]
        lane.jobs.append(job)
        self._open.append(job)
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(self.limits.sweep_every, self._sweep)
        if not self._ready:
            loop.call_soon(self._flush)
        self._ready[dest] = lane
        return job

    async def collect(self, job: Job) -> dict[int, list[Any]]:
        """Return the values of the units, per group, also of those that wait behind a lock."""
        answers = await job.done
        values = {
            group: [
                part.value if isinstance(part, Done) else await self._fetch(group, part, job.until) for part in parts
            ]
            for group, parts in answers.items()
        }
        for group, found in values.items():
            if not all(map(fits, job.units, found)):
                raise OutcomeUnknown(f"g{group} answered something else than was asked; {SAME_EVERYWHERE}")
        return values

    async def execute(self, together: Together, until: float) -> list[tuple[Calls, dict[int, list[Any]] | AmcastError]]:
        """Return, for each set of groups, its commands, and what each group says to each, or why nobody knows."""
        sent = []
        for dest, calls in together.calls.items():
            units: list[Unit] = [Execute([command]) for _, command in calls]
            sent.append((calls, self.send(dest, units, until, together.size, together.slots)))
        found: list[tuple[Calls, dict[int, list[Any]] | AmcastError]] = []
        for calls, job in sent:
            try:
                found.append((calls, await self.collect(job)))
            except AmcastError as error:
                found.append((calls, error))
        return found

    async def call(self, dest: Dest, unit: Unit, until: float, slots: SlotMap | None = None) -> dict[int, Any]:
        """Have groups execute one unit; return its value, per group."""
        values = await self.collect(self.send(dest, [unit], until, slots=slots))
        return {group: parts[0] for group, parts in values.items()}

    def send_on(self, dest: Dest, unit: Unit) -> None:
        """Have groups execute a unit for whose answer nobody waits."""
        self.send(dest, [unit], self.deadline()).done.add_done_callback(lambda done: done.exception())

    async def to_the_end(self, steps: Coroutine[Any, Any, T]) -> T:
        """Go on when the caller is cancelled: what is prepared must be decided, also if its client left."""
        task = asyncio.get_running_loop().create_task(steps)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has heard of it, if there still is one

    # Batches

    def _flush(self) -> None:
        ready, self._ready = self._ready, {}
        for dest, lane in ready.items():
            self._depart(dest, lane)

    def _sweep(self) -> None:
        """Give up what is late, sent or not."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for job in self._open:
            if job.until <= now and not job.done.done():
                job.give_up()
        self._open = [job for job in self._open if not job.done.done()]
        self._sweeping = bool(self._open)
        if self._sweeping:
            loop.call_later(self.limits.sweep_every, self._sweep)

    def _depart(self, dest: Dest, lane: Lane) -> None:
        while lane.jobs and lane.under_way < self.limits.under_way and not lane.pausing:
            jobs: list[Job] = []
            batch: list[Unit] = []
            total = 0
            versions: set[int] = set()  # what was routed by different maps does not go together
            while lane.jobs and (not jobs or total + lane.jobs[0].size <= self.limits.gateway_batch_bytes):
                version = lane.jobs[0].version
                if version is not None and versions and version not in versions:
                    break
                job = lane.jobs.popleft()
                if not job.done.done():  # nobody waits for one that was given up
                    versions.update(() if version is None else (version,))
                    batch += job.units
                    total += job.size
                    jobs.append(job)
            if jobs:
                lane.under_way += 1
                self._submit(dest, lane, jobs, batch, next(iter(versions), 0))
        if not lane.jobs and not lane.under_way and not lane.pausing:
            self._lanes.pop(dest, None)

    def _submit(self, dest: Dest, lane: Lane, jobs: list[Job], batch: list[Unit], version: int) -> None:
        loop = asyncio.get_running_loop()
        now_ms = self.lookout.now_ms()
        if now_ms is None:
            future = loop.create_future()
            future.set_exception(MulticastFailed(NOBODY_TOLD))
        else:
            # A little less than there is: the client knows better than we do whether somebody may have it.
            seconds = max(job.until for job in jobs) - loop.time() - 2 * self.limits.sweep_every
            payload = encode(StoreRequest(now_ms, batch, version))
            if self.client.reads and len(dest) == 1 and all(map(is_read, batch)):
                future = asyncio.ensure_future(self._read(dest, payload, max(0.0, seconds)))
            else:
                future = self.client.submit(dest, payload, max(0.0, seconds))
        for job in jobs:
            job.sent = True
        future.add_done_callback(partial(self._arrive, dest, lane, jobs))

    async def _read(self, dest: Dest, payload: bytes, seconds: float) -> dict[int, bytes]:
        """Have the leader answer from its state; through the order where that cannot be, or takes too long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        answer = b""
        with suppress(AmcastError):
            answer = await self.client.read(f"g{dest[0]}", payload, min(seconds, SECONDS_TO_READ))
        if answer:
            return {dest[0]: answer}
        answers: dict[int, bytes] = await self.client.submit(dest, payload, max(0.0, until - loop.time()))
        return answers

    def _arrive(self, dest: Dest, lane: Lane, jobs: list[Job], future: "asyncio.Future[dict[int, bytes]]") -> None:
        lane.under_way -= 1
        failure = OutcomeUnknown("the client was closed") if future.cancelled() else future.exception()
        if isinstance(failure, Busy):
            self._back_off(dest, lane, jobs, failure)
            return
        lane.pause = 0.0
        answers: GroupAnswers = {}
        if failure is None:
            try:
                answers = read_answers(dest, sum(len(job.units) for job in jobs), future.result())
                stale = answers[dest[0]][0]
                if isinstance(stale, Stale):
                    self._send_anew(dest, lane, jobs, stale)
                    return
            except AmcastError as error:
                failure = error
        elif isinstance(failure, Rejected):  # by some groups; the others have executed it
            failure = OutcomeUnknown(str(failure)) if failure.answers else MulticastFailed(str(failure))
        elif not isinstance(failure, AmcastError):
            failure = OutcomeUnknown(f"{type(failure).__name__}: {failure}")
        at = 0
        for job in jobs:
            count = len(job.units)
            if not job.done.done():
                if failure is not None:
                    job.done.set_exception(failure)
                else:
                    job.done.set_result({group: part[at : at + count] for group, part in answers.items()})
            at += count
        self._depart(dest, lane)

    def _back_off(self, dest: Dest, lane: Lane, jobs: list[Job], busy: Busy) -> None:
        """Send these again later: nobody has executed them. Each time the pause is twice as long."""
        for job in reversed(jobs):
            job.sent, job.busy = False, busy
            lane.jobs.appendleft(job)
        if not lane.pausing:
            lane.pausing = True
            lane.pause = min(2 * lane.pause or 0.02, self.limits.longest_backoff)
            pause = lane.pause * self._machine.random.uniform(0.5, 1.0)
            asyncio.get_running_loop().call_later(pause, self._go_on, dest, lane)

    def _go_on(self, dest: Dest, lane: Lane) -> None:
        lane.pausing = False
        self._depart(dest, lane)

    # Slots that move

    async def learn_map(self, seconds: float) -> None:
        """Ask some group that can be used for the map, so that the first commands need not hear that it is another."""
        usable = [group for group in self.slots.groups if group not in self.lookout.unusable]
        if usable:
            with suppress(AmcastError):
                carrier = Carrier(self.client, self.limits.lock_seconds)
                view = await carrier.view(usable[0], asyncio.get_running_loop().time() + seconds)
                if view.version != UNKNOWN:
                    self._renew(view)

    def _renew(self, told: Stale | View) -> None:
        if told.version > self.slots.version:
            self.slots = self.slots.updated(told.version, tuple(told.groups), told.regrouped, told.runs)

    def _send_anew(self, dest: Dest, lane: Lane, jobs: list[Job], stale: Stale) -> None:
        """Take the newer map; have sent again what no group has executed."""
        loop = asyncio.get_running_loop()
        self._renew(stale)
        for job in reversed(jobs):
            if job.version is None:
                job.sent = False
                lane.jobs.appendleft(job)
            elif stale.version > job.version:
                refuse(job)
            else:
                loop.call_later(SECONDS_TO_HEAR, refuse, job)
        self._depart(dest, lane)

    def _carry_if_old(self, group: int) -> None:
        """Bring the keys of slots that moved, if whoever moved them seems to be gone."""
        if self._is_old(b"moves to g%d" % group):
            carrier = Carrier(self.client, self.limits.lock_seconds)
            task = asyncio.get_running_loop().create_task(carrier.finish(self.slots.groups, self.client.deadline))
            self.tasks.add(task)
            task.add_done_callback(self._ended)

    # Locks

    async def _fetch(self, group: int, answer: Answer, until: float) -> Any:
        """Return the value of a unit that waits. It is in the log: no failure here means that it is not executed."""
        delay = 0.001
        loop = asyncio.get_running_loop()
        try:
            while isinstance(answer, Waits) and loop.time() < until:
                if isinstance(answer, WaitsForSlots):
                    self._carry_if_old(group)
                if answer.txn and self._is_old(answer.txn):
                    self.send_on(tuple(answer.dest), Decide(answer.txn, commit=False))
                await asyncio.sleep(min(delay, max(0.0, until - loop.time())))
                delay = min(2 * delay, 0.02)  # a lock is handed on when its next owner asks; many ask in one multicast
                answer = (await self.send((group,), [Fetch(answer.ticket)], until).done)[group][0]
        except AmcastError as error:
            raise OutcomeUnknown(f"while it waited for a lock: {error}") from error
        if isinstance(answer, Done):
            return answer.value
        raise OutcomeUnknown("it waited for a lock for too long")

    def _is_old(self, lock: bytes) -> bool:
        """Return whether this has been in the way for long, and again whenever it still is after that."""
        now = self._machine.clock.monotonic_ns()
        while len(self._seen) > 1024:
            del self._seen[next(iter(self._seen))]
        if now - self._seen.setdefault(lock, now) <= self.limits.lock_seconds * 1e9:
            return False
        self._seen[lock] = now
        return True


def refuse(job: Job) -> None:
    if not job.done.done():
        job.done.set_exception(SlotsMoved("slots have moved"))


SAME_EVERYWHERE: Final = "run the same amcast everywhere"


def read_answers(dest: Dest, units: int, parts: dict[int, bytes]) -> GroupAnswers:
    """Return one answer per group and unit. Raises OutcomeUnknown, or MulticastFailed if no group took the request."""
    if all(parts.get(group) == MALFORMED for group in dest):
        raise MulticastFailed(f"g{dest[0]} cannot read the request; {SAME_EVERYWHERE}")
    answers: GroupAnswers = {}
    for group in dest:
        part = parts.get(group, b"")
        if not part:
            raise OutcomeUnknown(f"g{group} has sent no answer")
        try:
            answers[group] = decode_answers(part)
        except msgspec.MsgspecError:
            answers[group] = []
        stale = [isinstance(answer, Stale) for answer in answers[group]]
        if (stale != [True] and len(stale) != units) or (any(stale) and stale != [True]):
            raise OutcomeUnknown(f"g{group} has sent an answer that cannot be read; {SAME_EVERYWHERE}")
    if len({isinstance(part[0], Stale) for part in answers.values() if part}) > 1:
        raise OutcomeUnknown(f"not all groups found the map of slots outdated; {SAME_EVERYWHERE}")
    return answers
