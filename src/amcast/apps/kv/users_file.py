"""The file of the store's users, and what it keeps of their passwords.

    [alice]
    password = "scrypt:14:8:5:SALT:HASH"   # log2 of n, r, p; made by 'amcast kv-user'
    may = ["read", "write"]                # of read, write and admin
    keys = ["orders:*"]                    # patterns as in KEYS; commands over all keys need "*"

Redis keeps the SHA-256 of a password, because it checks one for every connection, and asks for passwords that no one
can guess. People choose others, and a copy of the file must not give those away: scrypt takes 16 MiB and a fifth of a
second for every guess. What a gateway does to pay that seldom stands in users.py.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
import tomllib
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from amcast.apps.kv.commands import RIGHTS
from amcast.apps.kv.users import User
from amcast.errors import UsageError, meant
from amcast.runtime.certificates import write_whole

FILE: Final = "kv-users.toml"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
KEYS: Final = ("password", "may", "keys")
Cost = tuple[int, int, int]
COST: Final[Cost] = (14, 8, 5)  # log2 of n, r, p
NOBODY: Final = (
    "scrypt:14:8:5:AAAAAAAAAAAAAAAAAAAAAA==:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="  # at the same cost
)
SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 512


# Passwords


def hashed(password: str, cost: Cost = COST) -> str:
    """Return what is kept of a password: something else each time."""
    salt = secrets.token_bytes(16)
    words = [*map(str, cost), *(base64.b64encode(part).decode() for part in (salt, _scrypt(password, cost, salt)))]
    return ":".join(["scrypt", *words])


def _scrypt(password: str, cost: Cost, salt: bytes) -> bytes:
    log_n, r, p = cost
    data = password.encode(errors="surrogateescape")
    return hashlib.scrypt(data, salt=salt, n=1 << log_n, r=r, p=p, maxmem=2**27, dklen=32)


def _parsed(kept: str) -> tuple[Cost, bytes, bytes]:
    """Return cost, salt and hash. Raises ValueError for what `hashed` did not make."""
    kind, log_n, r, p, salt, expected = kept.split(":")
    cost = int(log_n), int(r), int(p)
    if kind != "scrypt" or not (1 <= cost[0] <= 16 and 1 <= cost[1] <= 8 and 1 <= cost[2] <= 16):
        raise ValueError(kept)
    return cost, base64.b64decode(salt, validate=True), base64.b64decode(expected, validate=True)


def is_right(kept: str, password: str) -> bool:
    """Return whether this is the password of which that was kept; never if that is nothing, but not any sooner."""
    cost, salt, expected = _parsed(kept or NOBODY)
    return hmac.compare_digest(_scrypt(password, cost, salt), expected) and bool(kept)


# The file


def read_users(path: Path) -> dict[str, User] | None:
    """Return the users in a file, by name; None if there is no such file."""
    try:
        status = path.stat()
        document = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); 'amcast kv-user' makes it") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error
    if status.st_mode & 0o077 and not (status.st_uid == 0 and os.geteuid() != 0 and not status.st_mode & 0o037):
        raise UsageError(f"{path}: mode {status.st_mode & 0o777:04o}: others may use it; chmod 0600 {path}")
    return {name: _user(f"{path}: [{name}]", name, table) for name, table in document.items()}


def _user(where: str, name: str, table: object) -> User:
    if not NAME.fullmatch(name):
        raise UsageError(f"{where}: expected a name of up to 63 letters, digits, _, . and -")
    if not isinstance(table, dict) or set(table) != set(KEYS):
        raise UsageError(f"{where}: expected a table with {', '.join(KEYS)}; 'amcast kv-user' makes it")
    try:
        _parsed(table["password"])
    except (ValueError, TypeError, AttributeError, NotBase64):
        raise UsageError(f"{where}: password is not what 'amcast kv-user' writes; set it anew with that") from None
    for key in ("may", "keys"):
        if not isinstance(table[key], list) or not all(isinstance(word, str) for word in table[key]):
            raise UsageError(f"{where}: {key} = {table[key]!r}: expected a list of texts")
    return User(name, table["password"], rights(where, table["may"]), tuple(table["keys"]))


def rights(where: str, words: Iterable[str]) -> frozenset[str]:
    found = frozenset(words)
    for word in sorted(found - set(RIGHTS)):
        raise UsageError(f"{where}: there is no right {word!r}; {meant(word, RIGHTS)}")
    return found


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Write the file, for its owner alone, as a whole or not at all."""
    lines = ["# Users of the store. 'amcast kv-user' changes it; a gateway reads it at its start and on SIGHUP.\n"]
    for user in users.values():
        lines.append(f"[{_text(user.name)}]\npassword = {_text(user.password)}\n")
        lines.append(f"may = {_texts(word for word in RIGHTS if word in user.may)}\nkeys = {_texts(user.keys)}\n")
    write_whole(path, "\n".join(lines).encode(), 0o600)


def _texts(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _text(word: str) -> str:
    """Return a text in quotes as TOML reads it."""
    return '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 or ord(c) == 127 else c for c in word) + '"'


def sound_password(text: str) -> str:
    """Return the password in what was typed or read: one line, not too short. Raises UsageError."""
    password = text.removesuffix("\n").removesuffix("\r")
    if "\n" in password or "\r" in password or "\0" in password:
        raise UsageError("a password of several lines: expected one")
    if not SHORTEST_PASSWORD <= len(password.encode()) <= LONGEST_PASSWORD:
        size = len(password.encode())
        raise UsageError(f"a password of {size} bytes: expected {SHORTEST_PASSWORD} to {LONGEST_PASSWORD}")
    return password
