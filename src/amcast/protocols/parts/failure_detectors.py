"""Failure detectors by heartbeats, as sub-machines: who is suspected to have crashed, as one process sees it.

A process that is watched sends heartbeats; one that stays silent for longer than Δ_to is suspected. What that is worth
depends on the network: P (perfect) never forgives, and is right if Δ_to exceeds the heartbeat period plus the delay of
any message. ◇P (eventually perfect) trusts again whom it hears after all, with twice the timeout, within bounds. Θ is
the set of those that are trusted: some correct process of each group that has one is always among them, if Δ_to is such
as for P, or if the timeout for one correct process of each group never runs out.

A process that stood still itself, stopped or starved, finds everybody silent when it looks again, before it reads what
waits for it. One that says so at every heartbeat (`look`) does not count the time that it missed.
"""

from typing import Final, final

from amcast.core.process import Params
from amcast.core.wire import Background

LONGEST_TIMEOUT: Final = 8  # times the first one: a process that crashes often must not be waited for ever longer
CALM: Final = 20  # times the timeout, without suspicion, after which it is halved


@final
class Alive(Background):
    """A heartbeat that says nothing else."""


ALIVE: Final = Alive()


@final
class FailureDetector:
    """Whom one process suspects. Processes are numbers below `size`; who is not `watched` may be silent."""

    def __init__(self, watched: tuple[int, ...], size: int, params: Params, now: int, forgives: bool = True) -> None:
        self.watched = watched
        self.forgives = forgives
        self.params = params
        self.suspected = [False] * size
        self._heard = [now] * size
        self._timeout = [params.suspect_after] * size
        self._calm_since = [now] * size
        self._known = [False] * size  # was heard at least once
        self._looked = now  # when this process last looked who is silent
        self._was_down = [False] * size  # its silence says nothing about how late it may be

    def watch(self, watched: tuple[int, ...], now: int) -> None:
        """Watch these from now on. Who is new gets time to be heard, and time to start if it never was."""
        for p in watched:
            if p not in self.watched:
                self._heard[p] = now if self._known[p] else now + self.params.grace
        self.watched = watched

    def restarted(self, p: int) -> None:
        """Take note that a process has started again: it was silent because it was down, not because it is slow."""
        self._was_down[p] = True

    def heard(self, p: int, now: int) -> bool:
        """Take a heartbeat; return True if its sender was suspected and is trusted from now on."""
        silence = now - self._heard[p]
        self._heard[p] = now
        self._known[p] = True
        was_down = self._was_down[p]
        self._was_down[p] = False
        timeout = self._timeout[p]
        if not self.suspected[p]:
            if timeout > self.params.suspect_after and now - self._calm_since[p] > CALM * timeout:
                self._timeout[p] = timeout // 2  # what made it late is over
                self._calm_since[p] = now
            return False
        if not self.forgives:
            return False
        self.suspected[p] = False
        self._calm_since[p] = now
        if silence > timeout and not was_down:  # it was really late: timeout was too short, unless it was cut off
            self._timeout[p] = min(2 * timeout, LONGEST_TIMEOUT * self.params.suspect_after)
        return True

    def look(self, now: int) -> None:
        """Say that a heartbeat has passed. If it was far more, nobody was silent that long: this process was deaf."""
        missed = now - self._looked - 2 * self.params.heartbeat
        self._looked = now
        if missed > 0:
            self._heard = [min(now, heard + missed) for heard in self._heard]

    def waits(self) -> str:
        """Say what is missing before everybody can be judged: some may not have started yet."""
        unheard = len([p for p in self.watched if not self._known[p] and not self.suspected[p]])
        return f"{unheard} others not heard yet" if unheard else ""

    def newly_suspected(self, now: int) -> list[int]:
        """Return those that have become suspect by now."""
        trusted = [p for p in self.watched if not self.suspected[p]]
        silent = [p for p in trusted if now - self._heard[p] > self._timeout[p]]
        for p in silent:
            self.suspected[p] = True
        return silent
