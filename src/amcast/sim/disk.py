"""The disk of a simulated process: what it recorded, and what of that a crash may lose."""

from typing import final

from amcast.core.wire import AppMessage
from amcast.errors import InvariantViolation


@final
class Disk:
    def __init__(self) -> None:
        self.durable: list[bytes] = []
        self.unsynced: list[bytes] = []
        self.unsure: list[tuple[AppMessage, int]] = []  # delivered, with a record that is not durable
        self.delivered: list[tuple[AppMessage, int]] = []  # with a durable record, in all its lives
        self.place = 0  # in `delivered`, of this life
        self.lost = False
        self.clean = True  # nothing is missing from the end of the records, so far as anybody can tell
        self.starts = 1
        self.copy: list[bytes] | None = None  # of the records, made earlier …
        self.starts_of_copy = 0  # … after so many starts

    def sync(self) -> list[tuple[AppMessage, int]]:
        """Make all records so far durable; return the deliveries that count from now on."""
        self.durable.extend(self.unsynced)
        self.unsynced.clear()
        sure, self.unsure = self.unsure, []
        return sure

    def replace(self, records: list[bytes]) -> None:
        """Put in a new disk with these records."""
        self.durable = records
        self.place = 0
        self.lost = False
        self.clean = True

    def lose(self) -> None:
        self.unsynced.clear()
        self.unsure.clear()

    def deliver(self, m: AppMessage, ts: int) -> bool:
        """Tell whether this is news. What an earlier life delivered here is not, and must have been the same."""
        self.place += 1
        if self.place > len(self.delivered):
            self.delivered.append((m, ts))
            return True
        if self.delivered[self.place - 1][0].mid != m.mid:
            before = self.delivered[self.place - 1][0]
            raise InvariantViolation(f"{m} delivered where an earlier life delivered {before}")
        return False
