"""What a group of the key-value store executes.

A unit of work is a transaction over the keys of one or several groups, multicast once: every group executes its part,
all or nothing, and nothing has to be agreed because every group delivers it at the same place of one total order.

Only work with a condition over several groups (MSETNX, EXEC after WATCH) needs a joint decision, and takes two
multicasts to the same groups. PREPARE: each group judges its part of the condition, votes, and locks the keys if it
votes yes. DECIDE: execute or drop, and unlock. Whoever waits too long for a lock may multicast DECIDE(abort) himself:
all groups of the transaction see its DECIDEs in the same order and the first one counts. A DECIDE cannot overtake its
PREPARE in one group only, since the two have the same destinations; one that comes before is remembered, and the
PREPARE then has no vote.

What meets a lock waits inside the machine. Refusing it would be wrong: another group, where nothing is locked, has
executed its part. The rules:
  - a unit may run when no key of its part is locked, or wanted by a unit that came before and still waits;
  - waiting units run, as soon as that holds, in the order in which they came, with the clock of when they came;
  - a committed PREPARE executes with the clock of when it was prepared.
So on every key, everything happens in the order of delivery, a prepared transaction at its PREPARE: between PREPARE and
DECIDE nobody else sees or touches its keys. The delivery orders of the groups are parts of one total order, hence the
outcome and all answers are those of one machine that executes every unit at once in that order, whatever a DECIDE took.
Nothing deadlocks: a unit waits only for what came before it, and a DECIDE waits for nothing.

Real time: this is strict serializability if the total order agrees with real time, which atomic multicast alone does
not promise over several groups. MSET a b may be delivered in the group of a, where somebody reads it, while the group
of b still puts a later read of b before it. Where the multicast does not rule that out, gateways can (`two_rounds`): if
all that has several groups is prepared and decided, nobody sees any of it before every group has delivered the PREPARE,
and from then on every group makes others wait.

The gateway gets a ticket for a unit that waits and fetches the answer later. Answers that nobody fetches and decisions
are kept in bounded memory, oldest out first.

Time comes from requests alone: the clock of a group is the latest time that any request stated (lookout.py).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from amcast.apps.kv import wire
from amcast.apps.kv.commands import SPECS, arity_fits, execute, keys_of, part_of
from amcast.apps.kv.slots import group_of
from amcast.apps.kv.store import ROOM, Store
from amcast.apps.kv.strings import Command, Result
from amcast.core.application import AllOrNothing, Dated, Delivery

DECISIONS_KEPT: Final = 65_536
ANSWERS_KEPT: Final = 16_384
ANSWER_BYTES_KEPT: Final = 64 * 2**20
TIMELESS: Final = frozenset((b"GET", b"MGET", b"STRLEN", b"GETRANGE", b"SUBSTR", b"EXISTS"))  # what a query may run
ROWS_AT_ONCE: Final = 32  # of a snapshot: values may be large, and nothing else runs while they are encoded


class Job(msgspec.Struct, array_like=True, frozen=True):
    """A unit that waits, or a PREPARE that holds its locks."""

    work: wire.Work
    clock: int
    several: bool  # groups have parts of it
    keys: list[bytes] | None  # of this group's part; None: all there are


class StoreSnapshot(msgspec.Struct, array_like=True):
    """All of a group's state. The order of the fields is the format on disk."""

    clock: int
    tickets: int
    store: list[Any]
    locks: list[tuple[bytes, Job]]
    waiting: list[tuple[int, Job]]
    answers: list[tuple[int, bytes]]
    decided: list[tuple[bytes, bool]]


def known(unit: wire.Unit) -> bool:
    if isinstance(unit, wire.Execute | wire.Prepare):
        for command in unit.commands:
            spec = SPECS.get(command[0]) if command else None
            if spec is None or not arity_fits(spec.arity, command):
                return False
    return True


def is_read(unit: wire.Unit) -> bool:
    """Return whether a unit only looks at values, whatever time it is."""
    if not isinstance(unit, wire.Execute) or unit.watched or not known(unit):
        return False
    return all(command[0] in TIMELESS for command in unit.commands)


class KV(AllOrNothing, Dated):
    """The state machine of one group."""

    version: int = 1  # of its rules and of its snapshots, also of those of 0.1.0; another one needs `migrate`

    def __init__(self, group: int, groups: int) -> None:
        self.group = group
        self.groups = groups
        self.clock = 0
        self.store = Store(group, groups)
        self._locks: dict[bytes, Job] = {}
        self._waiting: dict[int, Job] = {}
        self._held: set[bytes] = set()  # the keys of locks and of what waits
        self._closed = False  # one of those has all keys
        self._tickets = 0
        self._answers: dict[int, bytes] = {}
        self._answer_bytes = 0
        self._decided: dict[bytes, bool] = {}

    def stated_ms(self, payload: bytes) -> int:
        try:
            return wire.decode_stamp(payload)[0]
        except msgspec.MsgspecError:
            return 0  # it will be answered that it cannot be read

    def apply(self, delivery: Delivery) -> bytes:
        try:
            request = wire.decode_request(delivery.payload)
        except msgspec.MsgspecError:
            return wire.MALFORMED
        if not all(map(known, request.units)):
            return wire.MALFORMED
        return wire.encode(self.execute(request, len(delivery.dest) > 1))

    def execute(self, request: wire.StoreRequest, several: bool) -> list[wire.Answer]:
        self.clock = max(self.clock, request.now)
        self.store.room = ROOM
        answers = [self._take(unit, several) for unit in request.units]
        if not self._closed:
            self.store.now = self.clock
            self.store.reclaim(self._held)
        return answers

    def _take(self, unit: wire.Unit, several: bool) -> wire.Answer:
        if isinstance(unit, wire.Fetch):
            return self._fetch(unit.ticket)
        if isinstance(unit, wire.Decide):
            return wire.Done(self._decide(unit))
        if not self._locks:
            if isinstance(unit, wire.Execute | wire.Versions):
                return wire.Done(self._perform(unit, self.clock, several))
            return wire.Done(self._prepare(self._job(unit, several), unit))
        job = self._job(unit, several)
        if not self._conflicts(job.keys):
            return wire.Done(self._start(job))
        self._tickets += 1
        self._wait(self._tickets, job)
        return self._waits(self._tickets)

    def _perform(
        self, work: wire.Execute | wire.Versions, clock: int, several: bool
    ) -> list[Result] | list[int] | None:
        self.store.now = clock
        if isinstance(work, wire.Versions):
            return [self.store.version(key) for key in self._own(work.keys, several)]
        if work.watched and not self._unchanged(work.watched, several):
            return None
        return self._run(work.commands, several)

    def _run(self, commands: list[Command], several: bool) -> list[Result]:
        if not several:
            return [execute(self.store, command) for command in commands]
        parts = [part_of(command, self.group, self.groups) for command in commands]
        return [None if part is None else execute(self.store, part) for part in parts]

    def _own(self, keys: list[bytes], several: bool) -> list[bytes]:
        return [key for key in keys if group_of(key, self.groups) == self.group] if several else keys

    def _unchanged(self, watched: list[tuple[bytes, int]], several: bool) -> bool:
        versions = dict(watched)
        return all(self.store.version(key) == versions[key] for key in self._own(list(versions), several))

    # Reads without a place in the order

    def query(self, request: bytes) -> bytes:
        """Answer a request that only reads keys of this group; empty if it has to go through the order.

        It has to where a key is locked, or wanted by what waits, for it must be answered behind that. And where a key
        has expired by the time that the request states: to take it away, and to let time go on, is for all replicas.
        """
        found = wire.decode_request(request)
        now = max(self.clock, found.now)
        results: list[wire.Answer] = []
        self.store.room = ROOM
        for unit in found.units:
            if not is_read(unit):
                return b""
            assert isinstance(unit, wire.Execute)
            for command in unit.commands:
                keys = keys_of(command) or []
                if self._conflicts(keys) or any(self.store.expires(key, now) for key in keys):
                    return b""
            results.append(wire.Done([execute(self.store, command) for command in unit.commands]))
        return wire.encode(results)

    # Locks

    def _job(self, work: wire.Work, several: bool) -> Job:
        """Return the unit with the keys of its part."""
        if isinstance(work, wire.Versions):
            return Job(work, self.clock, several, self._own(work.keys, several))
        keys = [key for key, _ in work.watched]
        if isinstance(work, wire.Prepare):
            keys += work.absent
        for command in work.commands:
            if not several or part_of(command, self.group, self.groups) is not None:
                touched = keys_of(command)
                if touched is None:
                    return Job(work, self.clock, several, None)
                keys += touched
        return Job(work, self.clock, several, self._own(keys, several))

    def _conflicts(self, keys: list[bytes] | None) -> bool:
        if keys is None:
            return self._closed or bool(self._held)
        return self._closed or not self._held.isdisjoint(keys)

    def _hold(self, keys: list[bytes] | None) -> None:
        if keys is None:
            self._closed = True
        else:
            self._held.update(keys)

    def _start(self, job: Job) -> Any:
        if isinstance(job.work, wire.Prepare):
            return self._prepare(job, job.work)
        return self._perform(job.work, job.clock, job.several)

    def _prepare(self, job: Job, work: wire.Prepare) -> bool | None:
        self.store.now = job.clock
        if work.txn in self._decided or work.txn in self._locks:
            return None
        if not self._unchanged(work.watched, job.several):
            return False
        if any(self.store.entry(key) is not None for key in self._own(work.absent, job.several)):
            return False
        self._locks[work.txn] = job
        self._hold(job.keys)
        return True

    def _decide(self, unit: wire.Decide) -> tuple[bool | None, list[Result] | None]:
        job = self._locks.pop(unit.txn, None)
        if job is None:
            if not unit.commit:
                self._remember(unit.txn, False)
            return self._decided.get(unit.txn), None
        self._remember(unit.txn, unit.commit)
        results = None
        if unit.commit and isinstance(job.work, wire.Prepare):
            self.store.now = job.clock
            results = self._run(job.work.commands, job.several)
        self._release(job)
        return unit.commit, results

    def _remember(self, txn: bytes, commit: bool) -> None:
        self._decided.setdefault(txn, commit)
        if len(self._decided) > DECISIONS_KEPT:
            del self._decided[next(iter(self._decided))]

    def _release(self, job: Job) -> None:
        if not self._waiting and job.keys is not None:
            self._held.difference_update(job.keys)  # locks have no key in common
            return
        waiting, self._waiting = self._waiting, {}
        self._held.clear()
        self._closed = False
        for lock in self._locks.values():
            self._hold(lock.keys)
        for ticket, waiter in waiting.items():
            if self._conflicts(waiter.keys):
                self._wait(ticket, waiter)
            else:
                self._keep(ticket, wire.encode(self._start(waiter)))

    # Tickets

    def _wait(self, ticket: int, job: Job) -> None:
        self._waiting[ticket] = job
        self._hold(job.keys)

    def _waits(self, ticket: int) -> wire.Waits:
        txn, oldest = next(iter(self._locks.items()))
        return wire.Waits(ticket, txn, oldest.work.dest if isinstance(oldest.work, wire.Prepare) else [])

    def _keep(self, ticket: int, answer: bytes) -> None:
        self._answers[ticket] = answer
        self._answer_bytes += len(answer)
        while len(self._answers) > ANSWERS_KEPT or self._answer_bytes > ANSWER_BYTES_KEPT:
            self._answer_bytes -= len(self._answers.pop(next(iter(self._answers))))

    def _fetch(self, ticket: int) -> wire.Answer:
        if ticket in self._waiting:
            return self._waits(ticket)
        answer = self._answers.pop(ticket, None)
        if answer is None:
            return wire.Lost()
        self._answer_bytes -= len(answer)
        return wire.Done(msgspec.Raw(answer))

    # Snapshots

    def spread(self, states: list[bytes], groups: int) -> list[bytes]:
        """Return the keys in so many groups.

        What is prepared and not decided is dropped: it is so in all its groups, for the states are one cut, and the
        gateway that could decide it belongs to another cluster. What waited for it is executed before. Tickets go on
        behind all that were given, and a transaction that was decided stays so.
        """
        machines = [KV(group, groups) for group in range(groups)]
        decided: dict[bytes, bool] = {}
        for group, state in enumerate(states):
            old = KV(group, len(states))
            old.restore(state)
            while old._locks:
                old._decide(wire.Decide(next(iter(old._locks)), False))
            decided |= old._decided
            for machine in machines:
                machine.clock = max(machine.clock, old.clock)
                machine._tickets = max(machine._tickets, old._tickets)
            for key, (value, expires, _) in old.store.data.items():
                machines[group_of(key, groups)].store.put(key, value, expires)
        for machine in machines:
            machine._decided = dict(islice(decided.items(), max(0, len(decided) - DECISIONS_KEPT), None))
        return [machine.snapshot() for machine in machines]

    def snapshot(self) -> bytes:
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> Iterator[bytes]:
        """Yield a StoreSnapshot in pieces. What is copied here is small beside the values; they never change."""
        changes, data, removed, heap = self.store.state()
        state = StoreSnapshot(
            self.clock,
            self._tickets,
            [],
            list(self._locks.items()),
            list(self._waiting.items()),
            list(self._answers.items()),
            list(self._decided.items()),
        )
        fields = StoreSnapshot.__struct_fields__
        at = fields.index("store")
        yield wire.array_head(len(fields))
        yield b"".join([wire.encode(getattr(state, name)) for name in fields[:at]])
        yield wire.array_head(4) + wire.encode(changes) + wire.array_head(len(data))
        rows = iter(data.items())
        while some := list(islice(rows, ROWS_AT_ONCE)):
            yield wire.encode(some)[len(wire.array_head(len(some))) :]
        yield wire.encode(removed)
        yield wire.encode(heap)
        yield b"".join([wire.encode(getattr(state, name)) for name in fields[at + 1 :]])

    def restore(self, state: bytes) -> None:
        found = msgspec.msgpack.decode(state, type=StoreSnapshot)
        self.clock, self._tickets = found.clock, found.tickets
        self.store = Store(self.group, self.groups)
        self.store.load(found.store)
        self._locks = dict(found.locks)
        self._waiting = dict(found.waiting)
        self._answers = dict(found.answers)
        self._answer_bytes = sum(map(len, self._answers.values()))
        self._decided = dict(found.decided)
        self._held, self._closed = set(), False
        for job in [*self._locks.values(), *self._waiting.values()]:
            self._hold(job.keys)
