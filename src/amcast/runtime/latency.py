"""How long multicasts and commands take as a client of the cluster sees it, for Prometheus and `amcast view`.

Plain numbers while running; the text is made when asked for. A client that is given an address answers there what an
admin listener of a node does: /status, /readyz and /metrics.
"""

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from amcast.runtime.config import Address

if TYPE_CHECKING:
    from amcast.runtime.admin import Admin

BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds


class Latency:
    """A histogram."""

    def __init__(self, name: str, what: str) -> None:
        self.name = name
        self.what = what
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, ns: int, count: int = 1) -> None:
        """Take note of so many that took so long together."""
        seconds = ns / 1e9
        self.counts[bisect_left(BOUNDS, seconds)] += count
        self.total += seconds * count

    def lines(self) -> list[str]:
        """Return it as Prometheus has it."""
        found = [f"# HELP {self.name} {self.what}", f"# TYPE {self.name} histogram"]
        below = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            below += count
            found.append(f'{self.name}_bucket{{le="{bound}"}} {below}')
        return [*found, f"{self.name}_sum {self.total}", f"{self.name}_count {below}"]


class ClientNumbers:
    """What a client measures, and where it tells."""

    def __init__(self, cluster: str, name: str, address: Address | None) -> None:
        self.multicasts = Latency("amcast_multicast_seconds", "From a multicast to the answers of all its groups")
        self.latencies = [self.multicasts]
        self._status: dict[str, object] = {"cluster": cluster, "id": name, "pid": os.getpid()}
        self.address = address  # and the port that was chosen, once it listens
        self._admin: Admin | None = None

    async def start(self) -> None:
        """Listen, if there is an address. Raises UsageError if that is taken."""
        if self.address is not None:
            from amcast.runtime.admin import Admin  # brings prometheus_client, which few clients need

            self._admin = Admin(lambda: self._status, lambda: None, self.text)
            self.address = await self._admin.start(self.address)

    async def stop(self) -> None:
        if self._admin is not None:
            await self._admin.stop()

    def text(self) -> bytes:
        return "".join(f"{line}\n" for one in self.latencies for line in one.lines()).encode()
