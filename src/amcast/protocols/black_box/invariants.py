"""What must hold of the logs of a run and of what is concluded from them, asserted while it goes on.

One `LogMonitor` watches all replicas of a run; the first report that contradicts another raises `InvariantViolation`.
"""

from typing import final

from amcast.core.topology import Mid, Topology
from amcast.core.wire import AppMessage
from amcast.errors import InvariantViolation


@final
class LogMonitor:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._decided: dict[tuple[int, int], tuple[int, int, Mid]] = {}
        self._lts_of: dict[tuple[Mid, int], int] = {}
        self._gts_of: dict[Mid, int] = {}
        self._mid_of: dict[int, Mid] = {}
        self._order: dict[tuple[int, int], Mid] = {}  # what a group delivered, by position

    def decided(self, g: int, i: int, entry: tuple[int, int, AppMessage]) -> None:
        """Check that a place in the log of g is decided alike for everybody."""
        kind, ts, m = entry
        known = self._decided.setdefault((g, i), (kind, ts, m.mid))
        if known != (kind, ts, m.mid):
            self.fail(f"place {i} of g{g} is {known} and {(kind, ts, m.mid)}")

    def hard(self, g: int, mid: Mid, lts: int) -> None:
        """Check that a group promises one timestamp for a message."""
        if self._lts_of.setdefault((mid, g), lts) != lts:
            self.fail(f"g{g} gives {self.name(mid)} the timestamps {self._lts_of[mid, g]} and {lts}")

    def deliver_sent(self, mid: Mid, gts: int) -> None:
        """Check that a leader delivers with one final timestamp per message, and uses none twice."""
        if self._gts_of.setdefault(mid, gts) != gts:
            self.fail(f"{self.name(mid)} is delivered with final timestamps {self._gts_of[mid]} and {gts}")
        if self._mid_of.setdefault(gts, mid) != mid:
            self.fail(f"{self.name(mid)} and {self.name(self._mid_of[gts])} share final timestamp {gts}")

    def delivered(self, g: int, position: int, mid: Mid) -> None:
        """Check that members of a group deliver one message at a position."""
        if self._order.setdefault((g, position), mid) != mid:
            other = self.name(self._order[g, position])
            self.fail(f"g{g} delivers {self.name(mid)} and {other} at position {position}")

    def name(self, mid: Mid) -> str:
        return self.topology.message_name(mid)

    def fail(self, text: str) -> None:
        raise InvariantViolation(f"replicated log: {text}")
