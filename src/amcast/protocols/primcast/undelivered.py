"""What a replica knows of one message that it has not delivered: its place in the log, and the votes of all groups."""

from typing import final

from mypy_extensions import mypyc_attr

from amcast.core.order import BOTTOM, Slot
from amcast.core.topology import Mid
from amcast.core.wire import AppMessage


@final
@mypyc_attr(acyclic=True)
class Votes:
    """The acknowledgements of one group for one message: those of the newest epoch, and what was decided.

    Older ones may be dropped, for whatever matters is acknowledged again in a new epoch. What is decided stays.
    """

    def __init__(self, g: int) -> None:
        self.g = g
        self.e = BOTTOM
        self.lts = BOTTOM
        self.members = 0  # a bit for each that acknowledged
        self.decided = BOTTOM


@final
@mypyc_attr(acyclic=True)
class Undelivered:
    """A message that this process has heard of and not delivered."""

    def __init__(self, mid: Mid) -> None:
        self.mid = mid
        self.m: AppMessage | None = None  # votes may come before the content
        self.lts = BOTTOM  # in the log of this group, if it is there, …
        self.slot: Slot | None = None  # … and its place among those to deliver
        self.voted = BOTTOM  # the epoch in which this process last acknowledged it
        self.gts = BOTTOM  # the final timestamp, once all groups have decided
        self.votes: list[Votes] = []
        self.recorded = False  # its content is on disk
        self.retry_at = 0
        self.retry_delay = 0

    def votes_of(self, g: int) -> Votes:
        for votes in self.votes:
            if votes.g == g:
                return votes
        votes = Votes(g)
        self.votes.append(votes)
        return votes

    def final_timestamp(self) -> int:
        """Return the largest of the decided timestamps; BOTTOM if not all groups have decided, or are not known."""
        m = self.m
        if m is None or len(self.votes) < len(m.dest):
            return BOTTOM
        gts = BOTTOM
        for votes in self.votes:
            if votes.decided == BOTTOM:
                return BOTTOM
            if votes.decided > gts:
                gts = votes.decided
        return gts
