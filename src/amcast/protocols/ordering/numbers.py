"""A number for each sender, for ever: clients come and go, and nobody knows which of them are gone for good.

What was delivered of a sender may not be forgotten, for a late copy would be delivered once more
(docs/decisions/0027-idle-sessions.md). So the numbers of senders that have been quiet take some six bytes each.
"""

from typing import Final, final

from amcast.protocols.parts.sessions import IdleSenders

MOST_RECENT: Final = 1024  # numbers that are kept in a dictionary, where each takes twenty times as much


@final
class Numbers:
    """The numbers of all senders; 0 for one of which nothing is known."""

    def __init__(self) -> None:
        self.recent: dict[int, int] = {}
        self.idle = IdleSenders()

    def get(self, q: int) -> int:
        n = self.recent.get(q)
        return n if n is not None else self.idle.get(q)

    def put(self, q: int, n: int) -> None:
        recent = self.recent
        recent[q] = n
        if len(recent) > MOST_RECENT:  # whoever is not quiet comes back with its next number
            self.idle.put(sorted(recent.items()))
            recent.clear()

    def rows(self) -> list[tuple[int, int]]:
        """Return all senders and their numbers, in the order of the senders."""
        known = dict(self.idle.rows())
        known.update(self.recent)
        return sorted(known.items())
