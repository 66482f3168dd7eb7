"""Which replicas a client trusts to be up, for the process of a client whose protocol counts on that (`Detecting`).

Only replicas that could answer something are watched. One that has said nothing for a while is asked how it is; one
that stays silent, connected or not, is suspected, and trusted again when it is heard. This is as good as time-outs are:
the same that replicas judge each other by (`pulse.py`).
"""

from typing import TYPE_CHECKING

from amcast.core.capabilities import Detecting

if TYPE_CHECKING:
    from amcast.runtime.client import Client


class ClientDetector:
    def __init__(self, client: "Client", process: Detecting) -> None:
        self._client = client
        self._process = process
        self._silence = round(max(2 * client.config.suspect_ms, 1000.0) * 1e6)
        self._heard: dict[int, int] = {}  # those that are watched, and when they were last heard or began to be watched
        self._asked: dict[int, int] = {}
        self._suspected: dict[int, bool] = {}
        self._looked_at = 0

    def heard(self, pid: int) -> None:
        """Take note that this replica said something."""
        if pid in self._heard:
            self._heard[pid] = self._client._now()
        if self._suspected.pop(pid, False):
            self._tell(pid, suspected=False)

    def look(self) -> None:
        """Suspect who is silent, and ask who may be."""
        client, now = self._client, self._client._now()
        stood_still = now - self._looked_at > self._silence // 2  # this process did, and heard nobody meanwhile
        self._looked_at = now
        members = client.config.topology.members_of
        dests = dict.fromkeys([batch.dest for batch in client._engine.open.values()])
        waited_for = dict.fromkeys([pid for dest in dests for pid in members(dest)])
        self._heard = {pid: now if stood_still else self._heard.get(pid, now) for pid in waited_for}
        for pid, heard in self._heard.items():
            if now - heard > self._silence:
                if pid not in self._suspected:
                    self._suspected[pid] = True
                    self._tell(pid, suspected=True)
            elif now - max(heard, self._asked.get(pid, 0)) > self._silence // 4:
                self._asked[pid] = now
                if connection := client._connection(pid):
                    connection.inquire()

    def _tell(self, pid: int, *, suspected: bool) -> None:
        self._process.detect(self._client._now(), pid, suspected)
        self._client._schedule()
