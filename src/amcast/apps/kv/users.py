"""Who may use the store, and for what.

Users stand in a file beside cluster.toml (users_file.py). Without it everybody may do everything, and only on loopback.
With it, whoever has not logged in may do nothing.

To check a password takes a fifth of a second on purpose. A gateway pays that once for each password, and then remembers
a keyed digest of what was right, in memory. Wrong ones are checked one after the other in a thread: guessing delays
only those who log in for the first time.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from amcast.apps.kv.glob import matcher
from amcast.errors import CommandRefused
from amcast.runtime.machine import Machine

DEFAULT: Final = "default"  # who logs in with a password alone
NOT_LOGGED_IN: Final = "-NOAUTH Authentication required."
WRONG_PASSWORD: Final = "-WRONGPASS invalid username-password pair or user is disabled."
TOO_MANY_LOGINS: Final = "-BUSY too many are logging in; try again later"
NOT_THESE_KEYS: Final = "-NOPERM this user has no permissions to access one of the keys used as arguments"


@dataclass(frozen=True)
class User:
    """A user and what it may do. `password` is what the file keeps of it."""

    name: str
    password: str
    may: frozenset[str]
    keys: tuple[str, ...]

    @cached_property
    def _matchers(self) -> list[Callable[[bytes], bool]]:
        return [matcher(pattern.encode()) for pattern in self.keys]

    def refusal(self, name: bytes, needs: frozenset[str], keys: list[bytes] | None) -> str | None:
        """Return why this user may not do what needs these rights on these keys (None: on all); None if it may."""
        if not needs <= self.may:
            return f"-NOPERM this user has no permissions to run the '{name.decode(errors='replace').lower()}' command"
        if keys is None:
            return None if "*" in self.keys else NOT_THESE_KEYS
        try:
            fits = all(any(matches(key) for matches in self._matchers) for key in keys)
        except CommandRefused as refused:
            return str(refused)
        return None if fits else NOT_THESE_KEYS


class Users:
    """The users of a gateway. `check` says whether what was kept is of this password, and takes its time."""

    def __init__(self, by_name: Mapping[str, User], check: Callable[[str, str], bool], machine: Machine) -> None:
        self._by_name = dict(by_name)
        self._check = check
        self._most_waiting = machine.limits.logins_waiting  # for their turn
        self._key = machine.random.randbytes(32)  # of the digests below, which nobody else sees
        self._right: dict[str, bytes] = {}  # by what is kept of a password, a digest of the password
        self._turn = asyncio.Lock()
        self._waiting = 0

    def replace(self, by_name: Mapping[str, User]) -> None:
        """Go on with other users: from now on, also for those who are logged in."""
        self._by_name = dict(by_name)
        self._right = {}

    def get(self, name: str) -> User | None:
        return self._by_name.get(name)

    async def log_in(self, name: str, password: str) -> str | None:
        """Return why this is not the password of this user; None if it is.

        An unknown name takes as long as a wrong password, and gets the same answer.
        """
        user = self._by_name.get(name)
        kept = user.password if user is not None else ""
        digest = hmac.digest(self._key, f"{kept} {password}".encode(errors="surrogateescape"), "sha256")
        if hmac.compare_digest(self._right.get(kept, b""), digest):
            return None
        if self._waiting >= self._most_waiting:
            return TOO_MANY_LOGINS
        self._waiting += 1
        try:
            async with self._turn:
                loop = asyncio.get_running_loop()
                right = await loop.run_in_executor(None, self._check, kept, password)
        finally:
            self._waiting -= 1
        if user is None or not right or self._by_name.get(name) != user:
            return WRONG_PASSWORD
        self._right[kept] = digest
        return None
