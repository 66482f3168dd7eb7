"""Whether some groups serve, found out by a client before it sends more to them.

All replicas of the groups are asked at once. The groups serve if each has a replica that sees all of them serve. A
replica that is cut off says otherwise, and so does one that knows of another group's failure. The groups do not serve
if nobody is left who could say that they do, or if nobody says so in time.
"""

from amcast.runtime.config import ClusterConfig


class Inquiry:
    """The question for one set of groups, and the answers so far."""

    def __init__(self, dest: tuple[int, ...], config: ClusterConfig) -> None:
        self.dest = dest
        self._topology = config.topology
        self.members = {g: [member.pid for member in config.group(g)] for g in dest}
        self._unheard = {pid for members in self.members.values() for pid in members}
        self._serving: set[int] = set()  # groups of which a replica says that all these groups serve
        self._reasons: list[str] = []
        self._unreachable: dict[int, str] = {}

    def told(self, pid: int, refusals: tuple[str, ...]) -> None:
        """Take what a replica says of each group: why it is refused, or nothing."""
        if pid in self._unheard:
            self._unheard.discard(pid)
            reasons = [refusals[g] for g in self.dest if g < len(refusals) and refusals[g]]
            self._reasons += reasons
            if not reasons:
                self._serving.add(self._topology.group_of[pid])

    def unreachable(self, pid: int, reason: str) -> None:
        if pid in self._unheard:
            self._unheard.discard(pid)
            self._unreachable[pid] = reason

    def verdict(self, *, at_once: bool = False) -> str | None:
        """Return why the groups do not serve, empty if they do; None if that is not known yet and may still be."""
        missing = [g for g in self.dest if g not in self._serving]
        if not missing:
            return ""
        waits = not at_once and any(self._topology.group_of[pid] in missing for pid in self._unheard)
        return None if waits else self._reasons[0] if self._reasons else self._nobody(missing[0])

    def _nobody(self, g: int) -> str:
        said = [
            f"{self._topology.name(pid)} {self._unreachable.get(pid, 'does not answer')}" for pid in self.members[g]
        ]
        return f"nobody of {self._topology.group_name(g)} can be reached: {', '.join(said)}"
