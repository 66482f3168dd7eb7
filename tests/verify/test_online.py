"""The check of a stream over columns says what the one over rows says, whatever comes."""

import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from amcast.checks.online import Row, Violation, Watcher
from amcast.verify.online import DELIVERIES, MULTICASTS, ColumnWatcher, as_text
from tests.tools import FULL

GROUPS = {"g0": ["g0/0", "g0/1", "g0/2"], "g1": ["g1/0", "g1/1"], "g2": ["g2/0"]}
PROCESSES = [process for processes in GROUPS.values() for process in processes]
SECOND = 10**9
Batch = tuple[list[Row], dict[str, tuple[str, ...]]]  # deliveries, and multicasts with their destinations


def history(chance: random.Random) -> list[tuple[str, tuple[str, ...]]]:
    count = chance.choice([3, 20, 60])
    return [(f"m{i}", tuple(sorted(chance.sample(sorted(GROUPS), chance.randint(1, 3))))) for i in range(count)]


def rows_of(order: list[tuple[str, tuple[str, ...]]], step: int) -> dict[str, list[Row]]:
    found = {}
    for process in PROCESSES:
        mine = [(i, m, d) for i, (m, d) in enumerate(order, 1) if process[:2] in d]
        found[process] = [Row(process, process[:2], place, m, d, i * step) for place, (i, m, d) in enumerate(mine)]
    return found


def wrong(chance: random.Random, rows: dict[str, list[Row]]) -> None:
    """Do one thing to a history that should not be, or need not be."""
    process = chance.choice(PROCESSES)
    mine = rows[process]
    if len(mine) < 3:
        return
    i = chance.randrange(len(mine) - 1)
    now, following = mine[i], mine[i + 1]
    kind = chance.choice(["swap", "leave out", "repeat", "stranger", "back", "lost", "silent", "other dest", "few"])
    if kind == "swap":
        swap = {"message": following.message, "dest": following.dest}
        mine[i] = msgspec.structs.replace(now, **swap)
        mine[i + 1] = msgspec.structs.replace(following, message=now.message, dest=now.dest)
    elif kind == "leave out":
        del mine[i]
    elif kind == "repeat":
        mine.append(msgspec.structs.replace(now, place=mine[-1].place + 1))
    elif kind == "stranger":
        others = tuple(group for group in GROUPS if group != process[:2])
        mine[i] = msgspec.structs.replace(now, dest=others, message=f"{now.message} of others")
    elif kind == "back":
        mine[i + 1] = msgspec.structs.replace(following, place=now.place - 1)
    elif kind == "lost":
        mine[i : i + chance.randint(1, 4)] = [msgspec.structs.replace(now, message=None, dest=None)]
    elif kind == "silent":
        mine.clear()
    elif kind == "other dest":
        mine[i] = msgspec.structs.replace(now, dest=(process[:2],))
    else:
        del mine[chance.randrange(len(mine)) :]


def batches_of(chance: random.Random, rows: dict[str, list[Row]], tell: bool) -> list[Batch]:
    """Cut the histories into micro-batches. With `tell`, the multicast says the destinations, sooner or later."""
    left = {process: list(mine) for process, mine in rows.items()}
    steps = chance.choice([1, 4, 9])
    dest = {row.message: row.dest for mine in rows.values() for row in mine if row.message is not None}
    when = {message: chance.randrange(steps + 1) for message in dest}
    late = chance.choice([None, *PROCESSES])  # has nothing for some steps
    found = []
    for step in range(steps):
        now: list[Row] = []
        for process, mine in left.items():
            many = chance.choice([0, len(mine), chance.randint(0, len(mine))])
            if step == steps - 1:
                many = len(mine)
            elif process == late and step < steps - 2:
                many = 0
            now += mine[:many]
            del mine[:many]
        told = {m: d for m, d in dest.items() if d is not None and when[m] == step and tell}
        if tell:
            now = [
                row if row.message is None or when[row.message] > steps - 2
                else msgspec.structs.replace(row, dest=dest[row.message] if when[row.message] <= step else None)
                for row in now
            ]  # fmt: skip
        found.append((now, told))
    return found


def by_rows(batches: list[Batch], wait: bool, **options: Any) -> list[dict[str, Any]]:
    saved = b""
    found = []
    for rows, told in batches:
        watcher = Watcher(**options)
        if saved:
            watcher.load(saved)
        for process in PROCESSES:
            watcher.expect(process, process[:2])
        for message, dest in told.items():
            watcher.tell(message, dest)
        watcher.take(rows)
        watcher.settle(wait)
        found.append(seen_by(watcher))
        saved = watcher.save()
    return found


def by_columns(batches: list[Batch], wait: bool, **options: Any) -> tuple[list[dict[str, Any]], int]:
    saved = b""
    found, unusual = [], 0
    for rows, told in batches:
        watcher = ColumnWatcher(**options)
        if saved:
            watcher.load(saved)
        for process in PROCESSES:
            watcher.expect(process, process[:2])
        watcher.judge(*tables(rows, told, watcher.numbers()), wait)
        found.append(seen_by(watcher))
        unusual += watcher.unusual
        saved = watcher.save()
    return found, unusual


def tables(rows: list[Row], told: dict[str, tuple[str, ...]], numbers: dict[str, int]) -> tuple[pa.Table, pa.Table]:
    texts = [as_text(row.dest) for row in rows]
    columns = [[numbers[row.process] for row in rows], [row.place for row in rows], [row.time for row in rows]]
    new = pa.table([*columns, [row.message for row in rows], texts, texts], schema=DELIVERIES)
    return new, pa.table([list(told), [1] * len(told), [as_text(d) for d in told.values()]], schema=MULTICASTS)


def seen_by(watcher: Watcher) -> dict[str, Any]:
    """All that a watch says of a micro-batch."""
    state = watcher.state
    return {
        "violations": sorted(map(said, watcher.violations)),
        "spreads": {group: sorted(map(int, times)) for group, times in sorted(watcher.spreads.items())},
        "delivered": {process: many for process, many in sorted(watcher.delivered.items()) if many},
        "counts": (watcher.pairs, watcher.unchecked, watcher.guessed, watcher.lost),
        "behind": watcher.behind(),
        "heads": {p: (row.place, row.message, row.time) for p, row in sorted(watcher.heads().items())},
        "absent": watcher.absent(),
        "unresolved": sorted(watcher.unresolved()),
        "processes": sorted(watcher.processes()),
        "chains": [(c.process, c.waits, c.lost, c.last, c.before, c.nth, c.time) for c in state.chains.values()],
        "state": (state.next_index, state.newest, state.broken, state.apart, state.counts),
    }


def said(violation: Violation) -> tuple[str, str]:
    """A violation; of cycles that are equally short any may be named."""
    text = f"a cycle of {len(violation.rows)}" if "a cycle: " in violation.text else violation.text
    return violation.property, text


def same(seed: int, faults: int) -> tuple[int, int]:
    """Return how many micro-batches there were, and how many were looked at row by row."""
    chance = random.Random(seed)
    step = chance.choice([1, SECOND])
    rows = rows_of(history(chance), step)
    for _ in range(faults):
        wrong(chance, rows)
    batches = batches_of(chance, rows, chance.random() < 0.4)
    wait = chance.random() < 0.5
    options = {"window": 20_000, "gapless": chance.random() < 0.3}
    if wait and step == 1 and not faults:
        options["window"] = 5  # else which messages are the last five depends on which of several orders is taken
    expected = by_rows(batches, wait, **options)
    found, unusual = by_columns(batches, wait, **options)
    wrong_by_now = False
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        wrong_by_now = wrong_by_now or bool(other["violations"])
        if wrong_by_now:  # the first delivery may have been one that does not count
            one["spreads"] = other["spreads"]
        assert one == other, (seed, i, batches, wait, options)
    return len(batches), unusual


@pytest.mark.parametrize("faults", [0, 1, 3])
def test_rows_and_columns_say_the_same(faults: int) -> None:
    total = by_row = 0
    for seed in range(3000 if FULL else 100):
        many, unusual = same(seed, faults)
        total, by_row = total + many, by_row + unusual
    assert by_row < total, "columns did some of it"
    if not faults:
        assert by_row < total / 2


def test_a_state_of_before_there_were_columns_is_read() -> None:
    chance = random.Random(4)
    order = [(f"m{i}", tuple(sorted(chance.sample(sorted(GROUPS), chance.randint(1, 3))))) for i in range(60)]
    (early, _), (late, _) = batches_of_two(rows_of(order, 1), chance)
    before = Watcher()
    for process in PROCESSES:
        before.expect(process, process[:2])
    before.take(early)
    before.settle()
    assert any(before.behind().values()) and before.state.passed
    watcher = ColumnWatcher()
    watcher.load(before.save())
    watcher.judge(*tables(late, {}, watcher.numbers()))
    assert not watcher.violations and not any(watcher.behind().values()) and not watcher.unusual
    assert watcher.state.next_index == len(order)


def batches_of_two(rows: dict[str, list[Row]], chance: random.Random) -> tuple[Batch, Batch]:
    cuts = {process: chance.randint(5, 15) for process in rows}
    early = [row for process, mine in rows.items() for row in mine[: cuts[process]]]
    return (early, {}), ([row for process, mine in rows.items() for row in mine[cuts[process] :]], {})
