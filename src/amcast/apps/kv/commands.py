"""The table of commands: how many arguments, where the keys are, and how the groups' parts become one result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from amcast.apps.kv import strings
from amcast.apps.kv.slots import SLOTS, SlotMap, slot_of
from amcast.apps.kv.store import ROOM, Store
from amcast.apps.kv.strings import OK, Command, Result, cursor_of, wrong_arguments
from amcast.errors import CommandRefused

READ, WRITE, ADMIN = "read", "write", "admin"  # what a user may be allowed to do
RIGHTS: Final = (READ, WRITE, ADMIN)
TOO_MUCH: Final = (
    f"-TRYAGAIN not executed: answers to this and what came with it exceed {ROOM >> 20} MiB; ask for less at once"
)


class Keys(Enum):
    ONE = "the first argument"
    EACH = "every argument"
    PAIRS = "every other argument"
    ALL = "the whole store"
    CURSOR = "the whole store of the group that the cursor is in"


@dataclass(frozen=True)
class Spec:
    arity: int  # with the name; -n: n or more
    keys: Keys
    run: Callable[[Store, Command], Result]
    writes: bool = True


ONE, EACH, PAIRS, ALL = Keys.ONE, Keys.EACH, Keys.PAIRS, Keys.ALL
SPECS: Final[dict[bytes, Spec]] = {
    b"GET": Spec(2, ONE, strings.get, False), b"SET": Spec(-3, ONE, strings.set_),
    b"SETNX": Spec(3, ONE, strings.setnx), b"SETEX": Spec(4, ONE, strings.setex),
    b"PSETEX": Spec(4, ONE, strings.setex), b"GETSET": Spec(3, ONE, strings.getset),
    b"GETDEL": Spec(2, ONE, strings.getdel), b"GETEX": Spec(-2, ONE, strings.getex),
    b"APPEND": Spec(3, ONE, strings.append), b"STRLEN": Spec(2, ONE, strings.strlen, False),
    b"GETRANGE": Spec(4, ONE, strings.getrange, False), b"SUBSTR": Spec(4, ONE, strings.getrange, False),
    b"SETRANGE": Spec(4, ONE, strings.setrange), b"INCR": Spec(2, ONE, strings.add), b"DECR": Spec(2, ONE, strings.add),
    b"INCRBY": Spec(3, ONE, strings.add), b"DECRBY": Spec(3, ONE, strings.add),
    b"MGET": Spec(-2, EACH, strings.mget, False), b"MSET": Spec(-3, PAIRS, strings.mset),
    b"MSETNX": Spec(-3, PAIRS, strings.msetnx), b"DEL": Spec(-2, EACH, strings.del_),
    b"UNLINK": Spec(-2, EACH, strings.del_), b"EXISTS": Spec(-2, EACH, strings.exists, False),
    b"TOUCH": Spec(-2, EACH, strings.exists, False), b"TYPE": Spec(2, ONE, strings.type_, False),
    b"EXPIRE": Spec(-3, ONE, strings.expire), b"PEXPIRE": Spec(-3, ONE, strings.expire),
    b"EXPIREAT": Spec(-3, ONE, strings.expire), b"PEXPIREAT": Spec(-3, ONE, strings.expire),
    b"TTL": Spec(2, ONE, strings.ttl, False), b"PTTL": Spec(2, ONE, strings.ttl, False),
    b"EXPIRETIME": Spec(2, ONE, strings.ttl, False), b"PEXPIRETIME": Spec(2, ONE, strings.ttl, False),
    b"PERSIST": Spec(2, ONE, strings.persist), b"DBSIZE": Spec(1, ALL, strings.dbsize, False),
    b"KEYS": Spec(2, ALL, strings.keys, False), b"SCAN": Spec(-2, Keys.CURSOR, strings.scan, False),
    b"FLUSHALL": Spec(-1, ALL, strings.flush), b"FLUSHDB": Spec(-1, ALL, strings.flush),
}  # fmt: skip


def execute(store: Store, command: Command) -> Result:
    """Execute a command; raise nothing. What cannot be executed is answered with an error, the same everywhere.

    A request of 1 MiB can ask for one large value many thousand times: more than any replica could answer, and as it
    stands in the log, none would come back. So nothing is told any more where a request's answers have no room left.
    """
    spec = SPECS.get(command[0]) if command else None
    if spec is None:
        return "-ERR unknown command"
    if store.room <= 0 and READ in rights_for(command):
        return TOO_MUCH
    try:
        result = spec.run(store, command)
    except CommandRefused as refused:
        return str(refused)
    except IndexError:
        return wrong_arguments(command[0])
    if isinstance(result, bytes | list):
        size = size_of(result)
        if size > store.room and not spec.writes:
            return TOO_MUCH
        store.room -= size
    return result


def size_of(result: Result) -> int:
    """Return about how many bytes a result takes."""
    if isinstance(result, list):
        return sum(map(size_of, result))
    return 5 + len(result) if isinstance(result, bytes) else 5


ALSO_READ: Final = {b"GETSET", b"GETDEL", b"GETEX", b"INCR", b"DECR", b"INCRBY", b"DECRBY"}
EMPTY_THE_STORE: Final = {b"FLUSHALL", b"FLUSHDB"}


def rights_for(command: Command) -> frozenset[str]:
    """Return what somebody must be allowed to do who has groups execute this."""
    name = command[0]
    if name in EMPTY_THE_STORE:
        return frozenset((WRITE, ADMIN))
    if not SPECS[name].writes:
        return frozenset((READ,))
    tells = name in ALSO_READ or (name == b"SET" and any(word.upper() == b"GET" for word in command[3:]))
    return frozenset((READ, WRITE) if tells else (WRITE,))


def arity_fits(arity: int, args: Sequence[bytes]) -> bool:
    return len(args) == arity if arity > 0 else len(args) >= -arity


def keys_of(command: Command) -> list[bytes] | None:
    """Return the keys that a command touches; None stands for all of the group."""
    match SPECS[command[0]].keys:
        case Keys.ONE:
            return command[1:2]
        case Keys.EACH:
            return command[1:]
        case Keys.PAIRS:
            return command[1::2]
        case _:
            return None


def slots_of(commands: Sequence[Command]) -> tuple[set[int], bool]:
    """Return the slots that commands touch, and whether one goes to all groups."""
    slots: set[int] = set()
    everywhere = False
    for command in commands:
        keys = keys_of(command)
        if keys is not None:
            slots.update(map(slot_of, keys))
        elif SPECS[command[0]].keys is Keys.ALL:
            everywhere = True
        else:
            slots.add(cursor_slot(command))
    return slots, everywhere


def groups_of(command: Command, slots: SlotMap) -> tuple[int, ...]:
    """Return the groups that a command goes to, in order."""
    if len(slots.groups) == 1:
        return slots.groups
    if SPECS[command[0]].keys is Keys.ONE:
        return (slots.of_key(command[1]),)
    keys = keys_of(command)
    if keys is not None:
        return tuple(sorted({slots.of_key(key) for key in keys}))
    return slots.groups if SPECS[command[0]].keys is Keys.ALL else (slots.of_slot(cursor_slot(command)),)


def cursor_slot(command: Command) -> int:
    try:
        return min(cursor_of(command[1]), SLOTS - 1)
    except CommandRefused:
        return 0  # any group can say what is wrong with it


def part_of(command: Command, group: int, slots: SlotMap) -> Command | None:
    """Return what one of several groups executes of a command."""
    match SPECS[command[0]].keys:
        case Keys.EACH:
            own = [key for key in command[1:] if slots.of_key(key) == group]
            return [command[0], *own] if own else None
        case Keys.PAIRS if len(command) % 2 == 0:
            return command  # to say what is wrong with it
        case Keys.PAIRS:
            pairs = zip(command[1::2], command[2::2], strict=True)
            words = [word for pair in pairs if slots.of_key(pair[0]) == group for word in pair]
            return [command[0], *words] if words else None
        case _:
            return command if group in groups_of(command, slots) else None


def merge(command: Command, parts: dict[int, Result], slots: SlotMap) -> Result:
    """Return one result from those of the groups, of which each executed its part of the command."""
    involved = groups_of(command, slots)
    if len(involved) == 1:
        return parts[involved[0]]
    for group in involved:
        part = parts[group]
        if isinstance(part, str) and part.startswith("-"):
            return part
    if command[0] == b"MGET":
        values = {group: iter(found) for group, found in parts.items() if isinstance(found, list)}
        return [next(values[slots.of_key(key)], None) for key in command[1:]]
    if command[0] == b"KEYS":
        return [key for group in involved if isinstance(found := parts[group], list) for key in found]
    numbers = [part for part in (parts[group] for group in involved) if isinstance(part, int)]
    return sum(numbers) if numbers else OK
