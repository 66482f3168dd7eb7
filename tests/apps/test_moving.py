"""Guards that slots move while gateways serve: with old maps, in the middle of transactions, and however movers end.

That all of it is one order is the subject of test_serializable.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amcast.apps.kv import rebalancing, wire
from amcast.apps.kv.gateway import Gateway
from amcast.apps.kv.machine import KV
from amcast.apps.kv.moving import Carrier
from amcast.apps.kv.slots import SLOTS, UNKNOWN, even, slot_of
from amcast.apps.kv.wire import (
    Decide,
    Done,
    Execute,
    Export,
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
    decode_answers,
    encode,
)
from amcast.errors import AmcastError, MulticastFailed, UsageError
from amcast.runtime.machine import Limits, Machine
from tests.apps.in_process import InProcess, delivery
from tests.apps.test_gateway import talk

KEYS = [b"k%d" % n for n in range(40)]
OF_0, OF_1 = ([key for key in KEYS if even(2).of_key(key) == group] for group in range(2))
A, B = OF_0[0], OF_1[0]


def tell(machines: list[KV], dest: tuple[int, ...], unit: Unit, version: int = 0, now: int = 1000) -> dict[int, Any]:
    payload = encode(StoreRequest(now, [unit], version))
    return {g: decode_answers(machines[g].apply(delivery(g, dest, payload)))[0] for g in dest}


def value(machines: list[KV], group: int, unit: Unit, version: int = 0, now: int = 1000) -> Any:
    answer = tell(machines, (group,), unit, version, now)[group]
    assert isinstance(answer, Done), answer
    return answer.value


def two(*keys: bytes) -> list[KV]:
    """Two groups with these keys, of which the slots of g0 are about to move to g1."""
    machines = [KV(g, 2) for g in range(2)]
    for key in keys:
        value(machines, even(2).of_key(key), Execute([[b"SET", key, b"old"]]))
    return machines


def begin(machines: list[KV], *keys: bytes, base: int = 0) -> int:
    slots = sorted({slot_of(key) for key in keys})
    answers = tell(machines, tuple(range(len(machines))), Move(base, 0, 1, slots, 10))
    assert {answer.value for answer in answers.values()} == {base + 1}
    return base + 1


def carry(machines: list[KV], version: int = 1) -> None:
    parts = value(machines, 0, Export(version, 0))[0]
    for part in range(parts):
        data = value(machines, 0, Export(version, part))[1]
        assert value(machines, 1, Import(version, part, parts, data)) is (part == parts - 1)
    assert value(machines, 0, Moved(version))


# One group


def test_what_was_routed_by_an_old_map_is_executed_nowhere() -> None:
    machines = two(A, B)
    begin(machines, A)
    answers = tell(machines, (0, 1), Execute([[b"MSET", A, b"new", B, b"new"]]), 0)
    assert answers[0] == answers[1] == Stale(1, [0, 1], 0, [(slot_of(A), 1, 1, 1)])
    assert tell(machines, (0,), Execute([[b"GET", OF_0[1]]]), 0)[0] == Done([None]), "that slot has not moved"
    assert tell(machines, (0,), Execute([[b"GET", OF_0[1]]]), 2)[0] == Stale(1, [0, 1], 0, []), "this is for later"
    carry(machines)
    assert value(machines, 1, Execute([[b"MGET", A, B]]), 1) == [[b"old", b"old"]]


def test_reads_outside_of_the_order_know_whose_the_slots_are() -> None:
    machines = two(A, B)

    def read(g: int, version: int) -> bytes:
        return machines[g].query(encode(StoreRequest(1000, [Execute([[b"GET", A]])], version)))

    assert decode_answers(read(0, 0)) == [Done([b"old"])]
    begin(machines, A)
    assert read(0, 0) == b"" and read(1, 1) == b"", "given away, and not yet here"
    carry(machines)
    assert read(0, 0) == b"" and decode_answers(read(1, 1)) == [Done([b"old"])]


def test_versions_ends_and_clocks_move_along() -> None:
    machines = two(A, B)
    value(machines, 0, Execute([[b"SET", A, b"x", b"PX", b"100"]]), now=5000)
    seen = value(machines, 0, Versions([A]), now=5050)
    begin(machines, A)
    carry(machines)
    assert value(machines, 1, Versions([A]), 1, 5000) == seen
    assert value(machines, 1, Execute([[b"PTTL", A]]), 1, 5000) == [50], "time does not go back"
    assert value(machines, 1, Execute([[b"SET", A, b"y"]], [(A, seen[0])]), 1) == ["OK"]
    assert value(machines, 1, Execute([[b"SET", A, b"z"]], [(A, seen[0])]), 1) is None


def test_time_goes_on_for_who_waited() -> None:
    machines = two(A, B)
    value(machines, 0, Execute([[b"SET", A, b"x", b"PX", b"100"]]), now=5000)
    value(machines, 0, Versions([A]), now=5050)
    begin(machines, A)
    waits = tell(machines, (1,), Execute([[b"PTTL", A]]), 1, 1000)[1]
    carry(machines)
    assert value(machines, 1, wire.Fetch(waits.ticket)) == [50]


def test_nothing_ends_early_because_a_lock_kept_it_from_leaving() -> None:
    machines = two(A, B)
    value(machines, 0, Execute([[b"SET", A, b"x", b"PX", b"100"]]), now=5000)
    tell(machines, (0,), Prepare(b"t", [0], [[b"SET", OF_0[1], b"new"]], [], []), now=5000)
    begin(machines, A, OF_0[1])
    waits = tell(machines, (1,), Execute([[b"GET", A]]), 1, 5000)[1]
    value(machines, 0, Execute([[b"GET", OF_0[2]]]), now=9000)
    tell(machines, (0,), Decide(b"t", commit=True), now=9000)
    carry(machines)
    assert value(machines, 1, wire.Fetch(waits.ticket)) == [b"x"]


def test_who_came_later_does_not_go_back_to_a_map_that_was_refused() -> None:
    machines = [KV(g, 2) for g in range(3)]
    for unit in (Learn(1, [0, 1, 2], 1, even(2).regroup((0, 1, 2)).runs()), Learn(2, [0, 1], 2, even(2).runs())):
        assert value(machines, 2, unit)
    assert {answer.value for answer in tell(machines, (0, 1, 2), Regroup(0, [0, 1, 2])).values()} == {1}
    begin(machines, A, base=1)
    assert {answer.value for answer in tell(machines, (0, 1, 2), Regroup(1, [0, 1])).values()} == {0}
    assert {machine.slots.version for machine in machines} == {2}
    assert {machine.slots.of_key(A) for machine in machines} == {1}


def test_a_key_that_came_and_went_before_the_move_is_noticed() -> None:
    machines = two(B)
    seen = value(machines, 0, Versions([A]))
    value(machines, 0, Execute([[b"SET", A, b"x"], [b"DEL", A]]))
    begin(machines, A)
    carry(machines)
    assert value(machines, 1, Execute([[b"SET", A, b"y"]], [(A, seen[0])]), 1) is None


def test_what_is_locked_is_decided_before_its_keys_leave() -> None:
    machines = two(A, B)
    tell(machines, (0, 1), Prepare(b"t", [0, 1], [[b"MSET", A, b"new", B, b"new"]], [], []))
    begin(machines, A)
    waits = tell(machines, (0,), Export(1, 0))[0]
    assert isinstance(waits, wire.Waits) and (waits.txn, waits.dest) == (b"t", [0, 1])
    late = tell(machines, (1,), Execute([[b"APPEND", A, b"+"]]), 1)[1]
    assert isinstance(late, wire.WaitsForSlots)
    tell(machines, (0, 1), Decide(b"t", commit=True))
    carry(machines)
    assert value(machines, 1, wire.Fetch(late.ticket)) == [4]
    assert value(machines, 1, Execute([[b"GET", A]]), 1) == [b"new+"]


def test_a_part_that_comes_before_its_move_is_not_taken_for_known() -> None:
    machines = two(A)
    move = encode(StoreRequest(0, [Move(0, 0, 1, [slot_of(A)], 10**6)]))
    machines[0].apply(delivery(0, (0, 1), move))
    parts, data = value(machines, 0, Export(1, 0))
    assert value(machines, 1, Import(1, 0, parts, data)) is False, "its keys would be forgotten where they are"
    machines[1].apply(delivery(1, (0, 1), move))
    assert value(machines, 1, Import(1, 0, parts, data)) is True
    assert value(machines, 1, Execute([[b"SET", A, b"new"]]), 1) == ["OK"]
    assert value(machines, 1, Import(1, 0, parts, data)) is True, "a second copy"
    assert value(machines, 1, Execute([[b"GET", A]]), 1) == [b"new"]


def test_only_a_move_by_the_map_of_now_to_all_groups_counts() -> None:
    machines = [KV(g, 3) for g in range(3)]
    slots = even(3)
    slot = next(slot for slot in range(SLOTS) if slots.owners[slot] == 0)
    other = next(slot for slot in range(SLOTS) if slots.owners[slot] == 1)
    for move, dest in (
        (Move(1, 0, 1, [slot], 10), (0, 1, 2)),
        (Move(0, 0, 1, [slot], 10), (0, 1)),
        (Move(0, 1, 0, [slot], 10), (0, 1, 2)),
        (Move(0, 0, 0, [slot], 10), (0, 1, 2)),
        (Move(0, 0, 7, [slot], 10), (0, 1, 2)),
        (Move(0, 0, 1, [slot, other], 10), (0, 1, 2)),
        (Move(0, 0, 1, [], 10), (0, 1, 2)),
    ):
        assert {answer.value for answer in tell(machines, dest, move).values()} == {0}
    assert {machine.slots.version for machine in machines} == {0}


def test_the_first_version_moves_nothing_and_its_state_is_taken_over() -> None:
    kv = KV(0, 2)
    kv.version = 1
    tell([kv], (0,), Execute([[b"SET", A, b"x"]]), 7)  # it did not look at maps
    for unit in (Look(), Move(0, 0, 1, [slot_of(A)], 10)):
        assert kv.apply(delivery(0, (0, 1), encode(StoreRequest(0, [unit])))) == wire.MALFORMED
    later = KV(0, 2)
    later.restore(kv.snapshot())
    assert value([later], 0, Execute([[b"GET", A]])) == [b"x"] and value([later], 0, Look())[0] == 0


def test_the_states_of_a_move_are_restored_and_spread() -> None:
    machines = two(A, B)
    tell(machines, (0, 1), Prepare(b"t", [0, 1], [[b"MSET", A, b"new", B, b"new"]], [], []))
    begin(machines, A)
    begin(machines, OF_0[1], base=1)
    parts, data = value(machines, 0, Export(2, 0))
    value(machines, 1, Import(2, 0, parts, data))
    tell(machines, (1,), Execute([[b"APPEND", A, b"+"]]), 2)
    states = [machine.snapshot() for machine in machines]
    for g, state in enumerate(states):
        again = KV(g, 2)
        again.restore(state)
        assert again.snapshot() == state
    found = [KV(g, 3) for g in range(3)]
    for machine, state in zip(found, machines[0].spread(states, 3), strict=True):
        machine.restore(state)
    data_of = {key: row[0] for machine in found for key, row in machine.store.data.items()}
    assert data_of == {A: b"old+", B: b"old"}, "what was prepared is dropped, and what waited for it is not"
    assert isinstance(tell(found, (even(3).of_key(A),), Execute([[b"GET", A]]), 2)[even(3).of_key(A)], Stale)


def test_keys_on_their_way_are_in_a_backup() -> None:
    machines = two(A, B)
    begin(machines, A)
    found = [KV(g, 3) for g in range(3)]
    for machine, state in zip(found, machines[0].spread([machine.snapshot() for machine in machines], 3), strict=True):
        machine.restore(state)
    assert {key: row[0] for machine in found for key, row in machine.store.data.items()} == {A: b"old", B: b"old"}


# Gateways and movers


class Cluster(InProcess):
    """Groups of which the last ones came later."""

    def __init__(self, groups: int, later: int = 0, limits: Limits | None = None) -> None:
        super().__init__(groups, Machine(limits=limits or Limits()))
        self.machines += [KV(groups + n, groups) for n in range(later)]
        self.config = SimpleNamespace(largest_message=2000, groups=tuple(range(groups + later)))

    def units(self, kind: type) -> "Cluster":
        """Have all multicasts of a kind of unit fail from here on."""
        real = self.submit

        def submit(dest: tuple[int, ...], payload: bytes, deadline: float | None = None) -> Any:
            if any(isinstance(unit, kind) for unit in wire.decode_request(payload).units):
                self.fails = lambda dest: MulticastFailed("died")
            return real(dest, payload, deadline)

        self.submit = submit  # type: ignore[method-assign]
        return self


def run(cluster: Cluster, steps: Callable[[Gateway, int], Awaitable[None]]) -> None:
    async def main() -> None:
        gateway = Gateway(cluster)
        port = await gateway.listen("127.0.0.1", 0)
        try:
            await steps(gateway, port)
        finally:
            await gateway.close()

    asyncio.run(main())


def mover(cluster: Cluster) -> rebalancing.Rebalancing:
    return rebalancing.Rebalancing(cluster, 5.0)  # type: ignore[arg-type]


async def rebalance(cluster: Cluster, **wish: int) -> rebalancing.Rebalancing:
    found = mover(cluster)
    await found.look()
    await found.run(rebalancing.Wish(**wish).quotas, lambda done, total: None)
    await found.look()
    return found


async def said(port: int, *lines: str) -> list[str]:
    return (await talk(port, "".join(f"{line}\n" for line in lines).encode())).decode().splitlines()


def test_clients_notice_nothing() -> None:
    cluster = Cluster(2)

    async def steps(gateway: Gateway, port: int) -> None:
        names = [f"key{n}" for n in range(300)]
        assert await said(port, f"MSET {' '.join(f'{name} {name}' for name in names)}") == ["+OK"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"WATCH key1\nMULTI\nSET key1 mine\n")
        assert [await reader.readline() for _ in range(3)] == [b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n"]
        total = 0
        for wish in ({"onto": 1, "number": 9000}, {"onto": 0, "number": 9000}, {}):
            moving = asyncio.create_task(rebalance(cluster, **wish))
            while not moving.done():
                total += 1
                assert await said(port, "INCR counter", "APPEND key7 x", f"MSET {names[0]} {total} key9 {total}") == [
                    f":{total}", f":{4 + total}", "+OK",
                ]  # fmt: skip
                assert (await said(port, f"MGET {names[0]} key9"))[2::2] == [str(total)] * 2
                assert await said(port, "DBSIZE") == [":301"]
            await moving
        writer.write(b"EXEC\n")
        assert await reader.readline() == b"*1\r\n", "nobody has changed it"
        writer.close()
        found, cursor = set[str](), "0"
        while True:
            lines = await said(port, f"SCAN {cursor} COUNT 50")
            cursor = lines[2]
            found.update(lines[5::2])
            if cursor == "0":
                break
        assert found >= set(names)
        assert gateway.batcher.slots.version > 20

    run(cluster, steps)
    owners = cluster.machines[0].slots.owners
    for machine in cluster.machines:
        assert not machine._leaving and not machine._arriving and not machine._blocked
        assert {owners[slot_of(key)] for key in machine.store.data} == {machine.group}


@pytest.mark.parametrize("dies_at", [Export, Import, Moved])
def test_whoever_comes_next_goes_on_with_what_a_mover_left(dies_at: type) -> None:
    cluster = Cluster(2, limits=Limits(lock_seconds=0.05)).units(dies_at)

    async def steps(gateway: Gateway, port: int) -> None:
        assert await said(port, *(f"SET key{n} {n}" for n in range(50))) == ["+OK"] * 50
        with pytest.raises(AmcastError, match="died"):
            await rebalance(cluster, onto=1, number=8300)
        del cluster.submit
        cluster.fails = lambda dest: None
        slot = next(slot for slot in range(SLOTS) if cluster.machines[0].slots.changed[slot] > 0)
        for machine in cluster.machines:
            assert machine.slots.owners[slot] == 1
        name = next(f"a{n}" for n in range(10**6) if slot_of(b"a%d" % n) == slot)
        assert await said(port, f"INCR {name}") == [":1"], "a gateway that has to wait carries the keys by itself"
        found = await rebalance(cluster, onto=1, number=8300)
        assert rebalancing.owned_slots(found.slots) == {0: SLOTS - 8300, 1: 8300} and not found.unfinished()
        assert await said(port, "DBSIZE") == [":51"]
        assert not any(machine._leaving or machine._arriving for machine in cluster.machines)

    run(cluster, steps)


def test_keys_stay_with_the_giver_until_the_other_group_has_come_to_the_move() -> None:
    """A view that is older than the move says nothing about it."""
    machines = two(A)
    cluster = Cluster(2)
    cluster.machines = machines
    machines[0].apply(delivery(0, (0, 1), encode(StoreRequest(0, [Move(0, 0, 1, [slot_of(A)], 10**6)]))))
    asyncio.run(Carrier(cluster, 1.0).finish((0, 1), 1.0))
    assert machines[0]._leaving


def test_what_was_routed_by_different_maps_does_not_go_together() -> None:
    """A group that has come to neither, or to one of them only, could not say which part holds."""
    cluster = Cluster(2)
    seen: list[int] = []
    real = cluster.submit

    def submit(dest: tuple[int, ...], payload: bytes, deadline: float | None = None) -> Any:
        request = wire.decode_request(payload)
        seen.extend([request.version] * isinstance(request.units[0], Execute))
        return real(dest, payload, deadline)

    async def steps(gateway: Gateway, port: int) -> None:
        cluster.submit = submit  # type: ignore[method-assign]
        batcher, until = gateway.batcher, gateway.batcher.deadline()
        old, unit = batcher.slots, Execute([[b"GET", A]])
        begin(cluster.machines, OF_0[1])
        carry(cluster.machines)
        newer = old.moved([slot_of(OF_0[1])], 1)
        jobs = [batcher.send((0,), [unit], until, slots=slots) for slots in (old, newer, newer, old)]
        assert [(await batcher.collect(job))[0] for job in jobs] == [[[None]]] * 4
        assert seen == [0, 1, 0]

    run(cluster, steps)


def test_a_group_that_came_later_gets_slots() -> None:
    cluster = Cluster(2, later=1)

    async def steps(gateway: Gateway, port: int) -> None:
        assert gateway.batcher.slots.groups == (0, 1)
        assert await said(port, *(f"SET key{n} {n}" for n in range(200)), "DBSIZE") == ["+OK"] * 200 + [":200"]
        found = await rebalance(cluster)
        assert sorted(rebalancing.owned_slots(found.slots).values()) == [5461, 5461, 5462]
        assert await said(port, "DBSIZE", "GET key1", "INCR key5") == [":200", "$1", "1", ":6"]
        assert gateway.batcher.slots.groups == (0, 1, 2)

    run(cluster, steps)
    states = [machine.snapshot() for machine in cluster.machines]
    assert cluster.machines[2].store.data and cluster.machines[2].slots.version > 0
    again = KV(2, 2)
    assert again.slots.version == UNKNOWN
    again.restore(states[2])
    assert again.snapshot() == states[2]


def test_two_who_move_slots_do_no_harm() -> None:
    cluster = Cluster(2)

    async def steps(gateway: Gateway, port: int) -> None:
        both = [asyncio.create_task(rebalance(cluster, onto=g, number=9000)) for g in (0, 1)]
        done = await asyncio.gather(*both, return_exceptions=True)
        assert any("somebody else moves slots" in str(one) for one in done)
        assert {machine.slots.version for machine in cluster.machines} == {cluster.machines[0].slots.version}

    run(cluster, steps)


def test_msetnx_in_a_transaction_whose_keys_have_come_apart() -> None:
    cluster = Cluster(2)
    one, other = OF_0[0].decode(), OF_0[1].decode()

    async def steps(gateway: Gateway, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"MULTI\nMSETNX {one} 1 {other} 2\n".encode())
        assert [await reader.readline() for _ in range(2)] == [b"+OK\r\n", b"+QUEUED\r\n"]
        begin(cluster.machines, one.encode())
        carry(cluster.machines)
        writer.write(b"EXEC\n")
        assert b"MSETNX in a transaction needs all keys in one group" in await reader.readline()
        writer.close()

    run(cluster, steps)


# What is to move


@pytest.mark.parametrize(
    ("wish", "owned"),
    [
        ({}, [5461, 5462, 5461]),
        ({"onto": 2}, [5461, 5462, 5461]),
        ({"onto": 2, "number": 2384}, [6000, 8000, 2384]),
        ({"onto": 2, "number": 10384}, [3000, 3000, 10384]),
        ({"onto": 2, "number": 4384, "away": 0}, [4000, 8000, 4384]),
        ({"away": 2}, [8192, 8192, 0]),
        ({"away": 1}, [8192, 0, 8192]),
    ],
)
def test_quotas(wish: dict[str, int], owned: list[int]) -> None:
    slots = even(3).moved(range(SLOTS), 2).moved(range(6000), 0).moved(range(6000, 14000), 1)
    assert list(rebalancing.Wish(**wish).quotas(slots).values()) == owned
    for most in (1000, 10**6):
        moved, steps = slots, 0
        while step := rebalancing.next_step(moved, dict(enumerate(owned)), most):
            assert len(step[2]) <= most and {moved.owners[slot] for slot in step[2]} == {step[0]}
            moved, steps = moved.moved(step[2], step[1]), steps + 1
        assert list(rebalancing.owned_slots(moved).values()) == owned


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"onto": 1, "number": 10}, "g1 owns 8000 slots, more than 10"),
        ({"onto": 1, "number": 15000, "away": 0}, "g1 lacks 7000 slots, and there are 6000 to give"),
    ],
)
def test_what_cannot_be_aimed_at(wish: dict[str, int], reason: str) -> None:
    slots = even(3).moved(range(SLOTS), 2).moved(range(6000), 0).moved(range(6000, 14000), 1)
    with pytest.raises(UsageError, match=reason):
        rebalancing.Wish(**wish).quotas(slots)
