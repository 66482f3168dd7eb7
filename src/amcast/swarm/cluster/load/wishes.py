"""What users of the store want, and what its answers mean.

Keys tell what they hold by their first letter: r a register, s one that is swapped, m one that is written with others,
c a counter, l a list. The store has no lists, so these are strings to which elements of one width are appended. No two
attempts write the same value.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from amcast.apps.kv.commands import groups_of
from amcast.apps.kv.slots import SlotMap
from amcast.apps.kv.strings import Result
from amcast.checks.serializable import Append, Get, Increment, Put
from amcast.checks.serializable.calls import Answer as Heard
from amcast.checks.serializable.calls import Step

WIDTH: Final = 8  # of an element of a list, in bytes


@dataclass(frozen=True)
class Wish:
    """Commands that are to be executed as one, and what they mean as steps of a history."""

    commands: tuple[tuple[bytes, ...], ...]
    steps: tuple[Step, ...]

    @property
    def writes(self) -> bool:
        return any(not isinstance(step, Get) for step in self.steps)


@dataclass(frozen=True)
class Keys:
    """How many keys of each kind there are. `prefix` keeps those of one family of clients from those of another."""

    prefix: str = ""
    registers: int = 3
    swapped: int = 1
    together: int = 3
    counters: int = 2
    lists: int = 4

    def named(self, kind: str, number: int) -> str:
        return f"{kind}:{self.prefix}{number}"

    def everything(self) -> Iterator[Wish]:
        """Yield wishes that read all there is."""
        singles = (("r", self.registers), ("s", self.swapped), ("c", self.counters))
        for kind, size in singles:
            for n in range(size):
                yield wish(get(self.named(kind, n)))
        if self.together:
            yield mget([self.named("m", n) for n in range(self.together)])
        if self.lists:
            yield wish(*(get(self.named("l", n)) for n in range(self.lists)))


Part = tuple[tuple[bytes, ...], tuple[Step, ...]]


def wish(*parts: Part) -> Wish:
    return Wish(tuple([command for command, _ in parts]), tuple([step for _, steps in parts for step in steps]))


def get(key: str) -> Part:
    return (b"GET", key.encode()), (Get(key),)


def append(key: str, value: str) -> Part:
    return (b"APPEND", key.encode(), value.encode()), (Append(key, value),)


def mget(keys: Sequence[str]) -> Wish:
    return wish(((b"MGET", *(key.encode() for key in keys)), tuple([Get(key) for key in keys])))


def draw_wish(random: Random, keys: Keys, value: Callable[[], str]) -> Wish:
    """Draw what a user may want of the store."""
    kinds = "r" * bool(keys.registers) + "s" * bool(keys.swapped) + "m" * (keys.together > 1)
    kinds += "cc" * bool(keys.counters) + "ll" * bool(keys.lists) + "ttw" * (keys.lists > 1)
    kind, reads = random.choice(kinds), random.random() < 0.4
    if kind == "r":
        key = keys.named(kind, random.randrange(keys.registers))
        new = value()
        return wish(get(key) if reads else ((b"SET", key.encode(), new.encode()), (Put(key, new),)))
    if kind == "s":
        key = keys.named(kind, random.randrange(keys.swapped))
        new = value()
        return wish(get(key) if reads else ((b"GETSET", key.encode(), new.encode()), (Put(key, new),)))
    if kind == "c":
        key = keys.named(kind, random.randrange(keys.counters))
        return wish(get(key) if reads else ((b"INCR", key.encode()), (Increment(key),)))
    if kind == "m":
        chosen = [keys.named(kind, n) for n in sorted(random.sample(range(keys.together), 2))]
        if reads:
            return mget(chosen)
        new = value()
        words = [word for key in chosen for word in (key.encode(), new.encode())]
        return wish(((b"MSET", *words), tuple([Put(key, new) for key in chosen])))
    names = [keys.named("l", random.randrange(keys.lists)) for _ in range(1 if kind == "l" else random.randint(2, 4))]
    if kind == "w":  # what is written may depend on what was read
        return wish(*map(get, names[:-1]), append(names[random.randrange(len(names))], value()))
    return wish(*(get(name) if random.random() < 0.4 else append(name, value()) for name in names))


def answered(asked: Wish, results: Sequence[Result]) -> tuple[Step, ...]:
    """Return the steps with what the store answered. Raises ValueError if no store answers so."""
    if len(results) != len(asked.commands):
        raise ValueError(f"{len(results)} answers to {len(asked.commands)} commands")
    following = iter(asked.steps)
    steps: list[Step] = []
    for command, result in zip(asked.commands, results, strict=True):
        values: Sequence[Result] = [result]
        if command[0] == b"MGET":
            if not isinstance(result, list) or len(result) != len(command) - 1:
                raise ValueError(f"{command!r} is answered with {result!r}")
            values = result
        elif command[0] == b"MSET":
            values = [result] * (len(command) // 2)
        steps += [heard(command[0], next(following), value) for value in values]
    return tuple(steps)


def heard(name: bytes, step: Step, result: Result) -> Step:
    match step:
        case Get():
            return replace(step, found=value_of(step.key, result))
        case Put() if name == b"GETSET":
            return replace(step, before=value_of(step.key, result))
        case Put() if result == "OK":
            return step
        case Increment() if isinstance(result, int):
            return replace(step, total=result)
        case Append() if isinstance(result, int) and result > 0 and result % WIDTH == 0:
            return replace(step, length=result // WIDTH)
    raise ValueError(f"‘{step}’ is answered with {result!r}")


def value_of(key: str, result: Result) -> Heard:
    if result is None:
        return None
    if not isinstance(result, bytes):
        raise ValueError(f"{key} holds {result!r}")
    text = result.decode()
    if key.startswith("c"):
        return int(text)
    if not key.startswith("l"):
        return text
    if len(text) % WIDTH:
        raise ValueError(f"{key} holds {len(text)} bytes, expected elements of {WIDTH}")
    return tuple([text[at : at + WIDTH] for at in range(0, len(text), WIDTH)])


def destinations(asked: Wish, slots: SlotMap) -> tuple[int, ...]:
    """Return the groups that the commands of a wish go to."""
    return tuple(sorted({g for command in asked.commands for g in groups_of(list(command), slots)}))
