"""Guards the claim of checks/serializable: it alarms at every anomaly that has a name, never at a history that has an
order, and always at a small one that has none.

The last two are compared with a search by brute force, which tries every order of every choice of unknown outcomes.
"""

import random
from dataclasses import replace
from itertools import combinations

import pytest

from amcast.checks.serializable import UNHEARD, Append, Call, Get, Increment, Outcome, Put, check_history
from amcast.checks.serializable.calls import Step, Value
from amcast.errors import UsageError

UNKNOWN, REFUSED = Outcome.UNKNOWN, Outcome.REFUSED


def call(
    began: float, ended: float, *steps: Step, outcome: Outcome = Outcome.DONE, groups: tuple[int, ...] = ()
) -> Call:
    return Call(f"c{began}", began, ended, steps, outcome, groups)


# Histories that are wrong in known ways

WRONG: dict[str, tuple[str, list[Call]]] = {
    "lost update of a counter": (
        "lost update",
        [call(0, 3, Increment("c", 1)), call(1, 2, Increment("c", 1))],
    ),
    "acknowledged increment is gone": (
        "stale read",
        [call(0, 1, Increment("c", 1)), call(2, 3, Increment("c", 2)), call(4, 5, Get("c", 1))],
    ),
    "increment that was executed twice": (
        "repeated update",
        [call(0, 1, Increment("c", 1)), call(2, 3, Increment("c", 3)), call(4, 5, Get("c", 3))],
    ),
    "increment of unknown outcome cannot count before it began": (
        "repeated update",
        [call(0, 1, Increment("c", 2)), call(2, 3, Increment("c"), outcome=UNKNOWN)],
    ),
    "refused increment counted": (
        "repeated update",
        [call(0, 1, Increment("c"), outcome=REFUSED), call(2, 3, Get("c", 1))],
    ),
    "stale read of a register": (
        "stale read",
        [call(0, 1, Put("r", "a")), call(2, 3, Put("r", "b")), call(4, 5, Get("r", "a"))],
    ),
    "acknowledged write is gone": ("stale read", [call(0, 1, Put("r", "a")), call(2, 3, Get("r", None))]),
    "two readers see a write come and go": (
        "stale read",
        [call(0, 9, Put("r", "a")), call(1, 2, Get("r", "a")), call(3, 4, Get("r", None))],
    ),
    "write of unknown outcome comes and goes": (
        "stale read",
        [
            call(0, 1, Put("r", "a")), call(2, 3, Put("r", "b"), outcome=UNKNOWN),
            call(4, 5, Get("r", "b")), call(6, 7, Get("r", "a")),
        ],
    ),
    "read before the write began": ("read before write", [call(0, 1, Get("r", "a")), call(2, 3, Put("r", "a"))]),
    "read of a refused write": (
        "aborted read",
        [call(0, 1, Put("r", "a"), outcome=REFUSED), call(2, 3, Get("r", "a"))],
    ),
    "read of what nobody wrote": ("value from nowhere", [call(2, 3, Get("r", "a"))]),
    "swap lost an update": (
        "not serializable",
        [call(0, 5, Put("r", "a", before=None)), call(1, 4, Put("r", "b", before=None))],
    ),
    "aborted read (G1a) of an append": (
        "aborted read",
        [call(0, 1, Append("x", "1"), outcome=REFUSED), call(0, 1, Get("x", ("1",)))],
    ),
    "intermediate read (G1b)": (
        "intermediate read",
        [
            call(0, 9, Append("x", "1"), Append("x", "2")), call(1, 8, Get("x", ("1",))),
            call(10, 11, Get("x", ("1", "2"))),
        ],
    ),
    "circular information (G1c)": (
        "circular information",
        [
            call(0, 9, Append("x", "1"), Get("y", ("2",))), call(0, 9, Append("y", "2"), Get("x", ("1",))),
        ],
    ),
    "dirty write (G0)": (
        "dirty write",
        [
            call(0, 9, Append("x", "1"), Append("y", "1")), call(0, 9, Append("x", "2"), Append("y", "2")),
            call(10, 11, Get("x", ("1", "2"))), call(10, 11, Get("y", ("2", "1"))),
        ],
    ),
    "write skew (G2)": (
        "write skew",
        [
            call(0, 9, Get("x", ()), Append("y", "1")), call(0, 9, Get("y", ()), Append("x", "2")),
            call(10, 11, Get("x", ("2",)), Get("y", ("1",))),
        ],
    ),
    "fractured read": (
        "fractured read",
        [
            call(0, 9, Append("x", "1"), Append("y", "1")), call(0, 9, Get("x", ("1",)), Get("y", None)),
            call(10, 11, Get("x", ("1",)), Get("y", ("1",))),
        ],
    ),
    "fractured read of an unknown outcome": (
        "fractured read",
        [
            call(0, 1, Append("x", "1"), Append("y", "1"), outcome=UNKNOWN),
            call(2, 3, Get("x", ("1",)), Get("y", None)),
        ],
    ),
    "lost update of a list": (
        "lost update",
        [
            call(0, 9, Get("x", ()), Append("x", "1")), call(0, 9, Get("x", ()), Append("x", "2")),
            call(10, 11, Get("x", ("1", "2"))),
        ],
    ),
    "real time over two keys": (
        "real time",
        [
            call(0, 9, Append("x", "1"), Append("y", "1")), call(1, 2, Get("x", ("1",))), call(3, 4, Get("y", ())),
            call(10, 11, Get("y", ("1",))),
        ],
    ),
    "duplicate append": ("duplicate append", [call(0, 1, Append("x", "1")), call(2, 3, Get("x", ("1", "1")))]),
    "lost append": ("lost append", [call(0, 1, Append("x", "1")), call(2, 3, Get("x", ()))]),
    "lost append in the middle": (
        "lost append",
        [call(0, 1, Append("x", "1", 1)), call(2, 3, Append("x", "2", 1)), call(4, 9, Get("x", ("2",)))],
    ),
    "append in another place than it said": (
        "orders differ",
        [call(0, 1, Append("x", "1", 2)), call(0, 3, Append("x", "2", 1)), call(4, 9, Get("x", ("1", "2")))],
    ),
    "stale list": (
        "stale read",
        [call(0, 1, Append("x", "1")), call(2, 3, Get("x", ())), call(4, 5, Get("x", ("1",)))],
    ),
    "two replicas with two orders": (
        "orders differ",
        [
            call(0, 9, Append("x", "1")), call(0, 9, Append("x", "2")),
            call(10, 11, Get("x", ("1", "2"))), call(10, 11, Get("x", ("2", "1"))),
        ],
    ),
    "longer than all appends together": ("duplicate append", [call(0, 1, Append("x", "1", 2))]),
    "appends of one call turned round": (
        "orders differ",
        [call(0, 1, Append("x", "1"), Append("x", "2")), call(0, 1, Get("x", ("2", "1")))],
    ),
    "first append of a call missing": (
        "orders differ",
        [call(0, 1, Append("x", "1"), Append("x", "2")), call(0, 1, Get("x", ("2",)))],
    ),
    "own append not found": ("own append", [call(0, 1, Append("x", "1"), Get("x", ()))]),
    "own append found before it was made": ("own append", [call(0, 1, Get("x", ("1",)), Append("x", "1"))]),
    "fractured MGET": (
        "not serializable",
        [call(0, 9, Put("a", "1"), Put("b", "1")), call(1, 8, Get("a", "1"), Get("b", None))],
    ),
    "write skew of registers": (
        "not serializable",
        [call(0, 9, Get("a", None), Put("b", "1")), call(0, 9, Get("b", None), Put("a", "2"))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_anomaly_is_found_named_and_shown(name: str) -> None:
    kind, calls = WRONG[name]
    judgement = check_history(calls)
    assert (judgement.status, judgement.kind) == ("violated", kind), str(judgement)
    assert judgement.calls and set(judgement.calls) <= set(calls)
    assert not exists(calls), "the example is wrong"


def test_a_cycle_is_told_in_words() -> None:
    assert str(check_history(WRONG["fractured read"][1])) == (
        "fractured read: T1 was found in x by T2, T2 did not find in y T1: a cycle; x is [1]; y is [1]\n"
        "    c0 [0.000000 … 9.000000] append 1 to x; append 1 to y\n"
        "    c0 [0.000000 … 9.000000] get x → [1]; get y → nothing"
    )


def test_a_search_shows_few_calls() -> None:
    noise = [call(n, n + 0.5, Put("a", f"n{n}"), Put("b", f"n{n}")) for n in range(20, 90)]
    reads = [call(n + 0.6, n + 0.7, Get("a", f"n{n}"), Get("b", f"n{n}")) for n in range(20, 90)]
    wrong = call(50.8, 50.9, Get("a", "n50"), Get("b", "n49"))
    judgement = check_history([*noise, *reads, wrong])
    assert judgement.kind == "not serializable"
    assert len(judgement.calls) <= 4
    assert wrong in judgement.calls


RIGHT: dict[str, list[Call]] = {
    "an increment of unknown outcome counts later": [
        call(0, 1, Increment("c"), outcome=UNKNOWN), call(2, 3, Get("c", None)), call(4, 5, Increment("c", 2)),
    ],
    "a write of unknown outcome is found later": [
        call(0, 1, Put("r", "a"), outcome=UNKNOWN), call(2, 3, Get("r", None)), call(4, 5, Get("r", "a")),
    ],
    "nobody found it": [call(0, 1, Append("x", "1"), outcome=UNKNOWN), call(2, 3, Get("x", ()))],
    "it read all and appended what nobody found": [call(0, 1, Get("x", ()), Append("x", "1"))],
    "it found its own append and made another": [call(0, 1, Append("x", "1"), Get("x", ("1",)), Append("x", "2"))],
    "calls that touch may be in either order": [call(0, 1, Put("r", "a")), call(1, 2, Get("r", None))],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_has_an_order_is_ok(name: str) -> None:
    assert exists(RIGHT[name])
    assert check_history(RIGHT[name]).status == "ok"


def test_real_time_may_bind_groups_only() -> None:
    """Two groups: what is read in one of them says nothing about the other, unless something was sent to both."""
    calls = [
        call(0, 9, Append("x", "1"), Append("y", "1"), groups=(0, 1)), call(1, 2, Get("x", ("1",)), groups=(0,)),
        call(3, 4, Get("y", ()), groups=(1,)), call(10, 11, Get("y", ("1",)), groups=(1,)),
    ]  # fmt: skip
    assert check_history(calls).kind == "real time"
    assert check_history(calls, by_group=True).status == "ok"
    calls.append(call(2.1, 2.2, Get("x", ("1",)), Get("y", ()), groups=(0, 1)))
    assert check_history(calls, by_group=True).status == "violated"
    registers = [
        call(0, 9, Put("x", "1"), Put("y", "1"), groups=(0, 1)), call(1, 2, Get("x", "1"), groups=(0,)),
        call(3, 4, Get("y", None), groups=(1,)),
    ]  # fmt: skip
    assert check_history(registers).kind == "not serializable"
    assert check_history(registers, by_group=True).status == "ok"


def test_nothing_is_not_ok() -> None:
    assert check_history([]).status == "unknown"
    assert check_history([call(0, 1, Put("r", "a"), outcome=UNKNOWN)]).status == "unknown"


def test_values_must_be_unique() -> None:
    with pytest.raises(UsageError, match="a is written to r by two calls"):
        check_history([call(0, 1, Put("r", "a")), call(2, 3, Put("r", "a"))])


def test_real_time_by_groups_needs_groups() -> None:
    with pytest.raises(UsageError, match="names no groups"):
        check_history([call(0, 1, Put("r", "a"))], by_group=True)


def test_too_much_to_search_is_not_ok() -> None:
    calls = [call(0, 9, Put("a", f"{n}"), Put("b", f"{n}")) for n in range(8)]
    calls += [call(0, 9, Get("a", f"{n}"), Get("b", f"{(n + 1) % 8}")) for n in range(8)]
    judgement = check_history(calls, budget=500)
    assert (judgement.status, judgement.kind) == ("unknown", "undecided")


# Random histories

State = dict[str, Value]


def execute(state: State, one: Call) -> Call:
    """Carry out a call on one store; return it with the answers."""
    steps: list[Step] = []
    for step in one.steps:
        value = state.get(step.key)
        match step:
            case Get():
                steps.append(replace(step, found=value))
            case Put():
                steps.append(replace(step, before=value) if step.before is not UNHEARD else step)
                state[step.key] = step.value
            case Append():
                elements = (*value, step.value) if isinstance(value, tuple) else (step.value,)
                steps.append(replace(step, length=len(elements)) if step.length is not None else step)
                state[step.key] = elements
            case Increment():
                total = value + 1 if isinstance(value, int) else 1
                steps.append(replace(step, total=total))
                state[step.key] = total
    return replace(one, steps=tuple(steps))


def exists(calls: list[Call], by_group: bool = False) -> bool:
    """Try every order of every choice of unknown outcomes."""
    heard = [one for one in calls if one.heard]
    unknown = [one for one in calls if one.outcome is UNKNOWN]
    return any(
        ordered([*heard, *some], {}, by_group) for n in range(len(unknown) + 1) for some in combinations(unknown, n)
    )


def ordered(left: list[Call], state: State, by_group: bool) -> bool:
    if not left:
        return True
    for one in left:
        before = [x for x in left if x.heard and x.ended < one.began]
        if any(not by_group or set(x.groups) & set(one.groups) for x in before):
            continue
        after = dict(state)
        answered = execute(after, one)
        same = not one.heard or all(map(agree, answered.steps, one.steps))
        if same and ordered([x for x in left if x is not one], after, by_group):
            return True
    return False


def agree(one: Step, other: Step) -> bool:
    if isinstance(one, Get) and isinstance(other, Get):
        return (one.found or None) == (other.found or None)
    return one == other


def draw(seed: int, size: int, kinds: str, most_steps: int) -> list[Call]:
    """Draw a history with an order: calls that take effect at a moment between their beginning and their end."""
    choose = random.Random(seed)
    overlap = choose.choice((0.5, 3, 10))
    lengths, swaps = choose.random() < 0.5, choose.random() < 0.5
    drawn: list[tuple[float, Call]] = []
    for n in range(size):
        began = n + choose.uniform(0, overlap)
        effect = began + choose.uniform(0, overlap)
        ended = effect + choose.uniform(0, overlap)
        steps: list[Step] = []
        for part in range(choose.randint(1, most_steps)):
            kind = choose.choice(kinds)
            key = f"{kind}{choose.randint(0, 1 if most_steps > 1 else 0)}"
            writes: dict[str, Step] = {
                "r": Put(key, f"{n}.{part}", None if swaps else UNHEARD), "c": Increment(key),
                "x": Append(key, f"{n}.{part}", 0 if lengths else None),
            }  # fmt: skip
            steps.append(writes[kind] if choose.random() < 0.5 else Get(key))
        groups = tuple(sorted({int(step.key[1]) for step in steps}))
        one = Call(f"c{n}", round(began, 3), round(ended, 3), tuple(steps), groups=groups)
        fate = choose.random()
        if fate < 0.15:
            one = replace(one, outcome=UNKNOWN)
            effect = choose.choice((effect, effect + choose.uniform(0, size), float("inf")))
        elif fate < 0.2:
            one, effect = replace(one, outcome=REFUSED), float("inf")
        drawn.append((effect, one))
    state: State = {}
    calls = []
    for effect, one in sorted(drawn, key=lambda pair: pair[0]):
        done = execute(state, one) if effect < float("inf") else one
        calls.append(done if one.heard else unanswered(one))
    choose.shuffle(calls)
    return calls


def unanswered(one: Call) -> Call:
    blank = {Get: {"found": UNHEARD}, Put: {"before": UNHEARD}, Append: {"length": None}, Increment: {"total": None}}
    return replace(one, steps=tuple(replace(step, **blank[type(step)]) for step in one.steps))  # type: ignore[arg-type]


def mutated(calls: list[Call], seed: int) -> list[Call]:
    """Change one answer, or one time."""
    choose = random.Random(seed)
    heard = [n for n, one in enumerate(calls) if one.heard]
    if not heard:
        return calls
    n = choose.choice(heard)
    one = calls[n]
    if choose.random() < 0.3:
        later = choose.uniform(-4, 4)
        return [*calls[:n], replace(one, began=one.began + later, ended=one.ended + later), *calls[n + 1 :]]
    at = choose.randrange(len(one.steps))
    step = one.steps[at]
    values: list[Value] = [s.value for c in calls for s in c.steps if isinstance(s, Put) and s.key == step.key]
    if isinstance(step, Increment) and step.total is not None:
        step = replace(step, total=max(1, step.total + choose.choice((-1, 1))))
    elif isinstance(step, Append) and step.length is not None:
        step = replace(step, length=max(1, step.length + choose.choice((-1, 1))))
    elif isinstance(step, Put) and step.before is not UNHEARD:
        step = replace(step, before=choose.choice([None, *values]))
    elif isinstance(step, Get) and isinstance(step.found, tuple):
        found = list(step.found)
        place = choose.randrange(len(found))
        [found.pop, lambda _: found.reverse(), lambda p: found.insert(0, found[p])][choose.randrange(3)](place)
        step = replace(step, found=tuple(found))
    elif isinstance(step, Get) and isinstance(step.found, int):
        step = replace(step, found=max(0, step.found + choose.choice((-1, 1))))
    elif isinstance(step, Get):
        step = replace(step, found=choose.choice([None, *values]))
    return [*calls[:n], replace(one, steps=(*one.steps[:at], step, *one.steps[at + 1 :])), *calls[n + 1 :]]


FAMILIES = [("r", 1), ("c", 1), ("x", 1), ("x", 3), ("r", 2), ("rcx", 3)]


@pytest.mark.parametrize(("kinds", "most_steps"), FAMILIES)
def test_a_history_with_an_order_is_ok(kinds: str, most_steps: int) -> None:
    for seed in range(25):
        calls = draw(seed, 40, kinds, most_steps)
        judgement = check_history(calls)
        assert judgement.status == "ok", f"seed {seed}: {judgement}"


@pytest.mark.parametrize(("kinds", "most_steps"), FAMILIES)
def test_small_histories_are_judged_as_by_brute_force(kinds: str, most_steps: int) -> None:
    wrong = missed = 0
    for seed in range(400):
        calls = mutated(draw(seed, 6, kinds, most_steps), seed)
        by_group = seed % 2 == 1
        judgement = check_history(calls, by_group=by_group)
        if judgement.status == "unknown":
            assert not any(one.heard for one in calls)
            continue
        right = exists(calls, by_group)
        wrong += not right
        story = "\n".join([f"seed {seed}: {judgement}", *map(str, calls)])
        if judgement.status == "ok" and not right and beyond_all_found(calls):
            missed += 1  # the limit that lists.py names
        else:
            assert judgement.status == ("ok" if right else "violated"), story
    assert wrong > 40
    assert missed < wrong / 10


def beyond_all_found(calls: list[Call]) -> bool:
    """Return whether an append answered a length that no read reaches."""
    found = {(s.key, value) for c in calls for s in c.steps if isinstance(s, Get) and isinstance(s.found, tuple)
             for value in s.found}  # fmt: skip
    appends = [s for c in calls for s in c.steps if isinstance(s, Append) and s.length is not None]
    return any((step.key, step.value) not in found for step in appends)
