"""The check of a stream against the checks of whole runs."""

import random

from amcast.checks.online import Row, Watcher

GROUPS = {"g0": ["g0/0", "g0/1"], "g1": ["g1/0", "g1/1"], "g2": ["g2/0"]}
SECOND = 10**9


def history(chance: random.Random, count: int = 60) -> list[tuple[str, tuple[str, ...]]]:
    """Messages in an order, with their destinations."""
    return [(f"m{i}", tuple(sorted(chance.sample(sorted(GROUPS), chance.randint(1, 3))))) for i in range(count)]


def rows_of(order: list[tuple[str, tuple[str, ...]]]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for group, processes in GROUPS.items():
        for process in processes:
            mine = [(message, dest) for message, dest in order if group in dest]
            found[process] = [Row(process, group, i, m, d, i * 1000) for i, (m, d) in enumerate(mine)]
    return found


def feed(rows: dict[str, list[Row]], chance: random.Random, steps: int = 12, **options: int) -> Watcher:
    """In pieces of any length, with the state written out and read in between."""
    left = {process: list(mine) for process, mine in rows.items()}
    saved = b""
    watcher = Watcher(**options)
    wrong = []
    for step in range(steps):
        watcher = Watcher(**options)
        if saved:
            watcher.load(saved)
        else:
            for group, processes in GROUPS.items():
                for process in processes:
                    watcher.expect(process, group)
        for mine in left.values():
            taken = len(mine) if step == steps - 1 else chance.randint(0, len(mine))
            watcher.take(mine[:taken])
            del mine[:taken]
        watcher.settle()
        wrong += watcher.violations
        saved = watcher.save()
    watcher.violations = wrong
    return watcher


def test_a_good_run_in_any_pieces_is_good() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        watcher = feed(rows_of(history(chance)), chance)
        assert not watcher.violations, seed
        assert not any(watcher.behind().values()) and not watcher.unchecked


def test_every_exchange_of_two_messages_that_somebody_else_has_is_found() -> None:
    found = 0
    for seed in range(200):
        chance = random.Random(seed)
        rows = rows_of(history(chance))
        process = chance.choice([name for name in rows if len(rows[name]) > 1])
        i = chance.randrange(len(rows[process]) - 1)
        one, other = rows[process][i : i + 2]
        rows[process][i] = Row(process, one.group, one.place, other.message, other.dest, one.time)
        rows[process][i + 1] = Row(process, one.group, other.place, one.message, one.dest, other.time)
        elsewhere = [
            name for name in rows if name != process and {one.message, other.message} <= {r.message for r in rows[name]}
        ]
        watcher = feed(rows, chance)
        if elsewhere:
            found += 1
            assert [violation.property for violation in watcher.violations] == ["order"], seed
            named = {row.message for row in watcher.violations[0].rows}
            assert {one.message, other.message} <= named
            (violation,) = feed(rows, chance, 1).violations
            assert {one.message, other.message} == {row.message for row in violation.rows}, "nothing else is blamed"
    assert found > 100


def test_a_cycle_through_three_groups() -> None:
    order = {"g0/0": ["a", "b"], "g1/0": ["b", "c"], "g2/0": ["c", "a"]}
    dest = {"a": ("g0", "g2"), "b": ("g0", "g1"), "c": ("g1", "g2")}
    watcher = Watcher()
    for process, messages in order.items():
        watcher.take([Row(process, process[:2], i, m, dest[m], i) for i, m in enumerate(messages)])
    watcher.settle()
    (violation,) = watcher.violations
    assert violation.property == "order" and {row.message for row in violation.rows} == {"a", "b", "c"}
    assert "g0/0 delivers a before b" in violation.text


def test_a_message_left_out_is_found_when_its_process_goes_on() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        rows = rows_of(history(chance))
        process = chance.choice(["g0/0", "g0/1", "g1/0", "g1/1"])
        del rows[process][chance.randrange(1, len(rows[process]) - 1)]
        watcher = feed(rows, chance)
        assert [violation.property for violation in watcher.violations] == ["order"], seed
        gapless = feed(rows, chance, gapless=1)
        assert any("nothing at positions" in violation.text for violation in gapless.violations)


def test_a_message_delivered_twice() -> None:
    for late in (False, True):
        chance = random.Random(3)
        rows = rows_of(history(chance))
        mine = rows["g1/1"]
        again = mine[5]
        mine.append(Row("g1/1", "g1", len(mine) + 5, again.message, again.dest, 0))
        watcher = feed(rows, chance, 12 if late else 1)
        assert [violation.property for violation in watcher.violations] == ["integrity"]
        assert watcher.violations[0].text == f"g1/1 delivers {again.message} twice"


def test_a_message_for_somebody_else() -> None:
    watcher = Watcher()
    watcher.take([Row("g0/0", "g0", 0, "m", ("g1",), 0)])
    assert [violation.property for violation in watcher.violations] == ["validity"]


def test_rows_that_say_different_destinations_of_a_message() -> None:
    for first, second in ((("g0",), ("g0", "g1")), (None, ("g0", "g1"))):
        watcher = Watcher()
        for process, dest in (("g0/0", first), ("g0/1", ("g0",)), ("g1/0", second)):
            watcher.take(
                [Row(process, process[:2], 0, "m", dest, 1), Row(process, process[:2], 1, "n", ("g0", "g1"), 2)]
            )
        watcher.settle()
        (violation,) = watcher.violations
        assert (violation.property, violation.text) == ("validity", "g1/0 delivers m, which is for g0")
        assert not any(watcher.behind().values()), "and n goes on"


def test_a_process_that_is_silent_for_long_is_not_waited_for_and_compared_later() -> None:
    chance = random.Random(7)
    rows = rows_of(history(chance))
    late = rows.pop("g1/1")
    rows = {name: [Row(r.process, r.group, r.place, r.message, r.dest, r.time + i * SECOND) for i, r in enumerate(mine)]
            for name, mine in rows.items()}  # fmt: skip

    def run(last: list[Row]) -> Watcher:
        watcher = Watcher()
        for group, processes in GROUPS.items():
            for process in processes:
                watcher.expect(process, group)
        for mine in rows.values():
            watcher.take(mine)
        watcher.settle()
        assert not watcher.violations and not any(watcher.behind().values())
        watcher.take(last)
        watcher.settle()
        return watcher

    assert not run(late).violations
    i, j = next((i, i + 1) for i in range(len(late) - 1))
    swapped = [*late]
    swapped[i] = Row("g1/1", "g1", i, late[j].message, late[j].dest, 0)
    swapped[j] = Row("g1/1", "g1", j, late[i].message, late[i].dest, 0)
    assert {violation.property for violation in run(swapped).violations} == {"order"}
    (violation,) = run(late[:7] + late[8:]).violations
    assert violation.text == f"g1/1 leaves out messages that its group delivers before {late[8].message}: 1"


def test_rows_that_a_reader_lost_are_no_violation() -> None:
    chance = random.Random(9)
    rows = rows_of(history(chance))
    mine = rows["g0/1"]
    rows["g0/1"] = [*mine[:5], Row("g0/1", "g0", 0, None, None, 0), *mine[9:]]
    watcher = feed(rows, chance, 1, gapless=1)
    assert not watcher.violations


def test_what_is_remembered_is_bounded() -> None:
    chance = random.Random(1)
    watcher = feed(rows_of(history(chance, 3000)), chance, window=100)
    assert len(watcher.save()) < 20_000


def test_what_was_compared_is_counted() -> None:
    """A delivery counts once it was compared with another process's, and one that nobody else has never does."""
    chance = random.Random(5)
    rows = rows_of(history(chance))
    whole = feed(rows, chance, 1)
    alone = sum(row.dest == ("g2",) for row in rows["g2/0"])
    assert alone and whole.pairs == sum(len(mine) for mine in rows.values()) - alone
    watcher = Watcher()
    watcher.take([Row("a/0", "a", i, f"m{i}", ("a",), i) for i in range(3)])
    watcher.settle()
    assert watcher.pairs == 0
    watcher.take([Row("a/1", "a", i, f"m{i}", ("a",), i) for i in range(2)])
    watcher.settle()
    assert watcher.pairs == 4, "two of each process"
    again = Watcher()
    again.load(watcher.save())
    assert again.pairs == 0, "since it was loaded"


def test_positions_are_gapless_where_that_is_promised() -> None:
    for process in ("a/0", "a/1"):
        rows = [Row(process, "a", place, f"m{place}", ("a",), place) for place in (0, 1, 4)]
        watcher = Watcher(gapless=True)
        watcher.take(rows)
        assert [violation.text for violation in watcher.violations] == [f"{process} has nothing at positions 2 to 3"]
        lenient = Watcher()
        lenient.take(rows)
        assert not lenient.violations


def test_rows_that_are_missing_are_named() -> None:
    watcher = Watcher(gapless=True)
    watcher.take(
        [
            Row("a/0", "a", 0, "m0", ("a",), 0),
            Row("a/0", "a", 1, None, None, 0),
            Row("a/0", "a", 9, "m9", ("a",), 0),
        ]
    )
    assert watcher.lost == ["a/0"] and not watcher.violations


def test_who_has_nothing_more_is_left_behind_if_nothing_more_comes() -> None:
    def run(waiting: bool) -> Watcher:
        watcher = Watcher()
        for process, messages in (("a/0", "x"), ("a/1", "xyz"), ("a/2", "xzy"), ("a/3", "")):
            watcher.expect(process, "a", 5)
            watcher.take([Row(process, "a", i, m, ("a",), 1) for i, m in enumerate(messages)])
        watcher.settle(waiting)
        return watcher

    assert run(True).behind()["a/1"] == 3, "a/3 may still say something"
    assert run(False).behind()["a/1"] == 2, "x is passed"
    for waiting in (True, False):
        (violation,) = run(waiting).violations
        assert {row.process for row in violation.rows} == {"a/1", "a/2"} and run(waiting).state.broken
    assert run(False).state.sizes == {"a": 5}


def delivers(process: str, messages: str, dest: dict[str, tuple[str, ...] | None], first: int = 0) -> list[Row]:
    return [Row(process, process[:2], first + i, m, dest.get(m, (process[:2],)), 1) for i, m in enumerate(messages)]


def test_what_waits_for_a_silent_group_hides_nothing_behind_it() -> None:
    for waiting in (True, False):
        for second, wrong in (("cayx", 1), ("caxy", 0)):
            watcher = Watcher()
            for process in ("g0/0", "g0/1", "g1/0"):
                watcher.expect(process, process[:2])
            for process, messages in (("g0/0", "caxy"), ("g0/1", second)):
                watcher.take(delivers(process, messages, {"a": ("g0", "g1")}))
            watcher.settle(waiting)
            assert len(watcher.violations) == wrong
            assert watcher.behind() == {"g0/0": 3, "g0/1": 3, "g1/0": 0}, "they are not passed"
            assert wrong == 0 or {row.message for row in watcher.violations[0].rows} == {"x", "y"}


def test_destinations_that_become_known_later() -> None:
    dest: dict[str, tuple[str, ...] | None] = dict.fromkeys("abcd")
    for second, wrong in (("ab", 0), ("ba", 1)):
        watcher = Watcher()
        for process, messages in (("g0/0", "ab"), ("g0/1", "abc"), ("g1/0", second)):
            watcher.take(delivers(process, messages, dest))
        watcher.settle(False)
        assert watcher.unresolved() == list("abc") and len(watcher.violations) == wrong, "two groups delivered them"
        again = Watcher()
        again.load(watcher.save())
        for message, groups in (("a", ("g0", "g1")), ("b", ("g0", "g1")), ("c", ("g0",))):
            again.tell(message, groups)
        again.settle(False)
        assert not again.unresolved() and any(again.behind().values()) == bool(wrong)


def test_destinations_that_become_known_later_and_are_others() -> None:
    watcher = Watcher()
    for process, messages in (("g0/0", "ab"), ("g1/0", "ab")):
        watcher.take(delivers(process, messages, {"a": None, "b": ("g0", "g1")}))
    watcher.settle()
    watcher.tell("a", ("g0",))
    watcher.settle()
    (violation,) = watcher.violations
    assert (violation.property, violation.text) == ("validity", "g1/0 delivers a, which is for g0")
    assert not any(watcher.behind().values()), "and b goes on"


def test_destinations_that_never_become_known_are_bounded() -> None:
    watcher = Watcher(window=10)
    names = [chr(ord("A") + i) for i in range(40)]
    for process in ("g0/0", "g0/1", "g1/0"):
        watcher.take(delivers(process, "".join(names), dict.fromkeys(names)))
        watcher.settle()
    assert watcher.guessed >= 40 and watcher.state.apart
    assert not watcher.unresolved() and not watcher.violations and not any(watcher.behind().values())


def test_who_is_back_in_pieces_is_waited_for_when_it_is_level() -> None:
    """Not before: what the others passed without it would be taken for new."""
    for waiting in (True, False):
        watcher = Watcher()
        for process, messages in (("g0/0", "abcde"), ("g0/1", "abcde"), ("g0/2", "a")):
            watcher.take(delivers(process, messages, {}))
        watcher.settle(wait=False)
        for i, message in enumerate("bcdefg", 1):
            watcher.take(delivers("g0/2", message, {}, i))
            watcher.settle(waiting)
        for process in ("g0/0", "g0/1"):
            watcher.take(delivers(process, "fg", {}, 5))
        watcher.settle(waiting)
        assert not watcher.violations and not any(watcher.behind().values())
        assert watcher.pairs == 21
