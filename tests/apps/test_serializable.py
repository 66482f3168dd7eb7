"""Guards the claim of machine.py: whatever meets whatever lock, all answers and the state are those of one machine that
executes every unit at once, in the total order of the multicasts.

Gateways with random transactions, some of which die between PREPARE and DECIDE and some of which break the locks of
others; multicasts ordered at random; groups that lag behind each other; replicas restored from snapshots in between.
Slots move meanwhile, also to a group that came later: movers die anywhere, two of them carry the same keys, gateways
have old maps or none.
"""

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from amcast.apps.kv.commands import execute, groups_of, keys_of, part_of
from amcast.apps.kv.machine import KV
from amcast.apps.kv.slots import UNKNOWN, SlotMap, even, slot_of
from amcast.apps.kv.store import Store
from amcast.apps.kv.strings import Command, Result
from amcast.apps.kv.wire import (
    Decide,
    Done,
    Execute,
    Export,
    Fetch,
    Import,
    Learn,
    Look,
    Move,
    Moved,
    Prepare,
    Regroup,
    Stale,
    StoreRequest,
    Unit,
    Versions,
    View,
    Waits,
    WaitsForSlots,
    decode_answers,
    encode,
)
from tests.apps.in_process import delivery
from tests.tools import FULL

GROUPS = 3
KEYS = [b"k%d" % n for n in range(7)]
LATER = 3  # a group that comes later
Asked = tuple[tuple[int, ...], Unit]
Script = Generator[Asked, Any, None]
Route = Callable[[SlotMap], Asked]


@dataclass
class Multicast:
    dest: tuple[int, ...]
    unit: Unit
    now: int
    gateway: int
    slots: SlotMap  # by which it was routed
    answers: dict[int, Any] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)  # what was found out in the end, also with tickets

    @property
    def stale(self) -> bool:
        found = [isinstance(answer, Stale) for answer in self.answers.values()]
        assert len(set(found)) == 1, f"executed in some groups only: {self}"
        return found[0]


class World:
    def __init__(self, seed: int, gateways: int = 5, transactions: int = 8, movers: int = 0) -> None:
        self.choose = random.Random(seed)
        self.machines = [KV(group, GROUPS) for group in range(GROUPS + bool(movers))]
        self.now = 1000
        self.order: list[Multicast] = []
        self.pool: list[Multicast] = []
        self.delivered = [0] * len(self.machines)
        self.broken: set[bytes] = set()
        self.txns = 0
        self.met_locks = self.broken_locks = self.commits = self.refused = self.stale = self.moves = self.changes = 0
        guess = even(GROUPS, UNKNOWN)
        self.maps = {n: self.choose.choice((guess, even(GROUPS))) for n in range(gateways + movers)}
        self.scripts = {n: self.gateway(n, transactions) for n in range(gateways)}
        self.scripts |= {n: self.mover(n) for n in range(gateways, gateways + movers)}
        self.waiting: dict[int, Multicast] = {}

    # What gateways do

    def gateway(self, number: int, transactions: int) -> Script:
        for _ in range(transactions):
            yield from self.choose.choice((self.plain, self.plain, self.msetnx, self.watched))(number)

    def command(self) -> Command:
        key, keys = self.choose.choice(KEYS), self.choose.sample(KEYS, self.choose.randint(1, 4))
        word = b"%d" % self.choose.randint(0, 99)
        pairs = [part for name in keys for part in (name, word)]
        return self.choose.choice((
            [b"GET", key], [b"INCR", key], [b"APPEND", key, word], [b"MSET", *pairs], [b"MGET", *keys], [b"DEL", *keys],
            [b"SET", key, word, b"PX", b"%d" % self.choose.randint(1, 60)], [b"PTTL", key], [b"GETSET", key, word],
            [b"EXISTS", *keys], [b"DBSIZE"] if self.choose.random() < 0.3 else [b"STRLEN", key], [b"PERSIST", key],
        ))  # fmt: skip

    def routed(self, commands: list[Command], slots: SlotMap) -> tuple[int, ...]:
        return tuple(sorted({group for command in commands for group in groups_of(command, slots)}))

    def plain(self, number: int) -> Script:
        commands = [self.command() for _ in range(self.choose.randint(1, 3))]
        yield from self.ask(number, lambda slots: (self.routed(commands, slots), Execute(commands)))

    def ask(self, number: int, route: Route) -> Generator[Any, Any, Multicast]:
        """What every group found, with newer maps, tickets and broken locks if need be."""
        while True:
            multicast: Multicast = yield route(self.maps[number])
            if not multicast.stale:
                break
            self.learn(number, multicast)
        yield from self.values_of(multicast)
        return multicast

    def learn(self, number: int, multicast: Multicast) -> None:
        """Take the newer map that all groups have told alike."""
        self.stale += 1
        told, slots = list(multicast.answers.values()), self.maps[number]
        assert all(answer == told[0] for answer in told)
        if told[0].version > slots.version:
            runs = told[0].runs
            self.maps[number] = slots.updated(told[0].version, tuple(told[0].groups), told[0].regrouped, runs)

    def values_of(self, multicast: Multicast) -> Script:
        for group, answer in multicast.answers.items():
            while isinstance(answer, Waits):
                self.met_locks += 1
                if answer.txn and self.choose.random() < 0.1:
                    self.broken.add(answer.txn)
                    self.broken_locks += 1
                    yield tuple(answer.dest), Decide(answer.txn, commit=False)
                if isinstance(answer, WaitsForSlots) and self.choose.random() < 0.05:
                    yield from self.carry(self.choose.random() < 0.5)
                fetched: Multicast = yield (group,), Fetch(answer.ticket)
                answer = fetched.answers[group]
            assert isinstance(answer, Done)
            multicast.values[group] = answer.value

    def conditional(self, number: int, route: Callable[[SlotMap], tuple[tuple[int, ...], Prepare]]) -> Script:
        prepared = yield from self.ask(number, route)
        assert isinstance(prepared.unit, Prepare)
        txn = prepared.unit.txn
        if self.choose.random() < 0.2:
            self.broken.add(txn)
            return  # this gateway died
        yield from self.ask(number, lambda _: (prepared.dest, Decide(txn, commit=all(prepared.values.values()))))

    def txn(self) -> bytes:
        self.txns += 1
        return b"t%d" % self.txns

    def msetnx(self, number: int) -> Script:
        keys = self.choose.sample(KEYS, 2)
        command = [b"MSET", keys[0], b"1", keys[1], b"2"]

        def route(slots: SlotMap) -> tuple[tuple[int, ...], Prepare]:
            dest = groups_of(command, slots)
            return dest, Prepare(self.txn(), list(dest), [command], [], keys)

        yield from self.conditional(number, route)

    def watched(self, number: int) -> Script:
        keys = self.choose.sample(KEYS, self.choose.randint(1, 3))

        def where(slots: SlotMap) -> tuple[int, ...]:
            return tuple(sorted({slots.of_key(key) for key in keys}))

        found = yield from self.ask(number, lambda slots: (where(slots), Versions(keys)))
        versions = {group: iter(part) for group, part in found.values.items()}
        watched = [(key, next(versions[found.slots.of_key(key)])) for key in keys]
        commands = [self.command() for _ in range(self.choose.randint(1, 3))]

        def dest_of(slots: SlotMap) -> tuple[int, ...]:
            return tuple(sorted({*self.routed(commands, slots), *where(slots)}))

        while len(dest_of(self.maps[number])) == 1:
            multicast = yield dest_of(self.maps[number]), Execute(commands, watched)
            if not multicast.stale:
                yield from self.values_of(multicast)
                return
            self.learn(number, multicast)
        yield from self.conditional(
            number, lambda slots: (dest_of(slots), Prepare(self.txn(), list(dest_of(slots)), commands, watched, []))
        )

    # What movers do

    def mover(self, number: int) -> Script:
        for _ in range(6):
            asked = yield (0,), Look()
            view = asked.answers[0].value
            slots = even(GROUPS).updated(view[0], tuple(view[1]), view[2], view[3])
            if LATER not in slots.groups and self.choose.random() < 0.4:
                after = slots.regroup((*slots.groups, LATER))
                learn = Learn(after.version, list(after.groups), after.regrouped, after.runs())
                yield (LATER,), learn
                yield after.groups, Regroup(slots.version, list(after.groups))
                continue
            source = self.choose.choice([slots.of_key(key) for key in KEYS])
            target = self.choose.choice([group for group in slots.groups if group != source])
            owned = sorted({slot_of(key) for key in KEYS if slots.of_key(key) == source})
            some = sorted(self.choose.sample(owned, self.choose.randint(1, len(owned))))
            size = self.choose.choice((20, 50, 1000))
            moved = yield slots.groups, Move(slots.version, source, target, some, size)
            assert len({answer.value for answer in moved.answers.values()}) == 1, "not all groups agree on a move"
            self.changes += bool(moved.answers[source].value)
            if self.choose.random() < 0.6:
                yield from self.carry(self.choose.random() < 0.3)

    def carry(self, dies: bool) -> Script:
        """Bring keys where slots have gone, as whoever finds them under way does; die somewhere."""
        moves = []
        for group in range(len(self.machines)):
            looked = yield (group,), Look()
            view = msgspec.convert(looked.answers[group].value, View)
            moves += [(version, source, group) for version, source, _ in view.arriving]
        for version, source, target in sorted(moves):  # one may wait for those before it
            whole, part = False, 0
            while not whole:
                if dies and self.choose.random() < 0.1:
                    return
                exported = yield (source,), Export(version, part)
                answer = exported.answers[source]
                if isinstance(answer, Waits):
                    if answer.txn and self.choose.random() < 0.3:
                        self.broken.add(answer.txn)
                        yield tuple(answer.dest), Decide(answer.txn, commit=False)
                    continue
                if answer.value is None:
                    break
                parts, data = answer.value
                imported = yield (target,), Import(version, part, parts, data)
                whole = imported.answers[target].value
                part = (part + 1) % parts
            if whole:
                self.moves += 1
                yield (source,), Moved(version)

    # What the network does

    def run(self, numbers: Iterable[int] | None = None) -> None:
        ready: dict[int, Multicast | None] = dict.fromkeys(self.scripts if numbers is None else numbers)
        while ready or self.pool or any(at < len(self.order) for at in self.delivered):
            self.now += self.choose.choice((0, 0, 1, 5))
            steps = [partial(self.proceed, number, ready) for number in ready]
            behind = [g for g, at in enumerate(self.delivered) if at < len(self.order)]
            steps += [partial(self.deliver, g, ready) for g in behind]
            steps += [partial(self.order_one)] if self.pool else []
            self.choose.choice(steps)()

    def proceed(self, number: int, ready: dict[int, Multicast | None]) -> None:
        try:
            dest, unit = self.scripts[number].send(ready.pop(number))  # type: ignore[arg-type]
        except StopIteration:
            return
        self.pool.append(Multicast(dest, unit, self.now - self.choose.randint(0, 9), number, self.maps[number]))

    def order_one(self) -> None:
        self.order.append(self.pool.pop(self.choose.randrange(len(self.pool))))

    def deliver(self, group: int, ready: dict[int, Multicast | None]) -> None:
        multicast = self.order[self.delivered[group]]
        self.delivered[group] += 1
        if group not in multicast.dest:
            return
        if self.choose.random() < 0.05:
            state = self.machines[group].snapshot()
            self.machines[group] = KV(group, GROUPS)
            self.machines[group].restore(state)
            assert self.machines[group].snapshot() == state
        payload = encode(StoreRequest(multicast.now, [multicast.unit], multicast.slots.version))
        (answer,) = decode_answers(self.machines[group].apply(delivery(group, multicast.dest, payload)))
        multicast.answers[group] = answer
        if len(multicast.answers) == len(multicast.dest):
            ready[multicast.gateway] = multicast

    def break_what_is_left(self) -> None:
        """Abort what is prepared, and bring all keys where their slots have gone."""
        for _ in range(100):
            for machine in self.machines:
                for txn, job in list(machine._locks.items()):
                    assert isinstance(job.work, Prepare)
                    for group in job.work.dest:
                        self.machines[group].execute(StoreRequest(self.now, [Decide(txn, commit=False)]), True)
            self.scripts[-1], self.maps[-1] = self.carry(False), even(GROUPS)
            self.run([-1])
            if not any(machine._locks or machine._waiting for machine in self.machines):
                break
        assert not any(
            machine._locks or machine._waiting or machine._held or machine._blocked or machine._arriving
            for machine in self.machines
        )

    # What should have come out

    def check(self) -> None:
        times: Counter[bytes] = Counter()
        stores: list[Store] = [ModelStore(group, even(GROUPS), times) for group in range(len(self.machines))]
        slots = even(GROUPS)
        pending: dict[int, tuple[int, set[int], int]] = {}  # moves: to whom, slots, and the clock that they bring
        versions: dict[tuple[bytes, int], int] = {}  # of the machines -> of the model
        exact: dict[tuple[bytes, int], int] = {}  # … and -> how often the key has changed
        decided = self.decisions()
        for multicast in self.order:
            dest, unit = multicast.dest, multicast.unit
            if multicast.stale:
                continue
            if isinstance(unit, Move):
                if multicast.answers[unit.source].value:
                    clock = max([stores[unit.source].now, *brought(pending, unit.source, set(unit.slots))])
                    slots = slots.moved(unit.slots, unit.target)
                    pending[slots.version] = unit.target, set(unit.slots), clock
                    rows = stores[unit.source].take_out(unit.slots)
                    stores[unit.target].put_in(unit.slots, stores[unit.source].changes, rows)
                for store in stores:
                    store.slots = slots
                continue
            if isinstance(unit, Regroup):
                if multicast.answers[0].value:
                    slots = slots.regroup(tuple(unit.groups))
                for store in stores:
                    store.slots = slots
                continue
            if isinstance(unit, Import):
                (group,) = dest
                if group == pending.get(unit.version, (None,))[0]:
                    stores[group].now = max(stores[group].now, multicast.now)
                    if multicast.answers[group].value:
                        stores[group].now = max(stores[group].now, pending.pop(unit.version)[2])
                    continue
            for group in dest:
                stores[group].now = max(stores[group].now, multicast.now)
            clocks = [store.now for store in stores]
            if isinstance(unit, Execute | Prepare | Versions):
                for group in dest:
                    touched = touched_slots(unit, group, slots, len(dest) > 1)
                    stores[group].now = max([clocks[group], *brought(pending, group, touched)])
            match unit:
                case Execute(commands, watched):
                    assert dest == self.right_dest(commands, watched, [], slots), f"{multicast}: wrong groups"
                    holds = unchanged(stores, watched, versions, exact, times, slots)
                    expected = parts(stores, dest, commands, slots) if holds else dict.fromkeys(dest)
                    self.refused += not holds
                    assert multicast.values == expected, multicast
                case Versions(keys):
                    for group in dest:
                        own = [key for key in keys if slots.of_key(key) == group]
                        for key, version in zip(own, multicast.values[group], strict=True):
                            versions[key, version] = stores[group].version(key)
                            assert exact.setdefault((key, version), times[key]) == times[key], f"{key!r} changed"
                case Prepare(txn, _, commands, watched, absent):
                    assert dest == self.right_dest(commands, watched, absent, slots), f"{multicast}: wrong groups"
                    holds = unchanged(stores, watched, versions, exact, times, slots)
                    holds = holds and all(stores[slots.of_key(key)].entry(key) is None for key in absent)
                    assert not holds or False not in multicast.values.values(), f"{multicast}: voted no without reason"
                    commits, results = decided.get(txn, (False, {}))
                    assert holds or not commits, f"{multicast}: committed although the condition was false"
                    assert commits or not holds or txn in self.broken, f"{multicast}: refused, the condition was true"
                    self.refused += not holds
                    if commits:
                        self.commits += 1
                        assert results == parts(stores, dest, commands, slots), multicast
            for store, clock in zip(stores, clocks, strict=True):
                store.now = clock
        assert not pending
        for store, machine in zip(stores, self.machines, strict=True):
            if machine.group in slots.groups:  # else it may have learnt a map that there never was
                assert (machine.slots.version, machine.slots.runs()) == (slots.version, slots.runs())
            store.now = machine.store.now = machine.clock
            assert sorted(store.keys(bool)) == sorted(machine.store.keys(bool))
            for key in store.data:
                assert store.data[key][:2] == machine.store.data[key][:2], key

    def right_dest(
        self, commands: list[Command], watched: list[tuple[bytes, int]], absent: list[bytes], slots: SlotMap
    ) -> tuple[int, ...]:
        keys = {slots.of_key(key) for key in [*absent, *(key for key, _ in watched)]}
        return tuple(sorted({*keys, *self.routed(commands, slots)}))

    def decisions(self) -> dict[bytes, tuple[bool, dict[int, Any]]]:
        """The first DECIDE of each transaction that found it prepared, and what it executed."""
        found: dict[bytes, tuple[bool, dict[int, Any]]] = {}
        for multicast in self.order:
            if isinstance(multicast.unit, Decide):
                values = {group: answer.value for group, answer in multicast.answers.items()}
                assert len({committed for committed, _ in values.values()}) == 1, "groups decided differently"
                if all(results is not None for _, results in values.values()):
                    assert multicast.unit.txn not in found, "executed twice"
                    found[multicast.unit.txn] = True, {group: results for group, (_, results) in values.items()}
                else:
                    assert all(results is None for _, results in values.values()), "executed in part"
        return found


class ModelStore(Store):
    """Counts besides how often each key has changed, in whatever group it was."""

    def __init__(self, group: int, slots: SlotMap, times: Counter[bytes]) -> None:
        super().__init__(group, slots)
        self.times = times

    def put(self, key: bytes, value: bytes, expires: int = 0) -> None:
        super().put(key, value, expires)
        self.times[key] += 1

    def remove(self, key: bytes) -> None:
        super().remove(key)
        self.times[key] += 1


def brought(pending: dict[int, tuple[int, set[int], int]], group: int, touched: set[int] | None) -> list[int]:
    """The clocks of slots that are on their way to a group and that somebody touches, who so has to wait for them."""
    return [
        clock
        for target, slots, clock in pending.values()
        if target == group and (touched is None or not slots.isdisjoint(touched))
    ]


def touched_slots(unit: Execute | Prepare | Versions, group: int, slots: SlotMap, several: bool) -> set[int] | None:
    """The slots of a group that a unit touches; None: all."""
    if isinstance(unit, Versions):
        return {slot_of(key) for key in unit.keys if slots.of_key(key) == group}
    keys = [key for key, _ in unit.watched]
    if isinstance(unit, Prepare):
        keys += unit.absent
    for command in unit.commands:
        own = part_of(command, group, slots) if several else command
        if own is not None:
            found = keys_of(own)
            if found is None:
                return None
            keys += found
    return {slot_of(key) for key in keys if slots.of_key(key) == group}


def unchanged(
    stores: list[Store],
    watched: list[tuple[bytes, int]],
    versions: dict[tuple[bytes, int], int],
    exact: dict[tuple[bytes, int], int],
    times: Counter[bytes],
    slots: SlotMap,
) -> bool:
    found = all(stores[slots.of_key(key)].version(key) == versions[key, version] for key, version in watched)
    assert not found or all(times[key] == exact[key, version] for key, version in watched), "changed unnoticed"
    return found


def parts(
    stores: list[Store], dest: tuple[int, ...], commands: list[Command], slots: SlotMap
) -> dict[int, list[Result]]:
    """Execute at once: what each group says, None where it has no part."""
    found: dict[int, list[Result]] = {}
    for group in dest:
        own = [command if len(dest) == 1 else part_of(command, group, slots) for command in commands]
        found[group] = [None if part is None else execute(stores[group], part) for part in own]
    return found


def run_many(seeds: range, movers: int = 0) -> list[World]:
    worlds = [World(seed, movers=movers) for seed in seeds]
    for world in worlds:
        world.run()
        world.break_what_is_left()
        world.check()
    return worlds


def test_as_if_executed_at_once_in_the_total_order() -> None:
    worlds = run_many(range(150))
    assert sum(world.met_locks for world in worlds) > 1000
    assert sum(world.broken_locks for world in worlds) > 50
    assert sum(world.commits for world in worlds) > 100
    assert sum(world.refused for world in worlds) > 100


def test_as_if_executed_at_once_while_slots_move() -> None:
    seeds = 100 if FULL else 25
    worlds = run_many(range(seeds), movers=2)
    assert sum(world.changes for world in worlds) > 2 * seeds
    assert sum(world.moves for world in worlds) > seeds
    assert sum(world.stale for world in worlds) > seeds
    assert sum(world.commits for world in worlds) > seeds / 2


def only_locks_hold(self: KV, ticket: int, job: Any) -> None:
    self._waiting[ticket] = job


def run_now(self: KV, job: Any) -> Any:
    late = type(job)(job.work, self.clock, job.several, job.keys)
    if isinstance(late.work, Prepare):
        return self._prepare(late, late.work)
    return self._perform(late.work, late.clock, late.several)


def votes_no_when_aborted(self: KV, job: Any, work: Prepare, real: Any = KV._prepare) -> bool:
    return bool(real(self, job, work))


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a waiting unit does not hold its keys": lambda patch: patch.setattr(KV, "_wait", only_locks_hold),
    "locks do not hold": lambda patch: patch.setattr(KV, "_hold", lambda self, keys: None),
    "a waiting unit runs with the clock of later": lambda patch: patch.setattr(KV, "_start", run_now),
    "held keys are reclaimed": lambda patch: patch.setattr(
        Store, "reclaim", lambda self, kept=(), limit=64, real=Store.reclaim: real(self, (), limit)
    ),
    "conditions are not looked at": lambda patch: patch.setattr(KV, "_unchanged", lambda self, watched, several: True),
    "an abort counts as a false condition": lambda patch: patch.setattr(KV, "_prepare", votes_no_when_aborted),
    "the whole store meets no lock": lambda patch: patch.setattr(
        KV, "_conflicts", lambda self, keys, real=KV._conflicts: keys is not None and real(self, keys)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises(AssertionError):
        run_many(range(150))
