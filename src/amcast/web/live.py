"""The page about a running cluster, from what every node says about itself on its admin listener, once a second.

Who is a member is read from the files beside `cluster.toml`, as commands do. What replicas applied is compared by the
hashes that they keep of it; states are hashed and compared when somebody asks for it on the page, for that takes a
node time. The page sends nothing else to the cluster.
"""

import asyncio
import json
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from amcast.errors import UsageError
from amcast.protocols import PROTOCOLS
from amcast.runtime.config import Address, ClusterConfig, Member, load_config
from amcast.runtime.seats import current
from amcast.web.server import PageServer, Query, as_json, serve

EVERY: Final = 1.0  # seconds
ANSWER: Final = 2.0
LARGEST_ANSWER: Final = 2**20
KEPT: Final = 300  # samples: five minutes
RECENT: Final = 10  # samples that rates and percentiles are taken over
MOST_NEWS: Final = 50
LEADS: Final = (
    0.0,
    0.5,
    1.5,
)  # seconds ahead at which replicas that go on are asked for their states, one after another

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


@dataclass(frozen=True)
class Agreement:
    """What the hashes of a group say: how many replicas applied the same up to a position, and who did not."""

    position: int
    agree: int
    differ: tuple[str, ...] = ()


class SeenClient:
    """A gateway, or a program, that tells at an address how long things take for it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.name: str | None = None
        self.samples: deque[tuple[float, dict[str, Buckets]]] = deque(maxlen=RECENT + 1)
        self.history: dict[str, deque[float | None]] = {name: deque(maxlen=KEPT) for name in ("p50", "p99")}

    async def look(self, cluster: str, clock: Callable[[], float]) -> None:
        """Ask it once. Who does not answer, or is a client of another cluster, has no numbers."""
        status, metrics = await asyncio.gather(ask(self.address, "/status"), ask(self.address, "/metrics"))
        said: object = None
        with suppress(ValueError):
            said = json.loads(status[1]) if status is not None else None
        if not isinstance(said, dict) or said.get("cluster") != cluster or metrics is None:
            self.samples.clear()
        else:
            self.name = str(said.get("id"))
            self.samples.append((clock(), buckets_in(metrics[1].decode(errors="replace"))))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            found = [percentile(self.recent(f"amcast_{what}_seconds"), share) for what in ("command", "multicast")]
            self.history[name].append(found[1] if found[0] is None else found[0])  # what the users of a gateway see

    def recent(self, name: str) -> Buckets:
        """Return what was measured since the oldest sample."""
        if not self.samples:
            return {}
        before, now = self.samples[0][1].get(name, {}), self.samples[-1][1].get(name, {})
        return {bound: number - before.get(bound, 0.0) for bound, number in now.items()}

    def row(self) -> dict[str, object]:
        row: dict[str, object] = {"id": self.name or "?", "at": str(self.address), "answers": bool(self.samples)}
        seconds = self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0
        for what in ("command", "multicast"):
            found = self.recent(f"amcast_{what}_seconds")
            row[f"{what}s"] = found[max(found)] / seconds if found and seconds else None
            row |= {f"{what}_p50": percentile(found, 0.5), f"{what}_p99": percentile(found, 0.99)}
        return {**row, **{name: list(values) for name, values in self.history.items()}}


class Watch:
    def __init__(
        self,
        config: ClusterConfig,
        clock: Callable[[], float] = time.monotonic,
        clients: Iterable[Address] = (),
    ) -> None:
        self.clients = [SeenClient(address) for address in clients]
        self.protocol = PROTOCOLS[config.protocol]
        self.config = current(config, self.protocol)
        self.clock = clock
        self.nodes = [SeenNode(member) for member in self.config.members]
        self.token = secrets.token_hex(8)  # no other page can know it, and so ask for states
        self.groups = list(dict.fromkeys(node.group for node in self.nodes))
        self.leaders: dict[str, tuple[int, str]] = {}
        self.news: deque[dict[str, object]] = deque(maxlen=MOST_NEWS)
        self.times: deque[float] = deque(maxlen=KEPT)
        self.history: dict[str, dict[str, deque[float | None]]] = {
            group: {name: deque(maxlen=KEPT) for name in ("rate", "lag", "up")} for group in self.groups
        }
        self.led: dict[str, deque[str | None]] = {group: deque(maxlen=KEPT) for group in self.groups}
        self.guests: dict[str, dict[str, int]] = {group: {} for group in self.groups}
        self.agreements: dict[str, Agreement | None] = dict.fromkeys(self.groups)

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.05, EVERY - (time.monotonic() - began)))

    async def look(self) -> None:
        """Ask every node once."""
        self.follow_members()
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
            self.note_guests(group)
            self.keep(group)
        await asyncio.gather(*(client.look(self.config.name, self.clock) for client in self.clients))
        if "total" in self.protocol.orders and not self.protocol.joins:
            await asyncio.gather(*map(self.compare, self.groups))

    def members_of(self, group: str) -> list[SeenNode]:
        return [node for node in self.nodes if node.group == group]

    def follow_members(self) -> None:
        """Take note of who became a member, and who is none any more."""
        with suppress(UsageError):  # the next time
            self.config = current(self.config, self.protocol)
        seen, now = {node.member.name for node in self.nodes}, {member.name: member for member in self.config.members}
        for name in sorted(now.keys() - seen):
            self.tell(f"{name} is a member now", "good")
        for name in sorted(seen - now.keys()):
            self.tell(f"{name} is no member any more", "leader")
        old = {node.member: node for node in self.nodes}
        self.nodes = [old.get(member) or SeenNode(member) for member in self.config.members]

    def note_guests(self, group: str) -> None:
        """Note who learns, to become a member, and how far they are."""
        samples = [sample for node in self.members_of(group) if (sample := node.latest()) is not None]
        guests: dict[str, int] = {}
        for sample in samples:
            said = sample.status.get("guests")
            for name, position in said.items() if isinstance(said, dict) else ():
                guests[name] = max(position, guests.get(name, -1))
        for name in sorted(guests.keys() - self.guests[group].keys()):
            self.tell(f"{name} learns, to become a member of {group}", "leader")
        self.guests[group] = guests

    async def compare(self, group: str) -> None:
        """Compare what the replicas of a group applied, where all of them have been."""
        nodes = [(node.member, sample) for node in self.members_of(group) if (sample := node.latest()) is not None]
        at = (
            min((position_of(sample) for _, sample in nodes), default=0) - 1
        )  # at the end itself, they hash their state
        if len(nodes) < 2 or at < 0:
            self.agreements[group] = None
            return
        said = await asyncio.gather(*(fingerprint_of(member, at) for member, _ in nodes))
        pairs = zip(nodes, said, strict=True)
        values = [(member.name, (one["link"], one["since"]), one["chain"]) for (member, _), one in pairs if one]
        before, self.agreements[group] = self.agreements[group], agreement_of(values)
        after = self.agreements[group]
        if after is not None and after.differ and not (before and before.differ):
            names = ", ".join(after.differ)
            self.tell(f"{group}: {names} did not apply the same as the others, up to position {after.position}", "bad")

    async def states(self, query: Query) -> tuple[str, bytes]:
        """Compare the states of all replicas now."""
        if query.get("token") != self.token:
            raise UsageError("expected the token of this page")
        return as_json(await asyncio.gather(*map(self.states_of, self.groups)))

    async def states_of(self, group: str) -> dict[str, object]:
        """Compare the states of a group at a position that all get to; ahead of them, if they go on."""
        nodes = self.members_of(group)
        rate = max((node.rate(position_of) or 0.0 for node in nodes), default=0.0)
        found: Agreement | None = None
        for lead in LEADS:
            ends = [one for one in await asyncio.gather(*(fingerprint_of(node.member) for node in nodes)) if one]
            at = max((one["position"] for one in ends), default=0) + int(lead * rate)
            for _ in range(2):  # a node answers within a second, with what it has by then
                said = await asyncio.gather(*(fingerprint_of(node.member, at) for node in nodes))
            pairs = zip(nodes, said, strict=True)
            found = agreement_of([(node.member.name, (one["link"], 0), one["state"]) for node, one in pairs if one])
            if found is not None and (found.differ or found.agree == len(nodes)):
                break
        return {"group": group, "of": len(nodes), **(asdict(found) if found is not None else {"agree": 0})}

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
        leader = self.leaders.get(group, (0, ""))[1]
        leads = any(node.member.name == leader and node.latest() is not None for node in members)
        self.led[group].append(leader if leads else None)

    async def send(self, query: Query) -> tuple[str, bytes]:
        return as_json(self.document())

    def document(self) -> dict[str, object]:
        return {
            "cluster": self.config.name,
            "protocol": self.config.protocol,
            "app": self.config.app,
            "durable": self.config.durable,
            "now": time.time(),
            "token": self.token,
            "times": list(self.times),
            "nodes": [self.row(node) for node in self.nodes],
            "groups": [
                {
                    "name": group,
                    "leader": self.leaders.get(group, (0, None))[1],
                    "ballot": self.leaders.get(group, (None, ""))[0],
                    "led": list(self.led[group]),
                    "guests": self.guests[group],
                    "agreement": asdict(agreed) if (agreed := self.agreements[group]) is not None else None,
                    **{name: list(values) for name, values in self.history[group].items()},
                }
                for group in self.groups
            ],
            "clients": [client.row() for client in self.clients],
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


def agreement_of(values: Iterable[tuple[str, tuple[int, int], str | None]]) -> Agreement | None:
    """Return what hashes say, each with who has it and the span that it is of. None if they say nothing."""
    by_span: defaultdict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for name, span, value in values:
        if value is not None:
            by_span[span][name] = value
    span, of = max(by_span.items(), key=lambda found: len(found[1]), default=((0, 0), {}))
    if len(of) < 2:
        return None
    most, agree = Counter(of.values()).most_common(1)[0]
    return Agreement(span[0], agree, tuple(name for name, value in of.items() if value != most))


async def fingerprint_of(member: Member, at: int | None = None) -> dict[str, Any] | None:
    """Ask a node for its hashes at a position, or now. Return None if it does not answer, or knows of none."""
    answer = await ask(member.admin, "/fingerprint" if at is None else f"/fingerprint?at={at}")
    with suppress(ValueError):
        said = json.loads(answer[1]) if answer is not None and answer[0] == 200 else None
        if isinstance(said, dict) and {"position", "link", "since", "chain", "state"} <= said.keys():
            return said
    return None


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
    families = text_string_to_metric_families(metrics)
    samples = (sample for family in families for sample in family.samples)
    requests = next((sample.value for sample in samples if sample.name == "amcast_requests_total"), 0.0)
    return requests, buckets_in(metrics).get("amcast_commit_seconds", {})


def buckets_in(metrics: str) -> dict[str, Buckets]:
    """Return all histograms, by their names."""
    found: defaultdict[str, Buckets] = defaultdict(dict)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                found[sample.name.removesuffix("_bucket")][float(sample.labels["le"])] = sample.value
    return found


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


def view_cluster(config: Path, port: int = 0, *, clients: Iterable[Address] = (), ready: Callable[[str], None]) -> None:
    """Serve the page about a cluster until SIGTERM or SIGINT. `clients` tell at these addresses what they see."""
    watch = Watch(load_config(config, PROTOCOLS), clients=clients)

    async def main() -> None:
        looking = asyncio.create_task(watch.run())
        try:
            await serve(PageServer("live.html", {"/live": watch.send, "/states": watch.states}), port, ready)
        finally:
            looking.cancel()

    asyncio.run(main())
