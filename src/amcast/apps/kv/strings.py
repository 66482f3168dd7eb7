"""What each command does to a store: Redis 7's semantics and error texts.

A result is what RESP can say: bytes, an integer, None, a list; a str is a status, or an error if it starts with "-".
"""

from typing import Final, TypeAlias

from amcast.apps.kv.glob import matcher
from amcast.apps.kv.slots import SLOTS
from amcast.apps.kv.store import Store
from amcast.errors import CommandRefused

Result: TypeAlias = "bytes | int | str | list[Result] | None"
Command: TypeAlias = list[bytes]  # the name in capitals, then the arguments

OK: Final = "OK"
NOT_AN_INTEGER: Final = "-ERR value is not an integer or out of range"
SYNTAX: Final = "-ERR syntax error"
OVERFLOW: Final = "-ERR increment or decrement would overflow"
TOO_LONG: Final = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
LARGEST_VALUE: Final = 2**20
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def integer(text: bytes) -> int:
    """Return a decimal number of 64 bits as Redis reads it: no blanks, no plus, no leading zeros."""
    digits = text[1:] if text[:1] == b"-" else text
    if digits.isdigit() and len(digits) < 20 and (digits[0] != 0x30 or text == b"0"):
        number = int(text)
        if LOWEST <= number <= HIGHEST:
            return number
    raise CommandRefused(NOT_AN_INTEGER)


def wrong_arguments(name: bytes) -> str:
    return f"-ERR wrong number of arguments for '{name.decode(errors='replace').lower()}' command"


def invalid_expiry(name: bytes) -> str:
    return f"-ERR invalid expire time in '{name.decode().lower()}' command"


# Values


def get(store: Store, args: Command) -> Result:
    return store.get(args[1])


EXPIRY_OPTIONS: Final = {b"EX": (1000, True), b"PX": (1, True), b"EXAT": (1000, False), b"PXAT": (1, False)}


def options_of(args: Command, start: int, allowed: tuple[bytes, ...]) -> tuple[set[bytes], tuple[bytes, bytes] | None]:
    """Return the flags, and the option that sets an expiry with its time. It may come again, no other one with it."""
    flags: set[bytes] = set()
    expiry: tuple[bytes, bytes] | None = None
    at = start
    while at < len(args):
        option = args[at].upper()
        if option in EXPIRY_OPTIONS and at + 1 < len(args) and (expiry is None or expiry[0] == option):
            expiry = option, args[at + 1]
            at += 1
        elif option in allowed:
            flags.add(option)
        else:
            raise CommandRefused(SYNTAX)
        at += 1
    if {b"NX", b"XX"} <= flags or (expiry is not None and flags & {b"KEEPTTL", b"PERSIST"}):
        raise CommandRefused(SYNTAX)
    return flags, expiry


def set_(store: Store, args: Command) -> Result:
    key, value = args[1], args[2]
    if len(args) == 3:
        store.put(key, value)
        return OK
    flags, expiry = options_of(args, 3, (b"NX", b"XX", b"GET", b"KEEPTTL"))
    expires = 0 if expiry is None else expiry_time(store, args[0], *expiry)
    old = store.entry(key)
    if (old is None) if b"XX" in flags else (old is not None and b"NX" in flags):
        return old[0] if old is not None and b"GET" in flags else None
    if b"KEEPTTL" in flags and old is not None:
        expires = old[1]
    store.put(key, value, expires)
    if b"GET" in flags:
        return None if old is None else old[0]
    return OK


def expiry_time(store: Store, name: bytes, option: bytes, text: bytes) -> int:
    unit, relative = EXPIRY_OPTIONS[option]
    time = integer(text)
    if time <= 0 or time > HIGHEST // unit or time * unit > HIGHEST - store.now * relative:
        raise CommandRefused(invalid_expiry(name))
    return time * unit + store.now * relative


def setnx(store: Store, args: Command) -> Result:
    if store.get(args[1]) is not None:
        return 0
    store.put(args[1], args[2])
    return 1


def setex(store: Store, args: Command) -> Result:
    store.put(args[1], args[3], expiry_time(store, args[0], b"PX" if args[0] == b"PSETEX" else b"EX", args[2]))
    return OK


def getset(store: Store, args: Command) -> Result:
    old = store.get(args[1])
    store.put(args[1], args[2])
    return old


def getdel(store: Store, args: Command) -> Result:
    old = store.get(args[1])
    if old is not None:
        store.remove(args[1])
    return old


def getex(store: Store, args: Command) -> Result:
    flags, expiry = options_of(args, 2, (b"PERSIST",))
    old = store.entry(args[1])
    if old is None:
        return None
    expires = 0 if expiry is None else expiry_time(store, args[0], *expiry)
    if 0 < expires <= store.now:
        store.remove(args[1])
    elif expires or (flags and old[1]):
        store.put(args[1], old[0], expires)
    return old[0]


def append(store: Store, args: Command) -> Result:
    value, expires, _ = store.entry(args[1]) or (b"", 0, 0)
    if len(value) + len(args[2]) > LARGEST_VALUE:
        return TOO_LONG
    store.put(args[1], value + args[2], expires)
    return len(value) + len(args[2])


def strlen(store: Store, args: Command) -> Result:
    return len(store.get(args[1]) or b"")


def getrange(store: Store, args: Command) -> Result:
    start, end = integer(args[2]), integer(args[3])
    value = store.get(args[1]) or b""
    if start < 0 and end < 0 and start > end:
        return b""
    start, end = (max(0, len(value) + at) if at < 0 else at for at in (start, end))
    return value[start : end + 1]


def setrange(store: Store, args: Command) -> Result:
    offset, patch = integer(args[2]), args[3]
    if offset < 0:
        return "-ERR offset is out of range"
    value, expires, _ = store.entry(args[1]) or (b"", 0, 0)
    if not patch:
        return len(value)
    if offset + len(patch) > LARGEST_VALUE:
        return TOO_LONG
    value = value[:offset].ljust(offset, b"\0") + patch + value[offset + len(patch) :]
    store.put(args[1], value, expires)
    return len(value)


def add(store: Store, args: Command) -> Result:
    """Execute INCR, DECR, INCRBY and DECRBY."""
    amount = integer(args[2]) if args[0].endswith(b"BY") else 1
    if args[0].startswith(b"DECR"):
        if amount == LOWEST:
            return "-ERR decrement would overflow"
        amount = -amount
    value, expires, _ = store.entry(args[1]) or (b"0", 0, 0)
    number = integer(value) + amount
    if not LOWEST <= number <= HIGHEST:
        return OVERFLOW
    store.put(args[1], b"%d" % number, expires)
    return number


# Several keys


def mget(store: Store, args: Command) -> Result:
    return [store.get(key) for key in args[1:]]


def mset(store: Store, args: Command) -> Result:
    if len(args) % 2 == 0:
        return wrong_arguments(args[0])
    for at in range(1, len(args), 2):
        store.put(args[at], args[at + 1])
    return OK


def msetnx(store: Store, args: Command) -> Result:
    if len(args) % 2 == 0:
        return wrong_arguments(args[0])
    if any(store.get(key) is not None for key in args[1::2]):
        return 0
    mset(store, args)
    return 1


def del_(store: Store, args: Command) -> Result:
    found = [key for key in dict.fromkeys(args[1:]) if store.entry(key) is not None]
    for key in found:
        store.remove(key)
    return len(found)


def exists(store: Store, args: Command) -> Result:
    return sum(store.entry(key) is not None for key in args[1:])


def type_(store: Store, args: Command) -> Result:
    return "none" if store.entry(args[1]) is None else "string"


# Expiry


def expire(store: Store, args: Command) -> Result:
    """Execute EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT, with NX, XX, GT and LT."""
    name = args[0]
    flags = {flag.upper() for flag in args[3:]}
    for flag in args[3:]:
        if flag.upper() not in (b"NX", b"XX", b"GT", b"LT"):
            return f"-ERR Unsupported option {flag.decode(errors='replace')}"
    if b"NX" in flags and len(flags) > 1:
        return "-ERR NX and XX, GT or LT options at the same time are not compatible"
    if b"GT" in flags and b"LT" in flags:
        return "-ERR GT and LT options at the same time are not compatible"
    unit = 1 if name[:1] == b"P" else 1000
    time = integer(args[2])
    base = 0 if name.endswith(b"AT") else store.now
    if not -(-LOWEST // unit) <= time <= HIGHEST // unit or time * unit > HIGHEST - base:
        return invalid_expiry(name)
    expires = time * unit + base
    old = store.entry(args[1])
    if old is None or not expiry_allowed(flags, old[1], expires):
        return 0
    if expires <= store.now:
        store.remove(args[1])
    else:
        store.put(args[1], old[0], expires)
    return 1


def expiry_allowed(flags: set[bytes], current: int, wanted: int) -> bool:
    """Return whether the options allow a new expiry. None at all counts as one in the infinite future."""
    if b"NX" in flags and current:
        return False
    if b"XX" in flags and not current:
        return False
    if b"GT" in flags and (not current or wanted <= current):
        return False
    return not (b"LT" in flags and current and wanted >= current)


def ttl(store: Store, args: Command) -> Result:
    """Execute TTL, PTTL, EXPIRETIME and PEXPIRETIME."""
    found = store.entry(args[1])
    if found is None:
        return -2
    if not found[1]:
        return -1
    time = found[1] if args[0].endswith(b"TIME") else found[1] - store.now
    return time if args[0][:1] == b"P" else (time + 500) // 1000


def persist(store: Store, args: Command) -> Result:
    found = store.entry(args[1])
    if found is None or not found[1]:
        return 0
    store.put(args[1], found[0])
    return 1


# All keys


def dbsize(store: Store, args: Command) -> Result:
    return store.size()


def keys(store: Store, args: Command) -> Result:
    return list(store.keys(matcher(args[1])))


def cursor_of(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise CommandRefused("-ERR invalid cursor")
    return min(int(text), SLOTS)


def scan(store: Store, args: Command) -> Result:
    cursor, pattern, count, kind = cursor_of(args[1]), b"*", 10, b""
    if len(args) % 2:
        raise CommandRefused(SYNTAX)
    for option, value in zip(args[2::2], args[3::2], strict=True):
        match option.upper():
            case b"MATCH":
                pattern = value
            case b"COUNT":
                count = integer(value)
            case b"TYPE":
                kind = value.lower()
            case _:
                raise CommandRefused(SYNTAX)
    if count < 1:
        raise CommandRefused(SYNTAX)
    slot, found = store.scan(cursor, count)
    store.room -= len(found)
    matches = matcher(pattern)
    return [b"%d" % slot, [key for key in found if matches(key)] if kind in (b"", b"string") else []]


def flush(store: Store, args: Command) -> Result:
    if len(args) > 2 or (len(args) == 2 and args[1].upper() not in (b"ASYNC", b"SYNC")):
        return SYNTAX
    store.clear()
    return OK
