"""Requests that wait at a member for the end of an election."""

from typing import Final, final

from amcast.core.wire import AppMessage

MOST: Final = 1024


@final
class Kept:
    """So many requests, and so many bytes of them. Who sent what has no room sends it again."""

    def __init__(self, most_bytes: int) -> None:
        self.waiting: list[AppMessage] = []
        self._most_bytes = most_bytes
        self._bytes = 0

    def has_room(self, m: AppMessage) -> bool:
        return len(self.waiting) < MOST and self._bytes + len(m.payload) <= self._most_bytes

    def add(self, m: AppMessage) -> None:
        self.waiting.append(m)
        self._bytes += len(m.payload)

    def take(self) -> list[AppMessage]:
        """Return all of them, and keep none."""
        taken = self.waiting
        self.waiting = []
        self._bytes = 0
        return taken
