"""Leader selection by heartbeats (Ω): who should lead a group, as one of its members sees it.

Every member sends heartbeats to the others. One that stays silent for too long is suspected, and trusted again with
twice the patience when it is heard after all. The nominee is the first member that is not suspected, so once the
network behaves all correct members agree on it. A nominee that does not get through tries again with back-off.
"""

from typing import ClassVar, Final, final

from amcast.core.process import Params
from amcast.core.wire import Background
from amcast.protocols.parts.failure_detectors import FailureDetector

LONGEST_BACKOFF: Final = 64  # in δ: bounds the time to converge after a long disturbance


@final
class Heartbeat(Background):
    """The sender joined `ballot` and works in `cballot`; `delivered` is the timestamp of its last delivery."""

    wire: ClassVar[dict[str, object]] = {"ballot": int, "cballot": int, "delivered": int}

    def __init__(self, ballot: int, cballot: int, delivered: int) -> None:
        self.ballot = ballot
        self.cballot = cballot
        self.delivered = delivered


@final
class LeaderElection:
    """The view of one member, by rank within the group."""

    def __init__(self, rank: int, size: int, params: Params, now: int) -> None:
        self.rank = rank
        self.params = params
        self.detector = FailureDetector(tuple([r for r in range(size) if r != rank]), size, params, now)
        self._backoff = 8 * params.delta
        self._not_before = 0

    def heard(self, rank: int, now: int) -> bool:
        """A heartbeat arrived. True if the member was suspected until now."""
        return self.detector.heard(rank, now)

    def newly_suspected(self, now: int) -> list[int]:
        """The members that have become suspect by now."""
        return self.detector.newly_suspected(now)

    def suspect(self, rank: int) -> None:
        self.detector.suspected[rank] = True

    def nominee(self) -> int:
        for rank in range(self.rank):
            if not self.detector.suspected[rank]:
                return rank
        return self.rank

    def may_try(self, now: int) -> bool:
        """This member is the nominee and its last attempt is long enough ago."""
        return self.nominee() == self.rank and now >= self._not_before

    def tried(self, now: int) -> None:
        self._not_before = now + self._backoff
        self._backoff = min(2 * self._backoff, LONGEST_BACKOFF * self.params.delta)

    def succeeded(self) -> None:
        self._backoff = 8 * self.params.delta
