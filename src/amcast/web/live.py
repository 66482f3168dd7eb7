"""The page about a running cluster, from what every node says about itself on its admin listener, once a second.

The page sends nothing else to the cluster. Only clients know how long a multicast takes; nodes know how long their
disks take.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from amcast.protocols import PROTOCOLS
from amcast.runtime.config import Address, ClusterConfig, Member, load_config
from amcast.web.server import PageServer, Query, as_json, serve

EVERY: Final = 1.0  # seconds
ANSWER: Final = 2.0
LARGEST_ANSWER: Final = 2**20
KEPT: Final = 300  # samples: five minutes
RECENT: Final = 10  # samples that rates and percentiles are taken over
MOST_NEWS: Final = 50

Buckets = dict[float, float]  # how many took at most so long


@dataclass(frozen=True)
class Sample:
    """One answer of a node."""

    when: float
    status: dict[str, Any]
    not_ready: str | None
    requests: float
    commits: Buckets


@dataclass
class SeenNode:
    """A replica as it looks from here."""

    member: Member
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=RECENT + 1))
    up: bool | None = None

    @property
    def group(self) -> str:
        return self.member.name.partition("/")[0]

    def latest(self) -> Sample | None:
        return self.samples[-1] if self.up and self.samples else None

    def rate(self, of: Callable[[Sample], float], over: int = RECENT + 1) -> float | None:
        """Return the growth per second of a number over the last samples."""
        if not self.up or len(self.samples) < 2:
            return None
        first, last = self.samples[-min(over, len(self.samples))], self.samples[-1]
        return max(0.0, of(last) - of(first)) / (last.when - first.when)


class Watch:
    def __init__(self, config: ClusterConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.clock = clock
        self.nodes = [SeenNode(member) for member in config.members]
        self.groups = list(dict.fromkeys(node.group for node in self.nodes))
        self.leaders: dict[str, tuple[int, str]] = {}
        self.news: deque[dict[str, object]] = deque(maxlen=MOST_NEWS)
        self.times: deque[float] = deque(maxlen=KEPT)
        self.history: dict[str, dict[str, deque[float | None]]] = {
            group: {name: deque(maxlen=KEPT) for name in ("rate", "lag", "up")} for group in self.groups
        }

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.05, EVERY - (time.monotonic() - began)))

    async def look(self) -> None:
        """Ask every node once."""
        found = await asyncio.gather(*(sample_of(self.config, node.member, self.clock) for node in self.nodes))
        for node, sample in zip(self.nodes, found, strict=True):
            self.note_up(node, sample)
            if sample is not None:
                if node.samples and sample.status.get("pid") != node.samples[-1].status.get("pid"):
                    node.samples.clear()
                node.samples.append(sample)
        self.times.append(time.time())
        for group in self.groups:
            self.note_leader(group)
            self.keep(group)

    def note_up(self, node: SeenNode, sample: Sample | None) -> None:
        up = sample is not None
        if node.up is not None and up != node.up:
            self.tell(f"{node.member.name} {'answers again' if up else 'does not answer'}", "good" if up else "bad")
        node.up = up

    def note_leader(self, group: str) -> None:
        """Note the leader of the highest ballot. It leads, whatever an older one still believes."""
        leads = [
            (number_of(sample, "ballot"), node.member.name)
            for node in self.nodes
            if node.group == group and (sample := node.latest()) and sample.status.get("leads") is True
        ]
        before = self.leaders.get(group)
        if leads and (before is None or max(leads) > before):
            self.leaders[group] = max(leads)
            if before is not None:
                ballot, name = max(leads)
                again = " again" if name == before[1] else f" instead of {before[1]}"
                self.tell(f"{name} leads {group}{again}, ballot {ballot}", "leader")

    def tell(self, text: str, tone: str) -> None:
        self.news.append({"time": time.time(), "text": text, "tone": tone})

    def keep(self, group: str) -> None:
        members = [node for node in self.nodes if node.group == group]
        rates = [rate for node in members if (rate := node.rate(position_of, over=2)) is not None]
        positions = [position_of(sample) for node in members if (sample := node.latest()) is not None]
        kept = self.history[group]
        kept["rate"].append(max(rates, default=None))
        kept["lag"].append(max(positions) - min(positions) if positions else None)
        kept["up"].append(len(positions))

    async def send(self, query: Query) -> tuple[str, bytes]:
        return as_json(self.document())

    def document(self) -> dict[str, object]:
        return {
            "cluster": self.config.name,
            "protocol": self.config.protocol,
            "app": self.config.app,
            "durable": self.config.durable,
            "now": time.time(),
            "times": list(self.times),
            "nodes": [self.row(node) for node in self.nodes],
            "groups": [
                {
                    "name": group,
                    "leader": self.leaders.get(group, (0, None))[1],
                    "ballot": self.leaders.get(group, (None, ""))[0],
                    **{name: list(values) for name, values in self.history[group].items()},
                }
                for group in self.groups
            ],
            "news": list(self.news)[::-1],
        }

    def row(self, node: SeenNode) -> dict[str, object]:
        row: dict[str, object] = {"id": node.member.name, "group": node.group}
        sample = node.latest()
        if sample is None:
            return {**row, "state": "no answer"}
        first = max(
            position_of(other.samples[-1]) for other in self.nodes if other.group == node.group and other.latest()
        )
        peers = sample.status.get("peers") or {}
        before = node.samples[0].commits
        commits = {bound: number - before.get(bound, 0.0) for bound, number in sample.commits.items()}
        return {
            **row,
            "state": sample.not_ready or "ready",
            **{name: sample.status.get(name) for name in ("role", "ballot", "position", "clients", "uptime")},
            "lag": first - position_of(sample),
            "deliveries": node.rate(position_of),
            "requests": node.rate(lambda one: one.requests),
            "peers": [sum(map(bool, peers.values())), len(peers)],
            "commit_p50": percentile(commits, 0.5),
            "commit_p99": percentile(commits, 0.99),
        }


def number_of(sample: Sample, name: str) -> int:
    said = sample.status.get(name)
    return said if isinstance(said, int) else 0


def position_of(sample: Sample) -> int:
    return number_of(sample, "position")


def percentile(buckets: Buckets, share: float) -> float | None:
    """Return the time within which this share of commits finished; None without commits.

    Within a bucket the times are taken to be evenly spread.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    below, start = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            if bound == float("inf"):
                return start
            inside = buckets[bound] - below
            return start + (bound - start) * ((share * total - below) / inside if inside else 1.0)
        below, start = buckets[bound], bound
    return start


async def sample_of(config: ClusterConfig, member: Member, clock: Callable[[], float]) -> Sample | None:
    """Ask a node how it is. Return None if it does not answer, or if somebody else answers at its address."""
    status, ready, metrics = await asyncio.gather(
        *(ask(member.admin, path) for path in ("/status", "/readyz", "/metrics"))
    )
    if status is None or ready is None or metrics is None or status[0] != 200:
        return None
    with suppress(ValueError):
        said = json.loads(status[1])
        if isinstance(said, dict) and (said.get("cluster"), said.get("id")) == (config.name, member.name):
            not_ready = None if ready[0] == 200 else ready[1].decode(errors="replace").strip()
            return Sample(clock(), said, not_ready, *numbers_of(metrics[1].decode(errors="replace")))
    return None


def numbers_of(metrics: str) -> tuple[float, Buckets]:
    """Return the requests so far, and the commits by how long they took."""
    requests, commits = 0.0, {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "amcast_requests_total":
                requests = sample.value
            elif sample.name == "amcast_commit_seconds_bucket":
                commits[float(sample.labels["le"])] = sample.value
    return requests, commits


async def ask(address: Address, path: str) -> tuple[int, bytes] | None:
    """Ask an admin listener. Return None if it does not answer."""
    try:
        async with asyncio.timeout(ANSWER):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) < LARGEST_ANSWER and (part := await reader.read(1 << 16)):
                    answer += part
            finally:
                writer.transport.abort()
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body
    except (OSError, TimeoutError, ValueError, IndexError):
        return None


def view_cluster(config: Path, port: int = 0, *, ready: Callable[[str], None]) -> None:
    """Serve the page about a cluster until SIGTERM or SIGINT."""
    watch = Watch(load_config(config, PROTOCOLS))

    async def main() -> None:
        looking = asyncio.create_task(watch.run())
        try:
            await serve(PageServer("live.html", {"/live": watch.send}), port, ready)
        finally:
            looking.cancel()

    asyncio.run(main())
