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

Slots move while all this goes on. A `Move` goes to all groups, and from its place on the keys are another group's. The
one that had them lets finish what came before, as a unit does that meets a lock; then it takes the keys out, and keeps
them until they have arrived. The other one has whatever touches the slots wait for them, again as for a lock. Both are
units that wait, `Move` themselves, and keys and slots that wait are held. Somebody has to carry the parts from one to
the other (moving.py); it does not matter who, or how often. A version of a key stays what it was, and the clock of the
group that gets the slots is not behind that of the other one: so who watches a key, or waits for its end, sees no
difference. Only a watched key that is not there counts as changed.

The gateway gets a ticket for a unit that waits and fetches the answer later. Answers that nobody fetches and decisions
are kept in bounded memory, oldest out first.

Time comes from requests alone: the clock of a group is the latest time that any request stated (lookout.py).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from amcast.apps.kv import wire
from amcast.apps.kv.commands import SPECS, arity_fits, execute, keys_of, part_of, slots_of
from amcast.apps.kv.slots import UNKNOWN, SlotMap, even, slot_of, unknown
from amcast.apps.kv.states import Arriving, HeldOrIn, Job, MapState, StoreSnapshot
from amcast.apps.kv.store import ROOM, Store
from amcast.apps.kv.strings import Command, Result
from amcast.core.application import AllOrNothing, Dated, Delivery

DECISIONS_KEPT: Final = 65_536
ANSWERS_KEPT: Final = 16_384
ANSWER_BYTES_KEPT: Final = 64 * 2**20
TIMELESS: Final = frozenset((b"GET", b"MGET", b"STRLEN", b"GETRANGE", b"SUBSTR", b"EXISTS"))  # what a query may run
ROWS_AT_ONCE: Final = 32  # of a snapshot: values may be large, and nothing else runs while they are encoded


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

    version: int = 2  # of its rules and of its snapshots; the first one, also that of 0.1.0, cannot move slots

    def __init__(self, group: int, groups: int) -> None:
        """Make the state of a group of a cluster that began with so many; one of a higher number has come later."""
        self.group = group
        self.groups = groups
        self.clock = 0
        self.slots = even(groups) if group < groups else unknown(group)
        self.store = Store(group, self.slots)
        self._learnt: dict[int, wire.Learn] = {}  # maps that there may come to be, by version: who came later has these
        self._blocked: set[int] = set()  # slots that keys are still to come to, or to be taken out of
        self._arriving: dict[int, Arriving] = {}  # by the version from which on the slots are here
        self._leaving: dict[int, tuple[int, bytes]] = {}  # how large parts are, and the keys that are no more here
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
            return wire.decode_stamp(payload).now
        except msgspec.MsgspecError:
            return 0  # it will be answered that it cannot be read

    def apply(self, delivery: Delivery) -> bytes:
        try:
            request = wire.decode_request(delivery.payload)
        except msgspec.MsgspecError:
            return wire.MALFORMED
        if not all(map(known, request.units)):
            return wire.MALFORMED
        if self.version < 2 and any(isinstance(unit, wire.OfTheMap) for unit in request.units):
            return wire.MALFORMED
        if any(isinstance(unit, wire.Move | wire.Regroup) for unit in request.units):
            return wire.encode([self._change_map(unit, delivery.dest) for unit in request.units])
        return wire.encode(self.execute(request, len(delivery.dest) > 1))

    def execute(self, request: wire.StoreRequest, several: bool) -> list[wire.Answer]:
        if request.version != self.slots.version and self._outdated(request):
            return [self._stale(request.version)]
        self.clock = max(self.clock, request.now)
        self.store.room = ROOM
        answers = [self._take(unit, several) for unit in request.units]
        if not self._closed:
            self.store.now = self.clock
            self.store.reclaim(HeldOrIn(self._held, self._blocked) if self._blocked else self._held)
        return answers

    def _outdated(self, request: wire.StoreRequest) -> bool:
        """Return whether a request was routed by another map than that of here. All its groups find the same."""
        if self.version < 2:
            return False
        slots: set[int] = set()
        everywhere = routed = False
        for unit in request.units:
            if isinstance(unit, wire.Execute | wire.Prepare | wire.Versions):
                routed = True
                keys = unit.keys if isinstance(unit, wire.Versions) else [key for key, _ in unit.watched]
                if isinstance(unit, wire.Prepare):
                    keys = keys + unit.absent
                slots.update(map(slot_of, keys))
                if not isinstance(unit, wire.Versions):
                    touched, all_groups = slots_of(unit.commands)
                    slots |= touched
                    everywhere |= all_groups
        return routed and self.slots.outdated(request.version, slots, everywhere)

    def _stale(self, version: int) -> wire.Stale:
        found = self.slots
        return wire.Stale(found.version, list(found.groups), found.regrouped, found.runs(version))

    def _take(self, unit: wire.Unit, several: bool) -> wire.Answer:
        if isinstance(unit, wire.Fetch):
            return self._fetch(unit.ticket)
        if isinstance(unit, wire.Decide):
            return wire.Done(self._decide(unit))
        if isinstance(unit, wire.OfTheMap):
            return self._about_the_map(unit)
        if not self._locks and not self._blocked:
            if isinstance(unit, wire.Execute | wire.Versions):
                return wire.Done(self._perform(unit, self.clock, several))
            return wire.Done(self._prepare(self._job(unit, several), unit))
        job = self._job(unit, several)
        if self._may_start(job):
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
        parts = [part_of(command, self.group, self.slots) for command in commands] if several else commands
        return [execute(self.store, part) if part else None for part in parts]

    def _own(self, keys: list[bytes], several: bool) -> list[bytes]:
        return [key for key in keys if self.slots.of_key(key) == self.group] if several else keys

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
        if found.version != self.slots.version and self._outdated(found):
            return b""
        self.store.room = ROOM
        for unit in found.units:
            if isinstance(unit, wire.Look | wire.Export) and self.version >= 2:
                results.append(self._about_the_map(unit))
                continue
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
            if not several or part_of(command, self.group, self.slots) is not None:
                touched = keys_of(command)
                if touched is None:
                    return Job(work, self.clock, several, None)
                keys += touched
        return Job(work, self.clock, several, self._own(keys, several))

    def _conflicts(self, keys: list[bytes] | None) -> bool:
        if keys is None:
            return self._closed or bool(self._held) or bool(self._blocked)
        if self._closed or not self._held.isdisjoint(keys):
            return True
        return bool(self._blocked) and any(slot_of(key) in self._blocked for key in keys)

    def _may_start(self, job: Job) -> bool:
        if not isinstance(job.work, wire.Move):
            return not self._conflicts(job.keys)
        slots = job.work.slots
        if self._closed or not self._blocked.isdisjoint(slots):
            return False
        if job.work.target == self.group and not self._arriving[job.work.base + 1].whole():
            return False
        return {slot_of(key) for key in self._held}.isdisjoint(slots)

    def _hold(self, keys: list[bytes] | None) -> None:
        if keys is None:
            self._closed = True
        else:
            self._held.update(keys)

    def _start(self, job: Job) -> Any:
        if isinstance(job.work, wire.Prepare):
            return self._prepare(job, job.work)
        assert not isinstance(job.work, wire.Move), "it has no answer"
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
        self._run_waiting()

    def _run_waiting(self) -> None:
        """Start what waits and may start, in the order in which it came."""
        waiting, self._waiting = self._waiting, {}
        self._held.clear()
        self._blocked.clear()
        self._closed = False
        for lock in self._locks.values():
            self._hold(lock.keys)
        since: list[tuple[frozenset[int], int]] = []  # slots that have just come, and the clock that they bring
        for ticket, waiter in waiting.items():
            job = msgspec.structs.replace(waiter, clock=self._not_before(waiter, since)) if since else waiter
            if not self._may_start(job):
                self._wait(ticket, job)
            elif not isinstance(job.work, wire.Move):
                self._keep(ticket, wire.encode(self._start(job)))
            elif job.work.source == self.group:
                self._take_out(job.work, job.clock)
            else:
                since.append((frozenset(job.work.slots), self._put_in(job.work)))

    # Tickets

    def _wait(self, ticket: int, job: Job) -> None:
        self._waiting[ticket] = job
        if isinstance(job.work, wire.Move):
            self._blocked.update(job.work.slots)
        else:
            self._hold(job.keys)

    def _waits(self, ticket: int) -> wire.Waits:
        txn, oldest = next(iter(self._locks.items()), (b"", None))
        dest = oldest.work.dest if oldest is not None and isinstance(oldest.work, wire.Prepare) else []
        return (wire.WaitsForSlots if self._arriving else wire.Waits)(ticket, txn, dest)

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

    # Slots that move

    def _change_map(self, unit: wire.Unit, names: tuple[str, ...]) -> wire.Answer:
        """Change the map, if all groups hear of it, and nobody has changed it meanwhile; all of them find the same."""
        dest = {int(name[1:]) for name in names}
        if isinstance(unit, wire.Regroup):
            return wire.Done(self._regroup(unit, dest))
        slots = self.slots
        if not isinstance(unit, wire.Move) or unit.base != slots.version or dest != set(slots.groups):
            return wire.Done(0)
        whose = {slots.owners[slot] for slot in unit.slots}
        if whose != {unit.source} or unit.target not in dest or unit.source == unit.target:
            return wire.Done(0)
        self._go_by(slots.moved(unit.slots, unit.target))
        if self.group in (unit.source, unit.target):
            if self.group == unit.target:
                self._arriving[self.slots.version] = Arriving()
            job = Job(unit, self.clock, False, [])
            if self._may_start(job):
                self._take_out(unit, self.clock)
            else:
                self._tickets += 1
                self._wait(self._tickets, job)
        return wire.Done(self.slots.version)

    def _regroup(self, unit: wire.Regroup, dest: set[int]) -> int:
        groups, slots = tuple(unit.groups), self.slots
        if unit.base + 1 > slots.version and (learnt := self._learnt.get(unit.base + 1)) is not None:
            self._go_by(slots.updated(learnt.version, tuple(learnt.groups), learnt.regrouped, learnt.runs))
            self._learnt = {version: later for version, later in self._learnt.items() if version > learnt.version}
            return self.slots.version
        left = set(slots.groups) - set(groups)
        if unit.base != slots.version or dest != {*slots.groups, *groups} or not left.isdisjoint(slots.owners):
            return 0
        self._go_by(slots.regroup(groups))
        return self.slots.version

    def _go_by(self, slots: SlotMap) -> None:
        """Take another map. What came before it keeps the part that it had by the old one."""
        self._locks = {txn: self._reduced(job) for txn, job in self._locks.items()}
        self._waiting = {ticket: self._reduced(job) for ticket, job in self._waiting.items()}
        self.slots = self.store.slots = slots

    def _reduced(self, job: Job) -> Job:
        if not job.several or isinstance(job.work, wire.Move):
            return job
        work = job.work
        if isinstance(work, wire.Versions):
            return msgspec.structs.replace(job, work=wire.Versions(self._own(work.keys, True)), several=False)
        watched = [(key, version) for key, version in work.watched if self.slots.of_key(key) == self.group]
        commands = [part_of(command, self.group, self.slots) or [] for command in work.commands]
        work = msgspec.structs.replace(work, commands=commands, watched=watched)
        if isinstance(work, wire.Prepare):
            work = msgspec.structs.replace(work, absent=self._own(work.absent, True))
        return msgspec.structs.replace(job, work=work, several=False)

    def _take_out(self, move: wire.Move, clock: int) -> None:
        rows = self.store.take_out(move.slots)
        self._leaving[move.base + 1] = move.part_bytes, wire.encode((clock, self.store.changes, rows))

    def _put_in(self, move: wire.Move) -> int:
        """Take over the keys of slots; return the clock of where they were."""
        clock: int
        clock, changes, rows = wire.decode_arrived(self._arriving.pop(move.base + 1).data())
        self.store.put_in(move.slots, changes, rows)
        return clock

    def _not_before(self, job: Job, since: list[tuple[frozenset[int], int]]) -> int:
        """Return the clock for a unit that waited for slots: time goes on from where they were."""
        touched: set[int] | None = None  # all
        if isinstance(job.work, wire.Move):
            touched = set(job.work.slots)
        elif job.keys is not None:
            touched = {slot_of(key) for key in job.keys}
        return max([job.clock, *[clock for slots, clock in since if touched is None or touched & slots]])

    def _about_the_map(self, unit: wire.OfTheMap) -> wire.Answer:
        match unit:
            case wire.Look():
                return wire.Done(self._view())
            case wire.Export(version, part):
                if version in self._leaving:
                    size, data = self._leaving[version]
                    return wire.Done((max(1, -(-len(data) // size)), data[part * size : (part + 1) * size]))
                return self._waits(0) if version in self._view().leaving else wire.Done(None)
            case wire.Import(version, part, parts, data):
                arriving = self._arriving.get(version)
                if arriving is None or arriving.whole():  # or the move has not come here yet
                    return wire.Done(version <= self.slots.version)
                arriving.parts = parts
                arriving.here.setdefault(part, data)
                if arriving.whole():
                    self.clock = max(self.clock, wire.decode_stamp(arriving.data()).now)
                    self._run_waiting()
                return wire.Done(arriving.whole())
            case wire.Moved(version):
                self._leaving.pop(version, None)
            case wire.Learn(version) if version > self.slots.version:
                self._learnt[version] = unit
        return wire.Done(True)

    def _view(self) -> wire.View:
        moves = [job.work for job in self._waiting.values() if isinstance(job.work, wire.Move)]
        arriving = [(move.base + 1, move.source, len(move.slots)) for move in moves if move.target == self.group]
        leaving = [move.base + 1 for move in moves if move.source == self.group]
        slots = self.slots
        return wire.View(
            slots.version, list(slots.groups), slots.regrouped, slots.runs(), arriving, [*self._leaving, *leaving]
        )

    # Snapshots

    def spread(self, states: list[bytes], groups: int) -> list[bytes]:
        """Return the keys in so many groups.

        What is prepared and not decided is dropped: it is so in all its groups, for the states are one cut, and the
        gateway that could decide it belongs to another cluster. What waited for it is executed before. Tickets go on
        behind all that were given, and a transaction that was decided stays so.
        """
        machines = [KV(group, groups) for group in range(groups)]
        machine_of = even(groups).of_key
        olds = [KV(group, len(states)) for group in range(len(states))]
        for old, state in zip(olds, states, strict=True):
            old.version = self.version
            old.restore(state)
        before = 0
        while any(old._locks or old._arriving for old in olds):  # a move may wait for the one before it
            left = sum([len(old._locks) + len(old._arriving) + len(old._waiting) for old in olds])
            assert not before or left < before, "slots arrive that no group has given away: the states are no cut"
            before = left
            for old in olds:
                for ticket in list(old._locks):
                    old._decide(wire.Decide(ticket, False))
                for version in list(old._arriving):
                    for other in olds:
                        if version in other._leaving:
                            old._arriving[version] = Arriving(1)
                            old._about_the_map(wire.Import(version, 0, 1, other._leaving[version][1]))
        decided: dict[bytes, bool] = {}
        for old in olds:
            decided |= old._decided
            for machine in machines:
                machine.clock = max(machine.clock, old.clock)
                machine._tickets = max(machine._tickets, old._tickets)
            for key, (value, expires, _) in old.store.data.items():
                machines[machine_of(key)].store.put(key, value, expires)
        version = max(old.slots.version for old in olds)
        for machine in machines:
            machine.version = self.version
            if version > 0:  # what was routed by an older map is not for this one
                machine.slots = machine.store.slots = even(groups, version + 1)
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
            self._map_state() if self.version >= 2 else None,
        )
        fields = StoreSnapshot.__struct_fields__[: None if self.version >= 2 else -1]
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

    def _map_state(self) -> MapState:
        slots, known = self.slots, self.slots.version != UNKNOWN
        return MapState(
            slots.version,
            list(slots.groups),
            slots.regrouped,
            slots.runs() if known else [],
            list(self._learnt.values()),
            list(self.store.arrivals.items()),
            [(version, one.parts, list(one.here.items())) for version, one in self._arriving.items()],
            [(version, size, data) for version, (size, data) in self._leaving.items()],
        )

    def _restore_map(self, found: MapState | None) -> None:
        self.slots = even(self.groups) if self.group < self.groups else unknown(self.group)
        self._learnt, self._arriving, self._leaving = {}, {}, {}
        if found is None:
            return
        if found.version > 0:
            self.slots = self.slots.updated(found.version, tuple(found.groups), found.regrouped, found.runs)
        self._learnt = {one.version: one for one in found.learnt}
        for version, parts, here in found.arriving:
            self._arriving[version] = Arriving(parts)
            self._arriving[version].here.update(here)
        self._leaving = {version: (size, data) for version, size, data in found.leaving}

    def restore(self, state: bytes) -> None:
        found = msgspec.msgpack.decode(state, type=StoreSnapshot)
        self.clock, self._tickets = found.clock, found.tickets
        self._restore_map(found.moves)
        self.store = Store(self.group, self.slots)
        self.store.load(found.store)
        self.store.arrivals = dict(found.moves.absent) if found.moves is not None else {}
        self._locks = dict(found.locks)
        self._waiting = dict(found.waiting)
        self._answers = dict(found.answers)
        self._answer_bytes = sum(map(len, self._answers.values()))
        self._decided = dict(found.decided)
        self._held, self._closed, self._blocked = set(), False, set()
        for job in self._locks.values():
            self._hold(job.keys)
        for ticket, job in self._waiting.items():
            self._wait(ticket, job)
