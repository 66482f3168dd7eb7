"""Leader selection by heartbeats (Ω): who should lead a group, as one of its members sees it.

Every member sends heartbeats to the others. One that stays silent for too long is suspected, and trusted again with
twice the patience when it is heard after all. The nominee is the first member that is not suspected, so once the
network behaves all correct members agree on it. A nominee that does not get through tries again with back-off.
"""

from typing import ClassVar, Final, final

from amcast.core.process import Params
from amcast.core.wire import Background

LONGEST_BACKOFF: Final = 64  # in δ: bounds the time to converge after a long disturbance
MOST_PATIENCE: Final = 8  # times the first one: a member that crashes often must not be waited for ever longer
CALM: Final = 20  # times the patience, without suspicion, after which it is halved


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
        self._heard = [now] * size
        self._patience = [params.suspect_after] * size
        self._calm_since = [now] * size
        self._suspected = [False] * size
        self._backoff = 8 * params.delta
        self._not_before = 0

    def heard(self, rank: int, now: int) -> bool:
        """A heartbeat arrived. True if the member was suspected until now."""
        silence = now - self._heard[rank]
        self._heard[rank] = now
        patience = self._patience[rank]
        if not self._suspected[rank]:
            if patience > self.params.suspect_after and now - self._calm_since[rank] > CALM * patience:
                self._patience[rank] = patience // 2  # what made it late is over
                self._calm_since[rank] = now
            return False
        self._suspected[rank] = False
        self._calm_since[rank] = now
        if silence > patience:  # it was really late: patience was too short, unless it was down or cut off
            self._patience[rank] = min(2 * patience, MOST_PATIENCE * self.params.suspect_after)
        return True

    def newly_suspected(self, now: int) -> list[int]:
        """The members that have become suspect by now."""
        silent: list[int] = []
        for rank in range(len(self._heard)):
            if rank != self.rank and not self._suspected[rank] and now - self._heard[rank] > self._patience[rank]:
                self._suspected[rank] = True
                silent.append(rank)
        return silent

    def suspect(self, rank: int) -> None:
        self._suspected[rank] = True

    def nominee(self) -> int:
        for rank in range(self.rank):
            if not self._suspected[rank]:
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
