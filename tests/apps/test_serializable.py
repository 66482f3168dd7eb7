"""Guards the claim of machine.py: whatever meets whatever lock, all answers and the state are those of one machine that
executes every unit at once, in the total order of the multicasts.

Gateways with random transactions, some of which die between PREPARE and DECIDE and some of which break the locks of
others; multicasts ordered at random; groups that lag behind each other; replicas restored from snapshots in between.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from amcast.apps.kv.commands import execute, groups_of, part_of
from amcast.apps.kv.machine import KV
from amcast.apps.kv.slots import group_of
from amcast.apps.kv.store import Store
from amcast.apps.kv.strings import Command, Result
from amcast.apps.kv.wire import (
    Decide,
    Done,
    Execute,
    Fetch,
    Prepare,
    StoreRequest,
    Unit,
    Versions,
    Waits,
    decode_answers,
    encode,
)
from tests.apps.in_process import delivery

GROUPS = 3
KEYS = [b"k%d" % n for n in range(7)]
Script = Generator[tuple[tuple[int, ...], Unit], dict[int, Any], None]


@dataclass
class Multicast:
    dest: tuple[int, ...]
    unit: Unit
    now: int
    gateway: int
    answers: dict[int, Any] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)  # what was found out in the end, also with tickets


class World:
    def __init__(self, seed: int, gateways: int = 5, transactions: int = 8) -> None:
        self.choose = random.Random(seed)
        self.machines = [KV(group, GROUPS) for group in range(GROUPS)]
        self.now = 1000
        self.order: list[Multicast] = []
        self.pool: list[Multicast] = []
        self.delivered = [0] * GROUPS
        self.broken: set[bytes] = set()
        self.txns = 0
        self.met_locks = self.broken_locks = self.commits = self.refused = 0
        self.scripts = {n: self.gateway(n, transactions) for n in range(gateways)}
        self.waiting: dict[int, Multicast] = {}

    # What gateways do

    def gateway(self, number: int, transactions: int) -> Script:
        for _ in range(transactions):
            yield from self.choose.choice((self.plain, self.plain, self.msetnx, self.watched))()

    def command(self) -> Command:
        key, keys = self.choose.choice(KEYS), self.choose.sample(KEYS, self.choose.randint(1, 4))
        word = b"%d" % self.choose.randint(0, 99)
        pairs = [part for name in keys for part in (name, word)]
        return self.choose.choice((
            [b"GET", key], [b"INCR", key], [b"APPEND", key, word], [b"MSET", *pairs], [b"MGET", *keys], [b"DEL", *keys],
            [b"SET", key, word, b"PX", b"%d" % self.choose.randint(1, 60)], [b"PTTL", key], [b"GETSET", key, word],
            [b"EXISTS", *keys], [b"DBSIZE"] if self.choose.random() < 0.3 else [b"STRLEN", key], [b"PERSIST", key],
        ))  # fmt: skip

    def commands(self) -> tuple[list[Command], tuple[int, ...]]:
        commands = [self.command() for _ in range(self.choose.randint(1, 3))]
        return commands, tuple(sorted({group for command in commands for group in groups_of(command, GROUPS)}))

    def plain(self) -> Script:
        commands, dest = self.commands()
        yield from self.ask(dest, Execute(commands))

    def ask(self, dest: tuple[int, ...], unit: Unit) -> Generator[Any, Any, dict[int, Any]]:
        """What every group found, with tickets and broken locks if need be."""
        multicast: Multicast = yield dest, unit
        for group, answer in multicast.answers.items():
            while isinstance(answer, Waits):
                self.met_locks += 1
                if self.choose.random() < 0.1:
                    self.broken.add(answer.txn)
                    self.broken_locks += 1
                    yield tuple(answer.dest), Decide(answer.txn, commit=False)
                fetched: Multicast = yield (group,), Fetch(answer.ticket)
                answer = fetched.answers[group]
            assert isinstance(answer, Done)
            multicast.values[group] = answer.value
        return multicast.values

    def conditional(self, dest: tuple[int, ...], prepare: Prepare) -> Script:
        votes = yield from self.ask(dest, prepare)
        if self.choose.random() < 0.2:
            self.broken.add(prepare.txn)
            return  # this gateway died
        yield from self.ask(dest, Decide(prepare.txn, commit=all(votes.values())))

    def txn(self) -> bytes:
        self.txns += 1
        return b"t%d" % self.txns

    def msetnx(self) -> Script:
        keys = self.choose.sample(KEYS, 2)
        command = [b"MSET", keys[0], b"1", keys[1], b"2"]
        dest = groups_of(command, GROUPS)
        yield from self.conditional(dest, Prepare(self.txn(), list(dest), [command], [], keys))

    def watched(self) -> Script:
        keys = self.choose.sample(KEYS, self.choose.randint(1, 3))
        where = tuple(sorted({group_of(key, GROUPS) for key in keys}))
        found = yield from self.ask(where, Versions(keys))
        versions = {group: iter(part) for group, part in found.items()}
        watched = [(key, next(versions[group_of(key, GROUPS)])) for key in keys]
        commands, dest = self.commands()
        dest = tuple(sorted({*dest, *where}))
        if len(dest) == 1:
            yield from self.ask(dest, Execute(commands, watched))
        else:
            yield from self.conditional(dest, Prepare(self.txn(), list(dest), commands, watched, []))

    # What the network does

    def run(self) -> None:
        ready: dict[int, Multicast | None] = dict.fromkeys(self.scripts)
        while ready or self.pool or any(at < len(self.order) for at in self.delivered):
            self.now += self.choose.choice((0, 0, 1, 5))
            steps = [partial(self.proceed, number, ready) for number in ready]
            steps += [partial(self.deliver, g, ready) for g in range(GROUPS) if self.delivered[g] < len(self.order)]
            steps += [partial(self.order_one)] if self.pool else []
            self.choose.choice(steps)()

    def proceed(self, number: int, ready: dict[int, Multicast | None]) -> None:
        try:
            dest, unit = self.scripts[number].send(ready.pop(number))  # type: ignore[arg-type]
        except StopIteration:
            return
        self.pool.append(Multicast(dest, unit, self.now - self.choose.randint(0, 9), number))

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
        payload = encode(StoreRequest(multicast.now, [multicast.unit]))
        (answer,) = decode_answers(self.machines[group].apply(delivery(group, multicast.dest, payload)))
        multicast.answers[group] = answer
        if len(multicast.answers) == len(multicast.dest):
            ready[multicast.gateway] = multicast

    def break_what_is_left(self) -> None:
        for machine in self.machines:
            for txn, job in list(machine._locks.items()):
                assert isinstance(job.work, Prepare)
                for group in job.work.dest:
                    self.machines[group].execute(StoreRequest(self.now, [Decide(txn, commit=False)]), True)
        assert not any(machine._locks or machine._waiting or machine._held for machine in self.machines)

    # What should have come out

    def check(self) -> None:
        stores = [Store(group, GROUPS) for group in range(GROUPS)]
        versions: dict[tuple[bytes, int], int] = {}  # of the machines -> of the model
        decided = self.decisions()
        for multicast in self.order:
            for group in multicast.dest:
                stores[group].now = max(stores[group].now, multicast.now)
            match multicast.unit:
                case Execute(commands, watched):
                    holds = unchanged(stores, watched, versions)
                    expected = parts(stores, multicast.dest, commands) if holds else dict.fromkeys(multicast.dest)
                    self.refused += not holds
                    assert multicast.values == expected, multicast
                case Versions(keys):
                    for group in multicast.dest:
                        own = [key for key in keys if group_of(key, GROUPS) == group]
                        for key, version in zip(own, multicast.values[group], strict=True):
                            versions[key, version] = stores[group].version(key)
                case Prepare(txn, _, commands, watched, absent):
                    holds = unchanged(stores, watched, versions)
                    holds = holds and all(stores[group_of(key, GROUPS)].entry(key) is None for key in absent)
                    assert not holds or False not in multicast.values.values(), f"{multicast}: voted no without reason"
                    commits, results = decided.get(txn, (False, {}))
                    assert holds or not commits, f"{multicast}: committed although the condition was false"
                    assert commits or not holds or txn in self.broken, f"{multicast}: refused, the condition was true"
                    self.refused += not holds
                    if commits:
                        self.commits += 1
                        assert results == parts(stores, multicast.dest, commands), multicast
        for store, machine in zip(stores, self.machines, strict=True):
            store.now = machine.store.now = machine.clock
            assert sorted(store.keys(bool)) == sorted(machine.store.keys(bool))
            for key in store.data:
                assert store.data[key][:2] == machine.store.data[key][:2], key

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


def unchanged(stores: list[Store], watched: list[tuple[bytes, int]], versions: dict[tuple[bytes, int], int]) -> bool:
    return all(stores[group_of(key, GROUPS)].version(key) == versions[key, version] for key, version in watched)


def parts(stores: list[Store], dest: tuple[int, ...], commands: list[Command]) -> dict[int, list[Result]]:
    """Execute at once: what each group says, None where it has no part."""
    found: dict[int, list[Result]] = {}
    for group in dest:
        own = [command if len(dest) == 1 else part_of(command, group, GROUPS) for command in commands]
        found[group] = [None if part is None else execute(stores[group], part) for part in own]
    return found


def run_many(seeds: range) -> list[World]:
    worlds = [World(seed) for seed in seeds]
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
