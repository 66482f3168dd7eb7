"""The disk of a simulated process: what it recorded, and what of that a crash may lose."""

from typing import final

from amcast.core.wire import AppMessage


@final
class Disk:
    def __init__(self) -> None:
        self.durable: list[bytes] = []
        self.unsynced: list[bytes] = []
        self.unsure: list[tuple[AppMessage, int]] = []  # delivered, with a record that is not durable

    def sync(self) -> list[tuple[AppMessage, int]]:
        """All records so far are durable; the deliveries that count from now on."""
        self.durable.extend(self.unsynced)
        self.unsynced.clear()
        sure = self.unsure
        self.unsure = []
        return sure

    def lose(self) -> None:
        self.unsynced.clear()
        self.unsure.clear()
