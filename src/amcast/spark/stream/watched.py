"""A running cluster that is watched: who should be there, and who answers."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from amcast.errors import AmcastError, UsageError
from amcast.runtime.config import ClusterConfig
from amcast.spark.stream import replicas, watch
from amcast.spark.stream.seen import Answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Watched:
    """Who should be there, by cluster.toml, and who answers. A spare is expected if it answers: then it has joined."""

    def __init__(self, config: ClusterConfig, client: str | None) -> None:
        self.config = config
        self.client = client
        self.asked = time.time_ns()
        self.silent_since: dict[str, float] = {}  # of those that do not answer
        self.at_start = self.ask()
        for g in config.groups:
            names = [member.name for member in config.group(g)]
            if not any(name in self.at_start for name in names):
                raise UsageError(f"no replica of g{g} answers ({', '.join(names)}); expected one at least; start them")

    def ask(self) -> dict[str, int]:
        """Return the positions of those that answer, and note who does not."""
        asked = time.monotonic()
        found = replicas.positions(self.config, self.client)
        silent = {member.name for member in self.config.members if not self.config.is_spare(member)} - found.keys()
        self.silent_since = {name: self.silent_since.get(name, asked) for name in silent}
        return found

    def rows(self, spark: "SparkSession", start: str) -> "DataFrame":
        """Return what every replica delivers, as a stream."""
        client = {"client": self.client} if self.client else {}
        return watch.from_cluster(spark, {"config": str(self.config.path), "start": start, **client})

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each replica that does not answer has not answered."""
        now = time.monotonic()
        return {name: now - since for name, since in self.silent_since.items()}

    @contextmanager
    def asked_again(self, seconds: float) -> Iterator[None]:
        """Ask again and again, in the background."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(seconds):
                with suppress(AmcastError, OSError):
                    self.ask()

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

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
