"""A running cluster that is watched: who should be there, and who answers."""

import time
from collections.abc import Mapping

from amcast.errors import UsageError
from amcast.runtime.config import ClusterConfig
from amcast.spark.stream import replicas
from amcast.spark.stream.seen import Answers


class Watched:
    """Who should be there, by cluster.toml, and who answers. A spare is expected if it answers: then it has joined."""

    def __init__(self, config: ClusterConfig, client: str | None) -> None:
        self.config = config
        self.client = client
        self.asked = time.time_ns()
        self.at_start = self.ask()
        for g, pids in enumerate(config.topology.groups):
            names = [config.members[pid].name for pid in pids]
            if not any(name in self.at_start for name in names):
                raise UsageError(f"no replica of g{g} answers ({', '.join(names)}); expected one at least; start them")

    def ask(self) -> dict[str, int]:
        """Return the positions of those that answer."""
        return replicas.positions(self.config, self.client)

    def members(self, answering: Mapping[str, int]) -> dict[str, str]:
        """Return those that should be there, with their groups."""
        config = self.config
        return {m.name: f"g{m.group}" for m in config.members if not config.is_spare(m) or m.name in answering}

    def answering(self) -> dict[str, str]:
        """Return those that answered at the start, with their groups."""
        return {name: group for name, group in self.members(self.at_start).items() if name in self.at_start}

    def at_end(self, whole: bool) -> Answers:
        """Ask again. `whole`: what there was at the start had to be read."""
        ends = self.ask()
        silent = {member.name for member in self.config.members} - set(ends)
        return Answers(silent, self.at_start if whole else ends, self.asked if whole else 0)
