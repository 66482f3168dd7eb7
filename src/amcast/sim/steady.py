"""What servers that broadcast all the time achieve, between start and end of a run: as the AllConcur+ paper measures.

With R rounds the window is from when every server has delivered R/12 messages of each, to when every server has all but
the last R/12: 10n and 110n deliveries with 120 rounds, as there (§V-A).
"""

from collections import Counter
from typing import Final

from amcast.core.trace import Event
from amcast.sim.network import SECOND
from amcast.sim.summary import Samples

LEFT_OUT: Final = 12


class Steady:
    def __init__(self, servers: int, rounds: int) -> None:
        margin = rounds // LEFT_OUT
        self.own = Samples()  # from a server's broadcast of a message to its own delivery
        self.per_second: float | None = None  # messages that a server delivers, once the window is over
        self._servers = servers
        self._bounds = (margin * servers, (rounds - margin) * servers)
        self._delivered: Counter[str] = Counter()
        self._reached = [0, 0]  # how many servers
        self._in_all = 0
        self._open: tuple[int, int] | None = (0, 0) if margin == 0 else None  # when the window began, deliveries then
        self._sent: dict[str, int] = {}

    def record(self, event: Event) -> None:
        message = event.message
        if message is None or event.time is None or self.per_second is not None:
            return
        if event.kind == "multicast":
            self._sent[message] = event.time
        elif event.kind == "deliver":
            self._in_all += 1
            self._delivered[event.process] += 1
            if message.rpartition(":")[0] == event.process:
                latency = event.time - self._sent.pop(message)
                if self._open is not None:
                    self.own.add(latency)
            self._look_at(event.process, event.time)

    def _look_at(self, server: str, now: int) -> None:
        """Open or close the window when the last server has come so far."""
        for i, bound in enumerate(self._bounds):
            if self._delivered[server] == bound:
                self._reached[i] += 1
                if self._reached[i] == self._servers:
                    self._turn(now)

    def _turn(self, now: int) -> None:
        if self._open is None:
            self._open = (now, self._in_all)
        else:
            began, before = self._open
            self.per_second = (self._in_all - before) / self._servers * SECOND / (now - began)
